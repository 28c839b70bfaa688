"""What a notebook shows of a model: how well it predicts, and its topics with their coefficients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dslda.notebook_card import notebook_card
from dslda.report.drawing import coefficient_axis
from dslda.report.findings import Findings, topics_with_cards
from dslda.report.model_sections import response_in_words
from dslda.report.topic_sections import topic_in_short
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.model import Model

__all__ = ["model_card"]


def model_card(model: Model) -> str:
    """See :class:`~dslda.model.Model`: its ``_repr_html_``."""
    findings = Findings(model)
    topics = topics_with_cards(model, findings.topics)
    rows = [_row(topic_in_short(topic, findings), findings) for topic in topics]
    notes = []
    if hidden := model.n_topics - len(topics):
        notes.append(f"{number_of(hidden, 'topic')} more: model.topic_table() has all.")
    if any(topic.topic in findings.unstable for topic in topics):
        notes.append("* Other starts do not find this topic.")
    return notebook_card(
        f"Supervised topic model of {findings.response}: {number_of(model.n_topics, 'topic')}",
        facts=_facts(findings),
        columns=list(rows[0]),
        rows=[list(row.values()) for row in rows],
        texts=("topic", "class", "level", "words"),
        notes=notes,
    )


def _facts(findings: Findings) -> Iterator[tuple[str, str]]:
    model = findings.model
    training = model.training
    yield "Response", f"{response_in_words(findings)}; {model.spec.family}"
    yield (
        "Trained on",
        f"{number_of(training.n_documents, 'document')}, {number_of(training.n_tokens, 'token')} of "
        f"{number_of(model.n_terms, 'term')}; {model.spec.objective} objective",
    )
    if training.held_out is not None:
        yield "Predicts", training.held_out.in_words
    if model.stability is not None:
        yield "Stability", model.stability.in_words
    yield "Coefficients", coefficient_axis(model)


def _row(topic: dict[str, Any], findings: Findings) -> dict[str, str]:
    """A topic as the report shows it, by the heads of the table."""
    row = {"topic": topic["title"]}
    if findings.topics[0].class_name is not None:
        row["class" if findings.has_classes else "level"] = topic["class_name"]
    row["coefficient"] = topic["coefficient"]
    if findings.has_intervals:
        row["95% interval"] = topic["interval"]
    return row | {"words": topic["first_words"]}
