"""The executor that runs on a Dask cluster.

The client drives. An iteration sends the parameters to the workers, runs the E-step of every partition
where the partition is, adds up the statistics in the tree of :mod:`~dslda.engine.reduction` and brings home
one object. Nothing of it stays on the cluster, so the iteration is the unit of retry: a pure function of
parameters and partitions.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from dslda.config import EngineSettings
from dslda.engine.events import AttemptWatch, EventHub
from dslda.engine.executor import IterationTimes, PartitionListener
from dslda.engine.futures import release, wait_for
from dslda.engine.placement import place
from dslda.engine.progress import telling_after
from dslda.engine.publish import number_of_parts, publish, publish_recomputable
from dslda.engine.recovery import Action, Retries, WorkersLostError, classify
from dslda.engine.reduction import FAN_IN, add_children, number_of_levels, number_of_nodes
from dslda.engine.sources import MemorySource, Source
from dslda.engine.tasks import GroupTask, run_group, take_part, try_partition
from dslda.exceptions import EngineError, InputError
from dslda.families.base import Family
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.parts import borders
from dslda.variational.statistics import SufficientStatistics

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["DaskExecutor", "task_level"]

logger = logging.getLogger("dslda.engine")

GROUPS_PER_THREAD = 6
"""Tasks of an iteration for each thread, at least: fewer leave threads idle at its end, more cost more."""

PREPARATION_PATIENCE = 10.0
"""Seconds that workers take to import what they need before a word is said: compiling takes longer."""

PREPARING = "preparing the workers, which compile the kernels once after installation: a minute or two"

POLL_SECONDS = 1.0


class DaskExecutor:
    """Runs every iteration on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
        Not asynchronous. Used by one fit at a time (distributed#2628).
    source : Source
        Not of documents in this process's memory.
    family : Family
    spec : FitSpec

    Raises
    ------
    InputError
        The client is asynchronous or the documents are in memory.
    EngineError
        There is no worker, or workers run other versions than the client.
    """

    def __init__(self, client: Client, source: Source, family: Family, spec: FitSpec) -> None:
        from dslda.engine.plugin import register

        if client.asynchronous:
            raise InputError("client must not be asynchronous: make it with Client(..., asynchronous=False)")
        if isinstance(source, MemorySource):
            raise InputError(
                "documents in memory are trained on in this process: ingest them to a corpus to train on a "
                "cluster"
            )
        self._client = client
        self._source = source
        self._family = family
        self._spec = spec
        self._settings = EngineSettings.load()
        self._id = uuid.uuid4().hex[:16]
        self._n_parts = number_of_parts(source.n_terms, spec.n_topics)
        self._iteration = 0
        self._attempt = 0
        self._wait_for_a_worker(self._settings.stall_timeout)
        with telling_after(PREPARATION_PATIENCE, PREPARING):
            register(client, family)
        self._hub = EventHub.of(client)
        level, groups = self._groups()
        self._partitions = place(
            client,
            source,
            spec,
            self._id,
            groups,
            level=level,
            resident_fraction=self._settings.resident_fraction,
        )

    @property
    def n_documents(self) -> int:
        return int(self._source.n_documents.sum())

    @property
    def n_partitions(self) -> int:
        return self._source.n_partitions

    def run(
        self, parameters: Parameters, *, on_partition: PartitionListener | None = None
    ) -> tuple[SufficientStatistics, IterationTimes]:
        """One iteration, retried as a whole when workers are lost; see :meth:`Executor.run`.

        Raises
        ------
        EngineError
            A partition crashes every worker that runs it, or workers were lost for longer than the setting
            ``dslda.engine.iteration-budget``.
        """
        self._iteration += 1
        retries = Retries(self._settings.iteration_budget)
        recovery: Action | None = None
        while True:
            try:
                if recovery is not None:
                    self._recover(retries, parameters, examine=recovery is Action.EXAMINE)
                return self._run_once(parameters, on_partition)
            except _AttemptError as failed:
                error = failed.error
                failure = classify(error, raised_by_task=failed.raised_by_task)
                if failure is None:
                    raise error from error.__cause__
                if self._client.status in ("closing", "closed"):
                    self._give_up("the connection to the scheduler is gone", error)
            step = retries.failed(failure, time.monotonic())
            if step.action is Action.GIVE_UP:
                self._give_up(f"it was tried {retries.n_failures} times", error)
            logger.warning(
                "iteration %d is run again: %s (%s)", self._iteration, failure.value, _brief(error)
            )
            time.sleep(step.delay)
            recovery = step.action

    def close(self) -> None:
        self._partitions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run_once(
        self, parameters: Parameters, on_partition: PartitionListener | None
    ) -> tuple[SufficientStatistics, IterationTimes]:
        self._attempt += 1
        attempt = f"{self._id}-{self._attempt}"
        watch = AttemptWatch(on_partition)
        self._hub.watch(attempt, watch)
        published: list[Future[Parameters]] = []
        roots: list[Future[SufficientStatistics]] = []
        complete = False
        try:
            began = time.perf_counter()
            published = publish(
                self._client,
                parameters,
                n_parts=self._n_parts,
                float32=self._settings.float32_parameters,
                timeout=self._settings.publish_timeout,
            )
            sent = time.perf_counter()
            roots, pinned = self._submit(published, attempt)
            self._await(roots, watch, pinned)
            statistics = self._bring_home(roots)
            complete = True
        except Exception as error:
            by_task = any(root.status == "error" for root in roots)
            raise _AttemptError(error, raised_by_task=by_task) from error
        finally:
            watch.close(failed=not complete)
            self._hub.forget(attempt)
            # not left to the garbage collector: frames of a wait that timed out refer to futures in cycles
            release([*roots, *published])
        ended = time.perf_counter()
        e_step_ended = watch.last_partition if watch.last_partition is not None else ended
        return statistics, IterationTimes(sent - began, e_step_ended - sent, ended - e_step_ended)

    def _submit(
        self, published: list[Future[Parameters]], attempt: str
    ) -> tuple[list[Future[SufficientStatistics]], set[str]]:
        """Submit an iteration; return its roots, one for each part, and the workers that tasks are pinned to.

        Only the roots are kept: whoever holds a leaf keeps its statistics in a worker's memory until the end.
        """
        level, groups = self._groups()
        owners = self._partitions.owners(groups)
        leaves = [
            self._client.submit(
                run_group,
                *self._arguments(group),
                published,
                self._task(group, level, attempt),
                key=(f"dslda-estep-{attempt}", group.start, group.stop),
                workers=None if owner is None else [owner],
                allow_other_workers=owner is not None,
            )
            for group, owner in zip(groups, owners, strict=True)
        ]
        pinned = {owner for owner in owners if owner is not None}
        if self._n_parts == 1:
            return [self._add_up(leaves, level, f"dslda-sum-{attempt}")], pinned
        roots = []
        for j, (start, stop) in enumerate(itertools.pairwise(borders(self._source.n_terms, self._n_parts))):
            parts = [
                self._client.submit(
                    take_part, leaf, start, stop, key=(f"dslda-part-{attempt}-{j}", i), priority=1
                )
                for i, leaf in enumerate(leaves)
            ]
            roots.append(self._add_up(parts, level, f"dslda-sum-{attempt}-{j}"))
        return roots, pinned

    def _add_up(
        self, nodes: list[Future[SufficientStatistics]], level: int, key: str
    ) -> Future[SufficientStatistics]:
        """Submit the tree above the nodes of a level; return its root."""
        while len(nodes) > 1:
            level += 1
            # A rising priority makes sums run before further leaves, or these would pile up in memory.
            nodes = [
                nodes[first]
                if first + 1 == len(nodes)
                else self._client.submit(
                    add_children,
                    nodes[first : first + FAN_IN],
                    key=(key, level, first // FAN_IN),
                    priority=10 * level,
                )
                for first in range(0, len(nodes), FAN_IN)
            ]
        return nodes[0]

    def _await(
        self, roots: list[Future[SufficientStatistics]], watch: AttemptWatch, pinned: set[str]
    ) -> None:
        """Wait for the roots for as long as partitions go on being done."""
        while True:
            try:
                wait_for(self._client, roots, timeout=POLL_SECONDS)
                return
            except TimeoutError:
                pass
            idle = time.perf_counter() - watch.last_progress
            if idle > self._settings.stall_timeout:
                raise WorkersLostError(f"no partition was done for {idle:.0f} seconds")
            # Pins are loose, but tasks whose workers are all gone while no other is there stay unrun for
            # ever when new ones join (related: distributed#7346, #8600).
            if pinned and pinned.isdisjoint(self._client.nthreads()):
                raise WorkersLostError("all workers that held partitions are gone")

    def _bring_home(self, roots: list[Future[SufficientStatistics]]) -> SufficientStatistics:
        """The sum of all, a part at a time."""
        patience = self._settings.stall_timeout
        if len(roots) == 1:
            return roots[0].result(timeout=patience).dense()

        def arriving() -> Iterator[SufficientStatistics]:
            for root in roots:
                yield root.result(timeout=patience)
                release([root])

        return SufficientStatistics.of_parts(arriving(), self._source.n_terms)

    def _recover(self, retries: Retries, parameters: Parameters, *, examine: bool) -> None:
        """Get ready for the next attempt."""
        deadly: int | None = None
        try:
            self._wait_for_a_worker(retries.time_left(time.monotonic()))
            if examine:
                # a read that is under way may be what brings workers down
                self._partitions.drop()
                deadly = self._examine(parameters)
            if deadly is None:
                self._partitions.heal()
        except EngineError:
            raise
        except Exception as error:
            raise _AttemptError(error, raised_by_task=False) from error
        if deadly is not None:
            raise EngineError(
                f"{self._source.describe(deadly)} crashed every worker that ran its E-step: one of its "
                "documents, or the memory that they need, brings the process down; look at the workers' logs "
                "and memory limits, or leave these documents out with documents="
            )

    def _examine(self, parameters: Parameters) -> int | None:
        """The partition that crashes its worker, None if all are run without a crash.

        The task that Dask names is often not the one that did it: all tasks assigned to a dead worker are
        blamed (distributed#5234), above all those pinned to it. So every partition is run by itself, its
        statistics thrown away, and those that fail once more alone on the cluster.
        """
        from distributed import KilledWorker

        logger.warning("looking for a partition that crashes its worker")
        published = publish_recomputable(
            self._client, parameters, n_parts=self._n_parts, float32=self._settings.float32_parameters
        )
        token = uuid.uuid4().hex[:8]

        def suspects(partitions: Sequence[int], round_: str) -> list[int]:
            tasks = [
                self._client.submit(
                    try_partition,
                    *self._partitions.argument(i, kept=False),
                    published,
                    self._task(range(i, i + 1), 0, ""),
                    key=(f"dslda-try-{token}", round_, i),
                )
                for i in partitions
            ]
            wait_for(self._client, tasks, timeout=self._settings.iteration_budget)
            outcomes = [task.exception() if task.status == "error" else None for task in tasks]
            release(tasks)
            return [
                i
                for i, outcome in zip(partitions, outcomes, strict=True)
                if isinstance(outcome, KilledWorker)
            ]

        try:
            found = suspects(range(self.n_partitions), "all")
            if len(found) > 1:
                found = next(([i] for i in found if suspects([i], f"alone-{i}")), [])
            return found[0] if found else None
        finally:
            release(published)

    def _groups(self) -> tuple[int, list[range]]:
        """Level of the tree that one task computes, and the partitions of each task."""
        n = self.n_partitions
        level = task_level(n, sum(self._client.nthreads().values()))
        width = FAN_IN**level
        return level, [range(start, min(start + width, n)) for start in range(0, n, width)]

    def _arguments(self, group: range) -> tuple[list[Any], list[Any]]:
        arguments = [self._partitions.argument(i) for i in group]
        return [part for part, _ in arguments], [view for _, view in arguments]

    def _task(self, group: range, level: int, attempt: str) -> GroupTask:
        return GroupTask(
            start=group.start,
            stop=group.stop,
            level=level,
            descriptions=tuple(self._source.describe(i) for i in group),
            topic=self._hub.topic,
            attempt=attempt,
            family=self._family,
            spec=self._spec,
        )

    def _wait_for_a_worker(self, timeout: float) -> None:
        try:
            # a timeout of 0 would mean to wait for ever
            self._client.wait_for_workers(1, timeout=max(timeout, 1.0))
        except TimeoutError as error:
            raise EngineError(
                f"the cluster must have at least one worker, got none within {timeout:.0f} seconds; start "
                "workers, or leave out client and scheduler to work on this machine"
            ) from error

    def _give_up(self, why: str, error: Exception) -> NoReturn:
        raise EngineError(
            f"iteration {self._iteration} could not be completed: {why}, last with: "
            f"{_brief(error)}; see the workers' logs, and the settings dslda.engine in "
            "Dask's configuration for how long to go on"
        ) from error


class _AttemptError(Exception):
    """Carries the error of an attempt, and where it came from, out of it."""

    def __init__(self, error: Exception, *, raised_by_task: bool) -> None:
        self.error = error
        self.raised_by_task = raised_by_task


def _brief(error: Exception) -> str:
    """The first line of an error, for a line of the log."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def task_level(n_partitions: int, n_threads: int) -> int:
    """The highest level of the tree with enough nodes to keep all threads busy.

    A task that does a whole node by itself leaves one statistics object instead of ``4**level``. The tree
    is the same at any level, so that the number of threads may decide this without changing a bit.
    """
    level = 0
    while (
        level < number_of_levels(n_partitions)
        and number_of_nodes(n_partitions, level + 1) >= GROUPS_PER_THREAD * n_threads
    ):
        level += 1
    return level
