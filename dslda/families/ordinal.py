"""Ordinal response with cumulative logit link: ordered levels whose distances mean nothing."""

from __future__ import annotations

import math

import numpy as np
from numba import boolean, float64, njit, types
from scipy import special

from dslda.exceptions import InputError
from dslda.families.base import Array, Family, Interval, ResponseMoments, expected_level, normal_expectation
from dslda.families.scalars import bounded_exp, response_function, sigmoid, softplus

__all__ = ["Ordinal"]


@njit(float64(float64, boolean, types.Array(float64, 1, "C", readonly=True)), cache=True, nogil=True)
def _cutpoint(y, upper, delta):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The cutpoint above (`upper`) or below level y; infinite beyond the last and the first level."""
    level = int(y) if upper else int(y) - 1
    if level < 0:
        return -math.inf
    if level > delta.shape[0]:
        return math.inf
    cutpoint = 0.0
    for j in range(level):
        cutpoint += bounded_exp(delta[j])
    return cutpoint


class Ordinal(Family):
    """P(y <= level j) = 1 / (1 + exp(omega - c_j)): the proportional odds model, with cutpoints c_0 = 0 < c_1 < c_2 ...

    Link: cumulative logit. For ordered levels whose distances mean nothing: stars, grades, degrees of agreement, severities.
    Levels are named in their order, or are the whole numbers from the lowest to the highest training response; at most 21.
    Units: omega is the log odds of lying above the lowest level; a difference of coefficients is the log odds ratio of lying
    above any level. zbar sums to 1, so eta holds the intercept and the first cutpoint is 0.

    delta holds the logs of the distances between neighbouring cutpoints, so that levels stay in order without a constraint.
    l is concave in omega.

    The mean is the expected level, counted from 0; :meth:`probabilities` has the chance of each level.
    If topics separate the levels, the ridge keeps coefficients finite, as for the binomial response.
    Source: McCullagh (1980), Regression models for ordinal data.
    """

    name = "ordinal"
    link = "cumulative logit"
    domain = Interval(integer=True)
    # more levels are as good as numbers, and the number of the cutpoints' second derivatives grows with the square
    max_levels = 21
    delta_transform = "identity"
    # bounds of the logs: at a distance of exp(-10) hardly any response has the level
    delta_bounds = (-10.0, 10.0)
    default_ridge = 0.01

    # P(Y = y) = F(b) - F(a) = F(b) F(-a) (1 - exp(a - b)), with F the sigmoid and a, b the cutpoints around y less omega: l
    # is the sum of a term for each cutpoint and a term without omega.
    @staticmethod
    @response_function
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        low, high = _cutpoint(y, False, delta), _cutpoint(y, True, delta)
        l = 0.0
        if high < math.inf:
            l -= softplus(omega - high)
        if low > -math.inf:
            l -= softplus(low - omega)
            if high < math.inf:
                l += math.log(-math.expm1(low - high))
        return l

    @staticmethod
    @response_function
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return sigmoid(_cutpoint(y, False, delta) - omega) - sigmoid(omega - _cutpoint(y, True, delta))

    @staticmethod
    @response_function
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        low, high = _cutpoint(y, False, delta) - omega, omega - _cutpoint(y, True, delta)
        return -sigmoid(low) * sigmoid(-low) - sigmoid(high) * sigmoid(-high)

    @staticmethod
    @response_function
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        low, high = _cutpoint(y, False, delta) - omega, omega - _cutpoint(y, True, delta)
        return sigmoid(low) * sigmoid(-low) * (sigmoid(-low) - sigmoid(low)) - sigmoid(high) * sigmoid(
            -high
        ) * (sigmoid(-high) - sigmoid(high))

    @staticmethod
    @response_function
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        low, high = _cutpoint(y, False, delta) - omega, omega - _cutpoint(y, True, delta)
        return sigmoid(low) * sigmoid(-low) + sigmoid(high) * sigmoid(-high)

    def scaling(self, moments: ResponseMoments) -> tuple[float, float]:
        n_levels = moments.maximum - moments.minimum + 1
        if n_levels > self.max_levels:
            raise InputError(
                f"an ordinal response must have at most {self.max_levels} levels, got the whole numbers "
                f"from {moments.minimum:g} to {moments.maximum:g}",
                remedy=("use {family='gaussian'}", "name the levels that there are with {levels=}"),
            )
        return moments.minimum, 1.0

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        # a logistic variable with the responses' mean and variance, cut halfway between the levels
        width = max(math.sqrt(3.0 * moments.variance) / math.pi, 0.1)
        n_levels = max(round(moments.maximum), 1) + 1
        return (moments.mean - 0.5) / width, 1.0, np.full(n_levels - 2, -math.log(width))

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        probabilities = self.probabilities(m, v, delta)
        return expected_level(probabilities, np.arange(probabilities.shape[1], dtype=np.float64))

    def probabilities(self, m: Array, v: Array, delta: Array) -> Array:
        """Probability of each level for documents whose omega has mean `m` and variance `v`, shapes (D,).

        Returns
        -------
        ndarray of float64, shape (D, levels)
            Rows sum to 1. Column 0 is the lowest level of the training data.
        """
        above = normal_expectation(special.expit, m[:, np.newaxis] - self.cutpoints(delta), v[:, np.newaxis])
        bounds = np.column_stack([np.ones(len(m)), above, np.zeros(len(m))])
        return -np.diff(bounds, axis=1)

    def cutpoints(self, delta: Array) -> Array:
        return np.concatenate([[0.0], np.cumsum(np.exp(delta))])

    def at_shares(self, shares: Array) -> tuple[float, Array]:
        # summed from both ends, so that rounding hides no small share
        below, above = np.cumsum(shares)[:-1], np.cumsum(shares[::-1])[-2::-1]
        odds = np.log(above) - np.log(below)
        return float(odds[0]), np.log(-np.diff(odds))
