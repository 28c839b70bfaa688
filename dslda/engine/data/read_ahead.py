"""Reading the next partition while the current one is worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    readers : iterable of callable
        Nothing is read before the first call of :meth:`take`.
    """

    def __init__(self, readers: Iterable[Callable[[], TrainingBlock]]) -> None:
        self._readers = iter(readers)
        self._ahead: Future[TrainingBlock] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dslda-read")

    def take(self) -> TrainingBlock:
        """The next partition, and a start on the one after it.

        Raises
        ------
        Exception
            Whatever its reader raised; a reader's error is no other partition's.
        """
        ahead, self._ahead = self._ahead, None
        block = next(self._readers)() if ahead is None else ahead.result()
        following = next(self._readers, None)
        if following is not None:
            self._ahead = self._thread.submit(following)
        return block

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ahead = None
        self._thread.shutdown(cancel_futures=True)
