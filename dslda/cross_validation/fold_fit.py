"""One fit of a cross-validation: trained on the documents of a fold, and predicting those that judge it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.store import Corpus
from dslda.cross_validation.splitting import Fold
from dslda.engine.executor import single_threaded_blas
from dslda.engine.progress import LogProgress
from dslda.evaluation.response_measures import Kind
from dslda.evaluation.rivals import LDARegression, TfidfRegression
from dslda.exceptions import InputError, collecting_warnings
from dslda.model import Model
from dslda.prediction.record_counting import counts_of_corpus
from dslda.training.sampling import evenly_spread
from dslda.training.train import train

if TYPE_CHECKING:
    from dslda.families.base import Family

__all__ = ["METHODS", "Cell", "FoldFit", "Problem", "fit_fold", "judging", "kind_of"]

MOST_JUDGING = 200_000
"""Documents that judge a fold of a large corpus, evenly spread over those that could."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One fit: a method, its number of topics where it has any, and a fold."""

    method: str
    n_topics: int | None
    fold: int

    @property
    def name(self) -> str:
        """Its name in files."""
        topics = "" if self.n_topics is None else f"-{self.n_topics}-topics"
        return f"{self.method}{topics}-fold-{self.fold + 1}"

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class FoldFit:
    """What a fit predicts for the documents that judge it.

    Attributes
    ----------
    rows : ndarray of int64, shape (D,)
    predicted : ndarray of float64, shape (D,) or (D, C)
        Expected responses, or probabilities of all levels or classes of the problem.
    topics_alone : ndarray of float64 or None
        The same without words beyond the topics; None where there are none.
    measured : mapping of str to float
        "seconds" of one core, and for topics "npmi", "exclusivity" and "distinct_share".
    warnings : tuple of str
    """

    rows: NDArray[np.int64]
    predicted: NDArray[np.float64]
    topics_alone: NDArray[np.float64] | None
    measured: Mapping[str, float]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """All that the fits of one cross-validation share.

    Attributes
    ----------
    corpus : Corpus
    response : str
    family : Family
    kind : {"real", "count", "ordinal", "binary", "classes"}
    names : tuple of str or None
        Levels or classes, in their order.
    y : ndarray of float64, shape (n_documents,)
        Responses; of levels and classes their positions in `names`.
    settings : mapping
        Keywords of :func:`dslda.train` beside the documents and the number of topics.
    """

    corpus: Corpus
    response: str
    family: Family
    kind: Kind
    names: tuple[str, ...] | None
    y: NDArray[np.float64]
    settings: Mapping[str, Any]

    def blank(self, n_documents: int) -> NDArray[np.float64]:
        """Predictions before there are any."""
        return np.zeros((n_documents, len(self.names)) if self.names is not None else n_documents)


def kind_of(family: Family, *, trials: bool) -> Kind:
    """The kind of response by which predictions of a family are measured; two classes are "binary"."""
    if trials:
        return "real"
    if family.has_classes:
        return "classes"
    if family.has_levels:
        return "ordinal"
    is_count = family.domain.integer and family.domain.low == 0.0
    return "count" if is_count else "real"


def fit_fold(problem: Problem, cell: Cell, fold: Fold, client: Any = None) -> FoldFit:
    """Fit a cell, in this process or on a client; a pure function of the documents and the settings."""
    began = time.thread_time()
    with collecting_warnings() as warned:
        try:
            fitted = METHODS[cell.method](problem, cell, replace(fold, judging=judging(fold)), client)
        except InputError as error:
            raise error.at(f"fold {cell.fold + 1}") from error
    measured = {**fitted.measured, "seconds": time.thread_time() - began}
    told = tuple(dict.fromkeys(str(warning) for warning in warned))
    return replace(fitted, measured=measured, warnings=told)


def judging(fold: Fold) -> NDArray[np.int64]:
    """The documents that judge a fold: all that could, or 200,000 of them."""
    return fold.judging[evenly_spread(len(fold.judging), MOST_JUDGING)]


def _topics(problem: Problem, cell: Cell, fold: Fold, client: Any) -> FoldFit:
    assert cell.n_topics is not None
    model = train(
        problem.corpus,
        response=problem.response,
        n_topics=cell.n_topics,
        documents=fold.training,
        client=client,
        progress=LogProgress(),
        **problem.settings,
    )
    alone = _without_words(model)
    quality = model.quality
    measured = (
        {}
        if quality is None
        else {
            "npmi": float(np.nanmean(quality.npmi)) if np.isfinite(quality.npmi).any() else np.nan,
            "exclusivity": float(np.mean(quality.exclusivity)),
            "distinct_share": quality.distinct_share,
        }
    )
    return FoldFit(
        fold.judging,
        _predicted(problem, model, fold.judging),
        None if alone is None else _predicted(problem, alone, fold.judging),
        measured,
    )


def _without_words(model: Model) -> Model | None:
    """The model whose topics predict alone; None where they do already."""
    record = model.record
    if all(start.parameters.remainder is None for start in record.starts):
        return None
    others = tuple(replace(s, parameters=replace(s.parameters, remainder=None)) for s in record.other_starts)
    alone = replace(record.parameters, remainder=None)
    return Model(replace(record, parameters=alone, other_starts=others))


def _predicted(problem: Problem, model: Model, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    if problem.names is None:
        expected: NDArray[np.float64] = model.predict(problem.corpus, documents=rows)
        return expected
    probabilities = problem.blank(len(rows))
    places = {name: place for place, name in enumerate(problem.names)}
    found = model.predict_proba(problem.corpus, documents=rows)
    for name, column in zip(model.classes or (), found.T, strict=True):
        if name in places:  # a level between others may have no document at all
            probabilities[:, places[name]] = column
    return probabilities


def _tfidf(problem: Problem, cell: Cell, fold: Fold, client: Any) -> FoldFit:
    return _rival(problem, fold, TfidfRegression(problem.kind, len(problem.names or ())))


def _lda(problem: Problem, cell: Cell, fold: Fold, client: Any) -> FoldFit:
    assert cell.n_topics is not None
    return _rival(problem, fold, LDARegression(problem.kind, len(problem.names or ()), cell.n_topics))


def _rival(problem: Problem, fold: Fold, rival: TfidfRegression | LDARegression) -> FoldFit:
    trained = fold.training[np.isfinite(problem.y[fold.training])]
    with single_threaded_blas():
        rival.fit(counts_of_corpus(problem.corpus, trained), problem.y[trained])
        predicted = rival.predict(counts_of_corpus(problem.corpus, fold.judging))
    return FoldFit(fold.judging, predicted, None, {})


METHODS: Mapping[str, Callable[[Problem, Cell, Fold, Any], FoldFit]] = {
    "dslda": _topics,
    "tfidf": _tfidf,
    "lda": _lda,
}
"""How each method fits a fold."""
