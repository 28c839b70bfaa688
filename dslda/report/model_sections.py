"""Sections about the model: what to keep in mind, words beyond the topics, how training ended, data and settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from dslda.evaluation.topic_quality import alike_topics
from dslda.report import document_figures, model_notes
from dslda.report.drawing import outcome
from dslda.report.findings import Findings
from dslda.report.inline_svg import inline_svg
from dslda.settings import settings_of
from dslda.versions import __version__
from dslda.wording import alpha_in_words, first_few, number_of

__all__ = ["beyond", "caution", "facts", "response_in_words", "training"]

BEYOND_WORDS = 16
MOST_NAMES = 12


def caution(findings: Findings) -> dict[str, Any]:
    """The notes of the tables, and what training warned of."""
    model = findings.model
    training = model.training
    said = [
        findings.say(note)
        for note in model_notes.notes(model)
        if not str(note).startswith("Words beyond the topics")
    ]
    if not training.converged:
        how = "was stopped" if training.interrupted else "ended at its cap of iterations"
        said.append(
            f"Training {how} before it converged: more iterations may change topics and coefficients."
        )
    if training.n_unconverged:
        said.append(
            f"The topics of {number_of(training.n_unconverged, 'document')} were not final when training ended."
        )
    alike = alike_topics(model.record.parameters, model.record.prevalence, model.spec)
    if alike:
        said.append(
            f"Topics {', '.join(map(str, alike))} have nearly the words of another topic: read them together, or train with "
            "fewer topics."
        )
    if training.held_out is None:
        said.append(
            "No documents were kept from training, so nothing here says how well new documents are predicted. Train with "
            "--hold-out 0.1 (hold_out=0.1), or run dslda evaluate."
        )
    return {"notes": said}


def beyond(findings: Findings) -> dict[str, Any] | None:
    """What single words add to the topics."""
    rows = findings.model.words_beyond(BEYOND_WORDS)
    if not rows:
        return None
    return {
        "rows": rows[:MOST_NAMES],
        "n_hidden": max(len(rows) - MOST_NAMES, 0),
        "share": f"{rows[0].share:.0%}",
        "outcome": outcome(findings.model),
    }


def training(findings: Findings) -> dict[str, Any] | None:
    """What training maximised."""
    model = findings.model
    if not len(model.trace.get("elbo", ())):
        return None
    summary = model.training
    ended = "It converged." if summary.converged else "It did not converge."
    what = "what words add to the log-likelihood of a response of documents set aside; the best is kept"
    if model.spec.objective != "conditional":
        what = "the evidence lower bound of the training documents"
    return {
        "sentence": f"Training took {number_of(summary.n_iterations, 'iteration')}. {ended}",
        "figure": inline_svg(
            document_figures.convergence(model),
            key="training",
            title="Progress of training",
            description=f"By iteration, {what}.",
        ),
        "caption": f"By iteration: {what}.",
    }


def facts(findings: Findings) -> dict[str, Any]:
    """Names and values, for those who must make the model again."""
    return {"rows": list(_facts(findings))}


def _facts(findings: Findings) -> Iterator[tuple[str, str]]:
    model, corpus = findings.model, findings.corpus
    record, summary, spec = model.record, model.training, model.spec
    yield "Response", response_in_words(findings)
    yield "Family", f"{spec.family}, link {model.family.link}"
    if record.classes:
        yield "Classes", f"{len(record.classes):,}: {first_few(record.classes, MOST_NAMES)}"
    if model.thresholds:
        yield "Thresholds", model_notes.threshold_words(model.thresholds)
    if rows := model.covariate_coefficients():
        for row in rows[:MOST_NAMES]:
            of_class = "" if row.class_name is None else f" for {row.class_name}"
            value = f"{row.coefficient:.4g} ({model_notes.uncertainty(row)})"
            yield f"Covariate {model_notes.covariate_name(row)}{of_class}", value
    yield (
        "Trained on",
        f"{number_of(summary.n_documents, 'document')} ({summary.n_labelled:,} with a response, {summary.n_empty:,} empty), "
        f"{number_of(summary.n_tokens, 'token')}, {number_of(model.n_terms, 'term')}",
    )
    if (held_out := summary.held_out) is not None:
        yield "Set aside" if held_out.set_aside else "Kept from training", held_out.in_words
    if summary.oov_share is not None:
        yield "Words outside the vocabulary", f"{summary.oov_share:.1%} of all"
    objective = "joint" if spec.objective == "joint" else f"conditional, emphasis {spec.emphasis}"
    yield "Objective", objective
    yield "Topics", f"{model.n_topics}, of the best of {number_of(len(record.starts), 'start')}"
    if model.quality is not None:
        yield "Quality of the topics", model.quality.in_words
    if model.stability is not None:
        yield "Stability of the topics", model.stability.in_words
    yield "Alpha", alpha_in_words(model.doc_topic_prior.tolist())
    yield "Settings", ", ".join(f"{name}={getattr(spec, name)!r}" for name in settings_of(spec.objective))
    if record.text_settings is not None:
        yield "Texts", _settings(record.text_settings)
    if corpus is not None:
        yield "Corpus", f"{corpus.in_words}"
        inputs = corpus.provenance.get("inputs")
        if isinstance(inputs, list) and inputs:
            # names alone: a page travels, and folders are nobody's business
            names = [str(each).rstrip("/").rpartition("/")[2] for each in inputs]
            yield "Corpus made of", first_few(names, MOST_NAMES)
        if isinstance(created := corpus.provenance.get("created"), str):
            yield "Corpus made", created
    yield "Hash of the corpus trained on", record.corpus_hash or "not trained on a stored corpus"
    if record.checksum is not None:
        yield "Checksum of the model", record.checksum
    yield "Versions of the fit", ", ".join(f"{name} {version}" for name, version in record.versions.items())
    yield "This page", f"dslda {__version__}"


def response_in_words(findings: Findings) -> str:
    """The response and its values."""
    summary, model = findings.model.response_summary, findings.model
    if model.record.classes:
        return f"{findings.response}: {number_of(summary.n, 'value')}"
    return (
        f"{findings.response}: {number_of(summary.n, 'value')}, mean {summary.mean:.4g}, standard deviation "
        f"{summary.variance**0.5:.3g}, {summary.minimum:.4g} to {summary.maximum:.4g}"
    )


def _settings(settings: Any) -> str:
    values = dataclasses.asdict(settings)
    if isinstance(values["stop_words"], (list, tuple)):
        values["stop_words"] = number_of(len(values["stop_words"]), "word")
    return ", ".join(f"{name}={value!r}" for name, value in values.items() if value is not None)
