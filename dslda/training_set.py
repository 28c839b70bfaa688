"""What a fit trains on: the documents and responses of a corpus, a bag or a matrix, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from dslda.arrays import matrix_block, response_array, vocabulary_of
from dslda.corpus.bag import blocks_from_bag
from dslda.corpus.readers import Fields
from dslda.corpus.store import Corpus
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.engine.sources import CorpusSource, FutureSource, MemorySource, Source
from dslda.exceptions import InputError

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "TEXT_SETTINGS",
    "TrainingSet",
    "check_response",
    "training_set_of_bag",
    "training_set_of_corpus",
    "training_set_of_matrix",
]

TEXT_SETTINGS = frozenset(f.name for f in fields(TextSettings)) - {"kind"}
"""Keywords that say how the texts of a bag are counted."""

# The dispersion is the square of the response's units: far inside what a double holds, the sums of many documents too.
LOWEST_DEVIATION, HIGHEST_DEVIATION = 1e-100, 1e100
ROUNDING = 1e-13
"""Responses whose range is a smaller fraction of their size differ in their last digits only."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """Documents to train on and what the model will remember of them."""

    source: Source
    response: str | None
    summary: ResponseSummary
    vocabulary: Vocabulary | None = None
    text_settings: TextSettings | None = None
    corpus_hash: str | None = None
    fields: Mapping[str, str] | None = None

    @property
    def what(self) -> str:
        """The response, as messages name it."""
        return "the response" if self.response is None else f"response {self.response!r}"


def training_set_of_corpus(corpus: Corpus, response: Any, documents: ArrayLike | None) -> TrainingSet:
    """The documents of a corpus, or some of them, and one of its responses, by default the only one."""
    if response is None:
        if len(corpus.response_names) != 1:
            raise InputError(
                f"response must name one of those in {corpus.path}: {_listed(corpus.response_names)}; got "
                "none"
            )
        response = corpus.response_names[0]
    if not isinstance(response, str) or response not in corpus.response_names:
        raise InputError(
            f"response must name one of those in {corpus.path}: {_listed(corpus.response_names)}; got "
            f"{response!r:.60}"
        )
    source = CorpusSource(corpus, response=response, documents=documents)
    uses = corpus.provenance.get("fields", {})
    return TrainingSet(
        source,
        response,
        source.response_summary(),
        corpus.vocabulary,
        corpus.text_settings,
        corpus.content_hash,
        {use: field for field, use in uses.items() if use in ("text", "words", "counts", "id")},
    )


def training_set_of_bag(
    bag: Any,
    response: Any,
    client: Client,
    *,
    terms: Any,
    documents: ArrayLike | None,
    text: str | None,
    words: str | None,
    counts: str | None,
    partition_tokens: int | None,
    **text_settings: Any,
) -> TrainingSet:
    """The records of a bag or DataFrame, counted and kept on the workers."""
    if not isinstance(response, str):
        raise InputError(
            f"response must name the field of a bag's records that holds it, got {response!r:.60}"
        )
    if (words is None) != (counts is None) or (text is not None and words is not None):
        raise InputError(
            "name the field of the texts with text=, or those of counted words with words= and counts="
        )
    if text is None and words is None:
        text = "text"
    settings = TextSettings(kind="text" if words is None else "counts", **text_settings)
    vocabulary = None
    if terms is not None:
        vocabulary = vocabulary_of(terms)
        settings = replace(settings, min_df=1, max_df=1.0, max_features=None)
    named = Fields(text=text, words=words, counts=counts, responses=(response,))
    blocks = blocks_from_bag(
        bag, client, fields=named, settings=settings, vocabulary=vocabulary, partition_tokens=partition_tokens
    )
    source = FutureSource(
        blocks.futures,
        n_terms=len(blocks.vocabulary),
        n_documents=[p.n_documents for p in blocks.partitions],
        n_entries=[p.n_entries for p in blocks.partitions],
        response=response,
        documents=documents,
    )
    summary = blocks.responses[response] if documents is None else source.response_summary()
    reading = {"text": text, "words": words, "counts": counts}
    return TrainingSet(
        source,
        response,
        summary,
        blocks.vocabulary,
        blocks.text_settings,
        fields={use: field for use, field in reading.items() if field is not None},
    )


def training_set_of_matrix(
    matrix: Any, response: Any, terms: Any, documents: ArrayLike | None
) -> TrainingSet:
    """The rows of a count matrix, or some of them, and an array of responses."""
    block = matrix_block(matrix)
    if response is None or isinstance(response, str):
        raise InputError(
            f"response must be an array with a number for each row of the matrix, got {response!r}"
        )
    y = response_array(response, block.n_documents)
    n_terms = int(matrix.shape[1])
    vocabulary = None
    if terms is not None:
        vocabulary = vocabulary_of(terms)
        if len(vocabulary) != n_terms:
            raise InputError(f"terms must name the {n_terms} columns of the matrix, got {len(vocabulary)}")
    if n_terms == 0:
        raise InputError("the matrix must have at least one column, got none")
    source = MemorySource(replace(block, responses={"y": y}), n_terms, response="y", documents=documents)
    settings = None if vocabulary is None else TextSettings(kind="counts", min_df=1, max_df=1.0)
    return TrainingSet(source, None, source.response_summary(), vocabulary, settings)


def check_response(what: str, summary: ResponseSummary) -> None:
    """Refuse a response that there is nothing to learn from, or whose size no double can hold the square of.

    Raises
    ------
    InputError
        It is missing everywhere, constant but for rounding, or its standard deviation is not from 1e-100 to 1e100.
    """
    if summary.n == 0:
        raise InputError(f"{what} is missing in all documents to train on; it must be known in at least two")
    low, high = summary.minimum, summary.maximum
    if low == high:
        raise InputError(
            f"{what} must have at least two distinct values in the documents to train on, got "
            f"{low:g} in all {summary.n:,} that have it; there is nothing to learn"
        )
    deviation = math.sqrt(summary.variance)
    if not LOWEST_DEVIATION <= deviation <= HIGHEST_DEVIATION:
        raise InputError(
            f"{what} must have a standard deviation from {LOWEST_DEVIATION:g} to {HIGHEST_DEVIATION:g}, got "
            f"{deviation:.3g} for values from {low:g} to {high:g}; give it in other units"
        )
    if high - low <= ROUNDING * max(abs(low), abs(high)):
        raise InputError(
            f"{what} must differ between documents by more than rounding, got values from {low!r} to "
            f"{high!r}; subtract a constant where it is computed"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "there is none"
