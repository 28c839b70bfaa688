"""Coefficients and topics of a fitted model, in the units of its response and the words of its vocabulary."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dslda.evaluation.topic_quality import most_probable
from dslda.evaluation.word_rankings import WordRanking, word_scorer
from dslda.exceptions import InputError
from dslda.persistence.model_record import ModelRecord
from dslda.variational.level_corrections import level_probabilities

__all__ = [
    "Coefficient",
    "CovariateCoefficient",
    "Topic",
    "WordsBeyond",
    "class_coefficients",
    "class_topics",
    "coefficient_covariance",
    "covariate_coefficients",
    "topic_coefficients",
    "topics_with_words",
    "words_beyond",
]


LEVEL = 0.95
"""Share of coefficients that their intervals are to hold."""


def _short_repr(row: Any) -> str:
    """A named tuple without the fields that are None: most responses have no classes."""
    fields = ", ".join(f"{name}={value!r}" for name, value in row._asdict().items() if value is not None)
    return f"{type(row).__name__}({fields})"


class Coefficient(NamedTuple):
    """Coefficient of one topic, in the units of the response.

    Attributes
    ----------
    topic : int
        0 to K - 1.
    coefficient : float
        Linear predictor of a document that is all about this topic, with average covariates. For a Gaussian that is the
        expected response; see docs/families.md for the others.
    conditional_error : float
        Square root of the diagonal of delta (sum E[zbar zbar'])^-1: the scatter of the coefficient for known topics and topic
        assignments, with the estimated dispersion (1 for a Poisson response, Pearson's for a quasi-Poisson one). Since both
        were estimated from the same responses, it is a lower bound of the true uncertainty. For classes it is that of
        coefficients that sum to 0 over the classes. NaN where the information matrix is singular, or for classes too large
        (docs/model.md).
    low, high : float or None
        Ends of the 95% interval of a bootstrap: how far the coefficient scatters when documents are drawn again and topics
        trained again (docs/model.md#intervals-of-coefficients). None for a fit without one.
    class_name : str or None
        For a response of classes, the class that the topic favours most; the coefficient is that of this class. For levels
        with names, the most probable level of a document all about the topic.
    label : str or None
        The user's name of the topic: see :meth:`dslda.model.Model.label`.
    """

    topic: int
    coefficient: float
    conditional_error: float
    class_name: str | None = None
    low: float | None = None
    high: float | None = None
    label: str | None = None

    def __repr__(self) -> str:
        return _short_repr(self)


class CovariateCoefficient(NamedTuple):
    """Coefficient of a covariate, in the units of the linear predictor per unit of the covariate.

    Attributes
    ----------
    covariate : str
    level : str or None
        Level of a categorical covariate, compared with its first level.
    coefficient, conditional_error : float
    class_name : str or None
    low, high : float or None
        As in :class:`Coefficient`.
    """

    covariate: str
    level: str | None
    coefficient: float
    conditional_error: float
    class_name: str | None = None
    low: float | None = None
    high: float | None = None

    def __repr__(self) -> str:
        return _short_repr(self)


class Topic(NamedTuple):
    """One topic with its words.

    Attributes
    ----------
    topic : int
    coefficient, conditional_error : float
    low, high : float or None
        See :class:`Coefficient`.
    prevalence : float or None
        Share of the training tokens in the topic; None for models saved by a release that did not keep it.
    words : tuple of str
        Words, the best first in the order asked for; numbers of columns for a model without a vocabulary.
    probabilities : tuple of float
        Probabilities of these words in the topic.
    class_name, label : str or None
        See :class:`Coefficient`.
    coherence, exclusivity : float or None
        See :class:`~dslda.evaluation.topic_quality.TopicQuality`, whose `npmi` is the coherence; None where the model has
        none.
    stability : float or None
        How much of the topic other starts of the fit find too: `of_topics` of
        :class:`~dslda.evaluation.topic_stability.TopicStability`. None where the model has none.
    """

    topic: int
    coefficient: float
    conditional_error: float
    prevalence: float | None
    words: tuple[str, ...]
    probabilities: tuple[float, ...]
    class_name: str | None = None
    low: float | None = None
    high: float | None = None
    label: str | None = None
    coherence: float | None = None
    exclusivity: float | None = None
    stability: float | None = None

    def __repr__(self) -> str:
        return _short_repr(self)


class WordsBeyond(NamedTuple):
    """What single words add to the topics of a model.

    Attributes
    ----------
    share : float
        Share of what topics and words together explain that topics alone do not, in documents that chose the model: of the
        explained variance of a Gaussian response, else of the log-likelihood.
    raising, lowering : tuple of str
        Words that raise and lower the linear predictor most, the strongest first; numbers of columns for a model without a
        vocabulary.
    class_name : str or None
        For a response of classes, the class that these words speak for and against.
    """

    share: float
    raising: tuple[str, ...]
    lowering: tuple[str, ...]
    class_name: str | None = None

    def __repr__(self) -> str:
        return _short_repr(self)


def topic_coefficients(record: ModelRecord) -> tuple[Coefficient, ...]:
    """See :meth:`dslda.model.Model.coefficients`."""
    eta, n_topics = record.parameters.eta, record.parameters.n_topics
    classes = record.classes
    if classes is not None and eta.ndim == 2:
        eta, rows = class_coefficients(record), _class_rows(record)
        favoured = eta.argmax(axis=1)
        return tuple(
            rows(k, c)
            for c in range(eta.shape[1])
            for k in np.flatnonzero(favoured == c)[np.argsort(-eta[favoured == c, c], kind="stable")].tolist()
        )
    values = record.family.coefficients_to_user(eta, record.scaling.center, record.scaling.scale)
    errors = _scale(record) * _errors(record)[:n_topics]
    low, high = _ends(values, _half_widths(record)[:n_topics] * _scale(record))
    order = np.argsort(values, kind="stable").tolist()
    levels: list[str | None] = [None] * n_topics
    if record.predicts_names and classes is not None:
        chances = level_probabilities(eta, np.zeros(n_topics), record.family, record.parameters)
        if chances is not None:
            levels = [classes[i] for i in chances.argmax(axis=1).tolist()]
    return tuple(
        Coefficient(k, float(values[k]), float(errors[k]), levels[k], low[k], high[k], record.label(k))
        for k in order
    )


def class_coefficients(record: ModelRecord) -> NDArray[np.float64]:
    """See :meth:`dslda.model.Model.class_coefficients`."""
    if record.parameters.n_classes is None:
        raise InputError(
            f"family {record.spec.family} has one coefficient a topic", remedy="use {coefficients()}"
        )
    eta = record.parameters.eta
    # a constant over the classes changes no probability
    centred: NDArray[np.float64] = eta - eta.mean(axis=1, keepdims=True)
    return centred


def class_topics(record: ModelRecord, top: int | None) -> dict[str, tuple[Coefficient, ...]]:
    """See :meth:`dslda.model.Model.class_topics`."""
    if top is not None:
        _check_top(top)
    eta, rows = class_coefficients(record), _class_rows(record)
    return {
        name: tuple(
            rows(k, c)
            for k in np.argsort(-eta[:, c], kind="stable")[:top].tolist()
            if top is None or eta[k, c] > 0.0
        )
        for c, name in enumerate(record.classes or ())
    }


def covariate_coefficients(record: ModelRecord) -> tuple[CovariateCoefficient, ...]:
    """See :meth:`dslda.model.Model.covariate_coefficients`."""
    n_topics, zeta = record.parameters.n_topics, record.parameters.zeta
    errors, widths = _errors(record)[n_topics:], _half_widths(record)[n_topics:]
    coefficients = []
    for p, column in enumerate(record.design.covariates):
        factor = _scale(record) / column.scale
        level = None if column.level is None else record.levels[column.name][column.level]
        classes = (None,) if zeta.ndim == 1 else record.classes or ()
        values = np.atleast_1d(zeta[p]) * factor
        low, high = _ends(values, np.atleast_1d(widths[p]) * factor)
        for c, (error, name) in enumerate(zip(np.atleast_1d(errors[p]), classes, strict=True)):
            coefficients.append(
                CovariateCoefficient(
                    column.name, level, float(values[c]), float(error * factor), name, low[c], high[c]
                )
            )
    return tuple(coefficients)


def coefficient_covariance(record: ModelRecord) -> NDArray[np.float64]:
    """See :meth:`dslda.model.Model.coefficient_covariance`."""
    scale, n_topics = _scale(record), record.parameters.n_topics
    factors = np.array([scale] * n_topics + [scale / column.scale for column in record.design.covariates])
    if (replicates := _replicates(record)) is not None:
        # each class by itself, as in the other covariance
        by_class = replicates.reshape(*replicates.shape[:2], -1)
        covariances = np.array([np.cov(of_class.T) for of_class in np.moveaxis(by_class, 2, 0)])
        return covariances.reshape(*record.parameters.eta.shape[1:], len(factors), -1) * np.outer(
            factors, factors
        )
    if record.covariance is None:
        classes = record.parameters.eta.shape[1:]
        return np.full((*classes, len(factors), len(factors)), np.nan)
    return record.covariance * np.outer(factors, factors)


def topics_with_words(record: ModelRecord, top: int, words: WordRanking) -> tuple[Topic, ...]:
    """See :meth:`dslda.model.Model.topics`."""
    _check_top(top)
    scores = word_scorer(record.parameters.topics, words, record.prevalence)
    topics = []
    stability = None if record.stability is None else record.stability.of_topics
    for row in topic_coefficients(record):
        topic = row.topic
        weights = record.parameters.topics[:, topic]
        best = most_probable(scores(topic), top)
        share = None if record.prevalence is None else float(record.prevalence[topic])
        probabilities = tuple(weights[best].tolist())
        quality = record.quality
        topics.append(
            Topic(
                **row._asdict(),
                prevalence=share,
                words=_words(record, best),
                probabilities=probabilities,
                coherence=None if quality is None else float(quality.npmi[topic]),
                exclusivity=None if quality is None else float(quality.exclusivity[topic]),
                stability=None if stability is None else float(stability[topic]),
            )
        )
    return tuple(topics)


def words_beyond(record: ModelRecord, top: int) -> tuple[WordsBeyond, ...]:
    """See :meth:`dslda.model.Model.words_beyond`."""
    _check_top(top)
    remainder = record.parameters.remainder
    if remainder is None:
        return ()
    columns = remainder.words.reshape(len(remainder.words), -1)
    # a constant over the classes changes no probability
    columns = columns - (columns.mean(axis=1, keepdims=True) if columns.shape[1] > 1 else 0.0)
    names = (None,) if remainder.words.ndim == 1 else record.classes or ()

    def strongest(signed: NDArray[np.float64]) -> tuple[str, ...]:
        best = most_probable(signed, top)
        return _words(record, best[signed[best] > 0.0])

    return tuple(
        WordsBeyond(remainder.share, strongest(column), strongest(-column), name)
        for column, name in zip(columns.T, names, strict=True)
    )


def _words(record: ModelRecord, terms: NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(str(t) if record.vocabulary is None else record.vocabulary.terms[t] for t in terms.tolist())


def _scale(record: ModelRecord) -> float:
    """Factor from the scale of the fit to the user's units."""
    return record.scaling.scale if record.family.link == "identity" else 1.0


def _errors(record: ModelRecord) -> NDArray[np.float64]:
    """Standard errors of eta and zeta, on the scale of the fit, shape (K + P,) or (K + P, C)."""
    covariance = record.covariance
    n = record.parameters.n_topics + len(record.parameters.zeta)
    if covariance is None:
        return np.full((n, *record.parameters.eta.shape[1:]), np.nan)
    return np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1)).T


def _replicates(record: ModelRecord) -> NDArray[np.float64] | None:
    """Coefficients of the replicates on the scale of the fit; those of classes sum to 0 over the classes, as reported."""
    values = record.replicates
    if values is not None and values.ndim == 3:
        values = values - values.mean(axis=2, keepdims=True)
    return values


def _half_widths(record: ModelRecord) -> NDArray[np.float64]:
    """Half the width of the intervals of eta and zeta, on the scale of the fit; NaN without a bootstrap."""
    replicates = _replicates(record)
    if replicates is None:
        n = record.parameters.n_topics + len(record.parameters.zeta)
        return np.full((n, *record.parameters.eta.shape[1:]), np.nan)
    quantile = float(stdtrit(len(replicates) - 1, 0.5 + LEVEL / 2.0))
    # a conditional error is a lower bound: of few documents, replicates may not vary at all
    widths: NDArray[np.float64] = quantile * np.fmax(replicates.std(axis=0, ddof=1), _errors(record))
    return widths


def _ends(
    values: NDArray[np.float64], widths: NDArray[np.float64]
) -> tuple[list[float | None], list[float | None]]:
    """Lower and upper ends of intervals, None where there are none."""
    low, high = (
        [None if math.isnan(end) else end for end in ends.tolist()]
        for ends in (values - widths, values + widths)
    )
    return low, high


def _class_rows(record: ModelRecord) -> Callable[[int, int], Coefficient]:
    """A function that returns the row of a topic and a class, by their numbers."""
    n_topics, classes = record.parameters.n_topics, record.classes or ()
    eta, errors = class_coefficients(record), _errors(record)
    low, high = zip(*map(_ends, eta, _half_widths(record)[:n_topics]), strict=True)

    def row(k: int, c: int) -> Coefficient:
        return Coefficient(
            *(k, float(eta[k, c]), float(errors[k, c]), classes[c], low[k][c], high[k][c], record.label(k))
        )

    return row


def _check_top(top: Any) -> None:
    if isinstance(top, bool) or not isinstance(top, (int, np.integer)) or top < 1:
        raise InputError(f"must be a whole number of at least 1, got {top!r}", parameter="top")
