"""Recovery of an iteration that failed on a cluster: which failures are retried, and for how long."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from distributed import CancelledError, KilledWorker
from distributed.scheduler import NoValidWorkerError, NoWorkerError

__all__ = [
    "Action",
    "IterationFailure",
    "Retries",
    "Step",
    "WorkersHungError",
    "WorkersLostError",
    "brief",
    "classify",
]

FIRST_DELAY = 1.0
LONGEST_DELAY = 30.0
LONGEST_TEXT = 1000
"""Characters of an error in a message: enough to name the partitions of several workers that hang."""


class WorkersLostError(Exception):
    """Workers, or the data that they held, were lost during an iteration."""


class WorkersHungError(WorkersLostError):
    """The workers with these addresses hang."""

    def __init__(self, message: str, workers: frozenset[str]) -> None:
        super().__init__(message)
        self.workers = workers


class IterationFailure(enum.Enum):
    """The reason that an iteration did not complete."""

    LOST = "workers or data were lost"
    HUNG = "workers hang"
    KILLED = "a task was on several workers as they died"


def classify(error: BaseException, *, raised_by_task: bool) -> IterationFailure | None:
    """The kind of failure if a retry can help, None if it is an error of the computation itself.

    An OSError of communication with the cluster is retried. One `raised_by_task`, such as that of a missing file, would
    recur.
    """
    if isinstance(error, KilledWorker):
        return IterationFailure.KILLED
    if isinstance(error, WorkersHungError):
        return IterationFailure.HUNG
    # distributed#3149: scattered data is lost with its worker, and tasks that need it are cancelled;
    # distributed#7346, #8600: tasks without a worker for too long
    if isinstance(error, (WorkersLostError, CancelledError, NoWorkerError, NoValidWorkerError)):
        return IterationFailure.LOST
    # TimeoutError and CommClosedError are OSErrors
    if isinstance(error, OSError) and not raised_by_task:
        return IterationFailure.LOST
    return None


def brief(error: Exception) -> str:
    """The first line of an error, for messages."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text[:LONGEST_TEXT]}" if text else type(error).__name__


class Action(enum.Enum):
    """The next step after a failed attempt."""

    RETRY = "retry"
    EXAMINE = "look for a partition that crashes its worker, then retry"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Step:
    """An action, after a delay in seconds."""

    action: Action
    delay: float = 0.0


class Retries:
    """The retries of one iteration, as a state machine without a clock; they end `budget` seconds after the first failure."""

    def __init__(self, budget: float) -> None:
        self._budget = budget
        self._began: float | None = None
        self._not_examined: list[IterationFailure] = []
        self.n_failures = 0

    def failed(self, failure: IterationFailure, now: float) -> Step:
        """The step after an attempt that failed at `now`, in seconds of any monotonic clock."""
        self._began = now if self._began is None else self._began
        self.n_failures += 1
        if now - self._began >= self._budget:
            return Step(Action.GIVE_UP)
        delay = min(FIRST_DELAY * 2.0 ** (self.n_failures - 1), LONGEST_DELAY)
        if failure is IterationFailure.HUNG:  # the culprits are known
            return Step(Action.RETRY, delay)
        # One death proves nothing: every task assigned to a dead worker is blamed (distributed#5234), and preemptible
        # machines die by themselves. On a cluster of one worker no task is blamed, since the parameters are lost first.
        self._not_examined.append(failure)
        if self._not_examined.count(IterationFailure.KILLED) >= 2 or len(self._not_examined) >= 3:
            self._not_examined.clear()
            return Step(Action.EXAMINE, delay)
        return Step(Action.RETRY, delay)

    def time_left(self, now: float) -> float:
        """Seconds until giving up."""
        return self._budget if self._began is None else max(self._budget - (now - self._began), 0.0)
