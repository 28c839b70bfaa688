"""``dslda info``: a description of a corpus, model, checkpoint or folder of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from dslda.cli.logs import option_words
from dslda.cli.own_family import load_own_model, own_family_option
from dslda.cli.terminal import echo
from dslda.exceptions import FormatError
from dslda.settings import settings_of, unstored
from dslda.wording import alpha_in_words, labelled, number_of

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus
    from dslda.corpus.summary import ResponseSummary
    from dslda.corpus.text import TextSettings
    from dslda.model import Model
    from dslda.persistence.checkpoint_store import CheckpointRecord
    from dslda.storage.location import Location

__all__ = ["command"]

SHOWN = 3
"""Names shown of a long list; a folder of texts has thousands."""


@click.command(
    "info",
    short_help="Say what a corpus, model, checkpoint or folder of scores is.",
    epilog="""\b
Examples:
  dslda info reviews.corpus
  dslda info s3://bucket/stars.model
  dslda info stars.checkpoint""",
)
@click.argument("path")
@own_family_option
def command(path: str, *, family: str | None) -> None:
    """Say what a corpus, model, checkpoint or folder of scores is: its size, its response, how it was made.

    PATH is one of these, local or any fsspec URL.
    """
    for name, value in _describe(path, family):
        echo(f"{name + ':' if name else '':<20} {value}")


def _describe(path: str, family: str | None) -> Iterator[tuple[str, Any]]:
    from dslda.corpus.store import open_corpus
    from dslda.persistence.checkpoint_store import read_checkpoint
    from dslda.storage.location import Location

    location = Location.of(path)
    if location.holds("manifest.json") and not location.holds("zarr.json"):
        return _scores(location)
    kind = location.read_attributes().get("encoding-type")
    if kind == "dslda-corpus":
        return _corpus(open_corpus(path))
    if kind == "dslda-model":
        return _model(load_own_model(path, family), path)
    if kind == "dslda-checkpoint":
        return _checkpoint(read_checkpoint(path), path)
    raise FormatError(
        f"{path} is neither a corpus nor a model nor a checkpoint nor scores of dslda",
        remedy="make one with dslda ingest, train or score",
    )


def _corpus(corpus: Corpus) -> Iterator[tuple[str, Any]]:
    yield "corpus", corpus.path
    yield "documents", f"{corpus.n_documents:,} ({corpus.n_empty:,} empty)"
    yield "terms", f"{corpus.n_terms:,}"
    yield "tokens", f"{corpus.n_tokens:,}"
    if corpus.oov_share is not None:
        unknown = f"{corpus.oov_share:.1%} of {number_of(corpus.n_all_tokens or 0, 'token')}"
        yield "out of vocabulary", unknown + _without_frequent(corpus.new_share)
    yield "partitions", f"{corpus.n_partitions:,}"
    for name, summary in corpus.response_summaries.items():
        names = corpus.levels.get(name)
        classes = "" if names is None else f", classes {_classes(names, summary)}"
        order = f", in the order {' < '.join(corpus.orders[name])}" if name in corpus.orders else ""
        yield "response", f"{name}: {_response(summary, numbers=names is None)}{classes}{order}"
    for name, summary in corpus.covariate_summaries.items():
        names = corpus.levels.get(name)
        missing = f" ({summary.missing:,} missing)" if summary.missing else ""
        yield "covariate", f"{name}: {_response(summary) if names is None else _listed([*names]) + missing}"
    yield "identifiers", "yes" if corpus.has_doc_id else "no"
    yield "weights", "yes" if corpus.has_weight else "no"
    yield "text settings", _text_settings(corpus.text_settings)
    yield from _provenance(corpus.provenance)
    yield "content hash", corpus.content_hash


def _model(model: Model, path: str) -> Iterator[tuple[str, Any]]:
    from dslda.evaluation.topic_quality import alike_topics
    from dslda.report.model_notes import (
        covariate_name,
        pearson_words,
        raising_words,
        threshold_words,
        uncertainty,
        unstable_topics,
    )
    from dslda.variational.parameters import alpha_has_moved

    training = model.training
    yield "model", path
    options = ", ".join(f"{name}={value}" for name, value in model.spec.family_options.items())
    yield "family", f"{model.spec.family}{f' ({options})' if options else ''}, link {model.family.link}"
    design = model.record.design
    classes = model.record.classes
    values = _response(model.response_summary, numbers=classes is None, needed=design.columns)
    yield "response", f"{model.response or 'not named'}: {values}"
    conditional = model.spec.objective == "conditional"
    yield "objective", _objective(model)
    if (n_starts := len(model.record.starts)) > 1:
        yield "starts", f"{n_starts}: predictions are their mean, topics those of the best one"
    alike = alike_topics(model.record.parameters, model.record.prevalence, model.spec)
    near_equal = f" ({len(alike)} of them nearly the same as another one)" if alike else ""
    yield "topics", f"{model.n_topics}{near_equal}"
    if model.labels:
        yield "labels", ", ".join(labelled(topic, label) for topic, label in model.labels.items())
    if model.quality is not None:
        yield "topic quality", model.quality.in_words
    if model.stability is not None:
        yield "topic stability", model.stability.in_words
    moved = alpha_has_moved(model.record.parameters)
    by_length = ", by the length of documents" if conditional and model.spec.doc_topic_prior == "auto" else ""
    estimated = (", estimated" if moved else ", not yet estimated") if model.spec.estimates_alpha else ""
    yield "alpha", alpha_in_words(model.doc_topic_prior.tolist()) + (estimated or by_length)
    yield "terms", f"{model.n_terms:,}"
    if model.thresholds is not None:
        yield "levels", _levels(model)
        yield "thresholds", threshold_words(model.thresholds)
    elif classes is not None:
        yield "classes", _classes(classes, model.response_summary, design.classes)
    if model.record.parameters.n_classes is not None:
        unstable = unstable_topics(model)
        for name, topics in model.class_topics().items():
            yield "class", f"{name}: raised by {raising_words(topics, unstable)}"
    if model.dispersion is not None:
        yield "dispersion", f"{model.dispersion:.4g}{' (at its floor)' if model.dispersion_at_floor else ''}"
    if (dispersion := pearson_words(model)) is not None:
        yield "Pearson dispersion", dispersion
    for row in model.covariate_coefficients():
        name = covariate_name(row) + ("" if row.class_name is None else f" for {row.class_name}")
        yield "covariate", f"{name}: {row.coefficient:.4g} ({uncertainty(row)})"
    documents, tokens = number_of(training.n_documents, "document"), number_of(training.n_tokens, "token")
    kinds = f"{training.n_labelled:,} labelled, {training.n_empty:,} empty"
    yield "trained on", f"{documents} ({kinds}), {tokens}"
    unknown = "not known"
    if training.oov_share is not None:
        unknown = (
            f"{training.oov_share:.1%} of the tokens of its corpus{_without_frequent(training.new_share)}"
        )
    yield "out of vocabulary", unknown
    if (held_out := training.held_out) is not None:
        worse = ": worse than their mean" if held_out.is_worse_than_mean else ""
        yield "set aside" if held_out.set_aside else "held out", held_out.in_words + worse
    if (reference := model.record.reference) is not None:
        n = int(reference.topic_counts[0].sum())
        aside = not reference.of_training and (held_out is None or held_out.set_aside)
        which = "set aside while the topics were trained" if aside else reference.in_words
        yield "drift reference", f"{number_of(n, 'document')} {which}"
        yield "intervals", "none" if reference.intervals is None else reference.intervals.in_words
    yield "iterations", f"{training.n_iterations} ({'' if training.converged else 'not '}converged)"
    yield "documents at the sweep cap", f"{training.n_unconverged:,}"
    yield "elbo", f"{model.trace['elbo'][-1]:.6f}" if "elbo" in model.trace else "not known"
    yield (
        "settings",
        _fit_settings({name: getattr(model.spec, name) for name in settings_of(model.spec.objective)}),
    )
    if model.text_settings is not None:
        yield "text settings", _text_settings(model.text_settings)
    yield "corpus hash", model.record.corpus_hash or "not trained on a stored corpus"
    yield "versions", _stated(model.record.versions)


def _objective(model: Model) -> str:
    """The objective, with what is peculiar to conditional training."""
    if model.spec.objective != "conditional":
        return "joint"
    gain = max(gain for gain in model.trace["inner_gain"].tolist() if not math.isnan(gain))
    return (
        f"conditional, emphasis {model.spec.emphasis}, term weights {model.record.parameters.weighting.name}; words add "
        f"{gain:.4g} to the log-likelihood of a response set aside; "
        + (
            "topics alone"
            if (remainder := model.record.parameters.remainder) is None
            else f"words beyond the topics have {remainder.share:.0%} of what is explained"
        )
        + ("" if model.record.parameters.level_corrections is None else "; probabilities are corrected")
    )


def _checkpoint(record: CheckpointRecord, path: str) -> Iterator[tuple[str, Any]]:
    yield "checkpoint", path
    yield "iterations", f"{record.n_iterations:,} complete"
    for name in ("elbo", "relative_change"):
        if name in record.trace:
            yield name.replace("_", " "), f"{record.trace[name][-1]:.8g}"
    for name, array in record.parameters.items():
        sides = " x ".join(f"{side:,}" for side in array.shape)
        yield name, f"{sides} number{'' if array.size == 1 else 's'}"
    # show whatever the file holds: only training refuses an edited checkpoint
    for name, value in record.fit.items():
        if isinstance(value, dict):
            yield name, _fit_settings(unstored(value)) if name == "settings" else _stated(value)
        elif value is not None:
            yield name, _listed([*map(str, value)]) if isinstance(value, list) else value


def _scores(location: Location) -> Iterator[tuple[str, Any]]:
    from dslda.scoring.run_folder import MANIFEST, RunFolder, RunState
    from dslda.scoring.run_report import drift_in_words, latest_in_words

    folder = RunFolder(location, "parquet")
    manifest = folder.read_manifest() or {}
    place = f"{location.url}/{MANIFEST}"
    state = RunState.from_json(manifest, place)
    yield "scores", location.url
    yield "status", "complete" if state.complete else "unfinished: run dslda score again"
    if (unfinished := folder.read_unfinished(manifest)) is not None:
        planned = sum(not entry.verified for entry in RunState.from_json(unfinished, place).inputs)
        yield "next run", f"unfinished, of {number_of(planned, 'more input')}: run dslda score again"
    yield "model", _stated(state.identity["model"])
    yield "inputs", _listed([entry.label for entry in state.inputs])
    yield "parts", f"{len(state.parts):,}"
    settings = dict(state.identity["settings"])
    yield "settings", _stated({**settings.pop("fields", {}), **settings}, "score")
    if state.complete:
        yield "rows", f"{manifest['rows_out']:,} of {number_of(manifest['rows_in'], 'record')}"
        skipped = manifest["skipped"]
        if skipped["count"]:
            yield "skipped", number_of(skipped["count"], "record")
        if unreadable := [entry["path"] for entry in skipped["unreadable_inputs"]]:
            yield "unreadable inputs", f"{len(unreadable):,}: {_listed(unreadable)}"
        yield "flags", _stated({name: n for name, n in manifest["flags"].items() if n}) or "none"
        if (mean := manifest["predictions"]["mean"]) is not None:
            yield "mean prediction", f"{mean:.4g}"
        if (drift := manifest["drift"]) is not None:
            yield "drift", drift_in_words(drift)
            # folders of earlier releases lack it
            if drift.get("training_new_share") is not None:
                yield (
                    "out of vocabulary",
                    f"{drift['oov_share']:.1%} of the tokens, {drift['training_oov_share']:.1%} in training; without those "
                    f"that are too frequent {drift['new_share']:.1%} and {drift['training_new_share']:.1%}",
                )
        if latest := latest_in_words(manifest):
            yield latest
    yield "versions", _stated(state.versions)


def _without_frequent(share: float | None) -> str:
    return "" if share is None else f" ({share:.1%} without those that are too frequent)"


def _stated(values: Mapping[str, Any], command: str = "") -> str:
    """Values with their names, or the options of a command, without those that are not set."""
    words = option_words(import_module(f"dslda.cli.{command}_command").command if command else None)
    parts = []
    for name, value in values.items():
        option = words(name) or name.removeprefix("n_").replace("_", " ")
        if isinstance(value, bool):
            parts.append(option if value else f"no {option}")
        elif value not in (None, {}, [], ()):
            parts.append(f"{option} {_shown(value)}")
    return ", ".join(parts)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"({_stated(value)})"
    return f"({'; '.join(map(_shown, value))})" if isinstance(value, (list, tuple)) else str(value)


def _fit_settings(values: Mapping[str, Any]) -> str:
    """The settings of a fit by the options of ``dslda train``; a prior that is not set is the family's own."""
    shown = dict(values)
    if values.get("doc_topic_prior", "") is None:
        shown["doc_topic_prior"] = "1/K"
    if isinstance(seeds := values.get("seed_words"), (list, tuple)):
        shown["seed_words"] = "; ".join(f"{name}: {', '.join(words)}" for name, words in seeds)
    return _stated(shown, "train")


def _text_settings(settings: TextSettings) -> str:
    """Text settings by the options of ``dslda ingest``; filters that are not set are left out."""
    values = asdict(settings) | {"ngrams": "-".join(map(str, settings.ngrams))}
    if isinstance(settings.stop_words, tuple):
        values["stop_words"] = _listed(settings.stop_words)
    if settings.analyzer is not None:
        from dslda.corpus.text import DONE_BY_ANALYZER

        values = {name: value for name, value in values.items() if name not in DONE_BY_ANALYZER}
    return _stated(values, "ingest")


def _provenance(provenance: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    # show whatever the file holds, since other programs may write anything here
    for name, value in provenance.items():
        if name == "inputs" and isinstance(value, list):
            n_files = provenance.get("n_files")  # only the first of many are kept
            yield name, _listed([*map(str, value)], n_files if isinstance(n_files, int) else None)
        elif name == "n_files":
            yield "files", value
        elif name == "fields" and isinstance(value, dict):
            yield name, ", ".join(f"{field} ({use})" for field, use in value.items())
        elif name == "rules" and isinstance(value, dict):
            yield name, _stated(value, "ingest")
        elif name == "appended" and isinstance(value, list) and all(isinstance(v, dict) for v in value):
            yield name, number_of(len(value), "time")
            for entry in value[-SHOWN:]:
                n, inputs = entry.get("n_documents"), entry.get("inputs")
                documents = number_of(n, "document") if isinstance(n, int) else "?"
                if isinstance(inputs, list) and inputs:
                    documents += f" of {_listed([*map(str, inputs)], entry.get('n_files'))}"
                yield "", f"{entry.get('created')}: {documents}"
        else:
            yield name.replace("_", " "), value


def _listed(names: Sequence[str], n: int | None = None) -> str:
    """The first few of `n` names."""
    n = len(names) if n is None else n
    more = f" … and {n - SHOWN:,} more" if n > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _classes(names: Sequence[str], summary: ResponseSummary, numbers: Sequence[float] | None = None) -> str:
    """The names of classes with their shares of the responses; `numbers` stand for the classes, by default positions."""
    return _listed(_with_shares(names, summary, range(len(names)) if numbers is None else numbers))


def _levels(model: Model) -> str:
    """The names of all levels with their shares of the responses, from the lowest to the highest."""
    names, record = model.classes or (), model.record
    first = record.scaling.center
    numbers = record.design.classes or [first + level for level in range(len(names))]
    return " < ".join(_with_shares(names, model.response_summary, numbers))


def _with_shares(names: Sequence[str], summary: ResponseSummary, numbers: Sequence[float]) -> list[str]:
    """Names with the shares of the `numbers` that stand for them in the responses, where these were counted."""
    if summary.distinct is None or summary.counts is None:
        return [*names]
    counts = dict(zip(summary.distinct, summary.counts, strict=True))
    shares = [counts.get(float(number), 0) / max(summary.n, 1) for number in numbers]
    return [f"{name} ({share:.1%})" for name, share in zip(names, shares, strict=True)]


def _response(summary: ResponseSummary, *, numbers: bool = True, needed: Sequence[str] = ()) -> str:
    """A summary, without moments for codes of classes; documents without the `needed` columns count as missing."""
    if not summary.n:
        return "no value"
    without = f" or left out, in documents without {' or '.join(map(repr, needed))}" if needed else ""
    missing = f", {summary.missing:,} missing{without}" if summary.missing else ""
    values = f"{number_of(summary.n, 'value')}{missing}"
    if not numbers:
        return values
    spread = f"standard deviation {summary.variance**0.5:.4g}, {summary.minimum:.4g} to {summary.maximum:.4g}"
    return f"{values}, {summary.looks}, mean {summary.mean:.4g}, {spread}"
