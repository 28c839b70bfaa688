"""Measures of prediction, and splits of documents for measuring it."""

from __future__ import annotations

import numbers

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.exceptions import InputError

__all__ = [
    "check_share",
    "correlation",
    "folds",
    "held_out",
    "predictive_r2",
    "predictive_r2_standard_error",
    "root_mean_squared_error",
    "share_standard_error",
]

MOST_HELD_OUT = 0.5
_BATCH = 1 << 20
"""Documents of one draw: batches bound memory, and added documents do not change the draws of earlier batches."""


def predictive_r2(y: ArrayLike, predicted: ArrayLike) -> float:
    """Share of the response's variation that predictions of held-out documents explain.

    ``1 - sum (y - predicted)**2 / sum (y - mean(y))**2``, the measure of Blei and McAuliffe. Over several
    folds, pool the held-out documents and call this once, so that the mean is that of all of them.

    Parameters
    ----------
    y, predicted : array-like of float, shape (n_documents,)
        Observed responses of the held-out documents, and predictions in the same order and unit.

    Returns
    -------
    float
        1 for perfect predictions, 0 for predicting the mean, negative for worse than that.

    Raises
    ------
    InputError
        The two differ in length, are empty or not finite, or all of `y` is equal.
    """
    y, predicted = _pair(y, predicted)
    variation = float(np.sum((y - y.mean()) ** 2))
    if variation == 0.0:
        raise InputError(
            f"predictive R2: responses must differ, got {len(y)} times {y[0]:g}",
            remedy="hold out more documents",
        )
    return 1.0 - float(np.sum((y - predicted) ** 2)) / variation


def predictive_r2_standard_error(y: ArrayLike, predicted: ArrayLike) -> float:
    """Standard error of `predictive_r2` by the jackknife, as if the held-out documents were drawn at random.

    It leaves out the variation of the model: another fit, or other training documents, change the R2 further.
    Parameters and errors are those of `predictive_r2`.

    Returns
    -------
    float
        NaN for fewer than three documents, or if all but one have the same response.
    """
    predictive_r2(y, predicted)  # raises if there is none
    y, predicted = _pair(y, predicted)
    n = len(y)
    errors, deviations = (y - predicted) ** 2, (y - y.mean()) ** 2
    remainders = deviations.sum() - n / (n - 1) * deviations
    # only rounding error remains if all other documents have one response
    if n < 3 or not np.all(remainders > 1e-9 * deviations.sum()):
        return float("nan")
    replicates = 1.0 - (errors.sum() - errors) / remainders
    return float(np.sqrt((n - 1) / n * np.sum((replicates - replicates.mean()) ** 2)))


def root_mean_squared_error(y: ArrayLike, predicted: ArrayLike) -> float:
    """Root of the mean squared difference of responses and predictions, in their unit; parameters as of `predictive_r2`."""
    y, predicted = _pair(y, predicted)
    return float(np.sqrt(np.mean((y - predicted) ** 2)))


def share_standard_error(share: float, n_documents: int) -> float:
    """Standard error of the share of held-out documents that are predicted correctly: the binomial formula.

    It adds two correct and two wrong documents (Agresti and Coull 1998): a few that are all correct do not prove that all
    others are.
    """
    n = n_documents + 4
    moved = (share * n_documents + 2) / n
    return float(np.sqrt(moved * (1.0 - moved) / n))


def correlation(y: ArrayLike, predicted: ArrayLike) -> float:
    """Pearson's correlation of responses and predictions of held-out documents.

    It ignores a wrong level or scale of the predictions, which `predictive_r2` penalises. NaN if either is constant.
    """
    y, predicted = _pair(y, predicted)
    # Equality, not a zero sum of squares: the mean of equal numbers is not always that number.
    if np.all(y == y[0]) or np.all(predicted == predicted[0]):
        return float("nan")
    a, b = y - y.mean(), predicted - predicted.mean()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def folds(
    n_documents: int, n_folds: int, *, seed: int = 0
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]:
    """Split documents at random into folds of nearly equal size.

    Folds are always shuffled: real files are sorted by author, shop or date, and others would test on unseen ones.

    Parameters
    ----------
    n_documents, n_folds : int
        At least 2 folds, and at most one for each document.
    seed : int, default 0
        The same seed gives the same folds on every machine.

    Returns
    -------
    tuple of (ndarray of int64, ndarray of int64)
        For each fold the training and the held-out documents, both ascending. Every document is held out once.

    Raises
    ------
    InputError
        There are fewer than 2 folds or fewer documents than folds.
    """
    if not 2 <= n_folds <= n_documents:
        raise InputError(
            f"must be between 2 and the number of documents ({n_documents}), got {n_folds}", parameter="folds"
        )
    fold_of = np.random.default_rng(seed).permutation(np.arange(n_documents) % n_folds)
    return tuple(
        (np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in range(n_folds)
    )


def held_out(n_documents: int, share: float, *, seed: int = 0) -> NDArray[np.bool_]:
    """Choose documents at random to keep from training.

    Parameters
    ----------
    n_documents : int
    share : float
        Share of the documents to choose, above 0 and at most 0.5; their number is rounded.
    seed : int, default 0
        The same number, share and seed choose the same documents on every machine.

    Returns
    -------
    ndarray of bool, shape (n_documents,)
        True for documents to keep from training.

    Raises
    ------
    InputError
        The share is out of range, no document would be chosen, fewer than two would be left, or the seed is below 0.
    """
    if seed < 0:
        raise InputError(f"must be a whole number of at least 0, got {seed}", parameter="seed")
    check_share(share)
    n_chosen = round(share * n_documents)
    if n_chosen < 1 or n_documents - n_chosen < 2:
        raise InputError(
            f"must keep at least 1 document from training and leave 2, got {share:g} of {n_documents:,}: {n_chosen:,} kept, "
            f"{n_documents - n_chosen:,} left",
            parameter="hold_out",
            remedy=("give another share", "more documents"),
        )
    # the third number keeps this stream apart from the one that topics start from
    rng = np.random.default_rng([seed, _BATCH, 1])
    chosen = np.zeros(n_documents, dtype=np.bool_)
    for start in range(0, n_documents, _BATCH):
        stop = min(start + _BATCH, n_documents)
        n = round(share * stop) - round(share * start)
        chosen[start + np.argsort(rng.random(stop - start), kind="stable")[:n]] = True
    return chosen


def check_share(share: float) -> None:
    """Refuse a share of documents to keep from training that is not above 0 and at most `MOST_HELD_OUT`."""
    is_number = isinstance(share, numbers.Real) and not isinstance(share, bool)
    if not (is_number and 0.0 < share <= MOST_HELD_OUT):  # refuses NaN too
        raise InputError(
            f"must be a share above 0 and at most {MOST_HELD_OUT:g}, got {share}",
            parameter="hold_out",
            remedy="0.1 keeps a tenth of the documents from training",
        )


def _pair(y: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as one-dimensional finite float64 arrays of one length."""
    observed, guess = np.asarray(y, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if observed.ndim != 1 or observed.shape != guess.shape or len(observed) == 0:
        raise InputError(
            "responses and predictions must be one-dimensional, of the same length and not empty, "
            f"got shapes {observed.shape} and {guess.shape}"
        )
    for name, values in (("responses", observed), ("predictions", guess)):
        bad = ~np.isfinite(values)
        if bad.any():
            raise InputError(
                f"{name} must be finite, got {values[bad][0]} at document {int(np.argmax(bad))} "
                f"({int(bad.sum())} in all)",
                remedy="leave out documents without a response",
            )
    return observed, guess
