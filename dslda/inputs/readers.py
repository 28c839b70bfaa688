"""Records of documents: what is read from each kind of input, cut so that many tasks can read at once.

A *source* is a picklable piece of the input. Its :meth:`~Piece.records` gives numbered records, mappings
from field names to values; its :meth:`~Piece.place` turns such a number into the file and line that a
message names. Lines are counted from 1, as editors do, rows and records of a table, matrix or bag from 0, as
Python does.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from dslda.exceptions import InputError
from dslda.inputs.streams import MAX_LINE_BYTES, InputFile, Lines, read_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BagRecords",
    "CsvLines",
    "Fields",
    "FrameRows",
    "JsonLines",
    "LdacLines",
    "MatrixRows",
    "ParquetRows",
    "Piece",
    "Record",
    "TextFile",
    "attempts",
    "fields_there_are",
]

Record = Mapping[str, Any]

Attempt = Record | InputError
"""A record, or why there is none."""

PARQUET_BATCH_ROWS = 1024
PROBED_RECORDS = 1000
MOST_DIGITS = 18
"""Of a count: what has more is none, and Python refuses to read thousands of them."""

OTHER_SEPARATORS = (";", "\t", "|")
"""What stands between the fields of files that are called CSV, and hold none."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields of a record are what.

    Attributes
    ----------
    text : str or None
        Field of the text; or else
    words, counts : str or None
        Fields of the list of words and of the list of their counts.
    id : str or None
        Field of the identifier; None numbers the documents.
    responses, covariates : tuple of str
        Fields of numbers, or of names.
    weight : str or None
    categorical : tuple of str
        Those of the responses and covariates that hold names.
    optional : tuple of str
        Those of all these that a file may be without.

    Raises
    ------
    InputError
        A categorical field is neither response nor covariate.
    """

    text: str | None = None
    words: str | None = None
    counts: str | None = None
    id: str | None = None
    responses: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    weight: str | None = None
    categorical: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = (*self.responses, *self.covariates)
        for name in self.categorical:
            if name not in columns:
                raise InputError(
                    f"categorical must name fields among those of response and covariates, got {name!r}; "
                    f"these are: {', '.join(map(repr, columns)) or 'none'}"
                )

    def named(self) -> dict[str, str]:
        """Every field in use and what it is for."""
        single = {"text": self.text, "words": self.words, "counts": self.counts, "id": self.id}
        uses = {name: use for use, name in single.items() if name is not None}
        if self.weight is not None:
            uses.setdefault(self.weight, "weight")
        for name in self.covariates:
            uses.setdefault(name, "covariate")
        for name in self.responses:
            uses.setdefault(name, "response")
        return uses

    def check_against(self, present: Iterable[str], where: str) -> None:
        """Refuse fields that are not there, listing those that are, or that are there twice."""
        there = list(present)
        for name, use in self.named().items():
            if name not in there and name not in self.optional:
                raise InputError(f"{where} has no field {name!r} for the {use}; {fields_there_are(there)}")
            if there.count(name) > 1:
                raise InputError(f"{where} names the column {name!r} twice; rename one")


def fields_there_are(names: Sequence[str]) -> str:
    """The names of fields for a message, and what to do where they look like the header of a CSV that has no commas."""
    told = f"fields there are: {', '.join(map(repr, names[:50])) or 'none'}"
    separator = max(OTHER_SEPARATORS, key=names[0].count) if len(names) == 1 else ""
    if separator and separator in names[0]:
        told += (
            f"; CSV must have commas between its fields, and this header has {separator!r}: choose the comma where the file "
            f"is saved, or convert it with pandas.read_csv(OLD, sep={separator!r}).to_csv(NEW, index=False)"
        )
    return told


class Piece(Protocol):
    """A piece of the input."""

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        """Numbered records in the order of the input."""
        ...

    def place(self, number: int) -> str:
        """Where the record of that number is."""
        ...


def attempts(source: Piece, fields: Fields) -> Iterator[tuple[int, Attempt]]:
    """The numbered records of a source; in the place of one that cannot be read, and can be passed over, its error.

    Raises
    ------
    InputError
        All that follows cannot be read.
    """
    if isinstance(source, (JsonLines, CsvLines)):
        return source.attempts(fields)
    return source.records(fields)


def _raising(found: Iterator[tuple[int, Attempt]]) -> Iterator[tuple[int, Record]]:
    for number, attempt in found:
        if isinstance(attempt, InputError):
            raise attempt
        yield number, attempt


@dataclass(frozen=True, slots=True)
class JsonLines:
    """One JSON object a line; blank lines are passed over.

    Attributes
    ----------
    file : InputFile
    start, stop : int, int or None
        Range of bytes of the uncompressed file; lines that start in it belong to this piece.
    """

    file: InputFile
    start: int = 0
    stop: int | None = None

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        return _raising(self.attempts(fields))

    def attempts(self, fields: Fields) -> Iterator[tuple[int, Attempt]]:
        lines = Lines(self.file, self.start, self.stop)
        for line, refused in lines.attempts():
            if line.strip():
                yield lines.count, self._record(line, lines) if refused is None else refused

    def _record(self, line: str, lines: Lines) -> Attempt:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            said, hint = str(error), ""
            if "set_int_max_str_digits" in said:  # the advice is for who writes Python
                said = f"a whole number must have at most {sys.get_int_max_str_digits():,} digits"
            elif lines.count == 1 and line.lstrip().startswith("["):
                hint = "; a file must have one JSON object a line, not one array of them"
            elif "\r" in line.rstrip("\r\n"):
                hint = "; lines must end with a line feed, not with a carriage return alone: convert the file"
            return InputError(f"{lines.place(lines.count)}: not JSON: {said}{hint}")
        if not isinstance(record, dict):
            return InputError(
                f"{lines.place(lines.count)}: must be a JSON object, got {_kind(record)}; "
                "write one object a line"
            )
        return record

    def place(self, number: int) -> str:
        return Lines(self.file, self.start, self.stop).place(number)

    def field_names(self) -> Sequence[str] | None:
        """Fields of the first records; None when there is no record."""
        names: dict[str, None] = {}
        n = 0
        for _, record in islice(self.records(Fields()), PROBED_RECORDS):
            names.update(dict.fromkeys(record))
            n += 1
        return list(names) if n else None


@dataclass(frozen=True, slots=True)
class CsvLines:
    """Comma-separated values with a header line; quoted cells may hold line ends.

    Attributes
    ----------
    file : InputFile
    start, stop : int, int or None
        Range of bytes that begins where a record begins.
    first_line : int
        Number of the line at `start`.
    columns : tuple of str or None
        The header, where `start` is behind it.
    """

    file: InputFile
    start: int = 0
    stop: int | None = None
    first_line: int = 1
    columns: tuple[str, ...] | None = None

    def rows(self, lines: Lines) -> Iterator[tuple[int, list[str]]]:
        """Cells of every row that is not blank, with the number of its first line in the range."""
        for first, row in self.tried_rows(lines):
            if isinstance(row, InputError):
                raise row
            yield first, row

    def tried_rows(self, lines: Lines) -> Iterator[tuple[int, list[str] | InputError]]:
        csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
        refused: list[InputError] = []

        def decoded() -> Iterator[str]:
            for line, error in lines.attempts():
                if error is not None:
                    refused.append(error)
                yield line

        reader = csv.reader(decoded(), strict=True)
        while True:
            first = lines.count + 1
            row: list[str] | InputError | None
            try:
                row = next(reader, None)
            except csv.Error as error:
                # the reader goes on with the next line
                row = InputError(
                    f"{lines.place(first)}: not CSV: {error}; "
                    "is a quote not closed, or not doubled inside a cell?"
                )
            if row is None:
                return
            if refused:
                row = refused[0]
                refused.clear()
            if row:
                yield first, row

    def lines(self) -> Lines:
        return Lines(self.file, self.start, self.stop, first_line=self.first_line)

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        return _raising(self.attempts(fields))

    def attempts(self, fields: Fields) -> Iterator[tuple[int, Attempt]]:
        lines = self.lines()
        rows = self.tried_rows(lines)
        columns = self.columns
        if columns is None:
            header = next(rows, None)
            if header is None:
                return
            if isinstance(header[1], InputError):
                raise header[1]
            columns = tuple(header[1])
        fields.check_against(columns, self.file.name)
        positions = {name: columns.index(name) for name in fields.named() if name in columns}
        for number, row in rows:
            if isinstance(row, InputError):
                yield number, row
            elif len(row) != len(columns):
                yield (
                    number,
                    InputError(
                        f"{lines.place(number)}: must have {len(columns)} cells as the header has, "
                        f"got {len(row)}; put cells that hold commas in quotes"
                    ),
                )
            else:
                yield number, {name: row[position] for name, position in positions.items()}

    def place(self, number: int) -> str:
        return self.lines().place(number)

    def field_names(self) -> Sequence[str] | None:
        """Names in the header; None when there is none."""
        header = next(self.rows(self.lines()), None)
        return None if header is None else header[1]


@dataclass(frozen=True, slots=True)
class LdacLines:
    """The format of Blei's lda-c: a line ``M term:count term:count ...`` for each document.

    Terms are positions in a vocabulary file, from 0; in the records they stand as words of digits.
    """

    file: InputFile
    n_terms: int
    start: int = 0
    stop: int | None = None

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        lines = Lines(self.file, self.start, self.stop)
        for line in lines:
            cells = line.split()
            if not cells:
                continue
            try:
                yield lines.count, self._record(cells)
            except InputError as error:
                raise InputError(f"{lines.place(lines.count)}: {error}") from None

    def _record(self, cells: list[str]) -> Record:
        if not _is_whole(cells[0]) or int(cells[0]) != len(cells) - 1:
            raise InputError(
                f"must be 'M term:count ...' with M the number of pairs, got M {cells[0]!r:.20} "
                f"before {len(cells) - 1} pairs"
            )
        words, counts = [], []
        for cell in cells[1:]:
            term, colon, count = cell.partition(":")
            if not (colon and _is_whole(term) and _is_whole(count)):
                raise InputError(
                    f"must be pairs term:count of whole numbers, got {cell!r:.40}"
                    + (f"; they have at most {MOST_DIGITS} digits" if len(cell) > MOST_DIGITS else "")
                )
            position = int(term)
            if position >= self.n_terms:
                raise InputError(
                    f"term {position} is not in the vocabulary of {self.n_terms} terms (0 is the first)"
                )
            words.append(str(position))
            counts.append(int(count))
        return {"words": words, "counts": counts}

    def place(self, number: int) -> str:
        return Lines(self.file, self.start, self.stop).place(number)


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """Rows of a Parquet file.

    Attributes
    ----------
    file : InputFile
    row_groups : tuple of int or None
        None reads all.
    start, stop : int, int or None
        Rows, counted within these row groups.
    first_row : int
        Rows of the file before these row groups.
    """

    file: InputFile
    row_groups: tuple[int, ...] | None = None
    start: int = 0
    stop: int | None = None
    first_row: int = 0

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        import pyarrow as pa

        with self.file.open() as raw:
            try:
                parquet = self.parquet(raw)
                fields.check_against(parquet.schema_arrow.names, self.file.name)
                groups = range(parquet.num_row_groups) if self.row_groups is None else self.row_groups
                batches = parquet.iter_batches(
                    batch_size=PARQUET_BATCH_ROWS,
                    row_groups=list(groups),
                    columns=[name for name in fields.named() if name in parquet.schema_arrow.names],
                    use_threads=False,
                )
                before = 0
                for batch in batches:
                    first = max(self.start - before, 0)
                    last = batch.num_rows if self.stop is None else min(self.stop - before, batch.num_rows)
                    if first < last:
                        rows = batch.slice(first, last - first).to_pylist()
                        yield from enumerate(rows, before + first)
                    before += batch.num_rows
                    if self.stop is not None and before >= self.stop:
                        return
            except (pa.ArrowException, OSError) as error:
                raise InputError(
                    f"{self.file.name}: the Parquet file is damaged or cut short: {error}"
                ) from error

    def parquet(self, raw: Any) -> Any:
        """Open the file; its footer is read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(raw)
        except (pa.ArrowException, OSError) as error:  # the latter of a footer that is damaged
            raise InputError(f"{self.file.name}: not a Parquet file, or cut short: {error}") from error

    def place(self, number: int) -> str:
        return f"{self.file.name}, row {self.first_row + number}"

    def field_names(self) -> Sequence[str]:
        """Names in the schema."""
        with self.file.open() as raw:
            return list(self.parquet(raw).schema_arrow.names)


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file that is one document; its record has the fields ``text`` and ``id``."""

    file: InputFile
    id: str

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        yield 0, {"text": read_text(self.file), "id": self.id}

    def place(self, number: int) -> str:
        return self.file.name


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Rows of a pandas DataFrame, a partition of a Dask one."""

    frame: pd.DataFrame
    label: str

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        names = list(fields.named())
        columns = []
        for name in names:
            column = self.frame[name]
            # one kind of missing, and Python's own numbers and strings
            columns.append(column.astype(object).where(column.notna(), None).tolist())
        for number, values in enumerate(zip(*columns, strict=True)):
            yield number, dict(zip(names, values, strict=True))

    def place(self, number: int) -> str:
        return f"{self.label}, row {number}"


@dataclass(frozen=True, slots=True)
class BagRecords:
    """Records of a partition of a Dask bag: texts, (text, response) pairs, or mappings."""

    items: Iterable[Any]
    label: str

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        for number, item in enumerate(self.items):
            if isinstance(item, Mapping):
                yield number, item
            elif isinstance(item, str):
                if fields.responses:
                    raise InputError(
                        f"{self.place(number)}: must have the response {fields.responses[0]!r}, "
                        "got a text alone; make the records pairs (text, response) or mappings"
                    )
                yield number, {fields.text or "text": item}
            elif isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str):
                if len(fields.responses) != 1:
                    raise InputError(
                        f"{self.place(number)}: a pair (text, response) must have one name for its "
                        f"response, got {list(fields.responses)}; name it with response="
                    )
                yield number, {fields.text or "text": item[0], fields.responses[0]: item[1]}
            else:
                raise InputError(
                    f"{self.place(number)}: must be a text, a pair (text, response) or a mapping, "
                    f"got {_kind(item)}"
                )

    def place(self, number: int) -> str:
        return f"{self.label}, record {number}"


@dataclass(frozen=True, slots=True)
class MatrixRows:
    """Rows of a sparse matrix of counts in memory, with columns of values beside it.

    As in :class:`LdacLines`, words are the positions of terms as digits.
    """

    matrix: Any
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    first_row: int = 0

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        indptr, indices, data = self.matrix.indptr, self.matrix.indices, self.matrix.data
        names = list(self.columns)
        for number in range(self.matrix.shape[0]):
            a, b = indptr[number], indptr[number + 1]
            record = {name: self.columns[name][number] for name in names}
            record["words"] = [str(i) for i in indices[a:b].tolist()]
            record["counts"] = data[a:b].tolist()
            yield number, record

    def place(self, number: int) -> str:
        return f"matrix, row {self.first_row + number}"


def _is_whole(cell: str) -> bool:
    return cell.isdecimal() and len(cell) <= MOST_DIGITS


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else type(value).__name__)
