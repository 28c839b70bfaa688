"""Pearson's statistic: the scatter of responses around their means, relative to the family's variance."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dslda.families.base import Family
from dslda.variational.design import AUX, EMPHASIS, WEIGHT

__all__ = ["has_pearson", "pearson_sums"]

# the largest term, so that the sum stays finite
_LARGEST = 1e200


def has_pearson(family: Family, *, trials: bool) -> bool:
    """Whether the family has a variance that data can contradict; `trials` tells whether documents have trials."""
    return type(family).variance is not Family.variance and (trials or family.auxiliary != "trials")


def pearson_sums(
    family: Family,
    y: NDArray[np.float64],
    delta: NDArray[np.float64],
    extras: NDArray[np.float64] | None,
    *,
    mean: NDArray[np.float64],
    variance: NDArray[np.float64],
    counted: NDArray[np.bool_],
) -> tuple[float, float]:
    """X2 = sum of w (y - mu)^2 / Var(y | mu) over documents with a response, and the sum of w.

    Both are 0 if the family has no variance. A single binomial trial says nothing about scatter (McCullagh and Nelder 1989,
    chapter 4) and is left out. Sums are exact, so that the order of documents does not matter.

    Parameters
    ----------
    family : Family
    y : ndarray of float64, shape (D,)
        Responses on the scale of the fit, NaN where missing.
    delta : ndarray of float64, shape (n_delta,)
    extras : ndarray of float64, shape (D, 4 + P), or None
        Of the E-step.
    mean, variance : ndarray of float64, shape (D,)
        Of the linear predictor, after the E-step.
    counted : ndarray of bool, shape (D,)
        Documents with a word, which take part if they have a response.
    """
    counted = counted & ~np.isnan(y)
    aux, weight = np.ones(len(y)), np.ones(len(y))
    if extras is not None:
        aux, weight = extras[:, AUX], extras[:, WEIGHT] * extras[:, EMPHASIS]
    if family.auxiliary == "trials":
        counted &= aux > 1.0
    y, aux, weight = y[counted], aux[counted], weight[counted]
    expected = family.mean(mean[counted], variance[counted], delta)
    if family.auxiliary == "trials":
        expected = aux * expected
    # extreme means may give 0 / 0, and numbers too large to square
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        scatter = family.variance(expected, delta, aux)
        if scatter is None:
            return 0.0, 0.0
        terms = weight * (y - expected) ** 2 / scatter
    terms = np.minimum(np.nan_to_num(terms, nan=0.0, posinf=_LARGEST), _LARGEST)
    return math.fsum(terms.tolist()), math.fsum(weight.tolist())
