"""The base rate: what is predicted of a document of which no word is known.

At the prior's mean of the topics a model predicts some number, not the response that documents have on average: links
bend, and topics are not equally frequent. So the linear predictor of such a document is the one whose mean is the mean
response of training, to which its covariates and exposure are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from dslda.exceptions import InputError
from dslda.families.base import Family

__all__ = ["base_predictor", "class_shares"]

FARTHEST = 2.0**40


def class_shares(
    masses: NDArray[np.float64], n: int, class_weight: Sequence[float] | None
) -> NDArray[np.float64]:
    """Share of each class in the training responses as the fit has weighed them, shape (C,); none is 0.

    Parameters
    ----------
    masses : ndarray of float64, shape (C,)
        Documents of each class, by their weights.
    n : int
        Documents.
    class_weight : sequence of float, length C, optional
    """
    # as if half a document had been seen of a class without any: its logarithm is finite
    weighed = np.maximum(masses, 0.5 * masses.sum() / n) * (
        1.0 if class_weight is None else np.asarray(class_weight)
    )
    weighed = np.maximum(weighed, 1e-12 * weighed.sum())
    shares: NDArray[np.float64] = weighed / weighed.sum()
    return shares


def base_predictor(
    family: Family, rate: NDArray[np.float64], delta: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """The linear predictor whose expected response is `rate`.

    Parameters
    ----------
    family : Family
    rate : ndarray of float64, shape (1,), or (C,) for the shares of classes
        On the scale of the fit.
    delta : ndarray of float64, shape (n_delta,)

    Returns
    -------
    ndarray of float64, shape of `rate`, or None
        None where no predictor has this mean.
    """
    if len(rate) > 1:
        logarithms = np.log(rate)
        centred: NDArray[np.float64] = logarithms - logarithms.mean()
        return centred
    nothing = np.zeros(1)

    def excess(omega: float) -> float:
        try:
            return float(family.mean(np.array([omega]), nothing, delta)[0] - rate[0])
        except InputError:  # a family of the user's own need not be finite this far out
            return math.nan

    end = 1.0
    with np.errstate(all="ignore"):
        while end <= FARTHEST:
            if excess(-end) * excess(end) <= 0.0:
                return np.array([optimize.brentq(excess, -end, end, xtol=1e-14)])
            end *= 2.0
    return None
