"""The methods that benchmarks compare, all behind `fit` and `predict`, and their cross-validation."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import cpu_seconds
from benchmarks.problems import Problem, movie_reviews
from dslda.evaluation.metrics import correlation, folds, predictive_r2

__all__ = ["METHODS", "Method", "evaluation"]

FOLD_SEED = 0
WARM_UP = 100


@dataclass(frozen=True, slots=True)
class Method:
    """One way to predict a response from documents.

    Attributes
    ----------
    label : str
        Name in tables.
    build : callable
        ``build(n_topics, **options)`` returns an unfitted model with `fit(documents, y)` and
        `predict(documents)`; it imports the model's libraries.
    options : mapping
        Options of `build`.
    documents : callable
        Turns a problem into what the model takes, indexable by an array of documents; not part of the
        measured time.
    requires : str
        Module without which the method is skipped.
    uses_topics : bool
        False where the number of topics means nothing.
    """

    label: str
    build: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    documents: Callable[[Problem], Any] = lambda problem: problem.counts
    requires: str = "sklearn"
    uses_topics: bool = True

    @property
    def is_available(self) -> bool:
        return importlib.util.find_spec(self.requires) is not None


class TomotopySLDA:
    """tomotopy's supervised LDA (collapsed Gibbs sampling), one worker, with the best settings we have seen.

    alpha is kept at 1: re-estimated, as tomotopy does unless told otherwise, it lowers predictive R2 (0.385
    instead of 0.405 at K = 20 on 2180 terms).

    Parameters
    ----------
    n_topics : int
        Number of topics.
    variance : float, default 0.5
        Variance of the standardised response around its mean (tomotopy's `glm_param`). A smaller one gives
        the response more weight in the topics, much like our rho, and noisier predictions.
    sweeps : int, default 200
        Gibbs sweeps over the training documents.
    infers : int, default 8
        Predictions to average: one inference is a noisy sample, and only a different number of iterations
        (100, 95, 105, 90, ...) gives another.
    seed : int, default 0
        Seed of the sampler.
    """

    def __init__(
        self, n_topics: int, *, variance: float = 0.5, sweeps: int = 200, infers: int = 8, seed: int = 0
    ) -> None:
        self.n_topics = n_topics
        self.variance = variance
        self.sweeps = sweeps
        self.iterations = [100 + 5 * ((i + 1) // 2) * (1 if i % 2 == 0 else -1) for i in range(infers)]
        self.seed = seed

    def fit(self, documents: NDArray[np.object_], y: NDArray[np.float64]) -> TomotopySLDA:
        from tomotopy import SLDAModel

        self.mean, self.scale = y.mean(), y.std()
        model = SLDAModel(
            k=self.n_topics,
            vars="l",
            alpha=1.0,
            eta=0.1,
            nu_sq=[10.0],
            glm_param=[self.variance],
            seed=self.seed,
        )
        model.optim_interval = 0  # alpha stays
        for words, value in zip(documents, (y - self.mean) / self.scale, strict=True):
            model.add_doc(words, [float(value)])
        model.train(self.sweeps, workers=1)
        self.model = model
        return self

    def predict(self, documents: NDArray[np.object_]) -> NDArray[np.float64]:
        unseen = [self.model.make_doc(words) for words in documents]
        total = np.zeros(len(unseen))
        for iterations in self.iterations:
            self.model.infer(unseen, iterations=iterations, workers=1)
            total += np.array([values[0] for values in self.model.estimate(unseen)])
        return self.mean + self.scale * total / len(self.iterations)


def word_lists(problem: Problem) -> NDArray[np.object_]:
    """Each document as a list of its words, repeated as often as they occur."""
    counts, documents = problem.counts, np.empty(problem.counts.shape[0], dtype=object)
    for d, (start, end) in enumerate(zip(counts.indptr[:-1], counts.indptr[1:], strict=True)):
        documents[d] = np.repeat(
            problem.vocabulary[counts.indices[start:end]], counts.data[start:end]
        ).tolist()
    return documents


def _tomotopy(n_topics: int, **options: Any) -> TomotopySLDA:
    importlib.import_module("tomotopy")
    return TomotopySLDA(n_topics, **options)


def _lda_ridge(n_topics: int) -> Any:
    from dslda.evaluation.baselines import lda_ridge_pipeline

    return lda_ridge_pipeline(n_topics=n_topics)


def _lasso(n_topics: None) -> Any:
    from dslda.evaluation.baselines import lasso_pipeline

    return lasso_pipeline()


def _tfidf_ridge(n_topics: None) -> Any:
    from dslda.evaluation.baselines import tfidf_ridge_pipeline

    return tfidf_ridge_pipeline()


def _dslda(n_topics: int, **options: Any) -> Any:
    from dslda import SLDARegressor

    return SLDARegressor(n_topics=n_topics, **options)


METHODS: dict[str, Method] = {
    "lda_ridge": Method("scikit-learn LDA + ridge", _lda_ridge),
    "lasso": Method("lasso on frequencies", _lasso, uses_topics=False),
    "tfidf_ridge": Method("TF-IDF + ridge", _tfidf_ridge, uses_topics=False),
    **{
        name: Method(
            f"tomotopy SLDAModel, variance {variance}",
            _tomotopy,
            {"variance": variance},
            documents=word_lists,
            requires="tomotopy",
        )
        for name, variance in (("tomotopy", 0.5), ("tomotopy_variance0.1", 0.1))
    },
    "dslda_defaults": Method("dslda, the defaults", _dslda, requires="dslda.estimators"),
    "dslda": Method(
        "dslda, the paper's model (rho = 1, alpha = 1/K)",
        _dslda,
        {"objective": "joint", "doc_topic_prior": "1/K"},
        requires="dslda.estimators",
    ),
    "dslda_alpha1": Method(
        "dslda, rho = 1, alpha = 1, tol = 3e-4",
        _dslda,
        {"doc_topic_prior": 1.0, "tol": 3e-4},
        requires="dslda.estimators",
    ),
    "dslda_rho3": Method(
        "dslda, rho = 3, alpha = 1/K",
        _dslda,
        {"response_weight": 3.0, "doc_topic_prior": "1/K"},
        requires="dslda.estimators",
    ),
    **{
        f"dslda{suffix}_variational": Method(
            f"dslda, {said}, variational topics",
            _dslda,
            {"topic_estimation": "variational", **options},
            requires="dslda.estimators",
        )
        for suffix, said, options in (
            ("", "rho = 1, alpha = 1/K", {"doc_topic_prior": "1/K"}),
            ("_alpha1", "rho = 1, alpha = 1, tol = 3e-4", {"doc_topic_prior": 1.0, "tol": 3e-4}),
            ("_rho3", "rho = 3, alpha = 1/K", {"response_weight": 3.0, "doc_topic_prior": "1/K"}),
        )
    },
}


def evaluation(
    name: str, n_topics: int | None, vocabulary: str, n_folds: int, options: Mapping[str, Any]
) -> Callable[[], dict[str, float]]:
    """Prepare the cross-validation of one method on the movie reviews, for `benchmarks.measure.measure`.

    Parameters
    ----------
    name : str
        Key of `METHODS`.
    n_topics : int or None
        Number of topics; None where the method has none.
    vocabulary : {"full", "2180"}
        As in `benchmarks.problems.movie_reviews`.
    n_folds : int
        Number of folds, the same for every method.
    options : mapping
        Options of the method in addition to its own.

    Returns
    -------
    callable
        Returns "r2" and "correlation" (held-out documents of all folds pooled), "fit_cpu_seconds" and
        "predict_cpu_seconds" (mean of the folds).
    """
    method, problem = METHODS[name], movie_reviews(vocabulary)
    documents = method.documents(problem)
    build = partial(method.build, n_topics, **{**method.options, **options})
    # Imports and just-in-time compilation, which a user pays once, are not part of the work.
    build().fit(documents[:WARM_UP], problem.y[:WARM_UP])

    def work() -> dict[str, float]:
        predicted, fit, predict = np.empty_like(problem.y), 0.0, 0.0
        for train, held_out in folds(len(problem.y), n_folds, seed=FOLD_SEED):
            start = cpu_seconds()
            model = build().fit(documents[train], problem.y[train])
            fitted = cpu_seconds()
            predicted[held_out] = model.predict(documents[held_out])
            fit, predict = fit + fitted - start, predict + cpu_seconds() - fitted
        return {
            "r2": predictive_r2(problem.y, predicted),
            "correlation": correlation(problem.y, predicted),
            "fit_cpu_seconds": fit / n_folds,
            "predict_cpu_seconds": predict / n_folds,
        }

    return work
