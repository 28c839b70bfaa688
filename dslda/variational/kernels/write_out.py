"""What a document leaves behind after its last sweep: phi, written once, and everything that is summed over phi.

phi is written tile by tile as sqrt(c) phi_n, so that its square is what the second moments need:

    expected counts       topic_word[w] += c phi_n
    sum_n phi_n, sum_n m_n phi_n, and sum_n phi_n phi_n' ("gram"), which make E[zbar], Cov[zbar] eta and E[zbar zbar']

and from these one document's part of the score and the information of eta (docs/model.md).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dslda.variational.kernels.documents import Document, tile_row
from dslda.variational.kernels.scratch import (
    KAPPA1,
    KAPPA2,
    OPTIONS,
    SMALLEST_NORMALISER,
    W0,
    W1,
    W2,
    Matrix,
    Model,
    Scratch,
    T,
    Vector,
    Z,
    span,
)
from dslda.variational.kernels.updates import Base, alone, taylor_serves

# what the rows of the tile's vector hold here: sums of phi, phi eta and phi eta^2, later sqrt(c) / Z, sqrt(c), sqrt(c) m
_Z, _FIRST, _SECOND = Z, KAPPA1, KAPPA2
_FACTOR, _ROOT, _ROOT_M = W0, W1, W2


@njit(**OPTIONS)
def write_phi(weights: Matrix, row: int, eta: Vector, s: Scratch) -> None:
    """Unnormalised phi of a tile, shape (K, width), at every entry's t, with the sums of phi, phi eta and phi eta^2."""
    r, tile, phi = s.r, s.tile, s.phi_tile
    width = weights.shape[1]
    for e in span(0, width):
        tile[_Z + e] = 0.0
        tile[_FIRST + e] = 0.0
        tile[_SECOND + e] = 0.0
    for k in range(eta.shape[0]):
        rk = r[0, k]
        eta_k = eta[k]
        for e in span(0, width):
            u = tile[T + e] * eta_k
            p = rk * weights[row + k, e] * (1.0 + u * (1.0 + u * (0.5 + u / 6.0)))
            phi[k, e] = p
            tile[_Z + e] += p
            tile[_FIRST + e] += p * eta_k
            tile[_SECOND + e] += p * eta_k * eta_k


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
def scale_phi(s: Scratch, width: int) -> None:
    """sqrt(c) phi in place of the unnormalised phi, and the tile's part of sum_n phi_n and sum_n m_n phi_n."""
    tile, phi, assigned, assigned_m = s.tile, s.phi_tile, s.assigned, s.assigned_m
    for k in range(assigned.shape[0]):
        total = 0.0
        total_m = 0.0
        for e in span(0, width):
            p = phi[k, e] * tile[_FACTOR + e]
            phi[k, e] = p
            total += p * tile[_ROOT + e]
            total_m += p * tile[_ROOT_M + e]
        assigned[k] += total
        assigned_m[k] += total_m


@njit(**OPTIONS)
def add_expected_counts(
    terms: NDArray[np.int32], start: int, n: int, weight: float, tile: Vector, phi: Matrix, topic_word: Matrix
) -> None:
    """topic_word[term of n] += weight c phi_n. Four terms a pass: their rows are far apart in memory."""
    root = tile[_ROOT : _ROOT + np.uint64(n)]
    blocked = n - n % 4
    for e in range(0, blocked, 4):
        w0, w1, w2, w3 = terms[start + e], terms[start + e + 1], terms[start + e + 2], terms[start + e + 3]
        r0, r1 = weight * root[e], weight * root[e + 1]
        r2, r3 = weight * root[e + 2], weight * root[e + 3]
        for k in range(topic_word.shape[1]):
            topic_word[w0, k] += r0 * phi[k, e]
            topic_word[w1, k] += r1 * phi[k, e + 1]
            topic_word[w2, k] += r2 * phi[k, e + 2]
            topic_word[w3, k] += r3 * phi[k, e + 3]
    for e in range(blocked, n):
        w0 = terms[start + e]
        for k in range(topic_word.shape[1]):
            topic_word[w0, k] += weight * root[e] * phi[k, e]


@njit(**OPTIONS)
def add_gram(width: int, phi: Matrix, n_topics: int, gram: Matrix) -> None:
    """Lower triangle of gram += phi phi', two rows by four columns at a time; what lies right of it is never read."""
    for i in range(0, n_topics, 2):
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
            gram[i, j] += s00
            gram[i, j + 1] += s01
            gram[i, j + 2] += s02
            gram[i, j + 3] += s03
            gram[i + 1, j] += s10
            gram[i + 1, j + 1] += s11
            gram[i + 1, j + 2] += s12
            gram[i + 1, j + 3] += s13


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
    s: Scratch, length: float, first: float, weight: float, x: Vector, score: Vector, information: Matrix
) -> None:
    """The rows of score and information that belong to the covariates x, below those of the topics."""
    assigned = s.assigned
    n_topics = assigned.shape[0]
    for p in range(x.shape[0]):
        row = n_topics + p
        score[row] += first * x[p]
        for i in range(n_topics):
            information[row, i] += weight * x[p] * assigned[i] / length
        for q in range(p + 1):
            information[row, n_topics + q] += weight * x[p] * x[q]


@njit(**OPTIONS)
def write_out(
    model: Model, s: Scratch, document: Document, a_base: float, weight: float, topic_word: Matrix
) -> tuple[float, float]:
    """Write phi of the last sweep and what is summed over it; returns sum_n m_n and sum_n Var(eta).

    The expected counts times `weight` are added to `topic_word` if it has rows;
    only then `gram` is made, for a labelled document.
    """
    n_topics = model.topics.shape[1]
    tile, width, gram = s.tile, document.width, s.gram
    learn = topic_word.shape[0] > 0
    for k in range(n_topics):
        s.assigned[k] = 0.0
        s.assigned_m[k] = 0.0
    if learn and document.labelled:
        for i in range(gram.shape[0]):
            for j in range(gram.shape[0]):
                gram[i, j] = 0.0
    m_sum = 0.0
    spread = 0.0
    base = Base(a_base, 0.0)
    for start in range(0, document.n, width):
        n_tile = min(width, document.n - start)
        row = tile_row(model, s, document, start)
        at = np.uint64(start)
        for e in span(0, n_tile):
            tile[T + e] = s.a[at + e] - a_base if document.labelled else 0.0
        for e in span(n_tile, width):
            tile[T + e] = 0.0
        write_phi(document.weights, row, model.eta, s)
        for e in span(0, n_tile):
            z = tile[_Z + e]
            if z < SMALLEST_NORMALISER or not taylor_serves(tile[T + e], tile[_SECOND + e] / z, model.reach):
                entry = alone(model, s, s.terms[at + e], s.a[at + e], base)
                tile[_Z + e] = 1.0
                tile[_FIRST + e] = entry.m
                tile[_SECOND + e] = entry.square
                for k in range(n_topics):
                    s.phi_tile[k, e] = s.phi[k]
        part_m, part_spread = factors(s, start, n_tile, width)
        m_sum += part_m
        spread += part_spread
        scale_phi(s, width)
        if learn:
            add_expected_counts(s.terms, start, n_tile, weight, tile, s.phi_tile, topic_word)
            if document.labelled:
                add_gram(width, s.phi_tile, n_topics, gram)
    return m_sum, spread
