"""Poisson response with log link: counts whose variance is their mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dslda.exceptions import InputError
from dslda.families.base import Array, Family, Interval, ResponseMoments, mean_of_exp
from dslda.families.scalars import bounded_exp, response_function

__all__ = ["Poisson"]


@dataclass(frozen=True)
class Poisson(Family):
    """y ~ Poisson(mu): p(y) = mu^y exp(-mu) / y!, with mean and variance mu = exp(omega).

    Link: log. Units: counts, or counts per unit of exposure (a document's length, time or population). Coefficient k is the
    log of the rate of a document that is all topic k. For counts of events that do not trigger each other: votes, citations,
    cosponsors. If their variance exceeds their mean, use ``negative_binomial``: it estimates the scatter, and the response
    pulls less at the topics.

    E[exp(omega)] is a product over tokens. E-step, M-step, ELBO and prediction take it exactly (docs/model.md).

    l is the likelihood itself, with dispersion 1. Blei and McAuliffe's update of the dispersion (their section 3.1) has no
    solution (docs/model.md, erratum 4). Dividing l by Pearson's dispersion would give EM a new objective for each value and
    no rule to stop by. So `dispersion` changes no estimate, only the standard errors, as in quasi-Poisson regression.

    If all counts of a topic are 0, its coefficient has no finite estimate; the ridge, negligible beside one count, gives one.
    Source: McCullagh and Nelder (1989), chapter 6.

    Parameters
    ----------
    dispersion : {1, "pearson"}, default 1
        Variance divided by mean. "pearson" estimates it by Pearson's X2 / (D - K - P) at the end of the fit and multiplies
        standard errors by its square root.

    Raises
    ------
    InputError
        `dispersion` has another value.
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

    @staticmethod
    @response_function
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return y * omega - bounded_exp(omega) - math.lgamma(y + 1.0)

    @staticmethod
    @response_function
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return y - bounded_exp(omega)

    @staticmethod
    @response_function
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -bounded_exp(omega)

    @staticmethod
    @response_function
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -bounded_exp(omega)

    @staticmethod
    @response_function
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return bounded_exp(omega)

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

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        # if all counts are 0, pretend that half a count was seen
        return math.log(max(moments.mean, 0.5 / moments.n)), 1.0, np.ones(1)

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        return mean_of_exp(m, v)

    def variance(self, mean: Array, delta: Array, aux: Array) -> Array:
        return mean
