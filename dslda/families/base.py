"""The contract of a response family: the response as a generalised linear model of the mean topic assignment.

Conventions, stated once. omega is the linear predictor eta'zbar, delta the dispersion, l(y, omega) = log p(y | omega).
A family gives l and its first three derivatives in omega as compiled scalar functions of (y, omega, delta); the E-step
and the M-step need nothing else of it (Blei and McAuliffe 2010, section 3; delta-method form in docs/model.md). A
family never sees a document: only y, moments of omega, and delta. The response it sees is the standardised one
(see :meth:`Family.scaling`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numba import float64
from numpy.typing import NDArray

__all__ = ["SCALAR_SIGNATURE", "Family", "Interval", "ScalarFunction"]

# a compiled function of three numbers, held by a class without becoming a method
ScalarFunction: TypeAlias = "staticmethod[[float, float, float], float]"

# Families reach the kernel as numba first-class functions, so that one compiled kernel serves them all.
SCALAR_SIGNATURE = float64(float64, float64, float64)


@dataclass(frozen=True, slots=True)
class Interval:
    """The values a response may take: validation, messages and test generators read this one object."""

    low: float = -math.inf
    high: float = math.inf
    low_closed: bool = False
    high_closed: bool = False
    integer: bool = False

    def contains(self, y: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Elementwise membership; NaN (missing) is never a member."""
        above = (y >= self.low) if self.low_closed else (y > self.low)
        below = (y <= self.high) if self.high_closed else (y < self.high)
        inside = above & below
        return inside & (np.floor(y) == y) if self.integer else inside

    def __str__(self) -> str:
        kind = "whole numbers" if self.integer else "numbers"
        if self.low == -math.inf and self.high == math.inf:
            return f"finite {kind}"
        left = "[" if self.low_closed else "("
        right = "]" if self.high_closed else ")"
        return f"{kind} in {left}{self.low:g}, {self.high:g}{right}"


class Family(ABC):
    """One response distribution with its link.

    A new family is a new module with one subclass, registered in :mod:`dslda.families.registry`.

    Attributes
    ----------
    name : str
        The name users write.
    link : str
        The link function between E[y] and omega.
    domain : Interval
        Accepted responses, in the user's units.
    """

    name: ClassVar[str]
    link: ClassVar[str]
    domain: ClassVar[Interval]

    #: compiled l, dl/domega, d2l/domega2, d3l/domega3, each of (y, omega, delta)
    log_likelihood: ClassVar[ScalarFunction]
    first_derivative: ClassVar[ScalarFunction]
    second_derivative: ClassVar[ScalarFunction]
    third_derivative: ClassVar[ScalarFunction]
    #: compiled statistic of (y, m, v) whose sum over documents :meth:`update_dispersion` reads
    dispersion_statistic: ClassVar[ScalarFunction]

    @abstractmethod
    def scaling(self, mean: float, variance: float) -> tuple[float, float]:
        """Center and scale of the standardised response, from the mean and variance of the training responses."""

    @abstractmethod
    def mean(self, m: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
        """E_q[E(y | omega)] for documents whose omega has mean `m` and variance `v`, shapes (D,)."""

    @abstractmethod
    def update_dispersion(
        self,
        total: float,
        n: int,
        *,
        delta: float,
        score: NDArray[np.float64],
        information: NDArray[np.float64],
        step: NDArray[np.float64],
    ) -> float:
        """New delta after eta has moved by `step`.

        Parameters
        ----------
        total : float
            Sum of :attr:`dispersion_statistic` over the `n` labelled documents, at the old eta.
        n : int
            Labelled documents, at least 1.
        delta : float
            The old dispersion.
        score, information : ndarray of float64, shapes (K,) and (K, K)
            Sums over the labelled documents, at the old eta and delta.
        step : ndarray of float64, shape (K,)
            New eta minus old eta.
        """
