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
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from dslda.cluster.futures import release, wait_for
from dslda.cluster.hung_workers import WaitingTasks, WorkerWatch, restart
from dslda.cluster.scheduler_watch import no_scheduler
from dslda.config import EngineSettings
from dslda.engine.dask.attempt_tasks import AttemptTasks
from dslda.engine.dask.events import AttemptWatch, EventHub
from dslda.engine.dask.examination import deadly_partition
from dslda.engine.dask.placement import place
from dslda.engine.dask.publish import number_of_parts, publish, publish_recomputable
from dslda.engine.dask.recovery import (
    Action,
    AttemptError,
    IterationFailure,
    Retries,
    WorkersHungError,
    WorkersLostError,
    brief,
    classify,
)
from dslda.engine.dask.tasks import GroupTask, Reading, add_up, nothing, run_group, take_part
from dslda.engine.data.fit_source import FitSource, MemorySource
from dslda.engine.executor import IterationTimes, PartitionListener
from dslda.engine.progress import telling_after
from dslda.engine.reduction import FAN_IN, least_level, nodes, task_level
from dslda.exceptions import EngineError, InputError
from dslda.families.base import Family
from dslda.variational.parameter_parts import borders
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["DaskExecutor"]

logger = logging.getLogger("dslda.engine")

PREPARATION_PATIENCE = 10.0
"""Seconds that workers take to import what they need before a word is said: compiling takes longer."""

PREPARING = "preparing the workers, which compile the kernel of a kind of response once after installation: a minute or two"

POLL_SECONDS = 1.0


class DaskExecutor:
    """Runs every iteration on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
        Not asynchronous. Used by one fit at a time (distributed#2628).
    source : FitSource
        Not of documents in this process's memory.
    family : Family
    spec : FitSpec

    Raises
    ------
    InputError
        The documents are in memory.
    EngineError
        There is no worker, or workers run other versions than the client.
    """

    def __init__(self, client: Client, source: FitSource, family: Family, spec: FitSpec) -> None:
        from dslda.engine.dask.plugin import register

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
        self._last_stall = ""
        self._wait_for_a_worker(self._settings.stall_timeout)
        with telling_after(PREPARATION_PATIENCE, PREPARING):
            register(client, family)
        self._workers = WorkerWatch(client, self._settings.stall_timeout)
        self._hub = EventHub.of(client)
        self._packed: dict[range, bytes] = {}
        self._least_level = least_level(source.n_partitions, self._n_threads())
        level, groups = self._groups()
        self._partitions = place(
            client,
            source,
            spec,
            self._id,
            groups,
            level=level,
            bundles=nodes(source.n_partitions, self._least_level),
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
            A partition crashes every worker that runs it, or for longer than the setting
            ``dslda.engine.iteration-budget`` workers were lost or hung, or no partition was done.
        """
        self._iteration += 1
        self._last_stall = ""
        retries = Retries(self._settings.iteration_budget)
        recovery: Action | None = None
        error: Exception | None = None
        while True:
            try:
                if recovery is not None:
                    self._restart_hung(error)
                    self._recover(retries, parameters, examine=recovery is Action.EXAMINE)
                return self._run_once(parameters, on_partition)
            except AttemptError as failed:
                error = failed.error
                # first: what a client says that has just closed may be anything, such as an AttributeError
                if self._client.status in ("closing", "closed") and not failed.raised_by_task:
                    raise EngineError(no_scheduler(self._client), place=self._incomplete()) from error
                failure = classify(error, raised_by_task=failed.raised_by_task)
                if failure is None:
                    raise error from error.__cause__
                if failure is IterationFailure.LOST:
                    error, failure = self._diagnosed(error)
            step = retries.failed(failure, time.monotonic())
            if step.action is Action.GIVE_UP:
                with suppress(AttemptError):
                    self._restart_hung(error)  # for whoever uses the cluster next
                self._give_up(f"it was tried {retries.n_failures} times", error)
            logger.warning("iteration %d is run again: %s (%s)", self._iteration, failure.value, brief(error))
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
            self._await(roots, watch, pinned, attempt)
            statistics = self._bring_home(roots)
            complete = True
        except Exception as error:
            by_task = any(root.status == "error" for root in roots)
            raise AttemptError(error, raised_by_task=by_task) from error
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
        leaves = []
        for group, owner in zip(groups, owners, strict=True):
            held, readings = self._partitions.argument(group)
            if group not in self._packed:
                self._packed[group] = self._task(group, level, readings).packed()
            leaves.append(
                self._client.submit(
                    run_group,
                    held,
                    published,
                    self._packed[group],
                    attempt,
                    key=(f"dslda-estep-{attempt}", group.start, group.stop),
                    workers=None if owner is None else [owner],
                    allow_other_workers=owner is not None,
                )
            )
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
        self, terms: list[Future[SufficientStatistics]], level: int, key: str
    ) -> Future[SufficientStatistics]:
        """Submit the tree above `terms`, the nodes of a level; return its root."""
        while len(terms) > 1:
            level += 1
            # A rising priority makes sums run before further leaves, or these would pile up in memory.
            terms = [
                terms[first]
                if first + 1 == len(terms)
                else self._client.submit(
                    add_up,
                    terms[first : first + FAN_IN],
                    key=(key, level, first // FAN_IN),
                    priority=10 * level,
                )
                for first in range(0, len(terms), FAN_IN)
            ]
        return terms[0]

    def _await(
        self, roots: list[Future[SufficientStatistics]], watch: AttemptWatch, pinned: set[str], attempt: str
    ) -> None:
        """Wait for the roots for as long as partitions go on being done, or workers at work on them."""
        looked = 0.0
        while True:
            try:
                wait_for(self._client, roots, timeout=POLL_SECONDS)
                return
            except TimeoutError:
                pass
            if time.perf_counter() - max(watch.last_progress, looked) > self._settings.stall_timeout:
                self._look_into_stall(watch, attempt)
                looked = time.perf_counter()
            workers = self._client.nthreads()
            self._workers.note(workers)
            # Pins are loose, but tasks whose workers are all gone while no other is there stay unrun for
            # ever when new ones join (related: distributed#7346, #8600).
            if pinned and pinned.isdisjoint(workers):
                raise WorkersLostError("all workers that held partitions are gone")

    def _look_into_stall(self, watch: AttemptWatch, attempt: str) -> None:
        """No partition was done for long: go on if that is because they take long."""
        idle = time.perf_counter() - watch.last_progress
        tasks = AttemptTasks(self._id, attempt, watch.done, self._source.describe)
        waiting = WaitingTasks.find(self._client, tasks.has)
        diagnosis = self._workers.look(waiting.keys)
        running = waiting.running(self._client, diagnosis)
        if time.perf_counter() - watch.last_progress < idle:
            return
        report = waiting.report(diagnosis, running, tasks.named, otherwise="only sums to do")
        stall = f"no partition was done for {idle:.0f} seconds: {report}"
        if diagnosis.hung:
            self._last_stall = f"; before, {stall}"
            raise WorkersHungError(stall, diagnosis.hung)
        # Others' tasks may have all threads; or Dask has lost sight of ours, which an attempt under new keys would cure.
        nothing_runs = running is not None and not running
        if not waiting.keys or (nothing_runs and idle > self._settings.iteration_budget / 2):
            raise WorkersLostError(stall)
        if idle > self._settings.iteration_budget:
            raise EngineError(
                stall,
                place=self._incomplete(),
                remedy=(
                    "if a partition may take that long, raise the setting "
                    "dslda.engine.iteration-budget in Dask's configuration"
                ),
            )
        logger.warning("iteration %d: %s; waiting on", self._iteration, stall)

    def _diagnosed(self, error: Exception) -> tuple[Exception, IterationFailure]:
        """What failed, or that workers hang where it may come of that: whoever sends to one waits in vain."""
        try:
            diagnosis = self._workers.look()
        except Exception:  # the scheduler does not answer: that is for the next attempt to find
            return error, IterationFailure.LOST
        if not diagnosis.hung:
            return error, IterationFailure.LOST
        named = ", ".join(f"worker {worker} {diagnosis.of(worker)}" for worker in sorted(diagnosis.hung))
        self._last_stall = f"; before, {named}"
        message = f"{brief(error)}; {named}"
        return WorkersHungError(message, diagnosis.hung), IterationFailure.HUNG

    def _restart_hung(self, error: Exception | None) -> None:
        """Leave workers that hang out of the next attempt, and have them restarted where they have a nanny."""
        if not isinstance(error, WorkersHungError):
            return
        try:
            self._partitions.leave(error.workers)
            restart(self._client, error.workers)
        except Exception as problem:
            raise AttemptError(problem, raised_by_task=False) from problem

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
            raise AttemptError(error, raised_by_task=False) from error
        if deadly is not None:
            raise EngineError(
                f"{self._source.describe(deadly)} crashed every worker that ran its E-step: one of "
                "its documents, or the memory that they need, brings the process down",
                remedy=(
                    "look at the workers' logs and memory limits",
                    "leave these documents out with {documents=}",
                ),
            )

    def _examine(self, parameters: Parameters) -> int | None:
        return deadly_partition(
            self._client,
            self._partitions,
            lambda i, readings: self._task(range(i, i + 1), 0, readings).packed(),
            lambda: publish_recomputable(
                self._client, parameters, n_parts=self._n_parts, float32=self._settings.float32_parameters
            ),
            n_partitions=self.n_partitions,
            timeout=self._settings.iteration_budget,
        )

    def _groups(self) -> tuple[int, list[range]]:
        """Level of the tree that one task computes, and the partitions of each task."""
        level = max(task_level(self.n_partitions, self._n_threads()), self._least_level)
        return level, nodes(self.n_partitions, level)

    def _n_threads(self) -> int:
        return sum(self._client.nthreads().values())

    def _task(self, group: range, level: int, readings: Sequence[Reading]) -> GroupTask:
        return GroupTask(
            start=group.start,
            stop=group.stop,
            level=level,
            descriptions=tuple(self._source.describe(i) for i in group),
            readings=tuple(readings),
            topic=self._hub.topic,
            family=self._family,
            spec=self._spec,
        )

    def _wait_for_a_worker(self, timeout: float) -> None:
        if self._client.nthreads():
            return
        logger.info("the cluster has no worker: waiting for one, up to %.0f seconds", timeout)
        # an adaptive cluster starts workers for tasks alone
        asked = self._client.submit(nothing, key=f"dslda-wake-{uuid.uuid4().hex}")
        try:
            # a timeout of 0 would mean to wait for ever
            self._client.wait_for_workers(1, timeout=max(timeout, 1.0))
            wait_for(self._client, [asked], timeout=max(timeout, 1.0))
        except TimeoutError as error:
            raise EngineError(
                f"the cluster must have at least one worker, got none within {timeout:.0f} seconds",
                remedy=(
                    "start workers, or leave out client and scheduler to work on this "
                    f"machine{self._last_stall}"
                ),
            ) from error
        finally:
            release([asked])

    def _incomplete(self) -> str:
        return f"iteration {self._iteration} could not be completed"

    def _give_up(self, why: str, error: Exception) -> NoReturn:
        raise EngineError(
            f"{why}, last with: {brief(error)}",
            place=self._incomplete(),
            remedy=(
                "see the workers' logs, and the settings dslda.engine in Dask's configuration "
                "for how long to go on"
            ),
        ) from error
