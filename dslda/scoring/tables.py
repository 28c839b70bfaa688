"""Rows of scores as columns, and the files that they are written to."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dslda.prediction.predict import Predictions
from dslda.storage.location import Location

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ENDINGS",
    "OutputFormat",
    "Topics",
    "csv_lines",
    "plain_cell",
    "rows_of_ids",
    "safe_cell",
    "safe_rows",
    "score_table",
    "table_writer",
]

OutputFormat: TypeAlias = Literal["parquet", "csv", "jsonl"]

Topics: TypeAlias = int | Literal["all", "none"]
"""All topic proportions of a document, none, or the largest few."""

ENDINGS: dict[str, str] = {"parquet": ".parquet", "csv": ".csv", "jsonl": ".jsonl"}

ROW_GROUP = 16_384
"""Rows that are held before they are written as a row group of Parquet."""

OTHER_SEPARATORS = ";\t|\r\n"
"""Separators of spreadsheets that do not separate by commas. There a cell may begin in the middle of ours, even within
quotes, since a quote counts only at the beginning of a cell."""

FORMULA = "=+@\uff1d\uff0b\uff0d\uff20\t\r\n\"'-"
"""Characters that may begin a formula (four of them as wide as an ideograph), quotes that may hide one, the apostrophe."""

BEFORE_FORMULA = re.compile(rf"(?:\A|(?<=[{OTHER_SEPARATORS}]))(?=[{FORMULA}])")
APOSTROPHE = re.compile(rf"(?:\A|(?<=[{OTHER_SEPARATORS}]))'")


def score_table(
    scored: Predictions, topics: Topics, *, residuals: NDArray[np.float64] | None = None
) -> pa.Table:
    """One row a document.

    Parameters
    ----------
    scored : Predictions
    residuals : ndarray of float64, shape (2,), optional
        Lowest and highest difference of response and prediction: with these there are the columns ``prediction_low`` and
        ``prediction_high``, null where the prediction rests on no word.
    topics : int, "all" or "none"
        Of a number N, columns ``top_topic_1``, ``top_proportion_1`` to N: the largest first, of equals that of the lower
        number.
    """
    import pyarrow as pa

    # topics come last: each column that is added alone copies the list of all
    nothing = np.zeros((len(scored.flag), 0))
    table = replace(scored, topic_proportions=nothing).table()
    if residuals is not None:
        known = np.where(scored.known_tokens > 0, scored.prediction, np.nan)
        for i, name in enumerate(("prediction_low", "prediction_high")):
            table = table.add_column(2 + i, name, pa.array(known + residuals[i], from_pandas=True))
    table = table.add_column(
        table.column_names.index("known_tokens"), "tokens", pa.array(scored.tokens, pa.int64())
    )
    if topics == "none":
        return table
    proportions = scored.topic_proportions
    columns = dict(zip(table.column_names, table.columns, strict=True))
    if topics == "all":
        columns |= {f"topic_{k}": np.ascontiguousarray(column) for k, column in enumerate(proportions.T)}
        return pa.table(columns)
    order = np.argsort(-proportions, axis=1, kind="stable")[:, : int(topics)]
    largest = np.take_along_axis(proportions, order, axis=1)
    for i in range(order.shape[1]):
        columns[f"top_topic_{i + 1}"] = np.ascontiguousarray(order[:, i], dtype=np.int32)
        columns[f"top_proportion_{i + 1}"] = np.ascontiguousarray(largest[:, i])
    return pa.table(columns)


class TableWriter(Protocol):
    """Writes tables of the same columns to a file, one after the other."""

    def write(self, table: pa.Table) -> None:
        """Write the rows of a table."""

    def close(self) -> None:
        """Write what is left; the stream stays open."""

    def abandon(self) -> None:
        """Write nothing more."""


def table_writer(stream: IO[bytes], format: OutputFormat, nothing: pa.Table) -> TableWriter:
    """A writer of a format; `nothing` is a table of no rows with the columns."""
    writers: dict[str, Callable[[IO[bytes], pa.Table], TableWriter]] = {
        "parquet": _Parquet,
        "csv": _Csv,
        "jsonl": _JsonLines,
    }
    return writers[format](stream, nothing)


class _Parquet:
    def __init__(self, stream: IO[bytes], nothing: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._nothing = nothing
        self._held: list[pa.Table] = []
        self._n_held = 0
        strings = [field.name for field in nothing.schema if field.name != "id" and field.type == pa.string()]
        # proportions are all different: a dictionary of them would be made in vain
        self._writer = pq.ParquetWriter(stream, nothing.schema, compression="zstd", use_dictionary=strings)

    def write(self, table: pa.Table) -> None:
        self._held.append(table)
        self._n_held += table.num_rows
        if self._n_held >= ROW_GROUP:
            self._flush()

    def close(self) -> None:
        if self._n_held:
            self._flush()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # or it writes to the closed stream when it is collected

    def _flush(self) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.concat_tables(self._held), row_group_size=self._n_held)
        self._held, self._n_held = [], 0


class _Csv:
    def __init__(self, stream: IO[bytes], nothing: pa.Table) -> None:
        self._stream = stream
        self._stream.write(csv_lines([map(safe_cell, nothing.column_names)]).encode())

    def write(self, table: pa.Table) -> None:
        self._stream.write(csv_lines(safe_rows(table)).encode())

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class _JsonLines:
    def __init__(self, stream: IO[bytes], nothing: pa.Table) -> None:
        self._stream = stream

    def write(self, table: pa.Table) -> None:
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in table.to_pylist()]
        self._stream.write("".join(lines).encode())

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as lines of CSV; cells with a separator of another dialect are quoted too."""
    lines: list[str] = []
    # cells that hold a character of the line end are quoted
    csv.writer(SimpleNamespace(write=lines.append), lineterminator=OTHER_SEPARATORS).writerows(rows)
    return "".join(f"{line[: -len(OTHER_SEPARATORS)]}\n" for line in lines)


def safe_cell(value: str) -> str:
    """A string in which no spreadsheet sees a formula: an apostrophe stands before everything that could be one.

    That is at its beginning, and after each character at which another dialect of CSV begins a cell. :func:`plain_cell` is
    the reverse.
    """
    return BEFORE_FORMULA.sub("'", value)


def plain_cell(cell: str) -> str:
    """The reverse of :func:`safe_cell`."""
    return APOSTROPHE.sub("", cell)


def safe_rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table, all strings through :func:`safe_cell`."""
    columns = []
    for column in table.columns:
        values = column.to_pylist()
        if values and any(isinstance(value, str) for value in values):
            values = [safe_cell(value) if isinstance(value, str) else value for value in values]
        columns.append(values)
    return zip(*columns, strict=True)


def rows_of_ids(file: Location, format: str) -> list[str]:
    """The identifiers in a file of scores."""
    fs, path = file.file_system()
    if format == "parquet":
        import pyarrow.parquet as pq

        with fs.open(path, "rb") as stream:
            return [str(name) for name in pq.read_table(stream, columns=["id"])["id"].to_pylist()]
    with fs.open(path, "rt", encoding="utf-8", newline="") as stream:
        if format == "jsonl":
            return [json.loads(line)["id"] for line in stream]
        rows = csv.reader(stream)
        next(rows, None)
        return [plain_cell(row[0]) for row in rows]
