"""Compiled functions of a family over the documents of a block."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import float64, njit, types
from numpy.typing import NDArray

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
def _evaluate(function, y, omegas, deltas, aux, out):  # pragma: no cover - compiled
    for i in range(omegas.shape[0]):
        for d in range(y.shape[0]):
            out[i, d] = function(y[d], omegas[i, d], deltas[i], aux[d])


def evaluate(
    function: Callable[..., float],
    y: NDArray[np.float64],
    omegas: NDArray[np.float64],
    deltas: NDArray[np.float64],
    aux: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Write function(y, omega, delta, aux) of every document to `out`, once for each row of `omegas` and `deltas`."""
    _evaluate(_with_address(function), y, omegas, deltas, aux, out)


@cache
def _with_address(function: Callable[..., float]) -> types.CompileResultWAP:
    """The function with its address, which numba would look up in each call: that takes as long as a thousand documents."""
    return types.CompileResultWAP(function.get_compile_result(SCALAR_SIGNATURE))  # type: ignore[attr-defined]
