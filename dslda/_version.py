from __future__ import annotations

__version__ = "0.1.0"


def library_versions(*libraries: str) -> dict[str, str]:
    """Versions of dslda, Python and some libraries, as files remember them."""
    import platform
    from importlib.metadata import version

    return {
        "dslda": __version__,
        "python": platform.python_version(),
        **{library: version(library) for library in libraries},
    }
