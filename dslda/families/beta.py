"""Beta response with logit link: shares strictly between 0 and 1."""

from __future__ import annotations

import math

import numpy as np
from numba import float64, njit, types
from scipy import special

from dslda.families.base import Array, Family, Interval, ResponseMoments, normal_expectation
from dslda.families.scalars import LARGEST_EXPONENT, response_function, sigmoid, softplus

__all__ = ["Beta"]

# With a = mu phi and b = (1 - mu) phi, the derivatives in omega are sums of
# x (log x - psi(x)), x^2 psi'(x) and x^3 psi''(x) at a and b. Unlike the polygammas, these stay finite as x
# goes to 0, and large values of psi(a) and psi(b) do not cancel.
_SHIFT = 8


@njit(float64(float64), cache=True, nogil=True)
def _stirling(x):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2."""
    if x < _SHIFT:
        return math.lgamma(x) - (x - 0.5) * math.log(x) + x - 0.5 * math.log(2.0 * math.pi)
    r2 = 1.0 / (x * x)
    return (
        1 / 12 - r2 * (1 / 360 - r2 * (1 / 1260 - r2 * (1 / 1680 - r2 * (1 / 1188 - r2 * 691 / 360360))))
    ) / x


@njit(types.UniTuple(float64, 3)(float64), cache=True, nogil=True)
def _polygammas(x):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """x (log x - psi(x)), x^2 psi'(x) and x^3 psi''(x), by recurrence and asymptotic series (Abramowitz and Stegun 6.4)."""
    s0, s1, s2, u = 0.0, 0.0, 0.0, x
    while u < _SHIFT:
        r = x / u
        s0, s1, s2, u = s0 + r, s1 + r * r, s2 - 2.0 * r * r * r, u + 1.0
    z, r = 1.0 / (u * u), x / u
    # u (log u - psi(u)), u psi'(u) - 1 and -u^2 psi''(u) - 1
    t0 = 0.5 + (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * 691 / 32760))))) / u
    t1 = 0.5 / u + z * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - z * (5 / 66 - z * 691 / 2730)))))
    t2 = 1.0 / u + z * (1 / 2 - z * (1 / 6 - z * (1 / 6 - z * (3 / 10 - z * (5 / 6 - z * 691 / 210)))))
    return s0 + r * t0 - x * math.log(u / x), s1 + r * x * (1.0 + t1), s2 - r * r * x * (1.0 + t2)


@njit(types.UniTuple(float64, 3)(float64, float64, float64), cache=True, nogil=True)
def _terms(y, omega, phi):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """l1, the expected -l2, and the part of l3 that is of third order in the polygammas."""
    omega = min(max(omega, -LARGEST_EXPONENT), LARGEST_EXPONENT)
    mu, other = sigmoid(omega), sigmoid(-omega)
    a0, a1, a2 = _polygammas(mu * phi)
    b0, b1, b2 = _polygammas(other * phi)
    first = phi * mu * other * (math.log(y) - math.log1p(-y) - omega) + other * a0 - mu * b0
    return first, other * other * a1 + mu * mu * b1, other**3 * a2 - mu**3 * b2


class Beta(Family):
    """y ~ Beta(mu phi, (1 - mu) phi) with mean mu and log(mu / (1 - mu)) = omega; delta = [phi].

    Density: Gamma(phi) / (Gamma(mu phi) Gamma((1 - mu) phi)) y^(mu phi - 1) (1 - y)^((1 - mu) phi - 1), with variance
    mu (1 - mu) / (1 + phi). Link: logit. Units: coefficient k is the log odds of the mean share of a document that is all
    topic k. For shares of quantities that cannot be counted: time, area, money, a score out of a maximum. Successes in a
    number of trials are binomial. The precision phi is estimated by maximum likelihood.

    l is not concave in omega far from y; there the E-step ignores its curvature. The information is the expected one,
    (mu (1 - mu) phi)^2 (psi'(mu phi) + psi'((1 - mu) phi)), always positive. Coefficients stay finite without a ridge.
    Source: Ferrari and Cribari-Neto (2004), Beta regression for modelling rates and proportions.
    """

    name = "beta"
    link = "logit"
    domain = Interval(0.0, 1.0)
    domain_remedy = (
        "move shares of 0 and 1 inside, as (y (n - 1) + 0.5) / n does for n documents (Smithson and Verkuilen 2006)",
        "count the parts of a whole and take family binomial with {trials=}",
    )
    # from shares that are nearly always 0 or 1 to a standard deviation of 0.0005
    delta_bounds = (1e-2, 1e6)

    @staticmethod
    @response_function
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        # by Stirling's formula, without differences of large logs of Gamma
        omega = min(max(omega, -LARGEST_EXPONENT), LARGEST_EXPONENT)
        phi, log_y, log_rest = delta[0], math.log(y), math.log1p(-y)
        a, b = phi * sigmoid(omega), phi * sigmoid(-omega)
        log_mu, log_other = -softplus(-omega), -softplus(omega)
        divergence = a * (log_mu - log_y) + b * (log_other - log_rest)
        density = 0.5 * (math.log(phi / (2.0 * math.pi)) + log_mu + log_other) - log_y - log_rest
        return density - divergence + _stirling(phi) - _stirling(a) - _stirling(b)

    @staticmethod
    @response_function
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return _terms(y, omega, delta[0])[0]

    @staticmethod
    @response_function
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        first, weight, _ = _terms(y, omega, delta[0])
        return (sigmoid(-omega) - sigmoid(omega)) * first - weight

    @staticmethod
    @response_function
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        first, weight, third = _terms(y, omega, delta[0])
        mu, other = sigmoid(omega), sigmoid(-omega)
        return (1.0 - 6.0 * mu * other) * first - 3.0 * (other - mu) * weight - third

    @staticmethod
    @response_function
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return _terms(y, omega, delta[0])[1]

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        mean = min(max(moments.mean, 1e-12), 1.0 - 1e-12)
        bernoulli = mean * (1.0 - mean)
        # one standard deviation of y to each side
        spread = min(math.sqrt(moments.variance) / bernoulli, 1.0)
        # the method of moments, which counts as scatter what topics will explain
        precision = bernoulli / max(moments.variance, 1e-3 * bernoulli) - 1.0
        return special.logit(mean), spread or 1.0, np.array([max(precision, 0.1)])

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        return normal_expectation(special.expit, m, v)
