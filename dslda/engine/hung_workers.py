"""Workers that hang, told from workers that take long."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslda.engine.futures import within
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Diagnosis", "WorkerWatch", "partitions_of", "restart"]

SILENCE_SECONDS = 30.0
"""A worker that sends no heartbeat for so long hangs: it sends one or two a second, also while kernels run, which leave
Python's lock alone (distributed#6324, #6148)."""

IDLE_SECONDS = 10.0
IDLE_PERCENT = 10.0
"""Of a core. An event loop with nothing to do takes 2 to 5, a kernel close to 100."""

FIRST_HEARTBEAT_SECONDS = 300.0
"""For a worker that has just joined: it sends none before it is prepared, and that may be to compile the kernels."""

RESTART_SECONDS = 15.0
"""For a nanny to answer. It waits 4 seconds for its worker to end by itself before it kills it."""

MOST_NAMED = 4
"""Workers, and partitions of each, that a message lists."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a look at the workers has shown.

    Attributes
    ----------
    silent : frozenset of str
        Addresses of workers whose event loop stands still: the process is stopped, or its machine is gone.
    idle : frozenset of str
        Workers that answer and have tasks, but use no processor: a task waits for something that does not come.
    waiting : mapping of str to sequence of int
        For each worker with tasks of the iteration, its partitions that are not done; none where it has only to
        add up.
    """

    silent: frozenset[str]
    idle: frozenset[str]
    waiting: Mapping[str, Sequence[int]]

    @property
    def hung(self) -> frozenset[str]:
        """Workers to restart. One that is idle may just be waiting for what a silent one holds."""
        return self.silent or self.idle

    def report(self, describe: Callable[[int], str]) -> str:
        """Which partitions wait on which worker, in words."""
        first = sorted(self.hung) + sorted(set(self.waiting) - self.hung)
        lines = [self._line(worker, describe) for worker in first[:MOST_NAMED]]
        if len(first) > MOST_NAMED:
            lines.append(f"and {number_of(len(first) - MOST_NAMED, 'more worker')}")
        return "; ".join(lines) if lines else "no worker has a task of it"

    def _line(self, worker: str, describe: Callable[[int], str]) -> str:
        how = (
            "sends no heartbeat"
            if worker in self.silent
            else "answers but uses no processor"
            if worker in self.idle
            else "is at work"
        )
        partitions = self.waiting.get(worker)
        if partitions is None:
            return f"worker {worker} {how}"
        named = [describe(i) for i in partitions[:MOST_NAMED]]
        if len(partitions) > MOST_NAMED:
            named.append(f"{len(partitions) - MOST_NAMED} more")
        return f"worker {worker} {how} and has " + (", ".join(named) if named else "only sums to do")


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

    def __init__(self, client: Client, stall_timeout: float) -> None:
        self._client = client
        self._patience = stall_timeout
        self._joined = dict.fromkeys(client.nthreads(), float("-inf"))

    def note(self, workers: Iterable[str]) -> None:
        """Take note of the workers that are there now, to know newcomers."""
        now = time.monotonic()
        self._joined = {worker: self._joined.get(worker, now) for worker in workers}

    def look(self, waiting: Mapping[str, Sequence[int]] | None = None) -> Diagnosis:
        """Look at the workers until all are known to live, about a second, or some to hang.

        Parameters
        ----------
        waiting : mapping, optional
            See :class:`Diagnosis`; only these may be idle.
        """
        waiting = {} if waiting is None else waiting
        began = time.monotonic()
        first: dict[str, float] = {}
        beating: set[str] = set()
        shares: defaultdict[str, list[float]] = defaultdict(list)
        observed = min(IDLE_SECONDS, self._patience) if waiting else 0.0
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
                idle = {w for w in waiting.keys() & beating if _mean(shares[w]) < IDLE_PERCENT}
                return Diagnosis(frozenset(quiet), frozenset(idle & workers.keys()), waiting)
            time.sleep(0.5)


def partitions_of(client: Client, attempt: str, load: str, done: Collection[int]) -> dict[str, list[int]]:
    """The partitions that each worker has to do in an attempt of an iteration.

    Parameters
    ----------
    client : distributed.Client
    attempt, load : str
        In the keys of the attempt's tasks, and of those that read its partitions.
    done : collection of int
        Partitions of tasks that go on.
    """
    found: dict[str, list[int]] = {}
    for worker, keys in client.processing().items():
        partitions: set[int] = set()
        ours = False
        for name, *numbers in (key for key in keys if isinstance(key, tuple)):
            if name == f"dslda-estep-{attempt}":
                partitions.update(range(*numbers))
            elif name == load:
                partitions.add(numbers[0])
            ours = ours or attempt in name or name == load
        if ours:
            found[worker] = sorted(partitions - set(done))
    return found


def restart(client: Client, workers: Collection[str]) -> None:
    """Have the nannies of workers start them anew, and the scheduler forget those that have none, or whose nanny hangs.

    Until that is done their tasks stay theirs: the scheduler takes none away from a worker it takes for alive, which
    by itself it does for ``distributed.scheduler.worker-ttl``, 5 minutes, or for ever where that is not set.
    """
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
