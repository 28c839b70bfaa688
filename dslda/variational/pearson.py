"""Pearson's statistic: how far the responses of a fit scatter around their means, against what the family allows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dslda.families.base import Family
from dslda.variational.design import AUX, EMPHASIS, WEIGHT

__all__ = ["has_pearson", "pearson_sums"]

# so that the sum of them is a double, whatever a family says
_LARGEST = 1e200


def has_pearson(family: Family, *, trials: bool) -> bool:
    """Whether the family says how a response scatters, and data can contradict it; `trials` where documents have any."""
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

    Both are 0 where the family does not say how a response scatters. The one trial of a binomial response says nothing of
    its scatter (McCullagh and Nelder 1989, chapter 4), and is left out. Summed to the last digit, in any order.

    Parameters
    ----------
    family : Family
    y : ndarray of float64, shape (D,)
        Responses on the scale of the fit, NaN where missing.
    delta : ndarray of float64, shape (n_delta,)
    extras : ndarray of float64, shape (D, 4 + P), or None
        As the E-step has them.
    mean, variance : ndarray of float64, shape (D,)
        Of the linear predictor, as the E-step left them.
    counted : ndarray of bool, shape (D,)
        Documents that take part if they have a response: those with a word.
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
    # means at the very end of what is possible may give 0 / 0, and numbers too large to square
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        scatter = family.variance(expected, delta, aux)
        if scatter is None:
            return 0.0, 0.0
        terms = weight * (y - expected) ** 2 / scatter
    terms = np.minimum(np.nan_to_num(terms, nan=0.0, posinf=_LARGEST), _LARGEST)
    return math.fsum(terms.tolist()), math.fsum(weight.tolist())
