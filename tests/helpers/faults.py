"""What goes wrong in the tests of a cluster: signals in the middle of a fit, and partitions that do harm."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from dslda.corpus.block import DocumentBlock
from dslda.engine.data.fit_source import CorpusSource


class AtPartition:
    """Does something once, when the n-th partition of a fit is done. Given as its progress."""

    def __init__(self, action: Callable[[], Any], *, at: int) -> None:
        self.action = action
        self.left = at

    def partition(self, n_documents: int) -> None:
        self.left -= n_documents > 0
        if self.left == 0:
            self.action()

    def started(self, *_: Any) -> None: ...
    def iteration(self, _: Any) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None: ...


class Signaller(AtPartition):
    """Sends a signal to processes."""

    def __init__(self, pids: list[int], number: int, *, at: int) -> None:
        super().__init__(lambda: [os.kill(pid, number) for pid in pids], at=at)


@dataclass(frozen=True)
class Trap:
    """Reads a partition, after doing something if it is the one."""

    reader: Callable[[], DocumentBlock]
    before: Callable[[], Any] | None

    def __call__(self) -> DocumentBlock:
        if self.before is not None:
            self.before()
        return self.reader()


class TrappedSource(CorpusSource):
    """A corpus with one partition before the reading of which something happens."""

    def __init__(self, problem: Any, partition: int, before: Callable[[], Any]) -> None:
        super().__init__(problem.corpus, design=problem.source.design)
        self.partition, self.before = partition, before

    def reader(self, partition: int) -> Callable[[], DocumentBlock]:
        return Trap(super().reader(partition), self.before if partition == self.partition else None)
