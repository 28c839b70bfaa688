"""Intervals of responses around their predictions, from documents that training had not seen (conformal prediction)."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import InputError
from dslda.wording import number_of, short_repr

__all__ = ["FEWEST", "LEVEL", "Intervals", "check_level", "conformal_intervals"]

LEVEL = 0.9
"""Share of responses in an interval, unless the user asks for another."""

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
    residuals : tuple of ndarray of float64, length G, or None
        Response minus prediction of the documents of each group, ascending. None in models of early releases.
    level : float
        Share of responses within the bounds.
    """

    borders: NDArray[np.float64]
    bounds: NDArray[np.float64]
    residuals: tuple[NDArray[np.float64], ...] | None = None
    level: float = LEVEL

    __repr__ = short_repr

    def at(self, level: float) -> Intervals:
        """Intervals that hold another share of the responses.

        Raises
        ------
        InputError
            The level is no share, is too high for the number of documents, or is not 0.9 in a model of an early release.
        """
        check_level(level)
        if level == self.level:
            return self
        if self.residuals is None:
            raise InputError(
                f"must be {self.level:g}, the only level that this model of an earlier release knows, got {level:g}",
                parameter="interval",
                remedy="train it again with this release",
            )
        fewest = min(len(residuals) for residuals in self.residuals)
        if _rank(level, fewest) < 1:
            highest = math.floor(1e4 * (1.0 - 2.0 / (fewest + 1))) / 1e4
            raise InputError(
                f"must be at most {highest:g}, got {level:g}: {number_of(fewest, 'document')} that training had not seen, "
                f"{'with' if len(self.residuals) == 1 else 'the fewest with'} predictions of about one size, allow no more",
                parameter="interval",
                remedy="train on more documents, or with a larger {hold_out=}",
            )
        return Intervals(self.borders, _bounds(self.residuals, level), self.residuals, float(level))

    def around(
        self,
        predictions: NDArray[np.float64],
        *,
        lowest: float = -np.inf,
        highest: float | NDArray[np.float64] = np.inf,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The lower and upper ends for predictions; no lower end is below `lowest`, and no upper end above `highest`."""
        group = np.searchsorted(self.borders, predictions, side="right")
        low = np.maximum(predictions + self.bounds[group, 0], lowest)
        return low, np.minimum(predictions + self.bounds[group, 1], highest)

    @property
    def in_words(self) -> str:
        """The level and the bounds."""
        level = f"{100.0 * self.level:g}%"
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
    response minus prediction (split conformal prediction; Vovk 2012 for groups). :meth:`Intervals.at` has other levels.

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
    ordered = tuple(np.sort(residuals[group == g]) for g in range(n_groups))
    return Intervals(borders, _bounds(ordered, LEVEL), ordered)


def check_level(level: float) -> None:
    """Refuse what is no share of responses."""
    is_number = isinstance(level, numbers.Real) and not isinstance(level, bool)
    if not (is_number and 0.0 < level < 1.0):  # refuses NaN too
        raise InputError(
            f"must be a share of responses between 0 and 1, got {level!r:.60}",
            parameter="interval",
            remedy="0.9 holds nine of ten",
        )


def _bounds(residuals: Sequence[NDArray[np.float64]], level: float) -> NDArray[np.float64]:
    bounds = np.empty((len(residuals), 2))
    for g, own in enumerate(residuals):
        rank = _rank(level, len(own))
        bounds[g] = own[[rank - 1, len(own) - rank]]
    return bounds


def _rank(level: float, n_documents: int) -> int:
    """Rank of a bound, counted from its end; below 1 where there are too few documents."""
    # (1 - 0.9) / 2 is a little less than 0.05
    return math.floor((1.0 - level) / 2.0 * (n_documents + 1) + 1e-9)
