"""What makes two fits the same, to the last bit, and what to say of two that are not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from dslda.config import EngineSettings
from dslda.engine.data.fit_source import FitSource
from dslda.engine.fingerprint import data_hash, selection_hash
from dslda.exceptions import InputError
from dslda.persistence.checkpoint_store import CheckpointRecord
from dslda.persistence.model_manifest import settings_to_json
from dslda.persistence.model_record import ModelRecord
from dslda.settings import OTHER_NAMES
from dslda.storage.typed_json import canonical_json
from dslda.training.training_set import TrainingSet
from dslda.variational.parameters import FitSpec
from dslda.wording import number_of

__all__ = ["check_same_fit", "fit_identity", "is_of_fit"]

BITS_DEPEND_ON = ("dslda", "numpy", "numba", "scipy")
"""Packages with another version of which a fit may end with other bits."""

NOT_GIVEN = {"alpha": "1/K", "ridge": "the family's"}
"""What a setting is that is not given, where there is more to say than that."""


def fit_identity(
    training_set: TrainingSet,
    source: FitSource,
    spec: FitSpec,
    *,
    classes: tuple[str, ...] | None,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """All that the bits of a fit depend on, as JSON, and what it is good to know of it.

    Parameters
    ----------
    training_set : TrainingSet
    source : FitSource
        Its documents, as they are fitted.
    spec : FitSpec
    classes : tuple of str or None
        Names of the classes of the response.
    versions : mapping of str to str
    """
    vocabulary = training_set.vocabulary
    identity = {
        "documents": {
            "source": "data" if training_set.corpus_hash is None else "corpus",
            "sha256": training_set.corpus_hash or data_hash(source),
            "vocabulary_sha256": None if vocabulary is None else vocabulary.sha256,
            "trained_on": int(source.n_documents.sum()),
            "selection_sha256": selection_hash(source),
        },
        "design": asdict(source.design),
        "classes": classes,
        "settings": settings_to_json(spec) | {"float32_parameters": EngineSettings.load().float32_parameters},
        "versions": dict(versions),
    }
    # as it comes back from a file: lists for tuples
    return json.loads(canonical_json(identity))  # type: ignore[no-any-return]


def is_of_fit(model: ModelRecord, checkpoint: CheckpointRecord) -> bool:
    """Whether a model of a stored corpus is of the fit that a checkpoint is of, up to any iteration of it."""
    states = {
        "documents": {"sha256": model.corpus_hash, "trained_on": model.training.n_documents},
        "design": asdict(model.design),
        "classes": model.classes,
        "settings": settings_to_json(model.spec),
        "versions": dict(model.versions),
    }
    kept = dict(_flat(checkpoint.fit))
    if any(_matters(n) and kept.get(n) != value for n, value in _flat(json.loads(canonical_json(states)))):
        return False
    elbos = [trace.get("elbo", np.zeros(0)) for trace in (model.trace, checkpoint.trace)]
    n = min(map(len, elbos))
    return n > 0 and np.array_equal(elbos[0][:n], elbos[1][:n])


def check_same_fit(record: CheckpointRecord, identity: Mapping[str, Any], url: str) -> None:
    """Refuse to go on from the checkpoint at `url` with another fit, or with one that ends before it.

    Raises
    ------
    InputError
        All that differs, with both values.
    """
    differences, advice = list(_differences(record.fit, identity)), "Train as it says, give"
    if differences and differences[0].startswith("the "):  # documents that have changed do not come back
        advice = "Give"
    if differences:
        raise InputError(
            f"the checkpoint {url} must be of this fit, got one of another: {'; '.join(differences)}. {advice} another "
            "checkpoint, or begin anew with overwrite=True in the place of resume=True"
        )
    least, max_iter = record.n_iterations + 1, identity["settings"]["max_iter"]
    if max_iter < least:
        raise InputError(
            f"max_iter must be at least {least} to go on from the checkpoint {url}, which holds "
            f"{number_of(record.n_iterations, 'iteration')}, got {max_iter}"
        )


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """What differs, in the words of users and without what follows from it: moments, classes and options of the family."""
    then, now = dict(_flat(theirs)), dict(_flat(ours))
    differing = [name for name in {**then, **now} if _matters(name) and then.get(name) != now.get(name)]
    if not differing:
        return
    told = [
        *_other_documents(then, now),
        *(
            f"{role} {_shown(before)} then, {_shown(after)} now"
            for role, before, after in (
                (role, _role(theirs, role), _role(ours, role))
                for role in ("response", "covariates", "weight", "exposure", "trials", "event")
            )
            if before != after
        ),
    ]
    derived = bool(told) or "settings.family" in differing
    weights = [given.get("design", {}).get("class_weight") for given in (theirs, ours)]
    if weights[0] != weights[1] and not (derived and None not in weights):
        told.append(f"class_weight {_shown(weights[0])} then, {_shown(weights[1])} now")
    for name in differing:
        kind, _, rest = name.partition(".")
        if kind == "versions":
            told.append(f"version of {rest} {_shown(then.get(name))} then, {_shown(now.get(name))} now")
        elif kind == "settings" and not (derived and rest.startswith("family_options")):
            before, after = (
                NOT_GIVEN.get(rest, "none") if v.get(name) is None else _shown(v[name]) for v in (then, now)
            )
            told.append(f"{OTHER_NAMES.get(rest, rest)} {before} then, {after} now")
    # where nothing that a user says explains it
    yield from told or (
        f"{name} {_shown(then.get(name))} then, {_shown(now.get(name))} now" for name in differing
    )


def _other_documents(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    def differs(name: str) -> bool:
        return then.get(f"documents.{name}") != now.get(f"documents.{name}")

    n_then, n_now = then.get("documents.trained_on"), now["documents.trained_on"]
    numbers = (
        f"{n_then:,} documents then, {n_now:,} now" if isinstance(n_then, int) and n_then != n_now else ""
    )
    if differs("source"):
        yield "the documents are those of a corpus in one fit, and not in the other"
    elif differs("sha256"):
        what = (
            "corpus has"
            if now["documents.source"] == "corpus"
            else "data (documents, response or columns) have"
        )
        yield f"the {what} changed: " + (
            numbers or f"{number_of(n_now, 'document')} as then, with other contents"
        )
    elif differs("vocabulary_sha256"):
        yield "the terms have other names"
    elif differs("selection_sha256"):
        yield f"other documents are chosen to train on (documents=): {numbers or 'as many as then'}"


def _role(fit: Mapping[str, Any], role: str) -> Any:
    """The columns that play a role in a fit, None where there are none."""
    design = fit.get("design", {})
    if role == "covariates":
        return list(dict.fromkeys(column["name"] for column in design.get("covariates", ()))) or None
    if role in ("trials", "event"):
        return design.get("auxiliary") if design.get("trials") == (role == "trials") else None
    return design.get(role)


def _matters(name: str) -> bool:
    kind, _, rest = name.partition(".")
    return name != "settings.max_iter" and (kind != "versions" or rest in BITS_DEPEND_ON)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return "none" if value is None else f"{value!r:.80}"


def _flat(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of an object, by their path."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    else:
        yield name, data
