"""The attributes of a model directory, to and from JSON (docs/formats.md is the specification)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any, cast, get_args

import numpy as np

from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.exceptions import FormatError, InputError
from dslda.persistence.model_record import HeldOut, Measure, ModelRecord, TrainingSummary
from dslda.settings import stored, unstored
from dslda.storage.json_fields import (
    boolean,
    count,
    items,
    number,
    object_,
    optional,
    positive,
    sorted_names,
    text,
)
from dslda.storage.typed_json import is_whole, with_checksum
from dslda.variational.design import CovariateColumn, Design
from dslda.variational.parameters import FitSpec, Scaling

__all__ = [
    "ENCODING_TYPE",
    "ENCODING_VERSION",
    "check_manifest",
    "read_fields",
    "settings_to_json",
    "to_json",
]

ENCODING_TYPE = "dslda-model"
ENCODING_VERSION = "1"


def to_json(record: ModelRecord, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Group attributes of a model, with a checksum of themselves.

    Parameters
    ----------
    record : ModelRecord
    arrays : mapping
        Shape, dtype and checksum of every array, by its name in the group.
    """
    data: dict[str, Any] = {
        "encoding-type": ENCODING_TYPE,
        "encoding-version": ENCODING_VERSION,
        "n_topics": record.parameters.n_topics,
        "n_terms": record.parameters.n_terms,
        "family": record.spec.family,
        "design": asdict(record.design),
        "classes": None if record.classes is None else list(record.classes),
        "levels": {name: list(names) for name, names in record.levels.items()},
        "response": {"name": record.response} | record.response_summary.to_json(),
        "settings": settings_to_json(record.spec),
        # what is not known is left out, as earlier releases have it
        "training": {name: value for name, value in asdict(record.training).items() if value is not None},
        "trace": list(record.trace),
        "vocabulary_sha256": None if record.vocabulary is None else record.vocabulary.sha256,
        "text_settings": None if record.text_settings is None else record.text_settings.to_json(),
        "too_frequent": list(record.too_frequent),
        "fields": dict(record.fields),
        "corpus_sha256": record.corpus_hash,
        "versions": dict(record.versions),
        "arrays": {name: dict(entry) for name, entry in arrays.items()},
    }
    return with_checksum(data)


def check_manifest(data: Mapping[str, Any], path: str) -> None:
    """Refuse what is not a complete, undamaged model of the version this release reads."""
    kind, version = data.get("encoding-type"), data.get("encoding-version")
    if kind == "dslda-corpus":
        raise FormatError(
            f"{path} is a corpus, not a model; train a model on it, or open it with open_corpus"
        )
    if kind != ENCODING_TYPE:
        raise FormatError(f"{path} is not a dslda model; make one with dslda train")
    if version != ENCODING_VERSION:
        raise FormatError(
            f"{path} is a model of version {version!r}, this release of dslda reads version "
            f"{ENCODING_VERSION!r}; update dslda"
        )
    if not is_whole(data):
        raise FormatError(
            f"{path}: the attributes do not agree with their checksum, the model was damaged or edited; copy "
            "it again or train again"
        )


def read_fields(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The fields of a :class:`ModelRecord` that live in the attributes, as keywords; `data` has been checked.

    Raises
    ------
    FormatError
        Naming the field that is missing or not valid. Fields unknown to this release are passed over.
    """
    where = f"{path}: attributes"
    try:
        settings = data["text_settings"]
        classes = None if data["classes"] is None else _names(data, "classes", where)
        named = object_(data, "levels", where)
        levels = {name: _names(named, name, f"{where}, levels") for name in named}
        object_(object_(data, "settings", where), "family_options", f"{where}, settings")
        if text(data, "family", where) != data["settings"].get("family"):
            raise FormatError(
                f"{where}: family and that of the settings must be the same, got {data['family']!r:.60}"
            )
        return {
            "design": _design(object_(data, "design", where), f"{where}, design", classes, levels),
            "classes": classes,
            "levels": levels,
            # models that were written before there was a choice have the mode
            "spec": _known(FitSpec, {"topic_estimation": "map"} | unstored(data["settings"])),
            "response": _name(data["response"]["name"]),
            "response_summary": ResponseSummary.from_json(data["response"], f"{where}, response"),
            "training": _training(object_(data, "training", where), f"{where}, training"),
            "text_settings": None if settings is None else TextSettings.from_json(settings),
            # models that were written before these were kept have none
            "too_frequent": sorted_names(data, "too_frequent", where) if "too_frequent" in data else (),
            "fields": _texts(data, "fields", where),
            "corpus_hash": _name(data["corpus_sha256"]),
            "versions": _texts(data, "versions", where),
        }
    except KeyError as error:
        raise FormatError(f"{where}: field {error} is missing; train again") from error
    except (TypeError, InputError) as error:
        raise FormatError(f"{where} are not valid: {error}") from error


def _design(
    data: Mapping[str, Any],
    where: str,
    classes: tuple[str, ...] | None,
    levels: Mapping[str, tuple[str, ...]],
) -> Design:
    scaling = object_(data, "scaling", where)
    design = Design(
        response=text(data, "response", where),
        scaling=Scaling(number(scaling, "center", where), positive(scaling, "scale", where)),
        exposure=_name(data["exposure"]),
        auxiliary=_name(data["auxiliary"]),
        weight=_name(data["weight"]),
        trials=boolean(data, "trials", where),
        classes=_numbers(data, "classes", where, classes),
        class_weight=_numbers(data, "class_weight", where, classes),
        covariates=tuple(_covariate(entry, where, levels) for entry in items(data, "covariates", where)),
    )
    if design.classes is not None and not all(a < b for a, b in pairwise(design.classes)):
        raise FormatError(f"{where}: field 'classes' must rise, got {list(design.classes)!r:.60}")
    return design


def _covariate(entry: object, where: str, levels: Mapping[str, tuple[str, ...]]) -> CovariateColumn:
    where = f"{where}, covariates"
    name = text(entry, "name", where)
    assert isinstance(entry, dict)
    level = None if entry["level"] is None else count(entry, "level", where)
    if (level is None) != (name not in levels) or (level is not None and level >= len(levels[name])):
        raise FormatError(
            f"{where}: field 'level' must be a position in the levels of {name!r}, got {level!r}"
        )
    return CovariateColumn(name, level, number(entry, "center", where), positive(entry, "scale", where))


def _numbers(
    data: Mapping[str, Any], name: str, where: str, classes: tuple[str, ...] | None
) -> tuple[float, ...] | None:
    """A number for each class, or None."""
    if data[name] is None:
        return None
    values = tuple(number({name: value}, name, where) for value in items(data, name, where))
    if len(values) != len(classes or ()):
        raise FormatError(f"{where}: field {name!r} must have a number for each class, got {len(values)}")
    return values


def _names(data: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    """A list of different names."""
    values = items(data, name, where)
    if not all(isinstance(value, str) for value in values) or len(set(values)) != len(values):
        raise FormatError(f"{where}: field {name!r} must be a list of different names, got {values!r:.60}")
    return tuple(values)


def settings_to_json(spec: FitSpec) -> dict[str, Any]:
    """The settings of a fit as plain values, for models and checkpoints."""
    # numpy scalars are accepted as settings but are no JSON
    plain = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in asdict(spec).items()
    }
    return stored(plain)


def _training(data: Mapping[str, Any], where: str) -> TrainingSummary:
    found: dict[str, Any] = {
        f.name: boolean(data, f.name, where) if f.type == "bool" else count(data, f.name, where)
        for f in fields(TrainingSummary)
        if f.name not in ("oov_share", "new_share", "held_out")
    }
    # models that were written before these were kept have none
    return TrainingSummary(
        **found,
        oov_share=optional(_share, data, "oov_share", where),
        new_share=optional(_share, data, "new_share", where),
        held_out=optional(_held_out, data, "held_out", where),
    )


def _share(data: object, name: str, where: str) -> float:
    share = number(data, name, where)
    if not 0.0 <= share <= 1.0:
        raise FormatError(f"{where}: field {name!r} must be in 0 to 1, got {share:g}")
    return share


def _held_out(data: object, name: str, where: str) -> HeldOut:
    found, where = object_(data, name, where), f"{where}, {name}"
    measure = text(found, "measure", where)
    if measure not in get_args(Measure):
        raise FormatError(
            f"{where}: field 'measure' must be 'predictive_r2' or 'accuracy', got {measure!r:.60}"
        )
    return HeldOut(
        count(found, "n_documents", where),
        cast(Measure, measure),
        number(found, "value", where),
        optional(number, found, "standard_error", where),
    )


def _texts(data: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    values = object_(data, name, where)
    return {key: text(values, key, f"{where}, {name}") for key in values}


def _name(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InputError(f"names must be strings or null, got {value!r:.60}")
    return value


def _known(record: type[Any], data: Mapping[str, Any]) -> Any:
    return record(**{f.name: data[f.name] for f in fields(record)})
