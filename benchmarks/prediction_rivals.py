"""The methods whose predictions are compared: linear models on TF-IDF, LDA and a regression, tomotopy's sLDA, and dslda.

Every model has `fit(documents, y)` and `predict(documents)`. Responses are those of `labelled_responses.Documents`: numbers,
and for levels and classes their number from 0. Predictions are expected responses, or the probabilities of all levels or
classes. A model with topics has `topic_word` once it is fitted, and one that chooses a penalty has `penalty`.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.labelled_responses import Documents
from benchmarks.methods import TomotopySLDA, word_lists
from benchmarks.problems import Problem
from dslda.evaluation.response_measures import Kind
from dslda.evaluation.rivals import LDARegression, TfidfRegression

__all__ = ["FAMILIES", "LINEAR", "METHODS", "PredictionMethod", "with_settings"]

FAMILIES: Mapping[Kind, tuple[str, ...]] = {
    "real": ("gaussian",),
    "count": ("poisson", "negative_binomial"),
    "ordinal": ("ordinal",),
    "binary": ("binomial",),
    "classes": ("categorical",),
}
"""Our families for each kind of response; each has a row of its own."""


class TomotopyRegression:
    """tomotopy's sLDA of a real response, with its topics over our vocabulary."""

    def __init__(self, vocabulary: NDArray[np.object_], n_topics: int) -> None:
        self.vocabulary = vocabulary
        self.regression = TomotopySLDA(n_topics)

    def fit(self, documents: NDArray[np.object_], y: NDArray[np.float64]) -> TomotopyRegression:
        self.regression.fit(documents, y)
        return self

    def predict(self, documents: NDArray[np.object_]) -> NDArray[np.float64]:
        return self.regression.predict(documents)

    @property
    def topic_word(self) -> NDArray[np.float64]:
        model = self.regression.model
        places = np.searchsorted(self.vocabulary, np.array(list(model.used_vocabs), dtype=object))
        topics = np.zeros((model.k, len(self.vocabulary)))
        for k in range(model.k):
            topics[k, places] = model.get_topic_word_dist(k)
        return topics


class DsldaRegression:
    """`dslda.train` with the given settings.

    Parameters
    ----------
    kind : {"real", "count", "ordinal", "binary", "classes"}
    levels : ndarray
        Levels or classes in their order.
    settings : mapping
        Keywords of :func:`dslda.train`, "family" among them.
    """

    def __init__(self, kind: Kind, levels: NDArray[Any], settings: Mapping[str, Any]) -> None:
        self.kind = kind
        self.levels = levels
        self.settings = settings

    def fit(self, documents: csr_array, y: NDArray[np.float64]) -> DsldaRegression:
        from dslda import train
        from dslda.engine.progress import LogProgress
        from dslda.exceptions import DsldaWarning

        response: Any = y
        if self.kind in ("ordinal", "binary", "classes"):
            response = self.levels[y.astype(np.intp)]
            response = response.tolist() if self.kind == "classes" else response.astype(np.float64)
        with warnings.catch_warnings():
            # hundreds of fits would repeat advice for the reader of one
            warnings.simplefilter("ignore", DsldaWarning)
            self.model = train(documents, response=response, progress=LogProgress(), **self.settings)
        return self

    def predict(self, documents: csr_array) -> NDArray[np.float64]:
        if self.kind in ("real", "count"):
            return self.model.predict(documents)
        found = self.model.predict_proba(documents)
        if self.kind == "binary":
            return found
        probabilities = np.zeros((documents.shape[0], len(self.levels)))
        names = {str(level): place for place, level in enumerate(self.levels.tolist())}
        probabilities[:, [names[name] for name in self.model.classes]] = found
        return probabilities

    @property
    def topic_word(self) -> NDArray[np.float64]:
        return self.model.topic_word


@dataclass(frozen=True, slots=True)
class PredictionMethod:
    """One way to predict any of some kinds of response.

    Attributes
    ----------
    label : str
        Name in tables.
    build : callable
        ``build(kind, documents, n_topics, settings)`` returns an unfitted model.
    kinds : tuple of str
        Kinds of response that the method predicts.
    longest : int
        Largest n of its n-grams: corpora without texts are left out if it is above 1.
    prepare : callable
        Turns `Documents` into what the model takes, indexable by an array of documents; not part of the measured time.
    requires : str
        Module without which the method is skipped.
    uses_topics : bool
        False where the number of topics means nothing.
    settings : mapping or None
        Keywords of :func:`dslda.train`; None for a rival.
    """

    label: str
    build: Callable[[Kind, Documents, int, Mapping[str, Any]], Any]
    kinds: tuple[Kind, ...] = ("real", "count", "ordinal", "binary", "classes")
    longest: int = 1
    prepare: Callable[[Documents], Any] = lambda documents: documents.counts
    requires: str = "sklearn"
    uses_topics: bool = True
    settings: Mapping[str, Any] | None = None

    @property
    def is_available(self) -> bool:
        return importlib.util.find_spec(self.requires) is not None


def with_settings(label: str, settings: Mapping[str, Any]) -> PredictionMethod:
    """dslda with keywords of :func:`dslda.train`, which precede those of the command."""
    return PredictionMethod(label, _dslda, requires="dslda", settings=settings)


def _tfidf(kind: Kind, documents: Documents, n_topics: int, settings: Mapping[str, Any]) -> TfidfRegression:
    return TfidfRegression(kind, len(documents.levels))


def _lda(kind: Kind, documents: Documents, n_topics: int, settings: Mapping[str, Any]) -> LDARegression:
    return LDARegression(kind, len(documents.levels), n_topics)


def _tomotopy(
    kind: Kind, documents: Documents, n_topics: int, settings: Mapping[str, Any]
) -> TomotopyRegression:
    return TomotopyRegression(documents.vocabulary, n_topics)


def _dslda(kind: Kind, documents: Documents, n_topics: int, settings: Mapping[str, Any]) -> DsldaRegression:
    return DsldaRegression(kind, documents.levels, {"n_topics": n_topics, **settings})


def _lists_of_words(documents: Documents) -> NDArray[np.object_]:
    return word_lists(Problem(documents.counts, documents.y, documents.vocabulary))


LINEAR = "linear"
"""The method that the others are compared with."""

METHODS: Mapping[str, PredictionMethod] = {
    LINEAR: PredictionMethod("TF-IDF, words + regression", _tfidf, uses_topics=False),
    "linear_bigrams": PredictionMethod(
        "TF-IDF, words and pairs of words + regression", _tfidf, longest=2, uses_topics=False
    ),
    "lda": PredictionMethod("scikit-learn LDA + regression", _lda),
    "tomotopy": PredictionMethod(
        "tomotopy SLDAModel, variance 0.5",
        _tomotopy,
        kinds=("real",),
        prepare=_lists_of_words,
        requires="tomotopy",
    ),
    "dslda": with_settings("dslda, the defaults", {}),
    "dslda_bigrams": replace(with_settings("dslda, words and pairs of words", {}), longest=2),
}
"""The methods by name. Further settings of dslda that deserve a row in every table are lines of their own here."""
