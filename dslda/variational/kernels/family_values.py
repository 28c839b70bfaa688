"""Compiled functions of a family over the documents of a block."""

from __future__ import annotations

from numba import float64, njit, types

from dslda.families.scalars import SCALAR_SIGNATURE
from dslda.variational.kernels.layout import READ_ONLY_1D, READ_ONLY_2D

__all__ = ["evaluate"]

_VECTOR = READ_ONLY_1D[float64]


@njit(
    types.void(
        types.FunctionType(SCALAR_SIGNATURE), _VECTOR, READ_ONLY_2D, READ_ONLY_2D, _VECTOR, float64[:, ::1]
    ),
    cache=True,
    nogil=True,
)
def evaluate(function, y, omegas, deltas, aux, out):  # pragma: no cover - compiled
    """Write function(y, omega, delta, aux) of every document to `out`, once for each row of `omegas` and `deltas`.

    Each call of a function that came as an argument costs as much as some hundred documents.
    """
    for i in range(omegas.shape[0]):
        for d in range(y.shape[0]):
            out[i, d] = function(y[d], omegas[i, d], deltas[i], aux[d])
