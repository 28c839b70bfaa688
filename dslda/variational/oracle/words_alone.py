"""The readable reference of inference from words alone, and of derivatives through it; one document at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

from dslda.families.base import Array
from dslda.variational.parameters import Parameters

__all__ = ["assignments", "bound_of_words", "log_topics_derivative", "posterior_of_words"]


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


def assignments(terms: NDArray[np.int32], gamma: Array, parameters: Parameters) -> Array:
    """phi, shape (number of terms, K): the best for a gamma."""
    phi = parameters.topics[terms] * np.exp(digamma(gamma))
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
