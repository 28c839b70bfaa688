"""The weights of a document's entries in each topic, topic after topic, and sums over them.

A document has entries: its distinct known terms i with weights c_i > 0, N = sum of c_i.
"""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64, njit
from numpy.typing import NDArray

from dslda.variational.kernels.document_entries import is_known
from dslda.variational.kernels.layout import READ_ONLY_1D, READ_ONLY_2D
from dslda.variational.kernels.scratch import LANES, OPTIONS, Matrix, Vector

__all__ = ["DOCUMENTS", "assign", "gather_columns", "largest", "normalise", "whole_lanes"]

# the indptr, terms and weights of documents, topics and alpha
DOCUMENTS = (*(READ_ONLY_1D[t] for t in (int64, int32, float64)), READ_ONLY_2D, READ_ONLY_1D[float64])


@njit(**OPTIONS)
def whole_lanes(n: int) -> int:
    """`n` rounded up to whole turns of a compiled loop, which would take the rest one by one."""
    return (n + LANES - 1) // LANES * LANES


@njit(**OPTIONS)
def largest(indptr: NDArray[np.int64]) -> int:
    """Room for the entries of the longest document, an odd number of turns: powers of two apart, columns share cache sets."""
    longest = int64(0)
    for d in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[d + 1] - indptr[d])
    return (whole_lanes(longest) // LANES | 1) * LANES


@njit(**OPTIONS)
def gather_columns(
    terms: NDArray[np.int32],
    counts: Vector,
    topics: Matrix,
    rows: NDArray[np.int32],
    c: Vector,
    weights: Matrix,
) -> tuple[int, float]:
    """Write the weights of the known terms in each topic, one topic after another; returns the entries and N.

    Entries without a weight follow up to `whole_lanes`. Four terms are read at a time, so that each cache line written is
    whole.
    """
    n_topics = topics.shape[1]
    n, length = 0, 0.0
    for i in range(terms.shape[0]):
        if counts[i] > 0.0 and is_known(topics, terms[i]):
            rows[n] = terms[i]
            c[n] = counts[i]
            length += counts[i]
            n += 1
    blocked = n - n % 4
    for i in range(0, blocked, 4):
        t0, t1, t2, t3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for k in range(n_topics):
            weights[k, i], weights[k, i + 1] = topics[t0, k], topics[t1, k]
            weights[k, i + 2], weights[k, i + 3] = topics[t2, k], topics[t3, k]
    for i in range(blocked, n):
        for k in range(n_topics):
            weights[k, i] = topics[rows[i], k]
    for i in range(n, whole_lanes(n)):
        c[i] = 0.0
        for k in range(n_topics):
            weights[k, i] = 1.0
    return n, length


@njit(**OPTIONS)
def normalise(n: int, weights: Matrix, r: Vector, z: Vector) -> None:
    """Write sum_k beta_ik r_k of every entry to `z`. Four topics a pass, since `z` is read and written in each."""
    n_topics = r.shape[0]
    for i in range(n):
        z[i] = 0.0
    blocked = n_topics - n_topics % 4
    for k in range(0, blocked, 4):
        r0, r1, r2, r3 = r[k], r[k + 1], r[k + 2], r[k + 3]
        for i in range(n):
            z[i] += (
                r0 * weights[k, i] + r1 * weights[k + 1, i] + r2 * weights[k + 2, i] + r3 * weights[k + 3, i]
            )
    for k in range(blocked, n_topics):
        for i in range(n):
            z[i] += r[k] * weights[k, i]


@njit(**OPTIONS)
def assign(n: int, first: int, weights: Matrix, z: Vector, assigned: Vector) -> None:
    """Write sum_i beta_ik z_i of every topic from `first` on to `assigned`; four topics a pass, as in `normalise`."""
    n_topics = assigned.shape[0]
    blocked = n_topics - (n_topics - first) % 4
    for k in range(first, blocked, 4):
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            s0 += weights[k, i] * z[i]
            s1 += weights[k + 1, i] * z[i]
            s2 += weights[k + 2, i] * z[i]
            s3 += weights[k + 3, i] * z[i]
        assigned[k], assigned[k + 1], assigned[k + 2], assigned[k + 3] = s0, s1, s2, s3
    for k in range(blocked, n_topics):
        total = 0.0
        for i in range(n):
            total += weights[k, i] * z[i]
        assigned[k] = total
