"""Reading the next partition while the current one is worked on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from dslda.engine.data.training_view import TrainingBlock

__all__ = ["ReadAhead"]


class ReadAhead:
    """Gives partitions in turn, each read on a thread of its own while the one before it is worked on.

    Two partitions are in memory at a time. Where files come from far away this hides the wait; on a local
    disk reading is a few percent of the work and there is little to hide.

    Parameters
    ----------
    readers : sequence of callable
        In the order in which :meth:`take` is called. Nothing is read before the first call.
    """

    def __init__(self, readers: Sequence[Callable[[], TrainingBlock]]) -> None:
        self._readers = readers
        self._next: tuple[int, Future[TrainingBlock]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dslda-read")

    def take(self, position: int) -> TrainingBlock:
        """The partition at a position, and a start on the one after it.

        Raises
        ------
        Exception
            Whatever its reader raised; a reader's error is no other partition's.
        """
        begun, self._next = self._next, None
        ahead = begun[1] if begun is not None and begun[0] == position else None
        block = self._readers[position]() if ahead is None else ahead.result()
        if position + 1 < len(self._readers):
            self._next = position + 1, self._thread.submit(self._readers[position + 1])
        return block

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._next = None
        self._thread.shutdown(cancel_futures=True)
