"""Gamma response with log link: positive amounts whose scatter grows with their level."""

from __future__ import annotations

import math

import numpy as np

from dslda.families.base import Array, Family, Interval, ResponseMoments, mean_of_exp
from dslda.families.scalars import bounded_exp, response_function

__all__ = ["Gamma"]


class Gamma(Family):
    """y ~ Gamma with mean mu = exp(omega) and variance delta mu^2.

    Density: p(y) = y^(s - 1) exp(-s y / mu) (s / mu)^s / Gamma(s), s = 1 / delta. Link: log. Units: those of y, whose log is
    the linear predictor; the fit divides y by its mean. For positive amounts with a constant coefficient of variation
    sqrt(delta): prices, incomes, sizes, completed waiting times. delta is estimated by maximum likelihood.
    Source: McCullagh and Nelder (1989), chapter 8.
    """

    name = "gamma"
    link = "log"
    domain = Interval(0.0)
    # a coefficient of variation between 1% and 30
    delta_bounds = (1e-4, 1e3)

    @staticmethod
    @response_function
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        shape = 1.0 / delta[0]
        constant = shape * math.log(shape) - math.lgamma(shape) + (shape - 1.0) * math.log(y)
        return constant - shape * (omega + y * bounded_exp(-omega))

    @staticmethod
    @response_function
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return (y * bounded_exp(-omega) - 1.0) / delta[0]

    @staticmethod
    @response_function
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -y * bounded_exp(-omega) / delta[0]

    @staticmethod
    @response_function
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return y * bounded_exp(-omega) / delta[0]

    @staticmethod
    @response_function
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return y * bounded_exp(-omega) / delta[0]

    def scaling(self, moments: ResponseMoments) -> tuple[float, float]:
        return 0.0, moments.mean

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        return 0.0, 1.0, np.array([min(max(moments.variance, 0.01), 10.0)])

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        return mean_of_exp(m, v)
