"""Checks and conversions of count matrices and responses that a caller holds in memory."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import MAX_COUNT, DocumentBlock
from dslda.exceptions import InputError
from dslda.inputs.in_memory import summable_counts

__all__ = ["matrix_block", "response_array"]


def matrix_block(matrix: Any, *, name: str = "the matrix") -> DocumentBlock:
    """A count matrix as a block of documents.

    Parameters
    ----------
    matrix : sparse matrix or array, shape (D, V)
        Whole numbers >= 0 of any dtype; stored zeros are dropped, duplicate entries added up.

    Raises
    ------
    InputError
        The matrix is not two-dimensional, or a value is masked or not a count; the error names its row and column.
    """
    from scipy import sparse

    matrix = summable_counts(matrix, name)
    if not sparse.issparse(matrix):
        array = np.asarray(matrix)
        kinds = {getattr(dtype, "kind", "O") for dtype in getattr(matrix, "dtypes", "O")}
        if array.dtype.kind == "O" and kinds <= set("iufb"):  # a frame of nullable numbers
            array = matrix.to_numpy(np.float64, na_value=np.nan)
        # scipy has no matrix of half precision
        matrix = array.astype(np.float32) if array.dtype == np.float16 else array
    if matrix.ndim != 2 or matrix.dtype.kind not in "iufb":
        raise InputError(
            f"{name} must be numeric and two-dimensional, documents by terms, got shape {matrix.shape} of "
            f"{matrix.dtype}"
        )
    csr = sparse.csr_array(matrix)
    if not csr.has_canonical_format or not csr.has_sorted_indices:
        csr = csr.copy()
        csr.sum_duplicates()
    values = csr.data
    with np.errstate(invalid="ignore"):
        bad = ~((values >= 0) & (values <= MAX_COUNT))
        if values.dtype.kind == "f":
            bad |= np.floor(values) != values
    if bad.any():
        at = int(np.argmax(bad))
        row = int(np.searchsorted(csr.indptr, at, side="right")) - 1
        raise InputError(
            f"{name} must hold counts, whole numbers from 0 to {MAX_COUNT}, got {values[at]} in row "
            f"{row}, column {csr.indices[at]} ({int(bad.sum())} such values in all)",
            remedy="give counts, not TF-IDF or frequencies",
        )
    counted = values != 0
    rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    return DocumentBlock.from_entries(rows[counted], csr.indices[counted], values[counted], csr.shape[0])


def response_array(
    values: Any, n_documents: int, *, name: str = "response", advice: str | None = None
) -> NDArray[np.float64]:
    """Responses as an array of float64, NaN where missing.

    Parameters
    ----------
    values : array-like of numbers, shape (D,)
        NaN, None and pandas.NA are missing, as are masked values.
    n_documents : int
        D.
    name : str
        Name in messages.
    advice : str, optional
        Remedy if a value is not a number, for a caller that refuses missing ones.

    Raises
    ------
    InputError
        A document does not have one finite number; the error names its row.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise InputError(
            f"must have one number for each of {n_documents} rows, got lists", parameter=name
        ) from None
    if array.ndim == 0:
        raise InputError(
            f"must be an array with a number for each of {n_documents} rows, got {type(values).__name__}",
            parameter=name,
        )
    if array.shape != (n_documents,):
        raise InputError(
            f"must have one number for each of {n_documents} rows, got shape {array.shape}", parameter=name
        )
    missing = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    if array.dtype.kind == "O":
        array, missing = _numbers(array, name=name, advice=advice)
    elif array.dtype.kind not in "biuf":
        raise _no_number(array[0], 0, name, advice)
    with np.errstate(over="ignore"):  # numbers wider than a double
        y = array.astype(np.float64)
    if missing is not None:
        y[missing] = np.nan
    if np.isinf(y).any():
        row = int(np.argmax(np.isinf(y)))
        raise InputError(
            f"must be finite, or NaN where missing, got {array[row]} in row {row}", parameter=name
        )
    return y


def _numbers(
    values: NDArray[np.object_], *, name: str, advice: str | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Python objects as numbers, and a mask of the missing ones."""
    import pandas as pd

    missing = np.asarray(pd.isna(values))
    numbers = np.full(len(values), np.nan)
    for row in np.flatnonzero(~missing).tolist():
        value = values[row]
        if not isinstance(value, (Real, Decimal, np.bool_)):
            raise _no_number(value, row, name, advice)
        try:
            numbers[row] = float(value)
        except OverflowError:
            numbers[row] = np.inf
    return numbers, missing


def _no_number(value: object, row: int, name: str, advice: str | None) -> InputError:
    plain = value.item() if isinstance(value, np.generic) else value
    if advice is None:
        advice = "give a number for each document, NaN where it is missing"
        if name in ("response", "y"):
            advice += "; names of classes are for family categorical (binomial, where there are two)"
    return InputError(f"must hold numbers, got {plain!r:.60} in row {row}", parameter=name, remedy=advice)
