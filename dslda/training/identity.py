"""The identity of a fit, to the last bit, and the differences between two fits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from dslda.config import EngineSettings
from dslda.engine.data.fit_source import FitSource
from dslda.exceptions import InputError
from dslda.persistence.checkpoint_store import CheckpointRecord
from dslda.persistence.model_manifest import settings_to_json
from dslda.persistence.model_record import ModelRecord
from dslda.settings import OTHER_NAMES, SETTINGS
from dslda.storage.typed_json import canonical_json
from dslda.training.training_set import TrainingSet
from dslda.variational.parameters import FitSpec
from dslda.wording import number_of

__all__ = ["check_same_fit", "fit_identity", "is_of_fit"]

BITS_DEPEND_ON = ("dslda", "numpy", "numba", "scipy")
"""Packages whose version may change the bits of a fit."""


def fit_identity(
    training_set: TrainingSet,
    source: FitSource,
    spec: FitSpec,
    *,
    classes: tuple[str, ...] | None,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """All that the bits of a fit depend on, as JSON, with what helps to explain a difference.

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
            "sha256": training_set.corpus_hash or source.data_hash(),
            "vocabulary_sha256": None if vocabulary is None else vocabulary.sha256,
            "trained_on": int(source.n_documents.sum()),
            "selection_sha256": source.selection_hash(),
        },
        "design": asdict(source.design),
        "classes": classes,
        "settings": settings_to_json(spec) | {"float32_parameters": EngineSettings.load().float32_parameters},
        "versions": dict(versions),
    }
    # as it comes back from a file: lists for tuples
    return json.loads(canonical_json(identity))  # type: ignore[no-any-return]


def is_of_fit(model: ModelRecord, checkpoint: CheckpointRecord) -> bool:
    """Tell whether a model of a stored corpus is of the same fit as a checkpoint, at any iteration of it."""
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
    if differences := list(_differences(record.fit, identity)):
        before, documents = record.fit.get("documents", {}), identity["documents"]
        contents = ("source", "sha256", "vocabulary_sha256")
        # documents that have changed do not come back
        are_same = all(before.get(name) == documents[name] for name in contents)
        as_then = ("train as it says",) if are_same else ()
        raise InputError(
            f"{url} must be of this fit, got one of another: {'; '.join(differences)}",
            parameter="checkpoint",
            remedy=(
                *as_then,
                "give another one",
                "begin anew with {overwrite=True} instead of {resume=True}",
            ),
        )
    least, max_iter = record.n_iterations + 1, identity["settings"]["max_iter"]
    if max_iter < least:
        raise InputError(
            f"must be at least {least} to go on from the checkpoint {url}, which holds "
            f"{number_of(record.n_iterations, 'iteration')}, got {max_iter}",
            parameter="max_iter",
        )


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """Differences in the words of users, without those that follow from others: moments, classes, options of the family."""
    then, now = dict(_flat(theirs)), dict(_flat(ours))
    differing = [name for name in {**then, **now} if _matters(name) and then.get(name) != now.get(name)]
    if not differing:
        return
    differences = [
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
    derived = bool(differences) or "settings.family" in differing
    weights = [given.get("design", {}).get("class_weight") for given in (theirs, ours)]
    if weights[0] != weights[1] and not (derived and None not in weights):
        differences.append(f"class_weight {_shown(weights[0])} then, {_shown(weights[1])} now")
    for name in differing:
        kind, _, rest = name.partition(".")
        if kind == "versions":
            differences.append(
                f"version of {rest} {_shown(then.get(name))} then, {_shown(now.get(name))} now"
            )
        elif kind == "settings" and not (derived and rest.startswith("family_options")):
            differences.append(_other_setting(rest, then.get(name), now.get(name)))
    # nothing that a user says explains it
    yield from differences or (
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
        yield f"other documents are chosen to train on: {numbers or 'as many as then'}"


def _other_setting(key: str, before: Any, after: Any) -> str:
    """A setting by its public name, and the paper's: ``response_weight (rho) 1.0 then, 2.0 now``."""
    name = OTHER_NAMES.get(key, key)
    setting = SETTINGS.get(name)
    symbol = f" ({setting.option})" if setting is not None and setting.key and setting.option else ""
    none = "none" if setting is None else setting.none
    before, after = (none if value is None else _shown(value) for value in (before, after))
    return f"{name}{symbol} {before} then, {after} now"


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
