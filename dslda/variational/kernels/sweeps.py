"""One sweep over a document with one linear predictor: it updates every phi_n once, tile by tile."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from dslda.families.base import ScalarFunction
from dslda.variational.kernels.document_entries import Document, Observed, tile_row
from dslda.variational.kernels.scratch import (
    KAPPA1,
    KAPPA2,
    KAPPA3,
    OPTIONS,
    TOKENS,
    W0,
    W1,
    W2,
    Base,
    KernelParameters,
    Scratch,
    T,
    Vector,
    Z,
    span,
)
from dslda.variational.kernels.tiles import (
    accumulate,
    accumulate_plain,
    flush,
    moments,
    normalisers,
    set_base,
    sum_of_logs,
)
from dslda.variational.kernels.updates import (
    alone,
    chain,
    cumulants,
    keep_alone,
    lines,
    taylor_steps,
    taylor_updates,
    update_alone,
)

# entries to try at once after one that needed exponentials, when more are likely to need them
SHORT_RUN = 4
# a_base moves when the next tile is expected to start with |t| rms(eta) above this
REBASE_LIMIT = 1e-3
# An outlier may pull with exp(100) if l is not quadratic. phi has converged long before this, and log Z - a m keeps the
# digits of the ELBO.
LARGEST_PULL = 1e9


class Response(NamedTuple):
    """Compiled functions of (y, omega, delta, aux), delta, and whether l is quadratic in omega."""

    l: ScalarFunction
    l1: ScalarFunction
    l2: ScalarFunction
    l3: ScalarFunction
    delta: Vector
    quadratic: bool


class Slopes(NamedTuple):
    """Derivatives of l in omega, see `slopes_at`."""

    first: float
    second: float
    third: float


class Pull(NamedTuple):
    """The response's hold on the entries in one sweep.

    a_n = a + slope (movement of sum_n m_n since the start of the sweep - m_n), exponents have b eta*eta.
    """

    a: float
    slope: float
    b: float


class SweepSums(NamedTuple):
    """Running sums of a sweep."""

    bound: float  # ELBO
    m: float  # sum of the new m_n
    spread: float  # sum of Var(eta) under the new phi_n
    change: float  # sum_n m_n, old ones for entries yet to come


@njit(**OPTIONS)
def slopes_at(response: Response, y: float, omega: float, aux: float) -> Slopes:
    """Derivatives of l at omega. Where l bends upwards (far outliers of heavy tails), F leaves out its bend.

    The update of tied occurrences and the ascent need a curve that bends downwards.
    """
    first = response.l1(y, omega, response.delta, aux)
    second = response.l2(y, omega, response.delta, aux)
    if second >= 0.0:
        return Slopes(first, 0.0, 0.0)
    return Slopes(first, second, response.l3(y, omega, response.delta, aux))


@njit(**OPTIONS)
def expected_log_likelihood(
    l: ScalarFunction, l2: ScalarFunction, y: float, omega: float, v: float, delta: Vector, aux: float
) -> float:
    """F = l + l2 v / 2, the delta method's E[log p(y)]; see `slopes_at`."""
    return l(y, omega, delta, aux) + 0.5 * min(l2(y, omega, delta, aux), 0.0) * v


@njit(**OPTIONS)
def largest_curvature(
    l2: ScalarFunction, weight: ScalarFunction, y: float, omega: float, v: float, delta: Vector, aux: float
) -> float:
    """The largest curvature of l at the mean of omega and a standard deviation on either side.

    F = l + l2 v / 2 has curvature from l4 v / 2 too, and from l3 where the mean and v move together. The information leaves
    these out. For an exponential, this is exp(sqrt(v)) times the curvature at the mean, and bounds all three.
    """
    scatter = math.sqrt(v)
    largest = 0.0
    for side in range(-1, 2):
        at = omega + side * scatter
        largest = max(largest, max(weight(y, at, delta, aux), -l2(y, at, delta, aux)))
    return largest


@njit(**OPTIONS)
def pull_of(
    response: Response, observed: Observed, omega: float, v: float, length: float, reach: float
) -> Pull:
    """a = (l1 + l3 v / 2) rho / N, slope = rho l2 / N^2, b = slope / 2.

    All shrink where a_n eta would exceed `LARGEST_PULL`, unless l is quadratic and a sweep exact.
    """
    slopes = slopes_at(response, observed.y, omega, observed.aux)
    a = observed.rho * (slopes.first + 0.5 * slopes.third * v) / length
    slope = observed.rho * slopes.second / (length * length)
    largest = max(abs(a), abs(slope) * length * reach) * reach
    if largest > LARGEST_PULL and not response.quadratic:
        a *= LARGEST_PULL / largest
        slope *= LARGEST_PULL / largest
    return Pull(a, slope, 0.5 * slope)


@njit(**OPTIONS)
def update_tile(
    model: KernelParameters,
    s: Scratch,
    start: int,
    n: int,
    pull: Pull,
    base: Base,
    m_start: float,
    sums: SweepSums,
) -> SweepSums:
    """Update the `n` entries from `start` in order: reads their M_j at the base from the tile, and leaves their w_nj there.

    It updates entries together, up to the first whose t is too large for the Taylor series; that one is updated alone.
    """
    tile = s.tile
    bound, m_total, spread, m_sum = sums
    cumulants(tile, n)
    first = 0
    longest_run = n
    while first < n:
        stop = min(first + longest_run, n)
        lines(s, start, first, stop, pull.slope, pull.a - base.a + pull.slope * (m_sum - m_start))
        change = chain(tile, first, stop)
        reached, change = taylor_steps(tile, first, stop, model.reach, model.series_limit, base.floor, change)
        part_bound, part_m, part_spread = taylor_updates(s, start, first, reached, base.a, pull.b)
        bound += part_bound
        m_total += part_m
        spread += part_spread
        m_sum += change
        if reached == stop:
            first = stop
            longest_run *= 4
            continue
        longest_run = SHORT_RUN
        i = np.uint64(reached)
        at = start + reached
        c = s.copies[at]
        old = s.m[at]
        t = tile[T + i]
        guess = tile[KAPPA1 + i] + t * (tile[KAPPA2 + i] + 0.5 * t * tile[KAPPA3 + i])
        rest = pull.a + pull.slope * (m_sum - m_start - c * old)
        entry = update_alone(model, s, s.terms[at], rest, pull.slope * (c - 1.0), guess, base)
        keep_alone(s, at, i, c, entry)
        bound += c * (entry.log_z - entry.a * entry.m - pull.b * entry.square)
        m_total += c * entry.m
        spread += c * (entry.square - entry.m * entry.m)
        m_sum += c * (entry.m - old)
        first = reached + 1
    return SweepSums(bound, m_total, spread, m_sum)


@njit(**OPTIONS)
def sweep_labelled(
    model: KernelParameters, s: Scratch, document: Document, pull: Pull, m_start: float
) -> tuple[SweepSums, float]:
    """Update every phi_n of a document with a response; leaves sum_n phi_n in `s`. Returns sums and a_base."""
    n, width = document.n, document.width
    weights, tile = document.weights, s.tile
    typical = math.sqrt(model.eta_square_mean)
    sums = SweepSums(0.0, 0.0, 0.0, m_start)
    base = Base(0.0, 0.0, 0, 0.0)
    for start in range(0, n, width):
        n_tile = min(width, n - start)
        row = tile_row(model, s, document, start)
        a_middle = pull.a + pull.slope * (sums.change - m_start - sums.change / document.length)
        if start == 0 or abs(a_middle - base.a) * typical > REBASE_LIMIT:
            flush(s, base.n_live)
            base = set_base(model, s, a_middle)
        moments(weights, row, s, base.n_live)
        sums = update_tile(model, s, start, n_tile, pull, base, m_start, sums)
        for e in span(n_tile, width):
            tile[W0 + e] = 0.0
            tile[W1 + e] = 0.0
            tile[W2 + e] = 0.0
        accumulate(weights, row, s, base.n_live)
        sums = SweepSums(sums.bound + sum_of_logs(s, n_tile, base.top), sums.m, sums.spread, sums.change)
    flush(s, base.n_live)
    return sums, base.a


@njit(**OPTIONS)
def sweep_unlabelled(model: KernelParameters, s: Scratch, document: Document) -> float:
    """Update every phi_n of a document without response: a = b = 0. Returns the entries' part of the ELBO."""
    n, width = document.n, document.width
    weights, tile, assigned, phi, copies = document.weights, s.tile, s.assigned, s.phi, s.copies
    bound = 0.0
    base = set_base(model, s, 0.0)
    for start in range(0, n, width):
        n_tile = min(width, n - start)
        row = tile_row(model, s, document, start)
        normalisers(weights, row, s, base.n_live)
        at = np.uint64(start)
        for e in span(0, n_tile):
            tile[TOKENS + e] = copies[at + e]
            tile[W0 + e] = copies[at + e] / tile[Z + e]
        for e in span(0, n_tile):
            if tile[Z + e] < base.floor:
                c = copies[at + e]
                entry = alone(model, s, s.terms[at + e], 0.0, base)
                bound += c * entry.log_z
                for k in range(assigned.shape[0]):
                    assigned[k] += c * phi[k]
                tile[W0 + e] = 0.0
                tile[TOKENS + e] = 0.0
        for e in span(n_tile, width):
            tile[W0 + e] = 0.0
        accumulate_plain(weights, row, s, base.n_live)
        bound += sum_of_logs(s, n_tile, base.top)
    flush(s, base.n_live)
    return bound
