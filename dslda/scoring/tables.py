"""Rows of scores as columns, and the formats of their files."""

from __future__ import annotations

import csv
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from dslda.prediction.predict import Predictions, topic_columns
from dslda.storage.location import Location

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "OUTPUT_FORMATS",
    "OutputFormat",
    "Topics",
    "csv_lines",
    "identifiers_in",
    "plain_cell",
    "safe_cell",
    "safe_rows",
    "score_table",
]

OutputFormat: TypeAlias = Literal["parquet", "csv", "jsonl"]

Topics: TypeAlias = int | Literal["all", "none"]
"""All topic proportions of a document, none, or the largest few."""

ROW_GROUP = 16_384
"""Rows of a row group of Parquet."""

OTHER_SEPARATORS = ";\t|\r\n"
"""Separators in spreadsheets that do not use commas. A cell there may begin in the middle of ours, even within quotes, since
a quote counts only at the beginning of a cell."""

FORMULA = "=+@\uff1d\uff0b\uff0d\uff20\t\r\n\"'-"
"""Characters that may begin a formula (four of them as wide as an ideograph), quotes that may hide one, the apostrophe."""

BEFORE_FORMULA = re.compile(rf"(?:\A|(?<=[{OTHER_SEPARATORS}]))(?=[{FORMULA}])")
APOSTROPHE = re.compile(rf"(?:\A|(?<=[{OTHER_SEPARATORS}]))'")


def score_table(scored: Predictions, topics: Topics) -> pa.Table:
    """One row a document.

    For a number N of topics there are columns ``top_topic_1``, ``top_proportion_1`` to N: the largest first, and among
    equals the topic of the lower number.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, column in scored.columns().items():
        if name == "known_tokens":
            columns["tokens"] = scored.tokens
        columns[name] = column
    proportions = scored.topic_proportions
    if topics == "all":
        columns |= topic_columns(proportions)
    elif topics != "none":
        order = np.argsort(-proportions, axis=1, kind="stable")[:, : int(topics)]
        largest = np.take_along_axis(proportions, order, axis=1)
        for i in range(order.shape[1]):
            columns[f"top_topic_{i + 1}"] = np.ascontiguousarray(order[:, i], dtype=np.int32)
            columns[f"top_proportion_{i + 1}"] = np.ascontiguousarray(largest[:, i])
    return pa.table(columns)


class TableWriter(ABC):
    """Writes tables with the columns of `nothing` to a file, one after the other; a subclass is a format of scores."""

    ending: ClassVar[str]

    def __init__(self, stream: IO[bytes], nothing: pa.Table) -> None:
        self._stream = stream

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write the rows of a table."""

    def close(self) -> None:  # noqa: B027, a format may have no rows left
        """Write the remaining rows; the stream stays open."""

    def abandon(self) -> None:  # noqa: B027, nor anything to give up
        """Write nothing more."""

    @staticmethod
    @abstractmethod
    def identifiers(stream: IO[bytes]) -> list[str]:
        """The identifiers in a file of this format."""


class _Parquet(TableWriter):
    ending = ".parquet"

    def __init__(self, stream: IO[bytes], nothing: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._waiting: list[pa.Table] = []
        self._n_waiting = 0
        strings = [field.name for field in nothing.schema if field.name != "id" and field.type == pa.string()]
        # proportions are all different, so a dictionary of them is useless
        self._writer = pq.ParquetWriter(stream, nothing.schema, compression="zstd", use_dictionary=strings)

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._n_waiting += table.num_rows
        if self._n_waiting >= ROW_GROUP:
            self._flush()

    def close(self) -> None:
        if self._n_waiting:
            self._flush()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # otherwise it writes to the closed stream when it is collected

    def _flush(self) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=self._n_waiting)
        self._waiting, self._n_waiting = [], 0

    @staticmethod
    def identifiers(stream: IO[bytes]) -> list[str]:
        import pyarrow.parquet as pq

        # in this thread: one of pyarrow's that lets go of a stream of Python at the end of a process aborts it
        table = pq.ParquetFile(stream, pre_buffer=False).read(columns=["id"], use_threads=False)
        return [str(name) for name in table["id"].to_pylist()]


class _Csv(TableWriter):
    ending = ".csv"

    def __init__(self, stream: IO[bytes], nothing: pa.Table) -> None:
        super().__init__(stream, nothing)
        stream.write(csv_lines([map(safe_cell, nothing.column_names)]).encode())

    def write(self, table: pa.Table) -> None:
        self._stream.write(csv_lines(safe_rows(table)).encode())

    @staticmethod
    def identifiers(stream: IO[bytes]) -> list[str]:
        with io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
            rows = csv.reader(text)
            next(rows, None)
            return [plain_cell(row[0]) for row in rows]


class _JsonLines(TableWriter):
    ending = ".jsonl"

    def write(self, table: pa.Table) -> None:
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in table.to_pylist()]
        self._stream.write("".join(lines).encode())

    @staticmethod
    def identifiers(stream: IO[bytes]) -> list[str]:
        return [json.loads(line)["id"] for line in stream]


OUTPUT_FORMATS: dict[str, type[TableWriter]] = {"parquet": _Parquet, "csv": _Csv, "jsonl": _JsonLines}


def identifiers_in(file: Location, output_format: str) -> list[str]:
    """The identifiers in a file of scores."""
    fs, path = file.file_system()
    with fs.open(path, "rb") as stream:
        return OUTPUT_FORMATS[output_format].identifiers(stream)


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as lines of CSV; cells with a separator of another dialect are quoted too."""
    lines: list[str] = []
    # cells that hold a character of the line end are quoted
    csv.writer(SimpleNamespace(write=lines.append), lineterminator=OTHER_SEPARATORS).writerows(rows)
    return "".join(f"{line[: -len(OTHER_SEPARATORS)]}\n" for line in lines)


def safe_cell(value: str) -> str:
    """A string in which no spreadsheet sees a formula: an apostrophe stands before everything that could be one.

    Formulas could begin with the string, or after each character at which another dialect of CSV begins a cell.
    """
    return BEFORE_FORMULA.sub("'", value)


def plain_cell(cell: str) -> str:
    """The reverse of :func:`safe_cell`."""
    return APOSTROPHE.sub("", cell)


def safe_rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table, with all strings made safe by :func:`safe_cell`."""
    columns = []
    for column in table.columns:
        values = column.to_pylist()
        if values and any(isinstance(value, str) for value in values):
            values = [safe_cell(value) if isinstance(value, str) else value for value in values]
        columns.append(values)
    return zip(*columns, strict=True)
