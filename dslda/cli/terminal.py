"""Text for people, in which words, levels, identifiers and paths of the user's data cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from dslda.wording import printable

__all__ = ["echo", "printable_cells"]


def echo(line: str, *, err: bool = False) -> None:
    """Print one line, and control characters in it as Python writes them."""
    click.echo(printable(line), err=err)


def printable_cells(rows: Iterable[Iterable[Any]]) -> Iterator[list[Any]]:
    """Rows with printable strings, for CSV that goes to a terminal; that in files has the bytes of the data."""
    return ([printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
