"""The EM loop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dslda.engine.checkpoint_schedule import Checkpoints
from dslda.engine.em import Decision, EMState, IterationRecord, Position
from dslda.engine.executor import Executor, single_threaded_blas
from dslda.engine.progress import FitProgress, default_progress
from dslda.exceptions import EngineError, InputError
from dslda.families.answers import ADVICE, asked
from dslda.families.base import Family
from dslda.families.registry import is_built_in
from dslda.variational.mstep import m_step, objective
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.topics import in_e_step

__all__ = ["FitResult", "fit"]

logger = logging.getLogger("dslda.engine")


@dataclass(frozen=True, slots=True, eq=False)
class FitResult:
    """What a fit ends with: its last complete iteration.

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
        Stopped before it converged or reached the iteration cap, by Ctrl-C or on request.
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
        Iterations that an earlier run has completed, by a checkpoint; `initial` are then the parameters of the next, and
        the result is the one of a run that had never stopped.
    checkpoints : Checkpoints, optional
        Is told of the position after each iteration, and once more when the fit ends, in whatever way. At the end of a fit
        that was not cut short it is the position before the last iteration: that is done again when the fit is gone on
        with, which gives its statistics back.
    on_iteration : callable, optional
        Called with the record of each complete iteration and its parameters, in this thread.
    progress : FitProgress, optional
        Shows how far the fit is; by default that of :func:`~dslda.engine.progress.default_progress`.
    stop_requested : callable, optional
        Asked after each iteration; EM stops when it returns True.

    Returns
    -------
    FitResult
        Also after Ctrl-C, once an iteration is complete: the last complete one, flagged `interrupted`.

    Raises
    ------
    EngineError
        An iteration could not be completed, or the ELBO is not finite.
    InputError
        The same, by the doing of a family of the user's own.
    KeyboardInterrupt
        Ctrl-C before the first iteration of this run was complete: there is nothing to return.

    Errors carry a note that names the checkpoint, if there is one.
    """
    progress = default_progress() if progress is None else progress
    position = Position(initial, tuple(done))
    state = EMState.after(done)
    m_step_seconds = 0.0
    last: FitResult | None = None
    try:
        with progress, single_threaded_blas():
            progress.started(executor.n_documents, executor.n_partitions, spec)
            if done:
                progress.resumed(done)
            while True:
                parameters = position.parameters
                began = time.perf_counter()
                with asked(family, "a compiled function", ArithmeticError):
                    statistics, times = executor.run(in_e_step(parameters), on_partition=progress.partition)
                elbo = objective(statistics, parameters, family=family, spec=spec)
                if not math.isfinite(elbo):
                    if not is_built_in(type(family)):
                        raise InputError(
                            f"the ELBO must be finite, got {elbo} in iteration {state.iteration + 1}: functions of family "
                            f"{family.name!r} are not, for some response and predictor; {ADVICE}"
                        )
                    raise EngineError(
                        f"the ELBO must be finite, got {elbo} in iteration {state.iteration + 1}; please "
                        "report this with the settings of the fit"
                    )
                state = state.advance(elbo)
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
                # one assignment: Ctrl-C finds either the iteration before or this one, whole
                last = FitResult(parameters, statistics, trace, converged=False, interrupted=True)
                progress.iteration(record)
                if on_iteration is not None:
                    on_iteration(record, parameters)
                decision = state.decide(spec, stop_requested=stop_requested is not None and stop_requested())
                if decision is not Decision.CONTINUE:
                    break
                began = time.perf_counter()
                position = Position(m_step(parameters, statistics, family=family, spec=spec), trace)
                m_step_seconds = time.perf_counter() - began
                if checkpoints is not None:
                    checkpoints.after_iteration(position)
    except BaseException as error:
        if checkpoints is not None:
            checkpoints.at_end(position, n_complete=len(position.trace if last is None else last.trace))
            checkpoints.note(error)
        if last is None or not isinstance(error, KeyboardInterrupt):
            raise
        logger.warning("interrupted: keeping iteration %d, the last complete one", last.trace[-1].iteration)
        return last
    if checkpoints is not None:
        checkpoints.at_end(position, n_complete=len(trace))
    logger.info("EM ended after iteration %d: %s", state.iteration, decision.value)
    return FitResult(
        parameters,
        statistics,
        trace,
        converged=decision is Decision.CONVERGED,
        interrupted=decision is Decision.STOPPED,
    )
