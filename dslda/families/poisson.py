"""Poisson response with log link: counts whose variance is their mean."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dslda.families.base import SCALAR_SIGNATURE, Family, Interval, ResponseMoments, mean_of_exp
from dslda.families.scalars import bounded_exp

__all__ = ["Poisson"]


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    return y * omega - bounded_exp(omega) - math.lgamma(y + 1.0)


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    return y - bounded_exp(omega)


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    return -bounded_exp(omega)


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    return -bounded_exp(omega)


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    return bounded_exp(omega)


class Poisson(Family):
    """y ~ Poisson(exp(omega)), omega = eta'zbar + log exposure.

    Link: log. Units: counts, or counts per unit of exposure (a document's length, time or population): coefficient k is the
    log of the rate expected of a document that is all topic k. For counts of events that do not set each other off: votes,
    citations, cosponsors. Where counts scatter more than their mean use ``negative_binomial``, which estimates by how much
    and lets the response pull at the topics accordingly less.

    E[exp(omega)] is a product over tokens, and taken exactly: in E-step, M-step, ELBO and prediction (docs/model.md).

    l is the likelihood itself: the dispersion is fixed at 1, and Blei and McAuliffe's update of it (their section 3.1) has no
    solution (docs/model.md, erratum 4). A quasi-Poisson dispersion by Pearson would divide l by a number that no likelihood
    contains: EM would have an objective for each dispersion and none to stop by. It is left out.

    A topic whose documents all count 0 has no finite coefficient: hence the ridge, which is nothing beside one count.
    Source: McCullagh and Nelder (1989), chapter 6.
    """

    name = "poisson"
    link = "log"
    domain = Interval(0.0, low_closed=True, integer=True)
    takes_exposure = True
    is_exact_product = True
    n_searched = 0
    default_ridge = 0.01

    log_likelihood = staticmethod(_log_likelihood)
    first_derivative = staticmethod(_first_derivative)
    second_derivative = staticmethod(_second_derivative)
    third_derivative = staticmethod(_third_derivative)
    information_weight = staticmethod(_information_weight)

    def start(self, moments: ResponseMoments) -> tuple[float, float, NDArray[np.float64]]:
        # all counts 0: as if half of one count had been seen
        return math.log(max(moments.mean, 0.5 / moments.n)), 1.0, np.ones(1)

    def mean(
        self, m: NDArray[np.float64], v: NDArray[np.float64], delta: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return mean_of_exp(m, v)
