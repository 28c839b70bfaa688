"""Gamma response with log link: positive amounts whose scatter grows with their level."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dslda.families.base import Family, Interval, ResponseMoments, mean_of_exp
from dslda.families.scalars import SCALAR_SIGNATURE, bounded_exp

__all__ = ["Gamma"]


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    shape = 1.0 / delta[0]
    constant = shape * math.log(shape) - math.lgamma(shape) + (shape - 1.0) * math.log(y)
    return constant - shape * (omega + y * bounded_exp(-omega))


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    return (y * bounded_exp(-omega) - 1.0) / delta[0]


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    return -y * bounded_exp(-omega) / delta[0]


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    return y * bounded_exp(-omega) / delta[0]


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    return y * bounded_exp(-omega) / delta[0]


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

    log_likelihood = staticmethod(_log_likelihood)
    first_derivative = staticmethod(_first_derivative)
    second_derivative = staticmethod(_second_derivative)
    third_derivative = staticmethod(_third_derivative)
    information_weight = staticmethod(_information_weight)

    def scaling(self, moments: ResponseMoments) -> tuple[float, float]:
        return 0.0, moments.mean

    def start(self, moments: ResponseMoments) -> tuple[float, float, NDArray[np.float64]]:
        return 0.0, 1.0, np.array([min(max(moments.variance, 0.01), 10.0)])

    def mean(
        self, m: NDArray[np.float64], v: NDArray[np.float64], delta: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return mean_of_exp(m, v)
