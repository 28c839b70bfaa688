"""The picture of a cross-validation, by matplotlib, which is installed apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dslda.report.drawing import axes_of

if TYPE_CHECKING:
    from dslda.cross_validation.evaluation import Evaluation

__all__ = ["draw"]

RIVALS = {"TF-IDF + linear model": "tab:orange", "LDA + linear model": "tab:green"}


def draw(evaluation: Evaluation, ax: Any) -> Any:
    """See :meth:`~dslda.cross_validation.evaluation.Evaluation.plot`."""
    ax = axes_of(ax, width=6.4, height=4.0)
    key, name = evaluation.headline
    ours = sorted((r for r in evaluation.rows if r["method"] == "dslda"), key=lambda row: row["n_topics"])
    numbers = [row["n_topics"] for row in ours]
    ax.plot(numbers, [row[key] for row in ours], "o-", color="tab:blue", label="dslda")
    if evaluation.choice.topics_alone:
        alone = [row["topics_alone"] for row in ours]
        ax.plot(numbers, alone, "o--", color="tab:blue", markerfacecolor="white", label="dslda, topics alone")
    for row in evaluation.rows:
        if row["method"] != "dslda":
            ax.axhline(row[key], color=RIVALS[row["method"]], linewidth=1.0, label=row["method"])
    ax.axvline(
        evaluation.choice.n_topics, color="0.6", linestyle=":", label=f"choose {evaluation.choice.n_topics}"
    )
    if max(numbers) > 4 * min(numbers):
        ax.set_xscale("log")
    ax.set_xticks(numbers, [str(number) for number in numbers], minor=False)
    ax.minorticks_off()
    ax.set_xlabel("topics")
    ax.set_ylabel(f"{name} of documents not trained on")
    ax.set_title(
        f"{evaluation.response}: {evaluation.n_documents:,} documents, {evaluation.splitting}", fontsize=9
    )
    ax.legend(fontsize=8)
    return ax
