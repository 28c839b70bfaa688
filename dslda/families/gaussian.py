"""Gaussian response with identity link: sLDA as in section 2 of Blei and McAuliffe (2010)."""

from __future__ import annotations

import math

import numpy as np

from dslda.families.base import Array, Family, Interval, ResponseMoments
from dslda.families.scalars import response_function

__all__ = ["Gaussian"]


class Gaussian(Family):
    """y ~ N(omega, delta): p(y) = exp(-(y - omega)^2 / (2 delta)) / sqrt(2 pi delta), mean omega.

    Link: identity. Units: those of y. For real-valued responses (ratings, prices, scores) whose scatter hardly depends on
    their level. l is quadratic in omega, so the delta-method E-step and one scoring step of the M-step are the paper's exact
    updates (equations 14, 17 and 18).
    """

    name = "gaussian"
    link = "identity"
    domain = Interval()
    constant_scatter = True
    is_quadratic = True
    has_dispersion_floor = True
    n_searched = 0

    @staticmethod
    @response_function
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -0.5 * math.log(2.0 * math.pi * delta[0]) - (y - omega) * (y - omega) / (2.0 * delta[0])

    @staticmethod
    @response_function
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return (y - omega) / delta[0]

    @staticmethod
    @response_function
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -1.0 / delta[0]

    @staticmethod
    @response_function
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return 0.0

    @staticmethod
    @response_function
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return 1.0 / delta[0]

    def scaling(self, moments: ResponseMoments) -> tuple[float, float]:
        return moments.mean, math.sqrt(moments.variance)

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        # the scaled response has mean 0 and variance 1
        return 0.0, 1.0, np.ones(1)

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        return m

    def update_delta(self, delta: Array, profile: Array, *, weight: float, gain: float) -> Array:
        # the log-likelihood holds the sum of expected squared residuals; the step of the coefficients lowers it (eq. 18)
        squares = -2.0 * delta[0] * (profile[0] + 0.5 * weight * math.log(2.0 * math.pi * delta[0]) + gain)
        return np.array([squares / weight])
