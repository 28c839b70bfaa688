"""What a reader of a model's tables must know, in sentences, and the words of its figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from dslda.coefficients import Coefficient, CovariateCoefficient, WordsBeyond
from dslda.exceptions import Note
from dslda.variational.statistics import has_pearson
from dslda.wording import labelled

if TYPE_CHECKING:
    from dslda.model import Model

__all__ = [
    "beyond_in_words",
    "covariate_name",
    "notes",
    "pearson_words",
    "raising_words",
    "threshold_words",
    "topic_name",
    "uncertainty",
    "unstable_topics",
]

BEYOND_WORDS = 8
"""Words that raise, and words that lower, in the line of the words beyond the topics."""

SHORT = 50.0
"""Mean number of known words of a document below which coefficients may be off by more than their errors: docs/model.md."""

SCALES = {
    "log": "Coefficients are logarithms: 0.1 more is about 10% more.",
    "logit": "Coefficients are log odds.",
    "cumulative logit": "Coefficients are log odds of lying above the lowest level; above another they are less by its "
    "threshold.",
    "softmax": "Coefficients are log odds, of the class that a topic speaks for most; {class_topics()} has all.",
}
"""Scale of the coefficients by the family's link, where it is not the scale of the response."""


def notes(model: Model, *, by_class: bool = False) -> list[Note]:
    """Sentences that a reader of the topics' table, or of the classes' table, must know."""
    name = model.response or "the response"
    sentences = []
    if not model.record.classes:
        sentences.append(f"The mean of {name} in training is {model.response_summary.mean:.4g}.")
    if by_class:
        sentences.append("Coefficients are log odds, against the mean of all classes.")
    elif model.record.classes and model.classes and model.family.link == "logit":
        sentences.append(f"Coefficients are log odds of class {model.classes[1]!r}.")
    elif model.family.link in SCALES:
        sentences.append(SCALES[model.family.link])
    if model.thresholds:
        sentences.append(f"Thresholds between levels: {threshold_words(model.thresholds)}.")
    if model.record.design.covariates:
        sentences.append(
            "Coefficients of topics are for documents with average covariates; those of a covariate are per unit of it."
        )
    n_starts = len(model.record.starts)
    if n_starts == 1 and model.n_topics > 1:
        sentences.append(
            "Other starts may find other topics: train with {n_starts=3} to see which are stable before you report one."
        )
    if n_starts > 1:
        sentences.append(
            f"Predictions are the mean of {n_starts} starts, and these the topics of the best one."
        )
    if unstable := unstable_topics(model):
        others = "fewer topics"
        if model.spec.objective == "conditional":
            others += " and with the joint model (--objective joint)"
        names = ", ".join(labelled(topic, model.record.label(topic)) for topic in unstable)
        sentences.append(
            f"Unstable topics (*): {names}. Other starts have other words or documents in their "
            f"place: trust these less, or compare with {others}."
        )
    if model.record.replicates is None and model.spec.bootstrap:
        sentences.append("Coefficients have no intervals: the bootstrap did not end. Train once more.")
    elif model.record.replicates is None:
        sentences.append(
            "Coefficients have no intervals: train with {bootstrap=100}. The conditional error, in CSV and reports, takes "
            "the topics as known, and is a lower bound."
        )
    else:
        drawn = (
            "and with other starts" if model.spec.objective == "conditional" else "from the same topics on"
        )
        sentences.append(
            "Intervals hold 95% of what a coefficient comes to when documents are drawn again and topics trained again, "
            f"{drawn} ({len(model.record.replicates)} times). They know nothing of a wrong number of topics."
        )
    if model.spec.objective == "conditional":
        sentences.append(
            "These topics were trained for prediction. To study coefficients, train the joint model (--objective joint): in "
            "simulations intervals of both held nine of ten true ones, and those of the joint model were a fraction as wide."
        )
        sentences += [beyond_in_words(beyond) for beyond in model.words_beyond(BEYOND_WORDS)]
    training = model.training
    words = training.n_tokens / max(training.n_documents - training.n_empty, 1)
    if words < SHORT and model.n_topics > 1:
        sentences.append(
            f"Documents have {words:.0f} known words on average, which say little of their topics: coefficients may be "
            "off by more than their errors. In simulations with 15 words, 95% intervals covered 53% to 96%."
        )
    if (dispersion := pearson_words(model)) is not None:
        used = "; conditional errors allow for it" if model.family.is_quasi else ""
        sentences.append(
            f"The Pearson dispersion (1 where {name} scatters as the family has it): {dispersion}{used}."
        )
    if model.dispersion_at_floor:
        sentences.append(
            f"In training the predictions of {name} came closer than its dispersion may be, "
            f"{model.spec.dispersion_floor:g} of the variance (its floor). So the floor sets the conditional errors, not the "
            "data: judge the model by documents kept from training, and compare with fewer topics."
        )
    return [Note(sentence) for sentence in sentences]


def beyond_in_words(beyond: WordsBeyond) -> str:
    """The line of the words beyond the topics."""
    of_class = "" if beyond.class_name is None else f" of {beyond.class_name}"
    return (
        f"Words beyond the topics{of_class} ({beyond.share:.0%} of what is explained): raised most by "
        f"{', '.join(beyond.raising)}; lowered most by {', '.join(beyond.lowering)}."
    )


def unstable_topics(model: Model) -> list[int]:
    """Numbers of the topics that other starts do not find; none where that is not known."""
    return [] if model.stability is None else model.stability.unstable


def topic_name(topic: int, unstable: Collection[int]) -> str:
    """The number of a topic, with a mark if it is unstable: ``3*``."""
    return f"{topic}*" if topic in unstable else str(topic)


def raising_words(topics: Sequence[Coefficient], unstable: Collection[int]) -> str:
    """The topics that raise a class, with their coefficients and intervals, if any; "no topic" for none.

    Those that are `unstable` are marked.
    """
    shown = []
    for row in topics:
        interval = "" if row.low is None else f" ({row.low:+.2f} to {row.high:+.2f})"
        name = labelled(topic_name(row.topic, unstable), row.label)
        shown.append(f"topic {name} {row.coefficient:+.2f}{interval}")
    return ", ".join(shown) or "no topic"


def uncertainty(row: CovariateCoefficient) -> str:
    """The interval of a covariate's coefficient, or else its conditional error."""
    if row.low is None:
        return f"conditional error {row.conditional_error:.2g}"
    return f"{row.low:.4g} to {row.high:.4g}"


def covariate_name(row: CovariateCoefficient) -> str:
    """Name of a covariate's coefficient: ``age``, or ``party=R`` for a level."""
    return row.covariate if row.level is None else f"{row.covariate}={row.level}"


def threshold_words(thresholds: Mapping[str, float]) -> str:
    """The thresholds with the levels on either side."""
    return ", ".join(f"{names} {cutpoint:.4g}" for names, cutpoint in thresholds.items())


def pearson_words(model: Model) -> str | None:
    """The Pearson dispersion of a model, or the reason why it is missing; None for families without one."""
    if not has_pearson(model.family, trials=model.record.design.trials):
        return None
    if model.record.pearson is None:
        return "not known, the model was made by an earlier release"
    dispersion = model.pearson_dispersion
    if dispersion is None:
        return "not known, there are no more documents than coefficients"
    return f"{dispersion:.4g}"
