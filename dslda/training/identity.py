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
from dslda.storage.typed_json import canonical_json, leaves
from dslda.training.training_set import ROLES, TrainingSet
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
    """All that the bits of a fit depend on, as JSON, with facts that explain a difference; `source` has the final design."""
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
    """True if a model of a stored corpus is of the same fit as a checkpoint, at any iteration of it."""
    states = {
        "documents": {"sha256": model.corpus_hash, "trained_on": model.training.n_documents},
        "design": asdict(model.design),
        "classes": model.classes,
        "settings": settings_to_json(model.spec),
        "versions": dict(model.versions),
    }
    fit = dict(leaves(checkpoint.fit))
    if any(_matters(n) and fit.get(n) != value for n, value in leaves(json.loads(canonical_json(states)))):
        return False
    elbos = [trace.get("elbo", np.zeros(0)) for trace in (model.trace, checkpoint.trace)]
    n = min(map(len, elbos))
    return n > 0 and np.array_equal(elbos[0][:n], elbos[1][:n])


def check_same_fit(record: CheckpointRecord, identity: Mapping[str, Any], url: str) -> None:
    """Refuse to go on from the checkpoint at `url` with another fit, or with one that ends before it.

    Raises
    ------
    InputError
        The fits differ; the error lists all differences, with both values.
    """
    if differences := list(_differences(record.fit, identity)):
        old_documents, documents = record.fit.get("documents", {}), identity["documents"]
        contents = ("source", "sha256", "vocabulary_sha256")
        # changed documents cannot come back
        are_same = all(old_documents.get(name) == documents[name] for name in contents)
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
    settings = identity["settings"]
    # the joint model does its last iteration again, for its sums; conditional training has them
    again = 0 if settings.get("objective") == "conditional" else 1
    least, max_iter = record.n_iterations + again, settings["max_iter"]
    if max_iter < least:
        raise InputError(
            f"must be at least {least} to go on from the checkpoint {url}, which holds "
            f"{number_of(record.n_iterations, 'iteration')}, got {max_iter}",
            parameter="max_iter",
        )


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """Differences in the words of users, without those that follow from others: moments, classes, options of the family."""
    then, now = dict(leaves(theirs)), dict(leaves(ours))
    differing = [name for name in {**then, **now} if _matters(name) and then.get(name) != now.get(name)]
    if not differing:
        return
    differences = list(_other_documents(then, now))
    for role in ("response", *ROLES):
        old, new = _role(theirs, role), _role(ours, role)
        if old != new:
            differences.append(_then_now(role, old, new))
    derived = bool(differences) or "settings.family" in differing
    old, new = _role(theirs, "class_weight"), _role(ours, "class_weight")
    if old != new and (not derived or None in (old, new)):
        differences.append(_then_now("class_weight", old, new))
    for name in differing:
        kind, _, rest = name.partition(".")
        if kind == "versions":
            differences.append(_then_now(f"version of {rest}", then.get(name), now.get(name)))
        elif kind == "settings" and not (derived and rest.startswith("family_options")):
            # by its public name, and the paper's: response_weight (rho) 1.0 then, 2.0 now
            public = OTHER_NAMES.get(rest, rest)
            setting = SETTINGS.get(public)
            symbol = f" ({setting.option})" if setting is not None and setting.key and setting.option else ""
            none = "none" if setting is None else setting.none
            differences.append(_then_now(f"{public}{symbol}", then.get(name), now.get(name), none=none))
    # otherwise no option of the user explains it
    yield from differences or (_then_now(name, then.get(name), now.get(name)) for name in differing)


def _then_now(name: str, old: Any, new: Any, *, none: str | None = "none") -> str:
    old, new = (none if value is None else _shown(value) for value in (old, new))
    return f"{name} {old} then, {new} now"


def _other_documents(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    differing = {name for name in now if name.startswith("documents.") and then.get(name) != now[name]}
    n_then, n_now = then.get("documents.trained_on"), now["documents.trained_on"]
    numbers = (
        f"{n_then:,} documents then, {n_now:,} now" if isinstance(n_then, int) and n_then != n_now else ""
    )
    if "documents.source" in differing:
        yield "the documents are those of a corpus in one fit, and not in the other"
    elif "documents.sha256" in differing:
        of_corpus = now["documents.source"] == "corpus"
        yield (
            f"the {'corpus has' if of_corpus else 'data (documents, response or columns) have'} changed: "
            + (numbers or f"{number_of(n_now, 'document')} as then, with other contents")
        )
    elif "documents.vocabulary_sha256" in differing:
        yield "the terms have other names"
    elif "documents.selection_sha256" in differing:
        yield f"other documents are chosen to train on: {numbers or 'as many as then'}"


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
