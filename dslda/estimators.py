"""Estimators with scikit-learn's interface, thin over :func:`dslda.train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pandas import Categorical, DataFrame, isna
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_non_negative, validate_data

from dslda.array_inputs import response_array
from dslda.corpus.levels import UNKNOWN, LevelIndex, encodable, level_order, ordered_categories
from dslda.engine.progress import LogProgress
from dslda.exceptions import DataWarning, InputError, warn
from dslda.inputs.in_memory import summable_counts
from dslda.model import Model
from dslda.prediction.columns import columns_of_arrays, undetermined, wanted_columns
from dslda.prediction.record_counting import PredictOptions
from dslda.settings import (
    SETTINGS,
    DocTopicPrior,
    Emphasis,
    Granularity,
    Objective,
    SeedWords,
    TermWeights,
    TopicEstimation,
)
from dslda.training.response import chosen_family
from dslda.training.train import DEFAULTS, train
from dslda.training.training_set import ClassWeight
from dslda.wording import first_few, number_name, number_of

if TYPE_CHECKING:
    from dslda.families.base import Family

__all__ = ["SLDAClassifier", "SLDARegressor"]

RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None

MOST_SEED = 2**31 - 1
"""Seeds that are drawn are below it, as those of scikit-learn."""


class _SLDA(TransformerMixin, BaseEstimator):
    """Base of both estimators: counts in, topic proportions out."""

    model_: Model

    def _fit(
        self,
        counts: Any,
        response: Any,
        *,
        sample_weight: Any,
        covariates: Any,
        **settings: Any,
    ) -> None:
        """Train on checked counts."""
        if counts.nnz == 0:
            raise InputError("must hold counts of words, got no value above 0.5 in any row", parameter="X")
        names = getattr(self, "feature_names_in_", None)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, counts, ensure_non_negative=True)
        columns = {} if covariates is None else _table_columns(covariates, counts.shape[0])
        self.model_ = model = train(
            counts,
            response=response,
            terms=None if names is None else [str(name) for name in names],
            progress=LogProgress(),
            weight=sample_weight,
            covariates=columns,
            **settings,
        )
        self.topic_word_ = model.topic_word
        self.doc_topic_prior_ = model.doc_topic_prior
        self.elbo_ = float(model.trace["elbo"][-1])
        self.n_iter_ = model.training.n_iterations

    def _settings(self) -> dict[str, Any]:
        """The parameters as keywords of :func:`dslda.train`."""
        settings: dict[str, Any] = self.get_params(deep=False)
        random_state, seed = settings.pop("random_state"), settings.pop("seed")
        if isinstance(seed, str) and seed == "deprecated":
            return settings | {"seed": _drawn_seed(random_state)}
        if random_state != 0:
            raise InputError("must be left out beside random_state", parameter="seed")
        warn(
            FutureWarning(
                "seed has become random_state, and will be refused by the next release; write "
                f"random_state={seed!r}"
            )
        )
        return settings | {"seed": seed}

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Topic proportions, without the response.

        Parameters
        ----------
        X : sparse matrix or array-like, shape (n_documents, n_terms)
            Counts over the terms trained on.

        Returns
        -------
        ndarray of float64, shape (n_documents, n_topics)
            Rows sum to 1.
        """
        counts = self._checked(X)
        # topics are those of the words: any value of a covariate will do
        missing = np.full(counts.shape[0], np.nan)
        return self.model_.transform(
            counts, covariates=dict.fromkeys(wanted_columns(self.model_.record)[0], missing)
        )

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns that :meth:`transform` gives: the class's name in lower case and 0, 1, ..."""
        check_is_fitted(self)
        prefix = type(self).__name__.lower()
        return np.asarray([f"{prefix}{k}" for k in range(self.model_.n_topics)], dtype=object)

    def _covariates(self, covariates: Any, counts: Any) -> dict[str, Any]:
        """Covariates to predict with: those of training, none missing, as scikit-learn demands."""
        record = self.model_.record
        needed, _ = wanted_columns(record)
        if covariates is None and needed:
            raise InputError(
                f"must be given, as the estimator was fitted with {', '.join(map(repr, needed))}",
                parameter="covariates",
            )
        columns = {} if covariates is None else _table_columns(covariates, counts.shape[0])
        if not needed and columns:
            raise InputError(
                "must be left out: the estimator was fitted without them", parameter="covariates"
            )
        codes = columns_of_arrays(columns, record, counts.shape[0])
        unseen = np.flatnonzero(undetermined(record, codes, counts.shape[0]) != "")
        if len(unseen):
            row = int(unseen[0])
            got = {name: np.asarray(values, dtype=object)[row] for name, values in columns.items()}
            raise InputError(
                f"must be levels that fit has seen, and are not in {number_of(len(unseen), 'row')}; row {row}: {got}",
                parameter="covariates",
            )
        return columns

    def _checked(self, X: Any) -> Any:
        """Counts to predict with."""
        check_is_fitted(self)
        return _counts(self._validated(X, reset=False, ensure_non_negative=True))

    def _validated(self, X: Any, *y: Any, y_numeric: bool = False, **checks: Any) -> Any:
        """The arrays as scikit-learn checks them, with advice where texts or missing responses are no numbers."""
        if y:
            checks |= {"y_numeric": y_numeric, "ensure_min_samples": 2}
        try:
            return validate_data(self, summable_counts(X, "X"), *y, accept_sparse="csr", **checks)
        except ValueError as error:
            if not sparse.issparse(X) and any(
                isinstance(value, str) for value in np.ravel(np.asarray(X, dtype=object))
            ):
                raise InputError(
                    "must be a matrix of counts, got texts",
                    parameter="X",
                    remedy=f"put a CountVectorizer in front: make_pipeline(CountVectorizer(), {type(self).__name__}())",
                ) from error
            # the rest is as clear as it can be in scikit-learn's words, which its checks insist on
            if y_numeric and str(error).startswith(("Input y contains NaN", "could not convert")):
                _responses(np.asarray(y[0], dtype=object))
            raise

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


class SLDARegressor(RegressorMixin, _SLDA):
    """Supervised latent Dirichlet allocation with a number as response.

    Learns topics that explain both the words of documents and a number that belongs to each. As a regressor it predicts that
    number from the words; as a transformer it gives the topic proportions of the words.

    Parameters
    ----------
    n_topics : int, default 20
    family : str or Family, default "gaussian"
        Distribution of the response: a family of numbers in docs/families.md, such as "poisson", or your own.
    doc_topic_prior : float, "auto", "asymmetric", "1/K" or None, default "auto"
        Dirichlet parameter of the topic proportions, the paper's alpha. "auto" estimates one number, "asymmetric" one
        for each topic; "1/K" and None are 1 / n_topics.
    topic_prior : float, default 0.01
        Pseudo-count of every term in every topic; 0 is the paper's maximum likelihood.
    topic_estimation : {"map", "variational"}, default "map"
        Topics as points, their posterior mode, or as distributions; `topic_prior` must then be at least 0.005.
    response_weight : float, default 1
        Weight rho of the response in the E-step. 1 is the paper's model; 2 or 3 predict better where words say much of the
        response, worse where they say little.
    objective : {"auto", "conditional", "joint"}, default "auto"
        Likelihood of the response given the words, or of both together: see :func:`dslda.train`.
    emphasis : {"themes", "balance", "prediction"}, default "themes"
        What topics of conditional training are for: themes, prediction by the topics alone, or a balance of both.
    term_weights : {"auto", "sqrt", "raw", "log", "binary"}, default "auto"
        Weight of a term by its count, in conditional training.
    remainder : bool, default True
        Let single words add to what topics predict, in conditional training, where an inner part of the documents gains by
        it.
    granularity : {"term", "token"}, default "term"
        Unit with its own variational distribution: all occurrences of a term in a document, or each token.
    max_iter, tol : int, float, default 100, 1e-4
        EM stops after this many iterations, or when changes of the ELBO fall below this fraction: see :func:`dslda.train`.
    max_sweeps, sweep_tol : int, float, default 100, 1e-4
        The E-step leaves a document after this many sweeps, or when its ELBO changes by less than this fraction.
    dispersion_floor : float, default 0.1
        Lower bound of the dispersion, as a fraction of the variance of the response.
    ridge : float or None, default None
        Precision of a Gaussian prior on the coefficients; None is the default of the family.
    levels : sequence of float or None, default None
        Levels of an ordinal response, from the lowest to the highest; None takes the whole numbers from the lowest `y` to the
        highest.
    seed_words : mapping of str to iterable of str, or None, default None
        Names of topics, with words that each is to hold; `X` must be a DataFrame, whose columns are the words. See
        :func:`dslda.train`.
    n_starts : int, default 1
        Starts from different seeds, whose predictions are averaged; topics and coefficients are those of the best one.
    bootstrap : int, default 0
        Fits to rows drawn again, which give the coefficients intervals: `model_.coefficient_table()` shows them. See
        :func:`dslda.train`.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default 0
        Seed of the start, or where to draw one from; None draws from numpy's global state. With an int the result is a pure
        function of data and parameters.
    seed : int
        The former name of `random_state`; it will go in the next release.

    Attributes
    ----------
    topic_word_ : ndarray of float64, shape (n_topics, n_features_in_)
        Word probabilities of each topic, the paper's beta, or their posterior means.
    coef_ : ndarray of float64, shape (n_topics,)
        Linear predictor of a document that is all about a topic, the paper's eta; for a Gaussian, its expected
        response in the units of `y`. The features are topics: their shares in the words of a document, which sum to 1.
    intercept_ : float
        0: the coefficients of the topics hold the intercept.
    dispersion_ : float or None
        The paper's delta: for a Gaussian the variance of the response around its expectation.
    doc_topic_prior_ : ndarray of float64, shape (n_topics,)
        The alpha in use.
    doc_topic_ : ndarray of float64, shape (n_documents, n_topics)
        Topic proportions of the training documents given words and responses; `transform` gives those given only words.
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
    `X` holds counts: numbers >= 0, sparse or dense, documents by terms. Numbers that are not whole are rounded with a
    :class:`~dslda.exceptions.DataWarning`; TF-IDF, in rows of length 1, is refused.

    A matrix has no words: unless `X` is a DataFrame with names, `model_.topics()` has numbers of columns instead. After a
    vectorizer, ``names = pipeline[0].get_feature_names_out()`` has the word of each.

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
        family: str | Family = DEFAULTS.family,
        doc_topic_prior: DocTopicPrior = DEFAULTS.doc_topic_prior,
        topic_prior: float = DEFAULTS.topic_prior,
        topic_estimation: TopicEstimation = DEFAULTS.topic_estimation,
        response_weight: float = DEFAULTS.response_weight,
        objective: Objective = DEFAULTS.objective,
        emphasis: Emphasis = DEFAULTS.emphasis,
        term_weights: TermWeights = DEFAULTS.term_weights,
        remainder: bool = DEFAULTS.remainder,
        granularity: Granularity = DEFAULTS.granularity,
        max_iter: int = DEFAULTS.max_iter,
        tol: float = DEFAULTS.tol,
        max_sweeps: int = DEFAULTS.max_sweeps,
        sweep_tol: float = DEFAULTS.sweep_tol,
        dispersion_floor: float = DEFAULTS.dispersion_floor,
        ridge: float | None = DEFAULTS.ridge,
        levels: Sequence[str | float] | None = None,
        seed_words: SeedWords = DEFAULTS.seed_words,
        n_starts: int = DEFAULTS.n_starts,
        bootstrap: int = DEFAULTS.bootstrap,
        random_state: RandomState = DEFAULTS.seed,
        seed: int | Literal["deprecated"] = "deprecated",
    ) -> None:
        self.n_topics = n_topics
        self.family = family
        self.doc_topic_prior = doc_topic_prior
        self.topic_prior = topic_prior
        self.topic_estimation = topic_estimation
        self.response_weight = response_weight
        self.objective = objective
        self.emphasis = emphasis
        self.term_weights = term_weights
        self.remainder = remainder
        self.granularity = granularity
        self.max_iter = max_iter
        self.tol = tol
        self.max_sweeps = max_sweeps
        self.sweep_tol = sweep_tol
        self.dispersion_floor = dispersion_floor
        self.ridge = ridge
        self.levels = levels
        self.seed_words = seed_words
        self.n_starts = n_starts
        self.bootstrap = bootstrap
        self.random_state = random_state
        self.seed = seed

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, *, covariates: Any = None
    ) -> SLDARegressor:
        """Learn topics and coefficients.

        Parameters
        ----------
        X : sparse matrix or array-like, shape (n_documents, n_terms)
            Counts.
        y : array-like of float, shape (n_documents,)
            Responses: finite, at least two distinct values, none missing, as everywhere in scikit-learn.
            :func:`dslda.train` takes documents without a response.
        sample_weight : array-like of float, shape (n_documents,), optional
            Weights of at least 0: a document of weight 2, words and response, counts as two.
        covariates : DataFrame or array, shape (n_documents, n_covariates), optional
            Join the topics in explaining the response; columns of str are categorical. :meth:`predict` needs the same. With
            ``set_fit_request(covariates=True)`` and its like, pipelines and searches pass them on and cut them by rows.

        Returns
        -------
        SLDARegressor
            Self.

        Raises
        ------
        InputError
            A parameter or the data are not usable; a ValueError.
        """
        X, y = self._validated(X, y, y_numeric=True)
        check_non_negative(X, "SLDARegressor")
        counts = _counts(X)
        family = chosen_family(self.family)
        if family is None or family.max_classes is None:
            raise InputError(
                f"must be one of numbers, got {self.family!r:.60}",
                parameter="family",
                remedy="classes are for SLDAClassifier",
            )
        self._fit(
            counts,
            _responses(y),
            sample_weight=sample_weight,
            covariates=covariates,
            **self._settings(),
        )
        by_topic = sorted(self.model_.coefficients())
        self.coef_ = np.array([coefficient.coefficient for coefficient in by_topic])
        self.intercept_ = 0.0
        self.dispersion_ = self.model_.dispersion
        self.doc_topic_ = self.model_.training_topic_proportions(
            counts, y, covariates=self._covariates(covariates, counts)
        )
        return self

    @overload
    def predict(self, X: Any, *, covariates: Any = None, interval: None = None) -> NDArray[np.float64]: ...

    @overload
    def predict(
        self, X: Any, *, covariates: Any = None, interval: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

    def predict(
        self, X: Any, *, covariates: Any = None, interval: float | None = None
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Expected responses.

        Parameters
        ----------
        X : sparse matrix or array-like, shape (n_documents, n_terms)
            Counts over the terms trained on.
        covariates : DataFrame or array, shape (n_documents, n_covariates), optional
            Those of :meth:`fit`, by the names of their columns.
        interval : float, optional
            Share of the responses that intervals around the predictions hold, such as 0.9: return these too.

        Returns
        -------
        ndarray of float64, shape (n_documents,)
            In the units of `y`. A document without a known word gets the mean response of training.
        ndarray of float64, shape (n_documents, 2)
            With `interval` only, beside the first: lower and upper ends, NaN for a document without a known word.

        Raises
        ------
        InputError
            The model has no intervals (docs/scoring.md says which have), or none of this level.
        """
        counts = self._checked(X)
        options: PredictOptions = {"covariates": self._covariates(covariates, counts)}
        if interval is None:
            return self.model_.predict(counts, **options)
        return self.model_.predict(counts, interval=interval, **options)

    def score(self, X: Any, y: ArrayLike, sample_weight: Any = None, *, covariates: Any = None) -> float:
        """R2 of the predictions; parameters as in :meth:`fit`."""
        return float(r2_score(y, self.predict(X, covariates=covariates), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn's checks ask for good scores on rows of normal numbers, which are no documents
        tags.regressor_tags.poor_score = True
        return tags


class SLDAClassifier(ClassifierMixin, _SLDA):
    """Supervised latent Dirichlet allocation with classes as response.

    Learns topics that explain both the words of documents and the class of each. As a classifier it predicts the class from
    the words; as a transformer it gives the topic proportions of the words.

    Parameters
    ----------
    family : {"auto", "binomial", "categorical", "ordinal"}, default "auto"
        "auto" is binomial for two classes, with one coefficient a topic; otherwise categorical, with one for each topic and
        class. "ordinal" is for ordered levels, with one coefficient a topic.
    n_topics, doc_topic_prior, topic_prior, topic_estimation, response_weight, granularity
        As in :class:`SLDARegressor`.
    max_iter, tol, max_sweeps, sweep_tol, seed_words, n_starts, bootstrap, random_state, seed
        As in :class:`SLDARegressor`.
    ridge : float or None, default None
        Precision of a Gaussian prior on the coefficients, which keeps those of separable classes finite; None is the default
        of the family, 0.01.
    class_weight : "balanced", mapping of class to weight, or None, default None
        Factors on the frequencies of the classes; "balanced" makes all equally frequent. They shift probabilities and
        coefficients, but not the fit: see :func:`dslda.train`. Classes go by their names, whatever the type.
    levels : sequence of str or float, or None, default None
        For "ordinal" the classes from the lowest to the highest. None takes the order of an ordered pandas Categorical, or of
        numbers.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
        Sorted, as scikit-learn expects them, also where they are levels.
    levels_ : ndarray, shape (n_classes,)
        For "ordinal" the classes from the lowest level to the highest.
    coef_ : ndarray of float64, shape (n_classes, n_topics), or (1, n_topics) for two classes and for levels
        Log-odds; of the second class of two, of lying above the lowest level for levels. The features are topics, as in
        :class:`SLDARegressor`.
    intercept_ : ndarray of float64, shape (n_classes,), or (1,) for two classes, or (n_classes - 1,) for levels
        0, since the coefficients hold it; for levels minus the cutpoints, so that ``coef_ @ shares + intercept_`` are the log
        odds of lying above each level but the highest.
    topic_word_, doc_topic_prior_, elbo_, n_iter_, model_, n_features_in_, feature_names_in_
        As in :class:`SLDARegressor`.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> texts = ["good film", "bad film", "good good plot", "bad bad plot"]
    >>> model = make_pipeline(CountVectorizer(), SLDAClassifier(n_topics=2, topic_prior=0.1))
    >>> model.fit(texts, ["up", "down", "up", "down"]).predict(["good film"]).shape
    (1,)
    """

    def __init__(
        self,
        n_topics: int = DEFAULTS.n_topics,
        *,
        family: Literal["auto", "binomial", "categorical", "ordinal"] = "auto",
        doc_topic_prior: DocTopicPrior = DEFAULTS.doc_topic_prior,
        topic_prior: float = DEFAULTS.topic_prior,
        topic_estimation: TopicEstimation = DEFAULTS.topic_estimation,
        response_weight: float = DEFAULTS.response_weight,
        objective: Objective = DEFAULTS.objective,
        emphasis: Emphasis = DEFAULTS.emphasis,
        term_weights: TermWeights = DEFAULTS.term_weights,
        remainder: bool = DEFAULTS.remainder,
        granularity: Granularity = DEFAULTS.granularity,
        max_iter: int = DEFAULTS.max_iter,
        tol: float = DEFAULTS.tol,
        max_sweeps: int = DEFAULTS.max_sweeps,
        sweep_tol: float = DEFAULTS.sweep_tol,
        ridge: float | None = DEFAULTS.ridge,
        class_weight: ClassWeight | None = None,
        levels: Sequence[str | float] | None = None,
        seed_words: SeedWords = DEFAULTS.seed_words,
        n_starts: int = DEFAULTS.n_starts,
        bootstrap: int = DEFAULTS.bootstrap,
        random_state: RandomState = DEFAULTS.seed,
        seed: int | Literal["deprecated"] = "deprecated",
    ) -> None:
        self.n_topics = n_topics
        self.family = family
        self.doc_topic_prior = doc_topic_prior
        self.topic_prior = topic_prior
        self.topic_estimation = topic_estimation
        self.response_weight = response_weight
        self.objective = objective
        self.emphasis = emphasis
        self.term_weights = term_weights
        self.remainder = remainder
        self.granularity = granularity
        self.max_iter = max_iter
        self.tol = tol
        self.max_sweeps = max_sweeps
        self.sweep_tol = sweep_tol
        self.ridge = ridge
        self.class_weight = class_weight
        self.levels = levels
        self.seed_words = seed_words
        self.n_starts = n_starts
        self.bootstrap = bootstrap
        self.random_state = random_state
        self.seed = seed

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, *, covariates: Any = None
    ) -> SLDAClassifier:
        """Learn topics and coefficients.

        Parameters
        ----------
        X : sparse matrix or array-like, shape (n_documents, n_terms)
            Counts.
        y : array-like, shape (n_documents,)
            Classes, at least two.
        sample_weight, covariates
            As in :meth:`SLDARegressor.fit`.

        Returns
        -------
        SLDAClassifier
            Self.

        Raises
        ------
        InputError
            A parameter or the data are not usable; a ValueError.
        """
        labels = np.asarray(y, dtype=object)
        missing = np.asarray(isna(labels))
        # scikit-learn would take them for a class, or raise a TypeError
        if labels.ndim == 1 and missing.any():
            row = int(np.argmax(missing))
            raise InputError(
                f"must have a class for each document, got {labels[row]!r} in row {row}",
                parameter="y",
                remedy="leave these documents out",
            )
        column = y
        X, y = self._validated(X, y)
        check_classification_targets(y)
        check_non_negative(X, "SLDAClassifier")
        self.classes_, codes = np.unique(y, return_inverse=True)
        n_classes = len(self.classes_)
        if n_classes < 2:
            raise InputError(
                f"must have at least 2 classes, got 1 class, {self.classes_.tolist()[0]!r}", parameter="y"
            )
        of_numbers = self.classes_.dtype.kind in "iuf"
        names = [number_name(v) if of_numbers else encodable(str(v)) for v in self.classes_.tolist()]
        if len(set(names)) < len(names):
            raise InputError(
                f"must have classes whose names differ as UTF-8, got {self.classes_.tolist()!r:.60}",
                parameter="y",
            )
        settings = self._settings()
        if settings["family"] == "auto":
            settings["family"] = "binomial" if n_classes == 2 else "categorical"
        family = chosen_family(settings["family"])
        has_levels = family is not None and family.has_levels
        if family is not None and not (family.has_classes or has_levels):
            raise InputError(
                f"must be 'auto', 'binomial', 'categorical' or 'ordinal', got {settings['family']!r:.60}",
                parameter="family",
                remedy="counts and other numbers are for SLDARegressor",
            )
        if family is not None and family.max_classes and n_classes > family.max_classes:
            raise InputError(
                f"Only binary classification is supported by family {family.name!r}, got {n_classes} classes"
            )
        if isinstance(self.class_weight, Mapping):
            name_of = dict(zip(self.classes_.tolist(), names, strict=True))
            settings["class_weight"] = {
                name_of.get(label, label): w for label, w in self.class_weight.items()
            }
        if has_levels:
            order = level_order(self.levels) or ordered_categories(column)
            positions = _positions(names, codes, order, sorts=of_numbers or self.classes_.dtype.kind == "b")
            self.levels_ = self.classes_[positions]
            settings["levels"] = order or [names[i] for i in positions]
        self._fit(
            _counts(X),
            Categorical.from_codes(codes, categories=names),
            sample_weight=sample_weight,
            covariates=covariates,
            **settings,
        )
        # the classes in the order of the model, which leaves out levels whose documents weigh nothing
        index = LevelIndex(self.model_.classes or ())
        of_model = self.classes_.tolist() if of_numbers else names
        self._codes = np.array([index.code(label, "y") for label in of_model], dtype=np.int64)
        if of_numbers:
            # so that the model, wherever it is loaded, also knows classes by their numbers
            numbers = [float(self.classes_[i]) for i in np.argsort(self._codes) if self._codes[i] >= 0]
            design = replace(self.model_.record.design, classes=tuple(numbers))
            self.model_ = Model(replace(self.model_.record, design=design))
        parameters = self.model_.record.parameters
        if parameters.n_classes is not None:
            self.coef_ = self.model_.class_coefficients().T.copy()
            self.intercept_ = np.zeros(n_classes)
        else:
            self.coef_ = parameters.eta[np.newaxis].copy()
            self.intercept_ = (
                0.0 - self.model_.family.cutpoints(parameters.delta) if has_levels else np.zeros(1)
            )
        return self

    def predict_proba(self, X: Any, *, covariates: Any = None) -> NDArray[np.float64]:
        """Probabilities of the classes.

        Parameters
        ----------
        X : sparse matrix or array-like, shape (n_documents, n_terms)
            Counts over the terms trained on.
        covariates : DataFrame or array, shape (n_documents, n_covariates), optional
            Those of :meth:`fit`, by the names of their columns.

        Returns
        -------
        ndarray of float64, shape (n_documents, n_classes)
            In the order of `classes_`.
        """
        counts = self._checked(X)
        probabilities = self.model_.predict_proba(counts, covariates=self._covariates(covariates, counts))
        if np.array_equal(self._codes, np.arange(probabilities.shape[1])):
            return probabilities
        by_class = np.zeros((len(probabilities), len(self.classes_)))
        known = self._codes >= 0
        by_class[:, known] = probabilities[:, self._codes[known]]
        return by_class

    def predict_log_proba(self, X: Any, *, covariates: Any = None) -> NDArray[np.float64]:
        """Logarithms of the probabilities; parameters and shape as in :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            logarithms: NDArray[np.float64] = np.log(self.predict_proba(X, covariates=covariates))
        return logarithms

    def decision_function(self, X: Any, *, covariates: Any = None) -> NDArray[np.float64]:
        """Log-odds of the classes; parameters as in :meth:`predict_proba`.

        Returns
        -------
        ndarray of float64, shape (n_documents,) for two classes, else (n_documents, n_classes)
            Of the second of two classes; else the logarithms of the probabilities less their mean.
        """
        tiny = np.finfo(np.float64).tiny
        logarithms = np.log(np.maximum(self.predict_proba(X, covariates=covariates), tiny))
        if len(self.classes_) == 2:
            odds: NDArray[np.float64] = logarithms[:, 1] - logarithms[:, 0]
            return odds
        centred: NDArray[np.float64] = logarithms - logarithms.mean(axis=1, keepdims=True)
        return centred

    def predict(self, X: Any, *, covariates: Any = None) -> NDArray[Any]:
        """The most probable classes, shape (n_documents,); parameters as in :meth:`predict_proba`."""
        best = self.predict_proba(X, covariates=covariates).argmax(axis=1)
        classes: NDArray[Any] = self.classes_[best]
        return classes

    def score(self, X: Any, y: ArrayLike, sample_weight: Any = None, *, covariates: Any = None) -> float:
        """Accuracy of the predictions; parameters as in :meth:`fit`. Classes go by their names, whatever the type."""
        predicted = self.predict(X, covariates=covariates)
        labels = np.asarray(y)
        is_other = labels.dtype.kind != self.classes_.dtype.kind
        if is_other and labels.shape == predicted.shape and not isna(labels).any():
            index = LevelIndex(self.model_.classes or ())
            codes = [
                [index.code(label, "y") for label in each] for each in (labels.tolist(), predicted.tolist())
            ]
            y, predicted = (np.nan_to_num(each, nan=UNKNOWN) for each in codes)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # as for the regressor
        return tags


def _drawn_seed(random_state: Any) -> int:
    """The seed that a `random_state` of scikit-learn stands for: an int itself, else a number drawn from it."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(MOST_SEED))
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(MOST_SEED, dtype=np.int64))
    try:
        SETTINGS["seed"].check(random_state)
    except InputError:
        raise InputError(
            f"must be a whole number of at least 0, a RandomState, a Generator or None, got {random_state!r:.60}",
            parameter="random_state",
        ) from None
    return int(random_state)


def _positions(
    names: Sequence[str], codes: NDArray[np.int64], order: Sequence[str] | None, *, sorts: bool
) -> NDArray[np.int64]:
    """Positions of the classes from the lowest level to the highest; classes that `sorts` have an order of their own."""
    if order is None:
        if sorts:
            return np.arange(len(names))
        raise InputError(
            f"must list the classes of y from the lowest to the highest ({first_few([*map(repr, names)], 5)})",
            parameter="levels",
            remedy="make y an ordered pandas Categorical",
        )
    index = LevelIndex(order)
    ranks = np.array([index.code(name, "y") for name in names])
    if (unknown := np.flatnonzero(ranks == UNKNOWN)).size:
        row = int(np.argmax(codes == unknown[0]))
        raise InputError(
            f"must be one of the levels ({first_few([*map(repr, order)], 10)}), got {names[unknown[0]]!r} in row {row}",
            parameter="y",
        )
    return np.argsort(ranks)


def _table_columns(covariates: Any, n_documents: int) -> dict[str, Any]:
    """Columns by name of a table with a row for each document; refuses missing values."""
    if not isinstance(covariates, DataFrame):
        if isinstance(covariates, Mapping) or sparse.issparse(covariates) or np.ndim(covariates) != 2:
            raise InputError(
                "must be a DataFrame or a dense two-dimensional array with a row for each document, "
                f"got {type(covariates).__name__}",
                parameter="covariates",
                remedy="of named arrays make a pandas.DataFrame",
            )
        values = covariates if hasattr(covariates, "dtype") else np.asarray(covariates, dtype=object)
        covariates = DataFrame(values)
        covariates.columns = [f"x{i}" for i in range(covariates.shape[1])]
    names = [str(name) for name in covariates.columns]
    if len(covariates) != n_documents or len(set(names)) < len(names):
        raise InputError(
            f"must have a row for each of {n_documents} documents and columns of different names, got "
            f"{len(covariates)} rows of {', '.join(map(repr, names))}",
            parameter="covariates",
        )
    missing = covariates.isna().to_numpy()
    if missing.any():
        row, column = np.argwhere(missing)[0].tolist()
        raise InputError(
            f"covariates contain NaN, which scikit-learn's estimators refuse: {names[column]!r} in "
            f"row {row} ({int(missing.any(axis=1).sum())} such rows)",
            remedy=(
                "fill them in",
                "use dslda.train(X, response=y, covariates=...), which leaves the responses of "
                "such documents out",
            ),
        )
    return {name: covariates.iloc[:, i] for i, name in enumerate(names)}


def _responses(y: Any) -> NDArray[np.float64]:
    """Responses as numbers, none missing."""
    responses = response_array(
        y,
        len(y),
        name="y",
        advice="give a number for each document; names of classes are for SLDAClassifier",
    )
    if np.isnan(responses).any():
        # begins as scikit-learn's own message does
        raise InputError(
            "Input y contains NaN, which scikit-learn's estimators refuse",
            remedy=(
                "leave these documents out, or let them help to learn the topics with "
                "dslda.train(X, response=y), for which NaN is a missing response"
            ),
        )
    return responses


def _counts(X: Any) -> Any:
    """Whole numbers in compressed rows: others are rounded, with a warning; weights such as TF-IDF are refused."""
    # scipy has no matrix of half precision
    csr = sparse.csr_array(X.astype(np.float32) if X.dtype == np.float16 else X)
    if csr.data.dtype.kind != "f":
        return csr
    whole = np.rint(csr.data)
    n_changed = int(np.count_nonzero(whole != csr.data))
    if not n_changed:
        return csr
    # rows of length 1, Euclidean or of sums: rounding would leave hardly a word
    if n_changed > 0.9 * csr.nnz and any(
        np.allclose(lengths[np.diff(csr.indptr) > 0], 1.0, rtol=0.0, atol=1e-4)
        for lengths in (csr.multiply(csr).sum(axis=1), csr.sum(axis=1))
    ):
        raise InputError(
            f"must hold counts, got weights: {n_changed} of its {csr.nnz} values that are not 0 are "
            "not whole numbers, and rows have length 1, as TfidfVectorizer makes them",
            parameter="X",
            remedy="use CountVectorizer",
        )
    warn(
        DataWarning(
            f"must hold counts: {n_changed} of its {csr.nnz} values that are not 0 are not whole numbers "
            "and were rounded",
            parameter="X",
            remedy="give counts (CountVectorizer), not TF-IDF or frequencies",
        )
    )
    rounded = sparse.csr_array((whole, csr.indices, csr.indptr), shape=csr.shape)
    rounded.eliminate_zeros()
    return rounded
