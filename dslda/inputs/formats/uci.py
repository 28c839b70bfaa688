"""The bag-of-words form of the UCI repository: ``docword.*.txt``, whose terms stand in ``vocab.*.txt``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from dslda.inputs.formats.matrix_market import EntryLines, sizes_of

__all__ = ["UciBags"]


@dataclass(frozen=True, slots=True)
class UciBags(EntryLines):
    """Numbers of documents, terms and entries on three lines, then the entries.

    The files end as texts do: the beginnings of their names tell them apart.
    """

    format = "uci"
    title = "UCI bags of words"
    about = "bags of words of the UCI repository, docword.*.txt"
    beginnings = ("docword.",)

    def shape(self, lines: Iterator[str]) -> tuple[int, int, int]:
        return sizes_of([line.strip() for line in islice(lines, 3)], "documents, terms, entries")
