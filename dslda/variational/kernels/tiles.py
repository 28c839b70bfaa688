"""Sums over the topics and over the entries of a tile: all the work that grows with entries times topics in a sweep.

phi_n is proportional to beta_n exp(h + a_n eta), and between the entries of a document only the number a_n changes, by
little. With r = exp(h + a_base eta - top), everything that coordinate ascent needs of a tile of entries follows from

    M_j = sum_k beta_k r_k eta_k^j,   j = 0..3        (`moments`)

which do not depend on each other: vectorised over entries, for a whole tile at once. In return, with t = a_n - a_base,

    sum_n phi_n = r sum_n beta_n w_n0 + r eta sum_n beta_n w_n1 + r eta^2 sum_n beta_n w_n2        (`accumulate`, `flush`)
    w_n0, w_n1, w_n2 = (1, t, t^2 / 2) c / Z

A document's tiles of beta are rows row, ..., row + K - 1 of one matrix of `width` columns, padded with zeros on the right:
a view made for each tile would cost more than the arithmetic on it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dslda.variational.kernels.scratch import (
    KAPPA1,
    KAPPA2,
    KAPPA3,
    OPTIONS,
    TOKENS,
    W0,
    W1,
    W2,
    Matrix,
    Model,
    Scratch,
    Vector,
    Z,
    span,
)
from dslda.variational.special import exp_shifted, log


@njit(**OPTIONS)
def set_base(model: Model, s: Scratch, a: float) -> float:
    """r[j] = exp(h + a eta - top) eta^j for j = 0..3; returns top, the largest exponent."""
    h, eta, r, exponents = s.h, model.eta, s.r, s.exponents
    top = -np.inf
    for k in range(h.shape[0]):
        exponents[k] = h[k] + a * eta[k]
        top = max(top, exponents[k])
    exp_shifted(exponents, top, r[0], s.bits)
    for k in range(h.shape[0]):
        r[1, k] = r[0, k] * eta[k]
        r[2, k] = r[1, k] * eta[k]
        r[3, k] = r[2, k] * eta[k]
    return top


@njit(**OPTIONS)
def moments(weights: Matrix, row: int, r: Matrix, tile: Vector) -> None:
    """M_0 to M_3 of every entry. Four topics a pass, to save loads and stores."""
    width = weights.shape[1]
    n_topics = r.shape[1]
    for e in span(0, width):
        tile[Z + e] = 0.0
        tile[KAPPA1 + e] = 0.0
        tile[KAPPA2 + e] = 0.0
        tile[KAPPA3 + e] = 0.0
    blocked = n_topics - n_topics % 4
    for k in range(0, blocked, 4):
        r00, r01, r02, r03 = r[0, k], r[0, k + 1], r[0, k + 2], r[0, k + 3]
        r10, r11, r12, r13 = r[1, k], r[1, k + 1], r[1, k + 2], r[1, k + 3]
        r20, r21, r22, r23 = r[2, k], r[2, k + 1], r[2, k + 2], r[2, k + 3]
        r30, r31, r32, r33 = r[3, k], r[3, k + 1], r[3, k + 2], r[3, k + 3]
        for e in span(0, width):
            b0 = weights[row + k, e]
            b1 = weights[row + k + 1, e]
            b2 = weights[row + k + 2, e]
            b3 = weights[row + k + 3, e]
            tile[Z + e] += r00 * b0 + r01 * b1 + r02 * b2 + r03 * b3
            tile[KAPPA1 + e] += r10 * b0 + r11 * b1 + r12 * b2 + r13 * b3
            tile[KAPPA2 + e] += r20 * b0 + r21 * b1 + r22 * b2 + r23 * b3
            tile[KAPPA3 + e] += r30 * b0 + r31 * b1 + r32 * b2 + r33 * b3
    for k in range(blocked, n_topics):
        r0, r1, r2, r3 = r[0, k], r[1, k], r[2, k], r[3, k]
        for e in span(0, width):
            b = weights[row + k, e]
            tile[Z + e] += r0 * b
            tile[KAPPA1 + e] += r1 * b
            tile[KAPPA2 + e] += r2 * b
            tile[KAPPA3 + e] += r3 * b


@njit(**OPTIONS)
def normalisers(weights: Matrix, row: int, r: Matrix, tile: Vector) -> None:
    """M_0 of every entry: all that a document without response needs."""
    width = weights.shape[1]
    n_topics = r.shape[1]
    for e in span(0, width):
        tile[Z + e] = 0.0
    blocked = n_topics - n_topics % 4
    for k in range(0, blocked, 4):
        r0, r1, r2, r3 = r[0, k], r[0, k + 1], r[0, k + 2], r[0, k + 3]
        for e in span(0, width):
            tile[Z + e] += (
                r0 * weights[row + k, e]
                + r1 * weights[row + k + 1, e]
                + r2 * weights[row + k + 2, e]
                + r3 * weights[row + k + 3, e]
            )
    for k in range(blocked, n_topics):
        r0 = r[0, k]
        for e in span(0, width):
            tile[Z + e] += r0 * weights[row + k, e]


@njit(**OPTIONS)
def accumulate(weights: Matrix, row: int, tile: Vector, sums: Matrix) -> None:
    """sums[j] += sum_n beta_n w_nj for j = 0..2."""
    for k in range(sums.shape[1]):
        s0 = 0.0
        s1 = 0.0
        s2 = 0.0
        for e in span(0, weights.shape[1]):
            b = weights[row + k, e]
            s0 += b * tile[W0 + e]
            s1 += b * tile[W1 + e]
            s2 += b * tile[W2 + e]
        sums[0, k] += s0
        sums[1, k] += s1
        sums[2, k] += s2


@njit(**OPTIONS)
def accumulate_plain(weights: Matrix, row: int, tile: Vector, sums: Matrix) -> None:
    """sums[0] += sum_n beta_n w_n0."""
    for k in range(sums.shape[1]):
        s0 = 0.0
        for e in span(0, weights.shape[1]):
            s0 += weights[row + k, e] * tile[W0 + e]
        sums[0, k] += s0


@njit(**OPTIONS)
def flush(s: Scratch) -> None:
    """Bring the sums made since r was set into sum_n phi_n, and clear them."""
    r, sums, assigned = s.r, s.sums, s.assigned
    for k in range(assigned.shape[0]):
        assigned[k] += r[0, k] * sums[0, k] + r[1, k] * sums[1, k] + r[2, k] * sums[2, k]
        sums[0, k] = 0.0
        sums[1, k] = 0.0
        sums[2, k] = 0.0


@njit(**OPTIONS)
def sum_of_logs(s: Scratch, n: int, top: float) -> float:
    """sum of c (top + log Z(a_base)) over the first `n` entries, those updated by themselves left out; Z is overwritten."""
    log(n, s.z, s.logs, s.tile_bits)
    tile = s.tile
    logs = s.logs
    total = 0.0
    for e in span(0, n):
        total += tile[TOKENS + e] * (top + logs[e])
    return total
