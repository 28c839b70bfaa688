"""Samples of the documents for what is measured after a fit. They depend only on the documents, and not on the cluster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dslda.persistence.model_record import ModelRecord

__all__ = ["evenly_spread", "sampled_partitions", "sampled_rows"]

LEAST_DOCUMENTS = 500
MOST_PARTITIONS = 64
TOKEN_TOPICS = 1e8
"""Documents of a sample times their tokens times topics: some seconds of inference."""


def evenly_spread(total: int, most: int) -> NDArray[np.int64]:
    """At most `most` of the numbers below `total`, evenly spread over all, ascending."""
    n = min(most, total)
    return (2 * np.arange(n, dtype=np.int64) + 1) * total // max(2 * n, 1)


def sampled_partitions(n_partitions: int) -> list[int]:
    """Numbers of the partitions to read, evenly spread over all."""
    partitions: list[int] = evenly_spread(n_partitions, MOST_PARTITIONS).tolist()
    return partitions


def sampled_rows(sizes: NDArray[np.int64], record: ModelRecord, *, most: int) -> list[NDArray[np.int64]]:
    """Numbers of at most `most` documents to take from each partition of these `sizes`, evenly spread over all."""
    total = int(sizes.sum())
    per_document = max(record.training.n_tokens / max(record.training.n_documents, 1), 1.0)
    affordable = int(TOKEN_TOPICS / (per_document * record.parameters.n_topics))
    rows = evenly_spread(total, min(max(affordable, LEAST_DOCUMENTS), most))
    firsts = np.concatenate([[0], np.cumsum(sizes)])
    cuts = np.searchsorted(rows, firsts)
    return [rows[a:b] - first for first, a, b in zip(firsts[:-1], cuts[:-1], cuts[1:], strict=True)]
