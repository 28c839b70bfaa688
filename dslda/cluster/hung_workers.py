"""Workers that hang, told from workers that take long."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dslda.cluster.futures import within
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Diagnosis", "Key", "WaitingTasks", "WorkerWatch", "restart"]

logger = logging.getLogger("dslda.engine")

Key: TypeAlias = "str | tuple[Any, ...]"
"""Of a task: a name, or a name and numbers."""

SILENCE_SECONDS = 30.0
"""A worker that sends no heartbeat for so long hangs: it sends one or two a second, also while kernels run, which leave
Python's lock alone (distributed#6324, #6148)."""

IDLE_SECONDS = 10.0
IDLE_PERCENT = 10.0
"""Of a core. An event loop with nothing to do takes 2 to 5, a kernel close to 100."""

FIRST_HEARTBEAT_SECONDS = 300.0
"""For a worker that has just joined: it sends none before it is prepared, and that may be to compile the kernels."""

RESTART_SECONDS = 10.0
"""For a nanny to answer. It waits 4 seconds for its worker to end by itself before it kills it."""

MOST_NAMED = 4
"""Workers, and partitions of each, that a message lists."""

ANSWER_SECONDS = 5.0
"""For workers to say what they are doing."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a look at the workers has shown.

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
        """How a worker is, in words."""
        if worker in self.silent:
            return "sends no heartbeat"
        return "answers but uses no processor" if worker in self.idle else "is at work"


class WorkerWatch:
    """Finds the workers of a cluster that hang.

    By when the scheduler last heard of each. Not by its clock, which need not be ours: a worker is silent when that
    time stands still while we look.

    Parameters
    ----------
    client : distributed.Client
        All its workers have been prepared.
    stall_timeout : float
        Seconds; where that is less than what is looked at otherwise, no longer than this.
    """

    def __init__(self, client: Client, stall_timeout: float = math.inf) -> None:
        self._client = client
        self._patience = stall_timeout
        self._joined = dict.fromkeys(client.nthreads(), -math.inf)

    def note(self, workers: Iterable[str]) -> None:
        """Take note of the workers that are there now, to know newcomers."""
        now = time.monotonic()
        self._joined = {worker: self._joined.get(worker, now) for worker in workers}

    def look(self, suspects: Collection[str] = ()) -> Diagnosis:
        """Look at the workers until all are known to live, about a second, or some to hang.

        Parameters
        ----------
        suspects : collection of str
            Workers with tasks of which none gets done: these may be idle.
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
class WaitingTasks:
    """The tasks that somebody waits for, as far as the scheduler has given them to workers.

    Attributes
    ----------
    keys : mapping of str to sequence of key
        By worker.
    """

    keys: Mapping[str, Sequence[Key]]

    @classmethod
    def find(cls, client: Client, is_ours: Callable[[Key], bool]) -> WaitingTasks:
        """Those among the tasks of all workers that are ours."""
        found = {worker: [k for k in keys if is_ours(k)] for worker, keys in client.processing().items()}
        return cls({worker: ours for worker, ours in found.items() if ours})

    def running(self, client: Client, diagnosis: Diagnosis) -> frozenset[Key] | None:
        """Those that a thread of a worker works on now; None where that could not be told."""
        asked = [key for worker, keys in self.keys.items() if worker not in diagnosis.silent for key in keys]
        if not asked:
            return frozenset()
        try:
            stacks: Mapping[str, Any] = within(client, ANSWER_SECONDS, client.call_stack, keys=asked)
        except Exception:  # a task may be done meanwhile, which is an error to the scheduler
            return None
        return frozenset(key for of_worker in stacks.values() for key in of_worker)

    def report(
        self,
        diagnosis: Diagnosis,
        running: Collection[Key] | None,
        named: Callable[[Collection[Key]], Sequence[str]],
        *,
        otherwise: str = "other tasks",
    ) -> str:
        """What waits on which worker, in words; first what is being worked on.

        Parameters
        ----------
        diagnosis : Diagnosis
        running : collection of key or None
            See :meth:`running`.
        named : callable
            Gives the work of some tasks in words, each once; none for tasks without a name.
        otherwise : str
            What tasks without a name are.
        """
        workers = sorted(diagnosis.hung) + sorted(self.keys.keys() - diagnosis.hung)
        lines = []
        for worker in workers[:MOST_NAMED]:
            tasks = self.keys.get(worker, ())
            worked_on = frozenset(tasks).intersection(running or ())
            now = named(worked_on)
            then = [each for each in named(tasks) if each not in now]
            listed = [*now, *then][:MOST_NAMED]
            if len(now) + len(then) > MOST_NAMED:
                listed.append(f"{len(now) + len(then) - MOST_NAMED} more")
            has = f" and has {', '.join(listed)}" if listed else f" and has {otherwise}" if tasks else ""
            how = diagnosis.of(worker)
            if tasks and running is not None and not worked_on and worker not in diagnosis.hung:
                how = "is at work on something else"
            lines.append(f"worker {worker} {how}{has}")
        if len(workers) > MOST_NAMED:
            lines.append(f"and {number_of(len(workers) - MOST_NAMED, 'more worker')}")
        return "; ".join(lines) if lines else "no worker has a task of it"


def restart(client: Client, workers: Collection[str]) -> None:
    """Have the nannies of workers start them anew, and the scheduler forget those that have none, or whose nanny hangs.

    Until that is done their tasks stay theirs: the scheduler takes none away from a worker it takes for alive, which
    by itself it does for ``distributed.scheduler.worker-ttl``, 5 minutes, or for ever where that is not set.
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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 100.0
