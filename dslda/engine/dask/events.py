"""Events that workers send to the client while an iteration runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from dslda.cluster.health import Key
from dslda.engine.executor import PartitionListener

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["AttemptWatch", "EventHub"]

logger = logging.getLogger("dslda.engine")


class AttemptWatch:
    """Follows one attempt of an iteration: its finished partitions, and its tasks.

    Parameters
    ----------
    fit, attempt : str
        Parts of the keys of its tasks.
    partitions : collection of int
    describe : callable
        Names a partition in messages.
    on_partition : callable or None
        Called once for every partition that is done, from the client's event loop.
    """

    def __init__(
        self,
        fit: str,
        attempt: str,
        partitions: Collection[int],
        describe: Callable[[int], str],
        on_partition: PartitionListener | None,
    ) -> None:
        self.attempt = attempt
        self._e_step, self._load = f"dslda-estep-{attempt}", f"dslda-load-{fit}"
        self._partitions = partitions
        self._describe = describe
        self._on_partition = on_partition
        self._lock = threading.Lock()
        self._done: dict[int, int] = {}
        self._closed = False
        #: times of the perf_counter clock
        self.last_progress = time.perf_counter()
        self.last_partition: float | None = None

    def has(self, key: Key) -> bool:
        """True if the attempt waits for this task."""
        return isinstance(key, tuple) and (
            self.attempt in key[0] or not self._of(key).isdisjoint(self._partitions)
        )

    def names(self, keys: Collection[Key]) -> Sequence[str]:
        """The unfinished partitions that tasks read or compute on; sums have none."""
        worked_on = {partition for key in keys for partition in self._of(key)}
        with self._lock:
            unfinished = worked_on.intersection(self._partitions).difference(self._done)
        return [self._describe(i) for i in sorted(unfinished)]

    def _of(self, key: Key) -> set[int]:
        if key[0] not in (self._e_step, self._load):
            return set()
        start, stop = map(int, key[-2:])
        return set(range(start, stop))

    def partition_done(self, partition: int, n_documents: int) -> None:
        with self._lock:
            self.last_progress = self.last_partition = time.perf_counter()
            # a lost task that runs again reports its partitions again
            if self._closed or partition in self._done:
                return
            self._done[partition] = n_documents
            self._report(n_documents)

    def close(self, *, failed: bool) -> None:
        """Stop reporting; withdraw the reports if the attempt failed."""
        with self._lock:
            self._closed = True
            if failed and self._done:
                self._report(-sum(self._done.values()))

    def _report(self, n_documents: int) -> None:
        if self._on_partition is None:
            return
        try:
            self._on_partition(n_documents)
        except Exception:  # an error here would end the client's connection to the scheduler
            logger.exception("a progress listener failed")


class EventHub:
    """Passes the events of one client's fits to their watches, by attempt.

    Each client has one topic, since a scheduler keeps topics for ever and a client has one handler for each.
    """

    _hubs: ClassVar[WeakKeyDictionary[Client, EventHub]] = WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.watches: dict[str, AttemptWatch] = {}

    @classmethod
    def of(cls, client: Client) -> EventHub:
        """The hub of a client, subscribed."""
        with cls._lock:
            hub = cls._hubs.get(client)
            if hub is None:
                hub = cls._hubs[client] = cls(f"dslda-{client.id}")
                client.subscribe_topic(hub.topic, hub._handle)
        return hub

    def _handle(self, event: tuple[float, Mapping[str, Any]]) -> None:
        _, message = event
        watch = self.watches.get(message["attempt"])
        if watch is not None:
            watch.partition_done(message["partition"], message["documents"])
