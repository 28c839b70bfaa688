"""The E-step for a response of C classes: a coefficient for each topic and class.

The response depends on a document through phibar = sum_n phi_n / N alone. F = E[log p(y)] has two forms, both functions of
phibar, with omega_c = eta_c'zbar + zeta_c'x:

    bound    omega_y - log sum_c exp(zeta_c'x) kbar_c^N,   kbar_c = sum_k phibar_k exp(eta_kc / N)
    delta    m_y - lse(m) - tr((diag(p) - pp') V) / 2,     m = E[omega], p = softmax(m),
             V = (sum_k phibar_k eta_k eta_k' - mbar mbar') / N

The first never exceeds E[log p(y)]: E[exp(eta_c'zbar)] = prod_n kappa_nc <= kbar_c^N, since the geometric mean does not
exceed the arithmetic one; the rest is Jensen's inequality. The second is closer, but no bound. Adding numbers a_k to the
coefficients of all classes changes neither log p(y) nor the second form. It does change the first: EM takes the numbers
that make the bound tight.

The derivative of F by phi_n is the same for all n: one vector of K numbers for each document and sweep. So a sweep is that
of plain LDA with other exponents h. Its fixed point is exact. On the way, the ELBO may fall where a document is short and
coefficients are large. Then the step in h is halved: small steps in the natural parameters always ascend.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import int64, njit
from numpy.typing import NDArray

from dslda.variational.design import EMPHASIS, FIRST_COVARIATE, WEIGHT
from dslda.variational.kernels.ascent import LEAST_FALL, Ascent, Trail, copy_state, make_trail, mark, stride
from dslda.variational.kernels.document_entries import Document, Observed, lay_out, load_entries
from dslda.variational.kernels.layout import LABELLED_WEIGHT, N_EMPTY, N_LABELLED, block_signature
from dslda.variational.kernels.scratch import (
    ENTRY_OPTIONS,
    OPTIONS,
    SMALLEST_WEIGHT,
    KernelParameters,
    Matrix,
    Scratch,
    Vector,
    make_scratch,
    matrix,
    prepare_parameters,
    vector,
)
from dslda.variational.kernels.sweeps import sweep_unlabelled
from dslda.variational.kernels.write_out import add_log_theta, write_document, write_out
from dslda.variational.special import log_gamma_sum_and_digamma

__all__ = ["class_block"]

# instead of the code of a class
UNLABELLED = -1
# halvings of a step before a document is left where it is
_MOST_HALVINGS = 40


class Classes(NamedTuple):
    """Coefficients, the form of F, and scratch by class."""

    eta: Matrix  # (K, C)
    bound: bool
    offset: Vector  # zeta_c'x
    m: Vector  # the predictors: N log kbar_c, or eta_c'phibar; both with the offset
    p: Vector  # their softmax
    q: Vector  # bound: p_c / phibar'tilted_c; delta: derivative of tr(...) by p, times N
    top: Vector  # largest coefficient of the class
    tilted: Matrix  # (K, C) exp((eta - top) / N), bound only
    phibar: Vector
    slope: Vector  # dF / dphibar
    old_h: Vector
    target: Vector
    shares: Vector  # where the tokens are, seen from a class


@njit(**OPTIONS)
def make_classes(eta: Matrix, bound: bool) -> Classes:
    """Scratch for documents of any length."""
    n_topics, n_classes = eta.shape
    return Classes(
        eta,
        bound,
        vector(n_classes),
        vector(n_classes),
        vector(n_classes),
        vector(n_classes),
        vector(n_classes),
        matrix(n_topics, n_classes),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
        vector(n_topics),
    )


@njit(**OPTIONS)
def tilt(c: Classes, length: float) -> None:
    """exp((eta - top) / N). Without `top`, a document of one token overflows where coefficients are large."""
    for j in range(c.eta.shape[1]):
        c.top[j] = -np.inf
    for k in range(c.eta.shape[0]):
        for j in range(c.eta.shape[1]):
            c.top[j] = max(c.top[j], c.eta[k, j])
    for k in range(c.eta.shape[0]):
        for j in range(c.eta.shape[1]):
            c.tilted[k, j] = math.exp((c.eta[k, j] - c.top[j]) / length)


@njit(**OPTIONS)
def inverse_of_tilted(c: Classes, j: int, length: float) -> float:
    """1 / (phibar'tilted) of class j, from m = offset + top + N log(phibar'tilted)."""
    return math.exp(-(c.m[j] - c.offset[j] - c.top[j]) / length)


@njit(**OPTIONS)
def predict_classes(c: Classes, length: float) -> float:
    """Write m and p at phibar; returns log sum exp m."""
    n_topics, n_classes = c.eta.shape
    weights = c.tilted if c.bound else c.eta
    m, p = c.m, c.p
    for j in range(n_classes):
        m[j] = 0.0
    for k in range(n_topics):
        for j in range(n_classes):
            m[j] += c.phibar[k] * weights[k, j]
    top = -np.inf
    for j in range(n_classes):
        m[j] = c.offset[j] + (c.top[j] + length * math.log(max(m[j], SMALLEST_WEIGHT)) if c.bound else m[j])
        top = max(top, m[j])
    total = 0.0
    for j in range(n_classes):
        p[j] = math.exp(m[j] - top)
        total += p[j]
    for j in range(n_classes):
        p[j] /= total
    return top + math.log(total)


@njit(**OPTIONS)
def respond(c: Classes, y: int, length: float) -> float:
    """F at phibar, with its derivative by phibar in `slope`."""
    normaliser = predict_classes(c, length)
    eta, p, phibar, slope = c.eta, c.p, c.phibar, c.slope
    n_topics, n_classes = eta.shape
    if c.bound:
        m_y = c.offset[y]
        for j in range(n_classes):
            c.q[j] = p[j] * inverse_of_tilted(c, j, length)
        for k in range(n_topics):
            m_y += phibar[k] * eta[k, y]
            pull = 0.0
            for j in range(n_classes):
                pull += c.q[j] * c.tilted[k, j]
            slope[k] = eta[k, y] - length * pull
        return m_y - normaliser
    trace = spread_of_classes(c, length)
    p_q = 0.0
    p_m = 0.0
    for j in range(n_classes):
        p_q += p[j] * c.q[j]
        p_m += p[j] * (c.m[j] - c.offset[j])
    for k in range(n_topics):
        first = 0.0
        second = 0.0
        cross = 0.0
        along = 0.0
        for j in range(n_classes):
            weighted = p[j] * eta[k, j]
            first += weighted
            second += weighted * eta[k, j]
            cross += weighted * (c.m[j] - c.offset[j])
            along += weighted * c.q[j]
        bend = second - first * first - 2.0 * (cross - p_m * first) + along - p_q * first
        slope[k] = eta[k, y] - first - 0.5 * bend / length
    return c.m[y] - normaliser - 0.5 * trace


@njit(**OPTIONS)
def spread_of_classes(c: Classes, length: float) -> float:
    """tr((diag(p) - pp') V), with N times its derivative by p in `q`."""
    eta, p, phibar = c.eta, c.p, c.phibar
    n_topics, n_classes = eta.shape
    p_m = 0.0
    for j in range(n_classes):
        p_m += p[j] * (c.m[j] - c.offset[j])
    trace = 0.0
    for j in range(n_classes):
        own = c.m[j] - c.offset[j]
        c.q[j] = -own * own + 2.0 * p_m * own
        trace -= p[j] * own * own
    trace += p_m * p_m
    for k in range(n_topics):
        first = 0.0
        second = 0.0
        for j in range(n_classes):
            first += p[j] * eta[k, j]
            second += p[j] * eta[k, j] * eta[k, j]
        trace += phibar[k] * (second - first * first)
        for j in range(n_classes):
            c.q[j] += phibar[k] * eta[k, j] * (eta[k, j] - 2.0 * first)
    return trace / length


@njit(**OPTIONS)
def ascend_classes(
    model: KernelParameters,
    s: Scratch,
    c: Classes,
    trail: Trail,
    document: Document,
    y: int,
    rho: float,
    max_sweeps: int,
    sweep_tol: float,
) -> Ascent:
    """The steps of `ascent`, by sweeps without response that move h to a target. After a fall, the share never grows back.

    So there are no strides after a fall. `y` is the code of the class or `UNLABELLED`; rho includes the document's emphasis.
    """
    alpha, gamma, elog, h, assigned = model.alpha, s.gamma, s.elog, s.h, s.assigned
    n_topics = alpha.shape[0]
    length = document.length
    labelled = y != UNLABELLED
    if labelled and c.bound:
        tilt(c, length)
    for k in range(n_topics):
        gamma[k] = alpha[k] + length / n_topics
        c.phibar[k] = 1.0 / n_topics
        c.slope[k] = 0.0
    if labelled:
        respond(c, y, length)
    log_gamma_total = math.lgamma(model.alpha_sum + length)
    elbo = -np.inf
    step = 1.0
    converged = False
    n_sweeps = 0
    n_halvings = 0
    log_gamma_sum_and_digamma(gamma, elog, s.work, s.bits)
    for k in range(n_topics):
        c.target[k] = elog[k] + rho * c.slope[k] / length
        c.old_h[k] = c.target[k]
        h[k] = c.target[k]
    mark(trail, gamma)
    in_a_row = 1
    strode = False
    while True:
        # step 2
        for k in range(n_topics):
            assigned[k] = 0.0
        bound = sweep_unlabelled(model, s, document)
        for k in range(n_topics):
            bound -= assigned[k] * h[k]
            gamma[k] = alpha[k] + assigned[k]
            c.phibar[k] = assigned[k] / length
        bound += (
            log_gamma_sum_and_digamma(gamma, elog, s.work, s.bits) - log_gamma_total - model.log_beta_alpha
        )
        if step == 0.0:
            return Ascent(elbo, n_sweeps, converged, 0.0)
        n_sweeps += 1
        if labelled:
            bound += rho * respond(c, y, length)
        # step 3
        converged = not strode and abs(bound - elbo) <= sweep_tol * abs(bound) * step
        if bound < elbo - (0.0 if strode else LEAST_FALL * abs(elbo)):
            # step 4
            in_a_row = 0
            if strode:
                copy_state(trail, s, 0)
                mark(trail, gamma)
                in_a_row = 1
                strode = False
                step = 0.0 if n_sweeps == max_sweeps else 1.0
            else:
                # half as far towards the same target; not at all if the document ends
                n_halvings += 1
                ends = converged or n_sweeps == max_sweeps or n_halvings == _MOST_HALVINGS
                step = 0.0 if ends else 0.5 * step
            for k in range(n_topics):
                h[k] = c.old_h[k] + step * (c.target[k] - c.old_h[k])
            continue
        # steps 5 and 6
        elbo = bound
        if converged or n_sweeps == max_sweeps:
            return Ascent(elbo, n_sweeps, converged, 0.0)
        for k in range(n_topics):
            c.old_h[k] = h[k]
            c.target[k] = elog[k] + rho * c.slope[k] / length
            h[k] += step * (c.target[k] - h[k])
        strode = False
        if in_a_row == 2:
            in_a_row = 0
            copy_state(s, trail, 0)
            strode = stride(trail, gamma, alpha)
            if strode:
                log_gamma_sum_and_digamma(gamma, elog, s.work, s.bits)
                for k in range(n_topics):
                    h[k] = elog[k] + rho * c.slope[k] / length
        if step == 1.0:
            mark(trail, gamma)
            in_a_row += 1


@njit(**OPTIONS)
def add_class_statistics(
    c: Classes,
    y: int,
    length: float,
    weight: float,
    x: Vector,
    score: Matrix,
    information: NDArray[np.float64],
) -> None:
    """One document's score of eta and zeta, and for each class its information p_c E[(zbar, x)(zbar, x)'].

    Each class is taken by itself, since diag(p) is not less than diag(p) - pp'. E[zbar zbar'] is that of tokens drawn from
    shares s, (1 - 1/N) ss' + diag(s) / N. The bound has s_k = phibar_k exp(eta_kc / N) / kbar_c, for which this is no less
    than its second derivative; the delta method has s = phibar.
    """
    eta, p, phibar = c.eta, c.p, c.phibar
    n_topics, n_classes = eta.shape
    p_m = 0.0
    p_q = 0.0
    if not c.bound:
        for j in range(n_classes):
            p_m += p[j] * (c.m[j] - c.offset[j])
            p_q += p[j] * c.q[j]
    for k in range(n_topics):
        first = 0.0
        if not c.bound:
            for j in range(n_classes):
                first += p[j] * eta[k, j]
        for j in range(n_classes):
            if c.bound:
                g = -c.q[j] * c.tilted[k, j]
            else:
                g = -p[j] * (1.0 + 0.5 * (c.q[j] - p_q) / length)
                g -= p[j] / length * ((eta[k, j] - first) - (c.m[j] - c.offset[j] - p_m))
            score[k, j] += weight * phibar[k] * g
        score[k, y] += weight * phibar[k]
    for i in range(x.shape[0]):
        for j in range(n_classes):
            g = -p[j] if c.bound else -p[j] * (1.0 + 0.5 * (c.q[j] - p_q) / length)
            score[n_topics + i, j] += weight * x[i] * g
        score[n_topics + i, y] += weight * x[i]
    inner = 1.0 - 1.0 / length
    shares = c.shares
    for j in range(n_classes):
        scale = inverse_of_tilted(c, j, length) if c.bound else 1.0
        for k in range(n_topics):
            shares[k] = phibar[k] * (scale * c.tilted[k, j] if c.bound else 1.0)
        probability = weight * p[j]
        for k in range(n_topics):
            left = probability * inner * shares[k]
            for i in range(k + 1):
                information[j, k, i] += left * shares[i]
            information[j, k, k] += probability * shares[k] / length
        for i in range(x.shape[0]):
            for k in range(n_topics):
                information[j, n_topics + i, k] += probability * x[i] * shares[k]
            for k in range(i + 1):
                information[j, n_topics + i, n_topics + k] += probability * x[i] * x[k]


@njit(block_signature(classes=True), **ENTRY_OPTIONS)
def class_block(documents, parameters, options, sums, posteriors):
    """E-step of every document of a block, in order; the arguments are described in `layout`."""
    indptr, terms, counts, y, extras = documents
    topics, alpha, eta, zeta, _ = parameters
    rho, max_sweeps, sweep_tol, _, _, bound = options
    topic_counts, score, information, log_theta, profile, scalars = sums
    omega = posteriors.omega
    n_topics, n_classes = eta.shape
    model = prepare_parameters(topics, alpha, np.zeros(n_topics), sweep_tol)
    longest = int64(0)
    for d in range(y.shape[0]):
        longest = max(longest, indptr[d + 1] - indptr[d])
    s = make_scratch(longest, n_topics)
    c = make_classes(eta, bound)
    trail = make_trail(0, n_topics)
    learn = topic_counts.shape[0] > 0
    nothing = vector(0)

    for d in range(y.shape[0]):
        labelled = not math.isnan(y[d])
        weight, emphasis = 1.0, 1.0
        x = nothing
        for j in range(n_classes):
            c.offset[j] = 0.0
        if extras.shape[0] > 0:
            weight, emphasis = extras[d, WEIGHT], extras[d, EMPHASIS]
            for p in range(zeta.shape[0]):
                for j in range(n_classes):
                    c.offset[j] += zeta[p, j] * extras[d, FIRST_COVARIATE + p]
        n, n_tokens = load_entries(
            terms[indptr[d] : indptr[d + 1]], counts[indptr[d] : indptr[d + 1]], topics, True, s
        )
        length = float(n_tokens)
        ascent = Ascent(0.0, 0, True, 0.0)
        if n == 0:
            # q(theta) is the prior; the response of a document without words teaches nothing about topics
            for k in range(n_topics):
                s.assigned[k] = 0.0
                c.phibar[k] = alpha[k] / model.alpha_sum
            scalars[N_EMPTY] += 1
        else:
            # sweeps and `write_out` see no response: theirs have one predictor
            document = lay_out(model, s, Observed(math.nan, False, 0.0, 1.0, 1.0), n, length)
            y_d = int(y[d]) if labelled else UNLABELLED
            # without a weight a response pulls at no word, and the posterior is that of a prediction
            pulling = y_d if rho > 0.0 else UNLABELLED
            ascent = ascend_classes(
                model, s, c, trail, document, pulling, rho * emphasis, max_sweeps, sweep_tol
            )
            write_out(model, s, document, 0.0, weight, topic_counts, False, False)
            if learn:
                add_log_theta(model, s, length, weight, log_theta, scalars)
            if labelled and learn:
                share = weight * emphasis
                if bound and pulling == UNLABELLED:
                    tilt(c, length)
                profile[0] += share * respond(c, y_d, length)
                add_class_statistics(
                    c,
                    y_d,
                    length,
                    share,
                    extras[d, FIRST_COVARIATE:] if extras.shape[0] > 0 else x,
                    score,
                    information,
                )
                scalars[LABELLED_WEIGHT] += share
                scalars[N_LABELLED] += 1
        write_document(model, s, ascent, d, weight, n_tokens, 0.0, 0.0, scalars, posteriors)
        if omega.shape[0] > 0:
            if bound:
                tilt(c, max(length, 1.0))
            predict_classes(c, max(length, 1.0))
            for j in range(n_classes):
                omega[d, j] = c.m[j]
