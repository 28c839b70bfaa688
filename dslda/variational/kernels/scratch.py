"""Options of compilation, limits and scratch arrays of the compiled E-step.

Letters are the paper's (docs/model.md). A document has N tokens; its entries are its distinct terms, each with c tied
occurrences, or its single tokens (c = 1). With beta, eta, alpha, gamma, and phi_n as there,

    phi_n is proportional to beta_n exp(h + a_n eta),   h = E[log theta] + b eta*eta
    m_n = eta'phi_n,   omega = sum_n m_n / N,   v = sum_n Var(eta under phi_n) / N^2
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dslda.variational.special import FASTMATH

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Words = NDArray[np.uint64]

OPTIONS = {
    "fastmath": FASTMATH,
    # a division that may raise keeps a loop scalar
    "error_model": "numpy",
    # A function that is called, not inlined, is a weak symbol. The process that compiles links a copy that LLVM optimised by
    # itself; processes that load from the cache link the one beside its caller. Last bits would differ.
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
# of kernels that Python calls
ENTRY_OPTIONS = {"cache": True, "nogil": True, "fastmath": FASTMATH, "error_model": "numpy"}

# A Taylor series with three cumulants stands in for exp as long as |t|^3 max|eta| E[eta^2] stays below this much of
# `sweep_tol`, or below TAYLOR_LEAST. A sixth of it bounds the error in an entry's share of sum phi, and so in the ELBO, in
# every sweep: a hundredth of what `sweep_tol` leaves undone. E[eta^2] is under the entry's own phi, so that a topic with a
# wild coefficient but no mass does no harm.
TAYLOR_SHARE = 0.06
TAYLOR_LEAST = 1.25e-7
# largest |t| max|eta| for that series, and for one of degree 8 for an entry by itself: error x^9 / 9! < 2e-11
SERIES_LIMIT = 0.25
# topic weights below this are zero: products of two such factors stay normal numbers
SMALLEST_WEIGHT = 1e-100
# a term with a normaliser below this lives only in topics at the floor of exp_shifted: it gets a shift of its own
SMALLEST_NORMALISER = 1e-80
# With alpha below 1, most topics soon have no part in a document: E[log theta_k] = digamma(alpha) is about -1/alpha. Tiles
# leave out a topic whose exp(h + a_base eta) is this far below the best one's. The share of an entry that these topics could
# have is bounded, since weights of terms are at most 1. An entry where it may exceed DEAD_SHARE (before the factor
# exp(t eta), which is near 1) is updated by itself, from all topics.
DEAD_LIMIT = 1e-20
DEAD_SHARE = 1e-10
# doubles of one document's gathered topic weights; longer documents are gathered tile by tile in every sweep
RESIDENT_DOUBLES = 1 << 19

# The number of entries in a tile is a multiple of this: compiled loops take sixteen at a time, the rest one by one.
LANES = 16
WIDEST = 112
# doubles in a tile of K x entries, so that it stays in a second-level cache
TILE_DOUBLES = 1 << 15

# The numbers of a tile's entries lie in one vector, `tile`, entry i of each kind at offset + i. The offsets are constants,
# so the compiler knows that kinds do not overlap. They are unsigned, as is i (see `span`): a signed index may be negative,
# which means "from the end" and keeps loops scalar.
Z, INVERSE, KAPPA1, KAPPA2, KAPPA3, W0, W1, W2, TOKENS, T, T1, T2, M0, M1, M2, CHANGE, LOGS = (
    np.uint64(i * WIDEST) for i in range(17)
)

# A vectorised loop that reads one array and writes another first compares their addresses. It sums in another order where
# they lie closer than a few vectors, so that the last bits would depend on the allocator. Hence a gap of this many numbers
# on either side of every array.
_GUARD = 64


@njit(**OPTIONS)
def span(first: int, stop: int) -> range:
    """range(first, stop) of unsigned numbers."""
    return range(np.uint64(first), np.uint64(stop))


@njit(**OPTIONS)
def vector(n: int) -> Vector:
    """Uninitialised scratch."""
    return np.empty(n + 2 * _GUARD)[_GUARD : _GUARD + n]


@njit(**OPTIONS)
def words(n: int) -> Words:
    """Uninitialised scratch for the bits of numbers."""
    return np.empty(n + 2 * _GUARD, dtype=np.uint64)[_GUARD : _GUARD + n]


@njit(**OPTIONS)
def matrix(n_rows: int, n_columns: int) -> Matrix:
    """Scratch of zeros."""
    n_guards = (_GUARD + n_columns - 1) // n_columns
    return np.zeros((n_rows + 2 * n_guards, n_columns))[n_guards : n_guards + n_rows]


class KernelParameters(NamedTuple):
    """The parameters, and numbers that follow from them.

    eta is centred on its mean, `middle`, which keeps a_n - a_base small. omega gets the mean back as an offset; nothing else
    changes, since phi sums to 1.
    """

    topics: Matrix
    alpha: Vector
    alpha_sum: float
    log_beta_alpha: float  # log of the multivariate Beta function of alpha
    eta: Vector
    middle: float
    reach: float  # max |eta|
    eta_square_mean: float  # under equal shares
    series_limit: float  # see `TAYLOR_SHARE`


class Base(NamedTuple):
    """The a and top of r = exp(h + a eta - top), and the part of r that tiles see."""

    a: float
    top: float
    n_live: int  # topics in `Scratch.live`; tiles leave out the others
    floor: float  # an entry with a normaliser below may live in topics left out, or overflow


class Scratch(NamedTuple):
    """Arrays made once for a block of documents."""

    # by entry of the document
    terms: NDArray[np.int32]
    copies: Vector  # c
    a: Vector
    m: Vector
    # topic weights beta of the document's entries, as tiles: see `gather`
    weights: Vector
    # by entry of the tile
    tile: Vector
    z: Vector  # view of `tile`
    logs: Vector  # view of `tile`
    tile_bits: Words
    phi_tile: Matrix  # (live topics up to a multiple of 4, entries): sqrt(c) phi
    # by topic
    gamma: Vector
    elog: Vector  # E[log theta] up to digamma(sum gamma), which is the same for all topics
    h: Vector
    assigned: Vector  # sum_n phi_n
    assigned_m: Vector  # sum_n m_n phi_n
    exponents: Vector
    phi: Vector  # of one entry by itself
    r: Vector  # exp(h + a_base eta - top)
    # by live topic, in ascending order; filled up to a multiple of 4 with a topic at r = 0, to spare loops a remainder
    live: NDArray[np.int64]  # the topic
    live_r: Vector
    live_eta: Vector
    sums: Matrix  # (3, live topics): sums over entries since r was set, see `flush`
    gram: Matrix  # sum_n phi_n phi_n'
    work: Matrix
    bits: Words


@njit(**OPTIONS)
def make_scratch(longest: int, n_topics: int) -> Scratch:
    """Scratch for documents of up to `longest` entries."""
    # all tiles of a document with their padding, or one tile of a document too long to be kept gathered
    gathered = min(longest + longest // LANES + 2 * WIDEST, RESIDENT_DOUBLES // n_topics + 2 * WIDEST)
    tile = vector(17 * WIDEST)
    padded = (n_topics + 3) // 4 * 4
    return Scratch(
        np.empty(longest, dtype=np.int32),
        vector(longest),
        vector(longest),
        vector(longest),
        vector(n_topics * gathered),
        tile,
        tile[Z : Z + WIDEST],
        tile[LOGS : LOGS + WIDEST],
        words(WIDEST),
        # rows an odd number of cache lines apart: a column of it does not fall into a few cache sets
        matrix(padded, WIDEST + 8),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        np.empty(padded, dtype=np.int64),
        vector(padded),
        vector(padded),
        matrix(3, padded),
        matrix(padded, padded),
        matrix(2, n_topics),
        words(n_topics),
    )


@njit(**OPTIONS)
def prepare_parameters(topics: Matrix, alpha: Vector, eta: Vector, sweep_tol: float) -> KernelParameters:
    """Centre eta, and sum over topics once for all documents."""
    n_topics = topics.shape[1]
    centred = vector(n_topics)
    middle = 0.0
    for k in range(n_topics):
        middle += eta[k] / n_topics
    for k in range(n_topics):
        centred[k] = eta[k] - middle
    reach = 0.0
    eta_square_mean = 0.0
    alpha_sum = 0.0
    log_beta_alpha = 0.0
    for k in range(n_topics):
        reach = max(reach, abs(centred[k]))
        eta_square_mean += centred[k] * centred[k] / n_topics
        alpha_sum += alpha[k]
        log_beta_alpha += math.lgamma(alpha[k])
    log_beta_alpha -= math.lgamma(alpha_sum)
    series_limit = max(TAYLOR_SHARE * sweep_tol, TAYLOR_LEAST)
    return KernelParameters(
        topics, alpha, alpha_sum, log_beta_alpha, centred, middle, reach, eta_square_mean, series_limit
    )
