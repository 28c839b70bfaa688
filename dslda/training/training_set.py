"""What a fit trains on: the documents and responses of a corpus, a bag or a matrix, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.array_inputs import matrix_block, response_array, vocabulary_of
from dslda.corpus.levels import level_name
from dslda.corpus.store import Corpus
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.engine.data.fit_source import CorpusSource, FitSource, FutureSource, MemorySource
from dslda.exceptions import InputError
from dslda.ingestion.collections import blocks_from_bag, check_fields
from dslda.inputs.fields import Fields
from dslda.training.roles import Roles

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "TEXT_SETTINGS",
    "TrainingSet",
    "bag_reading",
    "training_set_of_bag",
    "training_set_of_corpus",
    "training_set_of_matrix",
]

RESPONSE = "response"
"""What the response of a matrix is called, which has no name."""

TEXT_SETTINGS = frozenset(f.name for f in fields(TextSettings)) - {"kind"}
"""Keywords that say how the texts of a bag are counted."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """Documents to train on and what the model will remember of them."""

    source: FitSource
    response: str | None
    summary: ResponseSummary
    covariates: Mapping[str, ResponseSummary] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    vocabulary: Vocabulary | None = None
    text_settings: TextSettings | None = None
    corpus_hash: str | None = None
    fields: Mapping[str, str] | None = None
    oov_share: float | None = None
    new_share: float | None = None
    too_frequent: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        """The response's column in the blocks of documents."""
        return self.source.design.response

    @property
    def what(self) -> str:
        """The response, as messages name it."""
        return "the response" if self.response is None else f"response {self.response!r}"


def training_set_of_corpus(
    corpus: Corpus, response: Any, documents: ArrayLike | None, roles: Roles
) -> TrainingSet:
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
    for name in roles.columns:
        if name not in corpus.covariate_names:
            raise InputError(
                f"covariates, weight, exposure, trials and event must name covariates of {corpus.path}: "
                f"{_listed(corpus.covariate_names)}; got {name!r:.60}"
            )
    source = CorpusSource(corpus, design=roles.of_response(response), documents=documents)
    uses = corpus.provenance.get("fields", {})
    return TrainingSet(
        source,
        response,
        source.response_summary(),
        corpus.covariate_summaries,
        corpus.levels,
        corpus.vocabulary,
        corpus.text_settings,
        corpus.content_hash,
        {use: name for name, use in uses.items() if use in ("text", "words", "counts", "id")},
        corpus.oov_share,
        corpus.new_share,
        corpus.too_frequent,
    )


@dataclass(frozen=True, slots=True)
class BagReading:
    """How the records of a bag or DataFrame are read."""

    fields: Fields
    settings: TextSettings
    vocabulary: Vocabulary | None


def bag_reading(
    bag: Any,
    response: Any,
    roles: Roles,
    *,
    categorical: Iterable[str],
    terms: Any,
    text: str | None,
    words: str | None,
    counts: str | None,
    **text_settings: Any,
) -> BagReading:
    """What is said of a bag's records, checked as far as it can be without reading them."""
    if not isinstance(response, str):
        raise InputError(
            f"response must name the field of a bag's records that holds it, got {response!r:.60}"
        )
    if text is None and words is None and counts is None:
        text = "text"
    settings = TextSettings(kind="text" if words is None else "counts", **text_settings)
    vocabulary = None
    if terms is not None:
        vocabulary = vocabulary_of(terms)
        settings = replace(settings, min_df=1, max_df=1.0, max_features=None)
    named = Fields(
        text=text,
        words=words,
        counts=counts,
        responses=(response,),
        covariates=roles.columns,
        categorical=tuple(categorical),
    )
    check_fields(bag, named)
    return BagReading(named, settings, vocabulary)


def training_set_of_bag(
    bag: Any,
    reading: BagReading,
    client: Client,
    roles: Roles,
    *,
    documents: ArrayLike | None,
    partition_tokens: int | None,
) -> TrainingSet:
    """The records of a bag or DataFrame, counted and kept on the workers."""
    named = reading.fields
    (response,) = named.responses
    blocks = blocks_from_bag(
        bag,
        client,
        fields=named,
        settings=reading.settings,
        vocabulary=reading.vocabulary,
        partition_tokens=partition_tokens,
    )
    source = FutureSource(
        blocks.futures,
        n_terms=len(blocks.vocabulary),
        n_documents=[p.n_documents for p in blocks.partitions],
        n_entries=[p.n_entries for p in blocks.partitions],
        design=roles.of_response(response),
        documents=documents,
    )
    complete = documents is None and not any(summary.missing for summary in blocks.covariates.values())
    summary = blocks.responses[response] if complete else source.response_summary()
    uses = {"text": named.text, "words": named.words, "counts": named.counts}
    return TrainingSet(
        source,
        response,
        summary,
        blocks.covariates,
        blocks.levels,
        blocks.vocabulary,
        blocks.text_settings,
        fields={use: name for use, name in uses.items() if name is not None},
        oov_share=blocks.oov_share,
        new_share=blocks.new_share,
        too_frequent=blocks.too_frequent,
    )


def training_set_of_matrix(
    matrix: Any,
    response: Any,
    terms: Any,
    documents: ArrayLike | None,
    arrays: Mapping[str, ArrayLike],
    roles: Roles,
    *,
    classes: bool,
) -> TrainingSet:
    """The rows of a count matrix, or some of them, an array of responses, and named arrays of other columns.

    The responses may be names where `classes` is true.
    """
    block = matrix_block(matrix)
    if response is None or isinstance(response, str):
        raise InputError(
            f"response must be an array with a number for each row of the matrix, got {response!r}"
        )
    levels: dict[str, tuple[str, ...]] = {}
    if classes:
        y = _column("response", response, block.n_documents, RESPONSE, levels)
    else:
        y = response_array(response, block.n_documents)
    columns = {
        name: _column(name, values, block.n_documents, name, levels) for name, values in arrays.items()
    }
    n_terms = int(matrix.shape[1])
    vocabulary = None
    if terms is not None:
        vocabulary = vocabulary_of(terms)
        if len(vocabulary) != n_terms:
            raise InputError(f"terms must name the {n_terms} columns of the matrix, got {len(vocabulary)}")
    if n_terms == 0:
        raise InputError("the matrix must have at least one column, got none")
    whole = replace(block, responses={RESPONSE: y}, covariates=columns)
    source = MemorySource(whole, n_terms, design=roles.of_response(RESPONSE), documents=documents)
    settings = None if vocabulary is None else TextSettings(kind="counts", min_df=1, max_df=1.0)
    return TrainingSet(
        source,
        None,
        source.response_summary(),
        {name: ResponseSummary.of(values) for name, values in columns.items()},
        levels,
        vocabulary,
        settings,
    )


def _column(
    what: str, values: Any, n_documents: int, name: str, levels: dict[str, tuple[str, ...]]
) -> NDArray[np.float64]:
    """Numbers as they are; names as codes, with the names put in `levels`: sorted, or as a pandas Categorical has them."""
    values = getattr(values, "array", values)  # of a Series
    if hasattr(values, "categories") and hasattr(values, "codes"):
        values = values.remove_unused_categories()
        order = [level_name(value, f"{what}, category {i}") for i, value in enumerate(values.categories)]
        if None in order:
            raise InputError(
                f"{what} must have categories with names, got one that is empty or of white space alone"
            )
        if len(set(order)) < len(order):
            raise InputError(
                f"{what} must have categories whose names differ in more than the white space around them, got "
                f"{values.categories.tolist()!r:.60}"
            )
        if len(values) != n_documents:
            raise InputError(f"{what} must have one value for each of {n_documents} rows, got {len(values)}")
        levels[name] = tuple(map(str, order))
        found = np.asarray(values.codes, dtype=np.float64)
        found[found < 0] = math.nan
        return found
    listed = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(listed, Sequence) or not any(isinstance(value, str) for value in listed):
        return response_array(values, n_documents, what=what)
    given = np.asarray(listed, dtype=object)
    if given.shape != (n_documents,):
        raise InputError(
            f"{what} must have one value for each of {n_documents} rows, got shape {given.shape}"
        )
    names = [level_name(value, f"{what}, row {row}") for row, value in enumerate(given.tolist())]
    known = tuple(sorted({value for value in names if value is not None}))
    levels[name] = known
    codes = {value: float(code) for code, value in enumerate(known)}
    return np.array([math.nan if value is None else codes[value] for value in names])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "there is none"
