"""Predictions for counted documents.

Every document is inferred by itself, so its prediction does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import InputError
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.alignment import CountedBlock, no_documents
from dslda.prediction.columns import extras_of, undetermined
from dslda.prediction.results import Predictions
from dslda.variational.design import AUX, FIRST_COVARIATE, OFFSET
from dslda.wording import number_name

if TYPE_CHECKING:
    import pyarrow as pa

    from dslda.families.base import Family
    from dslda.variational.estep import DocumentPosterior

__all__ = [
    "check_is_a_sum",
    "contributions",
    "inferred",
    "linear_predictor",
    "predict_block",
    "predict_nothing",
    "topic_proportions",
    "training_proportions",
]


def predict_block(record: ModelRecord, counted: CountedBlock, doc_id: Sequence[str]) -> Predictions:
    """Predictions for a block of documents, their responses left out."""

    block, parameters = counted.block, record.parameters
    family = record.family
    posterior, extras = inferred(record, counted, family)
    omega, variance = linear_predictor(record, posterior, extras)
    mean = family.mean(omega, variance, parameters.delta)
    probabilities = family.probabilities(omega, variance, parameters.delta)
    classes = record.classes
    if parameters.n_classes is not None and classes is not None:
        # argmax takes the first of equals
        prediction: NDArray[Any] = np.array(classes, dtype=object)[mean.argmax(axis=1)]
    else:
        prediction = record.scaling.to_user(mean)
        if record.design.trials and extras is not None:
            prediction = prediction * extras[:, AUX]
            probabilities = None
    if probabilities is not None and classes is None:
        levels = record.scaling.to_user(np.arange(probabilities.shape[1], dtype=np.float64))
        classes = tuple(map(number_name, levels.tolist()))
    running = np.concatenate([[0], np.cumsum(block.counts, dtype=np.int64)])
    tokens = running[block.indptr[1:]] - running[block.indptr[:-1]] + counted.n_unknown
    known = posterior.n_known_tokens
    share = np.full(len(tokens), np.nan)
    np.divide(tokens - known, tokens, out=share, where=tokens > 0)
    flag = np.where(
        tokens == 0,
        "empty",
        np.where(known == 0, "no_known_word", np.where(posterior.converged, "", "not_converged")),
    )
    reasons = undetermined(record, counted.columns, block.n_documents)
    without = reasons != ""
    if without.any():
        flag = np.where(without, reasons, flag)
        prediction[without] = None if prediction.dtype == object else np.nan
        if probabilities is not None:
            probabilities = probabilities.copy()
            probabilities[without] = np.nan
    return Predictions(
        doc_id=tuple(doc_id),
        prediction=prediction,
        tokens=tokens,
        known_tokens=known,
        oov_share=share,
        flag=tuple(flag.tolist()),
        topic_proportions=topic_proportions(posterior),
        probabilities=probabilities,
        classes=classes or (),
    )


def predict_nothing(record: ModelRecord) -> Predictions:
    """Predictions without documents, for their columns."""
    return predict_block(record, no_documents(), ())


def inferred(
    record: ModelRecord, counted: CountedBlock, family: Family
) -> tuple[DocumentPosterior, NDArray[np.float64] | None]:
    """Posterior of documents without their responses, and the columns that inference has used beside their words."""
    from dslda.variational.estep import infer

    block = counted.block
    extras = extras_of(record, counted.columns, block.n_documents)
    posterior = infer(
        block.indptr,
        block.terms,
        block.counts,
        record.parameters,
        spec=record.spec,
        family=family,
        extras=extras,
    )
    return posterior, extras


def linear_predictor(
    record: ModelRecord, posterior: DocumentPosterior, extras: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of the linear predictor; those of the base rate where no word is known."""
    unknown = posterior.n_known_tokens == 0
    if record.base is None or not unknown.any():
        return posterior.mean, posterior.variance
    omega, variance = posterior.mean.copy(), posterior.variance.copy()
    base = record.base if record.parameters.n_classes is not None else record.base[0]
    omega[unknown], variance[unknown] = base, 0.0
    if extras is not None:
        # summed column by column: the bits do not depend on the other documents
        zeta = record.parameters.zeta
        for column, coefficient in zip(extras[unknown, FIRST_COVARIATE:].T, zeta, strict=True):
            omega[unknown] += np.multiply.outer(column, coefficient)
        if omega.ndim == 1:
            omega[unknown] += extras[unknown, OFFSET]
    return omega, variance


def topic_proportions(posterior: DocumentPosterior) -> NDArray[np.float64]:
    """Posterior mean of theta, (alpha + N phibar) / (sum(alpha) + N), shape (D, K)."""
    proportions: NDArray[np.float64] = posterior.gamma / posterior.gamma.sum(axis=1, keepdims=True)
    return proportions


def training_proportions(
    record: ModelRecord, counted: Sequence[CountedBlock], observed: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Topic proportions of documents whose responses are known, as the E-step of training has them.

    Parameters
    ----------
    record : ModelRecord
        Record that documents are scored with: :attr:`~dslda.model.Model.scoring_record`.
    counted : sequence of CountedBlock
    observed : ndarray of float64, shape (D,)
        Responses of all documents, from :func:`~dslda.prediction.responses.observed_responses`.

    Returns
    -------
    ndarray of float64, shape (D, K)
    """
    from dslda.variational.estep import infer

    parameters = record.design.weighed(record.parameters, back=True)
    family = record.family
    parts, first = [np.zeros((0, record.parameters.n_topics))], 0
    for documents in counted:
        block = documents.block
        own = observed[first : first + block.n_documents]
        lacking = undetermined(record, documents.columns, block.n_documents, with_event=True) != ""
        own = np.where(lacking, np.nan, own)
        posterior = infer(
            block.indptr,
            block.terms,
            block.counts,
            parameters,
            spec=record.spec,
            y=record.design.to_model(own),
            family=family,
            extras=extras_of(record, documents.columns, block.n_documents, y=own),
        )
        parts.append(topic_proportions(posterior))
        first += block.n_documents
    return np.concatenate(parts)


def check_is_a_sum(record: ModelRecord) -> None:
    """Refuse a response whose linear predictors are no sum over topics.

    Raises
    ------
    InputError
        It has a predictor for each class.
    """
    if record.parameters.n_classes is not None:
        raise InputError(
            f"contributions are for responses with one linear predictor, got family {record.spec.family}, which has one for "
            "each class, and no sum over topics",
            remedy="use {class_coefficients()} beside {transform()}",
        )


def contributions(record: ModelRecord, counted: CountedBlock, doc_id: Sequence[str]) -> pa.Table:
    """Contributions to the linear predictors of a block; see :meth:`dslda.model.Model.contributions`."""
    import pyarrow as pa

    parameters, design, scaling = record.parameters, record.design, record.scaling
    family = record.family
    posterior, extras = inferred(record, counted, family)
    omega, _ = linear_predictor(record, posterior, extras)
    known = posterior.n_known_tokens[:, np.newaxis]
    # gamma is alpha and the sum of phi over the words
    shares = np.full(posterior.gamma.shape, np.nan)
    np.divide(posterior.gamma - parameters.alpha, known, out=shares, where=known > 0)
    topics = shares * family.coefficients_to_user(parameters.eta, scaling.center, scaling.scale)
    beside: dict[str, Any] = {}
    if extras is not None:
        # as dslda.coefficients has them
        unit = scaling.scale if family.link == "identity" else 1.0
        for p, column in enumerate(design.covariates):
            added = unit * parameters.zeta[p] * extras[:, FIRST_COVARIATE + p]
            name = f"covariate_{column.name}"
            beside[name] = beside[name] + added if name in beside else added
        if design.exposure is not None:
            beside["log_exposure"] = extras[:, OFFSET]
    without = undetermined(record, counted.columns, counted.block.n_documents) != ""
    sums = np.where(without, np.nan, family.coefficients_to_user(omega, scaling.center, scaling.scale))
    columns = {
        "linear_predictor": sums,
        **{f"topic_{k}": column for k, column in enumerate(topics.T)},
        **{name: np.where(without, np.nan, column) for name, column in beside.items()},
    }
    return pa.table(
        {
            "id": pa.array(doc_id, pa.string()),
            **{
                name: pa.array(np.ascontiguousarray(column), from_pandas=True)
                for name, column in columns.items()
            },
        }
    )
