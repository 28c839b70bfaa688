"""What a fit needs of a worker's memory, so that documents get what is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dslda.engine.reduction import FAN_IN
from dslda.engine.sources import Source
from dslda.variational.parameters import FitSpec

__all__ = ["WorkerMemory", "room_for_documents", "working_memory"]

PROCESS_BYTES = 300 << 20
"""Of a worker before it works: the interpreter, Dask and compiled kernels."""

READ_COPIES = 3
"""Times its size that a partition takes while it is read: as stored, as decoded, and as trained on."""


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """A worker's memory limit in bytes, infinite where it has none, and its threads."""

    limit: float
    threads: int


def working_memory(source: Source, spec: FitSpec, *, threads: int, level: int) -> int:
    """The most bytes that a worker needs beside the documents it keeps, whatever their number.

    Let M be a matrix of K x V doubles. Parameters: one M, and one more for each thread, since arrays arrive
    at odd addresses and the kernels get a copy. Sums: ``level + 1`` of M and of K x K for each thread, those
    of the subtree it goes over, and ``FAN_IN + 1`` where its results are added up. Documents: each thread
    reads a partition while it works on another. Statistics of few terms take less than M.

    Parameters
    ----------
    source : Source
    spec : FitSpec
    threads : int
    level : int
        Of the tree of sums that one task goes over.
    """
    matrix = 8 * spec.n_topics * source.n_terms
    sums = matrix + 8 * spec.n_topics**2
    partition = int(source.nbytes.max(initial=0))
    return (
        PROCESS_BYTES
        + matrix * (1 + threads)
        + sums * (threads * (level + 1) + FAN_IN + 1)
        + partition * threads * (1 + READ_COPIES)
    )


def room_for_documents(
    workers: Iterable[WorkerMemory], source: Source, spec: FitSpec, *, level: int, fraction: float
) -> float:
    """Bytes of documents that all workers together may keep: a share of what the work itself leaves."""
    return fraction * sum(
        max(worker.limit - working_memory(source, spec, threads=worker.threads, level=level), 0.0)
        for worker in workers
    )
