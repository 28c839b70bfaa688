"""The version of dslda, which is that of git's tags, and those of libraries."""

from __future__ import annotations

from functools import cache

__all__ = ["__version__", "library_versions"]

try:
    from dslda._version import __version__  # setuptools-scm writes it when the package is built or installed
except ModuleNotFoundError:
    __version__ = "0.1.0.dev0"  # sources that were never built: `fallback_version` of pyproject.toml


def library_versions(*libraries: str) -> dict[str, str]:
    """Versions of dslda, Python and some libraries, as files remember them."""
    import platform

    return {
        "dslda": __version__,
        "python": platform.python_version(),
        **{library: _version_of(library) for library in libraries},
    }


@cache
def _version_of(library: str) -> str:
    """Version of an installed library. Reading it takes milliseconds, as a fit of few documents does."""
    from importlib.metadata import version

    return version(library)
