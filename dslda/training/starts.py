"""The starts of a fit: beside each other on a cluster, or one after another, and the best of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from dslda.cluster.runner import DaskRunner
from dslda.cluster.stage_progress import stage_progress
from dslda.engine.conditional.conditional_fit import fit_conditionally
from dslda.engine.data.fit_source import CorpusSource, FitSource
from dslda.engine.driver import Checkpoints, FitResult, fit
from dslda.engine.em import Position
from dslda.engine.executor import Executor, SerialExecutor
from dslda.engine.progress import FitProgress, LogProgress
from dslda.engine.word_coefficients import suited_to_words
from dslda.exceptions import DsldaWarning, collecting_warnings, warn
from dslda.families.base import Family
from dslda.training.checkpoint import FitCheckpoint
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.topic_seeds import TopicSeeds

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "Start",
    "best_start",
    "in_tasks",
    "is_small",
    "one_after_another",
    "quiet_in_task",
    "runs_side_by_side",
    "side_by_side",
]

logger = logging.getLogger("dslda.training")

T = TypeVar("T")
R = TypeVar("R")

SMALL_BYTES = 64 << 20
"""Largest corpus whose starts run beside each other, each in one thread of a worker that holds the corpus once more. The
partitions of a larger one keep all workers busy in every iteration."""
SEEDS = 2**63


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a fit: all that it takes beside an executor.

    Attributes
    ----------
    fresh : callable
        Returns the starting values, given the keywords `spec` and `seeds`.
    spec : FitSpec
        With the seed of this start.
    seeds : TopicSeeds or None
        The seed words of `spec`, as terms of the documents.
    """

    source: FitSource
    family: Family
    spec: FitSpec
    fresh: Callable[..., Parameters]
    seeds: TopicSeeds | None = None

    def numbered(self, i: int) -> Start:
        """The start after `i` others."""
        return replace(self, spec=replace(self.spec, seed=(self.spec.seed + i) % SEEDS))

    def initial(self) -> Parameters:
        """The starting values."""
        return self.fresh(spec=self.spec, seeds=self.seeds)

    def run(
        self,
        executor: Executor,
        position: Position,
        *,
        checkpoints: Checkpoints | None = None,
        progress: FitProgress | None = None,
    ) -> FitResult:
        """Train from a position; see :func:`~dslda.engine.driver.fit`."""
        if self.spec.objective == "joint":
            result = fit(
                executor,
                position.parameters,
                family=self.family,
                spec=self.spec,
                done=position.trace,
                checkpoints=checkpoints,
                progress=progress,
                seeds=self.seeds,
            )
            if not self.spec.suits_words:
                return result
            try:
                return suited_to_words(executor, result, family=self.family, spec=self.spec)
            except BaseException as error:
                if checkpoints is not None:
                    checkpoints.note(error)
                raise
        return fit_conditionally(
            executor,
            position,
            self.initial,
            family=self.family,
            spec=self.spec,
            checkpoints=checkpoints,
            progress=progress,
            seeds=self.seeds,
        )


def side_by_side(client: Client, first: Start) -> list[FitResult]:
    """Train all starts of a small corpus, each in one task, with the same bits as :func:`one_after_another`."""
    n = first.spec.n_starts
    logger.info("%d starts run beside each other, each on one thread of the workers", n)
    results = []
    for result, warnings in in_tasks(client, first, _start_in_task, first, n, stage="start"):
        results.append(result)
        for warning in warnings:
            warn(warning)
    return results


def in_tasks(
    client: Client, start: Start, function: Callable[[T, int], R], shared: T, n: int, *, stage: str
) -> list[R]:
    """The values of ``function(shared, i)`` for i below `n`, each from one task that fits a model as `start` does."""
    from dslda.engine.dask.plugin import register  # a fit in this process needs no distributed

    register(client, start.family, objective=start.spec.objective)
    with stage_progress() as progress:
        runner = DaskRunner(client, progress)
        try:
            tasks = runner.map(function, [runner.share(shared)] * n, range(n))
            return runner.results(tasks, stage=stage)
        finally:
            runner.cancel()


def runs_side_by_side(first: Start) -> bool:
    """True if there are several starts, of a small stored corpus, so that on a cluster each can be one task."""
    return first.spec.n_starts > 1 and isinstance(first.source, CorpusSource) and is_small(first.source)


def is_small(source: FitSource) -> bool:
    """True if one thread of a worker may hold the documents, for a fit of its own."""
    return int(source.nbytes.sum()) <= SMALL_BYTES


def quiet_in_task() -> None:
    """Keep Python from printing what a fit in a task logs as a warning to the worker's terminal."""
    package = logging.getLogger("dslda")
    if not package.hasHandlers():
        package.addHandler(logging.NullHandler())


def _start_in_task(first: Start, i: int) -> tuple[FitResult, list[DsldaWarning | FutureWarning]]:
    quiet_in_task()
    start = first.numbered(i)
    with (
        collecting_warnings() as warnings,
        SerialExecutor(start.source, start.family, start.spec) as executor,
    ):
        result = start.run(executor, Position(start.initial()), progress=LogProgress())
    return result, warnings


def one_after_another(
    executor: Executor,
    first: Start,
    *,
    position: Position | None,
    checkpoint: FitCheckpoint | None,
    checkpoints: Checkpoints | None,
    progress: FitProgress | None,
    identity: Callable[[FitSpec], dict[str, Any]],
) -> list[FitResult]:
    """Train the starts in turn, each on the whole executor.

    Parameters
    ----------
    position : Position or None
        Where the first start begins; None for its starting values.
    checkpoint : FitCheckpoint or None
        That of the first start, which `checkpoints` writes.
    identity : callable
        Identity of a fit of these settings; see :func:`~dslda.training.identity.fit_identity`.

    Returns
    -------
    list of FitResult
        After Ctrl-C those that were complete, and what the last one had.
    """
    results: list[FitResult] = []
    for i in range(first.spec.n_starts):
        start = first.numbered(i)
        if first.spec.n_starts > 1:
            logger.info("start %d of %d", i + 1, first.spec.n_starts)
        following = None if checkpoint is None or i == 0 else checkpoint.of_start(i)
        with nullcontext() if following is None else following.alone():
            if following is not None:
                following.read(identity(start.spec))
                position = following.start(start.initial())
                checkpoints = following.schedule(position)
            # here, since many topics and terms take seconds, during which workers already read
            here = Position(start.initial()) if position is None else position
            try:
                results.append(start.run(executor, here, checkpoints=checkpoints, progress=progress))
            except KeyboardInterrupt:
                if not results:
                    raise
                logger.warning("interrupted: keeping %d of %d starts", len(results), first.spec.n_starts)
                break
        if results[-1].interrupted:
            break
        position = None
    else:
        return results
    # whichever is shown, the fit as a whole is not complete
    return [replace(result, interrupted=True) for result in results]


def best_start(results: Sequence[FitResult], spec: FitSpec) -> int:
    """Position of the start that predicts the inner part best, or has the highest ELBO in the joint model."""
    if spec.objective == "joint":
        scores = [result.trace[-1].elbo for result in results]
    else:
        scores = [
            max((r.inner_gain for r in result.trace if not math.isnan(r.inner_gain)), default=-math.inf)
            for result in results
        ]
    return max(range(len(results)), key=scores.__getitem__)
