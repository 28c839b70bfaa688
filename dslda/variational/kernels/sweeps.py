"""Coordinate ascent over one document: from equal shares, sweep by sweep, until its ELBO stands still.

A sweep updates every phi_n once and then gamma = alpha + sum_n phi_n. Between sweeps only gamma and, for each entry, m_n are
kept. Word, assignment and entropy terms of the ELBO come with the normalisers, entry for entry:
log Z_n - a_n m_n - b (eta*eta)'phi_n.
"""

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
from dslda.variational.kernels.strides import Trail, copy_state, mark, stride
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
from dslda.variational.special import log_gamma_sum_and_digamma

# entries tried at once after one that needed exponentials, when more are likely to
SHORT_RUN = 4
# a_base moves when the next tile is expected to start with |t| rms(eta) above this
REBASE_LIMIT = 1e-3
# a fall of the ELBO below this share of it is rounding
LEAST_FALL = 1e-10
# An outlier may pull with exp(100) where l is no quadratic. phi is at its end long before this, and log Z - a m keeps the
# digits of the ELBO.
LARGEST_PULL = 1e9
# of the way to where phi would be stationary, however often the ELBO falls
SHORTEST_SHARE = 2.0**-20


class Response(NamedTuple):
    """The family as compiled functions of (y, omega, delta, aux), delta, and whether l is quadratic in omega."""

    l: ScalarFunction
    l1: ScalarFunction
    l2: ScalarFunction
    l3: ScalarFunction
    delta: Vector
    quadratic: bool


class Slopes(NamedTuple):
    """Derivatives of l in omega, as they are used."""

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


class Sums(NamedTuple):
    """What grows from entry to entry in a sweep."""

    bound: float  # ELBO
    m: float  # sum of the new m_n
    spread: float  # sum of Var(eta) under the new phi_n
    change: float  # sum_n m_n, old ones for entries yet to come


class Ascent(NamedTuple):
    """Where a document has come to."""

    elbo: float
    n_sweeps: int
    converged: bool
    a_base: float


@njit(**OPTIONS)
def slopes_at(response: Response, y: float, omega: float, aux: float) -> Slopes:
    """Derivatives of l at omega. Where l bends upwards (far outliers of heavy tails) its bend is left out of F.

    The update of tied occurrences, and the ascent, need a curve that bends downwards.
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
    """What l bends with at most, at the mean of omega and a standard deviation on either side.

    F = l + l2 v / 2 bends with l4 v / 2 too, and with l3 where the mean and v move together, which the information leaves
    out. Of an exponential this is exp(sqrt(v)) times its bend at the mean, and bounds all three.
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

    All less where a_n eta would exceed `LARGEST_PULL`, unless l is quadratic: then a sweep is exact as it is.
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
    sums: Sums,
) -> Sums:
    """Update the `n` entries from `start`, whose M_j at the base are in the tile, in order; leaves the w_nj there.

    They are updated at once up to the first whose t is too large for the Taylor series; that one is updated by itself.
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
    return Sums(bound, m_total, spread, m_sum)


@njit(**OPTIONS)
def sweep_labelled(
    model: KernelParameters, s: Scratch, document: Document, pull: Pull, m_start: float
) -> tuple[Sums, float]:
    """Update every phi_n of a document with a response; leaves sum_n phi_n in `s`. Returns sums and a_base."""
    n, width = document.n, document.width
    weights, tile = document.weights, s.tile
    typical = math.sqrt(model.eta_square_mean)
    sums = Sums(0.0, 0.0, 0.0, m_start)
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
        sums = Sums(sums.bound + sum_of_logs(s, n_tile, base.top), sums.m, sums.spread, sums.change)
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


@njit(**OPTIONS)
def sweep_part_of_the_way(
    model: KernelParameters,
    s: Scratch,
    trail: Trail,
    document: Document,
    pull: Pull,
    share: float,
    a_base: float,
) -> Sums:
    """Move the exponents of every phi_n from those kept a `share` of the way to where the kept state would have them.

    All phi_n move at once, each up its own gradient: in natural parameters a direction in which the ELBO rises, for every l
    and any `pull`, if the step is short enough. Few documents come here, so each entry is taken by itself.
    """
    eta, h, assigned, phi = model.eta, s.h, s.assigned, s.phi
    n_topics = eta.shape[0]
    for k in range(n_topics):
        h[k] = trail.h[k] + share * (trail.elog[k] + pull.b * eta[k] * eta[k] - trail.h[k])
        assigned[k] = 0.0
    base = set_base(model, s, a_base)
    bound = 0.0
    m_sum = 0.0
    spread = 0.0
    for e in range(document.n):
        a = trail.a[e] + share * (pull.a - pull.slope * trail.m[e] - trail.a[e])
        entry = alone(model, s, s.terms[e], a, base)
        c = s.copies[e]
        for k in range(n_topics):
            assigned[k] += c * phi[k]
        s.a[e] = a
        s.m[e] = entry.m
        bound += c * (entry.log_z - a * entry.m)
        m_sum += c * entry.m
        spread += c * (entry.square - entry.m * entry.m)
    for k in range(n_topics):
        bound -= assigned[k] * h[k]
    return Sums(bound, m_sum, spread, m_sum)


@njit(**OPTIONS)
def ascend(
    model: KernelParameters,
    response: Response,
    s: Scratch,
    trail: Trail,
    document: Document,
    max_sweeps: int,
    sweep_tol: float,
) -> Ascent:
    """Sweep until the ELBO changes by less than `sweep_tol` of itself, at most `max_sweeps` times.

    The start is cold, a pure function of the document and the parameters: gamma = alpha + N / K, m_n = 0, v as under
    equal shares. Two sweeps that rise are followed by a stride (`strides`). A sweep that lowers the ELBO is taken back: one
    after a stride, and one where l is not quadratic, of which the next then goes half as far: see
    `reference.update_until_converged`.
    """
    alpha, eta, gamma, elog, h, assigned = model.alpha, model.eta, s.gamma, s.elog, s.h, s.assigned
    n_topics = eta.shape[0]
    observed, length = document.observed, document.length
    may_fall = observed.labelled and not response.quadratic
    for k in range(n_topics):
        gamma[k] = alpha[k] + length / n_topics
    for e in range(document.n):
        s.m[e] = 0.0
    log_gamma_total = math.lgamma(model.alpha_sum + length)
    # the last state that was not taken back
    elbo = -np.inf
    m_sum = 0.0
    v = model.eta_square_mean / length
    a_base = 0.0
    # the last sweep's
    new = Sums(0.0, 0.0, 0.0, 0.0)
    new_base = 0.0
    bound = 0.0
    n_sweeps = 0
    share = 1.0
    # sweeps in a row, all the way each, since the start, a stride or a fall
    in_a_row = 0
    strode = False
    n_kept = document.n if observed.labelled else 0
    while True:
        log_gammas = log_gamma_sum_and_digamma(gamma, elog, s.work, s.bits)
        if n_sweeps > 0:
            # with gamma = alpha + sum_n phi_n, all that is left of p(theta) and q(theta) is a ratio of Beta functions
            bound += log_gammas - log_gamma_total - model.log_beta_alpha
            new_v = max(new.spread, 0.0) / (length * length)
            if observed.labelled:
                bound += observed.rho * expected_log_likelihood(
                    response.l,
                    response.l2,
                    observed.y,
                    observed.offset + model.middle + new.m / length,
                    new_v,
                    response.delta,
                    observed.aux,
                )
            # what a stride gains and what it overshoots may cancel
            converged = not strode and abs(bound - elbo) <= share * sweep_tol * abs(bound)
            done = converged or n_sweeps == max_sweeps
            if (strode and bound < elbo) or (may_fall and bound < elbo - LEAST_FALL * abs(elbo)):
                in_a_row = 0
                if strode:
                    copy_state(trail, s, n_kept)
                    if n_sweeps == max_sweeps:
                        set_base(model, s, a_base)
                        return Ascent(elbo, n_sweeps, False, a_base)
                else:
                    share *= 0.5
                    if done or share < SHORTEST_SHARE:
                        # F has kinks where its bend is left out, see `slopes_at`: there no step up its gradient need rise
                        copy_state(trail, s, n_kept)
                        set_base(model, s, a_base)
                        stands = abs(bound - elbo) <= sweep_tol * abs(bound)
                        return Ascent(
                            elbo, n_sweeps, converged or (share < SHORTEST_SHARE and stands), a_base
                        )
                strode = False
            else:
                elbo = bound
                m_sum = new.m
                v = new_v
                a_base = new_base
                if done:
                    return Ascent(elbo, n_sweeps, converged, a_base)
                share = min(1.0, 2.0 * share)
                strode = False
                if may_fall or in_a_row == 2:
                    copy_state(s, trail, n_kept)
                if in_a_row == 2:
                    in_a_row = 0
                    strode = stride(trail, gamma, alpha)
                    if strode:
                        log_gamma_sum_and_digamma(gamma, elog, s.work, s.bits)
        if share == 1.0:
            mark(trail, gamma)
            in_a_row += 1
        n_sweeps += 1
        if observed.labelled:
            pull = pull_of(
                response, observed, observed.offset + model.middle + m_sum / length, v, length, model.reach
            )
            if share < 1.0:
                new_base = a_base + share * (pull.a - pull.slope * m_sum / length - a_base)
                new = sweep_part_of_the_way(model, s, trail, document, pull, share, new_base)
                bound = new.bound
            else:
                for k in range(n_topics):
                    h[k] = elog[k] + pull.b * eta[k] * eta[k]
                    assigned[k] = 0.0
                new, new_base = sweep_labelled(model, s, document, pull, m_sum)
                bound = new.bound
                for k in range(n_topics):
                    bound -= assigned[k] * elog[k]
        else:
            for k in range(n_topics):
                h[k] = elog[k]
                assigned[k] = 0.0
            bound = sweep_unlabelled(model, s, document)
            for k in range(n_topics):
                bound -= assigned[k] * elog[k]
        for k in range(n_topics):
            gamma[k] = alpha[k] + assigned[k]
