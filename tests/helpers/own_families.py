"""Families as a user writes them: a log-normal by its log-likelihood, a Poisson and a Gaussian by their log-normalisers."""

from __future__ import annotations

import math

import numpy as np

from dslda.families.base import Family, Interval, mean_of_exp
from dslda.families.own import canonical, compile_response
from dslda.families.scalars import bounded_exp


class LogNormal(Family):
    """log(y) ~ N(omega, delta[0]): amounts whose logarithms scatter evenly."""

    name = "log_normal"
    link = "log"
    domain = Interval(0.0)

    @staticmethod
    @compile_response
    def log_likelihood(y, omega, delta, aux):
        residual = math.log(y) - omega
        return -math.log(y) - 0.5 * math.log(2.0 * math.pi * delta[0]) - residual**2 / (2.0 * delta[0])

    @staticmethod
    @compile_response
    def first_derivative(y, omega, delta, aux):
        return (math.log(y) - omega) / delta[0]

    @staticmethod
    @compile_response
    def second_derivative(y, omega, delta, aux):
        return -1.0 / delta[0]

    @staticmethod
    @compile_response
    def third_derivative(y, omega, delta, aux):
        return 0.0

    @staticmethod
    @compile_response
    def information_weight(y, omega, delta, aux):
        return 1.0 / delta[0]

    def start(self, moments):
        delta = max(math.log1p(moments.variance / moments.mean**2), 0.01)
        return math.log(moments.mean) - 0.5 * delta, 1.0, np.array([delta])

    def mean(self, m, v, delta):
        return mean_of_exp(m, v) * math.exp(0.5 * delta[0])


def minus_log_factorial(y, delta):
    return -math.lgamma(y + 1.0)


def exponential(omega):
    return bounded_exp(omega)


CanonicalPoisson = canonical(
    "canonical poisson",
    exponential,
    exponential,
    exponential,
    exponential,
    minus_log_factorial,
    domain=Interval(0.0, low_closed=True, integer=True),
    link="log",
)


def half_square(omega):
    return 0.5 * omega * omega


def itself(omega):
    return omega


def one(omega):
    return 1.0


def zero(omega):
    return 0.0


def normal_base(y, delta):
    return -0.5 * y * y / delta[0] - 0.5 * math.log(2.0 * math.pi * delta[0])


CanonicalGaussian = canonical(
    "canonical gaussian",
    half_square,
    itself,
    one,
    zero,
    normal_base,
    domain=Interval(),
    link="identity",
    has_dispersion=True,
)
