"""Sums over the topics and entries of a tile: all the work of a sweep that grows with entries times topics.

phi_n is proportional to beta_n exp(h + a_n eta), and between the entries of a document only the number a_n changes, by
little. With r = exp(h + a_base eta - top), coordinate ascent needs of each entry only

    M_j = sum_k beta_k r_k eta_k^j,   j = 0..3        (`moments`)

Entries do not depend on each other there, so the sums are vectorised over a whole tile. In return, with t = a_n - a_base,

    sum_n phi_n = r sum_n beta_n w_n0 + r eta sum_n beta_n w_n1 + r eta^2 sum_n beta_n w_n2        (`accumulate`, `flush`)
    w_n0, w_n1, w_n2 = (1, t, t^2 / 2) c / Z

Sums run over the document's own topics, `live`: see `DEAD_LIMIT`. `document_entries` lays out the tiles.
"""

from __future__ import annotations

import numpy as np
from numba import njit

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
    KernelParameters,
    Matrix,
    Scratch,
    Vector,
    Z,
    span,
)
from dslda.variational.special import exp_shifted, log


@njit(**OPTIONS)
def choose_live(s: Scratch, eta: Vector, limit: float) -> tuple[int, float]:
    """Write the topics with r above `limit`; returns their number and the least normaliser of an entry (`Base.floor`)."""
    r, live, live_r, live_eta = s.r, s.live, s.live_r, s.live_eta
    n_live = 0
    left_out = 0.0
    for k in range(r.shape[0]):
        if r[k] > limit:
            live[n_live] = k
            live_r[n_live] = r[k]
            live_eta[n_live] = eta[k]
            n_live += 1
        else:
            left_out += r[k]
    for i in range(n_live, (n_live + 3) // 4 * 4):
        live[i] = 0
        live_r[i] = 0.0
        live_eta[i] = 0.0
    return n_live, max(SMALLEST_NORMALISER, left_out / DEAD_SHARE)


@njit(**OPTIONS)
def set_base(model: KernelParameters, s: Scratch, a: float) -> Base:
    """r = exp(h + a eta - top) with top the largest exponent, and the live topics."""
    h, eta, exponents = s.h, model.eta, s.exponents
    top = -np.inf
    for k in range(h.shape[0]):
        exponents[k] = h[k] + a * eta[k]
        top = max(top, exponents[k])
    exp_shifted(exponents, top, s.r, s.bits)
    n_live, floor = choose_live(s, eta, DEAD_LIMIT)
    return Base(a, top, n_live, floor)


@njit(**OPTIONS)
def moments(weights: Matrix, row: int, s: Scratch, n_live: int) -> None:
    """M_0 to M_3 of every entry. Four topics a pass save loads and stores; r eta^j is multiplied up to spare registers."""
    width = weights.shape[1]
    live, r, eta, tile = s.live, s.live_r, s.live_eta, s.tile
    for e in span(0, width):
        tile[Z + e] = 0.0
        tile[KAPPA1 + e] = 0.0
        tile[KAPPA2 + e] = 0.0
        tile[KAPPA3 + e] = 0.0
    for i in range(0, n_live, 4):
        k0, k1, k2, k3 = row + live[i], row + live[i + 1], row + live[i + 2], row + live[i + 3]
        r0, r1, r2, r3 = r[i], r[i + 1], r[i + 2], r[i + 3]
        eta0, eta1, eta2, eta3 = eta[i], eta[i + 1], eta[i + 2], eta[i + 3]
        for e in span(0, width):
            p0 = r0 * weights[k0, e]
            p1 = r1 * weights[k1, e]
            p2 = r2 * weights[k2, e]
            p3 = r3 * weights[k3, e]
            tile[Z + e] += p0 + p1 + p2 + p3
            p0 *= eta0
            p1 *= eta1
            p2 *= eta2
            p3 *= eta3
            tile[KAPPA1 + e] += p0 + p1 + p2 + p3
            p0 *= eta0
            p1 *= eta1
            p2 *= eta2
            p3 *= eta3
            tile[KAPPA2 + e] += p0 + p1 + p2 + p3
            tile[KAPPA3 + e] += p0 * eta0 + p1 * eta1 + p2 * eta2 + p3 * eta3


@njit(**OPTIONS)
def normalisers(weights: Matrix, row: int, s: Scratch, n_live: int) -> None:
    """M_0 of every entry, for a document without response."""
    width = weights.shape[1]
    live, r, tile = s.live, s.live_r, s.tile
    for e in span(0, width):
        tile[Z + e] = 0.0
    for i in range(0, n_live, 4):
        k0, k1, k2, k3 = row + live[i], row + live[i + 1], row + live[i + 2], row + live[i + 3]
        r0, r1, r2, r3 = r[i], r[i + 1], r[i + 2], r[i + 3]
        for e in span(0, width):
            tile[Z + e] += (
                r0 * weights[k0, e] + r1 * weights[k1, e] + r2 * weights[k2, e] + r3 * weights[k3, e]
            )


@njit(**OPTIONS)
def accumulate(weights: Matrix, row: int, s: Scratch, n_live: int) -> None:
    """sums[j] += sum_n beta_n w_nj for j = 0..2. Four topics a pass share loads of w."""
    live, tile, sums = s.live, s.tile, s.sums
    for i in range(0, n_live, 4):
        k0, k1, k2, k3 = row + live[i], row + live[i + 1], row + live[i + 2], row + live[i + 3]
        s00 = s01 = s02 = s03 = 0.0
        s10 = s11 = s12 = s13 = 0.0
        s20 = s21 = s22 = s23 = 0.0
        for e in span(0, weights.shape[1]):
            w0 = tile[W0 + e]
            w1 = tile[W1 + e]
            w2 = tile[W2 + e]
            b = weights[k0, e]
            s00 += b * w0
            s10 += b * w1
            s20 += b * w2
            b = weights[k1, e]
            s01 += b * w0
            s11 += b * w1
            s21 += b * w2
            b = weights[k2, e]
            s02 += b * w0
            s12 += b * w1
            s22 += b * w2
            b = weights[k3, e]
            s03 += b * w0
            s13 += b * w1
            s23 += b * w2
        add_four(sums[0], i, s00, s01, s02, s03)
        add_four(sums[1], i, s10, s11, s12, s13)
        add_four(sums[2], i, s20, s21, s22, s23)


@njit(**OPTIONS)
def accumulate_plain(weights: Matrix, row: int, s: Scratch, n_live: int) -> None:
    """sums[0] += sum_n beta_n w_n0."""
    live, tile = s.live, s.tile
    for i in range(0, n_live, 4):
        k0, k1, k2, k3 = row + live[i], row + live[i + 1], row + live[i + 2], row + live[i + 3]
        s0 = s1 = s2 = s3 = 0.0
        for e in span(0, weights.shape[1]):
            w = tile[W0 + e]
            s0 += weights[k0, e] * w
            s1 += weights[k1, e] * w
            s2 += weights[k2, e] * w
            s3 += weights[k3, e] * w
        add_four(s.sums[0], i, s0, s1, s2, s3)


@njit(**OPTIONS)
def add_four(to: Vector, i: int, s0: float, s1: float, s2: float, s3: float) -> None:
    """Add to four numbers from `i`."""
    to[i] += s0
    to[i + 1] += s1
    to[i + 2] += s2
    to[i + 3] += s3


@njit(**OPTIONS)
def flush(s: Scratch, n_live: int) -> None:
    """Move the sums since r was set into sum_n phi_n, and clear them."""
    sums, assigned = s.sums, s.assigned
    for i in range(n_live):
        eta = s.live_eta[i]
        assigned[s.live[i]] += s.live_r[i] * (sums[0, i] + eta * (sums[1, i] + eta * sums[2, i]))
    sums[:, : (n_live + 3) // 4 * 4] = 0.0


@njit(**OPTIONS)
def sum_of_logs(s: Scratch, n: int, top: float) -> float:
    """Sum of c (top + log Z(a_base)) over the first `n` entries except those updated alone; overwrites Z."""
    log(n, s.z, s.logs, s.tile_bits)
    tile = s.tile
    logs = s.logs
    total = 0.0
    for e in span(0, n):
        total += tile[TOKENS + e] * (top + logs[e])
    return total
