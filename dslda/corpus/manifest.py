"""What the manifest of a corpus store says, and its form as JSON (docs/formats.md is the specification)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dslda.corpus.appended import APPENDED, AppendedGroup, Place, appended_from_json
from dslda.corpus.levels import are_levels
from dslda.corpus.summary import ResponseSummary, new_share, oov_share
from dslda.corpus.text import TextSettings
from dslda.exceptions import FormatError
from dslda.storage.json_fields import boolean, count, items, object_, optional, sorted_names, text
from dslda.storage.typed_json import MANIFEST_CHECKSUM, is_whole, json_sha256, with_checksum

__all__ = [
    "ARRAYS",
    "ENCODING_TYPE",
    "ENCODING_VERSION",
    "MAX_CHUNK_BYTES",
    "Manifest",
    "PartitionInfo",
    "ResponseSummary",
    "is_unfinished",
]

ENCODING_TYPE = "dslda-corpus"
ENCODING_VERSION = "1"
APPENDED_VERSION = "2"
"""Of a corpus that was appended to: releases that know only one group of arrays must not read it as theirs."""

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
    covariates : mapping of str to ResponseSummary
        In the order of the arrays ``covariates/0``, ...
    levels : mapping of str to tuple of str
        The names of each categorical column, by code; columns of numbers are not in it.
    partitions : tuple of PartitionInfo
    provenance : mapping
        Where the corpus comes from: any JSON object.
    appended : tuple of AppendedGroup
        In order; their partitions are the last ones.
    n_all_tokens : int or None
        Tokens of all documents before the vocabulary was chosen; None where it is not known.
    too_frequent : tuple of str
        Terms that were left out as too frequent, sorted; none where it is not known.
    n_too_frequent_tokens : int or None
        Tokens of all documents that are these; None where `n_all_tokens` is.
    """

    n_terms: int
    vocabulary_sha256: str
    has_document_frequency: bool
    has_weight: bool
    has_doc_id: bool
    text_settings: TextSettings
    responses: Mapping[str, ResponseSummary]
    covariates: Mapping[str, ResponseSummary]
    levels: Mapping[str, tuple[str, ...]]
    partitions: tuple[PartitionInfo, ...]
    provenance: Mapping[str, Any]
    appended: tuple[AppendedGroup, ...] = ()
    n_all_tokens: int | None = None
    too_frequent: tuple[str, ...] = ()
    n_too_frequent_tokens: int | None = None

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
    def oov_share(self) -> float | None:
        """Share of the tokens of all documents that the vocabulary does not have; None where it is not known."""
        return oov_share(self.n_tokens, self.n_all_tokens)

    @property
    def new_share(self) -> float | None:
        """The same, terms that were left out as too frequent being counted nowhere."""
        return new_share(self.n_tokens, self.n_all_tokens, self.n_too_frequent_tokens)

    @property
    def latest_group(self) -> str:
        """Path of the group whose document frequencies count all documents."""
        return self.appended[-1].path if self.appended else ""

    def places(self) -> list[Place]:
        """Where each partition is, in order."""
        n_first = len(self.partitions) - sum(group.n_partitions for group in self.appended)
        groups = [AppendedGroup("", n_first), *self.appended]
        return [
            Place(group.path, row, group.n_partitions)
            for group in groups
            for row in range(group.n_partitions)
        ]

    @property
    def content_hash(self) -> str:
        """SHA-256 (hexadecimal) of what the corpus holds, the same for every copy, whenever it was made.

        Taken of the names, levels and checksums of everything stored and the text settings, not of provenance,
        nor of the summaries, whose last bits may differ between machines.
        """
        return json_sha256(
            {
                "vocabulary_sha256": self.vocabulary_sha256,
                "text_settings": self.text_settings.to_json(),
                "responses": list(self.responses),
                "covariates": list(self.covariates),
                "levels": {name: list(levels) for name, levels in self.levels.items()},
                "partitions": [partition.to_json() for partition in self.partitions],
            }
        )

    def to_json(self) -> dict[str, Any]:
        """The group attributes, with a checksum of themselves."""
        data: dict[str, Any] = {
            "encoding-type": ENCODING_TYPE,
            "encoding-version": APPENDED_VERSION if self.appended else ENCODING_VERSION,
            "n_documents": self.n_documents,
            "n_terms": self.n_terms,
            "nnz": self.nnz,
            "n_tokens": self.n_tokens,
            "n_all_tokens": self.n_all_tokens,
            "n_too_frequent_tokens": self.n_too_frequent_tokens,
            "vocabulary_sha256": self.vocabulary_sha256,
            "has_document_frequency": self.has_document_frequency,
            "has_weight": self.has_weight,
            "has_doc_id": self.has_doc_id,
            "text_settings": self.text_settings.to_json(),
            "too_frequent": list(self.too_frequent),
            "responses": self._columns_to_json(self.responses),
            "covariates": self._columns_to_json(self.covariates),
            "partitions": [partition.to_json() for partition in self.partitions],
            "provenance": dict(self.provenance),
        }
        if self.appended:
            data[APPENDED] = [asdict(group) for group in self.appended]
        return with_checksum(data)

    def _columns_to_json(self, columns: Mapping[str, ResponseSummary]) -> list[dict[str, Any]]:
        return [
            {"name": name}
            | summary.to_json()
            | ({"levels": list(self.levels[name])} if name in self.levels else {})
            for name, summary in columns.items()
        ]

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
        if MANIFEST_CHECKSUM in data and not is_whole(data):
            raise FormatError(
                f"{where} does not agree with its own checksum, so it was damaged or edited; copy zarr.json "
                "again or ingest again"
            )
        responses, response_levels = _columns_from_json(data, "responses", where)
        covariates, covariate_levels = _columns_from_json(data, "covariates", where)
        partitions = tuple(
            PartitionInfo.from_json(entry, f"{where}, partitions[{i}]")
            for i, entry in enumerate(items(data, "partitions", where))
        )
        appended: tuple[AppendedGroup, ...] = ()
        if data["encoding-version"] == APPENDED_VERSION:
            appended = appended_from_json(data, len(partitions), where)
        manifest = cls(
            n_terms=count(data, "n_terms", where),
            vocabulary_sha256=text(data, "vocabulary_sha256", where),
            has_document_frequency=boolean(data, "has_document_frequency", where),
            has_weight=boolean(data, "has_weight", where),
            has_doc_id=boolean(data, "has_doc_id", where),
            text_settings=TextSettings.from_json(object_(data, "text_settings", where), where),
            responses=responses,
            covariates=covariates,
            levels=response_levels | covariate_levels,
            partitions=partitions,
            provenance=object_(data, "provenance", where),
            appended=appended,
            # corpora that were written before they were kept have none of these
            n_all_tokens=optional(count, data, "n_all_tokens", where),
            n_too_frequent_tokens=optional(count, data, "n_too_frequent_tokens", where),
            too_frequent=sorted_names(data, "too_frequent", where) if "too_frequent" in data else (),
        )
        if not partitions or manifest.n_terms < 1:
            raise FormatError(
                f"{where}: there must be at least one partition and one term, got {len(partitions)} and "
                f"{manifest.n_terms}; copy the corpus again or ingest again"
            )
        for name, summaries in (("responses", responses), ("covariates", covariates)):
            if len(summaries) != len(data[name]):
                raise FormatError(f"{where}: field {name!r} must have distinct names, got one of them twice")
            for column, summary in summaries.items():
                if summary.n + summary.missing != manifest.n_documents:
                    raise FormatError(
                        f"{where}: n and missing of {column!r} in {name!r} must add up to the "
                        f"{manifest.n_documents} documents, got {summary.n} and {summary.missing}"
                    )
        for name in covariates:
            if name in responses and response_levels.get(name) != covariate_levels.get(name):
                raise FormatError(f"{where}: {name!r} must have the same levels as response and as covariate")
        for name in ("n_documents", "nnz", "n_tokens"):
            found, expected = count(data, name, where), getattr(manifest, name)
            if found != expected:
                raise FormatError(
                    f"{where}: field {name!r} must be the sum over partitions, {expected}, got {found}"
                )
        least = manifest.n_tokens + (manifest.n_too_frequent_tokens or 0)
        if manifest.n_all_tokens is not None and manifest.n_all_tokens < least:
            raise FormatError(
                f"{where}: field 'n_all_tokens' must be at least n_tokens and n_too_frequent_tokens together, {least}, got "
                f"{manifest.n_all_tokens}"
            )
        return manifest


def _columns_from_json(
    data: Mapping[str, Any], field_name: str, where: str
) -> tuple[dict[str, ResponseSummary], dict[str, tuple[str, ...]]]:
    """Summaries of the columns, and levels of the categorical ones, by name."""
    summaries: dict[str, ResponseSummary] = {}
    levels: dict[str, tuple[str, ...]] = {}
    for i, entry in enumerate(items(data, field_name, where)):
        here = f"{where}, {field_name}[{i}]"
        name = text(entry, "name", here)
        summary = summaries[name] = ResponseSummary.from_json(entry, here)
        if "levels" not in entry:
            continue
        names = items(entry, "levels", here)
        if not are_levels(names):
            raise FormatError(
                f"{here}: field 'levels' must be distinct strings in the order of their code points, got "
                f"{names!r:.60}"
            )
        codes = (summary.minimum, summary.maximum, *(summary.distinct or ())) if summary.n else ()
        if not (summary.whole and all(0 <= code < len(names) for code in codes)):
            raise FormatError(
                f"{here}: the values must be codes 0..{len(names) - 1} of the levels, got a summary from "
                f"{summary.minimum:g} to {summary.maximum:g}"
            )
        levels[name] = tuple(names)
    return summaries, levels


def is_unfinished(data: Mapping[str, Any]) -> bool:
    """Whether these are the attributes of a corpus that has no manifest yet."""
    return data.get("encoding-type") == ENCODING_TYPE and data.keys() <= {"encoding-type", "encoding-version"}


def _check_encoding(data: Mapping[str, Any], path: str) -> None:
    """Refuse anything but a finished corpus of the version this release reads."""
    kind, version = data.get("encoding-type"), data.get("encoding-version")
    if kind == "dslda-model":
        raise FormatError(
            f"{path} is a model, not a corpus; give the path of a corpus, or open it with load_model"
        )
    if kind != ENCODING_TYPE:
        raise FormatError(f"{path} is not a dslda corpus; make one with dslda ingest")
    if version not in (ENCODING_VERSION, APPENDED_VERSION):
        raise FormatError(
            f"{path} is a corpus of version {version!r}, this release of dslda reads versions "
            f"{ENCODING_VERSION!r} and {APPENDED_VERSION!r}; update dslda"
        )
    if is_unfinished(data):
        raise FormatError(
            f"{path} is unfinished, it has no manifest yet: the ingest that writes it is running or was cut "
            "short; wait for it, or ingest again"
        )
