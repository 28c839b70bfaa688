"""Where partitions are: in the memory of which worker, or read again wherever they are needed."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dslda.cluster.futures import release, wait_for
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
"""Seconds that loads under way get to finish before a lost partition is read anew."""


class Partitions(Protocol):
    """The partitions of a source on a cluster."""

    def argument(self, group: range, *, kept: bool = True) -> tuple[list[Future[Any]], Sequence[Reading]]:
        """What a task is given for consecutive partitions: futures of what is kept of them, and how to come by each.

        With `kept` False, the task reads them where it can.
        """

    def owners(self, groups: Sequence[range]) -> list[str | None]:
        """For each group of partitions, the worker that holds most of it; None where that does not matter."""

    def drop(self) -> None:
        """Let go of all that can be read again, until :meth:`heal`."""

    def leave(self, workers: Collection[str]) -> None:
        """Let go of what these workers hold or read, until :meth:`heal`: before they are restarted."""

    def heal(self) -> None:
        """After workers were lost: make sure that every partition is there or on its way."""

    def close(self) -> None:
        """Forget the partitions."""


class StreamedPartitions:
    """Partitions that every task reads for itself: for corpora larger than the workers' memory."""

    def __init__(self, source: FitSource) -> None:
        self._loaders = [source.loader(i) for i in range(source.n_partitions)]

    def argument(self, group: range, *, kept: bool = True) -> tuple[list[Future[Any]], Sequence[Reading]]:
        return [], self._loaders[group.start : group.stop]

    def owners(self, groups: Sequence[range]) -> list[str | None]:
        return [None] * len(groups)

    def drop(self) -> None:
        pass

    def leave(self, workers: Collection[str]) -> None:
        pass

    def heal(self) -> None:
        pass

    def close(self) -> None:
        self._loaders = []


class ResidentPartitions:
    """Partitions read once and kept in the workers' memory, neighbours in one future where there are thousands.

    They are results of tasks that read them, so that Dask reads a lost one again; documents are never
    scattered (distributed#3149: scattered data goes with its worker).

    Parameters
    ----------
    client : distributed.Client
    source : FitSource
    fit : str
        Makes keys unique.
    groups : sequence of range
        Partitions that one task goes over; they are placed together, and neighbours beside each other, so
        that sums are made where their terms are.
    bundles : sequence of range
        Partitions that are read by one task and kept by one future; a group is one or several bundles.
    """

    def __init__(
        self,
        client: Client,
        source: FitSource,
        fit: str,
        groups: Sequence[range],
        bundles: Sequence[range],
    ) -> None:
        self._client = client
        self._bundles = bundles
        self._owners = _Owners(client)
        self._loaders = [source.loader(i) for i in range(source.n_partitions)]
        self._descriptions = [source.describe(i) for i in range(source.n_partitions)]
        self._fit = fit
        self._generation = 0
        weights = np.array([int(source.nbytes[group.start : group.stop].sum()) for group in groups])
        threads = client.nthreads()
        # With one worker there is nothing to choose, and a pin would only harm: see `_load`.
        planned = contiguous_owners(weights, threads) if len(threads) > 1 else [None] * len(groups)
        of_partition = {i: owner for group, owner in zip(groups, planned, strict=True) for i in group}
        self._planned = [of_partition[bundle.start] for bundle in bundles]
        self._futures = [self._load(i, worker) for i, worker in enumerate(self._planned)]

    def argument(self, group: range, *, kept: bool = True) -> tuple[list[Future[Any]], Sequence[Reading]]:
        if not kept:
            return [], self._loaders[group.start : group.stop]
        bundles = self._of(group)
        return self._futures[bundles.start : bundles.stop], [None] * len(group)

    def owners(self, groups: Sequence[range]) -> list[str | None]:
        return self._owners.of([self._of(group) for group in groups], self._futures, self._planned)

    def drop(self) -> None:
        release(self._futures)
        self._futures = []

    def leave(self, workers: Collection[str]) -> None:
        # Also those that others hold too: a worker that is fetching one from a worker that stands still does so for
        # ever, even when the scheduler has forgotten that worker, and so cannot use what goes by the same key.
        holders = self._client.who_has(self._futures)
        left = [
            f for f in self._futures if f.status != "finished" or set(holders.get(f.key, ())) & set(workers)
        ]
        release(left)

    def heal(self) -> None:
        _wait_a_little(self._client, self._futures)
        self._owners.forget()
        found = {i: future for i, future in enumerate(self._futures) if future.status == "finished"}
        lost = [i for i in range(len(self._bundles)) if i not in found]
        if not lost:
            return
        n_lost = sum(len(self._bundles[i]) for i in lost)
        logger.info("reading %d of %d partitions again", n_lost, len(self._loaders))
        release([future for future in self._futures if future.status != "finished"])
        self._generation += 1
        for i in lost:
            self._planned[i] = None
            found[i] = self._load(i, None)
        self._futures = [found[i] for i in range(len(self._bundles))]

    def close(self) -> None:
        self.drop()

    def _of(self, group: range) -> range:
        """Numbers of a group's bundles, which all have the width of the first but for the last."""
        width = len(self._bundles[0])
        return range(group.start // width, -(-group.stop // width))

    def _load(self, bundle: int, worker: str | None) -> Future[list[TrainingBlock]]:
        # The key is never used for another task: a key of two tasks corrupts the scheduler (dask#9888). A
        # task whose pins all point to dead workers, while no worker is there, is not run when new ones
        # join, although the pins are loose (related: distributed#7346, #8600); so what replaces a lost
        # partition has no pin.
        partitions = self._bundles[bundle]
        return self._client.submit(
            read_bundle,
            self._loaders[partitions.start : partitions.stop],
            self._descriptions[partitions.start : partitions.stop],
            key=(f"dslda-load-{self._fit}", self._generation, partitions.start, partitions.stop),
            workers=None if worker is None else [worker],
            allow_other_workers=worker is not None,
            retries=1,
        )


class BorrowedPartitions:
    """Blocks that someone else keeps on the workers, of a :class:`~dslda.engine.data.fit_source.FutureSource`."""

    def __init__(self, client: Client, source: FutureSource) -> None:
        self._client = client
        self._futures = source.futures
        self._views = [source.view(i) for i in range(source.n_partitions)]
        self._owners = _Owners(client)

    def argument(self, group: range, *, kept: bool = True) -> tuple[list[Future[Any]], Sequence[Reading]]:
        # the view is taken within the E-step: a result of its own would count the same arrays twice
        return self._futures[group.start : group.stop], self._views[group.start : group.stop]

    def owners(self, groups: Sequence[range]) -> list[str | None]:
        return self._owners.of(groups, self._futures, [None] * len(self._futures))

    def drop(self) -> None:
        pass

    def leave(self, workers: Collection[str]) -> None:
        pass

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
                    "from the collection it came from; persist nothing that was scattered, or ingest the "
                    "collection to a corpus"
                )

    def close(self) -> None:
        self._futures = []


def place(
    client: Client,
    source: FitSource,
    spec: FitSpec,
    fit: str,
    groups: Sequence[range],
    *,
    level: int,
    bundles: Sequence[range],
    resident_fraction: float,
) -> Partitions:
    """Bring the partitions of a source to a cluster, in memory where the work leaves room for them.

    Parameters
    ----------
    client : distributed.Client
    source : FitSource
    spec : FitSpec
    fit : str
        Makes keys unique.
    groups, bundles : sequence of range
        See :class:`ResidentPartitions`.
    level : int
        Of the tree of sums that one task goes over.
    resident_fraction : float
        Share that documents may fill of what parameters and sums leave of the workers' memory.

    Raises
    ------
    InputError
        Parameters and sums alone have no room in a worker.
    """
    workers = _workers(client)
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
    short = [
        (worker, needed)
        for worker in workers
        if (needed := working_memory(source, spec, threads=worker.threads, level=level)) > worker.limit
    ]
    if short:
        worker, needed = short[0]
        logger.warning(
            "a worker of %s with %s may need %s for parameters, sums and the partitions it is reading: give it "
            "more memory or fewer threads, or choose fewer topics or terms",
            in_words(worker.limit),
            number_of(worker.threads, "thread"),
            in_words(needed),
        )
    if not resident:
        return StreamedPartitions(source)
    return ResidentPartitions(client, source, fit, groups, bundles)


def contiguous_owners(weights: NDArray[np.int64], threads: Mapping[str, int]) -> list[str]:
    """A worker for each of consecutive groups: contiguous blocks, by weight, in proportion to threads.

    Parameters
    ----------
    weights : ndarray of int, shape (G,)
    threads : mapping of str to int
        Threads of each worker, at least one worker.
    """
    workers = sorted(threads)
    shares = np.cumsum([threads[w] for w in workers]) / sum(threads.values())
    total = max(float(weights.sum()), 1.0)
    centres = (np.cumsum(weights) - weights / 2) / total
    return [workers[i] for i in np.minimum(np.searchsorted(shares, centres, side="right"), len(workers) - 1)]


class _Owners:
    """For each group of futures, the worker that holds most of it.

    The scheduler is asked again only while results are missing and when workers have come or gone: where a result is
    taken to another worker, the first one keeps it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked: tuple[frozenset[str], dict[Any, Collection[str]]] | None = None

    def of(
        self, groups: Sequence[range], futures: Sequence[Future[Any]], planned: Sequence[str | None]
    ) -> list[str | None]:
        alive = frozenset(self._client.nthreads())
        if len(alive) == 1:
            return [None] * len(groups)
        holders = self._holders(alive, futures)
        owners: list[str | None] = []
        for group in groups:
            votes: Counter[str] = Counter()
            for i in group:
                # partitions that are still being read count where they are meant to be
                votes.update(holders.get(futures[i].key) or [w for w in [planned[i]] if w is not None])
            there = [(n, worker) for worker, n in votes.items() if worker in alive]
            owners.append(max(there)[1] if there else None)
        return owners

    def forget(self) -> None:
        """Ask the scheduler again."""
        self._asked = None

    def _holders(
        self, alive: frozenset[str], futures: Sequence[Future[Any]]
    ) -> Mapping[Any, Collection[str]]:
        if self._asked is not None and self._asked[0] == alive:
            return self._asked[1]
        holders: dict[Any, Collection[str]] = self._client.who_has(futures)
        self._asked = (alive, holders) if all(holders.get(future.key) for future in futures) else None
        return holders


def _wait_a_little(client: Client, futures: Sequence[Future[Any]]) -> None:
    from distributed import CancelledError

    with suppress(TimeoutError, CancelledError):
        wait_for(client, futures, timeout=HEAL_PATIENCE)


def _workers(client: Client) -> list[WorkerMemory]:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return [WorkerMemory(w["memory_limit"] or math.inf, w["nthreads"]) for w in workers]
