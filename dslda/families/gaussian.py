"""Gaussian response with identity link: sLDA as in section 2 of Blei and McAuliffe (2010)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dslda.families.base import SCALAR_SIGNATURE, Family, Interval

__all__ = ["Gaussian"]


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _log_likelihood(y: float, omega: float, delta: float) -> float:  # pragma: no cover - compiled
    return -0.5 * math.log(2.0 * math.pi * delta) - (y - omega) * (y - omega) / (2.0 * delta)


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _first_derivative(y: float, omega: float, delta: float) -> float:  # pragma: no cover - compiled
    return (y - omega) / delta


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _second_derivative(y: float, omega: float, delta: float) -> float:  # pragma: no cover - compiled
    return -1.0 / delta


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _third_derivative(y: float, omega: float, delta: float) -> float:  # pragma: no cover - compiled
    return 0.0


@njit(SCALAR_SIGNATURE, cache=True, nogil=True)
def _expected_squared_residual(y: float, m: float, v: float) -> float:  # pragma: no cover - compiled
    return (y - m) * (y - m) + v


class Gaussian(Family):
    """y ~ N(omega, delta), omega = eta'zbar.

    Link: identity. Units: those of y. For real-valued responses (ratings, prices, scores) whose scatter does not depend
    much on their level. l is quadratic in omega, so the delta-method E-step and one scoring step of the M-step are the
    paper's exact updates (equations 14, 17 and 18).
    """

    name = "gaussian"
    link = "identity"
    domain = Interval()

    log_likelihood = staticmethod(_log_likelihood)
    first_derivative = staticmethod(_first_derivative)
    second_derivative = staticmethod(_second_derivative)
    third_derivative = staticmethod(_third_derivative)
    dispersion_statistic = staticmethod(_expected_squared_residual)

    def scaling(self, mean: float, variance: float) -> tuple[float, float]:
        return mean, math.sqrt(variance)

    def mean(self, m: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
        return m

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
        # the expected squared residual is quadratic in eta: this is its value at the new eta (paper, eq. 18)
        change = float(step @ (information @ step) - 2.0 * (score @ step))
        return (total + delta * change) / n
