"""Placement of partitions: in the memory of a worker, or read again wherever they are needed."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslda.cluster.client import release, wait_for
from dslda.engine.dask.tasks import Reading, read_bundle
from dslda.engine.dask.worker_memory import (
    WorkerMemory,
    check_parameters_fit,
    in_words,
    room_for_documents,
    working_memory,
)
from dslda.engine.data.fit_source import FitSource, FutureSource
from dslda.engine.data.training_view import TrainingBlock
from dslda.exceptions import EngineError
from dslda.variational.parameters import FitSpec
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = [
    "BorrowedPartitions",
    "Partitions",
    "ResidentPartitions",
    "StreamedPartitions",
    "contiguous_owners",
    "place",
]

logger = logging.getLogger("dslda.engine")

HEAL_PATIENCE = 5.0
"""Seconds for reads under way to finish before lost partitions are read again."""


class Partitions(ABC):
    """The partitions of a source on a cluster."""

    @abstractmethod
    def reading(self, partition: int) -> Reading:
        """The way in which a task gets a partition."""

    @abstractmethod
    def held(self, partitions: Sequence[int]) -> dict[int, Future[Any]]:
        """Futures of the partitions that workers keep; see :data:`~dslda.engine.dask.tasks.Held`."""

    @abstractmethod
    def owners(self, groups: Sequence[Sequence[int]]) -> list[str | None]:
        """For each group of partitions, the worker that holds most of it; None if that does not matter."""

    def drop(self) -> set[int]:
        """Release all that can be read again, until :meth:`heal`; return the partitions that were not yet read."""
        return set()

    def leave(self, workers: Collection[str]) -> None:
        """Release the data that these workers hold or read, until :meth:`heal`. Called before they are restarted."""
        return

    def heal(self) -> None:
        """Make sure, after workers were lost, that every partition exists or is being read."""
        return

    def close(self) -> None:
        """Forget the partitions."""
        self.drop()


class StreamedPartitions(Partitions):
    """Partitions that every task reads anew, for corpora larger than the workers' memory."""

    def __init__(self, source: FitSource) -> None:
        self._loaders = [source.loader(i) for i in range(source.n_partitions)]

    def reading(self, partition: int) -> Reading:
        return self._loaders[partition]

    def held(self, partitions: Sequence[int]) -> dict[int, Future[Any]]:
        return {}

    def owners(self, groups: Sequence[Sequence[int]]) -> list[str | None]:
        return [None] * len(groups)


class ResidentPartitions(Partitions):
    """Partitions read once and kept in the workers' memory; if there are thousands, neighbours share a future.

    They are results of tasks that read them, so that Dask reads a lost one again. Documents are never scattered
    (distributed#3149: scattered data is lost with its worker).

    Parameters
    ----------
    client : distributed.Client
    source : FitSource
    fit : str
        Makes keys unique.
    groups : sequence of sequence of int
        Consecutive partitions of a task. They are placed together, and neighbours beside each other, so that sums run where
        their terms are.
    bundles : sequence of sequence of int
        Consecutive partitions that one task reads and one future keeps; a group is one or several bundles.
    """

    def __init__(
        self,
        client: Client,
        source: FitSource,
        fit: str,
        groups: Sequence[Sequence[int]],
        bundles: Sequence[Sequence[int]],
    ) -> None:
        self._client = client
        self._bundles = bundles
        self._owners = _Owners(client)
        self._loaders = [source.loader(i) for i in range(source.n_partitions)]
        self._descriptions = [source.describe(i) for i in range(source.n_partitions)]
        self._fit = fit
        self._generation = 0
        weights = np.array([int(source.nbytes[list(group)].sum()) for group in groups])
        threads = client.nthreads()
        # With one worker there is no choice, and a pin could only do harm: see `_load`.
        planned = contiguous_owners(weights, threads) if len(threads) > 1 else [None] * len(groups)
        of_partition = {i: owner for group, owner in zip(groups, planned, strict=True) for i in group}
        self._planned = [of_partition[bundle[0]] for bundle in bundles]
        self._futures = [self._load(i, worker) for i, worker in enumerate(self._planned)]

    def reading(self, partition: int) -> Reading:
        return None if self._futures else self._loaders[partition]

    def held(self, partitions: Sequence[int]) -> dict[int, Future[Any]]:
        if not self._futures:
            return {}
        return {self._bundles[i][0]: self._futures[i] for i in self._of(partitions)}

    def owners(self, groups: Sequence[Sequence[int]]) -> list[str | None]:
        return self._owners.of([self._of(group) for group in groups], self._futures, self._planned)

    def drop(self) -> set[int]:
        unread = {
            partition
            for bundle, future in zip(self._bundles, self._futures, strict=False)
            if future.status != "finished"
            for partition in bundle
        }
        release(self._futures)
        self._futures = []
        return unread

    def leave(self, workers: Collection[str]) -> None:
        # This includes data that other workers hold too: a fetch from a worker that stands still never ends, even when the
        # scheduler has forgotten that worker, and until it ends a result of the same key is of no use.
        holders = self._client.who_has(self._futures)
        release(
            [f for f in self._futures if f.status != "finished" or set(holders.get(f.key, ())) & set(workers)]
        )

    def heal(self) -> None:
        _wait_a_little(self._client, self._futures)
        self._owners.forget()
        present = {i: future for i, future in enumerate(self._futures) if future.status == "finished"}
        lost = [i for i in range(len(self._bundles)) if i not in present]
        if not lost:
            return
        n_lost = sum(len(self._bundles[i]) for i in lost)
        logger.info("reading %d of %d partitions again", n_lost, len(self._loaders))
        release([future for future in self._futures if future.status != "finished"])
        self._generation += 1
        for i in lost:
            self._planned[i] = None
            present[i] = self._load(i, None)
        self._futures = [present[i] for i in range(len(self._bundles))]

    def _of(self, partitions: Sequence[int]) -> list[int]:
        """Numbers of the bundles of partitions; all bundles but the last are as wide as the first."""
        width = len(self._bundles[0])
        return sorted({partition // width for partition in partitions})

    def _load(self, bundle: int, worker: str | None) -> Future[list[TrainingBlock]]:
        # The key is never used again, since one key for two tasks corrupts the scheduler (dask#9888). If all workers that a
        # task is pinned to are dead and there is no other, it does not run when new ones join, although the pins are loose
        # (related: distributed#7346, #8600). So a read that replaces a lost partition has no pin.
        start, stop = self._bundles[bundle][0], self._bundles[bundle][-1] + 1
        return self._client.submit(
            read_bundle,
            self._loaders[start:stop],
            self._descriptions[start:stop],
            key=(f"dslda-load-{self._fit}", self._generation, start, stop),
            workers=None if worker is None else [worker],
            allow_other_workers=worker is not None,
            retries=1,
        )


class BorrowedPartitions(Partitions):
    """Blocks of a :class:`~dslda.engine.data.fit_source.FutureSource`, which its owner keeps on the workers."""

    def __init__(self, client: Client, source: FutureSource) -> None:
        self._client = client
        self._futures = source.futures
        self._views = [source.view(i) for i in range(source.n_partitions)]
        self._owners = _Owners(client)

    def reading(self, partition: int) -> Reading:
        # the E-step takes the view, since Dask would count the arrays of a view that is a result twice
        return self._views[partition]

    def held(self, partitions: Sequence[int]) -> dict[int, Future[Any]]:
        return {partition: self._futures[partition] for partition in partitions}

    def owners(self, groups: Sequence[Sequence[int]]) -> list[str | None]:
        return self._owners.of(groups, self._futures, [None] * len(self._futures))

    def heal(self) -> None:
        _wait_a_little(self._client, self._futures)
        self._owners.forget()
        failed = [future for future in self._futures if future.status == "error"]
        if failed:
            self._client.retry(failed)
        for i, future in enumerate(self._futures):
            if future.status in ("cancelled", "lost"):
                raise EngineError(
                    f"partition {i} of the documents was lost with its worker and cannot be computed again "
                    "from the collection it came from",
                    remedy=("persist nothing that was scattered", "ingest the collection to a corpus"),
                )


def place(
    client: Client,
    source: FitSource,
    spec: FitSpec,
    fit: str,
    groups: Sequence[Sequence[int]],
    *,
    level: int,
    bundles: Sequence[Sequence[int]],
    resident_fraction: float,
) -> Partitions:
    """Bring the partitions of a source to a cluster; keep them in memory if the work leaves room for them.

    Parameters
    ----------
    client, source, fit, groups, bundles
        See :class:`ResidentPartitions`.
    spec : FitSpec
    level : int
        Level of the tree of sums that one task computes.
    resident_fraction : float
        Fraction of the memory left by parameters and sums that documents may fill.

    Raises
    ------
    InputError
        Parameters and sums do not fit into a worker.
    """
    information = client.scheduler_info(n_workers=-1)["workers"].values()
    workers = [WorkerMemory(w["memory_limit"] or math.inf, w["nthreads"]) for w in information]
    least = min((worker.limit for worker in workers), default=math.inf)
    check_parameters_fit(spec, source.n_terms, least, who="a worker")
    if isinstance(source, FutureSource):
        return BorrowedPartitions(client, source)
    size = int(source.nbytes.sum())
    room = room_for_documents(workers, source, spec, level=level, fraction=resident_fraction)
    resident = size <= room
    logger.info(
        "the documents take %s, and there is room for %s beside parameters and sums in %s of %s: %s",
        in_words(size),
        in_words(room),
        number_of(len(workers), "worker"),
        " or ".join(in_words(limit) for limit in sorted({w.limit for w in workers})),
        "they stay in memory" if resident else "each partition is read again in every iteration",
    )
    for worker in workers:
        needed = working_memory(source, spec, threads=worker.threads, level=level)
        if needed > worker.limit:
            logger.warning(
                "a worker of %s with %s may need %s for parameters, sums and the partitions it is reading: give it "
                "more memory or fewer threads, or choose fewer topics or terms",
                in_words(worker.limit),
                number_of(worker.threads, "thread"),
                in_words(needed),
            )
            break
    if not resident:
        return StreamedPartitions(source)
    return ResidentPartitions(client, source, fit, groups, bundles)


def contiguous_owners(weights: NDArray[np.int64], threads: Mapping[str, int]) -> list[str]:
    """A worker for each of the consecutive groups, in contiguous blocks of weights in proportion to threads.

    `weights` has shape (G,), `threads` at least one worker.
    """
    workers = sorted(threads)
    shares = np.cumsum([threads[w] for w in workers]) / sum(threads.values())
    total = max(float(weights.sum()), 1.0)
    centres = (np.cumsum(weights) - weights / 2) / total
    return [workers[i] for i in np.minimum(np.searchsorted(shares, centres, side="right"), len(workers) - 1)]


class _Owners:
    """Finds for each group of futures the worker that holds most of it.

    It asks the scheduler again only while results are missing, and when workers join or leave: a worker that passes a
    result to another one keeps it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answer: tuple[frozenset[str], dict[Any, Collection[str]]] | None = None

    def of(
        self, groups: Sequence[Sequence[int]], futures: Sequence[Future[Any]], planned: Sequence[str | None]
    ) -> list[str | None]:
        alive = frozenset(self._client.nthreads())
        if len(alive) == 1:
            return [None] * len(groups)
        holders = self._holders(alive, futures)
        owners: list[str | None] = []
        for group in groups:
            votes: Counter[str] = Counter()
            for i in group:
                # partitions that are still being read count for their planned worker
                votes.update(holders.get(futures[i].key) or [w for w in [planned[i]] if w is not None])
            present = [(n, worker) for worker, n in votes.items() if worker in alive]
            owners.append(max(present)[1] if present else None)
        return owners

    def forget(self) -> None:
        """Ask the scheduler again."""
        self._answer = None

    def _holders(
        self, alive: frozenset[str], futures: Sequence[Future[Any]]
    ) -> Mapping[Any, Collection[str]]:
        if self._answer is not None and self._answer[0] == alive:
            return self._answer[1]
        holders: dict[Any, Collection[str]] = self._client.who_has(futures)
        self._answer = (alive, holders) if all(holders.get(future.key) for future in futures) else None
        return holders


def _wait_a_little(client: Client, futures: Sequence[Future[Any]]) -> None:
    from distributed import CancelledError

    with suppress(TimeoutError, CancelledError):
        wait_for(client, futures, timeout=HEAL_PATIENCE)
