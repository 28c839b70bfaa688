"""Documents cut into folds: at random, by groups, or in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.store import Corpus
from dslda.evaluation.metrics import folds
from dslda.exceptions import InputError
from dslda.prediction.record_counting import chosen_blocks
from dslda.wording import number_of

__all__ = ["Fold", "Splitting", "column_of", "split"]

FOLD_SEED = 0
"""Folds do not depend on the seed of a fit, so that starts are compared on the same documents."""


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """One fold: the rows of the documents to train on, and of those that judge, both ascending."""

    training: NDArray[np.int64]
    judging: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Splitting:
    """How documents are cut.

    Attributes
    ----------
    n_folds : int
    kind : {"random", "groups", "time"}
    column : str or None
        The covariate with the groups or times.
    """

    n_folds: int
    kind: Literal["random", "groups", "time"] = "random"
    column: str | None = None

    @classmethod
    def of(cls, corpus: Corpus, n_folds: int, *, groups: str | None, time: str | None) -> Splitting:
        """The choice of a user.

        Raises
        ------
        InputError
            There are fewer than two folds, groups and times are both given, or no covariate has the name.
        """
        if isinstance(n_folds, bool) or not isinstance(n_folds, (int, np.integer)) or n_folds < 2:
            raise InputError(f"must be a whole number of at least 2, got {n_folds!r}", parameter="folds")
        if groups is not None and time is not None:
            raise InputError("exclude each other", parameter=("groups", "time"), remedy="leave one out")
        for parameter, column in (("groups", groups), ("time", time)):
            if column is not None and column not in corpus.covariate_names:
                known = ", ".join(map(repr, corpus.covariate_names)) or "none"
                raise InputError(
                    f"must name a covariate of {corpus.path} ({known}), got {column!r}",
                    parameter=parameter,
                    remedy="ingest it with {covariates=}",
                )
        if time is not None and time in corpus.levels:
            raise InputError(f"must be a covariate of numbers, got names in {time!r}", parameter="time")
        if groups is not None:
            return cls(int(n_folds), "groups", groups)
        return cls(int(n_folds)) if time is None else cls(int(n_folds), "time", time)

    @property
    def in_words(self) -> str:
        """The way, for a report."""
        if self.kind == "groups":
            return f"{number_of(self.n_folds, 'fold')}, every {self.column} in one of them"
        if self.kind == "time":
            return f"{number_of(self.n_folds, 'fold')} in the order of {self.column}, each judging a fit to what came before"
        return f"{number_of(self.n_folds, 'random fold')}"


def split(
    splitting: Splitting, responses: NDArray[np.bool_], column: NDArray[np.float64] | None
) -> tuple[Fold, ...]:
    """Cut documents into folds.

    Documents without a response are trained on in every fold, and judge none; in the order of time, only those that came
    before are trained on.

    Parameters
    ----------
    responses : ndarray of bool, shape (n_documents,)
        The document has a response that can judge.
    column : ndarray of float64, shape (n_documents,), or None
        Groups or times.

    Returns
    -------
    tuple of Fold

    Raises
    ------
    InputError
        There are fewer documents with a response, groups or different times than folds; or a document with a response
        lacks its group or time.
    """
    rows, n_folds = np.flatnonzero(responses), splitting.n_folds
    if splitting.kind == "random" or column is None:
        if len(rows) < n_folds:
            raise InputError(
                f"must be at most the number of documents with a response, {len(rows):,}, got {n_folds}",
                parameter="folds",
            )
        judging = [rows[held] for _, held in folds(len(rows), n_folds, seed=FOLD_SEED)]
        return tuple(Fold(_without(len(responses), test), test) for test in judging)
    if (missing := np.isnan(column[rows])).any():
        raise InputError(
            f"covariate {splitting.column!r} is missing for {number_of(int(missing.sum()), 'document')} with a response, the "
            f"first of them document {rows[missing][0]:,} (counted from 0)",
            parameter=splitting.kind,
            remedy="ingest the corpus without these documents",
        )
    values, codes, sizes = np.unique(column[rows], return_inverse=True, return_counts=True)
    by_time = splitting.kind == "time"
    if len(values) < n_folds + by_time:
        raise InputError(
            f"must have at least {n_folds + by_time} different values in {splitting.column!r} for "
            f"{number_of(n_folds, 'fold')}, got {len(values)}",
            parameter=splitting.kind,
            remedy="choose fewer {folds=}",
        )
    if not by_time:
        part = _parts_of_groups(sizes, n_folds)[codes]
        return tuple(Fold(_without(len(responses), rows[part == i]), rows[part == i]) for i in range(n_folds))
    part = _parts_in_order(sizes, n_folds + 1)[codes]
    found = []
    for i in range(1, n_folds + 1):
        judging = rows[part == i]
        found.append(Fold(np.flatnonzero(column < column[judging].min()), judging))
    return tuple(found)


def column_of(corpus: Corpus, name: str) -> NDArray[np.float64]:
    """A covariate of all documents: numbers, or the codes of its levels; NaN where missing."""
    values = np.full(corpus.n_documents, np.nan)
    for rows, block in chosen_blocks(corpus, None, covariates=[name]):
        values[rows] = block.covariates[name]
    return values


def _without(n_documents: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    rest = np.ones(n_documents, dtype=np.bool_)
    rest[rows] = False
    return np.flatnonzero(rest)


def _parts_of_groups(sizes: NDArray[np.int64], n_parts: int) -> NDArray[np.int64]:
    """The part of each group: from the largest group on, the part with the fewest documents."""
    part = np.empty(len(sizes), dtype=np.int64)
    total = np.zeros(n_parts, dtype=np.int64)
    for group in np.argsort(-sizes, kind="stable").tolist():
        part[group] = int(total.argmin())
        total[part[group]] += sizes[group]
    return part


def _parts_in_order(sizes: NDArray[np.int64], n_parts: int) -> NDArray[np.int64]:
    """The part of each time, parts of about as many documents; none is empty."""
    before = np.cumsum(sizes) - sizes
    part = before * n_parts // int(sizes.sum())
    # a time of many documents leaves parts empty: move the cuts to where there are times
    n = len(sizes)
    for i in range(n):
        lowest = max(part[i - 1] if i else 0, n_parts - (n - i))
        highest = part[i - 1] + 1 if i else 0
        part[i] = min(max(part[i], lowest), highest)
    return part
