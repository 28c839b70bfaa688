"""Inference of documents from their words alone, and under the pull of their responses.

A document has entries: its distinct known terms i with weights c_i > 0, N = sum of c_i. With the paper's letters, inference
ends at the fixed point

    phi_ik is proportional to beta_ik exp(E[log theta_k] + t_k),   gamma = alpha + sum_i c_i phi_i

where t is a tilt of the document, 0 but for the start of conditional training. See docs/model.md, "Conditional training".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import float64, int64, njit, types
from numpy.typing import NDArray

from dslda.families.scalars import SCALAR_SIGNATURE
from dslda.variational.kernels.layout import READ_ONLY_1D
from dslda.variational.kernels.scratch import (
    ENTRY_OPTIONS,
    OPTIONS,
    Matrix,
    Vector,
    Words,
    vector,
    words,
)
from dslda.variational.kernels.word_columns import (
    DOCUMENTS,
    assign,
    gather_columns,
    largest,
    normalise,
    whole_lanes,
)
from dslda.variational.special import exp_digamma_parts, exp_shifted

__all__ = ["infer_words", "pull_words"]

# longest extrapolation
LONGEST = 8.0


class SweepScratch(NamedTuple):
    """Arrays made once for a block of documents."""

    # by entry
    rows: NDArray[np.int32]
    c: Vector
    columns: Matrix  # beta, topic after topic
    z: Vector
    # by topic
    r: Vector
    factors: Vector
    exponents: Vector
    assigned: Vector
    earlier: Vector
    moves: Vector
    bits: Words


@njit(**OPTIONS)
def make_sweep_scratch(indptr: NDArray[np.int64], n_topics: int) -> SweepScratch:
    longest = largest(indptr)
    return SweepScratch(
        np.empty(longest, dtype=np.int32),
        vector(longest),
        vector(n_topics * longest).reshape((n_topics, longest)),
        vector(longest),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        words(n_topics),
    )


@njit(**OPTIONS)
def begin(
    terms: NDArray[np.int32], weights: Vector, topics: Matrix, alpha: Vector, gamma: Vector, s: SweepScratch
) -> tuple[int, float]:
    """Gather a document in `s`, and start `gamma` from alpha + N / K; returns the entries and N."""
    n, length = gather_columns(terms, weights, topics, s.rows, s.c, s.columns)
    for k in range(alpha.shape[0]):
        gamma[k] = alpha[k] + length / alpha.shape[0]
    return n, length


@njit(**OPTIONS)
def shares(gamma: Vector, tilt: Vector, s: SweepScratch) -> None:
    """Write exp(digamma(gamma) + tilt) to `s.r`, up to a factor that all topics share; `tilt` may be empty."""
    n_topics = gamma.shape[0]
    exp_digamma_parts(gamma, s.factors, s.exponents)
    if tilt.shape[0] > 0:
        for k in range(n_topics):
            s.exponents[k] += tilt[k]
    top = -math.inf
    for k in range(n_topics):
        top = max(top, s.exponents[k])
    exp_shifted(s.exponents, top, s.r, s.bits)
    for k in range(n_topics):
        s.r[k] *= s.factors[k]


@njit(**OPTIONS)
def extrapolate(gamma: Vector, alpha: Vector, earlier: Vector, moves: Vector) -> None:
    """Go from the end of two sweeps to where many more would lead, as far as their moves shrink alike.

    This is the step of SQUAREM (Varadhan and Roland 2008), with -|r| / |v| for its length. It stays above alpha.
    """
    squares, bends = 0.0, 0.0
    for k in range(gamma.shape[0]):
        bend = moves[k] - earlier[k]
        squares += earlier[k] * earlier[k]
        bends += bend * bend
    if not squares > bends:
        return
    a = min(math.sqrt(squares / bends), LONGEST) if bends > 0.0 else LONGEST
    for k in range(gamma.shape[0]):
        bend = moves[k] - earlier[k]
        start = gamma[k] - moves[k] - earlier[k]
        gamma[k] = max(start + 2.0 * a * earlier[k] + a * a * bend, alpha[k])


@njit(**OPTIONS)
def sweep_words(
    n: int,
    length: float,
    alpha: Vector,
    tilt: Vector,
    max_sweeps: int,
    tolerance: float,
    gamma: Vector,
    s: SweepScratch,
) -> int:
    """Sweep over the entries gathered in `s` from where `gamma` is; returns the sweeps, or `max_sweeps` + 1, as `infer_words`
    writes them."""
    n_topics = alpha.shape[0]
    width = whole_lanes(n)
    for sweep in range(max_sweeps):
        shares(gamma, tilt, s)
        normalise(width, s.columns, s.r, s.z)
        for i in range(width):
            s.z[i] = s.c[i] / s.z[i]
        assign(width, 0, s.columns, s.z, s.assigned)
        change = 0.0
        for k in range(n_topics):
            new = alpha[k] + s.r[k] * s.assigned[k]
            s.moves[k] = new - gamma[k]
            change += abs(s.moves[k])
            gamma[k] = new
        if change < tolerance * length:
            return sweep + 1
        if sweep % 2 == 0:
            for k in range(n_topics):
                s.earlier[k] = s.moves[k]
        elif sweep + 1 < max_sweeps:
            extrapolate(gamma, alpha, s.earlier, s.moves)
    return max_sweeps + 1


@njit(types.void(*DOCUMENTS, int64, float64, float64[:, ::1], float64[::1], int64[::1]), **ENTRY_OPTIONS)
def infer_words(indptr, terms, weights, topics, alpha, max_sweeps, tolerance, gamma, length, sweeps):
    """Write gamma, N and the number of sweeps of each document.

    It sweeps until gamma changes by less than `tolerance` N in all, or `max_sweeps` times: then `sweeps` is `max_sweeps` + 1.
    """
    s = make_sweep_scratch(indptr, topics.shape[1])
    untilted = s.moves[:0]
    for d in range(indptr.shape[0] - 1):
        start, stop = indptr[d], indptr[d + 1]
        n, total = begin(terms[start:stop], weights[start:stop], topics, alpha, gamma[d], s)
        length[d] = total
        sweeps[d] = 0
        if n > 0:
            sweeps[d] = sweep_words(n, total, alpha, untilted, max_sweeps, tolerance, gamma[d], s)


@njit(
    types.void(
        *(types.FunctionType(SCALAR_SIGNATURE),) * 2,
        *DOCUMENTS,
        *(READ_ONLY_1D[float64],) * 6,
        int64,
        int64,
        float64,
        float64[:, ::1],
        float64[:, ::1],
        float64[::1],
        int64[::1],
    ),
    **ENTRY_OPTIONS,
)
def pull_words(
    first_derivative,
    information_weight,
    indptr,
    terms,
    weights,
    topics,
    alpha,
    eta,
    delta,
    y,
    aux,
    beside,
    pull,
    rounds,
    max_sweeps,
    tolerance,
    gamma,
    tilt,
    length,
    sweeps,
):
    """Write what `infer_words` writes and the tilt of each document by its response: a eta, but for its mean.

    In each round a takes a Newton step towards ``pull / N`` times the slope of log p(y | omega) at the mean of zbar, and
    gamma follows; `beside` is what is in omega beside topics. A document without a response, or with one whose derivatives
    are not finite, has no tilt. `sweeps` are those of the last round.
    """
    n_topics = topics.shape[1]
    s = make_sweep_scratch(indptr, n_topics)
    mean_eta = 0.0
    for k in range(n_topics):
        mean_eta += eta[k]
    mean_eta /= n_topics
    for d in range(indptr.shape[0] - 1):
        start, stop = indptr[d], indptr[d + 1]
        own, own_tilt = gamma[d], tilt[d]
        n, total = begin(terms[start:stop], weights[start:stop], topics, alpha, own, s)
        length[d] = total
        own_tilt[:] = 0.0
        sweeps[d] = 0
        if n == 0:
            continue
        a = 0.0
        for done in range(rounds + 1):
            if done > 0:
                mean, square = 0.0, 0.0
                for k in range(n_topics):
                    share = (own[k] - alpha[k]) / total
                    mean += share * (eta[k] - mean_eta)
                    square += share * (eta[k] - mean_eta) ** 2
                omega = mean + mean_eta + beside[d]
                slope = first_derivative(y[d], omega, delta, aux[d])
                information = information_weight(y[d], omega, delta, aux[d])
                # `math.isfinite` takes x - x, which reassociation makes 0
                if not abs(slope + information) < math.inf:
                    slope, information = 0.0, 0.0
                strength = pull[d] / total
                a += (strength * slope - a) / (1.0 + strength * information * (square - mean * mean))
                for k in range(n_topics):
                    own_tilt[k] = a * (eta[k] - mean_eta)
            sweeps[d] = sweep_words(n, total, alpha, own_tilt, max_sweeps, tolerance, own, s)
