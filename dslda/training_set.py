"""What a fit trains on: the documents and responses of a corpus, a bag or a matrix, checked before any work."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.arrays import matrix_block, response_array, vocabulary_of
from dslda.corpus.bag import blocks_from_bag, check_fields
from dslda.corpus.levels import level_name
from dslda.corpus.readers import Fields
from dslda.corpus.store import Corpus
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.engine.sources import CorpusSource, FutureSource, MemorySource, Source
from dslda.exceptions import DataWarning, InputError
from dslda.response_model import ROUNDING, Roles
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "TEXT_SETTINGS",
    "TrainingSet",
    "bag_reading",
    "check_response",
    "named_roles",
    "report_left_out",
    "roles_of_arrays",
    "training_set_of_bag",
    "training_set_of_corpus",
    "training_set_of_matrix",
]

RESPONSE = "response"
"""What the response of a matrix is called, which has no name."""

TEXT_SETTINGS = frozenset(f.name for f in fields(TextSettings)) - {"kind"}
"""Keywords that say how the texts of a bag are counted."""

SHOWN = 3
"""Documents that a message names."""

# The dispersion is the square of the response's units: far inside what a double holds, the sums of many documents too.
LOWEST_DEVIATION, HIGHEST_DEVIATION = 1e-100, 1e100


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """Documents to train on and what the model will remember of them."""

    source: Source
    response: str | None
    summary: ResponseSummary
    covariates: Mapping[str, ResponseSummary] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    vocabulary: Vocabulary | None = None
    text_settings: TextSettings | None = None
    corpus_hash: str | None = None
    fields: Mapping[str, str] | None = None

    @property
    def column(self) -> str:
        """The response's column in the blocks of documents."""
        return self.source.design.response

    @property
    def what(self) -> str:
        """The response, as messages name it."""
        return "the response" if self.response is None else f"response {self.response!r}"


def named_roles(
    covariates: Any, weight: Any, exposure: Any, trials: Any, event: Any, class_weight: Any
) -> Roles:
    """The columns that are named for a corpus or bag.

    Raises
    ------
    InputError
        One is no name.
    """
    names = (covariates,) if isinstance(covariates, str) else covariates
    if isinstance(names, Mapping) or not isinstance(names, Sequence):
        raise InputError(f"covariates must name covariates of the corpus, got {type(covariates).__name__}")
    single = {"weight": weight, "exposure": exposure, "trials": trials, "event": event}
    for role, name in [*single.items(), *(("covariates", name) for name in names)]:
        if name is not None and not isinstance(name, str):
            raise InputError(f"{role} must be the name of a covariate of the corpus, got {name!r:.60}")
    return Roles(tuple(dict.fromkeys(names)), **single, class_weight=class_weight)


def roles_of_arrays(
    covariates: Any, weight: Any, exposure: Any, trials: Any, event: Any, class_weight: Any
) -> tuple[Roles, dict[str, Any]]:
    """The arrays that are given for a matrix, by name, and what they are for."""
    if isinstance(covariates, str) or not (isinstance(covariates, Mapping) or len(covariates) == 0):
        raise InputError(
            "covariates must be a mapping of name to array for a matrix, got "
            f"{type(covariates).__name__}; write covariates={{'age': [...]}}"
        )
    single = {"weight": weight, "exposure": exposure, "trials": trials, "event": event}
    arrays = {str(name): values for name, values in dict(covariates).items()}
    clash = set(arrays) & set(single)
    if clash:
        raise InputError(f"covariates must have other names than {', '.join(sorted(clash))}")
    given = {role: role for role, values in single.items() if values is not None}
    roles = Roles(tuple(arrays), **given, class_weight=class_weight)
    return roles, arrays | {role: single[role] for role in given}


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
    what: str, values: ArrayLike, n_documents: int, name: str, levels: dict[str, tuple[str, ...]]
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


def report_left_out(training_set: TrainingSet) -> None:
    """Say of which documents the response is left out, as they lack a covariate.

    Warns
    -----
    DataWarning
    """
    columns = training_set.source.design.columns
    lacking = {name: training_set.covariates[name].missing for name in columns}
    rows = training_set.source.left_out() if any(lacking.values()) else []
    if not rows:
        return
    summary = training_set.summary
    shown = ", ".join(training_set.source.name_of(row) for row in rows[:SHOWN])
    missing = ", ".join(f"{name!r} in {n:,}" for name, n in lacking.items() if n)
    warnings.warn(
        f"{len(rows):,} of {number_of(len(rows) + summary.n, 'document')} with {training_set.what} lack a covariate "
        f"(missing: {missing}): their response is left out, their words still count; the first: {shown}"
        f"{', ...' if len(rows) > SHOWN else ''}; fill it in to use them",
        DataWarning,
        stacklevel=4,
    )


def check_response(training_set: TrainingSet) -> None:
    """Refuse a response that there is nothing to learn from, or whose size no double can hold the square of.

    Raises
    ------
    InputError
        It is missing everywhere, constant but for rounding, or its standard deviation is not from 1e-100 to 1e100.
    """
    what, summary = training_set.what, training_set.summary
    names = training_set.levels.get(training_set.column)
    if summary.n == 0:
        columns = ", ".join(map(repr, training_set.source.design.columns))
        raise InputError(
            f"{what} is missing in all documents to train on{f' that have {columns}' if columns else ''}; it must be "
            "known in at least two"
        )
    low, high = summary.minimum, summary.maximum
    if low == high:
        raise InputError(
            f"{what} must have at least two distinct values in the documents to train on, got "
            f"{f'{low:g}' if names is None else repr(names[int(low)])} in all {summary.n:,} that have it; there is nothing "
            "to learn"
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
