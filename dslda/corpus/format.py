"""What the manifest of a corpus store says, and its form as JSON (docs/formats.md is the specification)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.text import TextSettings
from dslda.exceptions import FormatError, InputError

__all__ = [
    "ARRAYS",
    "ENCODING_TYPE",
    "ENCODING_VERSION",
    "Manifest",
    "PartitionInfo",
    "ResponseSummary",
    "canonical_json",
    "checksum",
]

ENCODING_TYPE = "dslda-corpus"
ENCODING_VERSION = "1"
MANIFEST_CHECKSUM = "manifest_sha256"

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
"""Data type and fill value of every array or group of arrays. The fills are values that no document has, where there
is one, so that a missing chunk, which zarr reads as fill in silence, does not look like data."""

DISTINCT_LIMIT = 64
"""A summary lists the distinct values of a response up to this many: enough for ratings and for class codes."""


def checksum(*arrays: NDArray[Any]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the arrays' little-endian bytes, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        digest.update(np.ascontiguousarray(little).data)
    return digest.hexdigest()[:16]


def canonical_json(data: Any) -> bytes:
    """JSON with sorted keys, no blanks, UTF-8: the form that hashes are taken of."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


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
        :func:`checksum` of every array with one value a document, by the array's name in the store.
    """

    n_documents: int
    nnz: int
    n_tokens: int
    n_empty: int
    checksum: str
    column_checksums: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, data: object, where: str) -> PartitionInfo:
        sizes = [_whole(data, f.name, where) for f in fields(cls)[:4]]
        columns = _field(data, "column_checksums", dict, where)
        for name in columns:
            _field(columns, name, str, f"{where}, column_checksums")
        if sizes[3] > sizes[0]:
            raise FormatError(
                f"{where}: field 'n_empty' must be at most 'n_documents' ({sizes[0]}), got {sizes[3]}"
            )
        return cls(*sizes, _field(data, "checksum", str, where), columns)


@dataclass(frozen=True, slots=True)
class ResponseSummary:
    """What is known of a response without reading it.

    Attributes
    ----------
    n, missing : int
        Documents with a value, and without.
    mean, variance : float or None
        Of the values; the variance divides by `n`. None when there is no value, as are all that follow.
    minimum, maximum : float or None
    whole : bool or None
        All values are whole numbers.
    distinct : tuple of float or None
        The distinct values in rising order, None when there are more than 64.
    """

    n: int = 0
    missing: int = 0
    mean: float | None = None
    variance: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    whole: bool | None = None
    distinct: tuple[float, ...] | None = ()

    @classmethod
    def of(cls, values: ArrayLike) -> ResponseSummary:
        """Summarise an array; NaN is missing.

        Raises
        ------
        InputError
            A value is infinite, or so large that its square is.
        """
        given = np.asarray(values, dtype=np.float64)
        seen = given[~np.isnan(given)]
        if seen.size == 0:
            return cls(missing=given.size)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(seen.mean())
            variance = float(np.square(seen - mean).mean())
        if not math.isfinite(variance):
            raise InputError(
                f"a response must be finite, with a finite square, got values up to {np.abs(seen).max()}"
            )
        distinct = np.unique(seen)
        return cls(
            n=seen.size,
            missing=given.size - seen.size,
            mean=mean,
            variance=variance,
            minimum=float(distinct[0]),
            maximum=float(distinct[-1]),
            whole=bool((distinct == np.floor(distinct)).all()),
            distinct=tuple(distinct.tolist()) if distinct.size <= DISTINCT_LIMIT else None,
        )

    def merge(self, other: ResponseSummary) -> ResponseSummary:
        """Summary of both sets of values (Chan, Golub and LeVeque 1983); merge in partition order for the same bits."""
        missing = self.missing + other.missing
        if not self.n or not other.n:
            some = self if self.n else other
            return ResponseSummary(some.n, missing, *(getattr(some, f.name) for f in fields(self)[2:]))
        assert self.mean is not None and other.mean is not None
        assert self.variance is not None and other.variance is not None
        assert self.minimum is not None and other.minimum is not None
        assert self.maximum is not None and other.maximum is not None
        n = self.n + other.n
        share = other.n / n
        step = other.mean - self.mean
        distinct = None
        if self.distinct is not None and other.distinct is not None:
            union = sorted({*self.distinct, *other.distinct})
            distinct = tuple(union) if len(union) <= DISTINCT_LIMIT else None
        return ResponseSummary(
            n=n,
            missing=missing,
            mean=self.mean + step * share,
            variance=self.variance * (1 - share) + other.variance * share + step * step * share * (1 - share),
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            whole=bool(self.whole and other.whole),
            distinct=distinct,
        )

    @classmethod
    def merge_all(cls, summaries: Iterable[ResponseSummary]) -> ResponseSummary:
        """Merge summaries from the left."""
        return reduce(cls.merge, summaries, cls())

    @property
    def kind(self) -> str:
        """What the values look like: "missing", "constant", "binary" (0 and 1), "count", "integer" or "real"."""
        if not self.n:
            return "missing"
        if self.distinct is not None and len(self.distinct) == 1:
            return "constant"
        if self.distinct == (0.0, 1.0):
            return "binary"
        if self.whole:
            return "count" if self.minimum is not None and self.minimum >= 0 else "integer"
        return "real"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind} | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, data: object, where: str) -> ResponseSummary:
        n, missing = _whole(data, "n", where), _whole(data, "missing", where)
        if n == 0:
            return cls(missing=missing)
        numbers = [_number(data, name, where) for name in ("mean", "variance", "minimum", "maximum")]
        distinct = _field(data, "distinct", (list, type(None)), where)
        return cls(
            n,
            missing,
            *numbers,
            whole=_field(data, "whole", bool, where),
            distinct=None
            if distinct is None
            else tuple(float(_is_number(x, "distinct", where)) for x in distinct),
        )


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
        Where the corpus comes from: any JSON object; not part of :attr:`content_hash`.
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
        return sum(p.n_documents for p in self.partitions)

    @property
    def nnz(self) -> int:
        return sum(p.nnz for p in self.partitions)

    @property
    def n_tokens(self) -> int:
        return sum(p.n_tokens for p in self.partitions)

    @property
    def content_hash(self) -> str:
        """SHA-256 of what the corpus holds: the same for copies, wherever and whenever they were written."""
        content = self.to_json()
        for name in ("provenance", MANIFEST_CHECKSUM):
            del content[name]
        return hashlib.sha256(canonical_json(content)).hexdigest()

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
        data[MANIFEST_CHECKSUM] = hashlib.sha256(canonical_json(data)).hexdigest()
        return data

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
        check_encoding(data, path)
        where = f"{path}: manifest"
        if "partitions" not in data:
            raise FormatError(
                f"{path}: the manifest is not written yet, the ingest that made this store is running or was cut short; "
                "wait, or ingest again with overwrite"
            )
        found = data.get(MANIFEST_CHECKSUM)
        if found is not None:
            rest = {name: value for name, value in data.items() if name != MANIFEST_CHECKSUM}
            if hashlib.sha256(canonical_json(rest)).hexdigest() != found:
                raise FormatError(
                    f"{where} does not agree with its own checksum, it was damaged or edited; restore zarr.json or "
                    "ingest again"
                )
        responses: dict[str, ResponseSummary] = {}
        for i, entry in enumerate(_field(data, "responses", list, where)):
            here = f"{where}, responses[{i}]"
            responses[_field(entry, "name", str, here)] = ResponseSummary.from_json(entry, here)
        covariates = _field(data, "covariates", list, where)
        manifest = cls(
            n_terms=_whole(data, "n_terms", where),
            vocabulary_sha256=_field(data, "vocabulary_sha256", str, where),
            has_document_frequency=_field(data, "has_document_frequency", bool, where),
            has_weight=_field(data, "has_weight", bool, where),
            has_doc_id=_field(data, "has_doc_id", bool, where),
            text_settings=_text_settings(data, where),
            responses=responses,
            covariates=tuple(
                _field(entry, "name", str, f"{where}, covariates[{i}]") for i, entry in enumerate(covariates)
            ),
            partitions=tuple(
                PartitionInfo.from_json(entry, f"{where}, partitions[{i}]")
                for i, entry in enumerate(_field(data, "partitions", list, where))
            ),
            provenance=_field(data, "provenance", dict, where),
        )
        for name in ("responses", "covariates"):
            if len(set(getattr(manifest, name))) != len(data[name]):
                raise FormatError(f"{where}: field {name!r} names the same one twice")
        for name in ("n_documents", "nnz", "n_tokens"):
            if _whole(data, name, where) != getattr(manifest, name):
                raise FormatError(
                    f"{where}: field {name!r} must be the sum over partitions, {getattr(manifest, name)}, "
                    f"got {data[name]}"
                )
        return manifest


def check_encoding(data: Mapping[str, Any], path: str) -> None:
    """Refuse anything but a corpus of the version this release reads."""
    kind, version = data.get("encoding-type"), data.get("encoding-version")
    if kind == "dslda-model":
        raise FormatError(
            f"{path} is a model, not a corpus; give the path of a corpus, or open it with load_model"
        )
    if kind != ENCODING_TYPE:
        raise FormatError(f"{path} is not a dslda corpus; make one with dslda ingest")
    if version != ENCODING_VERSION:
        raise FormatError(
            f"{path} is a corpus of version {version!r}, this release of dslda reads version {ENCODING_VERSION!r}; "
            "update dslda"
        )


def _text_settings(data: Mapping[str, Any], where: str) -> TextSettings:
    try:
        return TextSettings.from_json(_field(data, "text_settings", dict, where))
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _field(data: object, name: str, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(data, Mapping):
        raise FormatError(f"{where} must be a JSON object, got {data!r:.60}")
    if name not in data:
        raise FormatError(f"{where}: field {name!r} is missing")
    value = data[name]
    if not isinstance(value, kind):
        raise FormatError(f"{where}: field {name!r} is not valid, got {value!r:.60}")
    return value


def _whole(data: object, name: str, where: str) -> int:
    value = _field(data, name, int, where)
    if isinstance(value, bool) or value < 0:
        raise FormatError(f"{where}: field {name!r} must be a whole number >= 0, got {value!r}")
    return int(value)


def _number(data: object, name: str, where: str) -> float:
    return _is_number(_field(data, name, object, where), name, where)


def _is_number(value: object, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise FormatError(f"{where}: field {name!r} must be a finite number, got {value!r:.60}")
    return float(value)
