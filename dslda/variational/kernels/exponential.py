"""Coordinate ascent where l = (y omega - exp(omega)) / delta + a function of y: E[exp(omega)] is a product over tokens.

    A = E[exp(omega)] = exp(offset) prod_n kappa_n,   kappa_n = sum_k phi_nk exp(eta_k / N)
    F = E[l] = (y m - A) / delta + ...,               m = offset + eta'phibar

are exact, and F is concave in each phi_n. With u_k = N (exp(eta_k / N) - 1), which is close to eta_k, and m_n = u'phi_n,
kappa_n is 1 + m_n / N, and dF/dphi_n is y eta / N - A / (N kappa_n) (1 + u / N), over delta. So

    phi_n is proportional to beta_n exp(h + a_n u),   h = E[log theta] + rho y eta / (N delta)
    a_n = -rho A_{-n} / (N delta),                    A_{-n} = A / kappa_n

is the exact update: the form of the other responses with u for eta, b = 0, and an a_n that follows the product A instead of
a sum. For c tied occurrences, A_{-n} holds the other c - 1. Every update raises the ELBO.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from dslda.families.base import ScalarFunction
from dslda.families.scalars import LARGEST_EXPONENT
from dslda.variational.kernels.ascent import Ascent, Trail, copy_state, mark, stride
from dslda.variational.kernels.document_entries import Document, tile_row
from dslda.variational.kernels.scratch import (
    CHANGE,
    KAPPA1,
    KAPPA2,
    KAPPA3,
    M0,
    M1,
    M2,
    OPTIONS,
    T1,
    T2,
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
from dslda.variational.kernels.sweeps import REBASE_LIMIT, SHORT_RUN, Response
from dslda.variational.kernels.tiles import accumulate, flush, moments, set_base, sum_of_logs
from dslda.variational.kernels.updates import (
    Alone,
    alone,
    chain,
    cumulants,
    keep_alone,
    taylor_steps,
    taylor_updates,
)
from dslda.variational.special import log, log_gamma_sum_and_digamma

# A quadratic in the change of A stands in for the updates of a run of entries until A has changed by this share of itself
_FARTHEST = 0.25
# (1 + x)^(c - 1) is taken as a quadratic in x, the change of the kappa of c tied occurrences, while (c - 1) x is below this
_STIFFEST = 0.05
# and no entry may move A by more than about this share of itself, which keeps what the quadratics make of it above 0
_WILDEST = 0.5
# exponents of exp(eta / N) are cut here: third powers of it are still doubles
_LARGEST_TILT = 150.0


@njit(**OPTIONS)
def tilt(model: KernelParameters, u: Vector, length: float) -> KernelParameters:
    """The parameters with `u` for eta, written for a document of N = `length` tokens, and `middle` to go with it.

    eta counts from its mean, or from N above its lowest if that is less: near 0, kappa_n = 1 + m_n / N would lose digits.
    """
    eta = model.eta
    n_topics = eta.shape[0]
    lowest = np.inf
    for k in range(n_topics):
        lowest = min(lowest, eta[k])
    origin = min(0.0, lowest + length)
    reach = 0.0
    square_mean = 0.0
    for k in range(n_topics):
        u[k] = length * math.expm1(min((eta[k] - origin) / length, _LARGEST_TILT))
        reach = max(reach, abs(u[k]))
        square_mean += u[k] * u[k] / n_topics
    return KernelParameters(
        model.topics,
        model.alpha,
        model.alpha_sum,
        model.log_beta_alpha,
        u,
        model.middle + origin,
        reach,
        square_mean,
        model.series_limit,
    )


@njit(**OPTIONS)
def size(log_a: float) -> float:
    """A, bounded as families bound exp(omega)."""
    return math.exp(min(log_a, LARGEST_EXPONENT))


@njit(**OPTIONS)
def lines_of_product(
    s: Scratch, start: int, first: int, stop: int, pull: float, a_base: float, share: float
) -> None:
    """The update of every entry as a quadratic in `change`, the relative change of A since the start of the run.

    `pull` is -rho A / (N delta) there, `share` 1 / N. With m(t) as in `cumulants`, x = (m(t) - old) / (N kappa) the relative
    change of the entry's own kappa and p = pull / kappa, the exact update of c tied occurrences solves

        a_base + t = p (1 + change) (1 + x)^(c - 1)

    here by one Newton step from x = 0, where it is at the fixed point. It multiplies A by (1 + x)^c. Writes
    t = T + T1 change + T2 change^2 and the increase of `change` = M0 + M1 change + M2 change^2; T is infinite where a
    quadratic will not do.
    """
    tile, copies, m = s.tile, s.copies, s.m
    at = np.uint64(start)
    for i in span(first, stop):
        c = copies[at + i]
        d = c - 1.0
        old = m[at + i]
        kappa1 = tile[KAPPA1 + i]
        kappa2 = tile[KAPPA2 + i]
        kappa3 = tile[KAPPA3 + i]
        gain = share / (1.0 + old * share)
        p = pull * gain / share
        t = p - a_base
        x = gain * (kappa1 + t * (kappa2 + 0.5 * t * kappa3) - old)
        slope = gain * (kappa2 + t * kappa3)
        # (1 + x)^(c - 1) at t + step: power + power1 step + power2 step^2
        power = d * x * (1.0 + 0.5 * (d - 1.0) * x)
        power1 = d * slope * (1.0 + (d - 1.0) * x)
        power2 = d * (0.5 * gain * kappa3 * (1.0 + (d - 1.0) * x) + 0.5 * (d - 1.0) * slope * slope)
        stiffness = 1.0 / (1.0 - p * power1)
        step = stiffness * p * power
        step += stiffness * p * power2 * step * step
        t0 = t + step
        t1 = stiffness * p * (1.0 + power + power1 * step)
        t2 = stiffness * p * t1 * (power1 + power2 * t1)
        x0 = gain * (kappa1 + t0 * (kappa2 + 0.5 * t0 * kappa3) - old)
        slope = gain * (kappa2 + t0 * kappa3)
        x1 = t1 * slope
        x2 = t2 * slope + 0.5 * gain * kappa3 * t1 * t1
        own = c * x0 * (1.0 + 0.5 * d * x0 * (1.0 + (d - 1.0) * x0 / 3.0))
        own1 = c * x1 * (1.0 + d * x0)
        own2 = c * (x2 * (1.0 + d * x0) + 0.5 * d * x1 * x1)
        # a very large u makes one of them NaN, which is not served either
        moves = abs(own) + abs(own1) + abs(own2)
        served = d * abs(x) <= _STIFFEST and d * abs(x0) <= _STIFFEST and moves <= _WILDEST
        tile[T + i] = t0 if served else np.inf
        tile[T1 + i] = t1 if served else 0.0
        tile[T2 + i] = t2 if served else 0.0
        tile[M0 + i] = own if served else 0.0
        tile[M1 + i] = own + own1 if served else 0.0
        tile[M2 + i] = own1 + own2 if served else 0.0


@njit(**OPTIONS)
def near(tile: Vector, first: int, stop: int, change: float) -> tuple[int, float]:
    """The first entry before which A has changed too far, and the change by then; or `stop` and `change`."""
    n_near = 0.0
    for i in span(first, stop):
        n_near += 1.0 if abs(tile[CHANGE + i]) <= _FARTHEST else 0.0  # NaN is far
    if n_near < stop - first:
        for i in span(first, stop):
            if not abs(tile[CHANGE + i]) <= _FARTHEST:
                return np.int64(i), tile[CHANGE + i]
    return stop, change


@njit(**OPTIONS)
def update_alone(
    model: KernelParameters,
    s: Scratch,
    term: int,
    c: float,
    factor: float,
    log_others: float,
    guess: float,
    share: float,
    base: Base,
) -> tuple[Alone, float]:
    """Update one token, or c tied occurrences; `log_others` is log A without them. Returns log kappa too.

    Solves x = log kappa(a), a = -factor A_others exp((c - 1) x), from a guess of m: Newton, or bisection where Newton does
    not halve the gap. The right side falls in x.
    """
    low = np.inf
    high = -np.inf
    for k in range(model.eta.shape[0]):
        low = min(low, model.eta[k])
        high = max(high, model.eta[k])
    x = math.log1p(share * (guess if low <= guess <= high else low))  # the guess may be NaN
    low, high = math.log1p(share * low), math.log1p(share * high)
    width = high - low
    before = np.inf
    entry = Alone(0.0, 0.0, 0.0, 0.0)
    log_kappa = 0.0
    for _ in range(81):
        entry = alone(model, s, term, -factor * size(log_others + (c - 1.0) * x), base)
        log_kappa = math.log1p(entry.m * share)
        gap = log_kappa - x
        if gap > 0.0:
            low = x
        else:
            high = x
        if c == 1.0 or abs(gap) <= 1e-12 * width or high - low <= 1e-14 * width:
            break
        variance = max(entry.square - entry.m * entry.m, 0.0)
        x += gap / (1.0 - (c - 1.0) * entry.a * variance * share / (1.0 + entry.m * share))
        if not low < x < high or abs(gap) > 0.5 * before:
            x = 0.5 * (low + high)
        before = abs(gap)
    return entry, log_kappa


@njit(**OPTIONS)
def update_tile(
    model: KernelParameters,
    s: Scratch,
    start: int,
    n: int,
    factor: float,
    log_a: float,
    share: float,
    base: Base,
) -> tuple[float, float]:
    """Update the `n` entries from `start`, as `sweeps.update_tile` does; returns their part of the ELBO and the new log A."""
    tile = s.tile
    bound = 0.0
    cumulants(tile, n)
    first = 0
    longest_run = n
    while first < n:
        stop = min(first + longest_run, n)
        lines_of_product(s, start, first, stop, -factor * size(log_a), base.a, share)
        change = chain(tile, first, stop)
        reached, change = near(tile, first, stop, change)
        reached, change = taylor_steps(
            tile, first, reached, model.reach, model.series_limit, base.floor, change
        )
        bound += taylor_updates(s, start, first, reached, base.a, 0.0)[0]
        log_a += math.log1p(change)
        if reached == stop:
            first = stop
            longest_run *= 4
            continue
        longest_run = SHORT_RUN
        i = np.uint64(reached)
        at = start + reached
        c = s.copies[at]
        t = -factor * size(log_a) / (1.0 + s.m[at] * share) - base.a
        guess = tile[KAPPA1 + i] + t * (tile[KAPPA2 + i] + 0.5 * t * tile[KAPPA3 + i])
        others = log_a - c * math.log1p(s.m[at] * share)
        entry, log_kappa = update_alone(model, s, s.terms[at], c, factor, others, guess, share, base)
        keep_alone(s, at, i, c, entry)
        bound += c * (entry.log_z - entry.a * entry.m)
        log_a = others + c * log_kappa
        first = reached + 1
    return bound, log_a


@njit(**OPTIONS)
def sweep(
    model: KernelParameters, s: Scratch, document: Document, factor: float, log_a: float, log_kappa: float
) -> tuple[float, float, float]:
    """Update every phi_n; leaves sum_n phi_n in `s`. `log_kappa` is that of a typical token.

    Returns the entries' part of the ELBO, sum_n log kappa_n and a_base.
    """
    n, width = document.n, document.width
    weights, tile, copies = document.weights, s.tile, s.copies
    share = 1.0 / document.length
    typical = math.sqrt(model.eta_square_mean)
    bound = 0.0
    product = 0.0
    base = Base(0.0, 0.0, 0, 0.0)
    for start in range(0, n, width):
        n_tile = min(width, n - start)
        row = tile_row(model, s, document, start)
        a_middle = -factor * size(log_a - log_kappa)
        if start == 0 or abs(a_middle - base.a) * typical > REBASE_LIMIT:
            flush(s, base.n_live)
            base = set_base(model, s, a_middle)
        moments(weights, row, s, base.n_live)
        part, log_a = update_tile(model, s, start, n_tile, factor, log_a, share, base)
        for e in span(n_tile, width):
            tile[W0 + e] = 0.0
            tile[W1 + e] = 0.0
            tile[W2 + e] = 0.0
        accumulate(weights, row, s, base.n_live)
        bound += part + sum_of_logs(s, n_tile, base.top)
        at = np.uint64(start)
        for e in span(0, n_tile):
            tile[Z + e] = 1.0 + s.m[at + e] * share
        log(n_tile, s.z, s.logs, s.tile_bits)
        logs = s.logs
        for e in span(0, n_tile):
            product += copies[at + e] * logs[e]
    flush(s, base.n_live)
    return bound, product, base.a


@njit(**OPTIONS)
def ascend_product(
    model: KernelParameters,
    tilted: KernelParameters,
    response: Response,
    s: Scratch,
    trail: Trail,
    document: Document,
    max_sweeps: int,
    sweep_tol: float,
) -> Ascent:
    """The steps of `ascent`, with `model` as :func:`tilt` makes it for the document. A plain sweep never lowers the ELBO."""
    alpha, gamma, elog, h, assigned = model.alpha, s.gamma, s.elog, s.h, s.assigned
    n_topics = alpha.shape[0]
    observed, length = document.observed, document.length
    m = 0.0
    for k in range(n_topics):
        gamma[k] = alpha[k] + length / n_topics
        m += tilted.eta[k] / n_topics
    for e in range(document.n):
        s.m[e] = m
    product = length * math.log1p(m / length)
    log_gamma_total = math.lgamma(model.alpha_sum + length)
    delta = response.delta[0]
    factor = observed.rho / (length * delta)
    # the part of F without A and phi; the rest of y m is in the entries' log Z
    fixed = observed.y * (observed.offset + model.middle) / delta
    fixed = observed.rho * (fixed + constant(response.l, observed.y, response.delta, observed.aux))
    offset = observed.offset + tilted.middle
    # the last state kept
    elbo = -np.inf
    a_base = 0.0
    kept_product = 0.0
    # the last sweep's
    bound = 0.0
    new_base = 0.0
    n_sweeps = 0
    in_a_row = 0
    strode = False
    while True:
        log_gammas = log_gamma_sum_and_digamma(gamma, elog, s.work, s.bits)
        if n_sweeps > 0:
            bound += log_gammas - log_gamma_total - model.log_beta_alpha
            bound += fixed - observed.rho * size(offset + product) / delta
            if strode and bound < elbo:
                # step 4
                copy_state(trail, s, document.n)
                if n_sweeps == max_sweeps:
                    set_base(tilted, s, a_base)
                    return Ascent(elbo, n_sweeps, False, a_base)
                product = kept_product
                in_a_row = 0
                strode = False
            else:
                # steps 3, 5 and 6
                converged = not strode and abs(bound - elbo) <= sweep_tol * abs(bound)
                elbo = bound
                a_base = new_base
                kept_product = product
                if converged or n_sweeps == max_sweeps:
                    return Ascent(elbo, n_sweeps, converged, a_base)
                strode = False
                if in_a_row == 2:
                    in_a_row = 0
                    copy_state(s, trail, document.n)
                    strode = stride(trail, gamma, alpha)
                    if strode:
                        log_gamma_sum_and_digamma(gamma, elog, s.work, s.bits)
        # step 2
        mark(trail, gamma)
        in_a_row += 1
        n_sweeps += 1
        for k in range(n_topics):
            h[k] = elog[k] + factor * observed.y * model.eta[k]
            assigned[k] = 0.0
        bound, product, new_base = sweep(tilted, s, document, factor, offset + product, product / length)
        for k in range(n_topics):
            bound -= assigned[k] * elog[k]
            gamma[k] = alpha[k] + assigned[k]


@njit(**OPTIONS)
def constant(l: ScalarFunction, y: float, delta: Vector, aux: float) -> float:
    """The part of l that is free of omega."""
    return l(y, 0.0, delta, aux) + 1.0 / delta[0]


@njit(**OPTIONS)
def add_product_statistics(
    s: Scratch, u: Vector, length: float, y: float, a: float, score: Vector, information: Matrix
) -> None:
    """Add one document's score y E[zbar] - E[A zbar] and information E[A zbar zbar'] (lower triangle).

    With psi_n = phi_n exp(eta / N) / kappa_n and f = sum_n psi_n, N E[A zbar] = A f and
    N^2 E[A zbar zbar'] = A (f f' - sum_n psi_n psi_n' + diag(f)). Reads sums of phi_n / kappa_n from `s`, and leaves f in
    `assigned_m`. `y` and `a` are times the weight of the document, and over delta.
    """
    assigned, tilted, gram = s.assigned, s.assigned_m, s.gram
    scale = a / (length * length)
    for i in range(assigned.shape[0]):
        tilt_i = 1.0 + u[i] / length
        tilted[i] *= tilt_i
        f_i = tilted[i]
        score[i] += (y * assigned[i] - a * f_i) / length
        for j in range(i + 1):
            information[i, j] += scale * (f_i * tilted[j] - tilt_i * (1.0 + u[j] / length) * gram[i, j])
        information[i, i] += scale * f_i
