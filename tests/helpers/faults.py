"""What goes wrong in the tests of a cluster: partitions that do harm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dslda.corpus.block import DocumentBlock
from dslda.engine.data.fit_source import CorpusSource


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
