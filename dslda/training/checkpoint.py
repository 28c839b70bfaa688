"""The checkpoint of a fit: its place, resumption from it, and the model that an earlier run left."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
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
from dslda.training.identity import check_same_fit, is_of_fit
from dslda.variational.parameters import Parameters
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus

__all__ = ["FitCheckpoint", "is_unfinished", "model_of_fit"]

logger = logging.getLogger("dslda.training")

STATE = "state_"
"""Prefix of the arrays of conditional training in a checkpoint."""

FROM_THE_BEGINNING = "train from the beginning"


def model_of_fit(path: str | os.PathLike[str], checkpoint: str | os.PathLike[str]) -> Model | None:
    """Load the model at a path if it belongs to the fit of a checkpoint; None for anything else."""
    try:
        model, record = load_model(path), read_checkpoint(checkpoint)
    except (DsldaError, OSError):
        return None
    return model if is_of_fit(model.record, record) else None


def is_unfinished(path: str | os.PathLike[str], corpus: Corpus) -> bool:
    """True if a path holds the model of an interrupted fit of a corpus, which a fit that goes on may replace."""
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
    path : str or path
    every : int or None
        Iterations between two checkpoints; None for as few as cost little.
    resume : bool
        Go on from the existing checkpoint, or begin where there is none.
    overwrite : bool
        Begin anew, and replace an existing checkpoint.

    Raises
    ------
    InputError
        `every` is no number of iterations, or nothing can be written there.
    OutputExistsError
        Something is there, and neither `resume` nor `overwrite` allows its use.
    FormatError
        The checkpoint to go on from is damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        every: int | None = None,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
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
        self._path, self._every, self._resume, self._overwrite = path, every, resume, overwrite
        self._store = CheckpointStore(path)
        self._store.check(resume=resume, overwrite=overwrite)
        self._identity: Mapping[str, Any] = {}
        self._record: CheckpointRecord | None = None

    @classmethod
    def of(
        cls, path: str | os.PathLike[str] | None, *, every: int | None, resume: bool, overwrite: bool
    ) -> FitCheckpoint | None:
        """The checkpoint of a user's options; None without one. Refuses options without a path."""
        if path is not None:
            return cls(path, every=every, resume=resume, overwrite=overwrite)
        options = {"resume": resume, "overwrite": overwrite, "checkpoint_every": every is not None}
        if any(options.values()):
            raise InputError(
                "must come with a checkpoint, got none",
                parameter=[name for name, is_set in options.items() if is_set],
                remedy="give its path with {checkpoint=}",
            )
        return None

    def of_start(self, i: int) -> FitCheckpoint:
        """The checkpoint of the start after `i` others, beside this one."""
        path = f"{os.fspath(self._path).rstrip('/')}-start-{i + 1}"
        return FitCheckpoint(path, every=self._every, resume=self._resume, overwrite=self._overwrite)

    def alone(self) -> AbstractContextManager[None]:
        """Keep other fits from the place, from :meth:`read` to the last checkpoint; raises OutputError for another one."""
        return self._store.alone()

    def read(self, identity: Mapping[str, Any]) -> None:
        """Read the checkpoint to go on from; `identity` is :func:`~dslda.training.identity.fit_identity` of the fit.

        Raises
        ------
        InputError
            The checkpoint is of another fit; the error lists all differences, with both values.
        """
        self._identity = identity
        # check again: another fit may have written before this one was alone
        self._store.check(resume=self._resume, overwrite=self._overwrite)
        if self._resume and (record := self._store.read()) is not None:
            check_same_fit(record, identity, self._store.url)
            self._record = record

    def is_completed_by(self, model: ModelRecord) -> bool:
        """True if the fit to go on with ends with this model, and nothing is left to measure."""
        training, max_iter = model.training, self._identity["settings"]["max_iter"]
        at_its_end = training.converged or (not training.interrupted and training.n_iterations >= max_iter)
        is_ours = self._record is not None and is_of_fit(model, self._record)
        lacks_intervals = model.spec.bootstrap > 0 and model.replicates is None
        return is_ours and at_its_end and model.reference is not None and not lacks_intervals

    def start(self, initial: Parameters) -> Position:
        """The position to begin at: that of the checkpoint, or the beginning."""
        record = self._record
        if record is None:
            if self._resume:
                logger.info("there is no checkpoint at %s yet: training from the beginning", self._store.url)
            return Position(initial)
        state = {
            name.removeprefix(STATE): a for name, a in record.parameters.items() if name.startswith(STATE)
        }
        position = Position(
            _parameters(record, initial, self._store.url), _trace(record, self._store.url), state
        )
        n = len(position.trace)
        # the checkpoint of a fit that converged precedes its last iteration too, but cannot know that
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
        """The schedule that EM reports to; the first checkpoint of a fit that begins anew replaces an old one."""
        return Checkpoints(self._write, self._store.url, every=self._every, n_written=len(start.trace))

    def _write(self, position: Position) -> None:
        parameters = {}
        for field in fields(position.parameters):
            values = getattr(position.parameters, field.name)
            if isinstance(values, np.ndarray) and values.size:
                parameters[field.name] = np.ascontiguousarray(values, dtype=np.float64)
        for name, values in position.state.items():
            parameters[STATE + name] = np.ascontiguousarray(values, dtype=np.float64)
        self._store.write(CheckpointRecord(parameters, trace_columns(position.trace), self._identity))


def _parameters(record: CheckpointRecord, like: Parameters, url: str) -> Parameters:
    """The parameters of the checkpoint, in the shapes that such a fit begins with."""
    values: dict[str, Any] = {}
    for field in fields(like):
        expected = getattr(like, field.name)
        if not isinstance(expected, np.ndarray) or not expected.size:
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
