"""Parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import InputError
from dslda.inputs.fields import Attempt, Fields
from dslda.inputs.formats.base import COMPRESSED_PIECES, FilePiece
from dslda.inputs.in_memory import is_ordered, rows_of_table
from dslda.inputs.streams import MAX_LINE_BYTES

__all__ = ["ParquetRows"]

BATCH_ROWS = 1024

USUAL_CHUNK_BYTES = 256 << 20
MAX_EXPANSION = 1000
"""Larger chunks of a column must not unpack to more times their size in the file. Text compresses to a tenth, or to a
hundredth if it repeats itself; pages are unpacked as a whole."""


@dataclass(frozen=True, slots=True)
class ParquetRows(FilePiece):
    """Rows of a Parquet file.

    Attributes
    ----------
    start, stop : int, int or None
        Range of rows, counted within the row groups.
    first_row : int
        Rows of the file before the row groups.
    row_groups : tuple of int or None
        None reads all.
    """

    format = "parquet"
    title = "Parquet"
    endings = (".parquet", ".pq")
    magic = (b"PAR1",)
    expansion = 3

    start: int = 0
    stop: int | None = None
    first_row: int = 0
    row_groups: tuple[int, ...] | None = None

    def attempts(self, fields: Fields) -> Iterator[tuple[int, Attempt]]:
        import pyarrow as pa

        with self.file.open(anywhere=True) as raw:
            try:
                parquet = self._parquet(raw)
                names = parquet.schema_arrow.names
                fields.check_present(names, self.file.name)
                groups = range(parquet.num_row_groups) if self.row_groups is None else self.row_groups
                repeated = self._dictionary_columns(parquet.metadata, groups, fields)
                if repeated:
                    parquet = self._parquet(raw, read_dictionary=repeated)
                batches = parquet.iter_batches(
                    batch_size=self._batch_rows(parquet.metadata, groups, fields),
                    row_groups=list(groups),
                    columns=[name for name in fields.named() if name in names],
                    use_threads=False,
                )
                n_read = 0
                for batch in batches:
                    first = max(self.start - n_read, 0)
                    last = batch.num_rows if self.stop is None else min(self.stop - n_read, batch.num_rows)
                    for start, stop in self._cut_rows(batch, n_read, first, last) if first < last else ():
                        rows = rows_of_table(_without_dictionaries(batch.slice(start, stop - start)))
                        for number, row in enumerate(rows, n_read + start):
                            yield number, row.at(self.place(number)) if isinstance(row, InputError) else row
                    n_read += batch.num_rows
                    if self.stop is not None and n_read >= self.stop:
                        return
            except (pa.ArrowException, OSError) as error:
                raise InputError(
                    f"the Parquet file is damaged or cut short: {error}", place=self.file.name
                ) from error

    def raw_records(self) -> Iterator[object]:
        stop = self.stop
        if stop is None:
            with self.file.open(anywhere=True) as raw:
                stop = int(self._parquet(raw).metadata.num_rows)
        yield from range(self.start, stop)

    def place(self, number: int) -> str:
        return f"{self.file.name}, row {self.first_row + number}"

    def field_names(self, wanted: Collection[str] = ()) -> Sequence[str] | None:
        if self.file.is_empty():
            return None
        with self.file.open(anywhere=True) as raw:
            names: list[str] = self._parquet(raw).schema_arrow.names
            return names

    def categories(self, names: Collection[str]) -> dict[str, list[Any]]:
        if self.file.is_empty():
            return {}
        with self.file.open(anywhere=True) as raw:
            parquet = self._parquet(raw)
            schema = parquet.schema_arrow
            ordered = [name for name in names if name in schema.names and is_ordered(schema.field(name).type)]
            if not ordered:
                return {}
            batch = next(parquet.iter_batches(batch_size=1, columns=ordered, use_threads=False), None)
        return {} if batch is None else {name: batch[name].dictionary.to_pylist() for name in ordered}

    def cut(self, fields: Fields, target: int) -> Iterator[tuple[FilePiece, int]]:
        with self.file.open(anywhere=True) as raw:
            metadata = self._parquet(raw).metadata
        sizes = [_size(metadata.row_group(g), fields) for g in range(metadata.num_row_groups)]
        first_row = 0
        for g, (rows, n_bytes) in enumerate(sizes):
            # few, since reading a range decodes all rows of its group before it
            n = min(max(round(n_bytes / target), 1), COMPRESSED_PIECES)
            borders = [rows * i // n for i in range(n + 1)]
            for start, stop in pairwise(borders):
                yield ParquetRows(self.file, start, stop, first_row, (g,)), n_bytes // n
            first_row += rows

    def _batch_rows(self, metadata: Any, groups: Sequence[int], fields: Fields) -> int:
        """Rows to unpack at once, so that they take about as much memory as one line may, by the file's own index."""
        row_bytes = 0
        for g in groups:
            rows, n_bytes = _size(metadata.row_group(g), fields)
            row_bytes = max(row_bytes, n_bytes // max(rows, 1))
            self._check_expansion(metadata.row_group(g), fields)
        if row_bytes > MAX_LINE_BYTES:
            raise InputError(
                f"a row must have at most {MAX_LINE_BYTES >> 20} MB, got rows of {row_bytes >> 20:,} MB on average",
                place=self.file.name,
                remedy="is this a file of one document a row?",
            )
        return min(BATCH_ROWS, MAX_LINE_BYTES // max(row_bytes, 1))

    def _check_expansion(self, group: Any, fields: Fields) -> None:
        """Refuse a chunk of a column that is small in the file and large in memory."""
        for column in _columns(group, fields):
            n_bytes = _unpacked_bytes(column)
            if n_bytes > max(USUAL_CHUNK_BYTES, MAX_EXPANSION * column.total_compressed_size):
                raise InputError(
                    f"{column.total_compressed_size:,} bytes of column {column.path_in_schema!r} unpack to "
                    f"{n_bytes >> 20:,} MB, more than {MAX_EXPANSION:,} times as much",
                    place=self.file.name,
                    remedy="write it with smaller row groups if it is a file of documents",
                )

    @staticmethod
    def _dictionary_columns(metadata: Any, groups: Sequence[int], fields: Fields) -> list[str]:
        """Columns that store a text once, however many rows have it, and so can unpack to any size."""
        columns = (column for g in groups for column in _columns(metadata.row_group(g), fields))
        return sorted(
            {c.path_in_schema for c in columns if c.has_dictionary_page and c.physical_type == "BYTE_ARRAY"}
        )

    def _cut_rows(self, batch: Any, n_before: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Cut rows so that each range takes about as much memory as one line may."""
        ends = np.cumsum(sum(map(_row_bytes, batch.columns), np.zeros(batch.num_rows, np.int64)))
        start = first
        while start < last:
            before = int(ends[start - 1]) if start else 0
            stop = min(int(np.searchsorted(ends, before + MAX_LINE_BYTES, side="right")), last)
            if stop == start:
                raise InputError(
                    f"a row must have at most {MAX_LINE_BYTES >> 20} MB, got {int(ends[start]) - before >> 20:,} MB",
                    place=self.place(n_before + start),
                    remedy="is this a file of one document a row?",
                )
            yield start, stop
            start = stop

    def _parquet(self, raw: Any, **options: Any) -> Any:
        """Open the file, and read its footer."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(raw, **options)
        except (pa.ArrowException, OSError) as error:  # OSError: a damaged footer
            raise InputError(f"not a Parquet file, or cut short: {error}", place=self.file.name) from error


def _size(group: Any, fields: Fields) -> tuple[int, int]:
    """Rows of a row group, and the uncompressed bytes of the columns in use."""
    return group.num_rows, sum(map(_unpacked_bytes, _columns(group, fields)))


def _columns(group: Any, fields: Fields) -> Iterator[Any]:
    used = set(fields.named())
    columns = (group.column(c) for c in range(group.num_columns))
    return (c for c in columns if c.path_in_schema.split(".")[0] in used)


def _unpacked_bytes(column: Any) -> int:
    """Bytes of a chunk of a column when unpacked, 8 for each item of lists: a page may store many equal ones as a number."""
    is_list = "." in column.path_in_schema
    return int(max(column.total_uncompressed_size, 8 * column.num_values if is_list else 0))


def _row_bytes(array: Any) -> NDArray[np.int64]:
    """Bytes of each row of a column, 8 for any number or item."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        lengths = _row_bytes(array.dictionary)
        codes = np.asarray(array.indices.fill_null(0))
        return lengths[codes] if len(lengths) else np.zeros(len(array), np.int64)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        offsets = np.asarray(array.offsets, dtype=np.int64)
        items = np.concatenate([[0], np.cumsum(_row_bytes(array.values))])
        return np.diff(items[offsets])
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    if text or pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return 8 + np.asarray(pc.binary_length(array).fill_null(0), dtype=np.int64)
    return np.full(len(array), 8, dtype=np.int64)


def _without_dictionaries(batch: Any) -> Any:
    """Decode columns of texts, and of lists of texts, at once, which is ten times quicker than text by text."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(list(map(_decoded, batch.columns)), names=batch.schema.names)


def _decoded(array: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_list(array.type) and pa.types.is_dictionary(array.type.value_type):
        offsets = np.asarray(array.offsets)
        values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(
            pa.array(offsets - offsets[0], pa.int32()), values.dictionary_decode(), mask=mask
        )
    return array
