"""Rivals for every kind of response: penalised regressions on TF-IDF or on LDA's topics, from scikit-learn.

They choose their penalties among the documents that they are fitted to, and run in one thread, apart from BLAS.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from dslda.evaluation.metrics import folds, held_out
from dslda.evaluation.response_measures import Kind, document_losses

__all__ = ["LDARegression", "PenalisedRegression", "TfidfRegression"]

INNER_SEED = 0
FEW_DOCUMENTS = 5000
INNER_FOLDS = 5
INNER_SHARE = 0.1
WORSE_STEPS = 2
N_ITER = 1000


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
        judged = y[np.concatenate([test for _, test in parts])]
        losses: list[float] = []
        with warnings.catch_warnings():
            # weak penalties at the end of the path need not converge to be judged
            warnings.simplefilter("ignore", ConvergenceWarning)
            for penalty in self._penalties():
                predicted = [
                    self._predicted(self._fitted(model, penalty, features[train], y[train]), features[test])
                    for model, (train, test) in zip(models, parts, strict=True)
                ]
                # of all parts together: the responses of a small one may be all the same
                losses.append(float(document_losses(self.kind, judged, np.concatenate(predicted)).mean()))
                if all(a < b for a, b in pairwise(losses[-WORSE_STEPS - 1 :])) and len(losses) > WORSE_STEPS:
                    break
            self.penalty = float(self._penalties()[int(np.argmin(losses))])
            self.model = self._fitted(self._unfitted(is_sparse), self.penalty, features, y)
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

    def _fitted(self, model: Any, penalty: float, features: Any, y: NDArray[np.float64]) -> Any:
        from sklearn.dummy import DummyClassifier, DummyRegressor

        has_numbers = self.kind in ("real", "count")
        if np.all(y == y[0]):  # scikit-learn refuses one class, and counts that are all 0
            model = DummyRegressor() if has_numbers else DummyClassifier()
        else:
            model.set_params(**({"alpha": penalty} if has_numbers else {"C": 1.0 / penalty}))
        return model.fit(features, y)

    def _predicted(self, model: Any, features: Any) -> NDArray[np.float64]:
        if self.kind in ("real", "count"):
            expected: NDArray[np.float64] = model.predict(features)
            return expected
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
        counts: NDArray[np.float64] = self.topics.components_
        topics: NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True)
        return topics


def _inner_splits(n_documents: int) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Shuffled: in a file sorted by author, others would choose a penalty for predicting unseen authors."""
    if n_documents <= FEW_DOCUMENTS:
        return list(folds(n_documents, min(INNER_FOLDS, n_documents), seed=INNER_SEED))
    kept = held_out(n_documents, INNER_SHARE, seed=INNER_SEED)
    return [(np.flatnonzero(~kept), np.flatnonzero(kept))]
