"""Writing of partitions into the rows of arrays, for new corpora and for appends."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.corpus.levels import are_codes
from dslda.corpus.manifest import ARRAYS, MAX_CHUNK_BYTES, Manifest, PartitionInfo, ResponseSummary
from dslda.corpus.vocabulary import encode_strings
from dslda.exceptions import InputError
from dslda.storage.location import Location
from dslda.storage.output import writing
from dslda.storage.typed_json import canonical_json
from dslda.storage.zarr_arrays import checksum, create_array
from dslda.versions import __version__

if TYPE_CHECKING:
    import zarr

__all__ = ["PartitionWriter", "WrittenPartition"]


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """A worker's report on a partition that it has written."""

    partition: int
    info: PartitionInfo
    responses: Mapping[str, ResponseSummary]
    covariates: Mapping[str, ResponseSummary]


class PartitionWriter:
    """Writes partitions into the arrays of one group.

    Parameters
    ----------
    location : Location
        Place of the corpus.
    manifest : Manifest
        Manifest of the corpus without the new partitions; it stays on the driver.
    n_partitions : int
        At least 1.
    document_capacity, entry_capacity : int
        The most documents, and the most (document, term) entries, of any partition. Rows are padded to these, and padding
        compresses to nothing.
    id_capacity : int, optional
        The most bytes of UTF-8 that the identifiers of any partition take; None when documents have none.
    provenance : mapping
        Origin of the new documents, any JSON object.

    Raises
    ------
    InputError
        A parameter is out of its domain.
    """

    def __init__(
        self,
        location: Location,
        manifest: Manifest,
        *,
        n_partitions: int,
        document_capacity: int,
        entry_capacity: int,
        id_capacity: int | None,
        provenance: Mapping[str, Any],
    ) -> None:
        if n_partitions < 1:
            raise InputError(f"must be at least 1, got {n_partitions}", parameter="n_partitions")
        for parameter, capacity, width in (
            ("document_capacity", document_capacity, 8),
            ("entry_capacity", entry_capacity, 4),
            ("id_capacity", id_capacity or 0, 1),
        ):
            if capacity < 0 or capacity * width > MAX_CHUNK_BYTES:
                raise InputError(
                    f"must be in 0..{MAX_CHUNK_BYTES // width}, got {capacity}",
                    parameter=parameter,
                    remedy="use smaller partitions",
                )
        try:
            canonical_json(provenance)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"must be what JSON can hold, got {provenance!r:.80}: {error}", parameter="provenance"
            ) from error
        self._location = location
        # place of the arrays; None before prepare() and after finish(), when abort() must remove nothing
        self._target: Location | None = None
        self._manifest: Manifest | None = manifest
        self._provenance = dict(provenance)
        self._n_terms = manifest.n_terms
        self._responses = tuple(manifest.responses)
        self._covariates = tuple(manifest.covariates)
        self._n_levels = {name: len(names) for name, names in manifest.levels.items()}
        self._has_weight = manifest.has_weight
        self._has_doc_id = manifest.has_doc_id
        self._n_partitions = n_partitions
        self._document_capacity = document_capacity
        self._entry_capacity = entry_capacity
        self._id_capacity = id_capacity or 0

    @property
    def path(self) -> str:
        """Path or URL of the corpus."""
        return self._location.url

    def write_partition(self, partition: int, block: DocumentBlock) -> WrittenPartition:
        """Write the partition with this number, from 0, among those of this writer.

        Many threads and processes may do so at once, and may do so again. The block may hold its columns in any order.

        Raises
        ------
        InputError
            The block breaks a rule, does not fit, or lacks a response, covariate, weight or identifiers.
        OutputError
            It cannot be written, as when the disk is full.
        """
        import zarr

        if not 0 <= partition < self._n_partitions:
            raise InputError(
                f"must be in 0..{self._n_partitions - 1}, got {partition}", parameter="partition"
            )
        store = self._prepared().store(read_only=False)
        try:
            rows, written = self._rows(partition, block)
        except InputError as error:
            raise InputError(str(error), place=f"partition {partition}") from error
        for name, values in rows.items():
            with writing(self._location.url):
                array: Any = zarr.open_array(store, path=name, mode="r+", zarr_format=3)
            capacity = array.shape[1]
            if len(values) > capacity:
                raise InputError(
                    f"array {name} has room for {capacity} values, got {len(values)}",
                    place=f"partition {partition}",
                    remedy="make the writer with a larger capacity",
                )
            # the whole row, since zarr would read the chunk first to write a part of it
            row = np.full(capacity, array.fill_value, dtype=array.dtype)
            row[: len(values)] = values
            with writing(self._location.url):
                array[partition] = row
        return written

    def __getstate__(self) -> dict[str, Any]:
        # these can be large, and workers need neither
        return self.__dict__ | {"_manifest": None, "_provenance": {}}

    def _rows(self, partition: int, block: DocumentBlock) -> tuple[dict[str, NDArray[Any]], WrittenPartition]:
        """Check a block; return its rows by the name of the array, without padding, and the report on it."""
        block.validate(self._n_terms)
        columns: dict[str, NDArray[Any]] = {}
        responses, covariates = {}, {}
        for i, name in enumerate(self._responses):
            columns[f"response/{i}"] = values = self._column(block, block.responses, "response", name)
            responses[name] = ResponseSummary.of(values)
        for i, name in enumerate(self._covariates):
            columns[f"covariates/{i}"] = values = self._column(block, block.covariates, "covariate", name)
            covariates[name] = ResponseSummary.of(values)
        if self._has_weight:
            if block.weight is None:
                raise InputError("the block must have weights, got none")
            weight = np.asarray(block.weight, dtype=np.float64)
            _refuse(block, "weight must be finite and not negative", ~(np.isfinite(weight) & (weight >= 0)))
            columns["weight"] = weight
        sums = {name: checksum(values) for name, values in columns.items()}
        if self._has_doc_id:
            if block.doc_id is None or len(block.doc_id) != block.n_documents:
                raise InputError(
                    f"the block must have an identifier for each of its {block.n_documents} documents"
                )
            data, offsets = encode_strings(block.doc_id, what="identifier of document")
            columns |= {"doc_id": data, "doc_id_offsets": offsets}
            sums["doc_id"] = checksum(offsets, data)
        counts: dict[str, NDArray[Any]] = {
            "indptr": np.asarray(block.indptr, dtype=np.int64),
            "terms": np.asarray(block.terms, dtype=np.int32),
            "counts": np.asarray(block.counts, dtype=np.int32),
        }
        info = PartitionInfo(
            n_documents=block.n_documents,
            nnz=len(block.terms),
            n_tokens=block.n_tokens,
            n_empty=int(np.count_nonzero(np.diff(block.indptr) == 0)),
            checksum=checksum(*counts.values()),
            column_checksums=sums,
        )
        return counts | columns, WrittenPartition(partition, info, responses, covariates)

    def _column(
        self, block: DocumentBlock, columns: Mapping[str, NDArray[np.float64]], kind: str, name: str
    ) -> NDArray[np.float64]:
        if name not in columns:
            raise InputError(f"the block must have the {kind} {name!r}, got {sorted(columns)}")
        values = np.asarray(columns[name], dtype=np.float64)
        n_levels = self._n_levels.get(name)
        if n_levels is not None:
            rule = f"{kind} {name!r} must be a code 0..{n_levels - 1} of its levels"
            _refuse(block, rule, ~are_codes(values, n_levels))
        _refuse(block, f"{kind} {name!r} must be finite or missing", np.isinf(values))
        # NaN has many bit patterns: an all-missing chunk comes back with that of the fill, and must hash the same
        return np.where(np.isnan(values), np.nan, values)

    def _create_rows(self, group: zarr.Group) -> None:
        """Create the empty arrays that have a row for each partition."""
        documents, entries = self._document_capacity, self._entry_capacity
        for name, capacity in (("indptr", documents + 1), ("terms", entries), ("counts", entries)):
            self._create_row(group, name, capacity)
        for folder, columns in (("response", self._responses), ("covariates", self._covariates)):
            if columns:
                group.create_group(folder)
            # by number, since a column's name may hold characters that a file name may not
            for i, column in enumerate(columns):
                self._create_row(group, f"{folder}/{i}", documents, {"name": column})
        if self._has_weight:
            self._create_row(group, "weight", documents)
        if self._has_doc_id:
            self._create_row(group, "doc_id", self._id_capacity)
            self._create_row(group, "doc_id_offsets", documents + 1)

    def _create_row(
        self, group: zarr.Group, name: str, capacity: int, attributes: Mapping[str, str] | None = None
    ) -> None:
        dtype, fill = ARRAYS[name.split("/")[0]]
        shape, chunks = (self._n_partitions, max(capacity, 1)), (1, max(capacity, 1))
        create_array(group, name, shape=shape, dtype=dtype, chunks=chunks, fill=fill, attributes=attributes)

    @staticmethod
    def _create_whole(group: zarr.Group, name: str, values: NDArray[Any]) -> None:
        """Create an array that is not cut into partitions."""
        dtype, fill = ARRAYS[name]
        shape = (max(len(values), 1),)
        array = create_array(group, name, shape=shape, dtype=dtype, chunks=shape, fill=fill)
        array[: len(values)] = values

    def _grown_manifest(self, written: Iterable[WrittenPartition], provenance: Mapping[str, Any]) -> Manifest:
        """The manifest with the new partitions; raise an InputError unless there is one report for each."""
        assert self._manifest is not None
        parts = sorted(written, key=lambda part: part.partition)
        numbers = [part.partition for part in parts]
        if numbers != list(range(self._n_partitions)):
            raise InputError(
                f"partitions 0..{self._n_partitions - 1} must be written once each, got {numbers}"
            )
        return replace(
            self._manifest,
            responses={
                name: ResponseSummary.merge_all([summary, *(part.responses[name] for part in parts)])
                for name, summary in self._manifest.responses.items()
            },
            covariates={
                name: ResponseSummary.merge_all([summary, *(part.covariates[name] for part in parts)])
                for name, summary in self._manifest.covariates.items()
            },
            partitions=(*self._manifest.partitions, *(part.info for part in parts)),
            provenance=provenance,
        )

    def _signed_provenance(self) -> dict[str, Any]:
        """The provenance with the time and the version of dslda."""
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


def _refuse(block: DocumentBlock, rule: str, bad: NDArray[np.bool_]) -> None:
    if bad.any():
        first = int(np.argmax(bad))
        document = repr(block.doc_id[first]) if block.doc_id is not None else f"{first} of the partition"
        raise InputError(f"{rule}, and is not in {int(bad.sum())} documents, first in document {document}")
