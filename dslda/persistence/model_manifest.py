"""Attributes of a model directory, to and from JSON (docs/formats.md is the specification)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

import msgspec
import numpy as np

from dslda.corpus.summary import StoredSummary
from dslda.corpus.text import TextSettings
from dslda.exceptions import FormatError
from dslda.persistence.model_record import ModelRecord, TrainingSummary
from dslda.settings import SETTINGS, stored, unstored
from dslda.storage.typed_json import (
    MANIFEST_CHECKSUM,
    Count,
    Positive,
    check_distinct,
    check_sorted,
    decode,
    is_whole,
    with_checksum,
)
from dslda.storage.zarr_arrays import StoredArray
from dslda.topic_labels import Label
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec
from dslda.variational.term_weights import RAW, TermWeighting

__all__ = [
    "ENCODING_TYPE",
    "ENCODING_VERSION",
    "LABELS",
    "ModelManifest",
    "identity",
    "read_manifest",
    "settings_to_json",
    "to_json",
]

ENCODING_TYPE = "dslda-model"
ENCODING_VERSION = "1"
CONDITIONAL_VERSION = "2"
"""Version of models of conditional training, whose documents are inferred by other rules than those of version 1."""
STARTS_VERSION = "3"
"""Version of models of several starts, whose predictions are means over them."""
CORRECTED_VERSION = "4"
"""Version of models whose probabilities of levels are corrected, of one start or several."""
VERSIONS = (ENCODING_VERSION, CONDITIONAL_VERSION, STARTS_VERSION, CORRECTED_VERSION)
FIRST_VERSIONS = {
    "remainder_": CONDITIONAL_VERSION,
    "start_": STARTS_VERSION,
    "level_corrections": CORRECTED_VERSION,
}
"""The first version with arrays of which this is a part of the name. Readers of earlier versions would pass over them, and
predict something else."""
LABELS = "labels"
"""Field with the user's names of topics."""


def to_json(record: ModelRecord, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Group attributes of a model, with their checksum; `arrays` are the entries of every array."""
    data: dict[str, Any] = {
        "encoding-type": ENCODING_TYPE,
        "encoding-version": _version(record),
        "n_topics": record.parameters.n_topics,
        "n_terms": record.parameters.n_terms,
        "family": record.spec.family,
        "design": asdict(record.design),
        "classes": None if record.classes is None else list(record.classes),
        "levels": {name: list(names) for name, names in record.levels.items()},
        "response": {"name": record.response} | record.response_summary.to_json(),
        "settings": settings_to_json(record.spec),
        "weighting": asdict(record.parameters.weighting),
        **({"n_other_starts": len(record.other_starts)} if record.other_starts else {}),
        # unknown values are left out, as in earlier releases
        "training": {name: value for name, value in asdict(record.training).items() if value is not None},
        "trace": list(record.trace),
        "vocabulary_sha256": None if record.vocabulary is None else record.vocabulary.sha256,
        "text_settings": None if record.text_settings is None else record.text_settings.to_json(),
        "too_frequent": list(record.too_frequent),
        "fields": dict(record.fields),
        **({LABELS: list(record.labels)} if record.labels else {}),
        "corpus_sha256": record.corpus_hash,
        "versions": dict(record.versions),
        "arrays": dict(arrays),
    }
    return with_checksum(data)


def identity(attributes: Mapping[str, Any]) -> str:
    """Checksum of a manifest without the labels of topics: a model with other labels predicts the same.

    It is `manifest_sha256` where there are no labels, as in models of earlier releases.
    """
    rest = {name: value for name, value in attributes.items() if name != LABELS}
    return str(with_checksum(rest)[MANIFEST_CHECKSUM])


def _version(record: ModelRecord) -> str:
    """The lowest version whose readers understand the model."""
    if any(start.parameters.level_corrections is not None for start in record.starts):
        return CORRECTED_VERSION
    if record.other_starts:
        return STARTS_VERSION
    return CONDITIONAL_VERSION if record.spec.objective == "conditional" else ENCODING_VERSION


def settings_to_json(spec: FitSpec) -> dict[str, Any]:
    """The settings of a fit as plain values, for models and checkpoints."""
    # numpy scalars are valid settings but not JSON
    values = asdict(spec)
    return stored({n: v.item() if isinstance(v, np.generic) else v for n, v in values.items()})


class _StoredScaling(msgspec.Struct, frozen=True):
    center: float
    scale: Positive


class _StoredCovariate(msgspec.Struct, frozen=True):
    name: str
    level: Count | None
    center: float
    scale: Positive


class _StoredDesign(msgspec.Struct, frozen=True):
    """A :class:`~dslda.variational.design.Design` without defaults: none of its fields may get lost."""

    response: str
    scaling: _StoredScaling
    exposure: str | None
    auxiliary: str | None
    weight: str | None
    trials: bool
    classes: tuple[float, ...] | None
    class_weight: tuple[float, ...] | None
    covariates: tuple[_StoredCovariate, ...]


class _StoredResponse(StoredSummary, frozen=True, kw_only=True):
    name: str | None


class ModelManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes of a model; :class:`~dslda.persistence.model_record.ModelRecord` describes them."""

    n_topics: Count
    n_terms: Count
    family: str
    design: _StoredDesign
    classes: tuple[str, ...] | None
    levels: dict[str, tuple[str, ...]]
    response: _StoredResponse
    settings: dict[str, Any]
    training: TrainingSummary
    trace: tuple[str, ...]
    vocabulary_sha256: str | None
    text_settings: dict[str, Any] | None
    # models of earlier releases lack these fields
    weighting: TermWeighting = RAW
    n_other_starts: Count = 0
    too_frequent: tuple[str, ...] = ()
    labels: tuple[Label | None, ...] = ()
    fields: dict[str, str]
    corpus_sha256: str | None
    versions: dict[str, str]
    arrays: dict[str, StoredArray]
    manifest_sha256: str

    def __post_init__(self) -> None:
        check_distinct("`classes`", self.classes or ())
        for name, names in self.levels.items():
            check_distinct(f"`levels` of {name!r}", names)
        check_distinct("`trace`", self.trace)
        check_sorted("`too_frequent`", self.too_frequent)
        if len(self.labels) not in (0, self.n_topics):
            raise ValueError(f"`labels` must have one for each topic, got {len(self.labels)}")
        if self.settings.get("family") != self.family or not isinstance(
            self.settings.get("family_options"), dict
        ):
            raise ValueError(f"`settings` must have options and the name of the family {self.family!r:.60}")
        for name in ("classes", "class_weight"):
            values = getattr(self.design, name)
            if values is not None and len(values) != len(self.classes or ()):
                raise ValueError(f"`{name}` of `design` must have a number for each class, got {len(values)}")
        values = self.design.classes or ()
        if len(set(values)) < len(values):
            raise ValueError(f"`classes` of `design` must be distinct, got {values!r:.60}")
        for column in self.design.covariates:
            levels = self.levels.get(column.name)
            if column.level not in ((None,) if levels is None else range(len(levels))):
                raise ValueError(
                    f"`level` must be a position in the levels of {column.name!r}, got {column.level!r}"
                )

    def record_fields(self, path: str) -> dict[str, Any]:
        """The fields of a :class:`ModelRecord` that live in the attributes."""
        place = f"{path}: attributes"
        # earlier releases had no choice
        settings: dict[str, Any] = {"topic_estimation": "map", "objective": "joint"}
        settings |= {
            name: SETTINGS[name].default
            for name in ("emphasis", "term_weights", "remainder", "seed_words", "n_starts", "bootstrap")
        }
        settings |= unstored(self.settings)
        try:
            spec = FitSpec(**{f.name: settings[f.name] for f in fields(FitSpec)})
        except KeyError as error:
            raise FormatError(f"the setting {error} is missing", place=place, remedy="train again") from error
        except (TypeError, ValueError) as error:
            raise FormatError(f"the settings are not valid: {error}", place=place) from error
        texts = self.text_settings
        return {
            "design": msgspec.convert(self.design, Design, from_attributes=True),
            "classes": self.classes,
            "levels": self.levels,
            "spec": spec,
            "response": self.response.name,
            "response_summary": self.response.summary(),
            "training": self.training,
            "text_settings": None if texts is None else TextSettings.from_json(texts, place),
            "too_frequent": self.too_frequent,
            "labels": self.labels,
            "fields": self.fields,
            "corpus_hash": self.corpus_sha256,
            "versions": self.versions,
        }


def read_manifest(data: Mapping[str, Any], path: str) -> ModelManifest:
    """Decode the attributes of a model; fields unknown to this release are passed over.

    Raises
    ------
    FormatError
        They are not those of a complete, undamaged model of the version that this release reads.
    """
    kind, version = data.get("encoding-type"), data.get("encoding-version")
    if kind == "dslda-corpus":
        raise FormatError(
            f"{path} is a corpus, not a model",
            remedy=("train a model on it", "look at it with {open_corpus()}"),
        )
    if kind != ENCODING_TYPE:
        raise FormatError(f"{path} is not a dslda model", remedy="make one with dslda train")
    if version not in VERSIONS:
        raise FormatError(
            f"{path} is a model of version {version!r}, and this release of dslda reads versions "
            f"{' and '.join(map(repr, VERSIONS))}",
            remedy="update dslda",
        )
    if not is_whole(data):
        raise FormatError(
            "the attributes do not agree with their checksum, the model was damaged or edited",
            place=path,
            remedy=("copy it again", "train again"),
        )
    manifest = decode(data, ModelManifest, place=f"{path}: attributes", remedy="train again")
    for what, first in _later_parts(manifest):
        if VERSIONS.index(version) < VERSIONS.index(first):
            raise FormatError(
                f"{what} must not be there in a model of version {version!r}, but from version {first!r} on",
                place=f"{path}: attributes",
                remedy="train again",
            )
    return manifest


def _later_parts(manifest: ModelManifest) -> Iterator[tuple[str, str]]:
    """What a model has that version 1 has not, and the first version that has it."""
    if manifest.settings.get("objective") == "conditional":
        yield "objective 'conditional'", CONDITIONAL_VERSION
    if manifest.n_other_starts:
        yield "field 'n_other_starts'", STARTS_VERSION
    for name in sorted(manifest.arrays):
        for part, first in FIRST_VERSIONS.items():
            if part in name:
                yield f"array {name!r}", first
