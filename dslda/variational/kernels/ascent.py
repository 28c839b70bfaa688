"""Coordinate ascent over one document: from equal shares, sweep by sweep, until its ELBO stands still.

All kinds of response follow the same steps: `ascend` here, `exponential.ascend_product`, `class_e_step.ascend_classes`, and
the readable versions in :mod:`dslda.variational.oracle`. Their docstrings name the differences.

1. Start cold, a pure function of the document and the parameters: gamma = alpha + N / K, equal shares, v and m as under them.
2. Sweep: update every phi_n, all the way or a share of the way, then gamma.
3. Compare the ELBO with the last one kept. The document has converged if the two differ by less than `sweep_tol` of
   themselves, times the share. It never converges right after a stride, whose gain and overshoot may cancel.
4. Take back a sweep that lowers the ELBO. After a stride: return to the state before it, and go on with a plain sweep.
   Otherwise, where a plain sweep can lower the ELBO and the fall is no rounding: return to the last state kept, and go half
   as far. Give up where the document has converged, at the cap of sweeps, or when the share is too small.
5. Else keep the state, and double the share up to 1. Stop where the document has converged or at the cap of sweeps.
6. Stride: after two kept sweeps in a row, all the way each, counted from the start, the last stride or the last fall,
   extrapolate gamma. Go on with 2.

Sweeps creep towards their fixed point where topics that share words trade tokens: the distance shrinks by about the same
factor each time. Two sweeps show the factor, and a stride goes at once to where they would end: SQUAREM (Varadhan and
Roland, 2008, Simple and globally convergent methods for accelerating the convergence of any EM algorithm, Scandinavian
Journal of Statistics 35, step length S3), only on gamma. The next sweep starts there, as it may start anywhere.

Between sweeps only gamma and the m_n of entries stay. Word, assignment and entropy terms of the ELBO come with the
normalisers, entry for entry: log Z_n - a_n m_n - b (eta*eta)'phi_n.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from dslda.variational.kernels.document_entries import Document
from dslda.variational.kernels.scratch import OPTIONS, KernelParameters, Scratch, Vector, vector
from dslda.variational.kernels.sweeps import (
    Pull,
    Response,
    SweepSums,
    expected_log_likelihood,
    pull_of,
    sweep_labelled,
    sweep_unlabelled,
)
from dslda.variational.kernels.tiles import set_base
from dslda.variational.kernels.updates import alone
from dslda.variational.special import log_gamma_sum_and_digamma

# a fall of the ELBO below this share of it is rounding
LEAST_FALL = 1e-10
# least share of the way to where phi would be stationary
SHORTEST_SHARE = 2.0**-20
# Times the first of the two steps. Longer strides save a few more sweeps and climb as high, but early ones throw out topics
# that the words would have kept: ratings of movie reviews were predicted worse (docs/model.md).
LONGEST_STRIDE = 3.0


class Ascent(NamedTuple):
    """The end of a document's ascent."""

    elbo: float
    n_sweeps: int
    converged: bool
    a_base: float


class Trail(NamedTuple):
    """Earlier states of a document. Apart from `Scratch`, since every call counts references to all arrays of a tuple."""

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
    """A trail for documents of up to `longest` entries."""
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
    """Copy the state that step 4 returns to, with its first `n` entries; a document without response needs none."""
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


@njit(**OPTIONS)
def sweep_part_of_the_way(
    model: KernelParameters,
    s: Scratch,
    trail: Trail,
    document: Document,
    pull: Pull,
    share: float,
    a_base: float,
) -> SweepSums:
    """Move the exponents of every phi_n from those kept a `share` of the way to where the kept state would have them.

    All phi_n move at once, each up its own gradient: in natural parameters a direction in which the ELBO rises, for every l
    and any `pull`, if the step is short enough. Few documents come here, so that speed does not matter.
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
    return SweepSums(bound, m_sum, spread, m_sum)


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
    """The steps above. A plain sweep can lower the ELBO only where l is not quadratic: v or l2 may move too far in it."""
    alpha, eta, gamma, elog, h, assigned = model.alpha, model.eta, s.gamma, s.elog, s.h, s.assigned
    n_topics = eta.shape[0]
    observed, length = document.observed, document.length
    may_fall = observed.labelled and not response.quadratic
    # step 1; eta is centred, so that m_n is 0
    for k in range(n_topics):
        gamma[k] = alpha[k] + length / n_topics
    for e in range(document.n):
        s.m[e] = 0.0
    log_gamma_total = math.lgamma(model.alpha_sum + length)
    # the last state kept
    elbo = -np.inf
    m_sum = 0.0
    v = model.eta_square_mean / length
    a_base = 0.0
    # the last sweep's
    new = SweepSums(0.0, 0.0, 0.0, 0.0)
    new_base = 0.0
    bound = 0.0
    n_sweeps = 0
    share = 1.0
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
            # step 3
            converged = not strode and abs(bound - elbo) <= share * sweep_tol * abs(bound)
            done = converged or n_sweeps == max_sweeps
            if (strode and bound < elbo) or (may_fall and bound < elbo - LEAST_FALL * abs(elbo)):
                # step 4
                in_a_row = 0
                if strode:
                    copy_state(trail, s, n_kept)
                    if n_sweeps == max_sweeps:
                        set_base(model, s, a_base)
                        return Ascent(elbo, n_sweeps, False, a_base)
                else:
                    share *= 0.5
                    if done or share < SHORTEST_SHARE:
                        # F has kinks where its bend is left out (`slopes_at`): a step up its gradient may fall there
                        copy_state(trail, s, n_kept)
                        set_base(model, s, a_base)
                        stands = abs(bound - elbo) <= sweep_tol * abs(bound)
                        return Ascent(
                            elbo, n_sweeps, converged or (share < SHORTEST_SHARE and stands), a_base
                        )
                strode = False
            else:
                # step 5
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
                    # step 6
                    in_a_row = 0
                    strode = stride(trail, gamma, alpha)
                    if strode:
                        log_gamma_sum_and_digamma(gamma, elog, s.work, s.bits)
        # step 2
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
