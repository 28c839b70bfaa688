"""Checks and conversions of count matrices and responses that a caller holds in memory."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import MAX_COUNT, DocumentBlock
from dslda.exceptions import InputError
from dslda.ingestion.counting import number_value
from dslda.inputs.fields import is_missing, plain_value
from dslda.inputs.in_memory import computed, summable_counts

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

    # the blocks of a Dask array may be sparse, which numpy does not put together
    matrix = computed(matrix)
    matrix = summable_counts(matrix, name)
    if not sparse.issparse(matrix):
        array = np.asarray(matrix)
        kinds = {getattr(dtype, "kind", "O") for dtype in getattr(matrix, "dtypes", "O")}
        if array.dtype.kind == "O" and kinds <= set("iufb"):  # a frame of nullable numbers
            array = matrix.to_numpy(np.float64, na_value=np.nan)
        # scipy has no matrix of half precision, or in the byte order of another machine
        native = np.float32 if array.dtype == np.float16 else array.dtype.newbyteorder("=")
        matrix = array.astype(native, copy=False)
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
    values: Any,
    n_documents: int,
    *,
    name: str = "response",
    advice: str | None = None,
    as_records: bool = False,
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
    as_records : bool
        Read strings as ingestion does, and require finite squares as it does.

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
    if array.dtype.kind not in "biuf":
        # as objects, for one string among numbers makes strings of all
        array, missing = _numbers(
            np.asarray(values, dtype=object), name=name, advice=advice, strings=as_records
        )
    with np.errstate(over="ignore"):  # numbers wider than a double
        y = array.astype(np.float64)
    if missing is not None:
        y[missing] = np.nan
    with np.errstate(over="ignore"):
        infinite = np.isinf(y * y) if as_records else np.isinf(y)
    if infinite.any():
        row = int(np.argmax(infinite))
        square = ", with a finite square" if as_records else ""
        raise InputError(
            f"must be finite{square}, or NaN where missing, got {array[row]} in row {row}", parameter=name
        )
    return y


def _numbers(
    values: NDArray[np.object_], *, name: str, advice: str | None, strings: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Python objects as numbers, and a mask of the missing ones; `strings` are read as ingestion does, or refused."""
    numbers = np.full(len(values), np.nan)
    missing = np.zeros(len(values), dtype=np.bool_)
    for row, item in enumerate(values.tolist()):
        value = plain_value(item)
        is_text = strings and isinstance(value, str)
        missing[row] = is_missing(value) or (is_text and not value.strip())
        if missing[row]:
            continue
        if not (is_text or isinstance(value, (Real, Decimal, np.bool_))):
            raise _no_number(value, row, name, advice)
        try:
            numbers[row] = number_value(value, name) if is_text else float(value)
        except OverflowError:
            numbers[row] = np.inf
        except (InputError, TypeError):  # TypeError: numpy's durations are of its integers
            raise _no_number(value, row, name, advice) from None
    return numbers, missing


def _no_number(value: object, row: int, name: str, advice: str | None) -> InputError:
    plain = value.item() if isinstance(value, np.generic) else value
    if advice is None:
        advice = "give a number for each document, NaN where it is missing"
        if name in ("response", "y"):
            advice += "; names of classes are for family categorical (binomial, where there are two)"
    return InputError(f"must hold numbers, got {plain!r:.60} in row {row}", parameter=name, remedy=advice)
