"""The EM loop, and the checkpoints that it writes."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dslda.engine.em import Decision, EMState, IterationRecord, Position
from dslda.engine.executor import Executor, IterationTimes, single_threaded_blas
from dslda.engine.passes import E_STEP
from dslda.engine.progress import FitProgress, default_progress
from dslda.exceptions import Note
from dslda.families.answers import asked
from dslda.families.base import Family
from dslda.variational.mstep import m_step, objective
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.topic_seeds import TopicSeeds
from dslda.variational.topics import in_e_step
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.engine.conditional.selection import Selection

__all__ = ["Checkpoints", "EStep", "FitResult", "Unseen", "checkpoint_is_due", "fit", "iterate"]

logger = logging.getLogger("dslda.engine")

EStep = Callable[[Parameters, int], tuple[SufficientStatistics, IterationTimes]]
"""Returns the statistics of the whole corpus, or an estimate, at the parameters of an iteration; iterations count from 1."""

CHECKPOINT_SHARE = 0.05
"""Share of the time of a fit that checkpoints may take, unless the user sets an interval."""


@dataclass(frozen=True, slots=True, eq=False)
class Unseen:
    """Parameters that have learned nothing of some of the documents, but how far to follow topics and words.

    Attributes
    ----------
    parameters : Parameters
        Before the last stages of the fit, which take all documents.
    documents : Selection
        The inner part.
    """

    parameters: Parameters
    documents: Selection


@dataclass(frozen=True, slots=True, eq=False)
class FitResult:
    """The last complete iteration of a fit.

    Attributes
    ----------
    parameters : Parameters
        Parameters at which the last ELBO of the trace was computed; after
        :func:`~dslda.engine.word_coefficients.suited_to_words`, with other coefficients.
    statistics : SufficientStatistics
        Statistics of all documents at `parameters`.
    trace : tuple of IterationRecord
    converged : bool
        The changes of the ELBO settled below ``spec.tol``.
    interrupted : bool
        Ctrl-C or a request stopped the fit before it converged or reached the iteration cap.
    unseen : Unseen or None
        Of conditional training: how it predicts documents that it had not seen.
    ridge : float or None
        Precision of the prior of the coefficients that conditional training chose, on the scale of the information in
        `statistics`; None for that of the settings.
    """

    parameters: Parameters
    statistics: SufficientStatistics
    trace: tuple[IterationRecord, ...]
    converged: bool
    interrupted: bool
    ridge: float | None = None
    unseen: Unseen | None = None


def fit(
    executor: Executor,
    initial: Parameters,
    *,
    family: Family,
    spec: FitSpec,
    done: Sequence[IterationRecord] = (),
    checkpoints: Checkpoints | None = None,
    on_iteration: Callable[[IterationRecord, Parameters], None] | None = None,
    progress: FitProgress | None = None,
    stop_requested: Callable[[], bool] | None = None,
    seeds: TopicSeeds | None = None,
) -> FitResult:
    """Run EM until the ELBO settles.

    The result is a pure function of the documents, `initial`, `spec` and `seeds`: the same bits whatever the executor.

    Parameters
    ----------
    done : sequence of IterationRecord
        Iterations that an earlier run completed, from its checkpoint; `initial` then holds the parameters of the next
        iteration, and the result is that of a run without interruption.
    checkpoints : Checkpoints, optional
        Receives the position after each M-step, and writes the last one however the fit ends. A fit that is not cut short
        ends without an M-step. Its last checkpoint lies before its last iteration, which a resumed run repeats to get the
        statistics back.
    on_iteration : callable, optional
        Called with the record of each complete iteration and its parameters, in this thread.
    progress : FitProgress, optional
        By default that of :func:`~dslda.engine.progress.default_progress`.
    stop_requested : callable, optional
        Called after each iteration; EM stops when it returns True.
    seeds : TopicSeeds, optional
        Words that topics are held at.

    Returns
    -------
    FitResult
        After Ctrl-C, the last complete iteration, flagged `interrupted`.

    Raises
    ------
    EngineError
        An iteration could not be completed, or the ELBO is not finite.
    InputError
        A user's own family caused either.
    KeyboardInterrupt
        Ctrl-C came before the first iteration of this run was complete, so there is nothing to return.

    Errors carry a note that names the checkpoint, if there is one.
    """
    progress = default_progress() if progress is None else progress
    start = Position(initial, tuple(done))
    last: FitResult | None = None
    decision = Decision.CONTINUE
    try:
        with progress, single_threaded_blas():
            progress.started(executor.n_documents, executor.n_partitions, spec)
            if done:
                progress.resumed(done)
            for last, state in iterate(
                lambda parameters, _: executor.run(parameters, E_STEP, on_partition=progress.partition),
                start,
                family=family,
                spec=spec,
                seeds=seeds,
                after_m_step=None if checkpoints is None else checkpoints.after_m_step,
            ):
                progress.iteration(last.trace[-1])
                if on_iteration is not None:
                    on_iteration(last.trace[-1], last.parameters)
                decision = state.decide(spec, stop_requested=stop_requested is not None and stop_requested())
                if decision is not Decision.CONTINUE:
                    break
    except BaseException as error:
        if checkpoints is not None:
            checkpoints.at_end(n_complete=len(start.trace if last is None else last.trace))
            checkpoints.note(error)
        if last is None or not isinstance(error, KeyboardInterrupt):
            raise
        logger.warning("interrupted: keeping iteration %d, the last complete one", len(last.trace))
        return last
    assert last is not None
    if checkpoints is not None:
        checkpoints.at_end(n_complete=len(last.trace))
    logger.info("EM ended after iteration %d: %s", len(last.trace), decision.value)
    return replace(last, converged=decision is Decision.CONVERGED, interrupted=decision is Decision.STOPPED)


def iterate(
    e_step: EStep,
    start: Position,
    *,
    family: Family,
    spec: FitSpec,
    seeds: TopicSeeds | None = None,
    after_m_step: Callable[[Position], None] | None = None,
) -> Iterator[tuple[FitResult, EMState]]:
    """Run EM from a position, for as long as the caller asks for iterations.

    Yield each iteration as the result of a fit that is interrupted there. The M-step follows when the caller asks for the
    next iteration; `after_m_step` then receives the position. Errors are those of :func:`fit`.
    """
    position = start
    state = EMState.after(start.trace, spec)
    m_step_seconds = 0.0
    while True:
        parameters = position.parameters
        began = time.perf_counter()
        with asked(family, "a compiled function", ArithmeticError):
            statistics, times = e_step(in_e_step(parameters), state.iteration + 1)
        elbo = objective(statistics, parameters, family=family, spec=spec, seeds=seeds)
        if not math.isfinite(elbo):
            raise family.fault(
                f"the ELBO must be finite, got {elbo} in iteration {state.iteration + 1}: functions of the family are "
                "not, for some response and predictor"
            )
        state = state.advance(elbo, spec)
        seconds = time.perf_counter() - began + m_step_seconds
        record = IterationRecord(
            iteration=state.iteration,
            elbo=elbo,
            relative_change=state.relative_change,
            sweeps_per_document=statistics.n_sweeps / max(statistics.n_documents, 1),
            unconverged_documents=statistics.n_unconverged,
            delta=float(parameters.delta[0]) if len(parameters.delta) else math.nan,
            publish_seconds=times.publish,
            e_step_seconds=times.e_step,
            reduce_seconds=times.reduce,
            m_step_seconds=m_step_seconds,
            e_step_cpu_seconds=statistics.seconds,
            documents_per_second=statistics.n_documents / seconds,
        )
        trace = (*position.trace, record)
        yield FitResult(parameters, statistics, trace, converged=False, interrupted=True), state
        began = time.perf_counter()
        new = m_step(
            parameters,
            statistics,
            family=family,
            spec=spec,
            topics_have_parted=state.has_parted,
            seeds=seeds,
        )
        position = Position(new, trace)
        m_step_seconds = time.perf_counter() - began
        if after_m_step is not None:
            after_m_step(position)


class Checkpoints:
    """The checkpoints of one fit.

    Parameters
    ----------
    write : callable
        Replaces the previous checkpoint, whole or not at all. Its errors do not end the fit.
    url : str
        Address of the checkpoint, for messages.
    every : int, optional
        See :func:`checkpoint_is_due`.
    n_written : int, default 0
        Complete iterations of an existing checkpoint.
    """

    def __init__(
        self, write: Callable[[Position], None], url: str, *, every: int | None = None, n_written: int = 0
    ) -> None:
        self._write = write
        self.url = url
        self._every = every
        self._n_written = self._n_tried = n_written
        self._position: Position | None = None
        self._written: Position | None = None
        self._failed = False
        self._cost = 0.0
        self._ended = time.monotonic()

    def after_m_step(self, position: Position) -> None:
        """Remember the position, and write it if a checkpoint is due."""
        self._position = position
        if self.is_due(n_complete=len(position.trace)):
            self._try(position)

    def is_due(self, *, n_complete: int) -> bool:
        """True if a checkpoint should be written after so many complete iterations."""
        return checkpoint_is_due(
            every=self._every,
            iterations=n_complete - self._n_tried,
            seconds=time.monotonic() - self._ended,
            cost=self._cost,
        )

    def at_end(self, *, n_complete: int) -> None:
        """Write the last position, unless the checkpoint holds it already.

        `n_complete` counts the iterations of the model: one more than those of the last position, if no M-step followed.
        """
        if self._position is not None and self._position is not self._written:
            self._failed = False  # a failure is logged once more, since it is final now
            self._try(self._position)
        if self._n_written:
            again = f"; going on begins with iteration {self._n_written + 1} again"
            logger.info("%s%s", self._state(), again if n_complete > self._n_written else "")

    def note(self, error: BaseException) -> None:
        """Add a note to an error that ends the fit: how to resume."""
        if self._n_written:
            error.add_note(Note(f"{self._state()}; train again with {{resume=True}} to go on"))

    def _state(self) -> str:
        return f"the checkpoint {self.url} holds {number_of(self._n_written, 'iteration')}"

    def _try(self, position: Position) -> None:
        began = time.monotonic()
        self._n_tried = len(position.trace)
        try:
            self._write(position)
        # a failing file system, or library beneath it, must not cost a fit of days
        except Exception as error:
            if not self._failed:
                logger.warning("no checkpoint after iteration %d: %s", len(position.trace), error)
            self._failed = True
        else:
            self._n_written, self._written = len(position.trace), position
            if self._failed:
                logger.info("checkpoints can be written again: %s", self._state())
            self._failed = False
        self._ended = time.monotonic()
        self._cost = self._ended - began


def checkpoint_is_due(*, every: int | None, iterations: int, seconds: float, cost: float) -> bool:
    """True if a checkpoint should be written now, between two iterations.

    Parameters
    ----------
    every : int or None
        Iterations between two checkpoints. None keeps checkpoints below 5% of the time: after every iteration if
        iterations take long, and seldom if they are quick. Runs differ in these times, but not in their results.
    iterations : int
        Complete iterations since the last attempt to write one; 0 between two steps of conditional training.
    seconds : float
        Time since the end of that attempt, or since the beginning of the fit.
    cost : float
        Seconds that the attempt took; 0 before the first.
    """
    return iterations >= every if every is not None else cost <= CHECKPOINT_SHARE * seconds
