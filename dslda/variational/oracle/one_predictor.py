"""The E-step of one document, readable, straight from docs/model.md: the oracle of the compiled kernels.

phi is an explicit matrix, and every update is the exact coordinate update; nothing is fast. Granularity "token" has a row
for each occurrence (copies all 1), "term" a row for each distinct term. The last functions belong to the exact form of
Poisson responses, where E[exp(omega)] is a product over tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dslda.families.base import Array, Family
from dslda.variational.parameters import Parameters

__all__ = [
    "DocumentState",
    "ScalarResponse",
    "cold_start",
    "curvatures",
    "document_elbo",
    "document_statistics",
    "expected_log_likelihood",
    "stride",
    "sweep",
    "update_until_converged",
]


# as in `kernels.ascent` and `kernels.sweeps`, which import numba
LEAST_FALL = 1e-10
SHORTEST_SHARE = 2.0**-20
LONGEST_STRIDE = 3.0
LARGEST_PULL = 1e9
LARGEST_EXPONENT = 300.0


@dataclass(slots=True, eq=False)
class DocumentState:
    """Variational distribution of one document.

    Attributes
    ----------
    terms : ndarray of int, shape (n,)
        Term of each row of phi.
    copies : ndarray of float, shape (n,)
        Occurrences that share the row.
    phi : ndarray of float64, shape (n, K)
    gamma : ndarray of float64, shape (K,)
    """

    terms: NDArray[np.int64]
    copies: Array
    phi: Array
    gamma: Array

    @property
    def length(self) -> float:
        return float(self.copies.sum())


@dataclass(frozen=True, slots=True)
class ScalarResponse:
    """The response of a document, NaN where missing, and its companions; `rho` is its weight in the E-step."""

    family: Family
    y: float
    rho: float = 1.0
    offset: float = 0.0
    aux: float = 1.0


def cold_start(
    terms: NDArray[np.int64], counts: NDArray[np.int64], parameters: Parameters, *, granularity: str
) -> DocumentState:
    """phi uniform, gamma = alpha + N / K."""
    copies = np.asarray(counts, dtype=np.float64)
    if granularity == "token":
        terms = np.repeat(terms, counts)
        copies = np.ones(len(terms))
    n_topics = parameters.n_topics
    phi = np.full((len(terms), n_topics), 1.0 / n_topics)
    return DocumentState(terms, copies, phi, parameters.alpha + copies.sum() / n_topics)


def moments(state: DocumentState, eta: Array, family: Family | None = None) -> tuple[float, float]:
    """Mean and variance of omega = eta'zbar under q (model.md, section 1).

    If the family's E[exp(omega)] is exact, v is the number that makes it exp(m + v / 2).
    """
    m_n = state.phi @ eta
    variances = state.phi @ (eta * eta) - m_n**2
    n = state.length
    m, v = float(state.copies @ m_n) / n, float(state.copies @ variances) / n**2
    if family is not None and family.is_exact_product:
        v = 2.0 * max(float(state.copies @ log_kappa(state.phi, eta, n)) - m, 0.0)
    return m, v


def slopes(omega: float, parameters: Parameters, response: ScalarResponse) -> tuple[float, float, float]:
    """l1, l2, l3 at omega, without an upward bend of l."""
    family, arguments = response.family, (response.y, omega, parameters.delta, response.aux)
    l1, l2 = family.first_derivative(*arguments), family.second_derivative(*arguments)
    return (l1, l2, family.third_derivative(*arguments)) if l2 < 0.0 else (l1, 0.0, 0.0)


def pull_of(state: DocumentState, parameters: Parameters, response: ScalarResponse) -> Array:
    """The response's pull on the tokens: a_n = pull[0] + pull[1] (sum of the other m_n), b = pull[1] / 2.

    Where l is not quadratic, the pull keeps a_n eta, with eta from its mean, below about `LARGEST_PULL`.
    """
    n = state.length
    m, v = moments(state, parameters.eta)
    l1, l2, l3 = slopes(response.offset + m, parameters, response)
    reach = float(np.abs(parameters.eta - parameters.eta.mean()).max())
    largest = response.rho * max(abs(l1 + 0.5 * l3 * v) / n, abs(l2) / n * reach) * reach
    share = 1.0 if response.family.is_quadratic else min(1.0, LARGEST_PULL / max(largest, 1.0))
    return share * response.rho * np.array([(l1 - l2 * m + 0.5 * l3 * v) / n, l2 / n**2])


def sweep(state: DocumentState, parameters: Parameters, response: ScalarResponse) -> DocumentState:
    """One pass of coordinate ascent over the rows of phi, then gamma.

    Within the sweep, l1 is linear and l2, l3 and v are constant: exact where l is quadratic (Gaussian), and with the
    same fixed point for every family. A family with an exact E[exp(omega)] has exact updates, and no pull.
    """
    eta, beta = parameters.eta, parameters.topics
    phi = state.phi.copy()
    elog_theta = expected_log_theta(state.gamma)
    with np.errstate(divide="ignore"):
        log_beta = np.log(beta[state.terms])
    labelled = not np.isnan(response.y)
    if labelled and response.family.is_exact_product:
        phi = update_rows(state, log_beta + elog_theta, parameters, response)
        return DocumentState(state.terms, state.copies, phi, parameters.alpha + state.copies @ phi)
    pull = pull_of(state, parameters, response) if labelled else None
    for i in range(len(phi)):
        base = log_beta[i] + elog_theta
        if pull is None:
            phi[i] = special.softmax(base)
            continue
        c = state.copies[i]
        others = float(state.copies @ (phi @ eta) - c * (phi[i] @ eta))
        intercept, slope = float(pull[0]), float(pull[1])

        def assign(
            m_i: float,
            base: Array = base,
            rest: float = intercept + slope * others,
            coupling: float = slope * (c - 1.0),
            b: float = 0.5 * slope,
        ) -> tuple[Array, float]:
            row = special.softmax(base + (rest + coupling * m_i) * eta + b * eta * eta)
            return row, float(row @ eta) - m_i

        # m = eta'phi(m): the right side falls in m, so there is one root, explicit for a single token
        low, high = float(eta.min()), float(eta.max())
        if high > low:
            m_i = optimize.brentq(
                lambda m, f=assign: f(m)[1], low - 1e-9, high + 1e-9, xtol=1e-14, rtol=1e-15
            )
        else:
            m_i = low
        phi[i] = assign(m_i)[0]
    return DocumentState(state.terms, state.copies, phi, parameters.alpha + state.copies @ phi)


def sweep_part_of_the_way(
    state: DocumentState, parameters: Parameters, response: ScalarResponse, *, share: float
) -> DocumentState:
    """Move log phi a `share` of the way to the stationary point of its gradient at `state`, then gamma.

    All rows move at once: a step along the natural gradient. If it is short enough, the ELBO rises for any l.
    """
    eta = parameters.eta
    elog_theta = expected_log_theta(state.gamma)
    intercept, slope = pull_of(state, parameters, response)
    m_n = state.phi @ eta
    a = intercept + slope * (float(state.copies @ m_n) - m_n)
    with np.errstate(divide="ignore"):
        target = np.log(parameters.topics[state.terms]) + elog_theta + np.outer(a, eta) + 0.5 * slope * eta**2
        phi = special.softmax((1.0 - share) * np.log(state.phi) + share * target, axis=1)
    return DocumentState(state.terms, state.copies, phi, parameters.alpha + state.copies @ phi)


def document_elbo(state: DocumentState, parameters: Parameters, response: ScalarResponse) -> float:
    """The evidence lower bound, term by term (paper, eq. 7), with the response term times rho."""
    alpha, gamma = parameters.alpha, state.gamma
    elog_theta = expected_log_theta(gamma)
    weights = state.copies[:, np.newaxis] * state.phi
    theta = log_beta_function(gamma) - log_beta_function(alpha) + float((alpha - gamma) @ elog_theta)
    assignments = float((weights @ elog_theta).sum())
    words = float(special.xlogy(weights, parameters.topics[state.terms]).sum())
    entropy = -float((state.copies[:, np.newaxis] * special.xlogy(state.phi, state.phi)).sum())
    likelihood = 0.0
    if not np.isnan(response.y):
        likelihood = expected_log_likelihood(state, parameters.eta, parameters.delta, response)
    return theta + assignments + words + entropy + response.rho * likelihood


def expected_log_likelihood(
    state: DocumentState, eta: Array, delta: Array, response: ScalarResponse
) -> float:
    """F: E[log p(y)] by the delta method, without an upward bend, or exactly (`Family.is_exact_product`)."""
    family, y, aux = response.family, response.y, response.aux
    m, v = moments(state, eta, family)
    omega = response.offset + m
    if family.is_exact_product:
        free = family.log_likelihood(y, 0.0, delta, aux) + 1.0 / float(delta[0])
        return free + (y * omega - expected_exp(omega + 0.5 * v)) / float(delta[0])
    bend = min(family.second_derivative(y, omega, delta, aux), 0.0)
    return family.log_likelihood(y, omega, delta, aux) + 0.5 * bend * v


def expected_log_theta(gamma: Array) -> Array:
    """E[log theta] under Dirichlet(gamma)."""
    logs: Array = special.digamma(gamma) - special.digamma(gamma.sum())
    return logs


def log_beta_function(x: Array) -> float:
    """log of the multivariate Beta function: sum log Gamma(x_k) - log Gamma(sum x)."""
    return float(special.gammaln(x).sum() - special.gammaln(x.sum()))


def document_statistics(
    state: DocumentState, parameters: Parameters, response: ScalarResponse
) -> tuple[Array, Array]:
    """Score and information of eta (model.md, section 3)."""
    n = state.length
    eta = parameters.eta
    if response.family.is_exact_product:
        score, information = product_statistics(state, eta, response)
        return score / parameters.delta[0], information / parameters.delta[0]
    total = state.copies @ state.phi
    gram = (state.phi * state.copies[:, np.newaxis]).T @ state.phi
    second = (np.outer(total, total) - gram + np.diag(total)) / n**2
    mean = total / n
    m, v = moments(state, eta)
    omega = response.offset + m
    l1, l2, l3 = slopes(omega, parameters, response)
    score = (l1 + 0.5 * l3 * v) * mean + l2 * (second - np.outer(mean, mean)) @ eta
    weight = response.family.information_weight(response.y, omega, parameters.delta, response.aux)
    return score, weight * second


def curvatures(state: DocumentState, parameters: Parameters, response: ScalarResponse) -> tuple[float, float]:
    """The document's weight in the information, and the largest curvature of l near the mean of omega."""
    family, y, aux = response.family, response.y, response.aux
    if family.is_quadratic:
        return 0.0, 0.0
    m, v = moments(state, parameters.eta)
    places = response.offset + m + np.sqrt(max(v, 0.0)) * np.array([0.0, -1.0, 1.0])
    weights = [family.information_weight(y, omega, parameters.delta, aux) for omega in places]
    bends = [-family.second_derivative(y, omega, parameters.delta, aux) for omega in places]
    return weights[0], max(*weights, *bends)


def update_until_converged(
    state: DocumentState, parameters: Parameters, response: ScalarResponse, *, tol: float, max_sweeps: int
) -> tuple[DocumentState, list[float]]:
    """The steps of `kernels.ascent`; returns the last state kept, and after each sweep the ELBO of the state kept."""
    family = response.family
    may_fall = not (np.isnan(response.y) or family.is_quadratic or family.is_exact_product)
    trace: list[float] = []
    kept = state
    share = 1.0
    path: list[Array] = []
    strode = False
    while len(trace) < max_sweeps:
        if share == 1.0:
            path.append(state.gamma)
            trial = sweep(state, parameters, response)
        else:
            trial = sweep_part_of_the_way(state, parameters, response, share=share)
        before = trace[-1] if trace else -np.inf
        elbo = document_elbo(trial, parameters, response)
        converged = not strode and abs(elbo - before) <= share * tol * abs(elbo)
        if (strode and elbo < before) or (may_fall and elbo < before - LEAST_FALL * abs(before)):
            trace.append(before)
            state, path = kept, []
            if strode:
                strode = False
                continue
            share *= 0.5
        else:
            trace.append(elbo)
            kept = state = trial
            share = min(2.0 * share, 1.0)
            strode = False
        if converged or share < SHORTEST_SHARE:
            break
        if len(path) == 2:
            gamma = stride(path[0], path[1], state.gamma, parameters.alpha)
            path = []
            strode = gamma is not None
            if gamma is not None:
                state = replace(state, gamma=gamma)
    return kept, trace


def stride(older: Array, old: Array, gamma: Array, alpha: Array) -> Array | None:
    """The end that two sweeps point to, from older to old to gamma, not below alpha; None if it is no farther than gamma.

    SQUAREM, step length S3 (Varadhan and Roland, 2008): older + 2 s r + s^2 v, with the first step r, the second r + v, and
    s = |r| / |v|.
    """
    r = old - older
    v = (gamma - old) - r
    if r @ r <= v @ v:
        return None
    s = LONGEST_STRIDE
    if r @ r < LONGEST_STRIDE**2 * (v @ v):
        s = float(np.sqrt((r @ r) / (v @ v)))
    strode: Array = np.maximum(alpha, older + s * (2.0 * r + s * v))
    return strode


def log_kappa(phi: Array, eta: Array, length: float) -> Array:
    """log sum_k phi_nk exp(eta_k / N) of every row of `phi`."""
    logs: Array = special.logsumexp(eta / length, b=phi, axis=1)
    return logs


def expected_exp(log_a: float) -> float:
    """exp with the bound of the kernel."""
    return float(np.exp(min(log_a, LARGEST_EXPONENT)))


def update_rows(
    state: DocumentState, exponents: Array, parameters: Parameters, response: ScalarResponse
) -> Array:
    """The exact coordinate update of every row of `phi` in turn; `exponents`, shape (n, K): log beta + E[log theta].

    Row n is proportional to exp(exponents + rho y eta / N - rho A_{-n} kappa_n^(c - 1) exp(eta / N)), with rho over the
    dispersion, where A_{-n} leaves out the row's own c tokens.
    """
    eta, y, rho = parameters.eta, response.y, response.rho / parameters.delta[0]
    phi, copies, n = state.phi.copy(), state.copies, state.length
    logs = log_kappa(phi, eta, n)
    low, high = float(eta.min()) / n, float(eta.max()) / n
    for i, c in enumerate(copies):
        others = response.offset + float(copies @ logs) - c * logs[i]

        def assign(x: float, i: int = i, c: float = c, others: float = others) -> tuple[Array, float]:
            # a constant in the exponents is free; with expm1 they stay small where eta / N is small
            pull = -rho * expected_exp(others + high + (c - 1.0) * x) * np.expm1(eta / n - high)
            row = special.softmax(exponents[i] + rho * y * eta / n + pull)
            return row, float(log_kappa(row[np.newaxis], eta, n)[0]) - x

        # x = log kappa: the row's log kappa falls in x, so there is one root, explicit for a single token
        x = low
        if high > low and c > 1.0:
            x = optimize.brentq(lambda x, f=assign: f(x)[1], low - 1e-9, high + 1e-9, xtol=1e-15, rtol=1e-15)
        phi[i] = assign(x)[0]
        logs[i] = log_kappa(phi[i : i + 1], eta, n)[0]
    return phi


def product_statistics(state: DocumentState, eta: Array, response: ScalarResponse) -> tuple[Array, Array]:
    """Score y E[zbar] - E[A zbar] and information E[A zbar zbar'] of eta, for dispersion 1."""
    phi, copies, n = state.phi, state.copies, state.length
    logs = log_kappa(phi, eta, n)
    a = expected_exp(response.offset + float(copies @ logs))
    psi = phi * np.exp(eta / n - logs[:, np.newaxis])
    total = copies @ psi
    gram = (psi * copies[:, np.newaxis]).T @ psi
    score = (response.y * (copies @ phi) - a * total) / n
    return score, a * (np.outer(total, total) - gram + np.diag(total)) / n**2
