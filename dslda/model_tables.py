"""Topics, classes and coefficients of a model as data frames, for users, the commands that print them, and pyLDAvis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dslda.coefficients import class_topics, covariate_coefficients, topic_coefficients, topics_with_words
from dslda.evaluation.word_rankings import WordRanking
from dslda.exceptions import InputError
from dslda.persistence.model_record import ModelRecord

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["class_table", "coefficient_table", "pyldavis_arguments", "topic_table"]

OPTIONAL = frozenset({"low", "high", "label", "class_name", "stability", "covariate", "level", "against"})
"""Columns that only some models have. The others are always there, for programs that read them."""

INTERVAL = ("coefficient", "low", "high", "conditional_error")


def topic_table(record: ModelRecord, top: int, words: WordRanking) -> pd.DataFrame:
    """See :meth:`dslda.model.Model.topic_table`."""
    by_class = record.parameters.n_classes is not None
    rows = [_flat(topic._asdict()) for topic in topics_with_words(record, top, words)]
    table = _table(
        rows, ("topic", "label", "class_name", *INTERVAL), ("words",), leave_out=("probabilities",)
    )
    return table.rename(columns={"class_name": "class" if by_class else "level"})


def class_table(record: ModelRecord, top: int, words: WordRanking) -> pd.DataFrame:
    """See :meth:`dslda.model.Model.class_table`."""
    shared = {
        topic.topic: _flat({"stability": topic.stability, "words": topic.words})
        for topic in topics_with_words(record, top, words)
    }
    rows = [row._asdict() | shared[row.topic] for of in class_topics(record, None).values() for row in of]
    table = _table(rows, ("class_name", "topic", "label", *INTERVAL), ("stability", "words"))
    return table.rename(columns={"class_name": "class"})


def coefficient_table(record: ModelRecord) -> pd.DataFrame:
    """See :meth:`dslda.model.Model.coefficient_table`."""
    by_class = record.parameters.n_classes is not None
    topics = (
        [row for of in class_topics(record, None).values() for row in of]
        if by_class
        else topic_coefficients(record)
    )
    covariates = [
        row._asdict() | {"against": None if row.level is None else record.levels[row.covariate][0]}
        for row in covariate_coefficients(record)
    ]
    table = _table(
        [*(row._asdict() for row in topics), *covariates],
        ("topic", "label", "covariate", "level", "against", "class_name", *INTERVAL),
        # the level that a document all about a topic most likely has is no part of a coefficient
        leave_out=() if by_class else ("class_name",),
    )
    return table.rename(columns={"class_name": "class"}).astype({"topic": "Int64"})


def pyldavis_arguments(record: ModelRecord) -> dict[str, Any]:
    """See :meth:`dslda.model.Model.to_pyldavis`."""
    if record.prevalence is None:
        raise InputError(
            "the model does not know how frequent its topics are: it was made by an earlier release",
            remedy="train once more",
        )
    topics = record.parameters.topics.T
    shares = record.prevalence / record.prevalence.sum()
    n_terms, n_tokens = record.parameters.n_terms, record.training.n_tokens
    return {
        "topic_term_dists": topics,
        # pyLDAvis takes the sizes of topics from these two alone, as their product: one row says the same as one a document
        "doc_topic_dists": shares[np.newaxis],
        "doc_lengths": np.array([n_tokens]),
        "vocab": list(map(str, range(n_terms)) if record.vocabulary is None else record.vocabulary.terms),
        "term_frequency": n_tokens * (shares @ topics),
        "sort_topics": False,
        "start_index": 0,
    }


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its words in one cell."""
    return {**row, "words": ", ".join(row["words"])}


def _table(
    rows: Sequence[Mapping[str, Any]],
    first: Iterable[str],
    last: Sequence[str] = (),
    *,
    leave_out: Sequence[str] = (),
) -> pd.DataFrame:
    """A frame of rows, some of whose columns come `first` or `last`; `OPTIONAL` ones without any value are left out."""
    import pandas as pd

    names = dict.fromkeys([*first, *(name for row in rows for name in row if name not in last), *last])
    columns: dict[str, list[Any]] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if all(value is None for value in values):
            if name in OPTIONAL:
                continue
            values = [math.nan] * len(rows)  # a measure that the model lacks is a number all the same
        if name not in leave_out:
            columns[name] = values
    return pd.DataFrame(columns)
