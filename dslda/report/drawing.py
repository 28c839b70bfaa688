"""What the figures share: axes, colours, and words that fit beside an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dslda.exceptions import InputError
from dslda.report.model_notes import topic_name
from dslda.wording import labelled, printable

if TYPE_CHECKING:
    from collections.abc import Collection

    from dslda.coefficients import Topic
    from dslda.model import Model

__all__ = [
    "AXIS_NAMES",
    "HIGHER",
    "INK",
    "LOWER",
    "MUTED",
    "PAPER",
    "RULE",
    "average_document",
    "axes_of",
    "clipped",
    "coefficient_axis",
    "joined_words",
    "outcome",
    "tidied",
    "topic_title",
]

INK, MUTED, RULE, PAPER = "#1d2330", "#5c6573", "#c3c9d3", "#fdfdfb"
LOWER, HIGHER = "#a9431e", "#2a5f9e"
"""Below and above the average document: apart also for those who do not tell red from green."""

LONGEST_WORD = 22

AXIS_NAMES = {
    "identity": "{name}",
    "log": "log of {name}",
    "logit": "log odds of {name}",
    "cumulative logit": "log odds of a higher {name}",
    "softmax": "log odds of {name}",
}
"""What a linear predictor is of, by the family's link."""


def axes_of(ax: Any, *, width: float, height: float) -> Any:
    """The axes given, or those of a new figure of this size in inches.

    Raises
    ------
    InputError
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "figures take matplotlib, which is not installed", remedy="pip install 'dslda[plot]'"
        ) from None
    # not pyplot, whose global state belongs to the user
    return Figure(figsize=(width, height), layout="constrained").add_subplot() if ax is None else ax


def tidied(ax: Any, *, grid: str = "x") -> Any:
    """Axes with quiet frames and a grid."""
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(RULE)
    ax.tick_params(colors=INK, labelsize=9, length=0)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    ax.xaxis.label.set_size(9)
    ax.yaxis.label.set_size(9)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=RULE, linewidth=0.6)
    return ax


def clipped(text: str, longest: int) -> str:
    """Text of one line and of at most this length."""
    text = printable(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def joined_words(words: tuple[str, ...], longest: int) -> str:
    """As many of the words as fit, the first in any case, with commas between them."""
    shown = ""
    for word in words:
        longer = f"{shown}, {clipped(word, LONGEST_WORD)}" if shown else clipped(word, LONGEST_WORD)
        if shown and len(longer) > longest:
            break
        shown = longer
    return shown


def topic_title(topic: Topic, unstable: Collection[int] = ()) -> str:
    """The number of a topic, with a star if it is unstable, and its label where it has one."""
    label = None if topic.label is None else clipped(topic.label, 2 * LONGEST_WORD)
    return labelled(topic_name(topic.topic, unstable), label)


def average_document(model: Model) -> float:
    """The linear predictor of a document with the topics of all training documents, without covariates."""
    coefficients = sorted(model.coefficients())
    values = np.array([row.coefficient for row in coefficients])
    # models of early releases do not know how frequent topics are
    return float(np.average(values, weights=model.topic_prevalence))


def coefficient_axis(model: Model) -> str:
    """Name of the axis of coefficients."""
    name, link = outcome(model), model.family.link
    words = AXIS_NAMES.get(link, f"{link} of {{name}}").format(name=name)
    return f"expected {words}" if link in ("identity", "log") else words


def outcome(model: Model) -> str:
    """The response, or of two classes the one that coefficients are of: ``recommended = yes``."""
    name = clipped(model.response or "the response", 40)
    if model.family.link == "logit" and model.record.classes and model.classes:
        name = f"{name} = {clipped(model.classes[1], 30)}"
    return name
