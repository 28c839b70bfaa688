"""Binomial response with logit link: yes or no, or the successes in a number of trials."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dslda.families.base import Array, Family, Interval, ResponseMoments, normal_expectation
from dslda.families.scalars import response_function, sigmoid, softplus

__all__ = ["Binomial"]


class Binomial(Family):
    """y ~ Binomial(n, p): P(y) = (n choose y) p^y (1 - p)^(n - y), with log(p / (1 - p)) = omega and n = aux trials.

    Link: logit. Units: coefficient k is the log odds of a document that is all topic k; the mean is the probability of one
    trial. With one trial (the default) this is the Bernoulli response, 0 or 1, of logistic regression; with more, y is a
    number of successes (helpful votes of all votes, correct answers of all questions). Trials are assumed independent.

    If topics separate the classes, the likelihood grows with the coefficients without bound. The default ridge, a normal
    prior of standard deviation 10 around their mean, keeps them finite and is negligible beside a few hundred documents.
    Source: McCullagh and Nelder (1989), chapter 4.
    """

    name = "binomial"
    link = "logit"
    domain = Interval(0.0, low_closed=True, integer=True)
    domain_remedy = (
        "use {family='categorical'}, which takes numbers for classes",
        "use {family='gaussian'}, which takes any number",
    )
    auxiliary = "trials"
    max_classes = 2
    scatter_remedy = (
        "multiply standard errors by it: trials of a document depend on each other, or topics and covariates miss what tells "
        "documents apart",
    )
    n_searched = 0
    default_ridge = 0.01

    @staticmethod
    @response_function
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        ways = math.lgamma(aux + 1.0) - math.lgamma(y + 1.0) - math.lgamma(aux - y + 1.0)
        return ways + y * omega - aux * softplus(omega)

    @staticmethod
    @response_function
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return y - aux * sigmoid(omega)

    @staticmethod
    @response_function
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -aux * sigmoid(omega) * sigmoid(-omega)

    @staticmethod
    @response_function
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -aux * sigmoid(omega) * sigmoid(-omega) * (sigmoid(-omega) - sigmoid(omega))

    @staticmethod
    @response_function
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return aux * sigmoid(omega) * sigmoid(-omega)

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        # with one class only, pretend that half a trial of the other was seen
        p = min(max(moments.mean, 0.5 / moments.n), 1.0 - 0.5 / moments.n)
        return math.log(p / (1.0 - p)) if 0.0 < p < 1.0 else 0.0, 1.0, np.ones(1)

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        return normal_expectation(special.expit, m, v)

    def variance(self, mean: Array, delta: Array, aux: Array) -> Array:
        variance: Array = mean * (1.0 - mean / aux)
        return variance

    def probabilities(self, m: Array, v: Array, delta: Array) -> Array:
        p = self.mean(m, v, delta)
        return np.column_stack([1.0 - p, p])

    def check(self, y: Array, aux: Array | None) -> NDArray[np.bool_]:
        trials = 1.0 if aux is None else aux
        return super().check(y, aux) & (np.isnan(y) | (y <= trials))
