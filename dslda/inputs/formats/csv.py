"""CSV: values with commas, tabs or another separator between them, under a header."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from dslda.exceptions import InputError
from dslda.inputs.fields import Attempt, Fields
from dslda.inputs.formats.base import FilePiece, compressed_target, sparse_borders
from dslda.inputs.reading import ReadingRules
from dslda.inputs.streams import MAX_LINE_BYTES, Lines

__all__ = ["CsvLines", "TsvLines"]

Rows: TypeAlias = Iterator[tuple[int, list[str] | InputError]]
"""Cells of rows, or their errors, with the numbers of their first lines in the piece."""


@dataclass(frozen=True, slots=True)
class CsvLines(FilePiece):
    """Values with separators between them and a header line; quoted cells may hold line ends.

    Attributes
    ----------
    separator : str
        The separator unless the rules of the file name another.
    start, stop : int, int or None
        Range of bytes that begins where a record begins.
    first_line : int
        Number of the line at `start`.
    columns : tuple of str or None
        The header, if `start` is behind it.
    """

    format = "csv"
    title = "CSV"
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    streamable = True
    rules = frozenset(rule.name for rule in dataclasses.fields(ReadingRules))
    separator: ClassVar[str] = ","

    start: int = 0
    stop: int | None = None
    first_line: int = 1
    columns: tuple[str, ...] | None = None

    def attempts(self, fields: Fields) -> Iterator[tuple[int, Attempt]]:
        lines = self.lines()
        rows = self._rows(lines)
        columns = self.columns or _header(rows)
        if columns is None:
            return
        fields.check_present(columns, self.file.name)
        positions = {name: columns.index(name) for name in fields.named() if name in columns}
        missing = frozenset(self._rules.na_values or ())
        for number, row in rows:
            if isinstance(row, InputError):
                yield number, row
            elif len(row) != len(columns):
                error = InputError(
                    f"must have {len(columns)} cells as the header has, got {len(row)}",
                    place=lines.place(number),
                    remedy=f"put cells that hold {'commas' if self._separator == ',' else repr(self._separator)} in quotes",
                )
                yield number, error
            else:
                cells: Sequence[str | None] = row
                if missing:
                    cells = [None if cell.strip() in missing else cell for cell in row]
                yield number, {name: cells[position] for name, position in positions.items()}

    def raw_records(self) -> Iterator[object]:
        rows = self._rows(self.lines())
        if self.columns is None:
            next(rows, None)
        return rows

    def place(self, number: int) -> str:
        return self.lines().place(number)

    def field_names(self, wanted: Collection[str] = ()) -> Sequence[str] | None:
        return _header(self._rows(self.lines()))

    def lines(self) -> Lines:
        """The lines of the piece."""
        return Lines(self.file, self.start, self.stop, first_line=self.first_line)

    def cut(self, fields: Fields, target: int) -> Iterator[tuple[FilePiece, int]]:
        # a line end may be part of a cell, so only reading the whole file finds the records
        lines = self.lines()
        rows = self._rows(lines)
        columns = _header(rows)
        if columns is None:
            return
        borders = [(lines.end, lines.count + 1)]
        for _, row in rows:
            _raised(row)
            if lines.end - borders[-1][0] >= target:
                borders.append((lines.end, lines.count + 1))
        if self.file.is_sequential:
            # only now is the size known, which allows fewer borders
            borders = sparse_borders(borders, compressed_target(lines.end, target))
        ends = [start for start, _ in borders[1:]] + [lines.end]
        for (start, line), stop in zip(borders, ends, strict=True):
            if stop > start:
                piece = dataclasses.replace(self, start=start, stop=stop, first_line=line, columns=columns)
                yield piece, stop - start

    @property
    def _rules(self) -> ReadingRules:
        return self.file.rules or ReadingRules()

    @property
    def _separator(self) -> str:
        return self._rules.separator or self.separator

    def _rows(self, lines: Lines) -> Rows:
        """All rows that are not blank."""
        csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
        refusals: list[InputError] = []

        def decoded() -> Iterator[str]:
            for line, refusal in lines.attempts():
                if refusal is not None:
                    refusals.append(refusal)
                yield line

        reader = csv.reader(decoded(), strict=True, delimiter=self._separator, escapechar=self._rules.escape)
        while True:
            first_line = lines.count + 1
            row: list[str] | InputError | None
            try:
                row = next(reader, None)
            except csv.Error as error:
                # the reader goes on with the next line
                # Python's reason for a carriage return is advice for authors
                row = InputError(
                    f"not {self.title}: {'a carriage return outside quotes' if lines.end_remedy else error}",
                    place=lines.place(first_line),
                    remedy=lines.end_remedy or "is a quote not closed, or not doubled inside a cell?",
                )
            if row is None:
                return
            if refusals:
                row = refusals[0]
                refusals.clear()
            if row:
                yield first_line, row


@dataclass(frozen=True, slots=True)
class TsvLines(CsvLines):
    """CSV with tabs between the values."""

    format = "tsv"
    title = "TSV"
    about = "CSV with tabs"
    endings = (".tsv", ".tab")
    separator: ClassVar[str] = "\t"


def _header(rows: Rows) -> tuple[str, ...] | None:
    """The names of the columns, None where there is no row."""
    header = next(rows, None)
    return None if header is None else tuple(_raised(header[1]))


def _raised(row: list[str] | InputError) -> list[str]:
    if isinstance(row, InputError):
        raise row
    return row
