"""Executors, which run a pass over the partitions: their contract, and the one that needs no cluster."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Self, TypeVar

from dslda.config import EngineSettings
from dslda.engine.data.fit_source import FitSource
from dslda.engine.data.training_view import TrainingBlock
from dslda.engine.passes import Pass
from dslda.engine.reduction import number_of_levels, sum_subtree
from dslda.exceptions import InputError
from dslda.families.base import Family
from dslda.variational.parameter_parts import ParameterParts, as_sent
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.sums import Sums

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

__all__ = [
    "Executor",
    "IterationTimes",
    "PartitionListener",
    "SerialExecutor",
    "ascending",
    "noting",
    "read_ahead",
    "single_threaded_blas",
]

S = TypeVar("S", bound=Sums)

PartitionListener = Callable[[int], None]
"""Receives the number of documents of each finished partition, on a cluster from another thread. A negative number
withdraws those of a failed attempt."""

KEPT_BYTES = 1 << 30
"""Largest corpus that a serial executor keeps in memory; reading a partition takes about ten milliseconds."""


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """Wall-clock seconds of an iteration; see :class:`~dslda.engine.em.IterationRecord`."""

    publish: float
    e_step: float
    reduce: float


class Executor(ABC):
    """Runs passes over partitions and adds up their sums, with the same bits wherever it runs."""

    def __init__(self, source: FitSource, family: Family, spec: FitSpec) -> None:
        self._source = source
        self._family = family
        self._spec = spec

    @property
    def n_documents(self) -> int:
        return int(self._source.n_documents.sum())

    @property
    def n_partitions(self) -> int:
        return self._source.n_partitions

    def name_of(self, row: int) -> str:
        """See :meth:`~dslda.engine.data.fit_source.FitSource.name_of`."""
        return self._source.name_of(row)

    @abstractmethod
    def run(
        self,
        parameters: Parameters,
        work: Pass[S],
        *,
        partitions: Sequence[int] | None = None,
        share: float = 1.0,
        on_partition: PartitionListener | None = None,
    ) -> tuple[S, IterationTimes]:
        """Run one iteration: return the sums of `work` at `parameters`, with a row for every term.

        Parameters
        ----------
        parameters : Parameters
        work : Pass
        partitions : sequence of int, optional
            The partitions to process, in any order; all by default.
        share : float, default 1
            Share of their documents that `work` takes, so that a cluster does not make tasks of next to no work. It
            changes no bit.
        on_partition : callable, optional

        Raises
        ------
        EngineError
            The iteration could not be completed.
        InputError
            `partitions` is empty, names one twice, or one that does not exist.
        """

    @abstractmethod
    def close(self) -> None:
        """Free the resources of the executor; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SerialExecutor(Executor):
    """Runs every partition in this process and thread.

    A small corpus stays in memory between iterations. A larger one is read again each time, so that memory does not grow
    with the corpus.
    """

    def __init__(self, source: FitSource, family: Family, spec: FitSpec) -> None:
        super().__init__(source, family, spec)
        self._float32 = EngineSettings.load().float32_parameters
        self._keeps = bool(source.nbytes.sum() <= KEPT_BYTES)
        self._load = cache(source.load) if self._keeps else source.load

    def run(
        self,
        parameters: Parameters,
        work: Pass[S],
        *,
        partitions: Sequence[int] | None = None,
        share: float = 1.0,
        on_partition: PartitionListener | None = None,
    ) -> tuple[S, IterationTimes]:
        chosen = ascending(partitions, self.n_partitions)
        e_step = 0.0
        parts = ParameterParts(list(as_sent(parameters, 1, float32=self._float32)))

        def leaf(partition: int) -> S:
            nonlocal e_step
            started = time.perf_counter()
            with noting(f"E-step of {self._source.describe(partition)}"):
                sums = work(next(blocks), parts, self._family, self._spec)
            if on_partition is not None:
                on_partition(sums.n_documents)
            e_step += time.perf_counter() - started
            return sums

        started = time.perf_counter()
        readers = (partial(self._load, i) for i in chosen)
        # to hand a partition that is in memory from thread to thread may take longer than the work on it
        blocks = (reader() for reader in readers) if self._keeps else read_ahead(readers)
        with single_threaded_blas(), closing(blocks):
            total = sum_subtree(leaf, chosen, level=number_of_levels(chosen))
        return total.dense(), IterationTimes(0.0, e_step, time.perf_counter() - started - e_step)

    def close(self) -> None:
        self._load = self._source.load


def ascending(partitions: Sequence[int] | None, n_partitions: int) -> Sequence[int]:
    """The partitions to process in ascending order; see :meth:`Executor.run`."""
    if partitions is None:
        return range(n_partitions)
    chosen = sorted(set(partitions))
    if len(chosen) < max(len(partitions), 1) or not 0 <= chosen[0] <= chosen[-1] < n_partitions:
        raise InputError(
            f"must be different numbers from 0 to {n_partitions - 1}, at least one, got {list(partitions)!r:.200}",
            parameter="partitions",
        )
    return chosen


def read_ahead(readers: Iterable[Callable[[], TrainingBlock]]) -> Generator[TrainingBlock]:
    """Yield partitions in turn; another thread reads the next one during the work on each.

    Two partitions are in memory at a time. If files are remote, this hides the wait; on a local disk reading is
    a few percent of the work.
    """
    readers = iter(readers)
    with ThreadPoolExecutor(1, thread_name_prefix="dslda-read") as thread:
        block = next(readers)()
        for reader in readers:
            ahead = thread.submit(reader)
            yield block
            block = ahead.result()
        yield block


@contextmanager
def noting(place: str) -> Iterator[None]:
    """Add the place to any error as a note."""
    try:
        yield
    except Exception as error:
        error.add_note(f"dslda: {place}")
        raise


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread: with more, the order of its sums, and thus the bits, depend on the machine."""
    with _blas().limit(limits=1):
        yield


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of numpy and scipy. To find them takes milliseconds, as an iteration over few documents does."""
    import scipy.linalg  # noqa: F401 - has its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
