"""Compiled functions of numbers that stay finite wherever the E-step may take omega.

Runaway coefficients, or a first sweep that overshoots, evaluate a family at |omega| of several hundred. There exp would
overflow, and infinity times zero would make a document's whole posterior NaN.
"""

from __future__ import annotations

import math

from numba import float64, njit, types

__all__ = [
    "LARGEST_EXPONENT",
    "SCALAR_SIGNATURE",
    "bounded_exp",
    "response_function",
    "sigmoid",
    "softplus",
]

# Families reach the kernel as numba first-class functions, so that one compiled kernel serves them all.
SCALAR_SIGNATURE = float64(float64, float64, types.Array(float64, 1, "C", readonly=True), float64)

#: compiles a function (y, omega, delta, aux) of a family of dslda, or loads it from numba's cache
response_function = njit(SCALAR_SIGNATURE, cache=True, nogil=True)

#: its exponential, times a response of 1e6 and squared, is still a double
LARGEST_EXPONENT = 300.0

_OF_ONE = float64(float64)


@njit(_OF_ONE, cache=True, nogil=True)
def bounded_exp(x):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """exp(x), constant above :data:`LARGEST_EXPONENT`."""
    return math.exp(min(x, LARGEST_EXPONENT))


@njit(_OF_ONE, cache=True, nogil=True)
def softplus(x):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """log(1 + exp(x)) without overflow, and without losing small values."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@njit(_OF_ONE, cache=True, nogil=True)
def sigmoid(x):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """1 / (1 + exp(-x)) without overflow; keeps the relative precision of small values."""
    e = math.exp(-abs(x))
    return 1.0 / (1.0 + e) if x >= 0.0 else e / (1.0 + e)
