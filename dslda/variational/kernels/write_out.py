"""Sums over phi after a document's last sweep, and its row in each output.

`write_out` writes phi once, tile by tile, as sqrt(c) phi_n: second moments need its square. Row i is topic live[i]. From it
come

    expected counts       topic_counts[w] += c phi_n
    sum_n phi_n, sum_n m_n phi_n, and sum_n phi_n phi_n' ("gram"), for E[zbar], Cov[zbar] eta and E[zbar zbar']

and from these the document's part of the score and the information of eta (docs/model.md).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dslda.variational.kernels.ascent import Ascent
from dslda.variational.kernels.document_entries import Document, tile_row
from dslda.variational.kernels.layout import (
    CONVERGED,
    DOCUMENT_ELBO,
    ELBO,
    KNOWN_TOKENS,
    LOG_THETA_WEIGHT,
    MEAN,
    N_SWEEPS,
    N_TOKENS,
    N_UNCONVERGED,
    SWEEPS,
    VARIANCE,
    BlockPosteriors,
)
from dslda.variational.kernels.scratch import (
    DEAD_LIMIT,
    KAPPA1,
    KAPPA2,
    OPTIONS,
    W0,
    W1,
    W2,
    Base,
    KernelParameters,
    Matrix,
    Scratch,
    T,
    Vector,
    Z,
    span,
)
from dslda.variational.kernels.tiles import choose_live
from dslda.variational.kernels.updates import alone, taylor_serves
from dslda.variational.special import digamma

# contents of the tile's vector in this module: sums of phi, phi eta and phi eta^2; later sqrt(c) / Z, sqrt(c), sqrt(c) m
_Z, _FIRST, _SECOND = Z, KAPPA1, KAPPA2
_FACTOR, _ROOT, _ROOT_M = W0, W1, W2


@njit(**OPTIONS)
def write_phi(weights: Matrix, row: int, s: Scratch, n_live: int) -> None:
    """Unnormalised phi of a tile, shape (live topics, width), at every entry's t, with the sums of phi, phi eta, phi eta^2.

    The rows that fill up to a multiple of 4 are zero.
    """
    live, tile, phi = s.live, s.tile, s.phi_tile
    width = weights.shape[1]
    for e in span(0, width):
        tile[_Z + e] = 0.0
        tile[_FIRST + e] = 0.0
        tile[_SECOND + e] = 0.0
    for i in range((n_live + 3) // 4 * 4):
        k = row + live[i]
        r = s.live_r[i]
        eta = s.live_eta[i]
        for e in span(0, width):
            u = tile[T + e] * eta
            p = r * weights[k, e] * (1.0 + u * (1.0 + u * (0.5 + u / 6.0)))
            phi[i, e] = p
            tile[_Z + e] += p
            tile[_FIRST + e] += p * eta
            tile[_SECOND + e] += p * eta * eta


@njit(**OPTIONS)
def series_serves(s: Scratch, e: int, reach: float, limit: float, floor: float) -> bool:
    """True if `write_phi` is good enough for an entry."""
    tile = s.tile
    i = np.uint64(e)
    z = tile[_Z + i]
    return z >= floor and taylor_serves(tile[T + i], tile[_SECOND + i] / z, reach, limit)


@njit(**OPTIONS)
def series_serves_up_to(s: Scratch, n: int, reach: float, limit: float, floor: float) -> int:
    """The first of the `n` entries that needs `write_phi_alone`, or n."""
    for e in range(n):
        if not series_serves(s, e, reach, limit, floor):
            return e
    return n


@njit(**OPTIONS)
def write_phi_alone(model: KernelParameters, s: Scratch, start: int, e: int, base: Base) -> None:
    """Replace the phi that `write_phi` wrote for an entry."""
    tile, phi = s.tile, s.phi_tile
    i = np.uint64(e)
    entry = alone(model, s, s.terms[start + e], s.a[start + e], base)
    tile[_Z + i] = 1.0
    tile[_FIRST + i] = entry.m
    tile[_SECOND + i] = entry.square
    for k in range(model.eta.shape[0]):
        phi[k, i] = s.phi[k]


@njit(**OPTIONS)
def factors(s: Scratch, start: int, n: int, width: int) -> tuple[float, float]:
    """From the sums of `write_phi`: sqrt(c) / Z, sqrt(c) and sqrt(c) m, zeros in the padding.

    Returns sum c m and sum c Var(eta).
    """
    tile, copies = s.tile, s.copies
    at = np.uint64(start)
    m_total = 0.0
    spread = 0.0
    for e in span(0, n):
        c = copies[at + e]
        z = tile[_Z + e]
        m = tile[_FIRST + e] / z
        root = math.sqrt(c)
        tile[_FACTOR + e] = root / z
        tile[_ROOT + e] = root
        tile[_ROOT_M + e] = root * m
        m_total += c * m
        spread += c * max(tile[_SECOND + e] / z - m * m, 0.0)
    for e in span(n, width):
        tile[_FACTOR + e] = 0.0
        tile[_ROOT + e] = 0.0
        tile[_ROOT_M + e] = 0.0
    return m_total, spread


@njit(**OPTIONS)
def tilt_factors(s: Scratch, start: int, n: int, length: float) -> float:
    """After `factors`, with eta tilted: replace sqrt(c) m by sqrt(c) / kappa. Returns sum c log kappa."""
    tile, copies = s.tile, s.copies
    at = np.uint64(start)
    product = 0.0
    for e in span(0, n):
        excess = tile[_FIRST + e] / (tile[_Z + e] * length)
        tile[_ROOT_M + e] = tile[_ROOT + e] / (1.0 + excess)
        product += copies[at + e] * math.log1p(excess)
    return product


@njit(**OPTIONS)
def scale_phi(s: Scratch, n_live: int, width: int) -> None:
    """sqrt(c) phi in place of the unnormalised phi, and the tile's part of sum_n phi_n and sum_n m_n phi_n."""
    tile, phi = s.tile, s.phi_tile
    for i in range(n_live):
        total = 0.0
        total_m = 0.0
        for e in span(0, width):
            p = phi[i, e] * tile[_FACTOR + e]
            phi[i, e] = p
            total += p * tile[_ROOT + e]
            total_m += p * tile[_ROOT_M + e]
        s.assigned[s.live[i]] += total
        s.assigned_m[s.live[i]] += total_m


@njit(**OPTIONS)
def tilt_phi(s: Scratch, n: int, n_live: int) -> None:
    """sqrt(c) phi / kappa in place of sqrt(c) phi."""
    tile, phi = s.tile, s.phi_tile
    for e in span(0, n):
        tile[_FACTOR + e] = tile[_ROOT_M + e] / tile[_ROOT + e]
    for i in range(n_live):
        for e in span(0, n):
            phi[i, e] *= tile[_FACTOR + e]


@njit(**OPTIONS)
def add_expected_counts(
    s: Scratch, start: int, n: int, n_live: int, weight: float, topic_counts: Matrix
) -> None:
    """topic_counts[term of n] += weight c phi_n. Four terms a pass: their rows are far apart in memory."""
    terms, live, phi = s.terms, s.live, s.phi_tile
    root = s.tile[_ROOT : _ROOT + np.uint64(n)]
    blocked = n - n % 4
    for e in range(0, blocked, 4):
        w0, w1, w2, w3 = terms[start + e], terms[start + e + 1], terms[start + e + 2], terms[start + e + 3]
        r0, r1 = weight * root[e], weight * root[e + 1]
        r2, r3 = weight * root[e + 2], weight * root[e + 3]
        for i in range(n_live):
            k = live[i]
            topic_counts[w0, k] += r0 * phi[i, e]
            topic_counts[w1, k] += r1 * phi[i, e + 1]
            topic_counts[w2, k] += r2 * phi[i, e + 2]
            topic_counts[w3, k] += r3 * phi[i, e + 3]
    for e in range(blocked, n):
        w0 = terms[start + e]
        for i in range(n_live):
            topic_counts[w0, live[i]] += weight * root[e] * phi[i, e]


@njit(**OPTIONS)
def add_gram(s: Scratch, n_live: int, width: int) -> None:
    """Lower triangle of gram += phi phi', two rows by four columns at a time."""
    phi, live, gram = s.phi_tile, s.live, s.gram
    for i in range(0, n_live, 2):
        for j in range(0, i + 1, 4):
            s00 = s01 = s02 = s03 = 0.0
            s10 = s11 = s12 = s13 = 0.0
            for e in span(0, width):
                p0 = phi[i, e]
                p1 = phi[i + 1, e]
                q0 = phi[j, e]
                q1 = phi[j + 1, e]
                q2 = phi[j + 2, e]
                q3 = phi[j + 3, e]
                s00 += p0 * q0
                s01 += p0 * q1
                s02 += p0 * q2
                s03 += p0 * q3
                s10 += p1 * q0
                s11 += p1 * q1
                s12 += p1 * q2
                s13 += p1 * q3
            add_row(gram, live, n_live, i, j, s00, s01, s02, s03)
            add_row(gram, live, n_live, i + 1, j, s10, s11, s12, s13)


@njit(**OPTIONS)
def add_row(
    gram: Matrix,
    live: NDArray[np.int64],
    n_live: int,
    i: int,
    j: int,
    s0: float,
    s1: float,
    s2: float,
    s3: float,
) -> None:
    """Add to the topics live[j], ..., live[j + 3] of row live[i]; j <= i. Nobody reads the right of the diagonal."""
    if i >= n_live:
        return
    k = live[i]
    gram[k, live[j]] += s0
    gram[k, live[min(j + 1, i)]] += s1 if j + 1 <= i else 0.0
    gram[k, live[min(j + 2, i)]] += s2 if j + 2 <= i else 0.0
    gram[k, live[min(j + 3, i)]] += s3 if j + 3 <= i else 0.0


@njit(**OPTIONS)
def add_response_statistics(
    s: Scratch,
    eta: Vector,
    length: float,
    first: float,
    curvature: float,
    weight: float,
    score: Vector,
    information: Matrix,
) -> None:
    """Add one document's score l1 E[zbar] + l2 Cov[zbar] eta and information weight E[zbar zbar'] (lower triangle).

    N^2 E[zbar zbar'] = f f' - gram + diag(f) with f = sum_n phi_n; gram eta = sum_n m_n phi_n.
    """
    assigned, assigned_m, gram = s.assigned, s.assigned_m, s.gram
    bend = curvature / (length * length)
    scale = weight / (length * length)
    for i in range(assigned.shape[0]):
        f_i = assigned[i]
        score[i] += first * f_i / length + bend * (f_i * eta[i] - assigned_m[i])
        for j in range(i + 1):
            information[i, j] += scale * (f_i * assigned[j] - gram[i, j])
        information[i, i] += scale * f_i


@njit(**OPTIONS)
def add_covariate_statistics(
    assigned: Vector,
    length: float,
    first: float,
    weight: float,
    x: Vector,
    score: Vector,
    information: Matrix,
) -> None:
    """Add to the rows of score and information of the covariates x, below those of the topics.

    `weight` times `assigned` / N is the information that topics share with a constant.
    """
    n_topics = assigned.shape[0]
    for p in range(x.shape[0]):
        row = n_topics + p
        score[row] += first * x[p]
        for i in range(n_topics):
            information[row, i] += weight * x[p] * assigned[i] / length
        for q in range(p + 1):
            information[row, n_topics + q] += weight * x[p] * x[q]


@njit(**OPTIONS)
def add_log_theta(
    model: KernelParameters, s: Scratch, length: float, weight: float, log_theta: Vector, scalars: Vector
) -> None:
    """Add one document's E[log theta] times its weight."""
    total = digamma(model.alpha_sum + length)
    for k in range(log_theta.shape[0]):
        log_theta[k] += weight * (s.elog[k] - total)
    scalars[LOG_THETA_WEIGHT] += weight


@njit(**OPTIONS)
def write_document(
    model: KernelParameters,
    s: Scratch,
    ascent: Ascent,
    d: int,
    weight: float,
    n_tokens: int,
    mean: float,
    variance: float,
    scalars: Vector,
    posteriors: BlockPosteriors,
) -> None:
    """Add document `d` to the scalars, and write its rows of gamma and `per_document` if asked."""
    scalars[ELBO] += weight * ascent.elbo
    scalars[N_UNCONVERGED] += 0.0 if ascent.converged else 1.0
    scalars[N_SWEEPS] += ascent.n_sweeps
    scalars[N_TOKENS] += n_tokens
    gamma, per_document = posteriors.gamma, posteriors.per_document
    if gamma.shape[0] > 0:
        for k in range(gamma.shape[1]):
            gamma[d, k] = model.alpha[k] + s.assigned[k]
    if per_document.shape[0] > 0:
        per_document[d, MEAN] = mean
        per_document[d, VARIANCE] = variance
        per_document[d, DOCUMENT_ELBO] = ascent.elbo
        per_document[d, SWEEPS] = ascent.n_sweeps
        per_document[d, KNOWN_TOKENS] = n_tokens
        per_document[d, CONVERGED] = 1.0 if ascent.converged else 0.0


@njit(**OPTIONS)
def write_out(
    model: KernelParameters,
    s: Scratch,
    document: Document,
    a_base: float,
    weight: float,
    topic_counts: Matrix,
    labelled: bool,
    product: bool,
) -> tuple[float, float]:
    """Write phi of the last sweep and its sums; returns sum_n m_n and sum_n Var(eta).

    If `topic_counts` has rows, it adds the expected counts times `weight`, and makes `gram` if the document is `labelled`.
    With `product`, `model` is tilted (:mod:`dslda.variational.kernels.exponential`): the first number returned is
    sum_n log kappa_n, `assigned_m` is sum_n phi_n / kappa_n, and `gram` sums over phi_n / kappa_n.
    """
    n_topics = model.topics.shape[1]
    tile, width, gram = s.tile, document.width, s.gram
    learn = topic_counts.shape[0] > 0
    for k in range(n_topics):
        s.assigned[k] = 0.0
        s.assigned_m[k] = 0.0
    if learn and labelled:
        for i in range(gram.shape[0]):
            for j in range(gram.shape[0]):
                gram[i, j] = 0.0
    m_sum = 0.0
    spread = 0.0
    n_live, floor = choose_live(s, model.eta, DEAD_LIMIT)
    base = Base(a_base, 0.0, n_live, floor)  # top only shifts the log Z of `alone`, which is not used here
    for start in range(0, document.n, width):
        n_tile = min(width, document.n - start)
        row = tile_row(model, s, document, start)
        at = np.uint64(start)
        for e in span(0, n_tile):
            tile[T + e] = s.a[at + e] - a_base
        for e in span(n_tile, width):
            tile[T + e] = 0.0
        write_phi(document.weights, row, s, n_live)
        served = series_serves_up_to(s, n_tile, model.reach, model.series_limit, floor)
        if served < n_tile and n_live < n_topics:
            # an entry written alone may have any topic: all are live from here on
            n_live, floor = choose_live(s, model.eta, 0.0)
            write_phi(document.weights, row, s, n_live)
        for e in range(served, n_tile):
            if not series_serves(s, e, model.reach, model.series_limit, floor):
                write_phi_alone(model, s, start, e, base)
        part_m, part_spread = factors(s, start, n_tile, width)
        if product:
            part_m = tilt_factors(s, start, n_tile, document.length)
        m_sum += part_m
        spread += part_spread
        scale_phi(s, n_live, width)
        if learn:
            add_expected_counts(s, start, n_tile, n_live, weight, topic_counts)
            if labelled:
                if product:
                    tilt_phi(s, n_tile, n_live)
                add_gram(s, n_live, width)
    return m_sum, spread
