"""The checkpoint of a fit that :func:`dslda.train` makes: whether it belongs to the fit, and to and from what EM needs."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
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
    from dslda.training_set import TrainingSet
    from dslda.variational.parameters import FitSpec

__all__ = ["CheckpointOptions", "FitCheckpoint", "fit_identity"]

logger = logging.getLogger("dslda.training")

BITS_DEPEND_ON = ("dslda", "numpy", "numba", "scipy")
"""Packages with another version of which a fit may end with other bits."""

CALLED = {
    "documents.source": "kind of data",
    "documents.sha256": "SHA-256 of the data",
    "documents.trained_on": "number of documents trained on",
    "documents.selection_sha256": "SHA-256 of the mask of documents",
    "settings.alpha": "doc_topic_prior",
    "settings.rho": "response_weight",
    "settings.delta_floor": "dispersion_floor",
}
"""What users call the entries of a fit's identity, where it is not their last part."""


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
    """

    path: str | os.PathLike[str]
    every: int | None = None
    resume: bool = False
    overwrite: bool = False

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str] | None,
        *,
        every: int | None,
        resume: bool,
        overwrite: bool,
    ) -> CheckpointOptions | None:
        """The options, None where there is to be no checkpoint; refuses a place that cannot be used.

        Raises
        ------
        InputError
            `every` is no number of iterations, options are given without a path, or nothing can be written there.
        OutputExistsError
            Something is there, and neither `resume` nor `overwrite` says that it may be used.
        FormatError
            What is to be resumed is damaged.
        """
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
        logger.info(
            "going on after %s, from the checkpoint %s",
            number_of(len(position.trace), "iteration"),
            self._store.url,
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


def _check_same_fit(record: CheckpointRecord, identity: Mapping[str, Any], url: str) -> None:
    theirs, ours = dict(_flat(record.fit)), dict(_flat(identity))
    differences = [
        f"{_called(name)} {_shown(theirs, name)} there, {_shown(ours, name)} now"
        for name in sorted({*theirs, *ours}, key=_rank)
        if _matters(name) and theirs.get(name) != ours.get(name)
    ]
    if differences:
        raise InputError(
            f"the checkpoint {url} must be of this fit, got one of another: {'; '.join(differences)}. Train as it says, "
            "give another checkpoint, or begin anew with overwrite=True in the place of resume=True"
        )
    least = record.n_iterations + 1
    if ours["settings.max_iter"] < least:
        raise InputError(
            f"max_iter must be at least {least} to go on from the checkpoint {url}, which holds "
            f"{number_of(record.n_iterations, 'iteration')}, got {ours['settings.max_iter']}"
        )


def _rank(name: str) -> tuple[int, bool, str]:
    """What differs first in a message: what makes the rest differ."""
    kind = name.partition(".")[0]
    return (
        ("documents", "classes", "settings", "design", "versions", kind).index(kind),
        name != "documents.sha256",
        name,
    )


def _matters(name: str) -> bool:
    kind, _, rest = name.partition(".")
    return name != "settings.max_iter" and (kind != "versions" or rest in BITS_DEPEND_ON)


def _called(name: str) -> str:
    kind, _, rest = name.partition(".")
    if kind == "versions":
        return f"version of {rest}"
    if kind == "settings":
        return CALLED.get(name, rest)
    return CALLED.get(name, name)


def _shown(values: Mapping[str, Any], name: str) -> str:
    return f"{json.dumps(values[name]):.80}" if name in values else "not given"


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
