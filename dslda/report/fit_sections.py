"""Sections about predictions: how one comes about, and all of them beside what was observed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dslda.exceptions import InputError
from dslda.report import document_figures, prediction_figures
from dslda.report.findings import Findings
from dslda.report.formatting import Digits, response_value
from dslda.report.inline_svg import inline_svg

__all__ = ["example", "example_topic", "predictions"]

CANDIDATES = 300
"""Documents out of which the example is chosen."""
FEWEST = 10
"""Documents with a response and a prediction below which a figure says nothing."""


def example_topic(findings: Findings) -> tuple[int, int, float] | None:
    """Topic, row and share of a document to take apart: of some of usual length, one in which several topics matter."""
    model, corpus, sample = findings.model, findings.corpus, findings.sample
    if findings.has_classes or corpus is None or sample is None or model.topic_prevalence is None:
        return None
    candidates = np.flatnonzero(findings.compared & (sample.known_tokens >= np.median(sample.known_tokens)))
    if not len(candidates):
        return None
    chosen = candidates[
        np.linspace(0, len(candidates) - 1, min(CANDIDATES, len(candidates))).astype(np.int64)
    ]
    rows = sample.rows[chosen]
    table = model.contributions(corpus, documents=rows, realign=findings.realign)
    topics = np.array([table[f"topic_{k}"].to_pylist() for k in range(model.n_topics)], dtype=np.float64)
    sizes = np.abs(topics)
    place = int(np.nan_to_num(sizes.sum(axis=0) - sizes.max(axis=0), nan=-1.0).argmax())
    largest = int(np.nan_to_num(sizes[:, place]).argmax())
    return largest, int(rows[place]), math.nan


def example(findings: Findings) -> dict[str, Any] | None:
    """The contributions to the prediction of one document."""
    model, document = findings.model, findings.example
    if document is None:
        return None
    table = model.contributions(findings.corpus, documents=[document.row], realign=findings.realign)
    try:
        average, steps, total = document_figures.contribution_steps(model, table)
    except InputError:  # a covariate is missing
        return None
    digits = Digits.of_numbers([value for _, value in steps])
    return {
        "id": document.id,
        "excerpt": document.excerpt,
        "observed": response_value(document.observed),
        "predicted": response_value(document.predicted),
        "average": digits.shown(average),
        "total": digits.shown(total),
        "steps": [(label, digits.shown(value, sign=True)) for label, value in steps],
        "is_linear": model.family.link == "identity",
        "n_starts": len(model.record.starts),
        "figure": inline_svg(
            document_figures.contributions(model, table),
            key="example",
            title=f"Contributions to the prediction for document {document.id}",
            description=f"From the average document, {digits.shown(average)}, to this document, {digits.shown(total)}; the "
            "table beside it has the steps.",
        ),
    }


def predictions(findings: Findings) -> dict[str, Any]:
    """Figures of predictions against observed responses, or why there are none."""
    sample, record = findings.sample, findings.model.record
    if sample is None or findings.corpus is None:
        return {
            "why_not": "This report was made without a corpus, so it has no documents to compare predictions with."
        }
    compared = findings.compared
    if compared.sum() < FEWEST:
        return {
            "why_not": f"The corpus has fewer than {FEWEST} documents with {findings.response} and a prediction, so there is "
            "nothing to compare."
        }
    observed, predicted = sample.observed[compared], sample.predicted[compared]
    name = findings.response
    figures: list[tuple[str, str, str]] = []

    def add(key: str, axes: Any, title: str, caption: str) -> None:
        figures.append((title, inline_svg(axes, key=key, title=title, description=caption), caption))

    if record.predicts_names:
        add(
            "confusion",
            prediction_figures.confusion(observed.tolist(), predicted.tolist(), classes=record.classes or ()),
            "Predicted and observed classes",
            "Each row has the documents of an observed class: the darker a cell, the more of them were predicted as its "
            "column. On the diagonal predictions are right.",
        )
    elif record.classes is not None and record.level_numbers is None:
        event = f"{name} = {record.classes[1]}"
        add(
            "calibration",
            prediction_figures.calibration(observed.astype(float), predicted.astype(float), event=event),
            "Do the probabilities hold?",
            "Documents in tenths of their predicted probability. Where dots lie on the dashed line, of ten documents with "
            "probability 0.3 the event happens in three.",
        )
    else:
        y, expected = observed.astype(np.float64), predicted.astype(np.float64)
        caption = (
            "Each row has the documents with one observed value: the dot is the median prediction, the thick bar half of the "
            "predictions, the thin one nine of ten. The tick is where predictions would be right."
            if len(np.unique(y)) <= prediction_figures.MOST_LEVELS
            else "The darker a cell, the more documents it holds. Dots are the means of tenths of the predictions; on the "
            "dashed line predictions are right."
        )
        add(
            "observed",
            prediction_figures.predictions(y, expected, response=name),
            "Predicted and observed",
            caption,
        )
        add(
            "residuals",
            prediction_figures.residuals(y, expected, response=name),
            "What predictions miss",
            "Observed minus predicted, in tenths of the predictions: median, half of the documents, nine of ten. Medians off "
            "the dashed line mean that predictions of this size are too high (left) or too low (right).",
        )
    if sample.certainty is not None and sample.names is not None and record.predicts_names:
        add(
            "certainty",
            prediction_figures.calibration(
                (observed == predicted).astype(float), sample.certainty[compared], event="the predicted class"
            ),
            "Do the probabilities hold?",
            "Documents in tenths of the probability of their predicted class, and the share of them where it is right.",
        )
    return {"figures": figures, "documents": findings.compared_in_words}
