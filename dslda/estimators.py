"""Estimators with scikit-learn's interface, thin over :func:`dslda.train`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from dslda.arrays import response_array
from dslda.engine.progress import LogProgress
from dslda.exceptions import DataWarning, InputError
from dslda.model import Model
from dslda.training import DEFAULTS, train
from dslda.variational.parameters import Granularity

__all__ = ["SLDARegressor"]


class SLDARegressor(RegressorMixin, TransformerMixin, BaseEstimator):
    """Supervised latent Dirichlet allocation with a real-valued response.

    Learns topics that explain both the words of documents and a number that belongs to each. As a regressor
    it predicts that number, as a transformer it gives the topic proportions; both leave the response out.

    Parameters
    ----------
    n_topics : int, default 20
    family : {"gaussian"}, default "gaussian"
        Distribution of the response.
    doc_topic_prior : float or None, default None
        Symmetric Dirichlet parameter of the topic proportions, the paper's alpha; None is 1 / n_topics.
    topic_prior : float
        Pseudo-count of every term in every topic; 0 is the paper's maximum likelihood.
    response_weight : float, default 1
        Weight rho of the response in the E-step. 1 is the paper's model; 2 to 8 often predict better.
    granularity : {"term", "token"}
        Whether the occurrences of a term in a document share one variational distribution.
    max_iter : int
        Cap on EM iterations.
    tol : float
        EM stops when the corpus ELBO changes by less than this fraction.
    max_sweeps, sweep_tol : int, float
        The same for the coordinate ascent of one document.
    dispersion_floor : float
        Lower bound of the dispersion, as a fraction of the variance of the response.
    seed : int, default 0
        Of the start. The result is a pure function of data and parameters.

    Attributes
    ----------
    topic_word_ : ndarray of float64, shape (n_topics, n_features_in_)
        Word probabilities of each topic, the paper's beta.
    coef_ : ndarray of float64, shape (n_topics,)
        Expected response of a document that is all about a topic, in the units of `y`: the paper's eta.
    dispersion_ : float
        Variance of the response around its expectation, the paper's delta.
    doc_topic_prior_ : ndarray of float64, shape (n_topics,)
        The alpha in use.
    doc_topic_ : ndarray of float64, shape (n_documents, n_topics)
        Topic proportions of the training documents, which have seen their responses; `transform` gives those
        that have not.
    elbo_ : float
        Evidence lower bound at the end.
    n_iter_ : int
        EM iterations.
    model_ : Model
        The fitted model, with topics, coefficients and their standard errors, trace, `save`.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Where `X` had names of columns that are all strings.

    Notes
    -----
    `X` holds counts: numbers >= 0, sparse or dense, documents by terms. Values that are not whole are rounded
    with a :class:`~dslda.exceptions.DataWarning`, as the model is one of counts; do not feed it TF-IDF.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> texts = ["good film", "bad film", "good good plot", "bad bad plot"]
    >>> model = make_pipeline(CountVectorizer(), SLDARegressor(n_topics=2, topic_prior=0.1))
    >>> model.fit(texts, [1.0, -1.0, 2.0, -2.0]).predict(["good film"]).shape
    (1,)
    """

    def __init__(
        self,
        n_topics: int = DEFAULTS.n_topics,
        *,
        family: str = DEFAULTS.family,
        doc_topic_prior: float | None = DEFAULTS.alpha,
        topic_prior: float = DEFAULTS.topic_prior,
        response_weight: float = DEFAULTS.rho,
        granularity: Granularity = DEFAULTS.granularity,
        max_iter: int = DEFAULTS.max_iter,
        tol: float = DEFAULTS.tol,
        max_sweeps: int = DEFAULTS.max_sweeps,
        sweep_tol: float = DEFAULTS.sweep_tol,
        dispersion_floor: float = DEFAULTS.delta_floor,
        seed: int = DEFAULTS.seed,
    ) -> None:
        self.n_topics = n_topics
        self.family = family
        self.doc_topic_prior = doc_topic_prior
        self.topic_prior = topic_prior
        self.response_weight = response_weight
        self.granularity = granularity
        self.max_iter = max_iter
        self.tol = tol
        self.max_sweeps = max_sweeps
        self.sweep_tol = sweep_tol
        self.dispersion_floor = dispersion_floor
        self.seed = seed

    def fit(self, X: Any, y: ArrayLike) -> SLDARegressor:
        """Learn topics and coefficients.

        Parameters
        ----------
        X : sparse matrix or array-like, shape (n_documents, n_terms)
            Counts.
        y : array-like of float, shape (n_documents,)
            Responses, finite, at least two distinct values. None may be missing, as everywhere in
            scikit-learn; :func:`dslda.train` takes documents without a response.

        Returns
        -------
        SLDARegressor
            Self.

        Raises
        ------
        InputError
            A parameter or the data are not usable; a ValueError.
        """
        try:
            X, y = validate_data(self, X, y, accept_sparse="csr", y_numeric=True, ensure_min_samples=2)
        except ValueError as error:
            _explain(error, X, y)
            raise
        check_non_negative(X, "SLDARegressor")
        counts = _counts(X)
        if counts.nnz == 0:
            raise InputError("X must hold counts of words, got no value above 0.5 in any row")
        names = getattr(self, "feature_names_in_", None)
        self.model_: Model = train(
            counts,
            response=_responses(y),
            terms=None if names is None else [str(name) for name in names],
            progress=LogProgress(),
            **self.get_params(deep=False),
        )
        self.topic_word_ = self.model_.topic_word
        self.coef_ = self.model_.record.scaling.to_user(self.model_.record.parameters.eta)
        self.dispersion_ = self.model_.dispersion
        self.doc_topic_prior_ = self.model_.doc_topic_prior
        self.doc_topic_ = self.model_.training_topic_proportions(counts, y)
        self.elbo_ = float(self.model_.trace["elbo"][-1])
        self.n_iter_ = self.model_.training.n_iterations
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Expected responses.

        Parameters
        ----------
        X : sparse matrix or array-like, shape (n_documents, n_terms)
            Counts over the terms trained on.

        Returns
        -------
        ndarray of float64, shape (n_documents,)
            In the units of `y`. A document without a known word gets the prediction at the prior's mean.
        """
        counts = self._checked(X)
        return self.model_.predict(counts)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Topic proportions, the response left out.

        Parameters
        ----------
        X : sparse matrix or array-like, shape (n_documents, n_terms)

        Returns
        -------
        ndarray of float64, shape (n_documents, n_topics)
            Rows sum to 1.
        """
        counts = self._checked(X)
        return self.model_.transform(counts)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns that :meth:`transform` gives: ``sldaregressor0`` and so on."""
        check_is_fitted(self)
        return np.asarray([f"sldaregressor{k}" for k in range(self.model_.n_topics)], dtype=object)

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        try:
            X = validate_data(self, X, accept_sparse="csr", reset=False, ensure_non_negative=True)
        except ValueError as error:
            _explain(error, X)
            raise
        return _counts(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        # scikit-learn's checks ask for R2 above 0.5 on rows of normal numbers; these are no documents
        tags.regressor_tags.poor_score = True
        return tags


def _explain(error: ValueError, X: Any, y: Any = None) -> None:
    """Say what to do where scikit-learn only says that texts and missing responses are no numbers.

    Raises
    ------
    InputError
        `X` is texts, or `y` has missing values or no numbers.
    """
    if not sparse.issparse(X) and any(
        isinstance(value, str) for value in np.ravel(np.asarray(X, dtype=object))
    ):
        raise InputError(
            "X must be a matrix of counts, got texts; put a CountVectorizer in front: "
            "make_pipeline(CountVectorizer(), SLDARegressor())"
        ) from error
    # the rest is as clear as it can be in scikit-learn's words, which its checks insist on
    if y is not None and str(error).startswith(("Input y contains NaN", "could not convert")):
        _responses(np.asarray(y, dtype=object))


def _responses(y: Any) -> NDArray[np.float64]:
    """Responses as numbers, none of which may be missing."""
    responses = response_array(y, len(y), what="y")
    if np.isnan(responses).any():
        # begins as scikit-learn's own message does
        raise InputError(
            "Input y contains NaN, which scikit-learn's estimators refuse; leave these documents out, or let "
            "them help to learn the topics with dslda.train(X, response=y), for which NaN is a missing response"
        )
    return responses


def _counts(X: Any) -> Any:
    """Whole numbers in compressed rows; what is not whole is rounded, and said."""
    csr = sparse.csr_array(X)
    if csr.data.dtype.kind != "f":
        return csr
    whole = np.rint(csr.data)
    n_changed = int(np.count_nonzero(whole != csr.data))
    if not n_changed:
        return csr
    warnings.warn(
        f"X must hold counts: {n_changed} of its {csr.nnz} values that are not 0 are not whole numbers and "
        "were rounded; give counts (CountVectorizer), not TF-IDF or frequencies",
        DataWarning,
        stacklevel=3,
    )
    rounded = sparse.csr_array((whole, csr.indices, csr.indptr), shape=csr.shape)
    rounded.eliminate_zeros()
    return rounded
