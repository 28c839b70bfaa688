"""The E-step of a block of documents: arrays in, statistics or posteriors out."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dslda.families.base import Family
from dslda.families.categorical import Categorical
from dslda.families.gaussian import Gaussian
from dslda.variational.compiling import kernel_of
from dslda.variational.design import EXTRAS
from dslda.variational.kernels import PER_DOCUMENT, SCALARS
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.pearson import has_pearson, pearson_sums
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.topics import in_e_step

__all__ = ["DocumentPosterior", "e_step", "infer", "neutral_extras"]


@dataclass(frozen=True, slots=True, eq=False)
class DocumentPosterior:
    """Variational posterior of documents, on the scale of the standardised response.

    Attributes
    ----------
    gamma : ndarray of float64, shape (D, K)
        Dirichlet parameters of the topic proportions; the prior's where no term is known.
    mean, variance : ndarray of float64, shape (D,)
        Of the linear predictor. Where E[exp(omega)] is exact (`Family.is_exact_product`, and every family with a log link
        where the response is left out) `variance` is the v for which that is exp(mean + v / 2). For a response of C classes
        `mean` has shape (D, C): the predictors whose softmax are the probabilities; the variance is then part of them, and 0
        here.
    elbo : ndarray of float64, shape (D,)
    n_sweeps, n_known_tokens : ndarray of int64, shape (D,)
    converged : ndarray of bool, shape (D,)
    """

    gamma: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    elbo: NDArray[np.float64]
    n_sweeps: NDArray[np.int64]
    n_known_tokens: NDArray[np.int64]
    converged: NDArray[np.bool_]


def e_step(
    indptr: NDArray[np.int64],
    terms: NDArray[np.int32],
    counts: NDArray[np.int32],
    y: NDArray[np.float64],
    parameters: Parameters,
    *,
    family: Family,
    spec: FitSpec,
    extras: NDArray[np.float64] | None = None,
) -> SufficientStatistics:
    """Sufficient statistics of a block of documents. A pure function of its arguments; the GIL is not held.

    Parameters
    ----------
    indptr, terms, counts : ndarray of int64, int32, int32, shapes (D + 1,), (nnz,), (nnz,)
        Documents as compressed sparse rows; may be read-only or unaligned (arrays that came over the wire are).
    y : ndarray of float64, shape (D,)
        Standardised responses, NaN where missing.
    parameters : Parameters
    family : Family
    spec : FitSpec
    extras : ndarray of float64, shape (D, 4 + P), optional
        Of each document: offset of the linear predictor, trials or event (see :class:`~dslda.families.base.Family`), weight
        of the document, weight of its response, standardised covariates. By default 0, 1, 1, 1 and none.
    """
    started = time.thread_time()
    n_topics = parameters.n_topics
    deltas = family.delta_probes(parameters.delta)
    statistics = SufficientStatistics.zeros(
        parameters.n_terms,
        n_topics,
        n_covariates=len(parameters.zeta),
        n_probes=len(deltas),
        n_classes=parameters.n_classes,
    )
    scalars = np.zeros(len(SCALARS))
    information = statistics.information
    asks = has_pearson(family, trials=extras is not None)
    per_document = np.empty((len(y), len(PER_DOCUMENT))) if asks else None
    _run(
        (indptr, terms, counts, y),
        extras,
        parameters,
        family,
        spec,
        labelled=True,
        statistics=statistics,
        scalars=scalars,
        deltas=deltas,
        per_document=per_document,
    )
    if per_document is not None:
        mean, variance, _, _, known, _ = np.ascontiguousarray(per_document.T)
        statistics.pearson, statistics.pearson_weight = pearson_sums(
            family, y, parameters.delta, extras, mean=mean, variance=variance, counted=known > 0.0
        )
    rows, columns = np.triu_indices(information.shape[-1], 1)
    information[..., rows, columns] = information[..., columns, rows]
    (
        statistics.elbo,
        statistics.labelled_weight,
        statistics.log_theta_weight,
        statistics.curvature,
        statistics.curvature_bound,
    ) = map(float, scalars[:5])
    (
        statistics.n_labelled,
        statistics.n_empty,
        statistics.n_unconverged,
        statistics.n_sweeps,
        statistics.n_tokens,
    ) = (int(s) for s in scalars[5:])
    statistics.n_documents = len(indptr) - 1
    statistics.seconds = time.thread_time() - started
    return statistics


def infer(
    indptr: NDArray[np.int64],
    terms: NDArray[np.int32],
    counts: NDArray[np.int32],
    parameters: Parameters,
    *,
    spec: FitSpec,
    y: NDArray[np.float64] | None = None,
    family: Family | None = None,
    extras: NDArray[np.float64] | None = None,
) -> DocumentPosterior:
    """Posterior of documents, the response left out (prediction) unless `y` is given (training posterior).

    Parameters
    ----------
    indptr, terms, counts : ndarray of int64, int32, int32
        Documents as compressed sparse rows.
    parameters : Parameters
    spec : FitSpec
        Sweep cap and tolerance; with `y` also rho and granularity.
    y : ndarray of float64, shape (D,), optional
        Standardised responses. With them the posterior is that of training, which has seen y.
    family : Family, optional
        Needed with `y`; without, for the variance of a log link (see :class:`DocumentPosterior`).
    extras : ndarray of float64, shape (D, 4 + P), optional
        As in :func:`e_step`; without, documents have average covariates and no offset.
    """
    n_documents = len(indptr) - 1
    if family is None:
        family = Gaussian() if parameters.n_classes is None else Categorical(parameters.n_classes)
    labelled = y is not None
    if y is None:
        y = np.full(n_documents, np.nan)
    gamma = np.empty((n_documents, parameters.n_topics))
    per_document = np.empty((n_documents, len(PER_DOCUMENT)))
    n_topics = parameters.n_topics
    omega = np.empty((n_documents, parameters.n_classes or 0))
    _run(
        (indptr, terms, counts, y),
        extras,
        parameters,
        family,
        spec,
        labelled=labelled,
        # no term: nothing is summed
        statistics=SufficientStatistics.zeros(0, n_topics, n_classes=parameters.n_classes),
        scalars=np.zeros(len(SCALARS)),
        deltas=parameters.delta[np.newaxis],
        gamma=gamma,
        omega=omega,
        per_document=per_document,
    )
    mean, variance, elbo, sweeps, known, converged = (np.ascontiguousarray(c) for c in per_document.T)
    return DocumentPosterior(
        gamma,
        mean if parameters.n_classes is None else omega,
        variance,
        elbo,
        sweeps.astype(np.int64),
        known.astype(np.int64),
        converged.astype(bool),
    )


def _run(
    documents: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]],
    extras: NDArray[np.float64] | None,
    parameters: Parameters,
    family: Family,
    spec: FitSpec,
    *,
    labelled: bool,
    statistics: SufficientStatistics,
    scalars: NDArray[np.float64],
    deltas: NDArray[np.float64],
    gamma: NDArray[np.float64] | None = None,
    omega: NDArray[np.float64] | None = None,
    per_document: NDArray[np.float64] | None = None,
) -> None:
    indptr, terms, counts, y = documents
    # a caller with many blocks does it once for all of them
    parameters = in_e_step(parameters)
    if extras is None and len(parameters.zeta):
        extras = neutral_extras(len(y), len(parameters.zeta))
    inputs = (
        _plain(indptr, np.int64),
        _plain(terms, np.int32),
        _plain(counts, np.int32),
        _plain(y, np.float64),
        np.zeros((0, len(EXTRAS))) if extras is None else _plain(extras, np.float64),
        _plain(parameters.topics, np.float64),
        _plain(parameters.alpha, np.float64),
        _plain(parameters.eta, np.float64),
        _plain(parameters.zeta, np.float64),
    )
    sums = (
        statistics.topic_counts,
        statistics.score,
        statistics.information,
        statistics.log_theta,
        statistics.profile,
        scalars,
        np.empty((0, parameters.n_topics)) if gamma is None else gamma,
    )
    per_document = np.empty((0, len(PER_DOCUMENT))) if per_document is None else per_document
    kernel = kernel_of(family, labelled=labelled)
    if parameters.n_classes is not None:
        kernel(
            *inputs,
            family.uses_bound,
            spec.response_weight,
            spec.max_sweeps,
            spec.sweep_tol,
            *sums,
            np.empty((0, parameters.n_classes)) if omega is None else omega,
            per_document,
        )
        return
    kernel(
        *inputs,
        _plain(deltas, np.float64),
        spec.response_weight,
        spec.granularity == "term",
        family.is_quadratic,
        spec.max_sweeps,
        spec.sweep_tol,
        family.log_likelihood,
        family.first_derivative,
        family.second_derivative,
        family.third_derivative,
        family.information_weight,
        *sums,
        per_document,
    )


def neutral_extras(n_documents: int, n_covariates: int) -> NDArray[np.float64]:
    """`extras` of documents with no offset, one trial, weights 1 and average covariates."""
    extras = np.zeros((n_documents, len(EXTRAS) + n_covariates))
    extras[:, 1 : len(EXTRAS)] = 1.0
    return extras


def _plain(array: NDArray[np.generic], dtype: DTypeLike) -> NDArray[np.generic]:
    # distributed hands over buffers at odd addresses (xgboost#8690 met the same)
    return np.require(array, dtype=dtype, requirements=["C", "A"])
