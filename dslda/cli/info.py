"""``dslda info``: what is this directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dslda.exceptions import FormatError

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus
    from dslda.corpus.summary import ResponseSummary
    from dslda.model import Model

__all__ = ["command"]


@click.command(
    "info",
    short_help="Say what a corpus or model is.",
    epilog="""\b
Examples:
  dslda info reviews.corpus
  dslda info s3://bucket/stars.model""",
)
@click.argument("path")
def command(path: str) -> None:
    """Say what a corpus or model is: its size, its response, how it was made.

    PATH is a corpus or a model, local or any fsspec URL.
    """
    for name, value in _describe(path):
        click.echo(f"{name + ':':<20} {value}")


def _describe(path: str) -> Iterator[tuple[str, Any]]:
    from dslda.corpus.location import Location
    from dslda.corpus.store import open_corpus
    from dslda.model import load_model

    kind = Location.of(path).read_attributes().get("encoding-type")
    if kind == "dslda-corpus":
        return _corpus(open_corpus(path))
    if kind == "dslda-model":
        return _model(load_model(path), path)
    raise FormatError(
        f"{path} is neither a corpus nor a model of dslda; make one with dslda ingest or dslda train"
    )


def _corpus(corpus: Corpus) -> Iterator[tuple[str, Any]]:
    yield "corpus", corpus.path
    yield "documents", f"{corpus.n_documents:,} ({corpus.n_empty:,} empty)"
    yield "terms", f"{corpus.n_terms:,}"
    yield "tokens", f"{corpus.n_tokens:,}"
    yield "partitions", f"{corpus.n_partitions:,}"
    for name, summary in corpus.response_summaries.items():
        yield "response", f"{name}: {_response(summary)}"
    for name in corpus.covariate_names:
        yield "covariate", name
    yield "identifiers", "yes" if corpus.has_doc_id else "no"
    yield "weights", "yes" if corpus.has_weight else "no"
    yield from _settings(corpus.text_settings.to_json())
    for name, value in corpus.provenance.items():
        yield name, value
    yield "content hash", corpus.content_hash


def _model(model: Model, path: str) -> Iterator[tuple[str, Any]]:
    training = model.training
    yield "model", path
    yield "family", model.spec.family
    yield "response", f"{model.response or 'not named'}: {_response(model.response_summary)}"
    yield "topics", model.n_topics
    yield "terms", f"{model.n_terms:,}"
    yield "dispersion", f"{model.dispersion:.4g} (standard deviation {model.dispersion**0.5:.4g})"
    yield (
        "trained on",
        f"{training.n_documents:,} documents ({training.n_labelled:,} labelled, {training.n_empty:,} empty), "
        f"{training.n_tokens:,} tokens",
    )
    how = "converged" if training.converged else "not converged"
    yield "iterations", f"{training.n_iterations} ({how})"
    yield "documents at the sweep cap", f"{training.n_unconverged:,}"
    yield "elbo", f"{model.trace['elbo'][-1]:.6f}" if "elbo" in model.trace else "not known"
    yield "settings", ", ".join(f"{name}={getattr(model.spec, name)}" for name in model.spec.__slots__)
    if model.text_settings is not None:
        yield from _settings(model.text_settings.to_json())
    yield "corpus hash", model.record.corpus_hash or "not trained on a stored corpus"
    yield "versions", ", ".join(f"{name} {version}" for name, version in model.record.versions.items())


def _settings(settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "text settings", ", ".join(f"{name}={value}" for name, value in settings.items())


def _response(summary: ResponseSummary) -> str:
    if not summary.n:
        return "no value"
    missing = f", {summary.missing:,} missing" if summary.missing else ""
    return (
        f"{summary.kind}, {summary.n:,} values{missing}, mean {summary.mean:.4g}, standard deviation "
        f"{summary.variance**0.5:.4g}, {summary.minimum:.4g} to {summary.maximum:.4g}"
    )
