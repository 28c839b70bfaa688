"""The executor that runs on a Dask cluster.

An iteration sends the parameters to the workers, runs the E-step of every partition where the partition is, adds up the
statistics in the tree of :mod:`~dslda.engine.reduction` and fetches the sum. Nothing of it stays on the cluster. So the
iteration, a pure function of parameters and partitions, is the unit of retry.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle
from distributed import KilledWorker

from dslda.cluster.client import release, wait_for
from dslda.cluster.health import Awaited, Stall, WorkerWatch, restart, wait_for_progress
from dslda.cluster.scheduler_watch import no_scheduler
from dslda.config import EngineSettings
from dslda.engine.dask.events import AttemptWatch, EventHub
from dslda.engine.dask.placement import place
from dslda.engine.dask.plugin import register
from dslda.engine.dask.publish import number_of_parts, publish, publish_recomputable
from dslda.engine.dask.recovery import (
    Action,
    IterationFailure,
    Retries,
    WorkersHungError,
    WorkersLostError,
    brief,
    classify,
)
from dslda.engine.dask.tasks import GroupTask, add_up, nothing, run_group, take_part, try_partition
from dslda.engine.data.fit_source import FitSource, MemorySource
from dslda.engine.executor import Executor, IterationTimes, PartitionListener, ascending
from dslda.engine.passes import Pass
from dslda.engine.progress import logging_after
from dslda.engine.reduction import FAN_IN, least_level, lowest_level, nodes, task_level
from dslda.exceptions import EngineError, InputError
from dslda.families.base import Family
from dslda.variational.parameter_parts import borders
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.sums import Sums, join_parts

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["DaskExecutor"]

logger = logging.getLogger("dslda.engine")

S = TypeVar("S", bound=Sums)

PREPARATION_PATIENCE = 10.0
"""Seconds for the imports of workers; compiling, which is logged, takes longer."""

LEAST_WORK = 400_000
"""Fewest entries, times topics, that a task works on if it takes a share of the documents: some 20 milliseconds. A task costs
client, scheduler and worker two or three."""

PREPARING = "preparing the workers, which compile a kernel for each kind of response once after installation: a minute or two"


class DaskExecutor(Executor):
    """Runs every iteration on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
        Not asynchronous, and used by one fit at a time (distributed#2628).
    source, family, spec
        See :class:`Executor`.

    Raises
    ------
    InputError
        The documents are in the memory of this process.
    EngineError
        There is no worker, or workers run other versions than the client.
    """

    def __init__(self, client: Client, source: FitSource, family: Family, spec: FitSpec) -> None:
        if isinstance(source, MemorySource):
            raise InputError(
                "documents in memory are trained on in this process",
                remedy="ingest them to a corpus to train on a cluster",
            )
        super().__init__(source, family, spec)
        self._client = client
        self._settings = EngineSettings.load()
        self._id = uuid.uuid4().hex[:16]
        self._n_parts = number_of_parts(source.n_terms, spec.n_topics)
        self._iteration = 0
        self._attempt = 0
        self._last_stall = ""
        self._raised_by_task = False
        self._wait_for_a_worker(self._settings.stall_timeout)
        with logging_after(PREPARATION_PATIENCE, PREPARING):
            register(client, family, objective=spec.objective)
        self._workers = WorkerWatch(client, self._settings.stall_timeout)
        self._hub = EventHub.of(client)
        self._packed: dict[tuple[int, int], bytes] = {}
        partitions = range(source.n_partitions)
        self._least_level = least_level(partitions, self._n_threads())
        level = self._task_level(partitions)
        self._partitions = place(
            client,
            source,
            spec,
            self._id,
            list(nodes(partitions, level).values()),
            level=level,
            bundles=list(nodes(partitions, self._least_level).values()),
            resident_fraction=self._settings.resident_fraction,
        )

    def run(
        self,
        parameters: Parameters,
        work: Pass[S],
        *,
        partitions: Sequence[int] | None = None,
        share: float = 1.0,
        on_partition: PartitionListener | None = None,
    ) -> tuple[S, IterationTimes]:
        """Run one iteration, retried as a whole when workers are lost; see :meth:`Executor.run`.

        Raises
        ------
        EngineError
            A partition crashes every worker that runs it, or workers were lost or hung, or no partition was done, for
            longer than the setting ``dslda.engine.iteration-budget``.
        """
        chosen = ascending(partitions, self.n_partitions)
        self._iteration += 1
        self._last_stall = ""
        retries = Retries(self._settings.iteration_budget)
        examine = False
        error: Exception | None = None
        while True:
            self._raised_by_task = False
            try:
                if error is not None:
                    self._recover(error, retries, parameters, work, chosen, examine=examine)
                return self._run_once(parameters, work, chosen, share, on_partition)
            except EngineError:
                raise
            except Exception as problem:
                error = problem
                # this comes first, since a client that has just closed may raise anything, such as an AttributeError
                if self._client.status in ("closing", "closed") and not self._raised_by_task:
                    raise no_scheduler(self._client, during=f"{self._incomplete()}: ") from error
                failure = classify(error, raised_by_task=self._raised_by_task)
                if failure is None:
                    raise
                if failure is IterationFailure.LOST:
                    error, failure = self._diagnosed(error)
            step = retries.failed(failure, time.monotonic())
            if step.action is Action.GIVE_UP:
                with suppress(Exception):
                    self._restart_hung(error)  # for the next user of the cluster
                raise EngineError(
                    f"{self._incomplete()}: it was tried {retries.n_failures} times, last with: {brief(error)}",
                    remedy="see the workers' logs, and the settings dslda.engine in Dask's configuration for how long to "
                    "go on",
                ) from error
            logger.warning("iteration %d is run again: %s (%s)", self._iteration, failure.value, brief(error))
            time.sleep(step.delay)
            examine = step.action is Action.EXAMINE

    def close(self) -> None:
        self._partitions.close()

    def _run_once(
        self,
        parameters: Parameters,
        work: Pass[S],
        partitions: Sequence[int],
        share: float,
        on_partition: PartitionListener | None,
    ) -> tuple[S, IterationTimes]:
        self._attempt += 1
        attempt = f"{self._id}-{self._attempt}"
        watch = AttemptWatch(self._id, attempt, partitions, self._source.describe, on_partition)
        self._hub.watches[attempt] = watch
        published: list[Future[Parameters]] = []
        roots: list[Future[S]] = []
        complete = False
        try:
            began = time.perf_counter()
            level = self._task_level(partitions, share)
            groups = nodes(partitions, level)
            owners = self._partitions.owners(list(groups.values()))
            published = publish(
                self._client,
                parameters,
                n_parts=self._n_parts,
                float32=self._settings.float32_parameters,
                timeout=self._settings.publish_timeout,
                everywhere=None in owners,
            )
            sent = time.perf_counter()
            roots = self._submit(published, work, groups, owners, level=level, attempt=attempt)
            self._await(roots, watch, {owner for owner in owners if owner is not None})
            sums: S = self._fetch(roots)
            complete = True
        except Exception:
            self._raised_by_task = any(root.status == "error" for root in roots)
            raise
        finally:
            watch.close(failed=not complete)
            del self._hub.watches[attempt]
            # explicitly, since frames of a wait that timed out refer to futures in cycles, which live until collected
            release([*roots, *published])
        ended = time.perf_counter()
        e_step_ended = watch.last_partition if watch.last_partition is not None else ended
        return sums, IterationTimes(sent - began, e_step_ended - sent, ended - e_step_ended)

    def _submit(
        self,
        published: list[Future[Parameters]],
        work: Pass[S],
        groups: Mapping[int, Sequence[int]],
        owners: Sequence[str | None],
        *,
        level: int,
        attempt: str,
    ) -> list[Future[S]]:
        """Submit an iteration, each group of partitions to its owner; return its roots, one for each part.

        Only the futures of the roots stay: that of a leaf would keep its statistics in a worker's memory until the end. The
        others are released here, since Python drops a Ctrl-C that comes while `Future.__del__` does it.
        """
        leaves = {
            node: self._client.submit(
                run_group,
                self._partitions.held(group),
                published,
                self._task_of(node, level),
                group,
                attempt,
                work,
                key=(f"dslda-estep-{attempt}", group[0], group[-1] + 1),
                workers=None if owner is None else [owner],
                allow_other_workers=owner is not None,
            )
            for (node, group), owner in zip(groups.items(), owners, strict=True)
        }
        if self._n_parts == 1:
            return [self._add_up(leaves, level, f"dslda-sum-{attempt}")]
        roots = []
        for j, (start, stop) in enumerate(itertools.pairwise(borders(self._source.n_terms, self._n_parts))):
            parts = {
                node: self._client.submit(
                    take_part, leaf, start, stop, key=(f"dslda-part-{attempt}-{j}", node), priority=1
                )
                for node, leaf in leaves.items()
            }
            roots.append(self._add_up(parts, level, f"dslda-sum-{attempt}-{j}"))
        release(leaves.values())
        return roots

    def _add_up(self, terms: Mapping[int, Future[S]], level: int, key: str) -> Future[S]:
        """Submit the tree above `terms`, the numbered nodes of a level; return its root."""
        while len(terms) > 1:
            level += 1
            below = terms
            # with a rising priority, sums run before further leaves, which would pile up in memory
            terms = {
                node: terms[children[0]]
                if len(children) == 1
                else self._client.submit(
                    add_up,
                    [terms[child] for child in children],
                    key=(key, level, node),
                    priority=10 * level,
                )
                for node, children in nodes(list(terms), 1).items()
            }
            kept = set(map(id, terms.values()))
            release(future for future in below.values() if id(future) not in kept)
        (root,) = terms.values()
        return root

    def _await(self, roots: list[Future[S]], watch: AttemptWatch, pinned: set[str]) -> None:
        """Wait for the roots as long as partitions get done or workers are at work on them."""

        def ready(seconds: float) -> bool:
            with suppress(TimeoutError):
                # a timeout of 0 expires even if all are done
                wait_for(self._client, roots, timeout=max(seconds, 0.1))
                return True
            # Pins are loose. But when all their workers are gone and there is no other, the tasks never run, even if
            # workers join (related: distributed#7346, #8600).
            if pinned and pinned.isdisjoint(self._client.nthreads()):
                raise WorkersLostError("all workers that held partitions are gone")
            return False

        awaited = Awaited(
            watch.has,
            watch.names,
            last_progress=lambda: watch.last_progress,
            unit="partition",
            unnamed="only sums to do",
        )
        wait_for_progress(self._workers, awaited, ready=ready, on_stall=self._look_into_stall)

    def _look_into_stall(self, stall: Stall) -> None:
        """Return, to go on waiting, if partitions only take long; raise an error otherwise."""
        if stall.diagnosis.hung:
            self._last_stall = f"; before, {stall.text}"
            raise WorkersHungError(stall.text, stall.diagnosis.hung)
        # Tasks of others may occupy all threads, or Dask has lost track of ours, which an attempt under new keys cures.
        nothing_runs = stall.running is not None and not stall.running
        if not stall.keys or (nothing_runs and stall.seconds > self._settings.iteration_budget / 2):
            raise WorkersLostError(stall.text)
        if stall.seconds > self._settings.iteration_budget:
            raise EngineError(
                f"{self._incomplete()}: {stall.text}",
                remedy="if a partition may take that long, raise the setting dslda.engine.iteration-budget in Dask's "
                "configuration",
            )
        logger.warning("iteration %d: %s; waiting on", self._iteration, stall.text)

    def _diagnosed(self, error: Exception) -> tuple[Exception, IterationFailure]:
        """The error and kind of a failure, whose cause may be workers that hang and receive nothing."""
        try:
            diagnosis = self._workers.look()
        except Exception:  # the scheduler does not answer, which the next attempt shows
            return error, IterationFailure.LOST
        if not diagnosis.hung:
            return error, IterationFailure.LOST
        states = ", ".join(f"worker {worker} {diagnosis.of(worker)}" for worker in sorted(diagnosis.hung))
        self._last_stall = f"; before, {states}"
        message = f"{brief(error)}; {states}"
        return WorkersHungError(message, diagnosis.hung), IterationFailure.HUNG

    def _restart_hung(self, error: Exception) -> None:
        """Leave workers that hang out of the next attempt, and have their nannies, if any, restart them."""
        if isinstance(error, WorkersHungError):
            self._partitions.leave(error.workers)
            restart(self._client, error.workers)

    def _fetch(self, roots: list[Future[S]]) -> Any:
        """Fetch the whole sum, a part at a time."""
        patience = self._settings.stall_timeout
        if len(roots) == 1:
            return roots[0].result(timeout=patience).dense()

        def arriving() -> Iterator[Any]:
            for root in roots:
                yield root.result(timeout=patience)
                release([root])

        return join_parts(arriving(), self._source.n_terms)

    def _recover(
        self,
        error: Exception,
        retries: Retries,
        parameters: Parameters,
        work: Pass[Sums],
        partitions: Sequence[int],
        *,
        examine: bool,
    ) -> None:
        """Prepare the next attempt."""
        self._restart_hung(error)
        self._wait_for_a_worker(retries.time_left(time.monotonic()))
        if examine:
            # dropped partitions are not read meanwhile, since a read may be the cause of the crashes
            unread = self._partitions.drop()
            culprit = self._examine(parameters, work, sorted(unread.union(partitions)))
            if culprit is not None:
                raise EngineError(
                    f"{self._source.describe(culprit)} crashed every worker that ran its E-step: one of its "
                    "documents, or the memory that they need, brings the process down",
                    remedy=(
                        "look at the workers' logs and memory limits",
                        "leave these documents out with {documents=}",
                    ),
                )
        self._partitions.heal()

    def _examine(self, parameters: Parameters, work: Pass[Sums], suspects: Sequence[int]) -> int | None:
        """The partition that crashes its worker, None if all run without a crash.

        The task that Dask names is often not the culprit: all tasks assigned to a dead worker are blamed
        (distributed#5234), above all those pinned to it. So every partition runs by itself, and those that fail run once
        more, with nothing else on the cluster. Their statistics are discarded.
        """
        logger.warning("looking for a partition that crashes its worker")
        token = uuid.uuid4().hex[:8]

        def crashing(numbers: Sequence[int], round_: str) -> list[int]:
            published = publish_recomputable(
                self._client, parameters, n_parts=self._n_parts, float32=self._settings.float32_parameters
            )
            trials: list[Future[None]] = []
            try:
                for i in numbers:
                    held, task = self._partitions.held([i]), self._packed_task([i], 0)
                    key = (f"dslda-try-{token}", round_, i)
                    trials.append(self._client.submit(try_partition, held, published, task, work, key=key))
                wait_for(self._client, trials, timeout=self._settings.iteration_budget)
                outcomes = [trial.exception() if trial.status == "error" else None for trial in trials]
                # if the parameters were on the dying workers, all tasks that need them fail like this
                return [
                    i
                    for i, trial, outcome in zip(numbers, trials, outcomes, strict=True)
                    if isinstance(outcome, KilledWorker) and outcome.task == trial.key
                ]
            finally:
                release([*trials, *published])

        failed = crashing(suspects, "all")
        # even a single suspect runs again, since workers may have died for reasons of their own
        return next((i for i in failed if crashing([i], f"alone-{i}")), None)

    def _task_level(self, partitions: Sequence[int], share: float = 1.0) -> int:
        """Level of the tree of sums that one task computes, for work on a share of the documents."""
        level = max(task_level(partitions, self._n_threads()), self._least_level)
        if share == 1.0:
            return level
        work = share * self._spec.n_topics * int(self._source.n_entries[list(partitions)].sum())
        return max(level, lowest_level(partitions, max(int(work / LEAST_WORK), 1)))

    def _n_threads(self) -> int:
        return sum(self._client.nthreads().values())

    def _task_of(self, node: int, level: int) -> bytes:
        """The task of a node, packed once: pickling thousands of loaders takes seconds."""
        if (node, level) not in self._packed:
            width = FAN_IN**level
            whole = range(node * width, min((node + 1) * width, self.n_partitions))
            self._packed[node, level] = self._packed_task(whole, level)
        return self._packed[node, level]

    def _packed_task(self, partitions: Sequence[int], level: int) -> bytes:
        task = GroupTask(
            start=partitions[0],
            level=level,
            descriptions=tuple(self._source.describe(i) for i in partitions),
            readings=tuple(self._partitions.reading(i) for i in partitions),
            topic=self._hub.topic,
            family=self._family,
            spec=self._spec,
        )
        packed: bytes = cloudpickle.dumps(task)  # pickle cannot take a family of the user's own script
        return packed

    def _wait_for_a_worker(self, timeout: float) -> None:
        if self._client.nthreads():
            return
        logger.info("the cluster has no worker: waiting for one, up to %.0f seconds", timeout)
        # an adaptive cluster starts workers only for tasks
        wake = self._client.submit(nothing, key=f"dslda-wake-{uuid.uuid4().hex}")
        try:
            # a timeout of 0 means no timeout
            self._client.wait_for_workers(1, timeout=max(timeout, 1.0))
            wait_for(self._client, [wake], timeout=max(timeout, 1.0))
        except TimeoutError as error:
            raise EngineError(
                f"the cluster must have at least one worker, got none within {timeout:.0f} seconds{self._last_stall}",
                remedy=("start workers", "work on this machine, without this cluster"),
            ) from error
        finally:
            release([wake])

    def _incomplete(self) -> str:
        return f"iteration {self._iteration} could not be completed"
