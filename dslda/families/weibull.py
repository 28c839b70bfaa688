"""Weibull response with log link: durations, some cut off before they ended."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dslda.families.base import Array, Family, Interval, ResponseMoments, mean_of_exp
from dslda.families.scalars import bounded_exp, response_function

__all__ = ["Weibull"]


class Weibull(Family):
    """y ~ Weibull with scale exp(omega) and delta = [shape]; aux is 1 for a duration that ended, 0 for one that was cut off.

    Density: p(y) = s / y u exp(-u), u = (y / scale)^s, with shape s; P(longer than y) = exp(-u). Link: log of the scale,
    which 63% of the durations do not reach; the mean is scale Gamma(1 + 1 / s). Units: those of y; the fit divides y by its
    mean. For durations: until an answer, a sale, the passing of a bill. A duration that was cut off (right-censored) says
    only that y is longer. With shape 1, the exponential, the chance of ending does not change with age; below 1 it falls,
    above 1 it rises.

    This is the accelerated failure time model; l is concave in omega. A topic without an ended duration has no finite
    coefficient; the ridge keeps it finite. Source: Kalbfleisch and Prentice (2002), section 2.2 and chapter 3.
    """

    name = "weibull"
    link = "log"
    domain = Interval(0.0)
    auxiliary = "event"
    # Beyond shape 10 durations scatter by less than 13%. l is an exponential of shape times omega: if a few documents were
    # fitted exactly, the delta method would fail.
    delta_bounds = (0.05, 10.0)
    default_ridge = 0.01

    @staticmethod
    @response_function
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        shape = delta[0]
        log_y = math.log(y)
        ended = math.log(shape) + (shape - 1.0) * log_y - shape * omega
        return aux * ended - bounded_exp(shape * (log_y - omega))

    @staticmethod
    @response_function
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return delta[0] * (bounded_exp(delta[0] * (math.log(y) - omega)) - aux)

    @staticmethod
    @response_function
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -delta[0] * delta[0] * bounded_exp(delta[0] * (math.log(y) - omega))

    @staticmethod
    @response_function
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return delta[0] ** 3 * bounded_exp(delta[0] * (math.log(y) - omega))

    @staticmethod
    @response_function
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return delta[0] * delta[0] * bounded_exp(delta[0] * (math.log(y) - omega))

    def scaling(self, moments: ResponseMoments) -> tuple[float, float]:
        return 0.0, moments.mean

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        return 0.0, 1.0, np.ones(1)

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        return math.gamma(1.0 + 1.0 / delta[0]) * mean_of_exp(m, v)

    def check(self, y: Array, aux: Array | None) -> NDArray[np.bool_]:
        inside = super().check(y, aux)
        return inside if aux is None else inside & (np.isnan(y) | (aux == 0.0) | (aux == 1.0))
