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

ENTRY_BYTES = 8
"""Of a (document, term) entry."""

READ_COPIES = 3
"""Times its size that a partition takes while it is read: as stored, as decoded, and as trained on."""


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """A worker's memory limit in bytes, infinite where it has none, and its threads."""

    limit: float
    threads: int


def working_memory(source: Source, spec: FitSpec, *, threads: int, level: int) -> int:
    """The most bytes that a worker needs beside the documents it keeps, whatever their number.

    Let M be a matrix of K x V doubles, m one of K rows for the terms of a partition, at most an M, and s one for those of
    the partitions that one task goes over. Parameters: one M, and for each thread an m, with the topics of the partition.
    Sums: for each thread an m and ``level`` of s; up to ``FAN_IN`` of s that wait to be added up, and their sum, an M.
    Documents: each thread reads a partition while it works on another.

    Parameters
    ----------
    source : Source
    spec : FitSpec
    threads : int
    level : int
        Of the tree of sums that one task goes over.
    """
    row = 8 * spec.n_topics
    largest = int(source.nbytes.max(initial=0))
    own = row * min(source.n_terms, largest // ENTRY_BYTES)
    subtree = row * min(source.n_terms, FAN_IN**level * (largest // ENTRY_BYTES))
    square = 8 * spec.n_topics**2
    return (
        PROCESS_BYTES
        + 2 * row * source.n_terms
        + threads * (2 * own + level * subtree + (level + 1) * square + largest * (1 + READ_COPIES))
        + FAN_IN * (subtree + square)
    )


def room_for_documents(
    workers: Iterable[WorkerMemory], source: Source, spec: FitSpec, *, level: int, fraction: float
) -> float:
    """Bytes of documents that all workers together may keep: a share of what the work itself leaves."""
    return fraction * sum(
        max(worker.limit - working_memory(source, spec, threads=worker.threads, level=level), 0.0)
        for worker in workers
    )
