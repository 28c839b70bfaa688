"""The health of a cluster's workers: finding those that hang, not those that are slow, and restarting them."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

from dslda.cluster.client import within
from dslda.cluster.scheduler_watch import reporting_loss, why_closed
from dslda.config import EngineSettings
from dslda.exceptions import EngineError
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "Awaited",
    "Diagnosis",
    "Key",
    "PatientWait",
    "Stall",
    "WorkerWatch",
    "restart",
    "wait_for_progress",
]

logger = logging.getLogger("dslda.engine")

Key: TypeAlias = "str | tuple[Any, ...]"
"""Key of a task: a name, or a name and numbers."""

POLL_SECONDS = 1.0

SILENCE_SECONDS = 30.0
"""Time without a heartbeat after which a worker counts as hung. It sends one or two a second, even while kernels run, since
they release Python's lock (distributed#6324, #6148)."""

IDLE_SECONDS = 10.0
IDLE_PERCENT = 10.0
"""Percentage of a core below which a worker with tasks is idle. An idle event loop takes 2 to 5, a kernel close to 100."""

FIRST_HEARTBEAT_SECONDS = 300.0
"""Time for the first heartbeat of a worker that has just joined: it must be prepared first, and may compile the kernels."""

RESTART_SECONDS = 10.0
"""Time for a nanny to answer. It gives its worker 4 seconds to end before killing it."""

MOST_NAMED = 4
"""Most workers, and partitions of each, that a message names."""

ANSWER_SECONDS = 5.0
"""Time for workers to report their running tasks."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a look at the workers.

    Attributes
    ----------
    silent : frozenset of str
        Addresses of workers whose event loop stands still: the process is stopped, or its machine is gone.
    idle : frozenset of str
        Addresses of workers that answer and have tasks, but use no processor: a task waits for something that never comes.
    """

    silent: frozenset[str]
    idle: frozenset[str]

    @property
    def hung(self) -> frozenset[str]:
        """Workers to restart. An idle one may be waiting for data of a silent one."""
        return self.silent or self.idle

    def of(self, worker: str) -> str:
        """Describe the state of a worker."""
        if worker in self.silent:
            return "sends no heartbeat"
        return "answers but uses no processor" if worker in self.idle else "is at work"


class WorkerWatch:
    """Finds the workers of a cluster that hang.

    The scheduler's clock may differ from ours. So a worker is silent if the time at which the scheduler last heard from
    it stands still during a look. `stall_timeout`, in seconds, limits the time of a look. All workers that are present at
    the start have been prepared.
    """

    def __init__(self, client: Client, stall_timeout: float = math.inf) -> None:
        self.client = client
        self.patience = stall_timeout
        self._joined = dict.fromkeys(client.nthreads(), -math.inf)

    def note(self, workers: Iterable[str]) -> None:
        """Take note of the present workers, to recognise newcomers."""
        now = time.monotonic()
        self._joined = {worker: self._joined.get(worker, now) for worker in workers}

    def look(self, suspects: Collection[str] = ()) -> Diagnosis:
        """Look at the workers until all prove to be alive, which takes about a second, or some prove to hang.

        `suspects` are workers whose tasks make no progress: only these can be idle.
        """
        began = time.monotonic()
        first_seen: dict[str, float] = {}
        beating: set[str] = set()
        shares: defaultdict[str, list[float]] = defaultdict(list)
        duration = min(IDLE_SECONDS, self.patience) if suspects else 0.0
        while True:
            workers: Mapping[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
            self.note(workers)
            now = time.monotonic()
            for address, worker in workers.items():
                if worker["last_seen"] != first_seen.setdefault(address, worker["last_seen"]):
                    beating.add(address)
                    shares[address].append(float(worker["metrics"].get("cpu", 100.0)))
            quiet = {
                address
                for address in workers.keys() - beating
                if now - self._joined[address] >= FIRST_HEARTBEAT_SECONDS
            }
            # workers of large clusters send fewer heartbeats; the scheduler's own check is the same
            patience = max(min(SILENCE_SECONDS, self.patience), 3 * (1 + len(workers) / 200))
            if now - began >= (patience if quiet else duration):
                idle = {w for w in beating.intersection(suspects, workers) if fmean(shares[w]) < IDLE_PERCENT}
                return Diagnosis(frozenset(quiet), frozenset(idle))
            time.sleep(0.5)


@dataclass(frozen=True, slots=True)
class Awaited:
    """The tasks that a caller waits for.

    Attributes
    ----------
    has : callable
        Returns whether the task with a key is one of these.
    names : callable
        Returns the work of some of these tasks in words, each once; nothing for tasks without a name.
    last_progress : callable, optional
        Returns the time of the last progress, by the perf_counter clock. By default a task that leaves its worker is
        progress.
    unit, unnamed : str
        Words for the work that is counted, and for tasks without a name.
    """

    has: Callable[[Key], bool]
    names: Callable[[Collection[Key]], Sequence[str]]
    last_progress: Callable[[], float] | None = None
    unit: str = "task"
    unnamed: str = "other tasks"


@dataclass(frozen=True, slots=True)
class Stall:
    """A look at a cluster that has made no progress for long.

    Attributes
    ----------
    seconds : float
        Time since the last progress.
    keys : mapping of str to sequence of key
        The awaited tasks that the scheduler has assigned, by worker.
    running : frozenset of key or None
        The awaited tasks that threads run now; None if the workers do not answer.
    busy : bool
        Some worker has tasks, awaited or not.
    diagnosis : Diagnosis
    workers, text : str
        Words for the workers and their tasks, and for the whole stall.
    """

    seconds: float
    keys: Mapping[str, Sequence[Key]]
    running: frozenset[Key] | None
    busy: bool
    diagnosis: Diagnosis
    workers: str
    text: str


def wait_for_progress(
    watch: WorkerWatch,
    awaited: Awaited,
    *,
    ready: Callable[[float], bool],
    on_stall: Callable[[Stall], None],
) -> None:
    """Wait until something is ready, and look at the workers after each stall timeout without progress.

    Parameters
    ----------
    watch : WorkerWatch
    awaited : Awaited
    ready : callable
        Waits for at most its argument, in seconds, and returns whether the result is ready.
    on_stall : callable
        Raises an error, or returns to go on waiting.

    Raises
    ------
    ConnectionError
        The client has been closed.
    """
    client = watch.client
    progressed = looked = time.perf_counter()
    previous: frozenset[Key] = frozenset()
    while not ready(POLL_SECONDS):
        if client.status in ("closing", "closed"):
            raise ConnectionError(why_closed(client))
        if awaited.last_progress is not None:
            progressed = max(progressed, awaited.last_progress())
            looked = max(looked, progressed)
        try:
            watch.note(client.nthreads())
            if time.perf_counter() - looked < watch.patience:
                continue
            assigned = client.processing()
            keys = {
                w: ours for w, tasks in assigned.items() if (ours := [k for k in tasks if awaited.has(k)])
            }
            diagnosis = watch.look(keys)
            running = _running(client, keys, diagnosis)
        except OSError:  # `ready` or the client's status shows the consequence
            continue
        if ready(0.0):
            return
        if awaited.last_progress is not None and awaited.last_progress() > progressed:
            continue
        looked = time.perf_counter()
        busy = any(assigned.values())
        present = frozenset(key for tasks in keys.values() for key in tasks)
        # one result may depend on many tasks, which are done one after the other
        if awaited.last_progress is None and not previous <= present:
            progressed = looked
        # a task that was taken away from a worker is not finished
        previous = present if busy and not diagnosis.hung else frozenset()
        workers = _workers_in_words(keys, diagnosis, running, awaited)
        text = f"no {awaited.unit} was done for {looked - progressed:.0f} seconds: "
        text += workers if assigned else "the cluster has no worker"
        on_stall(Stall(looked - progressed, keys, running, busy, diagnosis, workers, text))


class PatientWait:
    """Waits for tasks that can each run again, and meanwhile restarts workers that hang.

    Dask runs the tasks of a worker elsewhere once its nanny has killed it, or the scheduler has forgotten it. `give_up`
    cancels the tasks.
    """

    def __init__(self, client: Client, awaited: Awaited, *, give_up: Callable[[], None]) -> None:
        settings = EngineSettings.load()
        self._client = client
        self._awaited = awaited
        self._give_up = give_up
        self._budget = settings.iteration_budget
        self._watch = WorkerWatch(client, settings.stall_timeout)
        #: the state of the workers when some last hung, for messages about the consequences
        self.last_stall = ""

    def until(self, ready: Callable[[float], bool], work: str) -> None:
        """Wait until something is ready; see :func:`wait_for_progress`. `work` is its name in messages.

        Raises
        ------
        EngineError
            Workers hang again and again, or there are none, for longer than the setting
            ``dslda.engine.iteration-budget``; or the client has been closed.
        """
        trouble: float | None = None

        def on_stall(stall: Stall) -> None:
            nonlocal trouble
            hung = stall.diagnosis.hung
            if not hung and stall.busy:
                trouble = None
                logger.warning("%s: %s; waiting on", work, stall.text)
                return
            now = time.monotonic()
            trouble = now if trouble is None else trouble
            given_up = now - trouble >= self._budget
            if given_up:
                self._give_up()  # or they would hang the next worker
            if hung:
                # also after giving up, for the next user of the cluster
                with suppress(OSError):  # no answer in time: the next look shows the outcome
                    restart(self._client, hung)
            if given_up:
                raise EngineError(
                    f"{work} could not be completed: {stall.text}{self.last_stall}",
                    remedy="see the workers' logs, and the settings dslda.engine in Dask's configuration for how long to "
                    "go on",
                )
            logger.warning("%s: %s; trying again", work, stall.text)
            if hung:
                self.last_stall = f"; before, {stall.workers}"

        with reporting_loss(self._client):
            wait_for_progress(self._watch, self._awaited, ready=ready, on_stall=on_stall)


def restart(client: Client, workers: Collection[str]) -> None:
    """Have nannies restart their workers, and the scheduler forget workers whose nanny is missing or does not answer.

    Otherwise a worker keeps its tasks while the scheduler considers it alive: for ``distributed.scheduler.worker-ttl``, by
    default 5 minutes, or for ever.
    """
    logger.warning("restarting %s", ", ".join(sorted(workers)))
    # Client.restart_workers refuses workers without a nanny, and waits for the others to come back
    within(
        client,
        2 * RESTART_SECONDS,
        client.scheduler.restart_workers,
        workers=list(workers),
        timeout=RESTART_SECONDS,
        wait_for_workers=False,
        on_error="return",
        stimulus_id=f"dslda-restart-{uuid.uuid4().hex}",
    )


def _running(
    client: Client, keys: Mapping[str, Sequence[Key]], diagnosis: Diagnosis
) -> frozenset[Key] | None:
    answering = [key for worker, tasks in keys.items() if worker not in diagnosis.silent for key in tasks]
    if not answering:
        return frozenset()
    try:
        stacks: Mapping[str, Any] = within(client, ANSWER_SECONDS, client.call_stack, keys=answering)
    except Exception:  # a task may have ended meanwhile, which the scheduler reports as an error
        return None
    return frozenset(key for of_worker in stacks.values() for key in of_worker)


def _workers_in_words(
    keys: Mapping[str, Sequence[Key]], diagnosis: Diagnosis, running: Collection[Key] | None, awaited: Awaited
) -> str:
    """Words for the workers and the tasks that wait on each; running tasks come first."""
    workers = sorted(diagnosis.hung) + sorted(keys.keys() - diagnosis.hung)
    lines = []
    for worker in workers[:MOST_NAMED]:
        tasks = keys.get(worker, ())
        worked_on = frozenset(tasks).intersection(running or ())
        names = list(dict.fromkeys([*awaited.names(worked_on), *awaited.names(tasks)]))
        more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        work = ", ".join([*names[:MOST_NAMED], *more]) or (awaited.unnamed if tasks else "")
        state = diagnosis.of(worker)
        if tasks and running is not None and not worked_on and worker not in diagnosis.hung:
            state = "is at work on something else"
        lines.append(f"worker {worker} {state}{work and f' and has {work}'}")
    if len(workers) > MOST_NAMED:
        lines.append(f"and {number_of(len(workers) - MOST_NAMED, 'more worker')}")
    return "; ".join(lines) if lines else "no worker has a task of it"
