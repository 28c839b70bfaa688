"""What the command line shows of long work, beside what the library shows by itself."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from dslda.engine.progress import LogProgress
from dslda.wording import stage_in_words

if TYPE_CHECKING:
    from dslda.engine.em import IterationRecord

__all__ = ["JsonProgress", "ingest_progress"]

logger = logging.getLogger("dslda.engine")

LOGGED_STEPS = 10


class JsonProgress(LogProgress):
    """Logs every iteration with all its measurements as fields."""

    def iteration(self, record: IterationRecord) -> None:
        logger.info("iteration %d", record.iteration, extra={"event": "iteration", **asdict(record)})


@contextmanager
def ingest_progress(*, json_logs: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal, or a log line for every tenth of a stage elsewhere."""
    if json_logs or not sys.stderr.isatty():
        yield _log_tenths
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        tasks = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage_in_words(stage), total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield show


def _log_tenths(stage: str, done: int, total: int) -> None:
    if total >= LOGGED_STEPS and done * LOGGED_STEPS // total > (done - 1) * LOGGED_STEPS // total:
        logger.info(
            "%s: %d of %d tasks",
            stage_in_words(stage),
            done,
            total,
            extra={"stage": stage, "done": done, "of": total},
        )
