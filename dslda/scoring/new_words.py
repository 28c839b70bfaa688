"""The most frequent words that a model does not know, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["FrequentWords"]

CAPACITY = 20_000
"""Words that are counted at a time, at most twice as many; some MB."""


class FrequentWords:
    """Counts words, and forgets rare ones when there are too many: the algorithm of Misra and Gries, in batches.

    When more than twice `capacity` words are held, the count of the one at rank `capacity` + 1 is taken off all counts, and
    words without any left are forgotten. So a count is never too high, and too low by at most :attr:`error`, which is below
    the words seen divided by `capacity`. What is counted is decided by the words and their order alone.

    Parameters
    ----------
    capacity : int

    Attributes
    ----------
    error : int
        By how much a count can be too low; 0 while nothing was forgotten.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.error = 0
        self._counts: dict[str, int] = {}

    def add(self, word: str, count: int) -> None:
        """Count a word."""
        self._counts[word] = self._counts.get(word, 0) + count
        if len(self._counts) > 2 * self.capacity:
            self._forget()

    def merge(self, words: Iterable[tuple[str, int]], error: int) -> None:
        """Count the words of another, whose counts may be too low by `error`."""
        self.error += error
        for word, count in words:
            self.add(word, count)

    def top(self, n: int) -> list[tuple[str, int]]:
        """The `n` most frequent words with their counts; of equals the first by the alphabet."""
        return sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:n]

    def rest(self, n: int) -> int:
        """The largest count of a word that is not among the `n` most frequent ones; 0 where there is none."""
        following = self.top(n + 1)[n:]
        return following[0][1] if following else 0

    def _forget(self) -> None:
        less = sorted(self._counts.values(), reverse=True)[self.capacity]
        self.error += less
        self._counts = {word: count - less for word, count in self._counts.items() if count > less}
