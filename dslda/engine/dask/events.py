"""What workers tell the client while an iteration runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from dslda.engine.executor import PartitionListener

if TYPE_CHECKING:
    from distributed import Client, Worker

__all__ = ["AttemptWatch", "EventHub", "report_partition"]

logger = logging.getLogger("dslda.engine")


def report_partition(worker: Worker, topic: str, attempt: str, partition: int, n_documents: int) -> None:
    """Tell the client from within a task that a partition is done.

    An event, not a future of each leaf: a client that holds leaves to follow them keeps all their
    statistics in the workers' memory.
    """
    worker.log_event(topic, {"attempt": attempt, "partition": partition, "documents": n_documents})


class AttemptWatch:
    """Follows one attempt of an iteration.

    Parameters
    ----------
    on_partition : callable or None
        Called for every partition that is done, once, from the client's event loop.
    """

    def __init__(self, on_partition: PartitionListener | None) -> None:
        self._on_partition = on_partition
        self._lock = threading.Lock()
        self._done: dict[int, int] = {}
        self._closed = False
        #: times of the perf_counter clock
        self.last_progress = time.perf_counter()
        self.last_partition: float | None = None

    def partition_done(self, partition: int, n_documents: int) -> None:
        with self._lock:
            self.last_progress = self.last_partition = time.perf_counter()
            # a task that is lost and runs again reports its partitions again
            if self._closed or partition in self._done:
                return
            self._done[partition] = n_documents
            self._tell(n_documents)

    @property
    def done(self) -> frozenset[int]:
        """Partitions that are done."""
        with self._lock:
            return frozenset(self._done)

    def close(self, *, failed: bool) -> None:
        """Stop telling; take back what was told if the attempt failed."""
        with self._lock:
            self._closed = True
            if failed and self._done:
                self._tell(-sum(self._done.values()))

    def _tell(self, n_documents: int) -> None:
        if self._on_partition is None:
            return
        try:
            self._on_partition(n_documents)
        except Exception:  # an error here would end the client's connection to the scheduler
            logger.exception("a progress listener failed")


class EventHub:
    """Hands the events of one client's fits to their watches.

    One topic a client, since a scheduler keeps topics for ever and a client has one handler a topic.
    """

    _hubs: ClassVar[WeakKeyDictionary[Client, EventHub]] = WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._watches: dict[str, AttemptWatch] = {}

    @classmethod
    def of(cls, client: Client) -> EventHub:
        """The hub of a client, subscribed."""
        with cls._lock:
            hub = cls._hubs.get(client)
            if hub is None:
                hub = cls._hubs[client] = cls(f"dslda-{client.id}")
                client.subscribe_topic(hub.topic, hub._handle)
        return hub

    def watch(self, attempt: str, watch: AttemptWatch) -> None:
        self._watches[attempt] = watch

    def forget(self, attempt: str) -> None:
        self._watches.pop(attempt, None)

    def _handle(self, event: tuple[float, Mapping[str, Any]]) -> None:
        _, message = event
        watch = self._watches.get(message["attempt"])
        if watch is not None:
            watch.partition_done(message["partition"], message["documents"])
