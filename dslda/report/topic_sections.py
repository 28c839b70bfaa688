"""Sections about the topics: the answer in short, the figure, and a card for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dslda.persistence.model_record import HeldOut
from dslda.report import topic_figures
from dslda.report.drawing import coefficient_axis, outcome, topic_title
from dslda.report.findings import Findings, topics_with_cards
from dslda.report.formatting import Digits, response_value, signed
from dslda.report.inline_svg import inline_svg
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.coefficients import Coefficient, Topic
    from dslda.evaluation.intervals import Intervals

__all__ = ["answer", "axis", "cards", "class_map", "topic_in_short"]

LEADING = 3
LEADING_WORDS = 6
MOST_CLASSES = 30
SHARE = 0.1
"""Share of a document's words, for a coefficient in terms of documents that there are."""


def answer(findings: Findings) -> dict[str, Any]:
    """How well the model predicts, and the topics that matter most."""
    model = findings.model
    content: dict[str, Any] = {"quality": _quality(findings), "unstable": len(findings.unstable)}
    content["has_intervals"] = findings.has_intervals
    content["has_stability"] = model.stability is not None
    content["conditional"] = model.spec.objective == "conditional"
    if findings.has_classes:
        by_number = {topic.topic: topic for topic in findings.topics}
        rows = [
            (name, [(by_number[row.topic], _estimate(row, findings)) for row in _clearly_raising(raising)])
            for name, raising in model.class_topics(LEADING).items()
        ]
        content["classes"] = rows[:MOST_CLASSES]
        content["n_classes"] = len(rows)
        return content
    lowering = [topic for topic in findings.topics if topic.coefficient < findings.average][:LEADING]
    raising = [topic for topic in findings.topics if topic.coefficient >= findings.average][::-1][:LEADING]
    content["lowering"] = [_leading(topic, findings) for topic in lowering]
    content["raising"] = [_leading(topic, findings) for topic in raising]
    content["average"] = findings.digits.shown(findings.average)
    content["outcome"], content["unit"] = outcome(model), coefficient_axis(model)
    return content


def _leading(topic: Topic, findings: Findings) -> dict[str, Any]:
    telling = findings.typical_words[topic.topic][:LEADING_WORDS]
    return topic_in_short(topic, findings) | {"telling_words": ", ".join(telling)}


def _clearly_raising(rows: Sequence[Coefficient]) -> list[Coefficient]:
    """The first topic, and others with at least a tenth of its coefficient."""
    return [row for row in rows if row.coefficient >= 0.1 * rows[0].coefficient]


def axis(findings: Findings) -> dict[str, Any] | None:
    """The topics on the axis of their coefficients, for a wide and a narrow page."""
    if findings.has_classes:
        return None
    model, topics = findings.model, findings.topics
    shown = topic_figures.both_ends(topics)
    ends = " to ".join(
        f"{each.coefficient:.3g} ({', '.join(each.words[:4])})" for each in (shown[0], shown[-1])
    )
    bars = " with their 95% intervals" if findings.has_intervals else ""
    description = (
        f"{number_of(len(shown), 'topic')}{bars}, from {ends}. The average document lies at "
        f"{findings.average:.3g}. The cards below have all numbers."
    )
    return {
        "figures": [
            (
                kind,
                inline_svg(
                    topic_figures.topics(model, narrow=kind == "narrow"),
                    key=f"axis-{kind}",
                    title=f"Topics by their coefficient for {findings.response}",
                    description=description,
                ),
            )
            for kind in ("wide", "narrow")
        ],
        "n_hidden": len(topics) - len(shown),
        "each_end": topic_figures.EACH_END,
        "has_intervals": findings.has_intervals,
    }


def class_map(findings: Findings) -> dict[str, Any] | None:
    """The topics by the classes."""
    if not findings.has_classes:
        return None
    model = findings.model
    return {
        "figure": inline_svg(
            topic_figures.class_map(model),
            key="map",
            title=f"Log odds of each class of {findings.response}, by topic",
            description="Rows are topics and columns are classes: blue where a topic speaks for a class, red where it speaks "
            "against it. The table at the top names the topics of each class.",
        ),
        "n_hidden": max(model.n_topics - 2 * topic_figures.EACH_END, 0),
        "n_hidden_classes": max(len(model.classes or ()) - topic_figures.MOST_CLASSES, 0),
    }


def cards(findings: Findings) -> dict[str, Any]:
    """A card for each topic; of many topics a table of the others."""
    chosen = topics_with_cards(findings.model, findings.topics)
    with_card = {topic.topic for topic in chosen}
    others = [topic for topic in findings.topics if topic.topic not in with_card]
    sample = findings.sample
    return {
        "cards": [_card(topic, findings) for topic in chosen],
        "others": [_card(topic, findings) for topic in others],
        "excerpts": findings.excerpts,
        "has_documents": sample is not None,
        "sampled": None
        if sample is None or len(sample.rows) == sample.n_documents
        else f"{len(sample.rows):,} of {number_of(sample.n_documents, 'document')}",
    }


def _card(topic: Topic, findings: Findings) -> dict[str, Any]:
    most = max(topic.probabilities, default=1.0) or 1.0
    documents = [
        {
            "id": each.id,
            "share": f"{each.share:.0%}",
            "n": each.known_tokens,
            "observed": response_value(each.observed),
            "predicted": response_value(each.predicted),
            "words": each.words,
            "excerpt": each.excerpt,
        }
        for each in findings.documents.get(topic.topic, ())
    ]
    return topic_in_short(topic, findings) | {
        "words": [
            (word, f"{p:.4f}", round(100.0 * p / most))
            for word, p in zip(topic.words, topic.probabilities, strict=True)
        ],
        "typical": ", ".join(findings.typical_words[topic.topic]),
        "lowers": not findings.has_classes and topic.coefficient < findings.average,
        "measures": _measures(topic),
        "documents": documents,
    }


def _measures(topic: Topic) -> list[tuple[str, str, str]]:
    """Name, value and meaning of each measure that a topic has."""
    measures = [
        ("prevalence", topic.prevalence, "share of all words that are of this topic", "{:.1%}"),
        (
            "coherence",
            topic.coherence,
            "how much more often than by chance its top words share a document, -1 to 1",
            "{:.2f}",
        ),
        ("exclusivity", topic.exclusivity, "1 if no other topic has its top words", "{:.2f}"),
        ("stability", topic.stability, "how much of it other starts of training find, 0 to 1", "{:.2f}"),
    ]
    return [
        (name, form.format(value), meaning)
        for name, value, meaning, form in measures
        if value is not None and not math.isnan(value)
    ]


def topic_in_short(topic: Topic, findings: Findings) -> dict[str, Any]:
    """A topic by its first words, coefficient and interval, and what a tenth of a document's words in it does."""
    ends = [SHARE * (findings.topics[place].coefficient - findings.average) for place in (0, -1)]
    of_tenth = SHARE * (topic.coefficient - findings.average)
    return {
        "number": topic.topic,
        "title": topic_title(topic, findings.unstable),
        "is_unstable": topic.topic in findings.unstable,
        "first_words": ", ".join(topic.words[:LEADING_WORDS]),
        "class_name": topic.class_name,
        "may_be_neither": topic.low is not None
        and topic.high is not None
        and topic.low <= findings.average <= topic.high,
        "of_tenth": Digits.of_numbers(ends).shown(of_tenth, sign=True),
        **_estimate(topic, findings),
    }


def _estimate(row: Topic | Coefficient, findings: Findings) -> dict[str, Any]:
    """A coefficient with its interval, or else its conditional error."""
    digits = findings.digits
    shown: dict[str, Any] = {"coefficient": digits.shown(row.coefficient, sign=findings.has_classes)}
    shown["interval"], shown["error"] = None, None
    if row.low is not None and row.high is not None:
        shown["interval"] = f"{digits.shown(row.low)} to {digits.shown(row.high)}"
    elif not math.isnan(row.conditional_error):
        shown["error"] = digits.shown(row.conditional_error)
    return shown


def _quality(findings: Findings) -> dict[str, Any]:
    """The headline figure, in a sentence, beside that of the rival."""
    model, held_out = findings.model, findings.model.training.held_out
    content: dict[str, Any] = {
        "response": findings.response,
        "intervals": (),
        "rival": None,
        "measured": None,
    }
    if held_out is not None:
        content |= {"measured": True} | _in_words(held_out, findings)
    if (rival := findings.rival) is not None:
        form = "{:.0%}" if rival.measure == "accuracy" else "{:.3f}"
        content |= {
            "rival": rival.name,
            "same": held_out is not None and rival.n_documents == held_out.n_documents,
            "rival_n": f"{rival.n_documents:,}",
            "measure": "share of right classes" if rival.measure == "accuracy" else "predictive R²",
            "ours": form.format(rival.ours),
            "theirs": form.format(rival.theirs),
        }
    reference = model.record.reference
    if reference is not None and reference.intervals is not None:
        content["intervals"] = _interval_rows(reference.intervals)
    return content


def _in_words(held_out: HeldOut, findings: Findings) -> dict[str, Any]:
    documents = number_of(held_out.n_documents, "document")
    documents += " that training set aside to choose by" if held_out.set_aside else " kept from training"
    worse = " The figure is a little too good, since they chose when to stop." if held_out.set_aside else ""
    if held_out.measure == "accuracy":
        error = "" if held_out.standard_error is None else f" (standard error {held_out.standard_error:.1%})"
        most = held_out.most_frequent
        alone = "" if most is None else f" The most frequent class alone would be right for {most:.0%}."
        sentence = f"of the classes of {documents} are right{error}.{alone}{worse}"
        return {"figure": f"{held_out.value:.0%}", "sentence": sentence}
    error = "" if held_out.standard_error is None else f", standard error {held_out.standard_error:.3f}"
    if held_out.is_worse_than_mean:
        worse += " That is worse than saying the mean of all."
    return {
        "figure": f"{max(held_out.value, 0.0):.0%}",
        "sentence": f"of the variation of {findings.response} among {documents} is explained (predictive "
        f"R² {held_out.value:.3f}{error}; 1 is perfect, 0 no better than the mean).{worse}",
    }


def _interval_rows(intervals: Intervals) -> list[tuple[str, str, str]]:
    """Which predictions, and how far below and above nine of ten responses lie."""
    rows = [(f"predictions of {place:.3g}", low, high) for place, low, high in intervals.examples]
    if not rows:
        rows = [("all predictions", *intervals.bounds[0].tolist())]
    return [(place, signed(low), signed(high)) for place, low, high in rows]
