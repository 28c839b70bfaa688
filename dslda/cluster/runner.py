"""Runners of tasks, in this process or on a cluster.

All run the same functions on the same pieces of data and combine the results in the same order, so they give the same bits.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from dslda.cluster.client import spread
from dslda.cluster.health import Awaited, PatientWait
from dslda.cluster.scheduler_watch import no_scheduler, reporting_loss
from dslda.cluster.stage_progress import Progress
from dslda.exceptions import DsldaError, EngineError, FormatError, InputError, OutputError
from dslda.wording import stage_in_words

__all__ = ["DaskRunner", "Runner", "SerialRunner", "merge_in_tree"]

Handle: TypeAlias = Any
"""A value in this process, a future on Dask."""

T = TypeVar("T")

FAN_IN = 8
PER_THREAD = 2
"""Tasks of a stream for each thread: one that runs, and one that waits."""

SPREAD_SECONDS = 10
"""Time for all workers to fetch a shared value in advance; later they fetch it when a task needs it."""


class Runner(Protocol):
    """Runs functions on handles and plain values."""

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], stage: str | None = None
    ) -> list[Handle]:
        """Handles of the function's value for each row of the columns."""

    def submit(self, function: Callable[..., Any], *arguments: Any, priority: int = 0) -> Handle:
        """Handle of the function's value; later steps of a reduction have a higher priority."""

    def compute(self, tasks: Sequence[Any]) -> list[Handle]:
        """Handles of the values of dask Delayed objects."""

    def share(self, value: Any) -> Handle:
        """Handle of a value that many tasks need."""

    def results(self, handles: Sequence[Handle], *, stage: str | None = None) -> list[Any]:
        """The values in order; they should be small."""

    def stream(
        self, function: Callable[..., Any], rows: Iterable[tuple[Any, ...]], *, n: int, stage: str
    ) -> Iterator[tuple[int, Any]]:
        """Yield the function's value for each of `n` rows of arguments, with the row's number, in order of completion.

        Only a few tasks are in flight at a time. After an error no further task begins; those in flight still yield their
        values, and then the error of the first row that has one is raised.
        """

    def cancel(self) -> None:
        """Give up the tasks that still run."""


class SerialRunner:
    """Runs everything immediately in this process; a handle is the value itself."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], stage: str | None = None
    ) -> list[Handle]:
        values = []
        n = len(columns[0])
        for row in zip(*columns, strict=True):
            values.append(function(*row))
            if stage is not None and self._progress is not None:
                self._progress(stage, len(values), n)
        return values

    def submit(self, function: Callable[..., Any], *arguments: Any, priority: int = 0) -> Handle:
        return function(*arguments)

    def compute(self, tasks: Sequence[Any]) -> list[Handle]:
        import dask

        # one after the other: together all partitions would be in memory
        values = [dask.compute(task, scheduler="synchronous")[0] for task in tasks]
        return [_value(value) for value in values]

    def share(self, value: Any) -> Handle:
        return value

    def results(self, handles: Sequence[Handle], *, stage: str | None = None) -> list[Any]:
        return list(handles)

    def stream(
        self, function: Callable[..., Any], rows: Iterable[tuple[Any, ...]], *, n: int, stage: str
    ) -> Iterator[tuple[int, Any]]:
        for i, row in enumerate(rows):
            yield i, function(*row)
            if self._progress is not None:
                self._progress(stage, i + 1, n)

    def cancel(self) -> None:
        pass


class DaskRunner:
    """Runs everything on a cluster; handles are futures, which Dask recomputes when it loses a worker.

    Workers that hang are restarted or left out; see :class:`~dslda.cluster.health.PatientWait`.
    """

    def __init__(self, client: Any, progress: Progress | None = None) -> None:
        self.client = client
        self._progress = progress
        self._id = uuid.uuid4().hex[:16]
        self._started: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._foreign: set[Any] = set()
        self._wait = PatientWait(client, Awaited(self._has, self._names), give_up=self.cancel)

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], stage: str | None = None
    ) -> list[Handle]:
        n = len(columns[0])
        if not n:
            return []
        futures = self.client.map(guarded, [function] * n, *columns, key=self._key(function), pure=False)
        for i, (future, *row) in enumerate(zip(futures, *columns, strict=True), 1):
            self._started[future] = f"{_words(function)} {i} of {n}{_labels(row)}"
        return list(futures)

    def submit(self, function: Callable[..., Any], *arguments: Any, priority: int = 0) -> Handle:
        key = f"{self._key(function)}-{uuid.uuid4().hex}"
        future = self.client.submit(guarded, function, *arguments, key=key, pure=False, priority=priority)
        self._started[future] = f"{_words(function)}{_labels(arguments)}"
        return future

    def compute(self, tasks: Sequence[Any]) -> list[Handle]:
        futures = self.client.compute(list(tasks))
        for i, future in enumerate(futures, 1):
            self._started[future] = f"collection partition {i} of {len(futures)}"
        for task in tasks[:1]:  # all have the graph of the whole collection
            self._foreign.update(task.__dask_graph__().keys())
        return list(futures)

    def share(self, value: Any) -> Handle:
        import dask

        # unlike scattered data, the argument of a task can be computed again when its worker is lost
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            shared = self.submit(_identity, value)
        spread(self.client, shared, timeout=SPREAD_SECONDS)
        return shared

    def results(self, handles: Sequence[Handle], *, stage: str | None = None) -> list[Any]:
        positions = {future.key: i for i, future in enumerate(handles)}
        values: list[Any] = [None] * len(handles)
        completed = self._completed(handles)
        done = 0
        while not completed.is_empty():
            future, outcome = self._next(completed, stage)
            values[positions[future.key]] = self._value_of(future, outcome)
            done += 1
            if stage is not None and self._progress is not None:
                self._progress(stage, done, len(handles))
        return values

    def stream(
        self, function: Callable[..., Any], rows: Iterable[tuple[Any, ...]], *, n: int, stage: str
    ) -> Iterator[tuple[int, Any]]:
        remaining = enumerate(rows)
        numbers: dict[str, int] = {}
        errors: dict[int, DsldaError] = {}
        done = 0
        completed = self._completed(())
        while True:
            with reporting_loss(self.client):
                most = PER_THREAD * max(sum(self.client.nthreads().values()), 1)
                while not errors and len(numbers) < most and (following := next(remaining, None)) is not None:
                    number, row = following
                    future = self.submit(function, *row)
                    numbers[future.key] = number
                    completed.add(future)
            if not numbers:
                break
            future, outcome = self._next(completed, stage)
            number = numbers.pop(future.key)
            try:
                value = self._value_of(future, outcome)
            except DsldaError as error:
                errors[number] = error
                continue
            finally:
                future.release()
            done += 1
            yield number, value
            if self._progress is not None:
                self._progress(stage, done, n)
        if errors:
            raise errors[min(errors)]

    def cancel(self) -> None:
        # not client.cancel: for a task that only other tasks need, as in a tree of sums, the scheduler fails and drops the
        # client (stimulus_cancel in distributed 2026.8: assert ts.who_wants)
        with suppress(Exception):  # the cluster may be what failed
            for future in list(self._started):
                future.release()

    def _completed(self, futures: Sequence[Any]) -> Any:
        from distributed import as_completed

        return as_completed(futures, loop=self.client.loop, with_results=True, raise_errors=False)

    def _next(self, completed: Any, stage: str | None) -> tuple[Any, Any]:
        """The next future that ends, and its outcome."""

        def ready(seconds: float) -> bool:
            with completed.thread_condition:
                if not completed.has_ready():
                    completed.thread_condition.wait(seconds)
            return bool(completed.has_ready())

        self._wait.until(ready, "a step between two stages" if stage is None else stage_in_words(stage))
        result: tuple[Any, Any] = next(completed)
        return result

    def _value_of(self, future: Any, outcome: Any) -> Any:
        """The value of a future that has ended; raise its error, or an EngineError if the cluster failed."""
        from distributed import CancelledError, KilledWorker

        if isinstance(outcome, CancelledError):
            if self.client.status != "running":
                raise no_scheduler(self.client) from outcome
            raise EngineError(
                f"the cluster must keep its tasks until they are done, got one cancelled ({outcome})",
                remedy="if its scheduler was stopped, start one and run this again",
            ) from outcome
        if future.status == "error":
            _, error, trace = outcome
            if isinstance(error, KilledWorker):
                raise EngineError(
                    f"a worker died again and again ({error}), most often since it ran out of memory{self._wait.last_stall}",
                    remedy=("give workers more memory", "cut the input into smaller files"),
                ) from error
            raise error.with_traceback(trace)
        return _value(outcome)

    def _key(self, function: Callable[..., Any]) -> str:
        return f"dslda-{function.__name__}-{self._id}"

    def _has(self, key: Any) -> bool:
        """True if a task is one of ours, or of the collection being counted."""
        return key in self._foreign or (isinstance(key, str) and f"-{self._id}-" in key)

    def _names(self, keys: Collection[Any]) -> list[str]:
        """The work of tasks in words."""
        from dask.utils import key_split

        started = {future.key: words for future, words in list(self._started.items())}
        # a task whose future is gone may continue for tasks that need it
        return sorted({started.get(key) or key_split(key) for key in keys})


def _words(function: Callable[..., Any]) -> str:
    """The work of a function in words."""
    return function.__name__.strip("_").replace("_", " ")


def _labels(arguments: Iterable[Any]) -> str:
    """A task's input or piece of a file, if one of the arguments names it."""
    for argument in arguments:
        pieces = argument if isinstance(argument, tuple) else (argument,)
        for piece in pieces[:1]:
            label = getattr(piece, "label", None) or getattr(getattr(piece, "file", None), "name", None)
            if isinstance(label, str):
                return f" ({label}, ...)" if len(pieces) > 1 else f" ({label})"
    return ""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """An input or output error that a task returns, since the worker would log a traceback if the task raised it."""

    error: DsldaError


def guarded(function: Callable[..., T], *arguments: Any) -> T | TaskFailure:
    """Call a function in a task; return its input or output error, or a failure among its arguments, as a value."""
    for argument in arguments:
        if isinstance(argument, TaskFailure):
            return argument
    try:
        return function(*arguments)
    except (InputError, OutputError, FormatError) as error:
        return TaskFailure(error.with_traceback(None))


def merge_in_tree(runner: Runner, handles: Sequence[Handle], merge: Callable[..., Any]) -> Handle:
    """Merge values in a tree of fixed shape, eight at a time in order."""
    level = list(handles)
    height = 0
    while len(level) > 1:
        height += 1
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        # without a rising priority, leaves pile up before the first sum
        level = [g[0] if len(g) == 1 else runner.submit(merge, *g, priority=10 * height) for g in groups]
    return level[0]


def _value(value: Any) -> Any:
    if isinstance(value, TaskFailure):
        raise value.error
    return value


def _identity(value: T) -> T:
    return value
