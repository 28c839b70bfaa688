"""Figures of how a prediction comes about, and of how training ended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError
from dslda.report.drawing import (
    HIGHER,
    INK,
    LOWER,
    MUTED,
    axes_of,
    clipped,
    coefficient_axis,
    joined_words,
    tidied,
    topic_title,
)
from dslda.report.formatting import Digits
from dslda.wording import number_of

if TYPE_CHECKING:
    import pyarrow as pa

    from dslda.model import Model

__all__ = ["Step", "contribution_steps", "contributions", "convergence"]

MOST_STEPS = 7
"""Contributions that are shown by themselves; the others are added up."""
SMALLEST = 0.02
"""Share of the largest contribution below which one is not shown by itself."""

Step = tuple[str, float]
"""What contributes, and how much."""


def contribution_steps(model: Model, table: pa.Table, row: int = 0) -> tuple[float, list[Step], float]:
    """The average, the strongest contributions in the order of their size, and their sum, of a row of a table.

    What words add beyond the topics comes last, however little it is. `table` is that of
    :meth:`~dslda.model.Model.contributions`.
    """
    if not 0 <= row < table.num_rows:
        raise InputError(f"must be in 0..{table.num_rows - 1}, got {row}", parameter="row")
    values = table.slice(row, 1).to_pylist()[0]
    average, total = values.pop("average", None), values.pop("linear_predictor")
    values.pop("id")
    if total is None or average is None or any(value is None for value in values.values()):
        raise InputError(
            "must have a known word and all covariates, with contributions relative to the average",
            parameter="table",
        )
    beyond = values.pop("words_beyond_topics", None)
    by_number = {topic.topic: topic for topic in model.topics(top=4)}

    def title(name: str) -> str:
        if name.startswith("topic_"):
            topic = by_number[int(name.removeprefix("topic_"))]
            return f"{topic_title(topic)} · {joined_words(topic.words, 24)}"
        return clipped(name.removeprefix("covariate_").replace("_", " "), 30)

    named = [(title(name), float(value)) for name, value in values.items()]
    ordered = sorted(named, key=lambda step: -abs(step[1]))
    bar = SMALLEST * abs(ordered[0][1])
    steps = [step for step in ordered[:MOST_STEPS] if abs(step[1]) >= bar]
    if others := ordered[len(steps) :]:
        steps.append((number_of(len(others), "other"), sum(value for _, value in others)))
    if beyond is not None:
        steps.append(("words beyond the topics", float(beyond)))
    return float(average), steps, float(total)


def contributions(model: Model, table: pa.Table, row: int = 0, ax: Any = None) -> Any:
    """How a prediction comes about: from the average document, by what each topic adds, to the linear predictor.

    Parameters
    ----------
    model : Model
    table : pyarrow.Table
        From :meth:`~dslda.model.Model.contributions`.
    row : int, default 0
        The document's row in the table.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default those of a new figure, ``ax.figure``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        There is no such row, its document has no known word, or matplotlib is not installed.
    """
    average, steps, total = contribution_steps(model, table, row)
    digits = Digits.of_numbers([value for _, value in steps])
    ax = axes_of(ax, width=5.0, height=0.9 + 0.3 * (len(steps) + 2))
    at, labels = average, ["the average document"]
    ax.plot([average], [0], "D", color=MUTED, markersize=6)
    for place, (label, value) in enumerate(steps, 1):
        colour = LOWER if value < 0.0 else HIGHER
        ax.barh(place, value, left=at, height=0.56, color=colour)
        ax.plot([at, at], [place - 1, place], color=MUTED, linewidth=0.8)
        at += value
        labels.append(f"{label}  {digits.shown(value, sign=True)}")
    ax.plot([at, at], [len(steps), len(steps) + 1], color=MUTED, linewidth=0.8)
    ax.plot([total], [len(steps) + 1], "D", color=INK, markersize=6)
    labels[0] += f"  {digits.shown(average)}"
    labels.append(f"this document  {digits.shown(total)}")
    ax.set_yticks(range(len(labels)), labels, parse_math=False)
    ax.invert_yaxis()
    ax.use_sticky_edges = False
    ax.margins(x=0.06)
    ax.set_xlabel(coefficient_axis(model), parse_math=False)
    return tidied(ax)


def convergence(model: Model, ax: Any = None) -> Any:
    """What training maximised, by iteration: of conditional training, what words add to the log-likelihood of a response.

    Parameters
    ----------
    model : Model
    ax
        As in :func:`contributions`.

    Raises
    ------
    InputError
        The model has no trace, or matplotlib is not installed.
    """
    trace = model.trace
    gains = [(i, g) for i, g in enumerate(trace.get("inner_gain", ()), 1) if not math.isnan(g)]
    name = "gain of the log-likelihood of a\nresponse of documents set aside"
    if not gains:
        gains = [(i, v) for i, v in enumerate(trace.get("elbo", ()), 1) if not math.isnan(v)]
        name = "evidence lower bound"
    if not gains:
        raise InputError("has no trace of its training", parameter="model")
    ax = axes_of(ax, width=4.4, height=3.0)
    iterations, values = zip(*gains, strict=True)
    ax.plot(iterations, values, "o-", color=HIGHER, markersize=3.0, linewidth=1.4)
    ax.set_xlabel("iteration")
    ax.set_ylabel(name)
    ax.xaxis.get_major_locator().set_params(integer=True)
    return tidied(ax, grid="both")
