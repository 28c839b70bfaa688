"""Two families as a user writes them: beta regression by its log-likelihood, a Poisson by its log-normaliser."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from scipy import special

from dslda.families.base import Family, Interval, normal_expectation
from dslda.families.own import canonical, compile_response
from dslda.families.scalars import bounded_exp, sigmoid


@njit
def polygammas(x):
    """psi and its first two derivatives."""
    psi, psi1, psi2 = 0.0, 0.0, 0.0
    while x < 8.0:
        psi -= 1.0 / x
        psi1 += 1.0 / x**2
        psi2 -= 2.0 / x**3
        x += 1.0
    z = 1.0 / (x * x)
    psi += math.log(x) - 0.5 / x - z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132))))
    psi1 += 1.0 / x + 0.5 * z + z / x * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - z * 5 / 66))))
    psi2 -= z + z / x + z * z * (1 / 2 - z * (1 / 6 - z * (1 / 6 - z * (3 / 10 - z * 5 / 6))))
    return psi, psi1, psi2


@njit
def slopes(y, omega, delta):
    """dl/dmu and its derivatives, then those of mu by omega."""
    mu = sigmoid(min(max(omega, -30.0), 30.0))
    other = sigmoid(-min(max(omega, -30.0), 30.0))
    phi = delta[0]
    a, b = polygammas(mu * phi), polygammas(other * phi)
    one = phi * (math.log(y) - math.log1p(-y) - a[0] + b[0])
    two = -(phi**2) * (a[1] + b[1])
    three = -(phi**3) * (a[2] - b[2])
    s1 = mu * other
    return one, two, three, s1, s1 * (other - mu), s1 * (1.0 - 6.0 * s1)


class Beta(Family):
    """y in (0, 1) ~ Beta with mean mu = sigmoid(omega) and precision delta[0]: shares, proportions, scores in percent."""

    name = "beta"
    link = "logit"
    domain = Interval(0.0, 1.0)
    delta_bounds = (1e-2, 1e4)

    @staticmethod
    @compile_response
    def log_likelihood(y, omega, delta, aux):
        mu = sigmoid(min(max(omega, -30.0), 30.0))
        other = sigmoid(-min(max(omega, -30.0), 30.0))
        phi = delta[0]
        constant = math.lgamma(phi) - math.lgamma(mu * phi) - math.lgamma(other * phi)
        return constant + (mu * phi - 1.0) * math.log(y) + (other * phi - 1.0) * math.log1p(-y)

    @staticmethod
    @compile_response
    def first_derivative(y, omega, delta, aux):
        one, _, _, s1, _, _ = slopes(y, omega, delta)
        return one * s1

    @staticmethod
    @compile_response
    def second_derivative(y, omega, delta, aux):
        one, two, _, s1, s2, _ = slopes(y, omega, delta)
        return two * s1**2 + one * s2

    @staticmethod
    @compile_response
    def third_derivative(y, omega, delta, aux):
        one, two, three, s1, s2, s3 = slopes(y, omega, delta)
        return three * s1**3 + 3.0 * two * s1 * s2 + one * s3

    @staticmethod
    @compile_response
    def information_weight(y, omega, delta, aux):
        # the expected curvature: l is not concave in omega
        _, two, _, s1, _, _ = slopes(y, omega, delta)
        return -two * s1**2

    def start(self, moments):
        return math.log(moments.mean / (1.0 - moments.mean)), 1.0, np.array([5.0])

    def mean(self, m, v, delta):
        return normal_expectation(special.expit, m, v)


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
