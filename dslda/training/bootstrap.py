"""The bootstrap of a fit: coefficients of fits to documents drawn again, whose scatter gives intervals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dslda.cluster.stage_progress import stage_progress
from dslda.engine.data.fit_source import CorpusSource
from dslda.engine.data.resampling import Resample
from dslda.engine.driver import FitResult
from dslda.engine.em import Position
from dslda.engine.executor import Executor, SerialExecutor
from dslda.engine.progress import LogProgress
from dslda.exceptions import DsldaError, InputError, collecting_warnings
from dslda.training.starts import Start, in_tasks, is_small, quiet_in_task
from dslda.variational.parameters import FEWEST_REPLICATES, FitSpec, Parameters
from dslda.variational.topics import partners
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["bootstrap_coefficients", "settled"]

logger = logging.getLogger("dslda.training")

JOINT_ITERATIONS = 8
"""Iterations of EM of a replicate, from the parameters of the fit: in simulations coefficients then scatter as those of fits
to new documents (docs/benchmarks.md)."""

TIGHTER, LONGER = 0.1, 3
"""Factors of `tol` and `max_iter` for coefficients with intervals. EM that stops at 1e-4 leaves them up to half a standard
error short of where they settle (docs/benchmarks.md)."""


def settled(spec: FitSpec) -> FitSpec:
    """Settings under which EM goes on until the coefficients of a fit with a bootstrap have settled."""
    if not spec.bootstrap or spec.objective != "joint":
        return spec
    longer = replace(spec, tol=spec.tol * TIGHTER, max_iter=spec.max_iter * LONGER)
    logger.info(
        "for intervals of the coefficients EM goes on to a change of %g, for at most %d iterations",
        *(longer.tol, longer.max_iter),
    )
    return longer


@dataclass(frozen=True, slots=True)
class _Replicates:
    """What the replicates of a fit need.

    The joint model goes on from the parameters of the fit, so that topics keep their places. Conditional training is quick
    and has little to go on from: it starts anew each time, from another seed.
    """

    start: Start
    fitted: Parameters

    def numbered(self, i: int) -> Start:
        """The fit of replicate `i`."""
        start = self.start.numbered(self.start.spec.n_starts + i)
        source = start.source.resampled(Resample(self.start.spec.seed, i))
        if start.spec.objective == "joint":
            spec = replace(start.spec, max_iter=JOINT_ITERATIONS)
        else:
            spec = replace(start.spec, remainder=False)  # words beyond the topics change no coefficient
        return replace(start, source=source, spec=spec)

    def coefficients(self, start: Start, executor: Executor) -> NDArray[np.float64] | None:
        """Coefficients of a replicate, topics in the places of the fit's; None where its documents allow no fit."""
        initial = self.fitted if start.spec.objective == "joint" else start.initial()
        try:
            with collecting_warnings():
                result = start.run(executor, Position(initial), progress=LogProgress())
        except InputError:
            return None
        # a fit keeps its last iteration, which is no replicate
        if result.interrupted:
            raise KeyboardInterrupt
        found = result.parameters
        places = partners(self.fitted.topics, found.topics)
        return np.concatenate([found.eta[places], found.zeta])


def bootstrap_coefficients(
    client: Client | None, start: Start, result: FitResult, executor_of: Callable[[Start], Executor]
) -> NDArray[np.float64] | None:
    """Coefficients of `spec.bootstrap` fits to documents drawn again, on the scale of the fit.

    A pure function of the documents, the settings and `result`, wherever the replicates run: each in one task for a small
    stored corpus, else one after another on the whole executor.

    Parameters
    ----------
    start : Start
        Of the fit.
    result : FitResult
        Of the start that is shown.
    executor_of : callable
        Returns an executor over the documents of a start.

    Returns
    -------
    ndarray of float64, shape (B, K + P) or (B, K + P, C), or None
        None after Ctrl-C, and where too few replicates could be fitted.
    """
    n = start.spec.bootstrap
    replicates = _Replicates(start, replace(result.parameters, remainder=None))
    logger.info("intervals of the coefficients: %s of the documents", number_of(n, "resample"))
    try:
        with _quietly():
            if client is not None and isinstance(start.source, CorpusSource) and is_small(start.source):
                found = in_tasks(client, start, _replicate_in_task, replicates, n, stage="replicate")
            else:
                found = _one_after_another(replicates, n, executor_of)
    except KeyboardInterrupt:
        logger.warning("interrupted: coefficients have no intervals")
        return None
    # the fit may have taken days, and is complete without them
    except (DsldaError, OSError, CancelledError) as error:
        logger.warning("coefficients have no intervals: documents could not be fitted again (%s)", error)
        return None
    usable = [values for values in found if values is not None and np.isfinite(values).all()]
    if len(usable) < FEWEST_REPLICATES:
        logger.warning(
            "coefficients have no intervals: %d of %s could be fitted, at least %d must be",
            *(len(usable), number_of(n, "resample"), FEWEST_REPLICATES),
        )
        return None
    if len(usable) < n:
        logger.warning(
            "%s could not be fitted, and count for nothing", number_of(n - len(usable), "resample")
        )
    return np.array(usable)


def _replicate_in_task(replicates: _Replicates, i: int) -> NDArray[np.float64] | None:
    quiet_in_task()
    start = replicates.numbered(i)
    with SerialExecutor(start.source, start.family, start.spec) as executor:
        return replicates.coefficients(start, executor)


def _one_after_another(
    replicates: _Replicates, n: int, executor_of: Callable[[Start], Executor]
) -> list[NDArray[np.float64] | None]:
    found = []
    with stage_progress() as progress:
        for i in range(n):
            replicate = replicates.numbered(i)
            with executor_of(replicate) as executor:
                found.append(replicates.coefficients(replicate, executor))
            progress("replicate", i + 1, n)
    return found


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep the fits of replicates out of the log of this process, which would be full of them.

    Not for tasks: threads of one worker that set and restore levels would leave them as none had found them.
    """
    loggers = [logging.getLogger(name) for name in ("dslda.engine", "dslda.training")]
    levels = [each.level for each in loggers]
    try:
        for each in loggers:
            each.setLevel(logging.ERROR)
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
