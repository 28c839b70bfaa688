"""Ctrl-C and SIGTERM: both end a command in the same way, and neither may cost a model that is being saved."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from dslda.cli.logs import information

if TYPE_CHECKING:
    from dslda.engine.em import IterationRecord
    from dslda.engine.progress import FitProgress
    from dslda.variational.parameters import FitSpec

__all__ = ["HoldWhenDone", "Interrupts"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GIVE_UP_AT = 3


class Interrupts:
    """Handles both signals while it is entered: each raises KeyboardInterrupt, unless they are held.

    Attributes
    ----------
    seen : int or None
        The first signal that came.
    """

    def __init__(self) -> None:
        self.seen: int | None = None
        self._n_seen = 0
        self._held = False
        self._json_logs = False
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """What a shell reports of a process that the signal ended: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (signal.SIGINT if self.seen is None else self.seen)

    def hold(self, *, json_logs: bool) -> None:
        """From now on only remember signals, and say so; the third, whenever the others came, is obeyed all the same."""
        self._held, self._json_logs = True, json_logs

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # one that the caller ignores, as nohup does, or handles, stays his
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.seen = number if self.seen is None else self.seen
        self._n_seen += 1
        if not self._held or self._n_seen >= GIVE_UP_AT:
            raise KeyboardInterrupt
        with contextlib.suppress(OSError):
            # not through sys.stderr, whose lock the interrupted code may hold
            os.write(
                2, information("saving the model; a third interrupt gives it up", json_logs=self._json_logs)
            )


class HoldWhenDone:
    """A fit's progress that holds further interrupts from the moment the fit has ended, or was interrupted.

    The moment is exact: the fit catches what is raised before it leaves its progress, and keeps its last
    complete iteration.
    """

    def __init__(self, progress: FitProgress, interrupts: Interrupts, *, json_logs: bool) -> None:
        self._progress = progress
        self._interrupts = interrupts
        self._json_logs = json_logs

    def started(self, n_documents: int, n_partitions: int, spec: FitSpec) -> None:
        self._progress.started(n_documents, n_partitions, spec)

    def resumed(self, trace: Sequence[IterationRecord]) -> None:
        self._progress.resumed(trace)

    def partition(self, n_documents: int) -> None:
        self._progress.partition(n_documents)

    def iteration(self, record: IterationRecord) -> None:
        self._progress.iteration(record)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.hold(json_logs=self._json_logs)
        self._progress.__exit__(kind, error, trace)
