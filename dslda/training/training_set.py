"""Training sets: documents and responses of a corpus, a bag or a matrix, and the roles of their other columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.array_inputs import matrix_block, response_array
from dslda.corpus.levels import (
    LevelIndex,
    level_name,
    level_order,
    one_of_each_boolean,
    ordered_categories,
    sorted_levels,
)
from dslda.corpus.store import Corpus
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings, chosen_settings
from dslda.corpus.vocabulary import Vocabulary, vocabulary_of
from dslda.engine.data.fit_source import CorpusSource, FitSource, FutureSource, MemorySource
from dslda.exceptions import InputError
from dslda.ingestion.corpus_plan import blocks_from_bag
from dslda.ingestion.document_sources import check_fields, with_orders
from dslda.inputs.fields import Fields
from dslda.inputs.in_memory import categories_of_table
from dslda.variational.design import CovariateColumn, Design

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "TEXT_SETTINGS",
    "ClassWeight",
    "Roles",
    "TrainingSet",
    "named_roles",
    "roles_of_arrays",
    "training_set_of_bag",
    "training_set_of_corpus",
    "training_set_of_matrix",
]

RESPONSE = "response"
"""Column of the response of a matrix."""

TEXT_SETTINGS = frozenset(f.name for f in fields(TextSettings)) - {"kind", "normalize"}
"""Keywords that say how the texts of a bag are counted."""

ROLES = ("covariates", "weight", "exposure", "trials", "event")

ClassWeight = Literal["balanced"] | Mapping[Any, float]


@dataclass(frozen=True, slots=True)
class Roles:
    """Columns beside the response, by their roles; the weights of its classes, and the order of its levels."""

    covariates: tuple[str, ...] = ()
    weight: str | None = None
    exposure: str | None = None
    trials: str | None = None
    event: str | None = None
    class_weight: ClassWeight | None = None
    levels: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns with a role, each once."""
        names = (*self.covariates, self.weight, self.exposure, self.trials, self.event)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def design(self, response: str) -> Design:
        """The design with the names of the columns, before their values are known."""
        return Design(
            response,
            exposure=self.exposure,
            auxiliary=self.trials or self.event,
            weight=self.weight,
            covariates=tuple(CovariateColumn(name, None, 0.0, 1.0) for name in self.covariates),
        )


def named_roles(covariates: Any, class_weight: Any, levels: Any, **single: Any) -> Roles:
    """The roles of columns of a corpus or bag, by their names; `single` are those of one column."""
    names = (covariates,) if isinstance(covariates, str) else covariates
    if isinstance(names, Mapping) or not isinstance(names, Sequence):
        raise InputError(
            f"must name covariates of the corpus, got {type(covariates).__name__}", parameter="covariates"
        )
    for role, name in [*single.items(), *(("covariates", name) for name in names)]:
        if name is not None and not isinstance(name, str):
            raise InputError(
                f"must be the name of a covariate of the corpus, got {name!r:.60}", parameter=role
            )
    order = level_order(levels)
    return Roles(tuple(dict.fromkeys(names)), **single, class_weight=class_weight, levels=order)


def roles_of_arrays(
    covariates: Any, class_weight: Any, levels: Any, **single: Any
) -> tuple[Roles, dict[str, Any]]:
    """The roles of a matrix's arrays, and the arrays by name."""
    if isinstance(covariates, str) or not (isinstance(covariates, Mapping) or len(covariates) == 0):
        raise InputError(
            f"must be a mapping of name to array for a matrix, got {type(covariates).__name__}",
            parameter="covariates",
            remedy="write covariates={'age': [...]}",
        )
    arrays = {str(name): values for name, values in dict(covariates).items()}
    clash = set(arrays) & set(single)
    if clash:
        raise InputError(f"must have other names than {', '.join(sorted(clash))}", parameter="covariates")
    single = {role: values for role, values in single.items() if values is not None}
    roles = Roles(
        tuple(arrays),
        **{role: role for role in single},
        class_weight=class_weight,
        levels=level_order(levels),
    )
    return roles, arrays | single


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """Documents to train on, with the facts that the model keeps of them.

    `order` has the levels of a response that is known to be ordered, from the lowest.
    """

    source: FitSource
    response: str | None
    summary: ResponseSummary
    covariates: Mapping[str, ResponseSummary] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    order: tuple[str, ...] | None = None
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

    def holding_out(self, share: float) -> TrainingSet:
        """The training set without a share of its documents, which will judge the model."""
        source = self.source.hold_out(share)
        return replace(self, source=source, summary=source.response_summary())

    @property
    def in_words(self) -> str:
        """The response, as messages name it."""
        return "the response" if self.response is None else f"response {self.response!r}"


def training_set_of_corpus(
    corpus: Corpus, response: Any, documents: ArrayLike | None, roles: Roles
) -> TrainingSet:
    """The documents of a corpus, or some of them, and one of its responses, by default the only one."""

    def check(parameter: str | Sequence[str], kind: str, names: Sequence[str], name: Any) -> None:
        if not isinstance(name, str) or name not in names:
            raise InputError(
                f"must name {kind} {corpus.path} ({', '.join(map(repr, names)) or 'none'}), got "
                f"{'none' if name is None else f'{name!r:.60}'}",
                parameter=parameter,
            )

    if response is None and len(corpus.response_names) == 1:
        response = corpus.response_names[0]
    check("response", "one of those in", corpus.response_names, response)
    for name in roles.columns:
        check(ROLES, "covariates of", corpus.covariate_names, name)
    source = CorpusSource(corpus, design=roles.design(response), documents=documents)
    uses = corpus.provenance.get("fields", {})
    return TrainingSet(
        source,
        response,
        source.response_summary(),
        corpus.covariate_summaries,
        corpus.levels,
        corpus.orders.get(response),
        corpus.vocabulary,
        corpus.text_settings,
        corpus.content_hash,
        {use: name for name, use in uses.items() if use in ("text", "words", "counts", "id")},
        corpus.oov_share,
        corpus.new_share,
        corpus.too_frequent,
    )


def training_set_of_bag(
    bag: Any,
    response: Any,
    documents: ArrayLike | None,
    roles: Roles,
    *,
    terms: Any,
    categorical: str | Iterable[str] = (),
    text: str | None = None,
    words: str | None = None,
    counts: str | None = None,
    partition_tokens: int | None = None,
    **text_settings: Any,
) -> Callable[[Client], TrainingSet]:
    """Check a bag or DataFrame without reading it, and return a function that counts its records on the workers."""
    if not isinstance(response, str):
        raise InputError(
            f"must name the field of a bag's records that holds it, got {response!r:.60}",
            parameter="response",
        )
    if text is None and words is None and counts is None:
        text = "text"
    settings = TextSettings(kind="text" if words is None else "counts", **chosen_settings(text_settings))
    vocabulary = None
    if terms is not None:
        vocabulary = vocabulary_of(terms)
        settings = replace(settings, min_df=1, max_df=1.0, max_features=None)
    document_fields = Fields(
        text=text,
        words=words,
        counts=counts,
        responses=(response,),
        covariates=roles.columns,
        categorical=(categorical,) if isinstance(categorical, str) else tuple(categorical),
    )
    check_fields(bag, document_fields)
    document_fields, orders = with_orders(document_fields, categories_of_table(bag, [response]))

    def counted(client: Client) -> TrainingSet:
        blocks = blocks_from_bag(
            bag,
            client,
            fields=document_fields,
            settings=settings,
            vocabulary=vocabulary,
            partition_tokens=partition_tokens,
        )
        plan = blocks.plan
        source = FutureSource(
            blocks.futures,
            n_terms=len(plan.terms.vocabulary),
            n_documents=[p.n_documents for p in plan.partitions],
            n_entries=[p.n_entries for p in plan.partitions],
            design=roles.design(response),
            documents=documents,
        )
        complete = documents is None and not any(summary.missing for summary in blocks.covariates.values())
        uses = {"text": text, "words": words, "counts": counts}
        return TrainingSet(
            source,
            response,
            blocks.responses[response] if complete else source.response_summary(),
            blocks.covariates,
            plan.levels,
            orders.get(response),
            plan.terms.vocabulary,
            settings,
            fields={use: name for use, name in uses.items() if name is not None},
            oov_share=plan.terms.oov_share,
            new_share=plan.terms.new_share,
            too_frequent=plan.terms.too_frequent,
        )

    return counted


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
    """The rows of a count matrix, or some of them, and arrays of responses and other columns.

    The responses may be names where `classes` is true.
    """
    block = matrix_block(matrix)
    if response is None or isinstance(response, str):
        raise InputError(
            f"must be an array with a number for each row of the matrix, got {response!r}",
            parameter="response",
        )
    levels: dict[str, tuple[str, ...]] = {}
    order = ordered_categories(response)
    n_documents, n_terms = block.n_documents, int(matrix.shape[1])
    y = _column(RESPONSE, response, n_documents, levels) if classes else response_array(response, n_documents)
    columns = {name: _column(name, values, n_documents, levels) for name, values in arrays.items()}
    vocabulary = None
    if terms is not None:
        vocabulary = vocabulary_of(terms)
        if len(vocabulary) != n_terms:
            raise InputError(
                f"must name the {n_terms} columns of the matrix, got {len(vocabulary)}", parameter="terms"
            )
    if n_terms == 0:
        raise InputError("the matrix must have at least one column, got none")
    whole = replace(block, responses={RESPONSE: y}, covariates=columns)
    source = MemorySource(whole, n_terms, design=roles.design(RESPONSE), documents=documents)
    settings = None if vocabulary is None else TextSettings(kind="counts", min_df=1, max_df=1.0)
    return TrainingSet(
        source,
        None,
        source.response_summary(),
        {name: ResponseSummary.of(values) for name, values in columns.items()},
        levels,
        order,
        vocabulary,
        settings,
    )


def _column(
    name: str, values: Any, n_documents: int, levels: dict[str, tuple[str, ...]]
) -> NDArray[np.float64]:
    """Numbers, or the codes of names; the names go to `levels`, sorted or in the order of a pandas Categorical."""
    values = getattr(values, "array", values)  # for a Series
    if hasattr(values, "categories") and hasattr(values, "codes"):
        values = values.remove_unused_categories()
        order = [level_name(value, f"{name}, category {i}") for i, value in enumerate(values.categories)]
        if None in order:
            raise InputError(
                f"{name} must have categories with names, got one that is empty or only white space"
            )
        if len(set(order)) < len(order):
            raise InputError(
                f"{name} must have categories whose names differ in more than the white space around them, got "
                f"{values.categories.tolist()!r:.60}"
            )
        if len(values) != n_documents:
            raise InputError(f"{name} must have one value for each of {n_documents} rows, got {len(values)}")
        levels[name] = tuple(map(str, order))
        codes = np.asarray(values.codes, dtype=np.float64)
        return np.where(codes < 0, math.nan, codes)
    listed = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(listed, Sequence) or not any(isinstance(value, (str, bytes)) for value in listed):
        return response_array(values, n_documents, name=name)
    array = np.asarray(listed, dtype=object)
    if array.shape != (n_documents,):
        raise InputError(
            f"{name} must have one value for each of {n_documents} rows, got shape {array.shape}"
        )
    names = [level_name(value, f"{name}, row {row}") for row, value in enumerate(array.tolist())]
    levels[name] = one_of_each_boolean(sorted_levels(value for value in names if value is not None))
    index = LevelIndex(levels[name])
    return np.array([index.code(value, name) for value in names])
