"""What the manifest of a corpus store says, and its form as JSON (docs/formats.md is the specification)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.json_fields import boolean, count, items, json_sha256, object_, text
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.exceptions import FormatError

__all__ = [
    "ARRAYS",
    "ENCODING_TYPE",
    "ENCODING_VERSION",
    "MAX_CHUNK_BYTES",
    "Manifest",
    "PartitionInfo",
    "ResponseSummary",
    "checksum",
]

ENCODING_TYPE = "dslda-corpus"
ENCODING_VERSION = "1"
MANIFEST_CHECKSUM = "manifest_sha256"

MAX_CHUNK_BYTES = 2**31 - 1024
"""Blosc compresses buffers of less than 2 GB, so no row is larger."""

ARRAYS: Mapping[str, tuple[str, float]] = {
    "indptr": ("int64", -1),
    "terms": ("int32", -1),
    "counts": ("int32", 0),
    "response": ("float64", math.nan),
    "covariates": ("float64", math.nan),
    "weight": ("float64", math.nan),
    "doc_id": ("uint8", 0),
    "doc_id_offsets": ("int64", -1),
    "vocabulary": ("uint8", 0),
    "vocabulary_offsets": ("int64", -1),
    "document_frequency": ("int64", -1),
}
"""Data type and fill value of every array, or of every array of a group.

The fill is a value that no document has, where there is one: zarr reads a missing chunk as fill, in silence.
"""


def checksum(*arrays: NDArray[Any]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the arrays' little-endian bytes, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Size and checksums of one partition.

    Attributes
    ----------
    n_documents, nnz, n_tokens, n_empty : int
        Documents, (document, term) entries, sum of counts, documents without a token.
    checksum : str
        :func:`checksum` of `indptr`, `terms` and `counts`, without padding.
    column_checksums : mapping of str to str
        :func:`checksum` of what has one value a document, by the name of the array; for ``doc_id`` of the
        offsets and the bytes.
    """

    n_documents: int
    nnz: int
    n_tokens: int
    n_empty: int
    checksum: str
    column_checksums: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object, where: str) -> PartitionInfo:
        """The reverse of :meth:`to_json`; `where` begins the message of a FormatError."""
        columns = object_(data, "column_checksums", where)
        info = cls(
            n_documents=count(data, "n_documents", where),
            nnz=count(data, "nnz", where),
            n_tokens=count(data, "n_tokens", where),
            n_empty=count(data, "n_empty", where),
            checksum=text(data, "checksum", where),
            column_checksums={name: text(columns, name, f"{where}, column_checksums") for name in columns},
        )
        if (info.n_documents + 1) * 8 > MAX_CHUNK_BYTES or info.nnz * 4 > MAX_CHUNK_BYTES:
            raise FormatError(
                f"{where}: n_documents must be below {MAX_CHUNK_BYTES // 8:,} and nnz at most "
                f"{MAX_CHUNK_BYTES // 4:,}, got {info.n_documents:,} and {info.nnz:,}"
            )
        if info.n_empty > info.n_documents or info.nnz > info.n_tokens:
            raise FormatError(
                f"{where}: n_empty must be at most n_documents, and nnz at most n_tokens, got {data!r:.200}"
            )
        return info


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that a corpus store says of itself in its group attributes.

    Attributes
    ----------
    n_terms : int
    vocabulary_sha256 : str
        See :attr:`dslda.corpus.vocabulary.Vocabulary.sha256`.
    has_document_frequency, has_weight, has_doc_id : bool
        Which optional arrays are there.
    text_settings : TextSettings
    responses : mapping of str to ResponseSummary
        In the order of the arrays ``response/0``, ``response/1``, ...
    covariates : tuple of str
        In the order of the arrays ``covariates/0``, ...
    partitions : tuple of PartitionInfo
    provenance : mapping
        Where the corpus comes from: any JSON object.
    """

    n_terms: int
    vocabulary_sha256: str
    has_document_frequency: bool
    has_weight: bool
    has_doc_id: bool
    text_settings: TextSettings
    responses: Mapping[str, ResponseSummary]
    covariates: tuple[str, ...]
    partitions: tuple[PartitionInfo, ...]
    provenance: Mapping[str, Any]

    @property
    def n_documents(self) -> int:
        """Documents of all partitions."""
        return sum(p.n_documents for p in self.partitions)

    @property
    def nnz(self) -> int:
        """(Document, term) entries of all partitions."""
        return sum(p.nnz for p in self.partitions)

    @property
    def n_tokens(self) -> int:
        """Sum of all counts."""
        return sum(p.n_tokens for p in self.partitions)

    @property
    def content_hash(self) -> str:
        """SHA-256 (hexadecimal) of what the corpus holds, the same for every copy, whenever it was made.

        Taken of the names and checksums of everything stored and the text settings, not of provenance, nor of
        the summaries, whose last bits may differ between machines.
        """
        return json_sha256(
            {
                "vocabulary_sha256": self.vocabulary_sha256,
                "text_settings": self.text_settings.to_json(),
                "responses": list(self.responses),
                "covariates": list(self.covariates),
                "partitions": [partition.to_json() for partition in self.partitions],
            }
        )

    def to_json(self) -> dict[str, Any]:
        """The group attributes, with a checksum of themselves."""
        data: dict[str, Any] = {
            "encoding-type": ENCODING_TYPE,
            "encoding-version": ENCODING_VERSION,
            "n_documents": self.n_documents,
            "n_terms": self.n_terms,
            "nnz": self.nnz,
            "n_tokens": self.n_tokens,
            "vocabulary_sha256": self.vocabulary_sha256,
            "has_document_frequency": self.has_document_frequency,
            "has_weight": self.has_weight,
            "has_doc_id": self.has_doc_id,
            "text_settings": self.text_settings.to_json(),
            "responses": [{"name": name} | summary.to_json() for name, summary in self.responses.items()],
            "covariates": [{"name": name} for name in self.covariates],
            "partitions": [partition.to_json() for partition in self.partitions],
            "provenance": dict(self.provenance),
        }
        return data | {MANIFEST_CHECKSUM: json_sha256(data)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], path: str) -> Manifest:
        """Read group attributes; fields unknown to this release are passed over.

        Parameters
        ----------
        data : mapping
        path : str
            Of the store, for messages.

        Raises
        ------
        FormatError
            Not a corpus, another version, unfinished, or a field is missing or not valid.
        """
        _check_encoding(data, path)
        where = f"{path}: manifest"
        rest = {name: value for name, value in data.items() if name != MANIFEST_CHECKSUM}
        if MANIFEST_CHECKSUM in data and json_sha256(rest) != data[MANIFEST_CHECKSUM]:
            raise FormatError(
                f"{where} does not agree with its own checksum, so it was damaged or edited; copy zarr.json "
                "again or ingest again"
            )
        responses: dict[str, ResponseSummary] = {}
        for i, entry in enumerate(items(data, "responses", where)):
            here = f"{where}, responses[{i}]"
            responses[text(entry, "name", here)] = ResponseSummary.from_json(entry, here)
        covariates = tuple(
            text(entry, "name", f"{where}, covariates[{i}]")
            for i, entry in enumerate(items(data, "covariates", where))
        )
        partitions = tuple(
            PartitionInfo.from_json(entry, f"{where}, partitions[{i}]")
            for i, entry in enumerate(items(data, "partitions", where))
        )
        manifest = cls(
            n_terms=count(data, "n_terms", where),
            vocabulary_sha256=text(data, "vocabulary_sha256", where),
            has_document_frequency=boolean(data, "has_document_frequency", where),
            has_weight=boolean(data, "has_weight", where),
            has_doc_id=boolean(data, "has_doc_id", where),
            text_settings=TextSettings.from_json(object_(data, "text_settings", where), where),
            responses=responses,
            covariates=covariates,
            partitions=partitions,
            provenance=object_(data, "provenance", where),
        )
        if not partitions or manifest.n_terms < 1:
            raise FormatError(
                f"{where}: there must be at least one partition and one term, got {len(partitions)} and "
                f"{manifest.n_terms}; copy the corpus again or ingest again"
            )
        for name, names in (("responses", responses), ("covariates", set(covariates))):
            if len(names) != len(data[name]):
                raise FormatError(f"{where}: field {name!r} must have distinct names, got one of them twice")
        for name in ("n_documents", "nnz", "n_tokens"):
            found, expected = count(data, name, where), getattr(manifest, name)
            if found != expected:
                raise FormatError(
                    f"{where}: field {name!r} must be the sum over partitions, {expected}, got {found}"
                )
        return manifest


def _check_encoding(data: Mapping[str, Any], path: str) -> None:
    """Refuse anything but a finished corpus of the version this release reads."""
    kind, version = data.get("encoding-type"), data.get("encoding-version")
    if kind == "dslda-model":
        raise FormatError(
            f"{path} is a model, not a corpus; give the path of a corpus, or open it with load_model"
        )
    if kind != ENCODING_TYPE:
        raise FormatError(f"{path} is not a dslda corpus; make one with dslda ingest")
    if version != ENCODING_VERSION:
        raise FormatError(
            f"{path} is a corpus of version {version!r}, this release of dslda reads version "
            f"{ENCODING_VERSION!r}; update dslda"
        )
    if set(data) <= {"encoding-type", "encoding-version"}:
        raise FormatError(
            f"{path} is unfinished, it has no manifest yet: the ingest that writes it is running or was cut "
            "short; wait for it, or ingest again with overwrite"
        )
