"""Rivals of sLDA from scikit-learn, with settings that let each do well.

The pipelines are unfitted. They take documents as counts and run in one thread, apart from BLAS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.exceptions import InputError

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

__all__ = ["fit_predict", "lasso_pipeline", "lda_ridge_pipeline", "tfidf_ridge_pipeline"]

INNER_FOLDS = 5
N_PENALTIES = 30


def lda_ridge_pipeline(*, n_topics: int = 20, max_iter: int = 40, seed: int = 0) -> Pipeline:
    """Unsupervised LDA, then ridge regression on the documents' topic proportions.

    Exact leave-one-out chooses the penalty; it does not depend on the order of the documents. `max_iter` is the number of
    passes over the documents, `seed` the seed of LDA's start.
    """
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    topics = LatentDirichletAllocation(
        n_topics,
        learning_method="batch",
        max_iter=max_iter,
        doc_topic_prior=1.0,
        topic_word_prior=0.1,
        random_state=seed,
    )
    return make_pipeline(topics, RidgeCV(np.logspace(-4, 4, 17)))


def lasso_pipeline(*, seed: int = 0) -> Pipeline:
    """Lasso on term frequencies (counts divided by the document's length), as in the sLDA paper."""
    from sklearn.linear_model import LassoCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    # The defaults, 100 penalties and tol 1e-4, take five times as long on the movie reviews for the same R2.
    model = LassoCV(alphas=N_PENALTIES, cv=_inner_folds(seed), tol=1e-3, max_iter=5000)
    return make_pipeline(Normalizer("l1"), model)


def tfidf_ridge_pipeline(*, seed: int = 0) -> Pipeline:
    """Ridge regression on TF-IDF with logarithmic term frequencies, usually the hardest simple rival to beat.

    Inner folds choose the penalty: leave-one-out would need a dense matrix with a row and column for every document or term.
    """
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    penalties = np.logspace(-1.5, 2.5, 17)
    return make_pipeline(TfidfTransformer(sublinear_tf=True), RidgeCV(penalties, cv=_inner_folds(seed)))


def fit_predict(pipeline: Pipeline, X_train: Any, y_train: ArrayLike, X_test: Any) -> NDArray[np.float64]:
    """Fit a pipeline to documents and their responses, and predict other documents over the same vocabulary."""
    pipeline.fit(_counts(X_train), np.asarray(y_train, dtype=np.float64))
    predicted: NDArray[np.float64] = pipeline.predict(_counts(X_test))
    return predicted


def _inner_folds(seed: int) -> Any:
    """Shuffled folds: in a file sorted by author, others would choose a penalty for predicting unseen authors."""
    from sklearn.model_selection import KFold

    return KFold(INNER_FOLDS, shuffle=True, random_state=seed)


def _counts(X: Any) -> Any:
    """`X` as CSR with 32-bit indices: scikit-learn's solvers refuse the 64-bit `indptr` of our blocks."""
    from scipy.sparse import csr_array

    X = csr_array(X)
    if X.nnz > np.iinfo(np.int32).max:
        raise InputError(
            f"a baseline must have fewer than 2**31 counts, got {X.nnz}",
            remedy="take a sample of the documents",
        )
    return csr_array((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
