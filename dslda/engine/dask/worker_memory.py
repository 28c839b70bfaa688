"""What a fit needs of a worker's memory, so that documents get what is left."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dslda.engine.data.fit_source import FitSource
from dslda.engine.reduction import FAN_IN
from dslda.exceptions import InputError
from dslda.variational.parameters import FitSpec
from dslda.wording import number_of

__all__ = [
    "WorkerMemory",
    "check_here",
    "check_parameters_fit",
    "in_words",
    "room_for_documents",
    "working_memory",
]

PROCESS_BYTES = 300 << 20
"""Of a worker before it works: the interpreter, Dask and compiled kernels."""

ENTRY_BYTES = 8
"""Of a (document, term) entry."""

COPIES = 3
"""Of what has a row for each topic: a worker takes 2.6 (what it works with, and sums that are added up), the client 2.1, both
together on one machine 3.0, of topics by terms and of topics by topics alike (measured at K = 3,000 and 6,000)."""

ALWAYS_THERE = 1 << 30
"""What any machine has: less than that is not looked at."""

READ_COPIES = 3
"""Times its size that a partition takes while it is read: as stored, as decoded, and as trained on."""


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """A worker's memory limit in bytes, infinite where it has none, and its threads."""

    limit: float
    threads: int


def working_memory(source: FitSource, spec: FitSpec, *, threads: int, level: int) -> int:
    """The most bytes that a worker needs beside the documents it keeps, whatever their number.

    Let M be a matrix of K x V doubles, m one of K rows for the terms of a partition, at most an M, and s one for those of
    the partitions that one task goes over. Parameters: one M, and for each thread an m, with the topics of the partition.
    Sums: for each thread an m and ``level`` of s; up to ``FAN_IN`` of s that wait to be added up, and their sum, an M.
    Documents: each thread reads a partition while it works on another.

    Parameters
    ----------
    source : FitSource
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
    workers: Iterable[WorkerMemory], source: FitSource, spec: FitSpec, *, level: int, fraction: float
) -> float:
    """Bytes of documents that all workers together may keep: a share of what the work itself leaves."""
    return fraction * sum(
        max(worker.limit - working_memory(source, spec, threads=worker.threads, level=level), 0.0)
        for worker in workers
    )


def check_parameters_fit(spec: FitSpec, n_terms: int, available: float, *, who: str) -> None:
    """Refuse so many topics that the least there can be, topics by terms and topics by topics, has no room.

    Parameters
    ----------
    spec : FitSpec
    n_terms : int
    available : float
        Bytes of memory that the process has.
    who : str
        It, for the message.

    Raises
    ------
    InputError
        With the most topics there is room for.
    """
    if _least_memory(spec.n_topics, n_terms) <= available:
        return
    room = max(available - PROCESS_BYTES, 0.0) / (8 * COPIES)
    most = int((math.sqrt(n_terms**2 + 4.0 * room) - n_terms) / 2.0)
    raise InputError(
        f"must be at most {most:,} with {number_of(n_terms, 'term')} where {who} has "
        f"{in_words(available)}, got {spec.n_topics:,}: parameters and sums take "
        f"{in_words(_least_memory(spec.n_topics, n_terms))} at least",
        parameter="n_topics",
        remedy="choose fewer topics or a smaller vocabulary, or give it more memory",
    )


def check_here(spec: FitSpec, n_terms: int) -> None:
    """As :func:`check_parameters_fit`, for this process, which may have what its container or machine has."""
    if _least_memory(spec.n_topics, n_terms) > ALWAYS_THERE:
        from distributed.system import MEMORY_LIMIT

        check_parameters_fit(spec, n_terms, MEMORY_LIMIT, who="this machine")


def in_words(n_bytes: float) -> str:
    """A size as people say it."""
    from dask.utils import format_bytes

    return "any size" if math.isinf(n_bytes) else format_bytes(int(n_bytes))


def _least_memory(n_topics: int, n_terms: int) -> int:
    return PROCESS_BYTES + COPIES * 8 * n_topics * (n_terms + n_topics)
