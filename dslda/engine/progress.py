"""Progress of a fit: on a terminal, in a notebook, in the log, or in an object of the caller."""

from __future__ import annotations

import logging
import math
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from dslda.cluster.stage_progress import NotebookLine, in_notebook
from dslda.engine.em import IterationRecord, remaining_iterations
from dslda.variational.parameters import FitSpec
from dslda.wording import number_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = [
    "FitProgress",
    "LogProgress",
    "NotebookProgress",
    "TerminalProgress",
    "default_progress",
    "logging_after",
]

logger = logging.getLogger("dslda.engine")

TIMED_ITERATIONS = 5


class FitProgress(Protocol):
    """Follows every step of a fit. Entered before the first step and left after the last, whatever happens."""

    def started(self, n_documents: int, n_partitions: int, spec: FitSpec) -> None:
        """The fit begins; every iteration goes over this many documents."""

    def resumed(self, trace: Sequence[IterationRecord]) -> None:
        """The fit continues after these iterations of an earlier run; called only if there are some."""

    def partition(self, n_documents: int) -> None:
        """Count more documents of the iteration as done, or fewer if negative; another thread may call this."""

    def iteration(self, record: IterationRecord) -> None:
        """An iteration is complete."""

    def interruptible(self) -> AbstractContextManager[None]:
        """Entered for work after the fit, without which its model is complete: an interrupt ends this work alone."""
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _TraceProgress(FitProgress):
    """Keeps the iterations of a fit, and counts the documents of the current one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trace: list[IterationRecord] = []
        self._done = 0
        self._n_documents = 0

    def started(self, n_documents: int, n_partitions: int, spec: FitSpec) -> None:
        self._n_documents, self._spec = n_documents, spec

    def resumed(self, trace: Sequence[IterationRecord]) -> None:
        self._trace.extend(trace)

    @property
    def _what(self) -> str:
        return "conditional training" if self._spec.objective == "conditional" else "EM"

    def _state(self) -> str:
        """Rate and result of the last iteration, and the estimated time to go."""
        last = self._trace[-1]
        return f"{last.documents_per_second:,.0f} documents/s, {_result(last, '.6g', '.1e')}{self._to_go()}"

    def _to_go(self) -> str:
        """The time until the fit ends, after a comma; empty if there is no estimate."""
        if self._spec.objective == "conditional":
            return ""  # it ends when the inner part says so
        n_left = remaining_iterations(self._trace, self._spec)
        if n_left is None:
            return ""
        # the median: one iteration may have waited for a worker, and the first for its kernels to be compiled
        rate = statistics.median(record.documents_per_second for record in self._trace[-TIMED_ITERATIONS:])
        return f", about {_duration(n_left * self._n_documents / max(rate, 1e-9))} to go"


class LogProgress(_TraceProgress):
    """A line in the log ``dslda.engine`` for every iteration, and one a minute within long ones."""

    EVERY_SECONDS = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._began = self._logged = time.monotonic()

    def started(self, n_documents: int, n_partitions: int, spec: FitSpec) -> None:
        super().started(n_documents, n_partitions, spec)
        logger.info(
            "%s over %s in %s: %s, at most %s",
            self._what,
            number_of(n_documents, "document"),
            number_of(n_partitions, "partition"),
            number_of(spec.n_topics, "topic"),
            number_of(spec.max_iter, "iteration"),
        )

    def partition(self, n_documents: int) -> None:
        with self._lock:
            self._done += n_documents
            now = time.monotonic()
            if now - self._logged < self.EVERY_SECONDS:
                return
            self._logged = now
            rate = self._done / max(now - self._began, 1e-9)
            logger.info(
                "iteration %d: %s documents, %s documents/s",
                len(self._trace) + 1,
                f"{self._done:,} of {self._n_documents:,}",
                f"{rate:,.0f}",
            )

    def iteration(self, record: IterationRecord) -> None:
        with self._lock:
            self._trace.append(record)
            self._done = 0
            self._began = self._logged = time.monotonic()
        logger.info(
            "iteration %d: %s, %.1f sweeps/document, %s documents/s%s",
            record.iteration,
            _result(record, ".8g", ".2e"),
            record.sweeps_per_document,
            f"{record.documents_per_second:,.0f}",
            self._to_go(),
            extra={"event": "iteration", **asdict(record)},
        )


class TerminalProgress(_TraceProgress):
    """A bar on standard error: documents of this iteration, documents/s, and an estimate of the rest."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__()
        self._progress: Progress = Progress(
            TextColumn("[bold]{task.description}"),
            TextColumn("iteration {task.fields[number]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} documents"),
            TextColumn("{task.fields[text]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: TaskID

    def started(self, n_documents: int, n_partitions: int, spec: FitSpec) -> None:
        super().started(n_documents, n_partitions, spec)
        self._task = self._progress.add_task(self._what, total=n_documents, number=1, text="")

    def resumed(self, trace: Sequence[IterationRecord]) -> None:
        super().resumed(trace)
        self._progress.update(self._task, number=len(self._trace) + 1)

    def partition(self, n_documents: int) -> None:
        self._progress.advance(self._task, n_documents)

    def iteration(self, record: IterationRecord) -> None:
        self._trace.append(record)
        self._progress.update(
            self._task,
            completed=0,
            number=min(record.iteration + 1, self._spec.max_iter),
            text=self._state(),
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class NotebookProgress(_TraceProgress):
    """A line below the cell of a notebook, which changes during the fit and stays at its end."""

    EVERY_SECONDS = 0.5

    def __init__(self) -> None:
        super().__init__()
        self._displayed = -math.inf
        self._line = NotebookLine()

    def started(self, n_documents: int, n_partitions: int, spec: FitSpec) -> None:
        super().started(n_documents, n_partitions, spec)
        self._show()

    def partition(self, n_documents: int) -> None:
        with self._lock:
            self._done += n_documents
            self._show()

    def iteration(self, record: IterationRecord) -> None:
        with self._lock:
            self._trace.append(record)
            self._done = 0
            self._show()

    def __exit__(self, *_: object) -> None:
        if self._trace:
            last = self._trace[-1]
            count = number_of(last.iteration, "iteration")
            self._line.show(f"{self._what}: {count}, {_result(last, '.6g', '.1e')}")

    def _show(self) -> None:
        if time.monotonic() - self._displayed < self.EVERY_SECONDS:
            return
        self._displayed = time.monotonic()
        number = min(len(self._trace) + 1, self._spec.max_iter)
        state = f"; {self._state()}" if self._trace else ""
        self._line.show(
            f"{self._what} iteration {number}: {self._done:,}/{self._n_documents:,} documents{state}"
        )


def default_progress() -> FitProgress:
    """A line in a notebook, a bar where standard error is a terminal, log lines otherwise."""
    if in_notebook():
        return NotebookProgress()
    return TerminalProgress() if sys.stderr is not None and sys.stderr.isatty() else LogProgress()


@contextmanager
def logging_after(seconds: float, message: str) -> Iterator[None]:
    """Log a message if the body takes longer than `seconds`."""
    timer = threading.Timer(seconds, logger.info, [message])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _result(record: IterationRecord, digits: str, digits_of_change: str) -> str:
    """The ELBO and its change, or what words are worth to the responses of the inner part, which are set aside."""
    if not math.isnan(record.inner_gain):
        return f"words add {record.inner_gain:.4g} to the log-likelihood of a response set aside"
    change = f" (changed by {record.relative_change:{digits_of_change}})"
    return f"ELBO {record.elbo:{digits}}{'' if record.iteration == 1 else change}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
