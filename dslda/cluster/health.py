"""The health of a cluster's workers: those that hang are told from those that take long, and restarted."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dslda.cluster.futures import within
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
"""Of a task: a name, or a name and numbers."""

POLL_SECONDS = 1.0

SILENCE_SECONDS = 30.0
"""A worker that sends no heartbeat for this long hangs: it sends one or two a second, also while kernels run, since they
release Python's lock (distributed#6324, #6148)."""

IDLE_SECONDS = 10.0
IDLE_PERCENT = 10.0
"""Of a core. An event loop with nothing to do takes 2 to 5, a kernel close to 100."""

FIRST_HEARTBEAT_SECONDS = 300.0
"""For a worker that has just joined: it sends none before it is prepared, which may include compiling the kernels."""

RESTART_SECONDS = 10.0
"""For a nanny to answer. It waits 4 seconds for its worker to end by itself before it kills it."""

MOST_NAMED = 4
"""Workers, and partitions of each, that a message lists."""

ANSWER_SECONDS = 5.0
"""For workers to say what they are doing."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a look at the workers.

    Attributes
    ----------
    silent : frozenset of str
        Addresses of workers whose event loop stands still: the process is stopped, or its machine is gone.
    idle : frozenset of str
        Workers that answer and have tasks, but use no processor: a task waits for something that does not come.
    """

    silent: frozenset[str]
    idle: frozenset[str]

    @property
    def hung(self) -> frozenset[str]:
        """Workers to restart. One that is idle may just be waiting for what a silent one holds."""
        return self.silent or self.idle

    def of(self, worker: str) -> str:
        """The state of a worker in words."""
        if worker in self.silent:
            return "sends no heartbeat"
        return "answers but uses no processor" if worker in self.idle else "is at work"


class WorkerWatch:
    """Finds the workers of a cluster that hang.

    It compares the times at which the scheduler last heard of each. The scheduler's clock need not be ours: a worker is
    silent when its time stands still while we look.

    Parameters
    ----------
    client : distributed.Client
        All its workers have been prepared.
    stall_timeout : float
        Seconds: an upper limit for each of the times that a look takes otherwise.
    """

    def __init__(self, client: Client, stall_timeout: float = math.inf) -> None:
        self._client = client
        self._patience = stall_timeout
        self._joined = dict.fromkeys(client.nthreads(), -math.inf)

    def note(self, workers: Iterable[str]) -> None:
        """Take note of the present workers, to recognise newcomers."""
        now = time.monotonic()
        self._joined = {worker: self._joined.get(worker, now) for worker in workers}

    def look(self, suspects: Collection[str] = ()) -> Diagnosis:
        """Look at the workers until all have proved to live, about a second, or some to hang.

        Parameters
        ----------
        suspects : collection of str
            Workers with tasks that make no progress: these may be idle.
        """
        began = time.monotonic()
        first: dict[str, float] = {}
        beating: set[str] = set()
        shares: defaultdict[str, list[float]] = defaultdict(list)
        observed = min(IDLE_SECONDS, self._patience) if suspects else 0.0
        while True:
            workers: Mapping[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
            self.note(workers)
            now = time.monotonic()
            for address, worker in workers.items():
                if worker["last_seen"] != first.setdefault(address, worker["last_seen"]):
                    beating.add(address)
                    shares[address].append(float(worker["metrics"].get("cpu", 100.0)))
            quiet = {
                address
                for address in workers.keys() - beating
                if now - self._joined[address] >= FIRST_HEARTBEAT_SECONDS
            }
            # many workers send fewer heartbeats, as in the scheduler's own check
            patience = max(min(SILENCE_SECONDS, self._patience), 3 * (1 + len(workers) / 200))
            if now - began >= (patience if quiet else observed):
                idle = {w for w in beating.intersection(suspects, workers) if _mean(shares[w]) < IDLE_PERCENT}
                return Diagnosis(frozenset(quiet), frozenset(idle))
            time.sleep(0.5)


@dataclass(frozen=True, slots=True)
class Awaited:
    """The tasks that somebody waits for.

    Attributes
    ----------
    has : callable
        Tells by the key of a task whether it is one of these.
    named : callable
        Gives the work of some of these tasks in words, each once; nothing for tasks without a name.
    last_progress : callable, optional
        Gives the time of the perf_counter clock at which work was last done. By default progress shows in tasks that
        leave their workers.
    unit : str
        The work that is counted.
    unnamed : str
        Tasks without a name.
    """

    has: Callable[[Key], bool]
    named: Callable[[Collection[Key]], Sequence[str]]
    last_progress: Callable[[], float] | None = None
    unit: str = "task"
    unnamed: str = "other tasks"


@dataclass(frozen=True, slots=True)
class Stall:
    """A look at a cluster on which nothing was done for long.

    Attributes
    ----------
    seconds : float
        Since anything was done.
    keys : mapping of str to sequence of key
        The tasks that are waited for, by worker, as far as the scheduler has assigned them.
    running : frozenset of key or None
        Those that a thread of a worker works on now; None where the workers did not say.
    busy : bool
        Some worker has tasks, of ours or of others.
    diagnosis : Diagnosis
    workers : str
        The workers and their tasks in words.
    text : str
        All of it in words.
    """

    seconds: float
    keys: Mapping[str, Sequence[Key]]
    running: frozenset[Key] | None
    busy: bool
    diagnosis: Diagnosis
    workers: str
    text: str


def wait_for_progress(
    client: Client,
    watch: WorkerWatch,
    awaited: Awaited,
    *,
    patience: float,
    ready: Callable[[float], bool],
    on_stall: Callable[[Stall], None],
) -> None:
    """Wait until something is ready, and look at the workers whenever nothing is done for long.

    Parameters
    ----------
    client : distributed.Client
    watch : WorkerWatch
    awaited : Awaited
    patience : float
        Seconds without progress, and between two looks.
    ready : callable
        Waits for at most the seconds that it gets, and returns whether the thing is ready.
    on_stall : callable
        Returns to go on waiting.

    Raises
    ------
    ConnectionError
        The client has been closed.
    """
    progressed = looked = time.perf_counter()
    before: frozenset[Key] = frozenset()
    while not ready(POLL_SECONDS):
        if client.status in ("closing", "closed"):
            raise ConnectionError(why_closed(client))
        if awaited.last_progress is not None:
            progressed = max(progressed, awaited.last_progress())
            looked = max(looked, progressed)
        try:
            watch.note(client.nthreads())
            if time.perf_counter() - looked < patience:
                continue
            assigned = client.processing()
            keys = {
                w: ours for w, tasks in assigned.items() if (ours := [k for k in tasks if awaited.has(k)])
            }
            diagnosis = watch.look(keys)
            running = _running(client, keys, diagnosis)
        except OSError:  # `ready`, or the client's status, shows what came of that
            continue
        if ready(0.0):
            return
        if awaited.last_progress is not None and awaited.last_progress() > progressed:
            continue
        looked = time.perf_counter()
        busy = any(assigned.values())
        present = frozenset(key for tasks in keys.values() for key in tasks)
        # one result may rest on many tasks, which are done one after the other
        if awaited.last_progress is None and not before <= present:
            progressed = looked
        # tasks that are taken from a worker are not done
        before = present if busy and not diagnosis.hung else frozenset()
        workers = _workers_in_words(keys, diagnosis, running, awaited)
        text = f"no {awaited.unit} was done for {looked - progressed:.0f} seconds: "
        text += workers if assigned else "the cluster has no worker"
        on_stall(Stall(looked - progressed, keys, running, busy, diagnosis, workers, text))


class PatientWait:
    """Waits for tasks that can be run again by themselves, and has workers that hang restarted meanwhile.

    Dask runs the tasks of a worker elsewhere once its nanny has killed it, or the scheduler has forgotten it.

    Parameters
    ----------
    client : distributed.Client
    awaited : Awaited
    give_up : callable
        Cancels these tasks.
    """

    def __init__(self, client: Client, awaited: Awaited, *, give_up: Callable[[], None]) -> None:
        settings = EngineSettings.load()
        self._client = client
        self._awaited = awaited
        self._give_up = give_up
        self._patience = settings.stall_timeout
        self._budget = settings.iteration_budget
        self._watch = WorkerWatch(client, self._patience)
        #: the state of the workers when some of them last hung, for messages about the consequences
        self.last_stall = ""

    def until(self, ready: Callable[[float], bool], what: str) -> None:
        """Wait until something is ready.

        Parameters
        ----------
        ready : callable
            See :func:`wait_for_progress`.
        what : str
            The work in words.

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
                logger.warning("%s: %s; waiting on", what, stall.text)
                return
            now = time.monotonic()
            trouble = now if trouble is None else trouble
            given_up = now - trouble >= self._budget
            if given_up:
                self._give_up()  # or they would hang the next worker
            if hung:
                # when given up too, for the next user of the cluster
                with suppress(OSError):  # no answer in time: the next look shows whether it was done
                    restart(self._client, hung)
            if given_up:
                raise EngineError(
                    f"{what} could not be completed: {stall.text}{self.last_stall}",
                    remedy="see the workers' logs, and the settings dslda.engine in Dask's configuration for how long to "
                    "go on",
                )
            logger.warning("%s: %s; trying again", what, stall.text)
            if hung:
                self.last_stall = f"; before, {stall.workers}"

        with reporting_loss(self._client):
            wait_for_progress(
                self._client,
                self._watch,
                self._awaited,
                patience=self._patience,
                ready=ready,
                on_stall=on_stall,
            )


def restart(client: Client, workers: Collection[str]) -> None:
    """Have the nannies of workers start them anew, and the scheduler forget those without a nanny that answers.

    Until then their tasks stay theirs: the scheduler takes none away from a worker that it takes for alive, by default
    for the 5 minutes of ``distributed.scheduler.worker-ttl``, or for ever where that is not set.
    """
    logger.warning("restarting %s", ", ".join(sorted(workers)))
    # Client.restart_workers refuses workers without a nanny, and waits for the others to be back
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
    except Exception:  # a task may be done meanwhile, which is an error to the scheduler
        return None
    return frozenset(key for of_worker in stacks.values() for key in of_worker)


def _workers_in_words(
    keys: Mapping[str, Sequence[Key]], diagnosis: Diagnosis, running: Collection[Key] | None, awaited: Awaited
) -> str:
    """The workers and the tasks that wait on each; first what is being worked on."""
    workers = sorted(diagnosis.hung) + sorted(keys.keys() - diagnosis.hung)
    lines = []
    for worker in workers[:MOST_NAMED]:
        tasks = keys.get(worker, ())
        worked_on = frozenset(tasks).intersection(running or ())
        first = awaited.named(worked_on)
        names = [*first, *(name for name in awaited.named(tasks) if name not in first)]
        more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        work = ", ".join([*names[:MOST_NAMED], *more]) or (awaited.unnamed if tasks else "")
        state = diagnosis.of(worker)
        if tasks and running is not None and not worked_on and worker not in diagnosis.hung:
            state = "is at work on something else"
        lines.append(f"worker {worker} {state}{work and f' and has {work}'}")
    if len(workers) > MOST_NAMED:
        lines.append(f"and {number_of(len(workers) - MOST_NAMED, 'more worker')}")
    return "; ".join(lines) if lines else "no worker has a task of it"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 100.0
