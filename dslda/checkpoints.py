"""The checkpoint of a fit that :func:`dslda.train` makes: whether it belongs to the fit, and to and from what EM needs."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from dslda.config import EngineSettings
from dslda.corpus.json_fields import canonical_json
from dslda.engine.checkpoints import Checkpoints
from dslda.engine.em import IterationRecord, Position, trace_columns
from dslda.engine.fingerprint import data_hash, selection_hash
from dslda.exceptions import FormatError, InputError
from dslda.persistence.checkpoint import CheckpointRecord, CheckpointStore
from dslda.persistence.manifest import settings_to_json
from dslda.variational.parameters import Parameters
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.engine.sources import Source
    from dslda.persistence.record import ModelRecord
    from dslda.training_set import TrainingSet
    from dslda.variational.parameters import FitSpec

__all__ = ["CheckpointOptions", "FitCheckpoint", "fit_identity", "is_of_fit"]

logger = logging.getLogger("dslda.training")

BITS_DEPEND_ON = ("dslda", "numpy", "numba", "scipy")
"""Packages with another version of which a fit may end with other bits."""

CALLED = {"alpha": "doc_topic_prior", "rho": "response_weight", "delta_floor": "dispersion_floor"}
"""What users call the settings that have the paper's names here."""
NOT_GIVEN = {"alpha": "1/K", "ridge": "the family's"}
"""What a setting is that is not given, where there is more to say than that."""


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """What the user says of a fit's checkpoint.

    Attributes
    ----------
    path : str or path
        Where.
    every : int or None
        Iterations between two, or None for as often as it costs little.
    resume : bool
        Go on from the one that is there, or begin where there is none.
    overwrite : bool
        Begin anew, and replace the one that is there.
    before_going_on : callable, optional
        Called without arguments when the checkpoint that is there is known to be of the fit, and before any work: what it
        raises ends the fit.
    """

    path: str | os.PathLike[str]
    every: int | None = None
    resume: bool = False
    overwrite: bool = False
    before_going_on: Callable[[], None] | None = None

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str] | CheckpointOptions | None,
        *,
        every: int | None,
        resume: bool,
        overwrite: bool,
    ) -> CheckpointOptions | None:
        """The options, None where there is to be no checkpoint; refuses a place that cannot be used.

        Those that are options already are given back as they are.

        Raises
        ------
        InputError
            `every` is no number of iterations, options are given without a path, or nothing can be written there.
        OutputExistsError
            Something is there, and neither `resume` nor `overwrite` says that it may be used.
        FormatError
            What is to be resumed is damaged.
        """
        if isinstance(path, CheckpointOptions):
            return path
        if path is None:
            given = {"resume": resume, "overwrite": overwrite, "checkpoint_every": every is not None}
            if any(given.values()):
                names = ", ".join(name for name, value in given.items() if value)
                raise InputError(f"checkpoint must be a path for {names}, got none; say where it is")
            return None
        if resume and overwrite:
            raise InputError(
                "resume and overwrite must not both be set: go on from the checkpoint, or begin anew"
            )
        if every is not None and (
            not isinstance(every, (int, np.integer)) or isinstance(every, bool) or every < 1
        ):
            raise InputError(f"checkpoint_every must be a whole number of at least 1, or None, got {every!r}")
        options = cls(path, every, resume, overwrite)
        options.store().check(resume=resume, overwrite=overwrite)
        return options

    def store(self) -> CheckpointStore:
        return CheckpointStore(self.path)


class FitCheckpoint:
    """The checkpoint of one fit.

    Parameters
    ----------
    options : CheckpointOptions
    identity : mapping
        As :func:`fit_identity` has it.
    """

    def __init__(self, options: CheckpointOptions, identity: Mapping[str, Any]) -> None:
        self._options = options
        self._identity = identity
        self._store = options.store()

    def start(self, initial: Parameters) -> Position:
        """Where to begin: where the checkpoint is, or at the beginning.

        Raises
        ------
        InputError
            The checkpoint is that of another fit: all that differs, with both values.
        """
        self._store.check(resume=self._options.resume, overwrite=self._options.overwrite)
        record = self._store.read() if self._options.resume else None
        if record is None:
            if self._options.resume:
                logger.info("there is no checkpoint at %s yet: training from the beginning", self._store.url)
            return Position(initial)
        _check_same_fit(record, self._identity, self._store.url)
        position = Position(_parameters(record, initial, self._store.url), _trace(record, self._store.url))
        if self._options.before_going_on is not None:
            self._options.before_going_on()
        n = len(position.trace)
        # one of a fit that converged is of before its last iteration too, and cannot know it
        capped = record.fit["settings"].get("max_iter") == n + 1
        logger.info(
            "going on after %s, from the checkpoint %s%s",
            number_of(n, "iteration"),
            self._store.url,
            f": iteration {n + 1}, where that fit reached its cap, is done again, since its sums are not kept"
            if capped
            else "",
        )
        return position

    def schedule(self, start: Position) -> Checkpoints:
        """What EM tells its position; a fit that begins anew replaces what is there with its first checkpoint."""
        return Checkpoints(
            self._write, self._store.url, every=self._options.every, n_written=len(start.trace)
        )

    def _write(self, position: Position) -> None:
        parameters = {}
        for field in fields(position.parameters):
            values = getattr(position.parameters, field.name)
            if values is not None and values.size:
                parameters[field.name] = np.ascontiguousarray(values, dtype=np.float64)
        self._store.write(CheckpointRecord(parameters, trace_columns(position.trace), self._identity))


def fit_identity(
    training_set: TrainingSet,
    source: Source,
    spec: FitSpec,
    *,
    classes: tuple[str, ...] | None,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """All that the bits of a fit depend on, as JSON, and what it is good to know of it.

    Parameters
    ----------
    training_set : TrainingSet
    source : Source
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


def _check_same_fit(record: CheckpointRecord, identity: Mapping[str, Any], url: str) -> None:
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
            told.append(f"{CALLED.get(rest, rest)} {before} then, {after} now")
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


def _parameters(record: CheckpointRecord, like: Parameters, url: str) -> Parameters:
    """Those of the checkpoint; they must be of the shape that such a fit begins with."""
    values: dict[str, Any] = {}
    for field in fields(like):
        expected = getattr(like, field.name)
        if expected is None or not expected.size:
            values[field.name] = expected
            continue
        found = record.parameters.get(field.name)
        if found is None or found.shape != expected.shape:
            raise FormatError(
                f"{url}: array {field.name!r} must be there in the shape {expected.shape} of this fit, got "
                f"{'none' if found is None else found.shape}; train from the beginning"
            )
        values[field.name] = found
    return Parameters(**values)


def _trace(record: CheckpointRecord, url: str) -> tuple[IterationRecord, ...]:
    names = [field.name for field in fields(IterationRecord)]
    if sorted(record.trace) != sorted(names):
        raise FormatError(
            f"{url}: field 'trace' must name {', '.join(names)}, got {', '.join(record.trace)}; train from the beginning"
        )
    whole = {field.name for field in fields(IterationRecord) if field.type == "int"}
    trace = []
    for i in range(record.n_iterations):
        row = {name: float(record.trace[name][i]) for name in names}
        if row["iteration"] != i + 1 or not all(row[name].is_integer() for name in whole):
            raise FormatError(f"{url}: array 'trace' must count iterations; train from the beginning")
        trace.append(IterationRecord(**{n: int(v) if n in whole else v for n, v in row.items()}))  # type: ignore[arg-type]
    return tuple(trace)
