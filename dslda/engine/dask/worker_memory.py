"""Memory that a fit needs on a worker; documents get the rest."""

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
"""Memory of an idle worker: the interpreter, Dask and compiled kernels."""

ENTRY_BYTES = 8
"""Bytes of a (document, term) entry."""

COPIES = 3
"""Copies of arrays of topics by terms and of topics by topics. Measured at K = 3,000 and 6,000: 2.6 in a worker, for
parameters and sums, 2.1 in the client, and 3.0 with both on one machine."""

ALWAYS_THERE = 1 << 30
"""Memory that any machine has; smaller needs are not checked."""

READ_COPIES = 3
"""Copies of a partition while it is read: as stored, as decoded, and as trained on."""


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """A worker's memory limit in bytes, infinite where it has none, and its threads."""

    limit: float
    threads: int


def working_memory(source: FitSource, spec: FitSpec, *, threads: int, level: int) -> int:
    """The most bytes that a worker needs besides the documents that it keeps, whatever their number.

    Let M be a matrix of K x V doubles, m a matrix of K rows for the terms of a partition, and s one for the partitions of
    a task, which computes a node of this `level` of the tree of sums; neither is larger than M. Parameters take one M, and
    for each thread an m with the topics of its partition. Sums take an m and ``level`` times an s for each thread, and an M
    for the sum of up to ``FAN_IN`` waiting s. Each thread reads a partition while it works on another.
    """
    row = 8 * spec.n_topics
    largest = int(source.nbytes.max(initial=0))
    own = row * min(source.n_terms, largest // ENTRY_BYTES)
    subtree: int = row * min(source.n_terms, FAN_IN**level * (largest // ENTRY_BYTES))
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
    """Bytes of documents that all workers together may keep: a fraction of the memory that the work leaves."""
    return fraction * sum(
        max(worker.limit - working_memory(source, spec, threads=worker.threads, level=level), 0.0)
        for worker in workers
    )


def check_parameters_fit(spec: FitSpec, n_terms: int, available: float, *, who: str) -> None:
    """Refuse more topics than `available` bytes allow for parameters and sums; the message names the largest number.

    `who` names the process in the message.
    """
    if _least_memory(spec.n_topics, n_terms) <= available:
        return
    room = max(available - PROCESS_BYTES, 0.0) / (8 * COPIES)
    most = int((math.sqrt(n_terms**2 + 4.0 * room) - n_terms) / 2.0)
    raise InputError(
        f"must be at most {most:,} with {number_of(n_terms, 'term')} where {who} has {in_words(available)}, got "
        f"{spec.n_topics:,}: parameters and sums take {in_words(_least_memory(spec.n_topics, n_terms))} at least",
        parameter="n_topics",
        remedy=("choose fewer topics or a smaller vocabulary", "give it more memory"),
    )


def check_here(spec: FitSpec, n_terms: int) -> None:
    """Apply :func:`check_parameters_fit` to this process and the memory of its container or machine."""
    if _least_memory(spec.n_topics, n_terms) > ALWAYS_THERE:
        from distributed.system import MEMORY_LIMIT

        check_parameters_fit(spec, n_terms, MEMORY_LIMIT, who="this machine")


def in_words(n_bytes: float) -> str:
    """A size in common units."""
    from dask.utils import format_bytes

    return "any size" if math.isinf(n_bytes) else format_bytes(int(n_bytes))


def _least_memory(n_topics: int, n_terms: int) -> int:
    return PROCESS_BYTES + COPIES * 8 * n_topics * (n_terms + n_topics)
