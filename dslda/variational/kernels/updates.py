"""The update of phi_n, entry after entry: each depends on all before it.

With t = a_n - a_base and the cumulants kappa_1, kappa_2, kappa_3 of eta under phi at a_base,

    m_n = kappa_1 + t kappa_2 + t^2 kappa_3 / 2        log Z(t) = log Z(0) + t kappa_1 + t^2 kappa_2 / 2 + t^3 kappa_3 / 6

So the chain from entry to entry, which cannot be vectorised, needs only two multiply-adds for each (`chain`); the work
before and after it is vectorised. Where t is too large for the series (short documents, small dispersion), `update_alone`
updates the entry alone, with exponentials if need be.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from dslda.variational.kernels.document_entries import cut
from dslda.variational.kernels.scratch import (
    CHANGE,
    INVERSE,
    KAPPA1,
    KAPPA2,
    KAPPA3,
    M0,
    M1,
    M2,
    OPTIONS,
    SERIES_LIMIT,
    SMALLEST_NORMALISER,
    SMALLEST_WEIGHT,
    T1,
    T2,
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
from dslda.variational.special import exp_shifted

# in the quadratic update of tied occurrences: largest share of the second term in the first
STRONGEST_BEND = 0.125


class Alone(NamedTuple):
    """One entry's phi in four numbers; `Scratch.phi` has all of it."""

    a: float
    log_z: float
    m: float
    square: float  # (eta*eta)'phi


@njit(**OPTIONS)
def cumulants(tile: Vector, n: int) -> None:
    """Replace the sums M_1, M_2, M_3 by mean, variance and third central moment of eta under phi at a_base.

    Writes 1 / Z too.
    """
    for i in span(0, n):
        inverse = 1.0 / tile[Z + i]
        tile[INVERSE + i] = inverse
        first = tile[KAPPA1 + i] * inverse
        second = tile[KAPPA2 + i] * inverse
        third = tile[KAPPA3 + i] * inverse
        tile[KAPPA1 + i] = first
        tile[KAPPA2 + i] = max(second - first * first, 0.0)
        tile[KAPPA3 + i] = third - first * (3.0 * second - 2.0 * first * first)


@njit(**OPTIONS)
def lines(s: Scratch, start: int, first: int, stop: int, slope: float, shift: float) -> None:
    """The update of every entry as a quadratic in `change`, the movement of sum_n m_n since the start of the run.

    The exact update of c tied occurrences (a single token is c = 1) solves
    t = shift + slope (change - c old) + slope (c - 1) m(t), with m(t) = kappa_1 + t kappa_2 + t^2 kappa_3 / 2.
    The quadratic is that of the root near t = 0, one step from the linear root. Where that step is not small, the result may
    be near 0 by accident, so that T is infinite there. Writes t = T + T1 change + T2 change^2, and
    c (m - old) = M0 + M1 change + M2 change^2.
    """
    tile, copies, m = s.tile, s.copies, s.m
    at = np.uint64(start)
    for i in span(first, stop):
        c = copies[at + i]
        old = m[at + i]
        kappa1 = tile[KAPPA1 + i]
        kappa2 = tile[KAPPA2 + i]
        kappa3 = tile[KAPPA3 + i]
        coupling = slope * (c - 1.0)
        gain = 1.0 / (1.0 - coupling * kappa2)
        line0 = gain * (shift - slope * c * old + coupling * kappa1)
        line1 = gain * slope
        bend = 0.5 * gain * coupling * kappa3
        t0 = line0 + bend * line0 * line0
        t1 = line1 * (1.0 + 2.0 * bend * line0)
        t2 = bend * line1 * line1
        variance = kappa2 + t0 * kappa3
        tile[T + i] = t0 if abs(bend * line0) <= STRONGEST_BEND else np.inf
        tile[T1 + i] = t1
        tile[T2 + i] = t2
        tile[M0 + i] = c * (kappa1 + t0 * (kappa2 + 0.5 * t0 * kappa3) - old)
        tile[M1 + i] = c * t1 * variance
        tile[M2 + i] = c * (t2 * variance + 0.5 * t1 * t1 * kappa3)


@njit(**OPTIONS)
def chain(tile: Vector, first: int, stop: int) -> float:
    """Coordinate ascent from entry to entry. Returns the total change of sum_n m_n."""
    change = 0.0
    for i in span(first, stop):
        tile[CHANGE + i] = change
        change = (change + tile[M0 + i]) + change * (tile[M1 + i] + change * tile[M2 + i])
    return change


@njit(**OPTIONS)
def taylor_serves(t: float, square: float, reach: float, limit: float) -> bool:
    """True if the short series is good enough at `t` for an entry with E[eta^2] = square; False for NaN."""
    size = abs(t)
    return size * reach <= SERIES_LIMIT and size * size * size * reach * square <= limit


@njit(**OPTIONS)
def bend_of(tile: Vector, i: int) -> float:
    """A number above 0 where t, a quadratic in `change`, bends too far from its line."""
    return abs(tile[CHANGE + i] * tile[T2 + i]) - 2.0 * STRONGEST_BEND * abs(tile[T1 + i])


@njit(**OPTIONS)
def taylor_steps(
    tile: Vector, first: int, stop: int, reach: float, limit: float, floor: float, change: float
) -> tuple[int, float]:
    """Write t of every entry. Returns the first that the series does not serve and the change before it, or `stop`, `change`.

    Such an entry has a t that is too large or bends too much over the change, or too small a normaliser.
    """
    worst = 0.0
    largest = 0.0
    bend = 0.0
    smallest = np.inf
    for i in span(first, stop):
        before = tile[CHANGE + i]
        t = tile[T + i] + before * (tile[T1 + i] + before * tile[T2 + i])
        tile[T + i] = t
        square = tile[KAPPA2 + i] + tile[KAPPA1 + i] * tile[KAPPA1 + i]
        worst = max(worst, abs(t) * t * t * square)
        largest = max(largest, abs(t))
        bend = max(bend, bend_of(tile, i))
        smallest = min(smallest, tile[Z + i])
    if worst * reach <= limit and largest * reach <= SERIES_LIMIT and bend <= 0.0 and smallest >= floor:
        return stop, change
    for i in span(first, stop):
        square = tile[KAPPA2 + i] + tile[KAPPA1 + i] * tile[KAPPA1 + i]
        served = taylor_serves(tile[T + i], square, reach, limit) and bend_of(tile, i) <= 0.0
        if not served or tile[Z + i] < floor:
            return np.int64(i), tile[CHANGE + i]
    return stop, change


@njit(**OPTIONS)
def taylor_updates(
    s: Scratch, start: int, first: int, stop: int, a_base: float, b: float
) -> tuple[float, float, float]:
    """Write a and m of the entries first, ..., stop - 1 of a tile, and their w_nj = (1, t, t^2 / 2) c / Z(t).

    Returns sum c (log Z(t) - log Z(0) - a m - b (eta*eta)'phi), sum c m, sum c Var(eta).
    """
    tile, copies, state_a, state_m = s.tile, s.copies, s.a, s.m
    at = np.uint64(start)
    bound = 0.0
    m_total = 0.0
    spread = 0.0
    for i in span(first, stop):
        c = copies[at + i]
        t = tile[T + i]
        kappa1 = tile[KAPPA1 + i]
        kappa2 = tile[KAPPA2 + i]
        kappa3 = tile[KAPPA3 + i]
        m = kappa1 + t * (kappa2 + 0.5 * t * kappa3)
        variance = kappa2 + t * kappa3
        u = t * (kappa1 + t * (0.5 * kappa2 + t * kappa3 / 6.0))
        share = c * tile[INVERSE + i] * (1.0 - u * (1.0 - u * (0.5 - u / 6.0)))
        state_a[at + i] = a_base + t
        state_m[at + i] = m
        tile[TOKENS + i] = c
        tile[W0 + i] = share
        tile[W1 + i] = share * t
        tile[W2 + i] = share * 0.5 * t * t
        bound += c * (u - (a_base + t) * m - b * (variance + m * m))
        m_total += c * m
        spread += c * variance
    return bound, m_total, spread


@njit(**OPTIONS)
def alone(model: KernelParameters, s: Scratch, term: int, a: float, base: Base) -> Alone:
    """Write phi of one term at `a`: by a longer series from the base, or by exponentials."""
    topics, eta, h, r, phi, exponents = model.topics, model.eta, s.h, s.r, s.phi, s.exponents
    n_topics = h.shape[0]
    top = base.top
    t = a - base.a
    z = 0.0
    if abs(t) * model.reach <= SERIES_LIMIT:
        for k in range(n_topics):
            u = t * eta[k]
            p = 1.0 / 720.0 + u * (1.0 / 5040.0 + u / 40320.0)
            p = 1.0 + u * (1.0 + u * (0.5 + u * (1.0 / 6.0 + u * (1.0 / 24.0 + u * (1.0 / 120.0 + u * p)))))
            phi[k] = r[k] * p * cut(topics[term, k])
            z += phi[k]
    if z < SMALLEST_NORMALISER:
        # far from the base, or a term of topics that are all but impossible at the base
        top = -np.inf
        for k in range(n_topics):
            exponents[k] = h[k] + a * eta[k]
            if topics[term, k] >= SMALLEST_WEIGHT:
                top = max(top, exponents[k])
        for k in range(n_topics):
            exponents[k] = min(exponents[k], top + 1.0)
        exp_shifted(exponents, top, phi, s.bits)
        z = 0.0
        for k in range(n_topics):
            phi[k] *= cut(topics[term, k])
            z += phi[k]
    m = 0.0
    square = 0.0
    share = 1.0 / z
    for k in range(n_topics):
        p = phi[k] * share
        phi[k] = p
        m += p * eta[k]
        square += p * eta[k] * eta[k]
    return Alone(a, top + math.log(z), m, square)


@njit(**OPTIONS)
def update_alone(
    model: KernelParameters, s: Scratch, term: int, rest: float, coupling: float, guess: float, base: Base
) -> Alone:
    """Update one token, or all tied occurrences of one term: solve m = eta'phi(rest + coupling m) from a guess.

    Newton, or bisection where Newton does not halve the gap. The right side falls in m (coupling <= 0), so the root is
    unique. A single token has coupling 0.
    """
    low, high = -model.reach, model.reach
    m = guess if low <= guess <= high else 0.0  # the guess may be NaN
    before = np.inf
    entry = Alone(rest, 0.0, 0.0, 0.0)
    for _ in range(81):
        entry = alone(model, s, term, rest + coupling * m, base)
        gap = entry.m - m
        if gap > 0.0:
            low = m
        else:
            high = m
        if coupling == 0.0 or abs(gap) <= 1e-12 * model.reach or high - low <= 1e-14 * model.reach:
            break
        m += gap / (1.0 - coupling * max(entry.square - entry.m * entry.m, 0.0))
        if not low < m < high or abs(gap) > 0.5 * before:
            m = 0.5 * (low + high)
        before = abs(gap)
    return entry


@njit(**OPTIONS)
def keep_alone(s: Scratch, at: int, i: int, c: float, entry: Alone) -> None:
    """Store entry `at` of the document, `i` of the tile, after `update_alone`."""
    tile, assigned, phi = s.tile, s.assigned, s.phi
    for k in range(assigned.shape[0]):
        assigned[k] += c * phi[k]
    s.m[at] = entry.m
    s.a[at] = entry.a
    tile[W0 + i] = 0.0
    tile[W1 + i] = 0.0
    tile[W2 + i] = 0.0
    tile[TOKENS + i] = 0.0
