"""The manifest of a corpus store, and its form as JSON (docs/formats.md is the specification)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, NamedTuple

import msgspec

from dslda.corpus.levels import are_levels
from dslda.corpus.summary import ResponseSummary, StoredSummary
from dslda.corpus.text import TextSettings
from dslda.exceptions import FormatError
from dslda.storage.typed_json import (
    MANIFEST_CHECKSUM,
    Count,
    PositiveCount,
    check_distinct,
    check_sorted,
    decode,
    is_whole,
    json_sha256,
    with_checksum,
)
from dslda.wording import short_repr

__all__ = [
    "APPENDED",
    "ARRAYS",
    "ENCODING_TYPE",
    "ENCODING_VERSION",
    "FIRST_ROW",
    "MAX_CHUNK_BYTES",
    "AppendedGroup",
    "Manifest",
    "PartitionInfo",
    "Place",
    "ResponseSummary",
    "is_unfinished",
]

ENCODING_TYPE = "dslda-corpus"
ENCODING_VERSION = "1"
APPENDED_VERSION = "2"
"""Version of a corpus that was appended to: releases that know only one group of arrays must not read it."""
APPENDED = "appended"
"""Folder of the groups of arrays that appends add, and their field in the manifest."""
REMEDY = ("copy the corpus again", "ingest again")

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
"""Data type and fill value of each array, or of all arrays in a group.

Zarr silently reads a missing chunk as fill, so the fill is a value that no document has, if such a value exists.
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
        :func:`checksum` of each array with one value a document, by its name; for ``doc_id`` of the offsets and the bytes.
    """

    n_documents: Count
    nnz: Count
    n_tokens: Count
    n_empty: Count
    checksum: str
    column_checksums: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.n_documents + 1) * 8 > MAX_CHUNK_BYTES or self.nnz * 4 > MAX_CHUNK_BYTES:
            raise ValueError(
                f"`n_documents` must be below {MAX_CHUNK_BYTES // 8:,} and `nnz` at most {MAX_CHUNK_BYTES // 4:,}, "
                f"got {self.n_documents:,} and {self.nnz:,}"
            )
        if self.n_empty > self.n_documents or self.nnz > self.n_tokens:
            raise ValueError("`n_empty` must be at most `n_documents`, and `nnz` at most `n_tokens`")


@dataclass(frozen=True, slots=True)
class AppendedGroup:
    """The arrays that one append added.

    Attributes
    ----------
    path : str
        Path of their group in the store, ``appended/<name>``.
    n_partitions : int
        Rows of its arrays, at least 1.
    """

    # so that no path leads out of the store
    path: Annotated[str, msgspec.Meta(pattern=rf"\A{APPENDED}/[0-9A-Za-z-]+\Z")]
    n_partitions: PositiveCount


class Place(NamedTuple):
    """Position of a partition in the arrays.

    Attributes
    ----------
    group : str
        Path of the group, "" for the store itself.
    row, n_rows : int
    n_values : int
        Length of the longest row of the group, identifiers aside.
    """

    group: str
    row: int
    n_rows: int
    n_values: int = 0


FIRST_ROW = Place("", 0, 1)


class _SharedFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of the same form in a :class:`Manifest` and in its JSON; earlier releases lack fields with a default."""

    n_terms: PositiveCount
    vocabulary_sha256: str
    has_document_frequency: bool
    has_weight: bool
    has_doc_id: bool
    partitions: Annotated[tuple[PartitionInfo, ...], msgspec.Meta(min_length=1)]
    provenance: Mapping[str, Any]
    appended: tuple[AppendedGroup, ...] = ()
    n_all_tokens: Count | None = None
    too_frequent: tuple[str, ...] = ()
    n_too_frequent_tokens: Count | None = None


class Manifest(_SharedFields, frozen=True, kw_only=True):
    """Description of a corpus store in its group attributes.

    Attributes
    ----------
    n_terms : int
    vocabulary_sha256 : str
        See :attr:`dslda.corpus.vocabulary.Vocabulary.sha256`.
    has_document_frequency, has_weight, has_doc_id : bool
        The optional arrays exist.
    text_settings : TextSettings
    responses, covariates : mapping of str to ResponseSummary
        In the order of the arrays ``response/0``, ``response/1``, ... and ``covariates/0``, ...
    levels : mapping of str to tuple of str
        The names of each categorical column, by code; columns of numbers are left out.
    orders : mapping of str to tuple of str
        The levels of each response that is known to be ordered, from the lowest to the highest.
    partitions : tuple of PartitionInfo
    provenance : mapping
        Origin of the corpus, any JSON object.
    appended : tuple of AppendedGroup
        In order; their partitions are the last ones.
    n_all_tokens : int or None
        Tokens of all documents before the vocabulary was chosen; None if unknown.
    too_frequent : tuple of str
        Terms that were left out as too frequent, sorted; empty if unknown.
    n_too_frequent_tokens : int or None
        Tokens of these terms in all documents; None if `n_all_tokens` is None.
    """

    text_settings: TextSettings
    responses: Mapping[str, ResponseSummary]
    covariates: Mapping[str, ResponseSummary]
    levels: Mapping[str, tuple[str, ...]]
    orders: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    __repr__ = short_repr

    @property
    def n_documents(self) -> int:
        """Documents of all partitions."""
        return sum(partition.n_documents for partition in self.partitions)

    @property
    def nnz(self) -> int:
        """(Document, term) entries of all partitions."""
        return sum(partition.nnz for partition in self.partitions)

    @property
    def n_tokens(self) -> int:
        """Sum of all counts."""
        return sum(partition.n_tokens for partition in self.partitions)

    @property
    def latest_group(self) -> str:
        """Path of the group whose document frequencies count all documents."""
        return self.appended[-1].path if self.appended else ""

    def places(self) -> list[Place]:
        """The place of each partition, in order."""
        n_first = len(self.partitions) - sum(group.n_partitions for group in self.appended)
        groups = [("", n_first), *((group.path, group.n_partitions) for group in self.appended)]
        places, first = [], 0
        for path, n_rows in groups:
            rows = self.partitions[first : first + n_rows]
            n_values = max(max(info.nnz, info.n_documents + 1) for info in rows)
            places += [Place(path, row, n_rows, n_values) for row in range(n_rows)]
            first += n_rows
        return places

    @property
    def content_hash(self) -> str:
        """SHA-256 (hexadecimal) of the content, the same for every copy, whenever it was made.

        It covers the text settings and the names, levels and checksums of everything stored, but not the order of levels,
        provenance, nor summaries, whose last bits may differ between machines.
        """
        return json_sha256(
            {
                "vocabulary_sha256": self.vocabulary_sha256,
                "text_settings": self.text_settings.to_json(),
                "responses": list(self.responses),
                "covariates": list(self.covariates),
                "levels": self.levels,
                "partitions": [asdict(partition) for partition in self.partitions],
            }
        )

    def to_json(self) -> dict[str, Any]:
        """The group attributes, with their checksum."""
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
            "partitions": [asdict(partition) for partition in self.partitions],
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
            | (
                {"order": list(self.orders[name])}
                if columns is self.responses and name in self.orders
                else {}
            )
            for name, summary in columns.items()
        ]

    @classmethod
    def from_json(cls, data: Mapping[str, Any], path: str) -> Manifest:
        """Decode group attributes; `path` names the store in messages. Fields unknown to this release are ignored.

        Raises
        ------
        FormatError
            The store is not a corpus, is unfinished or of another version, or a field is missing or not valid.
        """
        _check_encoding(data, path)
        place = f"{path}: manifest"
        if MANIFEST_CHECKSUM in data and not is_whole(data):
            raise FormatError(
                f"{place} does not agree with its own checksum, so it was damaged or edited",
                remedy=("copy zarr.json again", "ingest again"),
            )
        if data["encoding-version"] == ENCODING_VERSION:
            data = {name: value for name, value in data.items() if name != APPENDED}
        stored = decode(data, _StoredManifest, place=place, remedy=REMEDY)
        columns = (*stored.responses, *stored.covariates)
        return cls(
            **{name: getattr(stored, name) for name in _SharedFields.__struct_fields__},
            text_settings=TextSettings.from_json(stored.text_settings, place),
            responses={column.name: column.summary() for column in stored.responses},
            covariates={column.name: column.summary() for column in stored.covariates},
            levels={column.name: column.levels for column in columns if column.levels is not msgspec.UNSET},
            orders={
                column.name: column.order for column in stored.responses if column.order is not msgspec.UNSET
            },
        )


class _StoredColumn(StoredSummary, frozen=True, kw_only=True):
    """A response or covariate in a manifest."""

    name: str
    levels: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    order: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        summary = self.summary()
        if not isinstance(self.order, msgspec.UnsetType):
            check_distinct(f"`order` of {self.name!r}", self.order)
        if isinstance(self.levels, msgspec.UnsetType):
            return
        if not are_levels(self.levels):
            raise ValueError(
                f"`levels` must be distinct strings in the order of their code points, got {self.levels!r:.60}"
            )
        codes = (summary.minimum, summary.maximum, *(summary.distinct or ())) if summary.n else ()
        if not (summary.whole and all(0 <= code < len(self.levels) for code in codes)):
            raise ValueError(
                f"the values must be codes 0..{len(self.levels) - 1} of the levels, got a summary from "
                f"{summary.minimum:g} to {summary.maximum:g}"
            )


class _StoredManifest(_SharedFields, frozen=True, kw_only=True):
    """The JSON of a manifest."""

    n_documents: Count
    nnz: Count
    n_tokens: Count
    text_settings: dict[str, Any]
    responses: tuple[_StoredColumn, ...]
    covariates: tuple[_StoredColumn, ...]

    def __post_init__(self) -> None:
        for name in ("n_documents", "nnz", "n_tokens"):
            total = sum(getattr(partition, name) for partition in self.partitions)
            if getattr(self, name) != total:
                raise ValueError(
                    f"`{name}` must be the sum over partitions, {total}, got {getattr(self, name)}"
                )
        for name in ("responses", "covariates"):
            check_distinct(f"names of `{name}`", [column.name for column in getattr(self, name)])
        for column in (*self.responses, *self.covariates):
            if column.n + column.missing != self.n_documents:
                raise ValueError(
                    f"`n` and `missing` of {column.name!r} must add up to the {self.n_documents} documents, got "
                    f"{column.n} and {column.missing}"
                )
        levels = {column.name: column.levels for column in self.responses}
        for column in self.covariates:
            if levels.get(column.name, column.levels) != column.levels:
                raise ValueError(f"{column.name!r} must have the same levels as response and as covariate")
        check_sorted("`too_frequent`", self.too_frequent)
        least = self.n_tokens + (self.n_too_frequent_tokens or 0)
        if self.n_all_tokens is not None and self.n_all_tokens < least:
            raise ValueError(
                f"`n_all_tokens` must be at least `n_tokens` and `n_too_frequent_tokens` together, {least}, got "
                f"{self.n_all_tokens}"
            )
        check_distinct(f"paths of `{APPENDED}`", [group.path for group in self.appended])
        n_appended = sum(group.n_partitions for group in self.appended)
        if n_appended >= len(self.partitions):
            raise ValueError(
                f"`{APPENDED}` must have fewer than the {len(self.partitions)} partitions, got {n_appended}"
            )


def is_unfinished(data: Mapping[str, Any]) -> bool:
    """Return whether these are the attributes of a corpus that has no manifest yet."""
    return data.get("encoding-type") == ENCODING_TYPE and data.keys() <= {"encoding-type", "encoding-version"}


def _check_encoding(data: Mapping[str, Any], path: str) -> None:
    """Refuse anything but a finished corpus of a version that this release reads."""
    kind, version = data.get("encoding-type"), data.get("encoding-version")
    if kind == "dslda-model":
        raise FormatError(
            f"{path} is a model, not a corpus",
            remedy=("give the path of a corpus", "look at it with {load_model()}"),
        )
    if kind != ENCODING_TYPE:
        raise FormatError(f"{path} is not a dslda corpus", remedy="make one with dslda ingest")
    if version not in (ENCODING_VERSION, APPENDED_VERSION):
        raise FormatError(
            f"{path} is a corpus of version {version!r}, and this release of dslda reads versions "
            f"{ENCODING_VERSION!r} and {APPENDED_VERSION!r}",
            remedy="update dslda",
        )
    if is_unfinished(data):
        raise FormatError(
            f"{path} is unfinished, it has no manifest yet: the ingest that writes it is running or was cut short",
            remedy=("wait for it", "ingest again"),
        )
