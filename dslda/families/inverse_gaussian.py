"""Inverse Gaussian response with log link: positive amounts with rare, very large values."""

from __future__ import annotations

import math

import numpy as np
from numba import float64, njit

from dslda.families.base import Array, Family, Interval, ResponseMoments, mean_of_exp
from dslda.families.scalars import LARGEST_EXPONENT, bounded_exp, response_function

__all__ = ["InverseGaussian"]


@njit(float64(float64), cache=True, nogil=True)
def inverse_mean(omega):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """1 / mu, constant where its square is: beyond, y / mu^2 - 2 / mu would fall below -1 / y, its least value."""
    return math.exp(min(-omega, 0.5 * LARGEST_EXPONENT))


class InverseGaussian(Family):
    """y ~ inverse Gaussian with mean mu = exp(omega) and variance delta mu^3.

    Density: p(y) = exp(-(y - mu)^2 / (2 delta mu^2 y)) / sqrt(2 pi delta y^3). Link: log. Units: those of y, whose log is
    the linear predictor; the fit divides y by its mean. For positive amounts whose scatter grows with their level even faster
    than a gamma response's: first passage times, claims, sizes of bursts.

    l is not concave in omega for y below mu / 2; there the E-step ignores its curvature. The information is the expected
    one, 1 / (delta mu), always positive. Source: McCullagh and Nelder (1989), section 8.3 and table 2.1.
    """

    name = "inverse_gaussian"
    link = "log"
    domain = Interval(0.0)
    delta_bounds = (1e-4, 1e3)

    @staticmethod
    @response_function
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        squares = y * bounded_exp(-2.0 * omega) - 2.0 * inverse_mean(omega) + 1.0 / y
        return -0.5 * (math.log(2.0 * math.pi * delta[0]) + 3.0 * math.log(y)) - 0.5 * squares / delta[0]

    @staticmethod
    @response_function
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return (y * bounded_exp(-2.0 * omega) - inverse_mean(omega)) / delta[0]

    @staticmethod
    @response_function
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return (inverse_mean(omega) - 2.0 * y * bounded_exp(-2.0 * omega)) / delta[0]

    @staticmethod
    @response_function
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return (4.0 * y * bounded_exp(-2.0 * omega) - inverse_mean(omega)) / delta[0]

    @staticmethod
    @response_function
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return inverse_mean(omega) / delta[0]

    def scaling(self, moments: ResponseMoments) -> tuple[float, float]:
        return 0.0, moments.mean

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        return 0.0, 1.0, np.array([min(max(moments.variance, 0.01), 10.0)])

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        return mean_of_exp(m, v)
