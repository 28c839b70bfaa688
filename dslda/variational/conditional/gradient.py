"""Sums of conditional training over the documents of a block: a pure function of its arguments.

Every document is inferred from its words alone, and the loss -log p(y | zbar'eta + x'zeta + offset) is differentiated through
that inference. The start of training is EM instead, in which the response pulls at the assignments.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dslda.families.base import Array, Family
from dslda.variational.conditional.loss import Responses, beside_words, predictors
from dslda.variational.conditional.posterior import (
    TOLERANCE,
    WeightedDocuments,
    WordPosterior,
    infer_words_of,
)
from dslda.variational.kernels.layout import read_only
from dslda.variational.parameters import Parameters
from dslda.variational.statistics import SufficientStatistics, has_pearson, joint_information, pearson_sums
from dslda.variational.sums import ARRAY, FIRST, NUMBER, PER_TERM, REPORT

__all__ = ["ConditionalStatistics", "class_statistics", "conditional_statistics", "pulled_statistics"]

DISCOUNT = 0.05
"""The tau of the implicit derivative. Each sweep's Jacobian counts a little less, so that all systems are well conditioned.
Without it training diverges where alpha is at most 1 (docs/model.md)."""

PULL_ROUNDS, PULL_SWEEPS = 4, 2
"""Times that the pull of the response follows the assignments, and sweeps between two of them."""


@dataclass(slots=True, eq=False)
class ConditionalStatistics(SufficientStatistics):
    """Sums of conditional training.

    `topic_counts` (none beside a gradient), `score`, `information`, `profile` and the counts are those of an E-step
    whose posterior is that of the words, with zbar at its mean. `elbo` is the bound of the words. `curvature` is the sum of
    the weights in `information`.

    Attributes
    ----------
    gradient : ndarray of float64, shape (V, K)
        Derivative of the weighted loss less the bound of the words by log beta, before the topics are normalised; of shape
        (V, 0) unless asked for. Its sum is minus that of the expected counts.
    features : ndarray of float64, shape (K + P,)
        Weighted sum of (zbar, x) over the documents with a response.
    log_likelihood : float
        Weighted sum of log p(y | omega).
    squared_slopes : float
        Weighted sum of the squared slopes of log p(y | omega): over `curvature` it is Pearson's dispersion.
    n_without_gradient : int
        Documents whose response is left out, since its derivatives are not finite.
    first_without_gradient : int or None
        The first of them: its number in the block until the pass makes it the row in the source.
    """

    gradient: Array = field(default_factory=lambda: np.zeros((0, 0)), metadata=PER_TERM)
    features: Array = field(default_factory=lambda: np.zeros(0), metadata=ARRAY)
    log_likelihood: float = field(default=0.0, metadata=NUMBER)
    squared_slopes: float = field(default=0.0, metadata=NUMBER)
    n_without_gradient: int = field(default=0, metadata=REPORT)
    first_without_gradient: int | None = field(default=None, metadata=FIRST)


def conditional_statistics(
    documents: WeightedDocuments,
    y: Array,
    parameters: Parameters,
    *,
    family: Family,
    max_sweeps: int,
    extras: Array | None = None,
    loss_weight: float = 1.0,
    differentiated: bool = True,
    joint: bool = False,
) -> ConditionalStatistics:
    """Sums over documents inferred from their words.

    Parameters
    ----------
    documents : WeightedDocuments
    y : ndarray of float64, shape (D,)
        Responses on the scale of the fit, NaN where missing.
    parameters : Parameters
    family : Family
    max_sweeps : int
    extras : ndarray of float64, shape (D, 4 + P), optional
        See :meth:`~dslda.variational.design.Design.extras`.
    loss_weight : float, default 1
        Weight of the loss in the gradient.
    differentiated : bool, default True
        Sum the gradient in place of the expected counts.
    joint : bool, default False
        For a response of classes: also sum `joint_information`, which only standard errors need.
    """
    started = time.thread_time()
    responses = Responses.of(y, extras)
    posterior = infer_words_of(documents, parameters, max_sweeps=max_sweeps)
    omega = predictors(posterior.zbar, responses, parameters, documents)
    statistics = _zeros(parameters, differentiated=differentiated)
    slope = _add_responses(statistics, posterior, responses, omega, parameters, family)
    slopes = None
    if not differentiated and has_pearson(family, trials=extras is not None):
        statistics.pearson, statistics.pearson_weight = pearson_sums(
            family,
            y,
            parameters.delta,
            extras,
            mean=omega,
            variance=np.zeros(len(y)),
            counted=posterior.length > 0.0,
        )
    if joint:
        statistics.joint_information = joint_information(
            y, extras, zbar=posterior.zbar, length=posterior.length, predictors=omega, independent=False
        )
    if differentiated:
        # of a response with one linear predictor, as of one class
        columns = (len(y), parameters.n_classes or 1)
        weight = (responses.weight * loss_weight)[:, np.newaxis]
        slopes = -(weight * slope.reshape(columns)) @ parameters.eta.reshape(-1, columns[1]).T
    _add_words(statistics, documents, posterior, responses, parameters, slopes=slopes)
    _report(statistics, documents, posterior, started)
    return statistics


def pulled_statistics(
    documents: WeightedDocuments,
    y: Array,
    parameters: Parameters,
    *,
    family: Family,
    pull: float,
    extras: Array | None = None,
) -> ConditionalStatistics:
    """Sums over documents whose responses pull at the assignments, in the E-step of the start.

    The assignments get the tilt a eta with ``a = pull * l1(omega) / N``, which is the E-step of sLDA at the mean of zbar. The
    pull follows omega by Newton steps of its own, since a step of full length would overshoot where a document is short.
    """
    from dslda.variational.kernels.word_inference import pull_words

    started = time.thread_time()
    responses = Responses.of(y, extras)
    n, n_topics = documents.n_documents, parameters.n_topics
    gamma, tilt = np.empty((n, n_topics)), np.empty((n, n_topics))
    length, n_sweeps = np.empty(n), np.empty(n, dtype=np.int64)
    share = responses.weight / np.maximum(responses.word_weight, 1e-300)
    pull_words(
        family.first_derivative,
        family.information_weight,
        documents.indptr,
        documents.terms,
        documents.weights,
        read_only(parameters.topics),
        read_only(parameters.alpha),
        read_only(parameters.eta),
        read_only(parameters.delta),
        read_only(responses.y),
        read_only(responses.aux),
        read_only(beside_words(np.zeros(n), responses, parameters)),
        read_only(np.where(responses.labelled, pull * share, 0.0)),
        PULL_ROUNDS,
        PULL_SWEEPS,
        TOLERANCE,
        gamma,
        tilt,
        length,
        n_sweeps,
    )
    posterior = WordPosterior.of(gamma, length, n_sweeps, parameters.alpha, PULL_SWEEPS)
    omega = predictors(posterior.zbar, responses, parameters, documents)
    statistics = _zeros(parameters)
    _add_responses(statistics, posterior, responses, omega, parameters, family)
    _add_words(statistics, documents, posterior, responses, parameters, tilt=tilt)
    _report(statistics, documents, posterior, started)
    return statistics


def class_statistics(
    documents: WeightedDocuments,
    y: Array,
    parameters: Parameters,
    *,
    family: Family,
    extras: Array | None = None,
) -> ConditionalStatistics:
    """Expected counts where every document has the topics that favour its class at the start, in equal shares.

    Documents without a class have all topics.
    """
    started = time.thread_time()
    responses = Responses.of(y, extras)
    favoured = parameters.eta == parameters.eta.max(axis=0)
    shares = (favoured / favoured.sum(axis=0)).T
    assigned = np.where(responses.labelled[:, np.newaxis], shares[responses.codes], 1.0 / parameters.n_topics)
    counts = csr_array(
        (documents.weights, documents.terms, documents.indptr), shape=(len(y), parameters.n_terms)
    )
    statistics = _zeros(parameters)
    statistics.topic_counts += np.asarray(counts.T @ (responses.word_weight[:, np.newaxis] * assigned))
    statistics.n_documents = len(y)
    statistics.labelled_weight = float(responses.weight[responses.labelled].sum())
    statistics.seconds = time.thread_time() - started
    return statistics


def _zeros(parameters: Parameters, *, differentiated: bool = False) -> ConditionalStatistics:
    statistics = ConditionalStatistics.zeros(
        parameters.n_terms,
        parameters.n_topics,
        n_covariates=len(parameters.zeta),
        n_classes=parameters.n_classes,
    )
    statistics.features = np.zeros(parameters.n_topics + len(parameters.zeta))
    # one of the two tables is enough, and half the work of adding them up
    if differentiated:
        statistics.topic_counts = statistics.topic_counts[:, :0].copy()
    else:
        statistics.gradient = statistics.gradient[:, :0].copy()
    return statistics


def _add_responses(
    statistics: ConditionalStatistics,
    posterior: WordPosterior,
    responses: Responses,
    omega: Array,
    parameters: Parameters,
    family: Family,
) -> Array:
    """Add what follows from the linear predictors; returns the slopes of log p(y | omega)."""
    slope, information, left_out = responses.slope_and_information(omega, family, parameters.delta)
    _leave_out(statistics, left_out)
    known = posterior.length > 0.0
    known[left_out] = False
    counted = known & responses.labelled
    slope[~known], information[~known] = 0.0, 0.0
    weight = np.where(counted, responses.weight, 0.0)
    features = np.column_stack([posterior.zbar, responses.covariates])
    statistics.features += weight @ features
    if omega.ndim == 1:
        statistics.score += features.T @ (weight * slope)
        statistics.information += features.T @ ((weight * information)[:, np.newaxis] * features)
        deltas = family.delta_probes(parameters.delta)
        values = responses.log_likelihoods(np.tile(omega, (len(deltas), 1)), family, deltas)
        statistics.profile = values[:, counted] @ weight[counted]
    else:
        statistics.score += features.T @ (weight[:, np.newaxis] * slope)
        for c, column in enumerate(information.T):
            statistics.information[c] += features.T @ ((weight * column)[:, np.newaxis] * features)
        values = responses.log_likelihood(omega, family, parameters.delta)
        statistics.profile[0] += weight[counted] @ values[counted]
    statistics.log_likelihood += float(statistics.profile[0])
    by_document = weight if omega.ndim == 1 else weight[:, np.newaxis]
    curvature = float((by_document * information).sum())
    statistics.curvature += curvature
    statistics.curvature_bound += curvature
    statistics.squared_slopes += float((by_document * np.square(slope)).sum())
    statistics.labelled_weight += float(weight.sum())
    statistics.n_labelled += int(np.count_nonzero(counted))
    return slope


def _add_words(
    statistics: ConditionalStatistics,
    documents: WeightedDocuments,
    posterior: WordPosterior,
    responses: Responses,
    parameters: Parameters,
    *,
    tilt: Array | None = None,
    slopes: Array | None = None,
) -> None:
    from dslda.variational.kernels.word_derivative import differentiate

    nothing = np.zeros((0, parameters.n_topics))
    bound, failed = np.zeros(1), np.zeros(len(posterior.length), dtype=np.bool_)
    differentiate(
        documents.indptr,
        documents.terms,
        documents.weights,
        read_only(parameters.topics),
        read_only(parameters.alpha),
        read_only(nothing if tilt is None else tilt),
        read_only(posterior.gamma),
        read_only(nothing if slopes is None else slopes),
        read_only(responses.word_weight),
        DISCOUNT,
        statistics.topic_counts if slopes is None else statistics.gradient,
        bound,
        failed,
    )
    statistics.elbo += float(bound[0])
    _leave_out(statistics, np.flatnonzero(failed))


def _leave_out(statistics: ConditionalStatistics, documents: NDArray[np.int64]) -> None:
    """Count documents, ascending, whose response moves no topic."""
    statistics.n_without_gradient += len(documents)
    if len(documents):
        first = statistics.first_without_gradient
        statistics.first_without_gradient = int(documents[0] if first is None else min(first, documents[0]))


def _report(
    statistics: ConditionalStatistics,
    documents: WeightedDocuments,
    posterior: WordPosterior,
    started: float,
) -> None:
    statistics.n_documents = len(posterior.length)
    statistics.n_empty = int(np.count_nonzero(posterior.length == 0.0))
    statistics.n_unconverged = int(np.count_nonzero(~posterior.converged))
    statistics.n_sweeps = int(posterior.n_sweeps.sum())
    statistics.n_tokens = documents.n_tokens
    statistics.seconds = time.thread_time() - started
