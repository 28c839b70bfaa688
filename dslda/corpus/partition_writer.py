"""Writing partitions into arrays of one row each: what a new corpus and an append to one have in common."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dslda._version import __version__
from dslda.corpus.block import DocumentBlock
from dslda.corpus.manifest import ARRAYS, MAX_CHUNK_BYTES, PartitionInfo, ResponseSummary
from dslda.corpus.rows import BlockColumns
from dslda.exceptions import InputError
from dslda.storage.location import Location
from dslda.storage.output import writing
from dslda.storage.typed_json import canonical_json

__all__ = ["PartitionWriter", "WrittenPartition", "create_array"]


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """What a worker reports of a partition it has written.

    Attributes
    ----------
    partition : int
    info : PartitionInfo
    responses, covariates : tuple of ResponseSummary
        In the order of the writer's.
    """

    partition: int
    info: PartitionInfo
    responses: tuple[ResponseSummary, ...]
    covariates: tuple[ResponseSummary, ...]


class PartitionWriter:
    """Writes a known number of partitions into the arrays of one group.

    Parameters
    ----------
    location : Location
        Of the corpus.
    columns : BlockColumns
        What every block must have.
    n_partitions : int
        At least 1.
    document_capacity, entry_capacity : int
        The most documents, and the most (document, term) entries, that any partition will have. Rows are
        padded to these, and padding compresses to nothing.
    id_capacity : int, optional
        The most bytes of UTF-8 that the identifiers of any partition take; None when documents have none.
    provenance : mapping
        Where the documents come from: any JSON object.

    Raises
    ------
    InputError
        A parameter is out of its domain.
    """

    def __init__(
        self,
        location: Location,
        *,
        columns: BlockColumns,
        n_partitions: int,
        document_capacity: int,
        entry_capacity: int,
        id_capacity: int | None,
        provenance: Mapping[str, Any],
    ) -> None:
        if n_partitions < 1:
            raise InputError(f"n_partitions must be at least 1, got {n_partitions}")
        for what, capacity, width in (
            ("document_capacity", document_capacity, 8),
            ("entry_capacity", entry_capacity, 4),
            ("id_capacity", id_capacity or 0, 1),
        ):
            if capacity < 0 or capacity * width > MAX_CHUNK_BYTES:
                raise InputError(
                    f"{what} must be in 0..{MAX_CHUNK_BYTES // width}, got {capacity}; use smaller partitions"
                )
        try:
            canonical_json(provenance)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"provenance must be what JSON can hold, got {provenance!r:.80}: {error}"
            ) from error
        self._location = location
        # where the arrays are; None before prepare() and after finish(), when abort() must remove nothing
        self._target: Location | None = None
        self._columns = columns
        self._n_partitions = n_partitions
        self._document_capacity = document_capacity
        self._entry_capacity = entry_capacity
        self._id_capacity = id_capacity
        self._provenance = dict(provenance)

    @property
    def path(self) -> str:
        """Where the corpus is or will be."""
        return self._location.url

    def write_partition(self, partition: int, block: DocumentBlock) -> WrittenPartition:
        """Write one partition; safe from many threads and processes at once, and to do again.

        Parameters
        ----------
        partition : int
            0 to ``n_partitions - 1``, counted from the first that this writer writes; each is written by one
            call.
        block : DocumentBlock
            With the writer's responses and covariates, weights and identifiers, in any order.

        Raises
        ------
        InputError
            The block breaks a rule, does not fit, or lacks a response, covariate, weight or identifiers.
        OutputError
            It cannot be written, as when the disk is full.
        """
        import zarr

        if not 0 <= partition < self._n_partitions:
            raise InputError(f"partition must be in 0..{self._n_partitions - 1}, got {partition}")
        store = self._prepared().store(read_only=False)
        try:
            rows = self._columns.rows(block)
        except InputError as error:
            raise InputError(f"partition {partition}: {error}") from error
        for name, values in rows.arrays.items():
            with writing(self._location.url):
                array: Any = zarr.open_array(store, path=name, mode="r+", zarr_format=3)
            capacity = array.shape[1]
            if len(values) > capacity:
                raise InputError(
                    f"partition {partition}: array {name} has room for {capacity} values, got {len(values)}; "
                    "make the writer with a larger capacity"
                )
            # the whole row: a part of it would make zarr read the chunk first
            row = np.full(capacity, array.fill_value, dtype=array.dtype)
            row[: len(values)] = values
            with writing(self._location.url):
                array[partition] = row
        return WrittenPartition(partition, rows.info, rows.responses, rows.covariates)

    def _create_rows(self, group: Any) -> None:
        """The empty arrays that have a row for each partition."""
        documents, entries = self._document_capacity, self._entry_capacity
        rows: dict[str, int] = {"indptr": documents + 1, "terms": entries, "counts": entries}
        names: dict[str, str] = {}
        for kind, columns in (
            ("response", self._columns.responses),
            ("covariates", self._columns.covariates),
        ):
            if columns:
                group.create_group(kind)
            # by number, since a name may hold what a file name may not
            for i, column in enumerate(columns):
                rows[f"{kind}/{i}"] = documents
                names[f"{kind}/{i}"] = column
        if self._columns.has_weight:
            rows["weight"] = documents
        if self._id_capacity is not None:
            rows |= {"doc_id": self._id_capacity, "doc_id_offsets": documents + 1}
        for name, capacity in rows.items():
            attributes = {"name": names[name]} if name in names else {}
            create_array(group, name, (self._n_partitions, max(capacity, 1)), attributes)

    def _in_order(self, written: Iterable[WrittenPartition]) -> list[WrittenPartition]:
        """What was written, once each; or an InputError."""
        parts = sorted(written, key=lambda part: part.partition)
        numbers = [part.partition for part in parts]
        if numbers != list(range(self._n_partitions)):
            raise InputError(
                f"partitions 0..{self._n_partitions - 1} must be written once each, got {numbers}"
            )
        return parts

    def _signed_provenance(self) -> dict[str, Any]:
        """With the time, and the version of dslda."""
        return {
            **self._provenance,
            "dslda_version": __version__,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }

    def _prepared(self) -> Location:
        if self._target is None:
            raise RuntimeError(
                "prepare() must come first, and nothing can be written after finish() or abort()"
            )
        return self._target


def create_array(group: Any, name: str, shape: tuple[int, ...], attributes: Mapping[str, str]) -> Any:
    """An empty array in a zarr group, one chunk a row, or a single chunk where it has no rows."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    dtype, fill = ARRAYS[name.split("/")[0]]
    return group.create_array(
        name,
        shape=shape,
        chunks=(1, *shape[1:]) if len(shape) == 2 else shape,
        dtype=dtype,
        fill_value=fill,
        attributes=dict(attributes),
        # crc32c: without it a flipped bit inside a chunk comes back as data
        compressors=[BloscCodec(cname="zstd", clevel=3, shuffle="shuffle"), Crc32cCodec()],
    )
