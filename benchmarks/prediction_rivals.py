"""The methods whose predictions are compared: linear models on TF-IDF, LDA and a regression, tomotopy's sLDA, and dslda.

Every model has `fit(documents, y)` and `predict(documents)`. Responses are those of `labelled_responses.Documents`: numbers,
and for levels and classes their number from 0. Predictions are expected responses, or the probabilities of all levels or
classes. A model with topics has `topic_word` once it is fitted, and one that chooses a penalty has `penalty`.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from benchmarks.labelled_responses import Documents, Kind
from benchmarks.methods import TomotopySLDA, word_lists
from benchmarks.prediction_measures import document_losses
from benchmarks.problems import Problem
from dslda.evaluation.metrics import folds, held_out

__all__ = ["FAMILIES", "LINEAR", "METHODS", "PredictionMethod", "with_settings"]

INNER_SEED = 0
FEW_DOCUMENTS = 5000
INNER_FOLDS = 5
INNER_SHARE = 0.1
WORSE_STEPS = 2
N_ITER = 1000

FAMILIES: Mapping[Kind, tuple[str, ...]] = {
    "real": ("gaussian",),
    "count": ("poisson", "negative_binomial"),
    "ordinal": ("ordinal",),
    "binary": ("binomial",),
    "classes": ("categorical",),
}
"""Our families for each kind of response; each has a row of its own."""


class PenalisedRegression:
    """A generalised linear model with a squared penalty, chosen on inner held-out documents.

    The path goes from strong to weak penalties, each fit starting from the one before, and ends when the loss has risen
    twice in a row. Five inner folds judge up to 5,000 documents, an inner part more than that. Levels have a
    multinomial logistic regression, whose probabilities give the expected level.

    Parameters
    ----------
    kind : {"real", "count", "ordinal", "binary", "classes"}
        Ridge regression, Poisson regression or logistic regression.
    n_classes : int
        Number of levels or classes.
    """

    def __init__(self, kind: Kind, n_classes: int) -> None:
        self.kind = kind
        self.n_classes = n_classes

    def fit(self, features: Any, y: NDArray[np.float64]) -> PenalisedRegression:
        from sklearn.exceptions import ConvergenceWarning

        parts = _inner_splits(len(y))
        is_sparse = issparse(features)
        models = [self._unfitted(is_sparse) for _ in parts]
        losses: list[float] = []
        with warnings.catch_warnings():
            # weak penalties at the end of the path need not converge to be judged
            warnings.simplefilter("ignore", ConvergenceWarning)
            for penalty in self._penalties():
                found: list[float] = []
                for model, (train, test) in zip(models, parts, strict=True):
                    self._set(model, penalty).fit(features[train], y[train])
                    found.extend(document_losses(self.kind, y[test], self._predicted(model, features[test])))
                losses.append(float(np.mean(found)))
                if all(a < b for a, b in pairwise(losses[-WORSE_STEPS - 1 :])) and len(losses) > WORSE_STEPS:
                    break
            self.penalty = float(self._penalties()[int(np.argmin(losses))])
            self.model = self._set(self._unfitted(is_sparse), self.penalty).fit(features, y)
        return self

    def predict(self, features: Any) -> NDArray[np.float64]:
        return self._predicted(self.model, features)

    def _penalties(self) -> NDArray[np.float64]:
        """From strong to weak, half a decade apart; those of a Poisson regression are for the mean loss of a document."""
        strongest, weakest = {"real": (3, -3), "count": (-1, -7)}.get(self.kind, (1, -5))
        return np.logspace(strongest, weakest, 2 * (strongest - weakest) + 1)

    def _unfitted(self, is_sparse: bool) -> Any:
        from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

        if self.kind == "real":
            return Ridge()
        if self.kind == "count":
            return PoissonRegressor(warm_start=True, max_iter=N_ITER, tol=1e-5)
        # for many classes on TF-IDF saga takes a third of the time of newton-cg for the same held-out loss; else more
        is_large = self.kind == "classes" and is_sparse
        solver = {"solver": "saga", "tol": 3e-3} if is_large else {"solver": "newton-cg", "tol": 1e-5}
        return LogisticRegression(warm_start=True, max_iter=N_ITER, random_state=0, **solver)

    def _set(self, model: Any, penalty: float) -> Any:
        if self.kind in ("real", "count"):
            return model.set_params(alpha=penalty)
        return model.set_params(C=1.0 / penalty)

    def _predicted(self, model: Any, features: Any) -> NDArray[np.float64]:
        if self.kind in ("real", "count"):
            return model.predict(features)
        probabilities = np.zeros((features.shape[0], self.n_classes))
        probabilities[:, model.classes_.astype(np.intp)] = model.predict_proba(features)
        return probabilities


class TfidfRegression:
    """A penalised regression on TF-IDF with logarithmic term frequencies, documents of length 1."""

    def __init__(self, kind: Kind, n_classes: int) -> None:
        from sklearn.feature_extraction.text import TfidfTransformer

        self.weights = TfidfTransformer(sublinear_tf=True)
        self.regression = PenalisedRegression(kind, n_classes)

    def fit(self, documents: csr_array, y: NDArray[np.float64]) -> TfidfRegression:
        self.regression.fit(self.weights.fit_transform(documents), y)
        self.penalty = self.regression.penalty
        return self

    def predict(self, documents: csr_array) -> NDArray[np.float64]:
        return self.regression.predict(self.weights.transform(documents))


class LDARegression:
    """scikit-learn's online LDA, then a penalised regression on the topic proportions.

    Its priors are those of `dslda.evaluation.baselines.lda_ridge_pipeline`, which predict better than the defaults.
    """

    def __init__(self, kind: Kind, n_classes: int, n_topics: int) -> None:
        from sklearn.decomposition import LatentDirichletAllocation

        self.topics = LatentDirichletAllocation(
            n_topics,
            learning_method="online",
            batch_size=256,
            max_iter=20,
            doc_topic_prior=1.0,
            topic_word_prior=0.1,
            random_state=0,
        )
        self.regression = PenalisedRegression(kind, n_classes)

    def fit(self, documents: csr_array, y: NDArray[np.float64]) -> LDARegression:
        self.regression.fit(self.topics.fit_transform(documents), y)
        self.penalty = self.regression.penalty
        return self

    def predict(self, documents: csr_array) -> NDArray[np.float64]:
        return self.regression.predict(self.topics.transform(documents))

    @property
    def topic_word(self) -> NDArray[np.float64]:
        topics: NDArray[np.float64] = self.topics.components_
        return topics / topics.sum(axis=1, keepdims=True)


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


def _inner_splits(n_documents: int) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Shuffled: in a file sorted by author, others would choose a penalty for predicting unseen authors."""
    if n_documents <= FEW_DOCUMENTS:
        return list(folds(n_documents, INNER_FOLDS, seed=INNER_SEED))
    kept = held_out(n_documents, INNER_SHARE, seed=INNER_SEED)
    return [(np.flatnonzero(~kept), np.flatnonzero(kept))]


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
}
"""The methods by name. Further settings of dslda that deserve a row in every table are lines of their own here."""
