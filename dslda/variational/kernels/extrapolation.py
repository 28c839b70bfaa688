"""Longer strides for the sweeps of one document: squared extrapolation of gamma.

Sweeps approach their fixed point along one slow direction, where topics with similar words trade tokens. Two sweeps in a row
show how much of a step is left after each; SQUAREM (Varadhan and Roland, 2008, "Simple and globally convergent methods for
accelerating the convergence of any EM algorithm", step length S3) goes there at once. The sweep from there says what it was
worth: where the ELBO falls, the document goes back and goes on by plain sweeps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from numba import njit

from dslda.variational.kernels.scratch import OPTIONS, Scratch, Vector, vector

# of the first of the two steps; what is left of it has all but vanished, or is rounding
LONGEST_STRIDE = 64.0


class Trail(NamedTuple):
    """gamma two sweeps ago and one sweep ago, and what a document goes back to: arrays as in `Scratch`."""

    older: Vector
    old: Vector
    gamma: Vector
    elog: Vector
    m: Vector
    older_m: Vector
    old_m: Vector


@njit(**OPTIONS)
def make_trail(longest: int, n_topics: int) -> Trail:
    """For documents of up to `longest` entries."""
    return Trail(vector(n_topics), vector(n_topics), vector(n_topics), vector(n_topics), vector(longest), vector(longest), vector(longest))


@njit(**OPTIONS)
def remember(trail: Trail, gamma: Vector, m: Vector, n: int, leg: int) -> None:
    """Note gamma before the first (leg 0) or second (leg 1) sweep since the last extrapolation."""
    place = trail.older if leg == 0 else trail.old
    for k in range(gamma.shape[0]):
        place[k] = gamma[k]
    place_m = trail.older_m if leg == 0 else trail.old_m
    for e in range(n):
        place_m[e] = m[e]


@njit(**OPTIONS)
def stride(trail: Trail, s: Scratch, alpha: Vector, n: int, low: float, high: float) -> bool:
    """Move gamma to where its last two sweeps point, never below alpha; False if that is no further than it has come.

    What a document of `n` entries goes back to stays in `trail`.
    """
    gamma = s.gamma
    first = 0.0
    bend = 0.0
    for k in range(gamma.shape[0]):
        step = trail.old[k] - trail.older[k]
        turn = (gamma[k] - trail.old[k]) - step
        first += step * step
        bend += turn * turn
    if first <= bend:
        return False
    length = LONGEST_STRIDE
    if first < LONGEST_STRIDE * LONGEST_STRIDE * bend:
        length = math.sqrt(first / bend)
    for k in range(gamma.shape[0]):
        step = trail.old[k] - trail.older[k]
        turn = (gamma[k] - trail.old[k]) - step
        trail.gamma[k] = gamma[k]
        trail.elog[k] = s.elog[k]
        gamma[k] = max(alpha[k], trail.older[k] + length * (2.0 * step + length * turn))
    for e in range(n):
        trail.m[e] = s.m[e]
        step = trail.old_m[e] - trail.older_m[e]
        turn = (s.m[e] - trail.old_m[e]) - step
        s.m[e] = min(max(trail.older_m[e] + length * (2.0 * step + length * turn), low), high)
    return True


@njit(**OPTIONS)
def return_from_stride(trail: Trail, s: Scratch, n: int) -> None:
    """Put gamma, E[log theta] and the m_n back."""
    for k in range(s.gamma.shape[0]):
        s.gamma[k] = trail.gamma[k]
        s.elog[k] = trail.elog[k]
    for e in range(n):
        s.m[e] = trail.m[e]
