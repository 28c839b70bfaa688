"""Negative binomial response with log link: counts that scatter more than a Poisson."""

from __future__ import annotations

import math

import numpy as np

from dslda.families.base import Array, Family, Interval, ResponseMoments, mean_of_exp
from dslda.families.scalars import response_function, sigmoid, softplus

__all__ = ["NegativeBinomial"]


class NegativeBinomial(Family):
    """y ~ negative binomial with mean mu = exp(omega) and variance mu + alpha mu^2; delta = [alpha].

    Density: p(y) = Gamma(y + 1 / alpha) / (Gamma(1 / alpha) y!) (alpha mu)^y (1 + alpha mu)^-(y + 1 / alpha). Link: log.
    Units: counts, or counts per unit of exposure. For counts whose variance exceeds their mean, as that of human acts
    (cosponsors, shares, replies) nearly always does. alpha is estimated; its limit 0 is the Poisson.

    l is concave in omega at any alpha. The ridge is that of the Poisson.
    Source: the NB2 form of Cameron and Trivedi (2013), section 3.3; Hilbe (2011).
    """

    name = "negative_binomial"
    link = "log"
    domain = Interval(0.0, low_closed=True, integer=True)
    takes_exposure = True
    delta_bounds = (1e-8, 1e4)
    default_ridge = 0.01

    @staticmethod
    @response_function
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        # with u = log(alpha mu): mu / (1 / alpha + mu) = sigmoid(u)
        alpha = delta[0]
        size = 1.0 / alpha
        u = omega + math.log(alpha)
        if size < 100.0:
            rising = math.lgamma(y + size) - math.lgamma(size) - y * math.log(size)
        else:
            # log Gamma(y + size) / (Gamma(size) size^y) by Stirling's series: the difference of two logs of Gamma, both many
            # orders larger, would be noise
            total = size + y
            rising = (total - 0.5) * math.log1p(y / size) - y
            rising += (1.0 / total - 1.0 / size) / 12.0 - (1.0 / total**3 - 1.0 / size**3) / 360.0
        return rising - math.lgamma(y + 1.0) + y * omega - (y + size) * softplus(u)

    @staticmethod
    @response_function
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        # (y - mu) / (1 + alpha mu)
        p = sigmoid(omega + math.log(delta[0]))
        return y * (1.0 - p) - p / delta[0]

    @staticmethod
    @response_function
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        p = sigmoid(omega + math.log(delta[0]))
        return -(y + 1.0 / delta[0]) * p * (1.0 - p)

    @staticmethod
    @response_function
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        p = sigmoid(omega + math.log(delta[0]))
        return -(y + 1.0 / delta[0]) * p * (1.0 - p) * (1.0 - 2.0 * p)

    @staticmethod
    @response_function
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        p = sigmoid(omega + math.log(delta[0]))
        return (y + 1.0 / delta[0]) * p * (1.0 - p)

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        mean = max(moments.mean, 0.5 / moments.n)
        # the method of moments, which counts as scatter what topics will explain
        alpha = min(max((moments.variance - mean) / mean**2, 0.01), 10.0)
        return math.log(mean), 1.0, np.array([alpha])

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        return mean_of_exp(m, v)

    def variance(self, mean: Array, delta: Array, aux: Array) -> Array:
        variance: Array = mean * (1.0 + delta[0] * mean)
        return variance
