"""Derivatives of a loss through the inference of documents from their words alone, and the bound of these.

Letters are those of `word_inference`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import boolean, float64, njit, types
from numpy.typing import NDArray

from dslda.variational.kernels.layout import READ_ONLY_1D, READ_ONLY_2D
from dslda.variational.kernels.scratch import ENTRY_OPTIONS, OPTIONS, Matrix, Vector, vector, words
from dslda.variational.kernels.word_columns import (
    DOCUMENTS,
    assign,
    gather_columns,
    largest,
    normalise,
    whole_lanes,
)
from dslda.variational.special import digamma, exp_shifted, log, log_gamma_sum_and_digamma

__all__ = ["differentiate"]

# times that a factorisation that failed is tried with a larger discount
MOST_TRIES = 12


@njit(**OPTIONS)
def shares_and_bound(
    gamma: Vector, tilt: Matrix, d: int, r: Vector, work: Matrix, bits: NDArray[np.uint64]
) -> tuple[float, float]:
    """Write exp(digamma(gamma) + tilt - top) to `r`; returns top and the sum of log Gamma(gamma)."""
    digammas = work[2]
    log_gammas = log_gamma_sum_and_digamma(gamma, digammas, work, bits)
    top = -math.inf
    if tilt.shape[0] > 0:
        for k in range(gamma.shape[0]):
            digammas[k] += tilt[d, k]
    for k in range(gamma.shape[0]):
        top = max(top, digammas[k])
    exp_shifted(digammas, top, r, bits)
    return top, log_gammas


@njit(**OPTIONS)
def precisions(gamma: Vector, out: Vector) -> None:
    """Write 1 / trigamma(gamma) (Abramowitz and Stegun 6.4.6 and 6.4.12), six steps up for all, so that a loop takes several
    at a time."""
    for k in range(gamma.shape[0]):
        x = gamma[k]
        squares = 1.0 / (x * x)
        for _ in range(5):
            x += 1.0
            squares += 1.0 / (x * x)
        r = 1.0 / (x + 1.0)
        r2 = r * r
        series = (
            r2 * r * (1.0 / 6.0 - r2 * (1.0 / 30.0 - r2 * (1.0 / 42.0 - r2 * (1.0 / 30.0 - r2 * 5.0 / 66.0))))
        )
        out[k] = 1.0 / (squares + r + 0.5 * r2 + series)


@njit(**OPTIONS)
def factorise(
    system: Matrix, diagonal: Vector, discount: float, precision: Vector, factor: Matrix, row: Vector
) -> bool:
    """Write the upper factor U of U'U = `system` + diag((1 + discount) precision - diagonal); False if it fails.

    Both are read and written from the diagonal on. A row of U is a sum of those above, four at a time; `row` is scratch.
    """
    n = diagonal.shape[0]
    for j in range(n):
        for k in range(j, n):
            row[k] = system[j, k]
        row[j] += (1.0 + discount) * precision[j] - diagonal[j]
        blocked = j - j % 4
        for i in range(0, blocked, 4):
            f0, f1, f2, f3 = factor[i, j], factor[i + 1, j], factor[i + 2, j], factor[i + 3, j]
            for k in range(j, n):
                row[k] -= (
                    f0 * factor[i, k] + f1 * factor[i + 1, k] + f2 * factor[i + 2, k] + f3 * factor[i + 3, k]
                )
        for i in range(blocked, j):
            f0 = factor[i, j]
            for k in range(j, n):
                row[k] -= f0 * factor[i, k]
        if not row[j] > 1e-10 * precision[j]:
            return False
        scale = 1.0 / math.sqrt(row[j])
        for k in range(j, n):
            factor[j, k] = row[k] * scale
    return True


@njit(**OPTIONS)
def substitute(factor: Matrix, x: Vector) -> None:
    """Solve factor' factor x = x in place."""
    n = x.shape[0]
    for k in range(n):
        x[k] /= factor[k, k]
        for i in range(k + 1, n):
            x[i] -= factor[k, i] * x[k]
    for k in range(n - 1, -1, -1):
        total = x[k]
        for i in range(k + 1, n):
            total -= factor[k, i] * x[i]
        x[k] = total / factor[k, k]


@njit(**OPTIONS)
def scatter_columns(n: int, rows: NDArray[np.int32], columns: Matrix, sums: Matrix) -> None:
    """Add the columns of entries, whose rows differ, to these; arithmetic comes before, since loops over entries are compiled
    better."""
    blocked = n - n % 4
    for i in range(0, blocked, 4):
        t0, t1, t2, t3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for k in range(sums.shape[1]):
            sums[t0, k] += columns[k, i]
            sums[t1, k] += columns[k, i + 1]
            sums[t2, k] += columns[k, i + 2]
            sums[t3, k] += columns[k, i + 3]
    for i in range(blocked, n):
        for k in range(sums.shape[1]):
            sums[rows[i], k] += columns[k, i]


@njit(**OPTIONS)
def add_derivative(
    n: int,
    rows: NDArray[np.int32],
    c: Vector,
    phi: Matrix,
    multiplier: Vector,
    emphasis: float,
    m: Vector,
    sums: Matrix,
) -> None:
    """Add c phi (multiplier - its mean under phi - emphasis) to the rows of a document's entries; `m` is scratch, and so is
    `phi` from then on."""
    width = whole_lanes(n)
    normalise(width, phi, multiplier, m)
    for k in range(multiplier.shape[0]):
        for i in range(width):
            phi[k, i] *= c[i] * (multiplier[k] - m[i] - emphasis)
    scatter_columns(n, rows, phi, sums)


@njit(
    types.void(
        *DOCUMENTS,
        READ_ONLY_2D,
        READ_ONLY_2D,
        READ_ONLY_2D,
        READ_ONLY_1D[float64],
        float64,
        float64[:, ::1],
        float64[::1],
        boolean[::1],
    ),
    **ENTRY_OPTIONS,
)
def differentiate(
    indptr,
    terms,
    weights,
    topics,
    alpha,
    tilt,
    gamma,
    slopes,
    emphasis,
    discount,
    sums,
    bound,
    failed,
):
    """Add to `sums` the expected counts of each term in each topic, or the derivative of an objective by log beta.

    `gamma` is that of `infer_words`. `slopes` has no rows for the counts. Otherwise it has the derivative of the loss of each
    document by its mean topic assignment, and `sums` gets that of the loss by log beta, less the counts, which are the
    derivative of the bound of the words: one table serves both. `emphasis` is the weight of the words of each document, in
    the counts and in `bound[0]`; `slopes` include their weights. `discount` is the tau of the implicit derivative: 0 is
    exact. A document whose system is not positive definite with it gets a larger one; where none helps, `failed` is set.
    """
    n_topics = topics.shape[1]
    longest = largest(indptr)
    columns = vector(n_topics * longest).reshape((n_topics, longest))
    c, z, m, r = vector(longest), vector(longest), vector(longest), vector(n_topics)
    inverse = vector(longest)
    rows = np.empty(longest, dtype=np.int32)
    work = vector(3 * n_topics).reshape((3, n_topics))
    bits, entry_bits = words(n_topics), words(longest)
    n_solved = n_topics if slopes.shape[0] > 0 else 0
    system = vector(n_solved * n_solved).reshape((n_solved, n_solved))
    factor = vector(n_solved * n_solved).reshape((n_solved, n_solved))
    assigned, multiplier, precision = vector(n_topics), vector(n_topics), vector(n_topics)
    alpha_sum, alpha_log_gammas = 0.0, 0.0
    for k in range(n_topics):
        alpha_sum += alpha[k]
        alpha_log_gammas += math.lgamma(alpha[k])
    for d in range(indptr.shape[0] - 1):
        start, stop = indptr[d], indptr[d + 1]
        n, length = gather_columns(terms[start:stop], weights[start:stop], topics, rows, c, columns)
        if n == 0:
            continue
        width = whole_lanes(n)
        own = gamma[d]
        top, log_gammas = shares_and_bound(own, tilt, d, r, work, bits)
        normalise(width, columns, r, z)
        # the ELBO of the words, with the best phi for this gamma
        gamma_sum = 0.0
        for k in range(n_topics):
            gamma_sum += own[k]
        shift = digamma(gamma_sum)
        total = math.lgamma(alpha_sum) - alpha_log_gammas - math.lgamma(gamma_sum) + log_gammas
        for k in range(n_topics):
            tilted = work[2, k] if tilt.shape[0] == 0 else work[2, k] - tilt[d, k]
            total += (alpha[k] - own[k]) * (tilted - shift)
        for i in range(width):
            inverse[i] = 1.0 / z[i]
        for k in range(n_topics):
            for i in range(width):
                columns[k, i] *= r[k] * inverse[i]
        log(width, z, m, entry_bits)
        for i in range(width):
            total += c[i] * (m[i] + top - shift)
        bound[0] += emphasis[d] * total
        # columns hold phi now
        if n_solved == 0:
            for k in range(n_topics):
                for i in range(width):
                    columns[k, i] *= emphasis[d] * c[i]
            scatter_columns(n, rows, columns, sums)
            continue
        steepest = 0.0
        for k in range(n_topics):
            steepest = max(steepest, abs(slopes[d, k]))
        if steepest == 0.0:
            for k in range(n_topics):
                multiplier[k] = 0.0
            add_derivative(n, rows, c, columns, multiplier, emphasis[d], m, sums)
            continue
        precisions(own, precision)
        for k in range(n_topics):
            share = 0.0
            for i in range(width):
                z[i] = c[i] * columns[k, i]
                share += z[i]
            assigned[k] = share
            multiplier[k] = slopes[d, k] / length * precision[k]
            assign(width, k, columns, z, system[k])
        tau = discount
        tries = 0
        while not factorise(system, assigned, tau, precision, factor, r):
            tau = max(4.0 * tau, 0.01)
            tries += 1
            if tries == MOST_TRIES:
                break
        if tries == MOST_TRIES:
            failed[d] = True
            for k in range(n_topics):
                multiplier[k] = 0.0
        else:
            substitute(factor, multiplier)
        add_derivative(n, rows, c, columns, multiplier, emphasis[d], m, sums)
