"""The checkpoint of a fit: a user's options, going on from it, and the model that an earlier run has left."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dslda.engine.driver import Checkpoints
from dslda.engine.em import IterationRecord, Position, trace_columns
from dslda.exceptions import DsldaError, FormatError, InputError
from dslda.model import Model, load_model
from dslda.persistence.checkpoint_store import CheckpointRecord, CheckpointStore, read_checkpoint
from dslda.persistence.model_manifest import ENCODING_TYPE
from dslda.persistence.model_record import ModelRecord
from dslda.storage.location import Location
from dslda.storage.lock import UNLOCKED, Lock
from dslda.training.identity import check_same_fit, is_of_fit
from dslda.variational.parameters import Parameters
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus

__all__ = ["CheckpointOptions", "FitCheckpoint", "alone", "is_complete", "is_unfinished", "model_of_fit"]

logger = logging.getLogger("dslda.training")

FROM_THE_BEGINNING = "train from the beginning"


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """A user's wishes about the checkpoint of a fit.

    Attributes
    ----------
    path : str or path
    every : int or None
        Iterations between two, or None for as often as it costs little.
    resume : bool
        Go on from the one that is there, or begin where there is none.
    overwrite : bool
        Begin anew, and replace the one that is there.
    lock : Lock
        On the place, while the fit is entered.
    """

    path: str | os.PathLike[str]
    every: int | None = None
    resume: bool = False
    overwrite: bool = False
    lock: Lock = UNLOCKED

    @classmethod
    def of(
        cls, path: str | os.PathLike[str] | None, *, every: int | None, resume: bool, overwrite: bool
    ) -> CheckpointOptions | None:
        """The options, None where the fit has no checkpoint; refuses a place that cannot be used.

        Raises
        ------
        InputError
            `every` is no number of iterations, options are given without a path, or nothing can be written there.
        OutputExistsError
            Something is there, and neither `resume` nor `overwrite` says that it may be used.
        FormatError
            The checkpoint to go on from is damaged.
        """
        if path is None:
            wishes = {"resume": resume, "overwrite": overwrite, "checkpoint_every": every is not None}
            if any(wishes.values()):
                raise InputError(
                    "must come with a checkpoint, got none",
                    parameter=[name for name, is_set in wishes.items() if is_set],
                    remedy="give its path with {checkpoint=}",
                )
            return None
        if resume and overwrite:
            raise InputError(
                "exclude each other",
                parameter=("resume", "overwrite"),
                remedy=("go on from the checkpoint", "begin anew"),
            )
        if every is not None and (
            not isinstance(every, (int, np.integer)) or isinstance(every, bool) or every < 1
        ):
            raise InputError(
                f"must be a whole number of at least 1, or None, got {every!r}", parameter="checkpoint_every"
            )
        options = cls(path, every, resume, overwrite)
        options.store().check(resume=resume, overwrite=overwrite)
        return options

    def store(self) -> CheckpointStore:
        return CheckpointStore(self.path, self.lock)


@contextmanager
def alone(options: CheckpointOptions | None) -> Iterator[CheckpointOptions | None]:
    """Keep other fits from the place of the checkpoint, where there is one, for as long as the fit is entered.

    Yields
    ------
    CheckpointOptions or None
        Those of the fit that is entered.

    Raises
    ------
    OutputError
        Another fit writes there now: which process, and where.
    """
    if options is None:
        yield None
        return
    with options.store().alone() as lock:
        yield replace(options, lock=lock)


def model_of_fit(path: str | os.PathLike[str], checkpoint: str | os.PathLike[str]) -> Model | None:
    """Load the model at a path, if it is of the fit that a checkpoint is of; None for anything else."""
    try:
        model, record = load_model(path), read_checkpoint(checkpoint)
    except (DsldaError, OSError):
        return None
    return model if is_of_fit(model.record, record) else None


def is_complete(model: ModelRecord, max_iter: int) -> bool:
    """Tell whether a fit with this cap ends with such a model, and has measured it at its end."""
    training = model.training
    at_its_end = training.converged or (not training.interrupted and training.n_iterations >= max_iter)
    return at_its_end and model.reference is not None


def is_unfinished(path: str | os.PathLike[str], corpus: Corpus) -> bool:
    """Tell whether a path holds the model of an interrupted fit of a corpus, which a fit that goes on may replace."""
    try:
        attributes = Location.of(path).read_attributes()
    except (DsldaError, OSError):
        return False
    training = attributes.get("training")
    return (
        attributes.get("encoding-type") == ENCODING_TYPE
        and isinstance(training, dict)
        and training.get("interrupted") is True
        and attributes.get("corpus_sha256") == corpus.content_hash
    )


class FitCheckpoint:
    """The checkpoint of one fit.

    Parameters
    ----------
    options : CheckpointOptions
    identity : mapping
        As :func:`~dslda.training.identity.fit_identity` has it.

    Raises
    ------
    InputError
        The checkpoint to go on from is that of another fit: all that differs, with both values.
    """

    def __init__(self, options: CheckpointOptions, identity: Mapping[str, Any]) -> None:
        self._options = options
        self._identity = identity
        self._store = options.store()
        self._store.check(resume=options.resume, overwrite=options.overwrite)
        self._record = self._store.read() if options.resume else None
        if self._record is not None:
            check_same_fit(self._record, identity, self._store.url)

    def is_of(self, model: ModelRecord) -> bool:
        """Tell whether a model is of the fit to go on with."""
        return self._record is not None and is_of_fit(model, self._record)

    def start(self, initial: Parameters) -> Position:
        """The position to begin at: that of the checkpoint, or the beginning."""
        record = self._record
        if record is None:
            if self._options.resume:
                logger.info("there is no checkpoint at %s yet: training from the beginning", self._store.url)
            return Position(initial)
        position = Position(_parameters(record, initial, self._store.url), _trace(record, self._store.url))
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
        """The schedule that EM reports to; a fit that begins anew replaces an old checkpoint by its first."""
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


def _parameters(record: CheckpointRecord, like: Parameters, url: str) -> Parameters:
    """The parameters of the checkpoint, in the shapes that such a fit begins with."""
    values: dict[str, Any] = {}
    for field in fields(like):
        expected = getattr(like, field.name)
        if expected is None or not expected.size:
            values[field.name] = expected
            continue
        stored = record.parameters.get(field.name)
        if stored is None or stored.shape != expected.shape:
            raise FormatError(
                f"array {field.name!r} must be there in the shape {expected.shape} of this fit, got "
                f"{'none' if stored is None else stored.shape}",
                place=url,
                remedy=FROM_THE_BEGINNING,
            )
        values[field.name] = stored
    return Parameters(**values)


def _trace(record: CheckpointRecord, url: str) -> tuple[IterationRecord, ...]:
    names = [field.name for field in fields(IterationRecord)]
    if sorted(record.trace) != sorted(names):
        raise FormatError(
            f"field 'trace' must name {', '.join(names)}, got {', '.join(record.trace)}",
            place=url,
            remedy=FROM_THE_BEGINNING,
        )
    whole = {field.name for field in fields(IterationRecord) if field.type == "int"}
    trace = []
    for i in range(record.n_iterations):
        row = {name: float(record.trace[name][i]) for name in names}
        if row["iteration"] != i + 1 or not all(row[name].is_integer() for name in whole):
            raise FormatError("array 'trace' must count iterations", place=url, remedy=FROM_THE_BEGINNING)
        trace.append(IterationRecord(**{n: int(v) if n in whole else v for n, v in row.items()}))  # type: ignore[arg-type]
    return tuple(trace)
