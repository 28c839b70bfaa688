"""Parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dslda.exceptions import InputError
from dslda.inputs.fields import Attempt, Fields
from dslda.inputs.formats.base import COMPRESSED_PIECES, FilePiece
from dslda.inputs.in_memory import is_ordered, rows_of_table
from dslda.inputs.streams import MAX_LINE_BYTES

__all__ = ["ParquetRows"]

BATCH_ROWS = 1024


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
                    if first < last:
                        rows = rows_of_table(batch.slice(first, last - first))
                        for number, row in enumerate(rows, n_read + first):
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
        if row_bytes > MAX_LINE_BYTES:
            raise InputError(
                f"a row must have at most {MAX_LINE_BYTES >> 20} MB, got rows of {row_bytes >> 20:,} MB on average",
                place=self.file.name,
                remedy="is this a file of one document a row?",
            )
        return min(BATCH_ROWS, MAX_LINE_BYTES // max(row_bytes, 1))

    def _parquet(self, raw: Any) -> Any:
        """Open the file, and read its footer."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(raw)
        except (pa.ArrowException, OSError) as error:  # OSError: a damaged footer
            raise InputError(f"not a Parquet file, or cut short: {error}", place=self.file.name) from error


def _size(group: Any, fields: Fields) -> tuple[int, int]:
    """Rows of a row group, and the uncompressed bytes of the columns in use."""
    used = set(fields.named())
    columns = (group.column(c) for c in range(group.num_columns))
    return group.num_rows, sum(
        c.total_uncompressed_size for c in columns if c.path_in_schema.split(".")[0] in used
    )
