"""The EM loop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dslda.engine.checkpoint_schedule import Checkpoints
from dslda.engine.em import Decision, EMState, IterationRecord, Position
from dslda.engine.executor import Executor, IterationTimes, PartitionListener, single_threaded_blas
from dslda.engine.progress import FitProgress, default_progress
from dslda.families.answers import asked
from dslda.families.base import Family
from dslda.variational.mstep import m_step, objective
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.topics import in_e_step

__all__ = ["EStep", "FitResult", "fit", "full_pass", "iterate"]

logger = logging.getLogger("dslda.engine")

EStep = Callable[[Parameters, int], tuple[SufficientStatistics, IterationTimes]]
"""Gives the statistics of the whole corpus at the parameters of an iteration, or an estimate of them; iterations count
from 1."""


@dataclass(frozen=True, slots=True, eq=False)
class FitResult:
    """The last complete iteration of a fit.

    Attributes
    ----------
    parameters : Parameters
        Those at which the last ELBO of the trace was computed.
    statistics : SufficientStatistics
        Of all documents, at `parameters`.
    trace : tuple of IterationRecord
        One record an iteration.
    converged : bool
        The changes of the ELBO settled below ``spec.tol``.
    interrupted : bool
        Ctrl-C or a request stopped the fit before it converged or reached the iteration cap.
    """

    parameters: Parameters
    statistics: SufficientStatistics
    trace: tuple[IterationRecord, ...]
    converged: bool
    interrupted: bool


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
) -> FitResult:
    """Run EM until the ELBO settles.

    The result is a pure function of the documents, `initial` and `spec`: the same bits whatever the executor.

    Parameters
    ----------
    executor : Executor
    initial : Parameters
    family : Family
    spec : FitSpec
    done : sequence of IterationRecord
        Iterations that an earlier run completed, from its checkpoint; `initial` then holds the parameters of the next
        iteration, and the result is that of a run without interruption.
    checkpoints : Checkpoints, optional
        Receives the position after each M-step, and writes the last one however the fit ends. A fit that is not cut short
        ends without an M-step: its last checkpoint lies before its last iteration, which a resumed run repeats to get the
        statistics back.
    on_iteration : callable, optional
        Called with the record of each complete iteration and its parameters, in this thread.
    progress : FitProgress, optional
        Shows the progress of the fit; by default that of :func:`~dslda.engine.progress.default_progress`.
    stop_requested : callable, optional
        Called after each iteration; EM stops when it returns True.

    Returns
    -------
    FitResult
        After Ctrl-C, the last complete iteration, flagged `interrupted`.

    Raises
    ------
    EngineError
        An iteration could not be completed, or the ELBO is not finite.
    InputError
        A user-defined family caused the same.
    KeyboardInterrupt
        Ctrl-C came before the first iteration of this run was complete, so that there is nothing to return.

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
                full_pass(executor, progress.partition),
                start,
                family=family,
                spec=spec,
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


def full_pass(executor: Executor, on_partition: PartitionListener | None = None) -> EStep:
    """The E-step of batch EM: over all documents."""
    return lambda parameters, iteration: executor.run(parameters, on_partition=on_partition)


def iterate(
    e_step: EStep,
    start: Position,
    *,
    family: Family,
    spec: FitSpec,
    after_m_step: Callable[[Position], None] | None = None,
) -> Iterator[tuple[FitResult, EMState]]:
    """Run EM from a position, for as long as the caller asks for iterations.

    Each iteration comes as the result of a fit that is interrupted there. The M-step follows when the caller asks for the
    next iteration.

    Parameters
    ----------
    e_step : callable
        See :data:`EStep`.
    start : Position
    family : Family
    spec : FitSpec
    after_m_step : callable, optional
        Called with the position between two iterations.

    Raises
    ------
    EngineError, InputError
        See :func:`fit`.
    """
    position = start
    state = EMState.after(start.trace)
    m_step_seconds = 0.0
    while True:
        parameters = position.parameters
        began = time.perf_counter()
        with asked(family, "a compiled function", ArithmeticError):
            statistics, times = e_step(in_e_step(parameters), state.iteration + 1)
        elbo = objective(statistics, parameters, family=family, spec=spec)
        _check_finite(elbo, state.iteration + 1, family)
        state = state.advance(elbo)
        seconds = time.perf_counter() - began + m_step_seconds
        record = _record(state, parameters, statistics, times, m_step_seconds=m_step_seconds, seconds=seconds)
        trace = (*position.trace, record)
        yield FitResult(parameters, statistics, trace, converged=False, interrupted=True), state
        began = time.perf_counter()
        position = Position(m_step(parameters, statistics, family=family, spec=spec), trace)
        m_step_seconds = time.perf_counter() - began
        if after_m_step is not None:
            after_m_step(position)


def _check_finite(elbo: float, iteration: int, family: Family) -> None:
    if not math.isfinite(elbo):
        raise family.fault(
            f"the ELBO must be finite, got {elbo} in iteration {iteration}: functions of the family are not, for some "
            "response and predictor"
        )


def _record(
    state: EMState,
    parameters: Parameters,
    statistics: SufficientStatistics,
    times: IterationTimes,
    *,
    m_step_seconds: float,
    seconds: float,
) -> IterationRecord:
    return IterationRecord(
        iteration=state.iteration,
        elbo=state.elbo,
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
