"""Documents cut into folds: at random, by groups, or in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.store import Corpus
from dslda.engine.data.hashes import document_hashes
from dslda.exceptions import InputError
from dslda.prediction.record_counting import chosen_blocks
from dslda.wording import number_of

__all__ = ["Fold", "Splitting", "column_of", "contents_of", "split", "with_known_classes", "with_own_groups"]


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
    splitting: Splitting,
    responses: NDArray[np.bool_],
    column: NDArray[np.float64] | None = None,
    *,
    contents: NDArray[np.uint64] | None = None,
    classes: NDArray[np.float64] | None = None,
) -> tuple[Fold, ...]:
    """Cut documents into folds.

    Documents without a response are trained on in every fold, and judge none; in the order of time, only those that came
    before are trained on, and those without a time not at all.

    Parameters
    ----------
    responses : ndarray of bool, shape (n_documents,)
        The document has a response that can judge.
    column : ndarray of float64, shape (n_documents,), or None
        Groups, of which each document has one, or times.
    contents : ndarray of uint64, shape (n_documents,), or None
        For random folds: a hash of the words of each document, 0 for one without words. Documents with the same words are in
        one fold. The folds are a function of it, and not of the order of the documents or the seed of a fit.
    classes : ndarray of float64, shape (n_documents,), or None
        For random folds: codes of classes, each of which is spread evenly over the folds.

    Returns
    -------
    tuple of Fold

    Raises
    ------
    InputError
        There are fewer different documents with a response, groups or times than folds.
    """
    rows, n_folds = np.flatnonzero(responses), splitting.n_folds
    if column is None:
        own = np.zeros(len(rows), dtype=np.uint64) if contents is None else contents[rows]
        # documents without words are no repeats of each other
        units = np.unique(np.where(own == 0, rows.astype(np.uint64), own), return_inverse=True)[1]
        if (n_units := int(units.max(initial=-1)) + 1) < n_folds:
            raise InputError(
                f"must be at most the number of different documents with a response, {n_units:,}, got {n_folds}",
                parameter="folds",
            )
        strata = None if classes is None else np.unique(classes[rows], return_inverse=True)[1]
        part = _parts_at_random(units, np.zeros_like(units) if strata is None else strata, n_folds)
        return _judged_in_turn(len(responses), rows, part, n_folds)
    rows = rows[~np.isnan(column[rows])]
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
        return _judged_in_turn(len(responses), rows, _parts_of_groups(sizes, n_folds)[codes], n_folds)
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


def contents_of(corpus: Corpus) -> NDArray[np.uint64]:
    """A hash of the words of each document of a corpus; 0 for one without words."""
    hashes = np.zeros(corpus.n_documents, dtype=np.uint64)
    for rows, block in chosen_blocks(corpus, None, responses=(), covariates=()):
        hashes[rows] = document_hashes(block.indptr, block.terms, block.counts)
    return hashes


def with_own_groups(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """Groups in which each document whose group is missing has one of its own."""
    lacking = np.isnan(column)
    first = np.max(column, where=~lacking, initial=0.0) + 1.0
    return np.where(lacking, first + np.cumsum(lacking), column)


def with_known_classes(
    cut: tuple[Fold, ...], y: NDArray[np.float64], names: tuple[str, ...]
) -> tuple[tuple[Fold, ...], int]:
    """Folds without the documents whose class no document trained on has; returns the number of these documents too.

    No fit could know these classes, and the logarithm of their probability would outweigh all other documents.

    Raises
    ------
    InputError
        The documents to train on have fewer than two classes, or no document is left to judge a fold.
    """
    found = []
    for i, fold in enumerate(cut):
        trained = y[fold.training]
        known = np.unique(trained[np.isfinite(trained)])
        judging = fold.judging[np.isin(y[fold.judging], known)]
        if len(known) < 2 or not len(judging):
            got = ", ".join(repr(names[int(code)]) for code in known) or "none"
            raise InputError(
                "must leave at least two classes to train on, and documents of these to judge, got "
                f"{number_of(len(known), 'class')} to train on ({got})",
                parameter="folds",
                place=f"fold {i + 1}",
                remedy=("choose fewer", "leave rare classes out"),
            )
        found.append(Fold(fold.training, judging))
    left_out = sum(len(fold.judging) for fold in cut) - sum(len(fold.judging) for fold in found)
    return tuple(found), left_out


def _judged_in_turn(
    n_documents: int, rows: NDArray[np.int64], part: NDArray[np.int64], n_parts: int
) -> tuple[Fold, ...]:
    """A fold for each part, judged by its documents and trained on all others."""
    judging = [rows[part == i] for i in range(n_parts)]
    return tuple(Fold(_without(n_documents, own), own) for own in judging)


def _without(n_documents: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    rest = np.ones(n_documents, dtype=np.bool_)
    rest[rows] = False
    return np.flatnonzero(rest)


def _parts_at_random(units: NDArray[np.int64], strata: NDArray[np.int64], n_parts: int) -> NDArray[np.int64]:
    """The part of each document: units stay whole, and each stratum is spread evenly, as far as units allow.

    Units are numbered in random order. The stratum of a unit is that of its first document.
    """
    _, first, sizes = np.unique(units, return_index=True, return_counts=True)
    of_unit = strata[first]
    part = np.empty(len(sizes), dtype=np.int64)
    total = np.zeros(n_parts, dtype=np.int64)
    # from the rarest stratum on, which has the least choice
    n_in_strata = np.bincount(of_unit, weights=sizes)
    for stratum in np.argsort(n_in_strata, kind="stable").tolist():
        own = np.flatnonzero(of_unit == stratum)
        held = np.zeros(n_parts, dtype=np.int64)
        repeated = own[sizes[own] > 1]
        for unit in repeated[np.argsort(-sizes[repeated], kind="stable")].tolist():
            part[unit] = np.lexsort((total, held))[0]
            held[part[unit]] += sizes[unit]
            total[part[unit]] += sizes[unit]
        single = own[sizes[own] == 1]
        part[single] = np.lexsort((total, held))[np.arange(len(single)) % n_parts]
        total += np.bincount(part[single], minlength=n_parts)
    return part[units]


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
