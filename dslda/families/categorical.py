"""Categorical response with softmax link: one coefficient for each topic and class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dslda.exceptions import InputError
from dslda.families.base import Array, Family, Interval, ResponseMoments

__all__ = ["Categorical"]


@dataclass(frozen=True)
class Categorical(Family):
    """P(y = c) = exp(omega_c) / sum_j exp(omega_j), omega_c = eta_c'zbar + zeta_c'x.

    Link: softmax. Responses are codes 0, 1, ..., C - 1 of two or more classes without order. Coefficients are log-odds;
    models report them so that they sum to 0 over the classes.

    Parameters
    ----------
    n_classes : int
        C, at least 2.
    form : {"bound", "delta"}
        Form of the expected log-likelihood: a lower bound (Jensen's inequality), so that the ELBO stays one; or the delta
        method, which is closer and bounds nothing. See :mod:`dslda.variational.kernels.class_e_step`.
    """

    n_classes: int = 2
    form: Literal["bound", "delta"] = "bound"

    name = "categorical"
    link = "softmax"
    max_classes = None
    n_searched = 0
    # as for the binomial: a standard deviation of 10 keeps the coefficients of separable classes finite
    default_ridge = 0.01

    def __post_init__(self) -> None:
        if isinstance(self.n_classes, bool) or not isinstance(self.n_classes, int) or self.n_classes < 2:
            raise InputError(
                f"must be a whole number of at least 2, got {self.n_classes!r}", parameter="n_classes"
            )
        if self.form not in ("bound", "delta"):
            raise InputError(f"must be 'bound' or 'delta', got {self.form!r}", parameter="form")

    @property
    def domain(self) -> Interval:  # type: ignore[override]
        return Interval(0, self.n_classes - 1, low_closed=True, high_closed=True, integer=True)

    @property
    def uses_bound(self) -> bool:  # type: ignore[override]
        return self.form == "bound"

    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        return 0.0, 1.0, np.zeros(0)

    def initial_coefficients(self, n_topics: int, moments: ResponseMoments) -> tuple[Array, Array]:
        # class c favours topics c modulo K, so that every class starts with a topic
        eta = np.zeros((n_topics, self.n_classes))
        for place in range(max(n_topics, self.n_classes)):
            eta[place % n_topics, place % self.n_classes] = 1.0
        eta -= eta.mean(axis=1, keepdims=True)
        return eta, np.zeros(0)

    def probabilities(self, m: Array, v: Array, delta: Array) -> Array:
        return self.mean(m, v, delta)

    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        """Probabilities of the classes from their predictors, shape (D, C)."""
        p = np.exp(m - m.max(axis=1, keepdims=True))
        probabilities: Array = p / p.sum(axis=1, keepdims=True)
        return probabilities
