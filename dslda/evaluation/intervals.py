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
TINY = 1e-9
"""1 - 0.9 is a little less than 0.1."""
N_GROUPS = 3
"""Groups of predictions each of which holds the level, unless there are too few documents."""
NEIGHBOURS = 1 / 6
"""Share of the documents whose residuals bound an interval: enough for quantiles, and few enough to follow the scatter. The
fewest are so many that 5 lie outside."""
FEWEST_NEIGHBOURS_OUTSIDE = 5
MOST_CELLS = 60
"""Most ranges of predictions with bounds of their own. More would change them by less than they are known."""


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Bounds of response minus prediction, in the user's units, by the level of the prediction.

    Attributes
    ----------
    borders : ndarray of float64, shape (G - 1,)
        Predictions from which on the next bounds count.
    bounds : ndarray of float64, shape (G, 2)
        The lower and the upper bound of each range of predictions.
    predictions, residuals : ndarray of float64, shape (D,), or None
        Of documents that were predicted unseen, ascending by prediction, and response minus prediction. None in models of
        early releases.
    level : float
        Share of responses within the bounds.
    """

    borders: NDArray[np.float64]
    bounds: NDArray[np.float64]
    predictions: NDArray[np.float64] | None = None
    residuals: NDArray[np.float64] | None = None
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
        if self.predictions is None or self.residuals is None:
            raise InputError(
                f"must be {self.level:g}, the only level that this model of an earlier release knows, got {level:g}",
                parameter="interval",
                remedy="train it again with this release",
            )
        return _intervals(self.predictions, self.residuals, float(level))

    def around(
        self,
        predictions: NDArray[np.float64],
        *,
        lowest: float = -np.inf,
        highest: float | NDArray[np.float64] = np.inf,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The lower and upper ends for predictions, neither below `lowest` nor above `highest`."""
        bounds = self.bounds[np.searchsorted(self.borders, predictions, side="right")]
        low, high = (np.clip(predictions + bound, lowest, highest) for bound in bounds.T)
        return low, high

    @property
    def examples(self) -> list[tuple[float, float, float]]:
        """A low, a middle and a high prediction with their bounds; none where all predictions have the same."""
        places = np.unique(np.array([1, 3, 5]) * len(self.borders) // 6)
        return [(float(self.borders[i]), *self.bounds[i + 1].tolist()) for i in places if len(self.borders)]

    @property
    def in_words(self) -> str:
        """The level and the bounds."""
        level = f"{100.0 * self.level:g}%"
        if not len(self.borders):
            low, high = self.bounds[0].tolist()
            return f"{level}, prediction {low:+.4g} to {high:+.4g}"
        first, *others = [
            (f"{low:+.4g} to {high:+.4g}", f"{place:.4g}") for place, low, high in self.examples
        ]
        shown = [
            f"{first[0]} around a prediction of {first[1]}",
            *(f"{width} around {at}" for width, at in others),
        ]
        return f"{level}, " + "; ".join(shown)


def conformal_intervals(
    predictions: NDArray[np.float64], y: NDArray[np.float64], *, n_fitted: int = 0
) -> Intervals | None:
    """Intervals that hold the response of the next document with probability 90%, also within thirds of the predictions.

    Bounds at a prediction are quantiles of response minus prediction among the documents predicted nearly the same
    (:data:`NEIGHBOURS`): they follow scatter and skewness. Which quantile, is calibrated in each third of the predictions:
    of its m documents ``0.9 (m + 1)``, rounded up, lie between the quantiles of their own neighbours (split conformal
    prediction with ranks among neighbours as scores; Vovk 2012 for groups, Guan 2023 for neighbours).
    :meth:`Intervals.at` has other levels.

    Parameters
    ----------
    predictions, y : ndarray of float64, shape (D,)
        Of documents that were predicted unseen.
    n_fitted : int, default 0
        Numbers that were fitted to these documents all the same. Each residual is divided by ``1 - n_fitted / D``: so much
        further off, on average, is a document that a regression has not seen.

    Returns
    -------
    Intervals or None
        None for too few documents.
    """
    if len(y) < FEWEST:
        return None
    order = np.argsort(predictions, kind="stable")
    residuals = (y - predictions) / (1.0 - n_fitted / len(y))
    return _intervals(predictions[order], residuals[order], LEVEL)


def check_level(level: float) -> None:
    """Refuse what is no share of responses."""
    is_number = isinstance(level, numbers.Real) and not isinstance(level, bool)
    if not (is_number and 0.0 < level < 1.0):  # refuses NaN too
        raise InputError(
            f"must be a share of responses between 0 and 1, got {level!r:.60}",
            parameter="interval",
            remedy="0.9 holds nine of ten",
        )


def _intervals(predictions: NDArray[np.float64], residuals: NDArray[np.float64], level: float) -> Intervals:
    """Intervals from documents ascending by prediction."""
    n = len(predictions)
    # predictions that are equal are in one cell
    borders = np.unique(predictions[np.arange(1, MOST_CELLS) * n // MOST_CELLS])
    borders = borders[borders > predictions[0]]
    cells = list(pairwise([0, *np.searchsorted(predictions, borders).tolist(), n]))
    third = [(first + last) * N_GROUPS // (2 * n) for first, last in cells]
    fewest = min(math.ceil(FEWEST_NEIGHBOURS_OUTSIDE / (1.0 - level) - TINY), n)
    # a level that is high for so few documents takes more of them together
    for least, most in ((fewest, max(fewest, round(n * NEIGHBOURS))), (n, n)):
        neighbours = [np.sort(residuals[slice(*_window(cell, n, least, most))]) for cell in cells]
        scores = [_scores(residuals[slice(*cell)], own) for cell, own in zip(cells, neighbours, strict=True)]
        for groups in (third, [0] * len(cells)):
            tails = _tails(scores, groups, level)
            if tails is not None:
                bounds = [_quantiles(own, tail) for own, tail in zip(neighbours, tails, strict=True)]
                return Intervals(borders, np.array(bounds), predictions, residuals, level)
    highest = math.floor(1e4 * (1.0 - 3.0 / (n + 1))) / 1e4
    raise InputError(
        f"must be at most {highest:g}, got {level:g}: {number_of(n, 'document')} that training had not seen allow no more",
        parameter="interval",
        remedy="train on more documents, or with a larger {hold_out=}",
    )


def _window(cell: tuple[int, int], n_documents: int, least: int, most: int) -> tuple[int, int]:
    """The documents around a cell, at least its own; near the ends fewer, of which as many lie on either side."""
    size = max(min(most, sum(cell), 2 * n_documents - sum(cell)), least)
    first = min(max((sum(cell) - size) // 2, 0), n_documents - size)
    return min(first, cell[0]), max(first + size, cell[1])


def _scores(residuals: NDArray[np.float64], neighbours: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the neighbours beyond each residual, at the side with fewer; at most a half, where many are equal."""
    below, above = _share_below(residuals, neighbours), _share_below(-residuals, -neighbours[::-1])
    scores: NDArray[np.float64] = np.minimum(np.minimum(below, above), 0.5)
    return scores


def _share_below(values: NDArray[np.float64], ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the others at or below each of some of the values, interpolated between them, as quantiles are."""
    others = np.searchsorted(ordered, values, side="right") - 1
    before, after = ordered[np.maximum(others - 1, 0)], ordered[np.minimum(others + 1, len(ordered) - 1)]
    part = np.divide(values - before, after - before, out=np.zeros(len(values)), where=after > before)
    share: NDArray[np.float64] = (others + part) / len(ordered)
    return share


def _tails(scores: Sequence[NDArray[np.float64]], groups: Sequence[int], level: float) -> list[float] | None:
    """The score of each cell from which on documents lie inside, the same within a group; None for a level too high."""
    found = {}
    for group in {*groups}:
        own = np.sort(np.concatenate([s for s, g in zip(scores, groups, strict=True) if g == group]))
        rank = min(math.floor((1.0 - level) * (len(own) + 1) + TINY), len(own))
        if rank < 1 or own[rank - 1] == 0.0:
            return None
        found[group] = float(own[rank - 1])
    return [found[group] for group in groups]


def _quantiles(ordered: NDArray[np.float64], tail: float) -> tuple[float, float]:
    """The values with this share of the next ones beyond them, at either end."""
    place = tail * (len(ordered) + 1) - 1.0
    whole = int(place)
    part = place - whole
    low, high = (
        (1.0 - part) * values[whole] + part * values[whole + 1] for values in (ordered, ordered[::-1])
    )
    return float(low), float(high)
