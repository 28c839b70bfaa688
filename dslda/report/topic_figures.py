"""Figures of topics: on the axis of their coefficients, against classes, and by their words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dslda.exceptions import InputError
from dslda.report.drawing import (
    HIGHER,
    INK,
    LOWER,
    MUTED,
    PAPER,
    RULE,
    average_document,
    axes_of,
    clipped,
    coefficient_axis,
    joined_words,
    tidied,
    topic_title,
)
from dslda.report.model_notes import unstable_topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dslda.coefficients import Topic
    from dslda.model import Model

__all__ = ["EACH_END", "both_ends", "class_map", "topics", "words"]

EACH_END = 15
"""Topics at either end that a figure shows, of more than twice as many: more would be no larger than their lines."""
MOST_CLASSES = 30


def both_ends(rows: Sequence[Topic]) -> list[Topic]:
    """All topics, or the lowest and the highest of many, in their order."""
    if len(rows) <= 2 * EACH_END:
        return list(rows)
    return [*rows[:EACH_END], *rows[-EACH_END:]]


def topics(model: Model, *, narrow: bool = False, ax: Any = None) -> Any:
    """Topics on the axis of their coefficients, the lowest at the top, with their most probable words.

    This is figure 2 of Blei and McAuliffe (2007). Bars are 95% intervals, of a fit with a bootstrap. The dashed line is
    the average document.

    Parameters
    ----------
    model : Model
        Of many topics, the 15 lowest and the 15 highest are shown.
    narrow : bool, default False
        Put words above their bars instead of beside them, for a narrow page.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default those of a new figure, ``ax.figure``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        matplotlib is not installed.
    """
    all_rows = model.topics(top=10)
    rows = both_ends(all_rows)
    step = 0.44 if narrow else 0.27
    width = 3.7 if narrow else 9.4
    ax = axes_of(ax, width=width, height=0.85 + step * (len(rows) + (len(rows) < len(all_rows))))
    average, unstable = average_document(model), unstable_topics(model)
    gap = EACH_END if len(rows) < len(all_rows) else len(rows)
    places = [place + (place >= gap) for place in range(len(rows))]
    labels = []
    for place, row in zip(places, rows, strict=True):
        colour = LOWER if row.coefficient < average else HIGHER
        if row.low is not None:
            ax.plot([row.low, row.high], [place, place], color=colour, linewidth=2.0, solid_capstyle="butt")
        ax.plot([row.coefficient], [place], "o", color=colour, markersize=5.5)
        of_class = "" if row.class_name is None else f" → {clipped(row.class_name, 20)}"
        text = joined_words(row.words, 34 if narrow else 60)
        labels.append(f"{topic_title(row, unstable)}{of_class} · {text}")
    ax.axvline(average, color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)), zorder=0)
    ax.set_ylim(places[-1] + 0.6, -0.75 if narrow else -0.6)
    if narrow:
        ax.set_yticks([])
        across = ax.get_yaxis_transform()
        for place, label in zip(places, labels, strict=True):
            ax.text(
                *(0.0, place - 0.24, clipped(label, 52)),
                transform=across,
                color=INK,
                fontsize=8.5,
                parse_math=False,
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6},
            )
    else:
        ax.set_yticks(places, labels, parse_math=False)
    if len(rows) < len(all_rows):
        text = f"{len(all_rows) - len(rows):,} topics between these are not shown"
        ax.text(
            0.01, EACH_END, text, transform=ax.get_yaxis_transform(), va="center", fontsize=8.5, color=MUTED
        )
    ax.set_xlabel(coefficient_axis(model), parse_math=False)
    tidied(ax)
    if narrow:  # lines would run through the words
        ax.grid(False)
    return ax


def class_map(model: Model, ax: Any = None) -> Any:
    """Topics by classes: blue where a topic speaks for a class, red where it speaks against it, by log odds.

    Parameters
    ----------
    model : Model
        Of a response with classes. Of many topics, those with the largest coefficients are shown, of many classes the
        first 30.
    ax
        As in :func:`topics`.

    Raises
    ------
    InputError
        The response has one coefficient a topic, or matplotlib is not installed.
    """
    coefficients = model.class_coefficients()
    names = list(model.classes or ())[:MOST_CLASSES]
    coefficients = coefficients[:, : len(names)]
    by_number = {topic.topic: topic for topic in model.topics(top=4)}
    strongest = np.argsort(-np.abs(coefficients).max(axis=1), kind="stable")[: 2 * EACH_END]
    # beside the classes that they raise most, so that the map has a diagonal
    favoured = coefficients.argmax(axis=1)
    order = sorted(strongest.tolist(), key=lambda k: (favoured[k], -coefficients[k, favoured[k]]))
    labelled = [f"{topic_title(by_number[k])} · {joined_words(by_number[k].words, 26)}" for k in order]
    ax = axes_of(ax, width=2.9 + 0.26 * len(names), height=1.7 + 0.21 * len(order))
    shown = coefficients[order]
    largest = float(np.abs(shown).max()) or 1.0
    for row, values in enumerate(shown):
        for column, value in enumerate(values.tolist()):
            # one colour each, more or less of it, so that a page can exchange the colours
            ax.barh(
                *(row, 0.92),
                left=column - 0.46,
                height=0.88,
                color=HIGHER if value >= 0.0 else LOWER,
                alpha=round(0.04 + 0.96 * abs(value) / largest, 3),
                linewidth=0.0,
            )
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.set_yticks(range(len(order)), labelled, parse_math=False)
    ax.set_xticks(
        range(len(names)), [clipped(name, 24) for name in names], rotation=60, ha="right", parse_math=False
    )
    ax.tick_params(axis="x", rotation=60)
    tidied(ax, grid="")
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(labelsize=8)
    return ax


def words(model: Model, topic: int, *, top: int = 15, ax: Any = None) -> Any:
    """The `top` most probable words of a topic, with their probabilities.

    Parameters
    ----------
    model : Model
    topic : int
        0 to K - 1.
    top : int, default 15
    ax
        As in :func:`topics`.

    Raises
    ------
    InputError
        There is no such topic, `top` is below 1, or matplotlib is not installed.
    """
    rows = {row.topic: row for row in model.topics(top=top)}
    if topic not in rows:
        raise InputError(f"must be in 0..{model.n_topics - 1}, got {topic!r:.60}", parameter="topic")
    row = rows[topic]
    ax = axes_of(ax, width=4.0, height=0.8 + 0.22 * len(row.words))
    places = range(len(row.words))
    ax.barh(places, row.probabilities, height=0.62, color=HIGHER)
    ax.set_yticks(places, [clipped(word, 30) for word in row.words], parse_math=False)
    ax.invert_yaxis()
    ax.set_xlabel(f"probability in topic {topic_title(row)}", parse_math=False)
    tidied(ax)
    ax.spines["bottom"].set_color(RULE)
    return ax
