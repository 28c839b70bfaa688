"""The E-step of a block of documents: arrays in, statistics or posteriors out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.families.base import FUNCTIONS, Array, Family
from dslda.families.categorical import Categorical
from dslda.families.gaussian import Gaussian
from dslda.variational.compiling import kernel_of
from dslda.variational.conditional.loss import Responses, predictors
from dslda.variational.conditional.posterior import WeightedDocuments, infer_words_of
from dslda.variational.design import EXTRAS
from dslda.variational.kernels.layout import (
    PER_DOCUMENT,
    SCALARS,
    BlockDocuments,
    BlockOptions,
    BlockParameters,
    BlockPosteriors,
    BlockSums,
    read_only,
)
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics, has_pearson, joint_information, pearson_sums
from dslda.variational.topics import in_e_step

__all__ = ["DocumentPosterior", "e_step", "infer", "neutral_extras"]


@dataclass(frozen=True, slots=True, eq=False)
class DocumentPosterior:
    """Variational posterior of documents, on the scale of the standardised response.

    Attributes
    ----------
    gamma : ndarray of float64, shape (D, K)
        Dirichlet parameters of the topic proportions; those of the prior where no term is known.
    mean, variance : ndarray of float64, shape (D,)
        Moments of the linear predictor. E[exp(omega)] is exact for `Family.is_exact_product`, and for every log link if
        the response is left out; then `variance` is the v that makes it exp(mean + v / 2). For a response of C classes `mean`
        has shape (D, C): predictors whose softmax is the probabilities. They include the variance, so `variance` is 0.
    elbo : ndarray of float64, shape (D,)
        NaN for a model of conditional training.
    n_sweeps, n_known_tokens : ndarray of int64, shape (D,)
    converged : ndarray of bool, shape (D,)
    length : ndarray of float64, shape (D,)
        Sum of gamma - alpha: the number of known tokens, or their weight.
    """

    gamma: Array
    mean: Array
    variance: Array
    elbo: Array
    n_sweeps: NDArray[np.int64]
    n_known_tokens: NDArray[np.int64]
    converged: NDArray[np.bool_]
    length: Array


def e_step(
    indptr: NDArray[np.int64],
    terms: NDArray[np.int32],
    counts: NDArray[np.int32],
    y: Array,
    parameters: Parameters,
    *,
    family: Family,
    spec: FitSpec,
    extras: Array | None = None,
    words_alone: bool = False,
    joint: bool = False,
) -> SufficientStatistics:
    """Sufficient statistics of a block of documents. A pure function of its arguments; it releases the GIL.

    Parameters
    ----------
    indptr, terms, counts : ndarray of int64, int32, int32, shapes (D + 1,), (nnz,), (nnz,)
        Documents as compressed sparse rows; may be read-only or unaligned, as arrays that came over the wire are.
    y : ndarray of float64, shape (D,)
        Standardised responses, NaN where missing.
    parameters : Parameters
    family : Family
    spec : FitSpec
    extras : ndarray of float64, shape (D, 4 + P), optional
        For each document: offset of the linear predictor, trials or event (see :class:`~dslda.families.base.Family`), weight
        of the document, weight of its response, standardised covariates. By default 0, 1, 1, 1 and none.
    words_alone : bool, default False
        Posteriors are those of the words, as in prediction. The sums over the responses are taken at these.
    joint : bool, default False
        For a response of classes: also sum `joint_information`, which only standard errors need.
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
    asks_pearson = has_pearson(family, trials=extras is not None)
    posteriors = _posteriors(len(y) if joint else 0, parameters)
    if asks_pearson:
        posteriors = posteriors._replace(per_document=np.empty((len(y), len(PER_DOCUMENT))))
    _run(
        (indptr, terms, counts, y),
        extras,
        parameters,
        family,
        spec,
        labelled=True,
        statistics=statistics,
        deltas=deltas,
        posteriors=posteriors,
        words_alone=words_alone,
    )
    if asks_pearson:
        columns = _columns(posteriors)
        statistics.pearson, statistics.pearson_weight = pearson_sums(
            family,
            y,
            parameters.delta,
            extras,
            mean=columns["mean"],
            variance=columns["variance"],
            counted=columns["n_known_tokens"] > 0.0,
        )
    if joint:
        n_known = _columns(posteriors)["n_known_tokens"]
        statistics.joint_information = joint_information(
            y,
            extras,
            zbar=(posteriors.gamma - parameters.alpha) / np.maximum(n_known, 1.0)[:, np.newaxis],
            length=n_known,
            predictors=posteriors.omega,
        )
    information = statistics.information
    rows, columns_above = np.triu_indices(information.shape[-1], 1)
    information[..., rows, columns_above] = information[..., columns_above, rows]
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
    y: Array | None = None,
    family: Family | None = None,
    extras: Array | None = None,
) -> DocumentPosterior:
    """Posterior of documents without their response, as in prediction; with `y`, the posterior of training.

    For a model of conditional training both are the same.

    Parameters are those of :func:`e_step`; by default `extras` have average covariates.

    Parameters
    ----------
    family : Family, optional
        Required with `y`. Without `y`, it determines the variance for a log link (see :class:`DocumentPosterior`).
    """
    if spec.objective == "conditional":
        return _inferred_from_words(indptr, terms, counts, parameters, spec, extras)
    n_documents = len(indptr) - 1
    if family is None:
        family = Gaussian() if parameters.n_classes is None else Categorical(parameters.n_classes)
    labelled = y is not None
    if y is None:
        y = np.full(n_documents, np.nan)
    posteriors = _posteriors(n_documents, parameters)
    _run(
        (indptr, terms, counts, y),
        extras,
        parameters,
        family,
        spec,
        labelled=labelled,
        # no row: the kernel sums nothing
        statistics=SufficientStatistics.zeros(0, parameters.n_topics, n_classes=parameters.n_classes),
        deltas=parameters.delta[np.newaxis],
        posteriors=posteriors,
    )
    columns = _columns(posteriors)
    return DocumentPosterior(
        posteriors.gamma,
        columns["mean"] if parameters.n_classes is None else posteriors.omega,
        columns["variance"],
        columns["elbo"],
        columns["n_sweeps"].astype(np.int64),
        columns["n_known_tokens"].astype(np.int64),
        columns["converged"].astype(bool),
        columns["n_known_tokens"],
    )


def _inferred_from_words(
    indptr: NDArray[np.int64],
    terms: NDArray[np.int32],
    counts: NDArray[np.int32],
    parameters: Parameters,
    spec: FitSpec,
    extras: Array | None,
) -> DocumentPosterior:
    """Posterior of conditional training, which never sees a response; the linear predictor has no variance."""
    documents = WeightedDocuments.of(indptr, terms, counts, parameters)
    posterior = infer_words_of(documents, parameters, max_sweeps=spec.max_sweeps)
    n_documents = documents.n_documents
    responses = Responses.of(np.full(n_documents, np.nan), extras)
    omega = predictors(posterior.zbar, responses, parameters, documents)
    known = parameters.topics.max(axis=1, initial=0.0) > 0.0
    tokens = np.concatenate([[0], np.cumsum(np.where(known[terms], counts, 0), dtype=np.int64)])
    return DocumentPosterior(
        posterior.gamma,
        omega,
        np.zeros(n_documents),
        np.full(n_documents, np.nan),
        posterior.n_sweeps,
        tokens[indptr[1:]] - tokens[indptr[:-1]],
        # one that the cap on sweeps cuts short is what training has learned from
        np.ones(n_documents, dtype=np.bool_),
        posterior.length,
    )


def _run(
    documents: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], Array],
    extras: Array | None,
    parameters: Parameters,
    family: Family,
    spec: FitSpec,
    *,
    labelled: bool,
    statistics: SufficientStatistics,
    deltas: Array,
    posteriors: BlockPosteriors,
    words_alone: bool = False,
) -> None:
    """Call the kernel of the family, which adds to `statistics` and writes `posteriors`."""
    indptr, terms, counts, y = documents
    # no effect if the caller has done this already, once for many blocks
    parameters = in_e_step(parameters)
    if extras is None:
        n_covariates = len(parameters.zeta)
        extras = neutral_extras(len(y) if n_covariates else 0, n_covariates)
    scalars = np.zeros(len(SCALARS))
    arrays: dict[str, Any] = {name: getattr(statistics, name) for name in BlockSums._fields[:-1]}
    kernel_of(family, labelled=labelled)(
        BlockDocuments(
            read_only(indptr, np.int64),
            read_only(terms, np.int32),
            read_only(counts, np.int32),
            read_only(y),
            read_only(extras),
        ),
        BlockParameters(
            read_only(parameters.topics),
            read_only(parameters.alpha),
            read_only(parameters.eta),
            read_only(parameters.zeta),
            read_only(deltas),
        ),
        BlockOptions(
            0.0 if words_alone else float(spec.response_weight),
            int(spec.max_sweeps),
            float(spec.sweep_tol),
            spec.granularity == "term",
            bool(family.is_quadratic),
            bool(family.uses_bound),
        ),
        BlockSums(**arrays, scalars=scalars),
        posteriors,
        *(getattr(family, name) for name in (FUNCTIONS if parameters.n_classes is None else ())),
    )
    for name, value in zip(SCALARS, scalars.tolist(), strict=True):
        # counts are int
        setattr(statistics, name, type(getattr(statistics, name))(value))


def _posteriors(n_documents: int, parameters: Parameters) -> BlockPosteriors:
    """Uninitialised rows for `n_documents`."""
    widths = parameters.n_topics, parameters.n_classes or 0, len(PER_DOCUMENT)
    return BlockPosteriors(*(np.empty((n_documents, width)) for width in widths))


def _columns(posteriors: BlockPosteriors) -> dict[str, Array]:
    return dict(zip(PER_DOCUMENT, np.ascontiguousarray(posteriors.per_document.T), strict=True))


def neutral_extras(n_documents: int, n_covariates: int) -> Array:
    """`extras` of documents with no offset, one trial, weights 1 and average covariates."""
    extras = np.zeros((n_documents, len(EXTRAS) + n_covariates))
    extras[:, 1 : len(EXTRAS)] = 1.0
    return extras
