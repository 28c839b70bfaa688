"""Sums over rows of tables with a row for each term."""

from __future__ import annotations

from numba import float64, int64, njit, types

from dslda.variational.kernels.layout import READ_ONLY_1D, READ_ONLY_2D
from dslda.variational.kernels.scratch import ENTRY_OPTIONS

__all__ = ["add_rows"]


@njit(types.void(float64[:, ::1], READ_ONLY_1D[int64], READ_ONLY_2D), **ENTRY_OPTIONS)
def add_rows(total, rows, array):
    """Add each row of `array` to one of `total`. NumPy copies the rows before, and writes them back one by one."""
    for i in range(rows.shape[0]):
        row = rows[i]
        for k in range(total.shape[1]):
            total[row, k] += array[i, k]
