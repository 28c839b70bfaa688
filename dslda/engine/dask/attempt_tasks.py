"""The tasks of an attempt of an iteration, and the partitions that they are of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dslda.cluster.hung_workers import Key

__all__ = ["AttemptTasks"]


@dataclass(frozen=True, slots=True)
class AttemptTasks:
    """Knows tasks by their keys.

    Attributes
    ----------
    fit, attempt : str
        Parts of the keys.
    done : collection of int
        Partitions of tasks that go on.
    describe : callable
        Gives a partition in words.
    """

    fit: str
    attempt: str
    done: Collection[int]
    describe: Callable[[int], str]

    def has(self, key: Key) -> bool:
        """Whether the attempt waits for this task."""
        return isinstance(key, tuple) and (self.attempt in key[0] or key[0] == self._load)

    def named(self, keys: Collection[Key]) -> Sequence[str]:
        """The partitions that tasks read, or compute on; sums are of none."""
        found: set[int] = set()
        for name, *numbers in keys:
            if name in (self._load, f"dslda-estep-{self.attempt}"):
                found.update(range(*numbers[-2:]))
        return [self.describe(i) for i in sorted(found.difference(self.done))]

    @property
    def _load(self) -> str:
        return f"dslda-load-{self.fit}"
