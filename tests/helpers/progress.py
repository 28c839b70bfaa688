"""Progress objects with which a test acts in the middle of a fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

__all__ = ["AtIteration", "AtPartition", "Signaller", "SilentProgress", "interrupt"]


class SilentProgress:
    """Reports nothing; a test overrides the step that it acts at."""

    def started(self, *_: Any) -> None: ...
    def resumed(self, *_: Any) -> None: ...
    def partition(self, *_: Any) -> None: ...
    def iteration(self, *_: Any) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None: ...


class AtPartition(SilentProgress):
    """Acts once, when the n-th partition of a fit is done."""

    def __init__(self, action: Callable[[], Any], *, at: int) -> None:
        self.action = action
        self.left = at

    def partition(self, n_documents: int) -> None:
        self.left -= n_documents > 0
        if self.left == 0:
            self.action()


class AtIteration(SilentProgress):
    """Acts once, when the n-th iteration of this run is complete."""

    def __init__(self, action: Callable[[], Any], *, at: int) -> None:
        self.action = action
        self.left = at
        self.resumed_from: list[int] = []

    def resumed(self, trace: Any) -> None:
        self.resumed_from.append(len(trace))

    def iteration(self, record: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.action()


class Signaller(AtPartition):
    """Sends a signal to processes."""

    def __init__(self, pids: list[int], number: int, *, at: int) -> None:
        super().__init__(lambda: [os.kill(pid, number) for pid in pids], at=at)


def interrupt() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt
