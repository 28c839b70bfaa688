"""The contract of an input format: a class whose instances are pieces of a file.

A piece is picklable, so that many tasks can read one file at once. It numbers its records, and turns a number into a place
for messages: lines are counted from 1, as in editors, rows and records from 0, as in Python.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from dslda.exceptions import InputError
from dslda.inputs.fields import Attempt, Fields, Record
from dslda.inputs.streams import InputFile, Lines, read_blocks

__all__ = [
    "MOST_DIGITS",
    "FilePiece",
    "LinePiece",
    "Piece",
    "compressed_target",
    "is_whole",
    "sparse_borders",
]

COMPRESSED_PIECES = 8
MAX_COMPRESSED_PIECE_BYTES = 512 << 20
"""A compressed file, or one in another encoding than UTF-8, can only be entered at its start, so a piece costs the reading of
all before it. With 8 pieces that is 4 times the file in all, about a seventh of the work of tokenising it."""
MOST_DIGITS = 18
"""No count or size has more digits, and Python refuses to read thousands."""

Border = TypeVar("Border", bound=tuple[int, ...])


class Piece(Protocol):
    """A piece of the input, in a file or in memory."""

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        """Numbered records in the order of the input."""
        ...

    def place(self, number: int) -> str:
        """Place of the record with this number."""
        ...


@dataclass(frozen=True, slots=True)
class FilePiece(ABC):
    """A piece of a file of one format.

    A subclass is a format. Its class variables are the facts that the rest of the package asks for; its own fields, all
    with defaults, are the range of the piece. With the defaults the piece is the whole file.

    Attributes
    ----------
    format : str
        Name of the format, as users choose it.
    title : str
        Name of its files in messages: "text files".
    about : str
        Help of the command line, after the name; "" if the name says all.
    endings : tuple of str
        Endings of its files, in lower case.
    beginnings : tuple of str
        Beginnings of the names of its files, if the ending is that of another format.
    magic : tuple of bytes
        Beginnings of the content, if content of no other format begins so.
    own_fields : Fields or None
        Fields of its records, if users cannot choose them.
    by_position : bool
        Words are positions in a vocabulary, as digits.
    fields_vary : bool
        A record may lack a field that others have.
    one_document : bool
        A file is one document, identified by its path.
    streamable : bool
        Standard input can hold it.
    expansion : int
        Approximate bytes of text in a byte of the file.
    rules : frozenset of str
        The rules of :class:`~dslda.inputs.reading.ReadingRules` that its files can be read by.
    file : InputFile
    id : str
        Path of the file, relative to the folder that was named.
    n_terms : int
        Terms of the vocabulary, for words by position.
    """

    format: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str] = ""
    endings: ClassVar[tuple[str, ...]] = ()
    beginnings: ClassVar[tuple[str, ...]] = ()
    magic: ClassVar[tuple[bytes, ...]] = ()
    own_fields: ClassVar[Fields | None] = None
    by_position: ClassVar[bool] = False
    fields_vary: ClassVar[bool] = False
    one_document: ClassVar[bool] = False
    streamable: ClassVar[bool] = False
    expansion: ClassVar[int] = 1
    rules: ClassVar[frozenset[str]] = frozenset()

    file: InputFile
    id: str = field(default="", kw_only=True)
    n_terms: int = field(default=0, kw_only=True)

    @abstractmethod
    def attempts(self, fields: Fields) -> Iterator[tuple[int, Attempt]]:
        """Numbered records, with an error in place of each unreadable record that can be skipped; other errors are raised."""

    @abstractmethod
    def place(self, number: int) -> str:
        """Place of the record with this number."""

    @abstractmethod
    def cut(self, fields: Fields, target: int) -> Iterator[tuple[FilePiece, int]]:
        """Pieces of the whole file of about `target` bytes of text, with the bytes of each.

        Formats without an index are read to the end. That is quick beside tokenising, and finds damage before long work.
        """

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        """Numbered records; the first that cannot be read raises its error."""
        for number, attempt in self.attempts(fields):
            if isinstance(attempt, InputError):
                raise attempt
            yield number, attempt

    def raw_records(self) -> Iterator[object]:
        """An object for each record, readable or not, undecoded if that is quicker."""
        return self.attempts(self.own_fields or Fields())

    def field_names(self, wanted: Collection[str] = ()) -> Sequence[str] | None:
        """Names of the fields of the first records, or of all until those `wanted` are found; None without a record."""
        return None

    def categories(self, names: Collection[str]) -> dict[str, list[Any]]:
        """Categories of those of the fields that the file says are ordered, from the lowest; none without a record."""
        return {}

    def range(self) -> dict[str, Any]:
        """Start and end of the piece, as JSON; empty for a whole file."""
        own = [f for f in dataclasses.fields(self) if f.name not in FilePiece.__dataclass_fields__]
        values = {f.name: getattr(self, f.name) for f in own}
        if all(values[f.name] == f.default for f in own):
            return {}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class LinePiece(FilePiece):
    """A piece of a file with a record on each line that is not blank.

    Attributes
    ----------
    start, stop : int, int or None
        Range of bytes of the uncompressed file in UTF-8; the lines that start in it belong to this piece.
    """

    start: int = 0
    stop: int | None = None

    @abstractmethod
    def record(self, line: str, number: int) -> Record:
        """The record of the `number`-th line of the piece, counted from 1; its errors name no place."""

    def attempts(self, fields: Fields) -> Iterator[tuple[int, Attempt]]:
        lines = self.lines()
        for line, refusal in lines.attempts():
            if not line.strip():
                continue
            attempt: Attempt
            try:
                attempt = refusal or self.record(line, lines.count)
            except InputError as error:
                attempt = lines.located(error)
            yield lines.count, attempt

    def raw_records(self) -> Iterator[object]:
        return self.lines().raw_records()

    def place(self, number: int) -> str:
        return self.lines().place(number)

    def lines(self) -> Lines:
        """The lines of the piece."""
        return Lines(self.file, self.start, self.stop)

    def cut(self, fields: Fields, target: int) -> Iterator[tuple[FilePiece, int]]:
        size = self.file.size
        if self.file.is_sequential:
            size = sum(len(block) for block in read_blocks(self.file))
            target = compressed_target(size, target)
        n = max(round(size / target), 1)
        for i in range(n):
            start, stop = size * i // n, size * (i + 1) // n
            yield dataclasses.replace(self, start=start, stop=stop if i + 1 < n else None), stop - start


def compressed_target(size: int, target: int) -> int:
    """Bytes of a piece of a file of `size` bytes of text that can only be entered at its start."""
    return max(target, min(-(-size // COMPRESSED_PIECES), MAX_COMPRESSED_PIECE_BYTES))


def sparse_borders(borders: Sequence[Border], target: int) -> list[Border]:
    """The borders at least `target` bytes apart; the first item of a border is its byte."""
    chosen = list(borders[:1])
    for border in borders:
        if border[0] - chosen[-1][0] >= target:
            chosen.append(border)
    return chosen


def is_whole(cell: str) -> bool:
    """True for the digits of a whole number."""
    return cell.isdecimal() and len(cell) <= MOST_DIGITS
