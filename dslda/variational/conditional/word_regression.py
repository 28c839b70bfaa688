"""Sums over a block of documents of a regression of the response on single words, and of its combination with the topics."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dslda.families.base import Array, Family
from dslda.variational.conditional.loss import Responses, beside_words
from dslda.variational.conditional.posterior import WeightedDocuments, WordPosterior
from dslda.variational.parameters import Parameters
from dslda.variational.sums import ARRAY, NUMBER, PER_TERM, Sums

__all__ = [
    "CombinationSums",
    "TermSums",
    "WordRegressionSums",
    "combination_sums",
    "term_sums",
    "word_regression_sums",
]


@dataclass(slots=True, eq=False)
class TermSums(Sums):
    """What the weights of terms follow from.

    Attributes
    ----------
    moments : ndarray of float64, shape (V, 2)
        Documents with each term, and the sum of the squares of its normalised entries.
    """

    moments: Array = field(default_factory=lambda: np.zeros((0, 2)), metadata=PER_TERM)


@dataclass(slots=True, eq=False)
class WordRegressionSums(Sums):
    """Sums at some coefficients of the terms, over the documents that train and those that judge.

    Attributes
    ----------
    gradient : ndarray of float64, shape (V, C), or (V, 1)
        Derivative of the weighted log-likelihood by the coefficients of the terms; without columns where nobody asks.
    intercept_gradient, intercept_information : ndarray of float64, shape (C,) or (1,)
        Its derivative by the intercepts, and its information about each.
    log_likelihood, squared_slopes, weight : float
        Weighted sums of log p(y | omega), of its squared slopes, and of 1.
    judged_log_likelihood, judged_weight : float
        The same of the documents that judge.
    """

    gradient: Array = field(default_factory=lambda: np.zeros((0, 0)), metadata=PER_TERM)
    intercept_gradient: Array = field(default_factory=lambda: np.zeros(0), metadata=ARRAY)
    intercept_information: Array = field(default_factory=lambda: np.zeros(0), metadata=ARRAY)
    log_likelihood: float = field(default=0.0, metadata=NUMBER)
    squared_slopes: float = field(default=0.0, metadata=NUMBER)
    weight: float = field(default=0.0, metadata=NUMBER)
    judged_log_likelihood: float = field(default=0.0, metadata=NUMBER)
    judged_weight: float = field(default=0.0, metadata=NUMBER)

    @property
    def curvature(self) -> float:
        """Weighted sum of the information, of all classes."""
        return float(self.intercept_information.sum())


@dataclass(slots=True, eq=False)
class CombinationSums(Sums):
    """Log-likelihood at some factors of topics and words and some intercepts, and its derivatives by these, shape (2 + C,).

    `squared_slopes` and `curvature` are as in `ConditionalStatistics`.
    """

    gradient: Array = field(default_factory=lambda: np.zeros(2), metadata=ARRAY)
    log_likelihood: float = field(default=0.0, metadata=NUMBER)
    squared_slopes: float = field(default=0.0, metadata=NUMBER)
    curvature: float = field(default=0.0, metadata=NUMBER)

    @property
    def dispersion(self) -> float:
        """Pearson's dispersion of the responses; 1 where they say nothing."""
        return self.squared_slopes / self.curvature if self.curvature > 0.0 else 1.0


def term_sums(documents: WeightedDocuments, n_terms: int) -> TermSums:
    """See `TermSums`."""
    started = time.thread_time()
    entries = documents.normalised(n_terms)
    moments = np.stack(
        [
            np.bincount(entries.indices, minlength=n_terms).astype(np.float64),
            np.bincount(entries.indices, weights=np.square(entries.data), minlength=n_terms),
        ],
        axis=1,
    )
    return TermSums(moments=moments, n_documents=documents.n_documents, seconds=time.thread_time() - started)


def word_regression_sums(
    documents: WeightedDocuments,
    y: Array,
    parameters: Parameters,
    *,
    family: Family,
    intercept: Array,
    judging: NDArray[np.bool_],
    extras: Array | None = None,
    differentiated: bool = True,
) -> WordRegressionSums:
    """Sums of the regression with linear predictors t'words + intercept + x'zeta + offset.

    Parameters
    ----------
    documents : WeightedDocuments
    y : ndarray of float64, shape (D,)
        Responses on the scale of the fit, NaN where missing.
    parameters : Parameters
        With the words in its `remainder`, and without topics.
    family : Family
    intercept : ndarray of float64, shape (1,) or (C,)
    judging : ndarray of bool, shape (D,)
        Documents that judge the coefficients; the others train them.
    extras : ndarray of float64, shape (D, 4 + P), optional
    differentiated : bool, default True
        Compute the derivative by the coefficients of the terms too, which takes most of the time.
    """
    assert parameters.remainder is not None
    started = time.thread_time()
    words = parameters.remainder.words
    entries = documents.normalised(parameters.n_terms)
    responses = Responses.of(y, extras)
    scores: Array = entries @ words
    constant = float(intercept[0]) if scores.ndim == 1 else intercept
    omega = beside_words(scores + constant, responses, parameters)
    slope, information, left_out = responses.slope_and_information(omega, family, parameters.delta)
    weight = np.where(responses.labelled & (np.diff(documents.indptr) > 0), responses.weight, 0.0)
    values = responses.log_likelihood(omega, family, parameters.delta)
    values[left_out], weight[left_out] = 0.0, 0.0
    trained, judged = np.where(judging, 0.0, weight), np.where(judging, weight, 0.0)
    by_document = trained if omega.ndim == 1 else trained[:, np.newaxis]
    pulls = by_document * slope
    return WordRegressionSums(
        gradient=(entries.T @ pulls).reshape(len(words), -1) if differentiated else np.zeros((len(words), 0)),
        intercept_gradient=np.atleast_1d(pulls.sum(axis=0)),
        intercept_information=np.atleast_1d((by_document * information).sum(axis=0)),
        log_likelihood=float(trained @ values),
        squared_slopes=float((pulls * slope).sum()),
        weight=float(trained.sum()),
        judged_log_likelihood=float(judged @ values),
        judged_weight=float(judged.sum()),
        n_documents=documents.n_documents,
        seconds=time.thread_time() - started,
    )


def combination_sums(
    documents: WeightedDocuments,
    posterior: WordPosterior,
    y: Array,
    parameters: Parameters,
    *,
    family: Family,
    factors: Array,
    topic_center: Array,
    word_center: Array,
    extras: Array | None = None,
    farthest: float = math.inf,
) -> CombinationSums:
    """Sums with linear predictors that go a factor of the way from their center to what topics say, and to what words say.

    Parameters
    ----------
    documents : WeightedDocuments
    posterior : WordPosterior
    parameters : Parameters
        With the words in its `remainder`.
    factors : ndarray of float64, shape (2 + C,), or (3,)
        Of topics and of words, and what is added to the linear predictors.
    topic_center, word_center : ndarray of float64, shape (1,) or (C,)
        The center, and t'words of a document that words predict to be there.
    farthest : float
        Highest weighted square of the slope at the center of a document that counts.
    y, family, extras
        See `word_regression_sums`.
    """
    assert parameters.remainder is not None
    started = time.thread_time()
    responses = Responses.of(y, extras)
    one = parameters.n_classes is None
    center, other = (float(a[0]) if one else a for a in (topic_center, word_center))
    topics = np.einsum("dk,k...->d...", posterior.zbar, parameters.eta) - center
    words = documents.normalised(parameters.n_terms) @ parameters.remainder.words - other
    added = float(factors[2]) if one else factors[2:]
    omega = beside_words(center + added + factors[0] * topics + factors[1] * words, responses, parameters)
    slope, information, left_out = responses.slope_and_information(omega, family, parameters.delta)
    weight = np.where(responses.labelled & (posterior.length > 0.0), responses.weight, 0.0)
    values = responses.log_likelihood(omega, family, parameters.delta)
    values[left_out], weight[left_out] = 0.0, 0.0
    if farthest < math.inf:
        without = beside_words(np.zeros_like(omega) + center, responses, parameters)
        alone, _, _ = responses.slope_and_information(without, family, parameters.delta)
        squares = np.square(alone).reshape(len(weight), -1).sum(axis=1)
        weight[weight * weight * squares > farthest] = 0.0
    by_document = weight if one else weight[:, np.newaxis]
    pulls = by_document * slope
    return CombinationSums(
        gradient=np.array(
            [float((pulls * topics).sum()), float((pulls * words).sum()), *np.atleast_1d(pulls.sum(axis=0))]
        ),
        log_likelihood=float(weight @ values),
        squared_slopes=float((pulls * slope).sum()),
        curvature=float((by_document * information).sum()),
        n_documents=documents.n_documents,
        seconds=time.thread_time() - started,
    )
