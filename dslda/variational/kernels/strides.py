"""Strides: extrapolation from the sweeps of one document, and the way back where one leads down.

Sweeps creep towards their fixed point where topics that share words trade tokens: what is left shrinks by about the same
factor each time. Two sweeps in a row give the factor away, and a stride goes at once to where they would end: SQUAREM
(Varadhan and Roland, 2008, Simple and globally convergent methods for accelerating the convergence of any EM algorithm,
Scandinavian Journal of Statistics 35, step length S3), here on gamma alone. The sweep after it starts there, as it may start
anywhere. Where the ELBO is then lower than before, the document goes back to the last state kept and sweeps on from that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from numba import njit

from dslda.variational.kernels.scratch import OPTIONS, Scratch, Vector, vector

# Times the first of the two steps. Longer strides save a few sweeps more and climb as high, but early ones throw topics out
# that the words would have kept: of movie reviews the ratings were predicted worse (docs/model.md).
LONGEST_STRIDE = 3.0


class Trail(NamedTuple):
    """Where a document comes from: arrays as in `Scratch`, which every call would count."""

    older: Vector  # gamma before the sweep before last
    old: Vector  # gamma before the last sweep
    # the last state kept
    gamma: Vector
    elog: Vector
    h: Vector
    a: Vector
    m: Vector


@njit(**OPTIONS)
def make_trail(longest: int, n_topics: int) -> Trail:
    """For documents of up to `longest` entries."""
    return Trail(
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(longest),
        vector(longest),
    )


@njit(**OPTIONS)
def mark(trail: Trail, gamma: Vector) -> None:
    """Note gamma before a sweep."""
    for k in range(gamma.shape[0]):
        trail.older[k] = trail.old[k]
        trail.old[k] = gamma[k]


@njit(**OPTIONS)
def copy_state(source: Scratch | Trail, target: Scratch | Trail, n: int) -> None:
    """Copy what a document goes back to, or back; `n` entries of it, none where there is no response."""
    for k in range(source.gamma.shape[0]):
        target.gamma[k] = source.gamma[k]
        target.elog[k] = source.elog[k]
        target.h[k] = source.h[k]
    for e in range(n):
        target.a[e] = source.a[e]
        target.m[e] = source.m[e]


@njit(**OPTIONS)
def stride(trail: Trail, gamma: Vector, alpha: Vector) -> bool:
    """Move gamma to where the last two sweeps point, but not below alpha; False if that is no further than they came."""
    first = 0.0
    bend = 0.0
    for k in range(gamma.shape[0]):
        step = trail.old[k] - trail.older[k]
        turn = gamma[k] - trail.old[k] - step
        first += step * step
        bend += turn * turn
    if first <= bend:
        return False
    length = LONGEST_STRIDE
    if first < LONGEST_STRIDE * LONGEST_STRIDE * bend:
        length = math.sqrt(first / bend)
    for k in range(gamma.shape[0]):
        step = trail.old[k] - trail.older[k]
        turn = gamma[k] - trail.old[k] - step
        gamma[k] = max(alpha[k], trail.older[k] + length * (2.0 * step + length * turn))
    return True
