"""Hashes of documents, and draws by hashes, the same ones on any cluster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["document_hashes", "mixed", "uniform"]


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): every bit depends on every bit."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return result


def uniform(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A number of at least 0 and below 1 for each hash; 53 bits make one."""
    numbers: NDArray[np.float64] = (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def document_hashes(
    indptr: NDArray[np.int64], terms: NDArray[np.int32], counts: NDArray[np.int32]
) -> NDArray[np.uint64]:
    """A hash of the terms and counts of each document, whatever their order, shape (D,)."""
    pairs = (terms.astype(np.uint64) << np.uint64(32)) | counts.astype(np.uint64)
    # differences of sums modulo 2**64 are exact
    running = np.zeros(len(pairs) + 1, dtype=np.uint64)
    np.cumsum(mixed(pairs), out=running[1:])
    return running[indptr[1:]] - running[indptr[:-1]]
