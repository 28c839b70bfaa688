"""Reading one partition of a corpus store, checked against the manifest."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.corpus.levels import are_codes
from dslda.corpus.manifest import ARRAYS, FIRST_ROW, MAX_CHUNK_BYTES, REMEDY, PartitionInfo, Place
from dslda.corpus.vocabulary import decode_strings
from dslda.exceptions import FormatError, InputError
from dslda.storage.location import Location
from dslda.storage.zarr_arrays import DAMAGE, checksum

__all__ = ["PartitionReader", "StoredArrays"]

SMALL_CHUNK_BYTES = 64 << 20
ROOM_BYTES = 512
"""Larger chunks may have this many bytes for each value of the longest row: padding, or a long identifier each."""

BYTES = re.compile(r"b(['\"])(?:\\.|(?!\1).)*\1")
REMEDY_OR_REOPEN = (*REMEDY, "open it again where it was written anew since it was opened")


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """Reads one partition of a corpus when called; made by :meth:`dslda.corpus.store.Corpus.reader`.

    The result depends on the files only, so a task that holds a reader can run again anywhere. A reader is picklable, and
    small whatever the number of partitions.

    Attributes
    ----------
    location : Location
    partition, n_terms : int
    place : Place
    info : PartitionInfo
    responses, covariates : mapping of str to str
        The arrays to read, by name of the column.
    weight : bool
    doc_id : {"stored", "position", None}
        Identifiers from the store, or positions in the corpus, or none.
    first_document : int
        Position in the corpus of the first document.
    n_levels : mapping of str to int
        Number of codes of each array to read that holds a categorical column.
    """

    location: Location
    partition: int
    place: Place
    n_terms: int
    info: PartitionInfo
    responses: Mapping[str, str]
    covariates: Mapping[str, str]
    weight: bool
    doc_id: Literal["stored", "position"] | None
    first_document: int
    n_levels: Mapping[str, int]

    def __call__(self) -> DocumentBlock:
        """Read and check the partition; see :meth:`dslda.corpus.store.Corpus.read`."""
        arrays = StoredArrays(self.location, self.partition, self.place)
        info = self.info
        indptr = arrays.row("indptr", info.n_documents + 1)
        terms = arrays.row("terms", info.nnz)
        counts = arrays.row("counts", info.nnz)
        arrays.verify(info.checksum, indptr=indptr, terms=terms, counts=counts)
        block = DocumentBlock(
            indptr=indptr,
            terms=terms,
            counts=counts,
            responses={name: self._column(arrays, array) for name, array in self.responses.items()},
            covariates={name: self._column(arrays, array) for name, array in self.covariates.items()},
            weight=self._column(arrays, "weight") if self.weight else None,
            doc_id=self._doc_id(arrays),
        )
        try:
            # a wrong index would take compiled code beyond the end of an array
            block.validate(self.n_terms)
        except InputError as error:
            raise arrays.damaged(str(error)) from error
        if block.n_tokens != info.n_tokens:
            raise arrays.damaged(f"must have {info.n_tokens} tokens, got {block.n_tokens}")
        return block

    def identifiers(self) -> tuple[str, ...]:
        """Read the identifiers of the documents and nothing else; errors are those of reading the partition."""
        return self._doc_id(StoredArrays(self.location, self.partition, self.place)) or ()

    def _column(self, arrays: StoredArrays, name: str) -> NDArray[np.float64]:
        values: NDArray[np.float64] = arrays.row(name, self.info.n_documents)
        arrays.verify(self.info.column_checksums.get(name), **{name: values})
        n_levels = self.n_levels.get(name)
        # compiled code takes codes for indices too
        if n_levels is not None and not are_codes(values, n_levels).all():
            raise arrays.damaged(f"array {name} must hold codes 0..{n_levels - 1} of its levels")
        return values

    def _doc_id(self, arrays: StoredArrays) -> tuple[str, ...] | None:
        n = self.info.n_documents
        if self.doc_id is None:
            return None
        if self.doc_id == "position":
            return tuple(map(str, range(self.first_document, self.first_document + n)))
        offsets = arrays.row("doc_id_offsets", n + 1)
        data = arrays.row("doc_id", max(int(offsets[-1]), 0))
        arrays.verify(self.info.column_checksums.get("doc_id"), doc_id_offsets=offsets, doc_id=data)
        try:
            return decode_strings(data, offsets)
        except ValueError as error:
            raise arrays.damaged(f"array doc_id is damaged ({error})") from error


class StoredArrays:
    """The arrays of a store; errors of reading name the array, the `partition` and the remedy."""

    def __init__(self, location: Location, partition: int | None = None, place: Place = FIRST_ROW) -> None:
        self._location = location
        self._store = location.store(read_only=True)
        self._place = place
        self._where = location.url if partition is None else f"{location.url}: partition {partition}"

    def row(self, name: str, length: int) -> NDArray[Any]:
        """The first `length` values of this partition's row of an array."""
        return self._read(name, (self._place.n_rows, length), (self._place.row, slice(length)))

    def whole(self, name: str, length: int) -> NDArray[Any]:
        """The first `length` values of an array that is not cut into partitions."""
        return self._read(name, (None, length), (slice(length),))

    def verify(self, expected: str | None, /, **arrays: NDArray[Any]) -> None:
        """Compare rows with a checksum of the manifest."""
        if checksum(*arrays.values()) == expected:
            return
        missing = self.missing_chunk(
            [f"{self._path(name)}/c/{self._place.row}/0" for name, v in arrays.items() if len(v)]
        )
        if missing is not None:
            raise self.damaged(f"the chunk {missing} is missing")
        raise self.damaged(
            f"{', '.join(arrays)} and their checksum in the manifest do not agree", REMEDY_OR_REOPEN
        )

    def missing_chunk(self, keys: Sequence[str]) -> str | None:
        """The first of these chunks that is not in the store."""
        return next((key for key in keys if not self._location.holds(key)), None)

    def _path(self, name: str) -> str:
        return f"{self._place.group}/{name}".lstrip("/")

    def _read(self, name: str, shape: tuple[int | None, int], selection: tuple[Any, ...]) -> NDArray[Any]:
        from dslda.storage.bounded_chunks import MAX_CHUNKS, MAX_UNSTORED_BYTES, missing_chunk, open_array

        dtype, _ = ARRAYS[name.split("/")[0]]
        try:
            array = open_array(self._store, self._path(name))
            fits = len(array.shape) == len(selection) and array.shape[-1] >= shape[1]
            # checked before reading, which would allocate whatever size somebody wrote there
            n_values = max(self._place.n_values, shape[1])
            limit = min(max(SMALL_CHUNK_BYTES, ROOM_BYTES * n_values), MAX_CHUNK_BYTES)
            small = math.prod(array.chunks) * array.dtype.itemsize <= limit
            small = small and shape[1] <= MAX_CHUNKS * array.chunks[-1]
            if array.dtype != dtype or not (fits and small) or shape[0] not in (None, array.shape[0]):
                raise self.damaged(
                    f"array {name} must be {dtype} with room for {shape[1]} values a row, got {array.dtype} of shape "
                    f"{array.shape} in chunks of {array.chunks}",
                    REMEDY_OR_REOPEN,
                )
            if shape[1] * array.dtype.itemsize > MAX_UNSTORED_BYTES:
                row = selection[0] if len(selection) > 1 else None
                missing = missing_chunk(self._location, self._path(name), array, row)
                if missing is not None:
                    raise self.damaged(f"the chunk {missing} is missing")
            return np.asarray(array[selection])
        except FileNotFoundError as error:
            raise self.damaged(f"the array {name} is missing") from error
        except MemoryError as error:
            raise self.damaged(f"array {name} of {shape[1]:,} values does not fit into memory") from error
        except DAMAGE as error:
            # bytes of a codec's checksums as hexadecimal digits
            reason = BYTES.sub(lambda match: f"0x{ast.literal_eval(match[0]).hex()}", str(error))
            raise self.damaged(f"array {name} is damaged ({reason})") from error

    def damaged(self, reason: str, remedy: Sequence[str] = REMEDY) -> FormatError:
        """The error for a store that differs from what was written."""
        return FormatError(reason, place=self._where, remedy=remedy)
