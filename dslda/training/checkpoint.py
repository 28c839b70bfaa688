"""The checkpoint of a fit that :func:`dslda.train` makes: what a user says of it, and to and from what EM needs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dslda.engine.checkpoint_schedule import Checkpoints
from dslda.engine.em import IterationRecord, Position, trace_columns
from dslda.exceptions import FormatError, InputError
from dslda.persistence.checkpoint_store import CheckpointRecord, CheckpointStore
from dslda.storage.lock import UNLOCKED, Lock
from dslda.training.identity import check_same_fit
from dslda.variational.parameters import Parameters
from dslda.wording import number_of

__all__ = ["CheckpointOptions", "FitCheckpoint", "alone"]

logger = logging.getLogger("dslda.training")


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
    lock : Lock
        On the place, while the fit is entered.
    """

    path: str | os.PathLike[str]
    every: int | None = None
    resume: bool = False
    overwrite: bool = False
    before_going_on: Callable[[], None] | None = None
    lock: Lock = UNLOCKED

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


class FitCheckpoint:
    """The checkpoint of one fit.

    Parameters
    ----------
    options : CheckpointOptions
    identity : mapping
        As :func:`~dslda.training.identity.fit_identity` has it.
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
        check_same_fit(record, self._identity, self._store.url)
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
