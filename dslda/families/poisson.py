"""Poisson response with log link: counts whose variance is their mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dslda.exceptions import InputError
from dslda.families.base import Family, Interval, ResponseMoments, mean_of_exp
from dslda.families.scalars import SCALAR_SIGNATURE, bounded_exp

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


@dataclass(frozen=True)
class Poisson(Family):
    """y ~ Poisson(mu): p(y) = mu^y exp(-mu) / y!, with mean and variance mu = exp(omega).

    Link: log. Units: counts, or counts per unit of exposure (a document's length, time or population). Coefficient k is the
    log of the rate of a document that is all topic k. For counts of events that do not trigger each other: votes, citations,
    cosponsors. If counts scatter more than their mean, use ``negative_binomial``: it estimates the scatter, and the response
    pulls less at the topics.

    E[exp(omega)] is a product over tokens. E-step, M-step, ELBO and prediction take it exactly (docs/model.md).

    l is the likelihood itself, with dispersion 1. Blei and McAuliffe's update of the dispersion (their section 3.1) has no
    solution (docs/model.md, erratum 4). Dividing l by Pearson's dispersion would give EM a new objective for each value and
    no rule to stop by. So `dispersion` changes no estimate, only the standard errors, as in quasi-Poisson regression.

    A topic whose documents all count 0 has no finite coefficient; the ridge, negligible beside one count, keeps it finite.
    Source: McCullagh and Nelder (1989), chapter 6.

    Parameters
    ----------
    dispersion : {1, "pearson"}, default 1
        Variance divided by mean. "pearson" estimates it by Pearson's X2 / (D - K - P) at the end of the fit and multiplies
        standard errors by its square root.

    Raises
    ------
    InputError
        `dispersion` is neither.
    """

    dispersion: Literal[1, "pearson"] = 1

    name = "poisson"
    link = "log"
    domain = Interval(0.0, low_closed=True, integer=True)
    takes_exposure = True
    is_exact_product = True
    scatter_remedy = (
        "take Poisson(dispersion='pearson') for {family}, whose standard errors allow for it",
        "negative_binomial, whose likelihood does, so that the response pulls at the topics less",
    )
    n_searched = 0
    default_ridge = 0.01

    log_likelihood = staticmethod(_log_likelihood)
    first_derivative = staticmethod(_first_derivative)
    second_derivative = staticmethod(_second_derivative)
    third_derivative = staticmethod(_third_derivative)
    information_weight = staticmethod(_information_weight)

    def __post_init__(self) -> None:
        if isinstance(self.dispersion, bool) or self.dispersion not in (1, "pearson"):
            raise InputError(
                f"must be 1 or 'pearson', got {self.dispersion!r}",
                parameter="dispersion",
                remedy="family negative_binomial estimates one that is part of its likelihood",
            )

    @property
    def is_quasi(self) -> bool:  # type: ignore[override]
        return self.dispersion == "pearson"

    def start(self, moments: ResponseMoments) -> tuple[float, float, NDArray[np.float64]]:
        # if all counts are 0, pretend that half a count was seen
        return math.log(max(moments.mean, 0.5 / moments.n)), 1.0, np.ones(1)

    def mean(
        self, m: NDArray[np.float64], v: NDArray[np.float64], delta: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return mean_of_exp(m, v)

    def variance(
        self, mean: NDArray[np.float64], delta: NDArray[np.float64], aux: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return mean
