"""Figures of predictions: against what was observed, what is left, and whether probabilities hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.exceptions import InputError
from dslda.report.drawing import HIGHER, INK, LOWER, MUTED, axes_of, clipped, tidied
from dslda.report.representatives import wilson

__all__ = ["calibration", "confusion", "predictions", "residuals"]

MOST_LEVELS = 12
"""Different responses, such as stars, up to which each has a row of its own."""
N_BINS = 10
MOST_POINTS = 400
N_CELLS = 28
SPREAD = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_CLASSES = 30


def predictions(
    observed: ArrayLike, predicted: ArrayLike, *, response: str = "response", ax: Any = None
) -> Any:
    """Predictions against observed responses.

    Where few responses differ, such as stars, each has the spread of its predictions: the median, the half in the middle
    (thick), and 90% (thin). Else a point is a document, or a cell is darker the more documents it holds; dots are the mean
    response in tenths of the predictions. On the dashed line predictions are right.

    Parameters
    ----------
    observed, predicted : array-like of float, shape (D,)
        Missing values (NaN) are left out.
    response : str
        Name of the response, for the axes.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default those of a new figure, ``ax.figure``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        Lengths differ, no document has both, or matplotlib is not installed.
    """
    y, expected = _pair(observed, predicted)
    ax = axes_of(ax, width=4.4, height=3.5)
    name = clipped(response, 40)
    levels = np.unique(y)
    if len(levels) <= MOST_LEVELS:
        for place, level in enumerate(levels.tolist()):
            own = expected[y == level]
            _spread(ax, own, place)
            ax.plot([level], [place], "|", color=MUTED, markersize=13, markeredgewidth=1.4)
        labels = [f"{level:g}  (n = {np.count_nonzero(y == level):,})" for level in levels.tolist()]
        ax.set_yticks(range(len(levels)), labels)
        ax.set_ylim(-0.6, len(levels) - 0.4)
        ax.set_xlabel(f"predicted {name}", parse_math=False)
        ax.set_ylabel(f"observed {name}", parse_math=False)
        return tidied(ax)
    _cloud(ax, expected, y)
    for own in _tenths(expected):
        ax.plot([expected[own].mean()], [y[own].mean()], "o", color=LOWER, markersize=4.5)
    ends = [max(expected.min(), y.min()), min(expected.max(), y.max())]
    ax.plot(ends, ends, color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
    ax.set_xlabel(f"predicted {name}", parse_math=False)
    ax.set_ylabel(f"observed {name}", parse_math=False)
    return tidied(ax, grid="both")


def residuals(
    observed: ArrayLike, predicted: ArrayLike, *, response: str = "response", ax: Any = None
) -> Any:
    """Observed response minus prediction, in tenths of the predictions: the median, the half in the middle, and 90%.

    Medians far from 0 say that predictions of this size are too low or too high. Parameters and errors are those of
    :func:`predictions`.
    """
    y, expected = _pair(observed, predicted)
    ax = axes_of(ax, width=4.4, height=3.5)
    bins = _tenths(expected)
    for place, own in enumerate(bins):
        _spread(ax, y[own] - expected[own], place)
    ax.axvline(0.0, color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
    ax.set_yticks(range(len(bins)), [f"{expected[own].mean():.3g}" for own in bins])
    ax.set_ylim(-0.6, len(bins) - 0.4)
    ax.set_ylabel("predicted (mean of each tenth)")
    ax.set_xlabel(f"observed minus predicted {clipped(response, 40)}", parse_math=False)
    return tidied(ax)


def calibration(
    happened: ArrayLike, probability: ArrayLike, *, event: str = "the event", ax: Any = None
) -> Any:
    """How often an event happened, against its predicted probability, in tenths of the documents.

    Bars are 95% intervals of the share (Wilson's). On the dashed line probabilities are right.

    Parameters
    ----------
    happened : array-like of bool or float, shape (D,)
        1 where it happened, 0 where not.
    probability : array-like of float, shape (D,)
    event : str
        Name of the event, for the axes.
    ax
        As in :func:`predictions`.

    Raises
    ------
    InputError
        As :func:`predictions`.
    """
    y, expected = _pair(happened, probability)
    ax = axes_of(ax, width=4.4, height=3.5)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
    for own in _tenths(expected):
        low, high = wilson(y[own].mean(), len(own))
        at = expected[own].mean()
        ax.plot([at, at], [low, high], color=HIGHER, linewidth=1.6)
        ax.plot([at], [y[own].mean()], "o", color=HIGHER, markersize=5)
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel(f"predicted probability of {clipped(event, 40)}", parse_math=False)
    ax.set_ylabel("share where it happened")
    return tidied(ax, grid="both")


def confusion(
    observed: Sequence[Any], predicted: Sequence[Any], *, classes: Sequence[str], ax: Any = None
) -> Any:
    """Shares of the predicted classes among documents of each observed class; the diagonal is right.

    Parameters
    ----------
    observed, predicted : sequence of str or None, length D
    classes : sequence of str
        All classes, in their order; the first 30 are shown.
    ax
        As in :func:`predictions`.

    Raises
    ------
    InputError
        As :func:`predictions`.
    """
    names = list(classes)[:MOST_CLASSES]
    index = {name: position for position, name in enumerate(names)}
    table = np.zeros((len(names), len(names)))
    for seen, said in zip(observed, predicted, strict=True):
        if seen in index and said in index:
            table[index[seen], index[said]] += 1.0
    if not table.any():
        raise InputError("must be known for some document, with its prediction", parameter="observed")
    ax = axes_of(ax, width=2.1 + 0.24 * len(names), height=1.7 + 0.21 * len(names))
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1.0)
    for row, column in np.argwhere(shares >= 0.005).tolist():
        ax.barh(
            *(row, 0.92),
            left=column - 0.46,
            height=0.88,
            color=HIGHER if row == column else LOWER,
            alpha=round(float(0.08 + 0.92 * shares[row, column]), 3),
            linewidth=0.0,
        )
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_ylim(len(names) - 0.5, -0.5)
    shown = [clipped(name, 22) for name in names]
    ax.set_yticks(range(len(names)), shown, parse_math=False)
    ax.set_xticks(range(len(names)), shown, rotation=60, ha="right", parse_math=False)
    ax.set_ylabel("observed")
    ax.set_xlabel("predicted")
    tidied(ax, grid="")
    ax.tick_params(labelsize=8)
    return ax


def _pair(observed: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as arrays, of the documents that have both."""
    y, expected = (np.asarray(values, dtype=np.float64) for values in (observed, predicted))
    if y.shape != expected.shape or y.ndim != 1:
        raise InputError(
            f"must have as many values as predictions, got shapes {y.shape} and {expected.shape}",
            parameter="observed",
        )
    known = np.isfinite(y) & np.isfinite(expected)
    if not known.any():
        raise InputError("must be known for some document, with its prediction", parameter="observed")
    return y[known], expected[known]


def _tenths(values: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Positions of the documents in each tenth, from the lowest values to the highest."""
    order = np.argsort(values, kind="stable")
    return [part for part in np.array_split(order, N_BINS) if len(part)]


def _spread(ax: Any, values: NDArray[np.float64], place: float) -> None:
    """The median, the half in the middle and 90% of values, on a line."""
    lowest, low, middle, high, highest = np.quantile(values, SPREAD).tolist()
    ax.plot([lowest, highest], [place, place], color=HIGHER, linewidth=1.2, solid_capstyle="butt")
    ax.plot([low, high], [place, place], color=HIGHER, linewidth=5.0, solid_capstyle="butt", alpha=0.55)
    ax.plot([middle], [place], "o", color=HIGHER, markersize=5.5)


def _cloud(ax: Any, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    """Points, or cells that are darker the more points they hold: a page must stay small."""
    if len(x) <= MOST_POINTS:
        ax.plot(x, y, "o", color=HIGHER, markersize=3.0, alpha=0.4, markeredgewidth=0.0)
        return
    counts, across, up = np.histogram2d(x, y, bins=N_CELLS)
    wide, high = across[1] - across[0], up[1] - up[0]
    for column, row in np.argwhere(counts > 0).tolist():
        weight = (counts[column, row] / counts.max()) ** 0.5
        ax.bar(
            *(across[column], high),
            bottom=up[row],
            width=wide,
            align="edge",
            color=HIGHER,
            alpha=round(float(0.08 + 0.8 * weight), 2),
            linewidth=0.0,
        )
    ax.margins(0.02)
    ax.tick_params(colors=INK)
