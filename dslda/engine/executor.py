"""How an iteration runs: the contract, and the executor that needs no cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from dslda.config import EngineSettings
from dslda.engine.data.fit_source import FitSource
from dslda.engine.data.read_ahead import ReadAhead
from dslda.engine.data.training_view import TrainingBlock
from dslda.engine.reduction import number_of_levels, sum_subtree
from dslda.families.base import Family
from dslda.variational.parameter_parts import ParameterParts, as_sent, e_step_of_parts
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics

__all__ = ["Executor", "IterationTimes", "PartitionListener", "SerialExecutor", "single_threaded_blas"]

PartitionListener = Callable[[int], None]
"""Called with the number of documents of each partition that is done; on a cluster from another thread. A
negative number takes back what a failed attempt had counted."""


KEPT_BYTES = 1 << 30
"""Most that a serial executor keeps of a corpus; reading costs some ten milliseconds a partition."""


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """Wall-clock seconds of an iteration: see :class:`~dslda.engine.em.IterationRecord`."""

    publish: float
    e_step: float
    reduce: float


class Executor(Protocol):
    """Runs the E-step over all partitions and adds up their statistics, the same bits whatever runs it."""

    @property
    def n_documents(self) -> int:
        """Documents that one iteration goes over."""

    @property
    def n_partitions(self) -> int: ...

    def run(
        self, parameters: Parameters, *, on_partition: PartitionListener | None = None
    ) -> tuple[SufficientStatistics, IterationTimes]:
        """One iteration: statistics of all documents at `parameters`, with a row for every term.

        Raises
        ------
        EngineError
            It could not be completed.
        """

    def close(self) -> None:
        """Free what the executor holds; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SerialExecutor:
    """Runs every partition in this process and thread.

    Partitions are kept between iterations while all of them together are small; those of a larger corpus are read
    again each time, so that memory does not grow with the corpus.

    Parameters
    ----------
    source : FitSource
    family : Family
    spec : FitSpec
    """

    def __init__(self, source: FitSource, family: Family, spec: FitSpec) -> None:
        self._source = source
        self._family = family
        self._spec = spec
        self._float32 = EngineSettings.load().float32_parameters
        self._kept: dict[int, TrainingBlock] | None = {} if source.nbytes.sum() <= KEPT_BYTES else None

    @property
    def n_documents(self) -> int:
        return int(self._source.n_documents.sum())

    @property
    def n_partitions(self) -> int:
        return self._source.n_partitions

    def run(
        self, parameters: Parameters, *, on_partition: PartitionListener | None = None
    ) -> tuple[SufficientStatistics, IterationTimes]:
        in_e_step = 0.0
        parts = ParameterParts(list(as_sent(parameters, 1, float32=self._float32)))

        def leaf(partition: int) -> SufficientStatistics:
            nonlocal in_e_step
            started = time.perf_counter()
            with noting(f"E-step of {self._source.describe(partition)}"):
                statistics = run_partition(blocks.take(partition), parts, self._family, self._spec)
            if on_partition is not None:
                on_partition(statistics.n_documents)
            in_e_step += time.perf_counter() - started
            return statistics

        n = self._source.n_partitions
        started = time.perf_counter()
        with single_threaded_blas(), ReadAhead([partial(self._block, i) for i in range(n)]) as blocks:
            total = sum_subtree(leaf, 0, n, level=number_of_levels(n))
        return total.dense(), IterationTimes(0.0, in_e_step, time.perf_counter() - started - in_e_step)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.clear()

    def _block(self, partition: int) -> TrainingBlock:
        if self._kept is None:
            return self._source.load(partition)
        if partition not in self._kept:
            self._kept[partition] = self._source.load(partition)
        return self._kept[partition]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_partition(
    block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
) -> SufficientStatistics:
    """The E-step of one partition; statistics of few terms have no rows for the others."""
    return e_step_of_parts(
        block.indptr,
        block.terms,
        block.counts,
        block.y,
        parameters,
        family=family,
        spec=spec,
        extras=block.extras,
    )


@contextmanager
def noting(what: str) -> Iterator[None]:
    """Add a note that says where it happened to any error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"dslda: {what}")
        raise


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread: with more, the order of its sums, and so the bits, depend on the machine."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
