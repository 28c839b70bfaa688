"""Intervals of responses around their predictions, from documents that training had not seen (conformal prediction)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dslda.wording import short_repr

__all__ = ["FEWEST", "LEFT_OUT", "Intervals", "conformal_intervals"]

LEFT_OUT = 0.05
"""Share of responses below an interval, and share above."""

FEWEST = 100
"""Fewest documents for the bounds of an interval."""
N_GROUPS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Bounds of response minus prediction, in the user's units, by the level of the prediction.

    Attributes
    ----------
    borders : ndarray of float64, shape (G - 1,)
        Predictions from which on the next group counts.
    bounds : ndarray of float64, shape (G, 2)
        The lower and the upper bound of each group.
    """

    borders: NDArray[np.float64]
    bounds: NDArray[np.float64]

    __repr__ = short_repr

    def around(
        self, predictions: NDArray[np.float64], *, lowest: float = -np.inf
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The lower and upper ends for predictions; no lower end is below `lowest`."""
        group = np.searchsorted(self.borders, predictions, side="right")
        return np.maximum(predictions + self.bounds[group, 0], lowest), predictions + self.bounds[group, 1]

    @property
    def in_words(self) -> str:
        """The level and the bounds."""
        level = f"{1.0 - 2.0 * LEFT_OUT:.0%}"
        shown = [f"{low:+.4g} to {high:+.4g}" for low, high in self.bounds.tolist()]
        if len(shown) == 1:
            return f"{level}, prediction {shown[0]}"
        ends = [f"{border:.4g}" for border in self.borders.tolist()]
        places = [f"below {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"above {ends[-1]}"]
        return f"{level}, predictions " + "; ".join(f"{p}: {r}" for p, r in zip(places, shown, strict=True))


def conformal_intervals(
    predictions: NDArray[np.float64], y: NDArray[np.float64], *, constant_scatter: bool
) -> Intervals | None:
    """Intervals that hold the response of the next document with probability 90%, also within thirds of the predictions.

    The bounds of a group of n documents are the order statistics of rank ``0.05 (n + 1)``, counted from either end, of
    response minus prediction (split conformal prediction; Vovk 2012 for groups).

    Parameters
    ----------
    predictions, y : ndarray of float64, shape (D,)
        Of documents that were predicted unseen.
    constant_scatter : bool
        Responses scatter alike at every level, so that too few documents for thirds have one group.

    Returns
    -------
    Intervals or None
        None for too few documents.
    """
    residuals = y - predictions
    n_groups = N_GROUPS if len(y) >= N_GROUPS * FEWEST else 1
    borders = np.quantile(predictions, np.arange(1, n_groups) / n_groups) if n_groups > 1 else np.zeros(0)
    group = np.searchsorted(borders, predictions, side="right")
    sizes = np.bincount(group, minlength=n_groups)
    if n_groups > 1 and sizes.min() < FEWEST:  # predictions that are equal are in one group
        n_groups, borders, group = 1, np.zeros(0), np.zeros(len(y), dtype=np.intp)
    if len(y) < FEWEST or (n_groups == 1 and not constant_scatter):
        return None
    bounds = np.empty((n_groups, 2))
    for g in range(n_groups):
        own = np.sort(residuals[group == g])
        rank = int(LEFT_OUT * (len(own) + 1))
        bounds[g] = own[[rank - 1, len(own) - rank]]
    return Intervals(borders, bounds)
