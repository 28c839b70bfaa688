"""The readable reference of inference from words, alone or under the pull of a response, and of derivatives through it; one
document at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

from dslda.families.base import Array, Family
from dslda.variational.parameters import Parameters

__all__ = [
    "assignments",
    "bound_of_words",
    "log_topics_derivative",
    "posterior_of_words",
    "pulled_posterior",
]


def posterior_of_words(
    terms: NDArray[np.int32], weights: Array, parameters: Parameters, *, n_sweeps: int = 10_000
) -> Array:
    """gamma of a document at the fixed point, shape (K,)."""
    alpha = parameters.alpha
    gamma: Array = alpha + weights.sum() / len(alpha)
    for _ in range(n_sweeps):
        gamma, before = alpha + weights @ assignments(terms, gamma, parameters), gamma
        if np.array_equal(gamma, before):
            break
    return gamma


def pulled_posterior(
    terms: NDArray[np.int32],
    weights: Array,
    parameters: Parameters,
    *,
    family: Family,
    y: float,
    beside: float,
    pull: float,
    rounds: int,
    sweeps: int,
) -> tuple[Array, Array]:
    """gamma and the tilt a eta of a document whose response pulls at the assignments, both of shape (K,).

    In each round a takes a Newton step towards ``pull / N`` times the slope of log p(y | zbar'eta + `beside`), and gamma
    follows in a few sweeps.
    """
    alpha, length = parameters.alpha, weights.sum()
    centred = parameters.eta - parameters.eta.mean()
    gamma: Array = alpha + length / len(alpha)
    a = 0.0
    for number in range(rounds + 1):
        if number:
            zbar = (gamma - alpha) / length
            arguments = y, float(zbar @ parameters.eta + beside), parameters.delta, 1.0
            slope, information = family.first_derivative(*arguments), family.information_weight(*arguments)
            spread = zbar @ centred**2 - (zbar @ centred) ** 2
            strength = pull / length
            a += (strength * slope - a) / (1.0 + strength * information * spread)
        for _ in range(sweeps):
            gamma = alpha + weights @ assignments(terms, gamma, parameters, a * centred)
    return gamma, a * centred


def assignments(
    terms: NDArray[np.int32], gamma: Array, parameters: Parameters, tilt: Array | float = 0.0
) -> Array:
    """phi, shape (number of terms, K): the best for a gamma."""
    phi = parameters.topics[terms] * np.exp(digamma(gamma) + tilt)
    normalised: Array = phi / phi.sum(axis=1, keepdims=True)
    return normalised


def bound_of_words(terms: NDArray[np.int32], weights: Array, gamma: Array, parameters: Parameters) -> float:
    """The ELBO of the words of a document with the best phi for a gamma (Blei, Ng and Jordan 2003, equation 15)."""
    alpha = parameters.alpha
    log_theta = digamma(gamma) - digamma(gamma.sum())
    words = weights @ np.log(parameters.topics[terms] @ np.exp(log_theta))
    prior = gammaln(alpha.sum()) - gammaln(alpha).sum() + (alpha - 1.0) @ log_theta
    own = gammaln(gamma.sum()) - gammaln(gamma).sum() + (gamma - 1.0) @ log_theta
    return float(words + prior - own)


def log_topics_derivative(
    terms: NDArray[np.int32],
    weights: Array,
    gamma: Array,
    slope: Array,
    parameters: Parameters,
    *,
    discount: float = 0.0,
) -> Array:
    """Derivative of a loss by log beta at the document's terms, before topics are normalised, shape (number of terms, K).

    The loss has the derivative `slope` by zbar = (gamma - alpha) / N. At the fixed point of gamma the implicit function
    theorem gives a linear system (docs/model.md).
    """
    phi = assignments(terms, gamma, parameters)
    precision = 1.0 / polygamma(1, gamma)
    system = np.diag((1.0 + discount) * precision - weights @ phi) + phi.T @ (weights[:, np.newaxis] * phi)
    multiplier = np.linalg.solve(system, slope / weights.sum() * precision)
    derivative: Array = weights[:, np.newaxis] * phi * (multiplier - (phi @ multiplier)[:, np.newaxis])
    return derivative
