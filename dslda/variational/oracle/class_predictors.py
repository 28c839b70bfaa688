"""The E-step of one document for a response of classes, readable: the oracle of `kernels.class_e_step`.

Formulas are those of :mod:`dslda.variational.kernels.class_e_step`, in matrices: F = E[log p(y)] is a function of phibar,
the mean of the phi_n, through the predictors m.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dslda.families.base import Array
from dslda.families.gaussian import Gaussian
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import DocumentState, ScalarResponse, expected_log_theta
from dslda.variational.parameters import Parameters

__all__ = [
    "ClassResponse",
    "ascend",
    "document_elbo",
    "document_statistics",
    "expected_log_likelihood",
    "predictors",
    "slope",
]


@dataclass(frozen=True, slots=True, eq=False)
class ClassResponse:
    """The class of a document and its companions.

    Attributes
    ----------
    y : float
        Code of the class, NaN where missing.
    form : {"bound", "delta"}
    rho : float
        Weight of the response in the E-step.
    x : ndarray of float64, shape (P,)
        Covariates.
    """

    y: float
    form: Literal["bound", "delta"] = "bound"
    rho: float = 1.0
    x: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def labelled(self) -> bool:
        return not np.isnan(self.y)

    def indicator(self, n_classes: int) -> Array:
        """1 for the document's class, 0 for the others, shape (C,)."""
        indicator = np.zeros(n_classes)
        indicator[int(self.y)] = 1.0
        return indicator


def mean_assignment(state: DocumentState) -> Array:
    """phibar, shape (K,)."""
    phibar: Array = state.copies @ state.phi / state.length
    return phibar


def predictors(phibar: Array, length: float, parameters: Parameters, response: ClassResponse) -> Array:
    """Numbers whose softmax is the probabilities of the classes, shape (C,)."""
    offset = response.x @ parameters.zeta
    m: Array
    if response.form == "bound":
        m = offset + length * np.log(phibar @ np.exp(parameters.eta / length))
    else:
        m = offset + phibar @ parameters.eta
    return m


def _spread(phibar: Array, length: float, eta: Array) -> Array:
    """V, the covariance of predictors for tokens drawn from phibar, shape (C, C)."""
    mean = phibar @ eta
    covariance: Array = ((eta.T * phibar) @ eta - np.outer(mean, mean)) / length
    return covariance


def expected_log_likelihood(
    phibar: Array, length: float, parameters: Parameters, response: ClassResponse
) -> float:
    """F: a lower bound of E[log p(y)], or the delta method's approximation."""
    m = predictors(phibar, length, parameters, response)
    if response.form == "bound":
        own = (response.x @ parameters.zeta + phibar @ parameters.eta)[int(response.y)]
        return float(own - special.logsumexp(m))
    p = special.softmax(m)
    curvature = np.diag(p) - np.outer(p, p)
    trace = np.trace(curvature @ _spread(phibar, length, parameters.eta))
    return float(m[int(response.y)] - special.logsumexp(m) - 0.5 * trace)


def _pull(phibar: Array, length: float, parameters: Parameters, response: ClassResponse) -> Array:
    """Derivative of the delta method's F with respect to m for constant V, shape (C,)."""
    p = special.softmax(predictors(phibar, length, parameters, response))
    covariance = _spread(phibar, length, parameters.eta)
    curvature = np.diag(p) - np.outer(p, p)
    along = np.diag(covariance) - 2.0 * covariance @ p
    pull: Array = response.indicator(len(p)) - p - 0.5 * curvature @ along
    return pull


def slope(phibar: Array, length: float, parameters: Parameters, response: ClassResponse) -> Array:
    """Derivative of F with respect to phibar, shape (K,)."""
    eta = parameters.eta
    p = special.softmax(predictors(phibar, length, parameters, response))
    by_topic: Array
    if response.form == "bound":
        tilted = np.exp(eta / length)
        by_topic = eta[:, int(response.y)] - length * (tilted / (phibar @ tilted)) @ p
        return by_topic
    curvature = np.diag(p) - np.outer(p, p)
    bend = np.einsum("kc,cd,kd->k", eta, curvature, eta) - 2.0 * eta @ curvature @ (phibar @ eta)
    by_topic = eta @ _pull(phibar, length, parameters, response) - 0.5 * bend / length
    return by_topic


def document_elbo(state: DocumentState, parameters: Parameters, response: ClassResponse) -> float:
    """The evidence lower bound, term by term, with F times rho."""
    # any family will do for the words' part
    elbo = one_predictor.document_elbo(state, parameters, ScalarResponse(Gaussian(), np.nan))
    if response.labelled:
        phibar = mean_assignment(state)
        elbo += response.rho * expected_log_likelihood(phibar, state.length, parameters, response)
    return elbo


def document_statistics(
    state: DocumentState, parameters: Parameters, response: ClassResponse
) -> tuple[Array, Array]:
    """Score of (eta, zeta), shape (K + P, C), and for each class its information, shape (C, K + P, K + P)."""
    phibar, length, eta = mean_assignment(state), state.length, parameters.eta
    n_topics, n_classes = eta.shape
    m = predictors(phibar, length, parameters, response)
    p = special.softmax(m)
    # shares of the topics, seen from each class, shape (K, C)
    if response.form == "bound":
        tilted = phibar[:, np.newaxis] * np.exp(eta / length)
        shares = tilted / tilted.sum(axis=0)
        of_topics = np.outer(phibar, response.indicator(n_classes)) - p * shares
        pull = response.indicator(n_classes) - p
    else:
        shares = np.repeat(phibar[:, np.newaxis], n_classes, axis=1)
        curvature = np.diag(p) - np.outer(p, p)
        pull = _pull(phibar, length, parameters, response)
        of_topics = phibar[:, np.newaxis] * (pull - (eta - phibar @ eta) @ curvature / length)
    score = np.vstack([of_topics, np.outer(response.x, pull)])
    information = np.empty((n_classes, len(score), len(score)))
    for c in range(n_classes):
        mean = np.concatenate([shares[:, c], response.x])
        information[c] = np.outer(mean, mean)
        information[c, :n_topics, :n_topics] += (
            np.diag(shares[:, c]) - np.outer(shares[:, c], shares[:, c])
        ) / length
    return score, p[:, np.newaxis, np.newaxis] * information


def ascend(
    terms: NDArray[np.int64],
    counts: NDArray[np.int64],
    parameters: Parameters,
    response: ClassResponse,
    *,
    tol: float,
    max_sweeps: int,
) -> tuple[DocumentState, list[float], bool]:
    """The steps of `kernels.ascent`, by sweeps that move h, with phi_n proportional to beta_n exp(h).

    The target of h is E[log theta] + rho slope / N. After a fall, the step never grows back. Returns the last state, the
    ELBO after each sweep that was kept, and whether it converged.
    """
    state = one_predictor.cold_start(terms, counts, parameters, granularity="term")
    before = h = target = _target(state, parameters, response)
    path = [state.gamma]
    step, n_sweeps, strode = 1.0, 0, False
    trace: list[float] = []
    while n_sweeps < max_sweeps:
        n_sweeps += 1
        trial = _assign(state, h, parameters)
        elbo = document_elbo(trial, parameters, response)
        last = trace[-1] if trace else -np.inf
        converged = not strode and abs(elbo - last) <= tol * abs(elbo) * step
        if elbo < last - (0.0 if strode else one_predictor.LEAST_FALL * abs(last)):
            if strode:
                path, strode = [state.gamma], False
            elif converged:
                return state, trace, True
            else:
                path, step = [], 0.5 * step
            h = before + step * (target - before)
            continue
        state = trial
        trace.append(elbo)
        if converged:
            return state, trace, True
        before, target = h, _target(state, parameters, response)
        h = before + step * (target - before)
        gamma = None
        if len(path) == 2:
            gamma = one_predictor.stride(path[0], path[1], state.gamma, parameters.alpha)
            path = []
        strode = gamma is not None
        if gamma is not None:
            h = h + special.digamma(gamma) - special.digamma(gamma.sum())
            h -= expected_log_theta(state.gamma)
        if step == 1.0:
            path.append(state.gamma if gamma is None else gamma)
    return state, trace, False


def _target(state: DocumentState, parameters: Parameters, response: ClassResponse) -> Array:
    elog_theta = expected_log_theta(state.gamma)
    if not response.labelled:
        return elog_theta
    by_topic = slope(mean_assignment(state), state.length, parameters, response)
    return elog_theta + response.rho * by_topic / state.length


def _assign(state: DocumentState, h: Array, parameters: Parameters) -> DocumentState:
    with np.errstate(divide="ignore"):
        phi = special.softmax(np.log(parameters.topics[state.terms]) + h, axis=1)
    return replace(state, phi=phi, gamma=parameters.alpha + state.copies @ phi)
