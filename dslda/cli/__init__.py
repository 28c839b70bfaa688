"""The command line: ``dslda demo | ingest | train | predict | score | topics | info``."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit with its code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process by default.
    """
    from dslda.cli.program import run

    raise SystemExit(run(arguments))
