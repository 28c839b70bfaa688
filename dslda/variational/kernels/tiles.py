"""Sums over the topics and over the entries of a tile: all the work that grows with entries times topics in a sweep.

phi_n is proportional to beta_n exp(h + a_n eta), and between the entries of a document only the number a_n changes, by
little. With r = exp(h + a_base eta - top), everything that coordinate ascent needs of a tile of entries follows from

    M_j = sum_k beta_k r_k eta_k^j,   j = 0..3        (`moments`)

which do not depend on each other: vectorised over entries, for a whole tile at once. In return, with t = a_n - a_base,

    sum_n phi_n = r sum_n beta_n w_n0 + r eta sum_n beta_n w_n1 + r eta^2 sum_n beta_n w_n2        (`accumulate`, `flush`)
    w_n0, w_n1, w_n2 = (1, t, t^2 / 2) c / Z

Only the topics of `live`, the document's own, are summed over: see `DEAD_LIMIT`.

A document's tiles of beta are rows row, ..., row + K - 1 of one matrix of `width` columns, padded with zeros on the right:
a view made for each tile would cost more than the arithmetic on it.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dslda.variational.kernels.scratch import (
    DEAD_LIMIT,
    DEAD_SHARE,
    KAPPA1,
    KAPPA2,
    KAPPA3,
    OPTIONS,
    SMALLEST_NORMALISER,
    TOKENS,
    W0,
    W1,
    W2,
    Base,
    Matrix,
    Model,
    Scratch,
    Vector,
    Z,
    span,
)
from dslda.variational.special import exp_shifted, log


@njit(**OPTIONS)
def choose_live(r: Vector, live: NDArray[np.int64]) -> tuple[int, float]:
    """Write the topics that matter at this r; returns their number and the normaliser that an entry must have (`Base`)."""
    n_live = 0
    left_out = 0.0
    for k in range(r.shape[0]):
        if r[k] > DEAD_LIMIT:
            live[n_live] = k
            n_live += 1
        else:
            left_out += r[k]
    return n_live, max(SMALLEST_NORMALISER, left_out / DEAD_SHARE)


@njit(**OPTIONS)
def set_base(model: Model, s: Scratch, a: float) -> Base:
    """r[j] = exp(h + a eta - top) eta^j for j = 0..3 with top the largest exponent, and the live topics."""
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
    n_live, floor = choose_live(r[0], s.live)
    return Base(a, top, n_live, floor)


@njit(**OPTIONS)
def moments(weights: Matrix, row: int, s: Scratch, n_live: int) -> None:
    """M_0 to M_3 of every entry. Four topics a pass, to save loads and stores.

    Two moments a pass: eight factors and what goes with them fit into sixteen registers, sixteen factors do not.
    """
    width = weights.shape[1]
    r, live, tile = s.r, s.live, s.tile
    for e in span(0, width):
        tile[Z + e] = 0.0
        tile[KAPPA1 + e] = 0.0
        tile[KAPPA2 + e] = 0.0
        tile[KAPPA3 + e] = 0.0
    blocked = n_live - n_live % 4
    for i in range(0, blocked, 4):
        k0, k1, k2, k3 = live[i], live[i + 1], live[i + 2], live[i + 3]
        r00, r01, r02, r03 = r[0, k0], r[0, k1], r[0, k2], r[0, k3]
        r10, r11, r12, r13 = r[1, k0], r[1, k1], r[1, k2], r[1, k3]
        for e in span(0, width):
            b0 = weights[row + k0, e]
            b1 = weights[row + k1, e]
            b2 = weights[row + k2, e]
            b3 = weights[row + k3, e]
            tile[Z + e] += r00 * b0 + r01 * b1 + r02 * b2 + r03 * b3
            tile[KAPPA1 + e] += r10 * b0 + r11 * b1 + r12 * b2 + r13 * b3
        r20, r21, r22, r23 = r[2, k0], r[2, k1], r[2, k2], r[2, k3]
        r30, r31, r32, r33 = r[3, k0], r[3, k1], r[3, k2], r[3, k3]
        for e in span(0, width):
            b0 = weights[row + k0, e]
            b1 = weights[row + k1, e]
            b2 = weights[row + k2, e]
            b3 = weights[row + k3, e]
            tile[KAPPA2 + e] += r20 * b0 + r21 * b1 + r22 * b2 + r23 * b3
            tile[KAPPA3 + e] += r30 * b0 + r31 * b1 + r32 * b2 + r33 * b3
    for i in range(blocked, n_live):
        k = live[i]
        r0, r1, r2, r3 = r[0, k], r[1, k], r[2, k], r[3, k]
        for e in span(0, width):
            b = weights[row + k, e]
            tile[Z + e] += r0 * b
            tile[KAPPA1 + e] += r1 * b
            tile[KAPPA2 + e] += r2 * b
            tile[KAPPA3 + e] += r3 * b


@njit(**OPTIONS)
def normalisers(weights: Matrix, row: int, s: Scratch, n_live: int) -> None:
    """M_0 of every entry: all that a document without response needs."""
    width = weights.shape[1]
    r, live, tile = s.r, s.live, s.tile
    for e in span(0, width):
        tile[Z + e] = 0.0
    blocked = n_live - n_live % 4
    for i in range(0, blocked, 4):
        k0, k1, k2, k3 = live[i], live[i + 1], live[i + 2], live[i + 3]
        r0, r1, r2, r3 = r[0, k0], r[0, k1], r[0, k2], r[0, k3]
        for e in span(0, width):
            tile[Z + e] += (
                r0 * weights[row + k0, e]
                + r1 * weights[row + k1, e]
                + r2 * weights[row + k2, e]
                + r3 * weights[row + k3, e]
            )
    for i in range(blocked, n_live):
        k = live[i]
        r0 = r[0, k]
        for e in span(0, width):
            tile[Z + e] += r0 * weights[row + k, e]


@njit(**OPTIONS)
def accumulate(weights: Matrix, row: int, s: Scratch, n_live: int) -> None:
    """sums[j] += sum_n beta_n w_nj for j = 0..2. Two topics a pass share the loads of w."""
    live, tile, sums = s.live, s.tile, s.sums
    blocked = n_live - n_live % 2
    for i in range(0, blocked, 2):
        k, other = live[i], live[i + 1]
        s00 = s01 = s02 = 0.0
        s10 = s11 = s12 = 0.0
        for e in span(0, weights.shape[1]):
            b0 = weights[row + k, e]
            b1 = weights[row + other, e]
            s00 += b0 * tile[W0 + e]
            s01 += b0 * tile[W1 + e]
            s02 += b0 * tile[W2 + e]
            s10 += b1 * tile[W0 + e]
            s11 += b1 * tile[W1 + e]
            s12 += b1 * tile[W2 + e]
        sums[0, i] += s00
        sums[1, i] += s01
        sums[2, i] += s02
        sums[0, i + 1] += s10
        sums[1, i + 1] += s11
        sums[2, i + 1] += s12
    if blocked < n_live:
        k = live[blocked]
        s00 = s01 = s02 = 0.0
        for e in span(0, weights.shape[1]):
            b0 = weights[row + k, e]
            s00 += b0 * tile[W0 + e]
            s01 += b0 * tile[W1 + e]
            s02 += b0 * tile[W2 + e]
        sums[0, blocked] += s00
        sums[1, blocked] += s01
        sums[2, blocked] += s02


@njit(**OPTIONS)
def accumulate_plain(weights: Matrix, row: int, s: Scratch, n_live: int) -> None:
    """sums[0] += sum_n beta_n w_n0."""
    live, tile, sums = s.live, s.tile, s.sums
    for i in range(n_live):
        k = live[i]
        s0 = 0.0
        for e in span(0, weights.shape[1]):
            s0 += weights[row + k, e] * tile[W0 + e]
        sums[0, i] += s0


@njit(**OPTIONS)
def flush(s: Scratch, n_live: int) -> None:
    """Bring the sums made since r was set into sum_n phi_n, and clear them."""
    r, live, sums, assigned = s.r, s.live, s.sums, s.assigned
    for i in range(n_live):
        k = live[i]
        assigned[k] += r[0, k] * sums[0, i] + r[1, k] * sums[1, i] + r[2, k] * sums[2, i]
        sums[0, i] = 0.0
        sums[1, i] = 0.0
        sums[2, i] = 0.0


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
