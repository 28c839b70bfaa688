"""What a user would try instead of sLDA, from scikit-learn, each with settings that let it do well.

The estimators are returned unfitted, so that benchmarks can time fitting and predicting apart; `lda_ridge`,
`lasso` and `tfidf_ridge` fit one and predict in one call. All take documents as counts and run in one
thread, apart from what BLAS does by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.exceptions import InputError

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

__all__ = [
    "lasso",
    "lasso_pipeline",
    "lda_ridge",
    "lda_ridge_pipeline",
    "tfidf_ridge",
    "tfidf_ridge_pipeline",
]

INNER_FOLDS = 5
N_PENALTIES = 30


def lda_ridge_pipeline(*, n_topics: int = 20, max_iter: int = 40, seed: int = 0) -> Pipeline:
    """Unsupervised LDA, then ridge regression on the documents' topic proportions.

    Parameters
    ----------
    n_topics : int, default 20
        Number of topics.
    max_iter : int, default 40
        Passes over the documents.
    seed : int, default 0
        Seed of LDA's start.

    Returns
    -------
    sklearn.pipeline.Pipeline
        Unfitted. The penalty is chosen by exact leave-one-out, which no order of the documents can spoil.
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
    """Lasso on term frequencies (counts divided by the document's length), as in the sLDA paper.

    Parameters
    ----------
    seed : int, default 0
        Seed of the inner folds that choose the penalty. They are shuffled: in a file sorted by author,
        folds cut in file order would choose it for predicting strangers.

    Returns
    -------
    sklearn.pipeline.Pipeline
        Unfitted.
    """
    from sklearn.linear_model import LassoCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    # By default 100 penalties and tol 1e-4: on the movie reviews five times the time for the same R2.
    model = LassoCV(alphas=N_PENALTIES, cv=_inner_folds(seed), tol=1e-3, max_iter=5000)
    return make_pipeline(Normalizer("l1"), model)


def tfidf_ridge_pipeline(*, seed: int = 0) -> Pipeline:
    """Ridge regression on TF-IDF with logarithmic term frequencies, usually the hardest simple rival to beat.

    Parameters
    ----------
    seed : int, default 0
        Seed of the shuffled inner folds that choose the penalty. (Leave-one-out would need a dense matrix
        with a row and column for every document or term.)

    Returns
    -------
    sklearn.pipeline.Pipeline
        Unfitted.
    """
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    penalties = np.logspace(-1.5, 2.5, 17)
    return make_pipeline(TfidfTransformer(sublinear_tf=True), RidgeCV(penalties, cv=_inner_folds(seed)))


def lda_ridge(
    X_train: Any, y_train: ArrayLike, X_test: Any, *, n_topics: int = 20, max_iter: int = 40, seed: int = 0
) -> NDArray[np.float64]:
    """Fit `lda_ridge_pipeline` and predict.

    Parameters
    ----------
    X_train, X_test : sparse matrix or array of counts, shape (n_documents, n_terms)
        Documents to learn from and to predict, over the same vocabulary.
    y_train : array-like of float, shape (n_documents,)
        Responses of the training documents, finite.
    n_topics, max_iter, seed : int
        As in `lda_ridge_pipeline`.

    Returns
    -------
    ndarray of float64, shape (n_test_documents,)
        Predicted responses.
    """
    return _fit_predict(
        lda_ridge_pipeline(n_topics=n_topics, max_iter=max_iter, seed=seed), X_train, y_train, X_test
    )


def lasso(X_train: Any, y_train: ArrayLike, X_test: Any, *, seed: int = 0) -> NDArray[np.float64]:
    """Fit `lasso_pipeline` and predict; arguments and result as in `lda_ridge`."""
    return _fit_predict(lasso_pipeline(seed=seed), X_train, y_train, X_test)


def tfidf_ridge(X_train: Any, y_train: ArrayLike, X_test: Any, *, seed: int = 0) -> NDArray[np.float64]:
    """Fit `tfidf_ridge_pipeline` and predict; arguments and result as in `lda_ridge`."""
    return _fit_predict(tfidf_ridge_pipeline(seed=seed), X_train, y_train, X_test)


def _inner_folds(seed: int) -> Any:
    from sklearn.model_selection import KFold

    return KFold(INNER_FOLDS, shuffle=True, random_state=seed)


def _fit_predict(model: Pipeline, X_train: Any, y_train: ArrayLike, X_test: Any) -> NDArray[np.float64]:
    model.fit(_counts(X_train), np.asarray(y_train, dtype=np.float64))
    predicted: NDArray[np.float64] = model.predict(_counts(X_test))
    return predicted


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
