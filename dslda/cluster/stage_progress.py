"""Progress of ingestion and scoring: a bar on a terminal, a line in a notebook, log lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from dslda.wording import stage_in_words

__all__ = ["NotebookLine", "Progress", "in_notebook", "log_tenths", "stage_progress"]

Progress: TypeAlias = Callable[[str, int, int], None]
"""Receives the stage, such as "read", the number of tasks done, and the number of all tasks."""

LOGGED_STEPS = 10
UNITS = {"predict": "documents", "fit": "fits", "start": "starts", "replicate": "resamples"}
"""What a stage counts, if not tasks."""
QUICK_SECONDS = 2.0
"""Work that ends sooner shows nothing."""


@contextmanager
def stage_progress(progress: Progress | None = None) -> Iterator[Progress]:
    """The progress of the caller, or the one that suits where this process shows its output."""
    if progress is not None:
        yield progress
    elif in_notebook():
        yield _in_line(NotebookLine())
    elif sys.stderr is not None and sys.stderr.isatty():
        with ExitStack() as stack:
            yield _bars(stack)
    else:
        yield log_tenths


def log_tenths(stage: str, done: int, total: int) -> None:
    """Log every tenth of a stage of many tasks."""
    if total >= LOGGED_STEPS and done * LOGGED_STEPS // total > (done - 1) * LOGGED_STEPS // total:
        logging.getLogger("dslda.engine").info(
            "%s: %d of %d %s",
            stage_in_words(stage),
            done,
            total,
            UNITS.get(stage, "tasks"),
            extra={"stage": stage, "done": done, "of": total},
        )


def in_notebook() -> bool:
    """True in the kernel of a notebook."""
    # a notebook always has IPython imported
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class NotebookLine:
    """A line below the cell of a notebook, which changes and stays."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, line: str) -> None:
        from IPython.display import display

        data = {"text/plain": line}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _bars(stack: ExitStack) -> Progress:
    """A bar for each stage, from the moment at which the work is not quick; removed when the stack ends."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=Console(stderr=True), transient=True)
    stack.callback(bars.stop)
    began = time.monotonic()
    tasks: dict[str, Any] = {}
    started = False

    def show(stage: str, done: int, total: int) -> None:
        nonlocal started
        if stage not in tasks:
            tasks[stage] = bars.add_task(stage_in_words(stage), total=total)
        bars.update(tasks[stage], completed=done, total=total)
        if not started and time.monotonic() - began > QUICK_SECONDS:
            started = True
            bars.start()

    return show


def _in_line(line: NotebookLine) -> Progress:
    began = time.monotonic()

    def show(stage: str, done: int, total: int) -> None:
        if time.monotonic() - began > QUICK_SECONDS:
            line.show(f"{stage_in_words(stage)}: {done:,} of {total:,}")

    return show
