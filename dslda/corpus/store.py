"""A corpus on disk or in an object store: opened lazily, read one partition at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.corpus.format import ARRAYS, Manifest, PartitionInfo, ResponseSummary, checksum
from dslda.corpus.location import Location
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary, decode_strings
from dslda.corpus.writer import CorpusWriter, WrittenPartition, check_corpus_output
from dslda.exceptions import FormatError, InputError

__all__ = [
    "Corpus",
    "CorpusWriter",
    "PartitionReader",
    "WrittenPartition",
    "check_corpus_output",
    "open_corpus",
]

# What zarr and its codecs raise for bytes that are not what was written. OSError is left alone, so that an
# interrupted connection stays what it is and can be tried again.
DAMAGE = (ValueError, RuntimeError, KeyError, TypeError)

REMEDY = "copy the corpus again or ingest again"


def open_corpus(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Corpus:
    """Open a corpus; only its manifest is read.

    Parameters
    ----------
    path : str or path
        A local directory or any fsspec URL, such as ``s3://bucket/reviews.corpus``.
    storage_options : mapping, optional
        For the fsspec file system.

    Raises
    ------
    InputError
        There is nothing at `path`.
    FormatError
        It is not a corpus, unfinished, damaged, or of a version this release cannot read.
    """
    location = Location.of(path, storage_options)
    return Corpus(location, Manifest.from_json(location.read_attributes(), location.url))


class Corpus:
    """Documents as term counts in a store, with what belongs to each; made by :func:`open_corpus`.

    Light: holds the manifest and, once asked for, the vocabulary. Pickling takes the manifest along; send the
    :class:`PartitionReader` of a partition where only that is needed.

    Attributes
    ----------
    path : str
        Absolute path or URL.
    n_documents, n_terms, n_tokens, nnz, n_empty, n_partitions : int
        `nnz` counts (document, term) entries, `n_tokens` sums their counts, `n_empty` counts documents without.
    partitions : tuple of PartitionInfo
    text_settings : TextSettings
    response_names, covariate_names : tuple of str
    response_summaries : mapping of str to ResponseSummary
    has_weight, has_doc_id : bool
    provenance : mapping
        Where the corpus came from and who wrote it, when.
    content_hash : str
        SHA-256 of what the corpus holds, the same for every copy.
    """

    def __init__(self, location: Location, manifest: Manifest) -> None:
        self._location = location
        self._manifest = manifest
        self._vocabulary: Vocabulary | None = None
        self._content_hash: str | None = None

    @property
    def path(self) -> str:
        return self._location.url

    @property
    def n_documents(self) -> int:
        return self._manifest.n_documents

    @property
    def n_terms(self) -> int:
        return self._manifest.n_terms

    @property
    def n_tokens(self) -> int:
        return self._manifest.n_tokens

    @property
    def nnz(self) -> int:
        return self._manifest.nnz

    @property
    def n_empty(self) -> int:
        return sum(p.n_empty for p in self.partitions)

    @property
    def n_partitions(self) -> int:
        return len(self._manifest.partitions)

    @property
    def partitions(self) -> tuple[PartitionInfo, ...]:
        return self._manifest.partitions

    @property
    def text_settings(self) -> TextSettings:
        return self._manifest.text_settings

    @property
    def response_names(self) -> tuple[str, ...]:
        return tuple(self._manifest.responses)

    @property
    def response_summaries(self) -> Mapping[str, ResponseSummary]:
        return self._manifest.responses

    @property
    def covariate_names(self) -> tuple[str, ...]:
        return self._manifest.covariates

    @property
    def has_weight(self) -> bool:
        return self._manifest.has_weight

    @property
    def has_doc_id(self) -> bool:
        return self._manifest.has_doc_id

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self._manifest.provenance

    @property
    def vocabulary_sha256(self) -> str:
        """Hash of the vocabulary, known without reading it."""
        return self._manifest.vocabulary_sha256

    @property
    def content_hash(self) -> str:
        if self._content_hash is None:
            self._content_hash = self._manifest.content_hash
        return self._content_hash

    @property
    def vocabulary(self) -> Vocabulary:
        """The terms, read on first use.

        Raises
        ------
        FormatError
            The arrays are damaged or do not agree with the manifest.
        """
        if self._vocabulary is None:
            self._vocabulary = self._read_vocabulary()
        return self._vocabulary

    def reader(
        self,
        partition: int,
        *,
        responses: Sequence[str] | None = None,
        covariates: Sequence[str] = (),
        weight: bool = False,
        doc_id: bool = False,
    ) -> PartitionReader:
        """What a worker needs to read a partition, small enough to send with each task; see :meth:`read`."""
        if not 0 <= partition < self.n_partitions:
            raise InputError(f"partition must be in 0..{self.n_partitions - 1}, got {partition}")
        names = self.response_names if responses is None else tuple(responses)
        return PartitionReader(
            location=self._location,
            partition=partition,
            n_partitions=self.n_partitions,
            n_terms=self.n_terms,
            info=self.partitions[partition],
            responses={
                name: f"response/{_position(name, self.response_names, 'response')}" for name in names
            },
            covariates={
                name: f"covariates/{_position(name, self.covariate_names, 'covariate')}"
                for name in covariates
            },
            weight=weight and self.has_weight,
            doc_id="stored" if doc_id and self.has_doc_id else "position" if doc_id else None,
            first_document=sum(p.n_documents for p in self.partitions[:partition]),
        )

    def read(
        self,
        partition: int,
        *,
        responses: Sequence[str] | None = None,
        covariates: Sequence[str] = (),
        weight: bool = False,
        doc_id: bool = False,
    ) -> DocumentBlock:
        """Read one partition and check it against the manifest.

        Parameters
        ----------
        partition : int
            0 to ``n_partitions - 1``.
        responses : sequence of str, optional
            Which to read; all of them by default.
        covariates : sequence of str
        weight : bool
            Read document weights; the block has none where the corpus has none.
        doc_id : bool
            Read identifiers; where the corpus has none, a document's position in the corpus, from "0".

        Raises
        ------
        InputError
            No such partition, response or covariate.
        FormatError
            A chunk is missing or damaged, or the data do not agree with the manifest.
        """
        return self.reader(
            partition, responses=responses, covariates=covariates, weight=weight, doc_id=doc_id
        )()

    def __repr__(self) -> str:
        responses = ", ".join(f"{name!r} ({s.kind})" for name, s in self.response_summaries.items())
        return (
            f"Corpus({self.path!r}: {self.n_documents:,} documents, {self.n_terms:,} terms, {self.n_tokens:,} tokens, "
            f"{self.n_partitions:,} partitions, responses: {responses or 'none'})"
        )

    def __getstate__(self) -> tuple[Location, Manifest]:
        return self._location, self._manifest

    def __setstate__(self, state: tuple[Location, Manifest]) -> None:
        Corpus.__init__(self, *state)

    def _read_vocabulary(self) -> Vocabulary:
        arrays = _Arrays(self._location)
        manifest = self._manifest
        offsets = arrays.whole("vocabulary_offsets", manifest.n_terms + 1)
        data = arrays.whole("vocabulary", max(int(offsets[-1]), 0))
        frequency = None
        if manifest.has_document_frequency:
            frequency = arrays.whole("document_frequency", manifest.n_terms)
        try:
            vocabulary = Vocabulary.from_bytes(data, offsets, frequency)
        except ValueError as error:
            raise FormatError(f"{self.path}: the vocabulary is damaged ({error}); {REMEDY}") from error
        if vocabulary.sha256 != manifest.vocabulary_sha256:
            raise FormatError(
                f"{self.path}: the vocabulary does not agree with its hash in the manifest; {REMEDY}"
            )
        return vocabulary


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """Reads one partition of a corpus when called; made by :meth:`Corpus.reader`.

    A pure function of the files: a task that holds one can be run again anywhere. Picklable and small, whatever
    the number of partitions.
    """

    location: Location
    partition: int
    n_partitions: int
    n_terms: int
    info: PartitionInfo
    responses: Mapping[str, str]
    covariates: Mapping[str, str]
    weight: bool
    doc_id: Literal["stored", "position"] | None
    first_document: int

    def __call__(self) -> DocumentBlock:
        """Read and check the partition; see :meth:`Corpus.read`."""
        arrays = _Arrays(self.location, self.partition, self.n_partitions)
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
            # a wrong index would be read beyond the end of an array by compiled code
            block.validate(self.n_terms)
        except InputError as error:
            raise FormatError(f"{arrays.where}: {error}; {REMEDY}") from error
        if block.n_tokens != info.n_tokens:
            raise FormatError(
                f"{arrays.where}: must have {info.n_tokens} tokens, got {block.n_tokens}; {REMEDY}"
            )
        return block

    def _column(self, arrays: _Arrays, name: str) -> NDArray[np.float64]:
        values = arrays.row(name, self.info.n_documents)
        arrays.verify(self.info.column_checksums.get(name), **{name: values})
        return values

    def _doc_id(self, arrays: _Arrays) -> tuple[str, ...] | None:
        if self.doc_id is None:
            return None
        if self.doc_id == "position":
            first = self.first_document
            return tuple(map(str, range(first, first + self.info.n_documents)))
        offsets = arrays.row("doc_id_offsets", self.info.n_documents + 1)
        data = arrays.row("doc_id", max(int(offsets[-1]), 0))
        arrays.verify(self.info.column_checksums.get("doc_id"), doc_id_offsets=offsets, doc_id=data)
        return decode_strings(data, offsets)


class _Arrays:
    """The arrays of a store, read with errors that say which one, of which partition, and what to do."""

    def __init__(self, location: Location, partition: int = 0, n_partitions: int | None = None) -> None:
        self._location = location
        self._store = location.store(read_only=True)
        self._partition = partition
        self._n_partitions = n_partitions
        self.where = location.url if n_partitions is None else f"{location.url}: partition {partition}"

    def row(self, name: str, length: int) -> Any:
        """The first `length` values of this partition's row."""
        return self._read(name, (self._n_partitions, length), (self._partition, slice(length)))

    def whole(self, name: str, length: int) -> Any:
        """The first `length` values of an array that is not cut into partitions."""
        return self._read(name, (None, length), (slice(length),))

    def verify(self, expected: str | None, **arrays: NDArray[Any]) -> None:
        """Compare with a checksum of the manifest."""
        if checksum(*arrays.values()) == expected:
            return
        for name, values in arrays.items():
            key = f"{name}/c/{self._partition}/0"
            if len(values) and not self._location.holds(key):
                raise FormatError(f"{self.where}: the chunk {key} is missing; {REMEDY}")
        names = ", ".join(arrays)
        raise FormatError(
            f"{self.where}: {names} do not agree with the checksum in the manifest; {REMEDY}; if the corpus was "
            "written anew since it was opened, open it again"
        )

    def _read(self, name: str, shape: tuple[int | None, int], selection: tuple[Any, ...]) -> Any:
        import zarr

        try:
            array = zarr.open_array(self._store, path=name, mode="r", zarr_format=3)
            kind, rows, capacity = ARRAYS[name.split("/")[0]][0], array.shape[0], array.shape[-1]
            if array.dtype != kind or array.ndim != len(selection):
                raise FormatError(
                    f"{self.where}: array {name} must be of type {kind} with {len(selection)} dimensions, got "
                    f"{array.dtype} with {array.ndim}; {REMEDY}"
                )
            if (shape[0] is not None and rows != shape[0]) or capacity < shape[1]:
                raise FormatError(
                    f"{self.where}: array {name} must hold {shape[1]} values, got the shape {array.shape}; {REMEDY}"
                )
            return np.asarray(array[selection])
        except FileNotFoundError as error:
            raise FormatError(f"{self.where}: the array {name} is missing; {REMEDY}") from error
        except DAMAGE as error:
            raise FormatError(f"{self.where}: array {name} is damaged ({error}); {REMEDY}") from error


def _position(name: str, names: Sequence[str], what: str) -> int:
    if name not in names:
        there = ", ".join(repr(n) for n in names) or "none"
        raise InputError(f"{what} {name!r} is not in the corpus, which has: {there}")
    return names.index(name)
