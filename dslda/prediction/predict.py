"""Predictions for counted documents, with flags for those without a full one.

Every document is inferred on its own, so its prediction does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslda.evaluation.intervals import FEWEST, check_level
from dslda.exceptions import InputError
from dslda.families.base import expected_level
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.columns import extras_of, undetermined
from dslda.prediction.record_counting import CountedBlock, no_documents
from dslda.variational.design import AUX, FIRST_COVARIATE, OFFSET
from dslda.variational.level_corrections import level_probabilities
from dslda.variational.remainder import normalised_terms
from dslda.wording import short_repr

if TYPE_CHECKING:
    import pyarrow as pa

    from dslda.variational.estep import DocumentPosterior
    from dslda.variational.parameters import Parameters

__all__ = [
    "FLAG_MEANING",
    "WITHOUT_PREDICTION",
    "Predictions",
    "at_level",
    "check_is_a_sum",
    "contributions",
    "predict_block",
    "predict_nothing",
    "topic_columns",
    "topic_proportions",
    "topic_shares",
    "training_proportions",
]


WITHOUT_PREDICTION = ("no_covariate", "unknown_level")
"""Flags of documents without a prediction."""

FLAG_MEANING = {
    "no_covariate": "lack a covariate of the model: they have no prediction",
    "unknown_level": "have a level of a covariate that training did not see: they have no prediction",
    "empty": "are empty: their prediction is the base rate",
    "no_known_word": "have no word that the model knows: their prediction is the base rate",
    "not_converged": "stopped at the sweep cap of the model: their prediction is not final",
}
"""Predicates of the documents with each flag, for messages."""


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predictions of documents, in their order.

    Attributes
    ----------
    doc_id : tuple of str, length D
    prediction : ndarray of float64 or str, shape (D,)
        Expected response in the user's units, or the name of the most probable class or level; NaN or None, like the
        `probabilities`, without a prediction. Of several starts both are the means.
    tokens, known_tokens : ndarray of int64, shape (D,)
        Tokens of each document, and those of terms that the model knows; the prediction rests on the latter.
    oov_share : ndarray of float64, shape (D,)
        Share of a document's tokens that the model does not know; NaN without tokens. The tokens of a text are all that
        the tokeniser makes, n-grams included, except stop words; so words that `min_df`, `max_df` and `max_features` keep
        out of the vocabulary are unknown, common ones too. The tokens of pairs (words, counts) are all words except stop
        words. A corpus or matrix has only the tokens counted in it, since its own ingestion dropped the others; so the
        share is 0 for the corpus trained on.
    flag : tuple of str, length D
        "empty" (no token, in the same sense) or "no_known_word": the prediction is the base rate, which is the mean
        response of training adjusted for covariates and exposure, and the topics are those of the prior;
        "not_converged": inference stopped at its sweep cap; "" otherwise. "no_covariate" (a covariate of the model is
        missing, or an exposure or trials that others have) and "unknown_level" (training did not see this level of a
        covariate) come before all these: there is no prediction.
    topic_proportions : ndarray of float64, shape (D, K)
        Posterior means of theta: the shares of the known words by topic, drawn towards the prior.
    probabilities : ndarray of float64, shape (D, C), or None
        Of the classes or levels, where the response has any.
    classes : tuple of str
    low, high : ndarray of float64, shape (D,), or None
        Ends of intervals that hold 90% of the responses, or the share that :func:`at_level` has set (docs/scoring.md), where
        the model has any; NaN where the prediction rests on no word.
    """

    doc_id: tuple[str, ...]
    prediction: NDArray[Any]
    tokens: NDArray[np.int64]
    known_tokens: NDArray[np.int64]
    oov_share: NDArray[np.float64]
    flag: tuple[str, ...]
    topic_proportions: NDArray[np.float64]
    probabilities: NDArray[np.float64] | None = None
    classes: tuple[str, ...] = ()
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None

    __repr__ = short_repr

    def columns(self) -> dict[str, Any]:
        """The columns of :meth:`table` without the topics."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            "id": pa.array(self.doc_id, pa.string()),
            "prediction": pa.array(
                self.prediction, pa.string() if self.prediction.dtype == object else None, from_pandas=True
            ),
            **{
                f"prediction_{name}": pa.array(ends, from_pandas=True)
                for name, ends in (("low", self.low), ("high", self.high))
                if ends is not None
            },
            "known_tokens": self.known_tokens,
            "oov_share": pa.array(self.oov_share, from_pandas=True),
            "flag": pa.array(self.flag, pa.string()),
        }
        if self.probabilities is not None:
            columns |= {
                f"probability_{name}": pa.array(np.ascontiguousarray(column), from_pandas=True)
                for name, column in zip(self.classes, self.probabilities.T, strict=True)
            }
        return columns

    def table(self) -> pa.Table:
        """One row a document, with a column ``probability_<class>`` for each class, and ``topic_0``, ``topic_1``, ..."""
        import pyarrow as pa

        return pa.table(self.columns() | topic_columns(self.topic_proportions))


def topic_columns(proportions: NDArray[np.float64]) -> dict[str, Any]:
    """The columns ``topic_0``, ``topic_1``, ... of a table."""
    return {f"topic_{k}": np.ascontiguousarray(column) for k, column in enumerate(proportions.T)}


def at_level(record: ModelRecord, interval: float) -> ModelRecord:
    """The model with intervals that hold this share of the responses.

    Raises
    ------
    InputError
        The model has no intervals, or none of this level.
    """
    check_level(interval)
    reference = record.reference
    if reference is not None and reference.intervals is not None:
        return replace(record, reference=replace(reference, intervals=reference.intervals.at(interval)))
    if record.class_names is not None:
        raise InputError(
            "must be left out: classes and levels have no intervals, but probabilities",
            parameter="interval",
            remedy="use {predict_proba()}",
        )
    of_durations = record.design.auxiliary is not None and not record.design.trials
    raise InputError(
        "must be left out: the model has no intervals, since training kept too few documents of known response aside"
        + (", or some of their durations were cut off" if of_durations else ""),
        parameter="interval",
        remedy=f"train with {{hold_out=}}, so that {FEWEST} or more are kept aside",
    )


def predict_block(record: ModelRecord, counted: CountedBlock, doc_id: Sequence[str]) -> Predictions:
    """Predict a block of documents without their responses."""
    block = counted.block
    expected = [_expected(start, counted) for start in record.starts]
    # the documents, the topics and what is known of both are those of the start shown
    posterior, extras = expected[0].posterior, expected[0].extras
    mean = _mean([each.mean for each in expected])
    probabilities = None
    if expected[0].probabilities is not None:
        probabilities = _mean([each.probabilities for each in expected if each.probabilities is not None])
    classes, numbers = record.class_names, record.level_numbers
    if record.predicts_names and classes is not None:
        chances = mean if probabilities is None else probabilities
        # argmax takes the first of equals
        prediction: NDArray[Any] = np.array(classes, dtype=object)[chances.argmax(axis=1)]
    elif numbers is not None and probabilities is not None:
        prediction = expected_level(probabilities, numbers)
    else:
        prediction = record.scaling.to_user(mean)
        if record.design.trials and extras is not None:
            prediction = prediction * extras[:, AUX]
            probabilities = None
    running = np.concatenate([[0], np.cumsum(block.counts, dtype=np.int64)])
    tokens = running[block.indptr[1:]] - running[block.indptr[:-1]] + counted.n_unknown
    n_known = posterior.n_known_tokens
    share = np.full(len(tokens), np.nan)
    np.divide(tokens - n_known, tokens, out=share, where=tokens > 0)
    flag = np.where(
        tokens == 0,
        "empty",
        np.where(n_known == 0, "no_known_word", np.where(posterior.converged, "", "not_converged")),
    )
    reasons = undetermined(record, counted.columns, block.n_documents)
    without = reasons != ""
    if without.any():
        flag = np.where(without, reasons, flag)
        prediction[without] = None if prediction.dtype == object else np.nan
        if probabilities is not None:
            probabilities = probabilities.copy()
            probabilities[without] = np.nan
    low, high = None, None
    if record.reference is not None and record.reference.intervals is not None:
        # where scatter depends on the level, responses have an end: counts and amounts do not fall below 0
        lowest = -np.inf if record.family.constant_scatter else record.response_summary.minimum
        of_trials = record.design.trials and extras is not None
        highest = extras[:, AUX] if of_trials and extras is not None else record.family.domain.high
        resting = np.where(n_known > 0, prediction, np.nan)
        low, high = record.reference.intervals.around(resting, lowest=lowest, highest=highest)
    return Predictions(
        doc_id=tuple(doc_id),
        prediction=prediction,
        tokens=tokens,
        known_tokens=n_known,
        oov_share=share,
        flag=tuple(flag.tolist()),
        topic_proportions=topic_proportions(posterior),
        probabilities=probabilities,
        classes=classes or (),
        low=low,
        high=high,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Expected:
    """What one start expects of documents, on the scale of the fit."""

    posterior: DocumentPosterior
    extras: NDArray[np.float64] | None
    mean: NDArray[np.float64]
    probabilities: NDArray[np.float64] | None


def _expected(record: ModelRecord, counted: CountedBlock) -> _Expected:
    family, parameters, base = record.family, record.parameters, record.base
    posterior, extras = _inferred(record, counted)
    omega, variance = _linear_predictor(record, posterior, extras)
    probabilities = level_probabilities(omega, variance, family, parameters)
    if parameters.level_corrections is None or probabilities is None:
        mean = family.mean(omega, variance, parameters.delta)
    else:
        mean = expected_level(probabilities, np.arange(probabilities.shape[1], dtype=np.float64))
    unknown = posterior.n_known_tokens == 0
    if base is not None and parameters.n_classes is None and unknown.any():
        # the base rate takes no corrections, and that of levels has cutpoints of its own
        delta = base[1:] if len(base) > 1 else parameters.delta
        mean[unknown] = family.mean(omega[unknown], variance[unknown], delta)
        if probabilities is not None:
            probabilities[unknown] = family.probabilities(omega[unknown], variance[unknown], delta)
    return _Expected(posterior, extras, mean, probabilities)


def _mean(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean over the starts, added in their order."""
    if len(values) == 1:
        return values[0]
    total = values[0].copy()
    for each in values[1:]:
        total += each
    return total / len(values)


def predict_nothing(record: ModelRecord) -> Predictions:
    """Predictions of no documents, for their columns."""
    return predict_block(record, no_documents(), ())


def _inferred(
    record: ModelRecord, counted: CountedBlock, y: NDArray[np.float64] | None = None
) -> tuple[DocumentPosterior, NDArray[np.float64] | None]:
    """Posterior of documents, as in training where their responses `y` are given, and the columns beside their words."""
    from dslda.variational.estep import infer

    block, design = counted.block, record.design
    extras = extras_of(record, counted.columns, block.n_documents, y=y)
    posterior = infer(
        block.indptr,
        block.terms,
        block.counts,
        record.parameters if y is None else design.weighed(record.parameters, back=True),
        spec=record.spec,
        y=None if y is None else design.to_model(y),
        family=record.family,
        extras=extras,
    )
    return posterior, extras


def _linear_predictor(
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


def topic_shares(record: ModelRecord, counted: CountedBlock) -> NDArray[np.float64]:
    """Share of each topic in the known words of documents, by the start shown, shape (D, K); NaN without a known word.

    Topic proportions are drawn towards the prior, which makes topics without words vary with the length of documents.
    """
    posterior, _ = _inferred(record, counted)
    return _shares(posterior, record.parameters)


def _shares(posterior: DocumentPosterior, parameters: Parameters) -> NDArray[np.float64]:
    """The paper's phibar, shape (D, K): gamma is alpha and the sum of phi over the words."""
    length = posterior.length[:, np.newaxis]
    shares = np.full(posterior.gamma.shape, np.nan)
    np.divide(posterior.gamma - parameters.alpha, length, out=shares, where=length > 0)
    return shares


def training_proportions(
    record: ModelRecord, counted: Sequence[CountedBlock], observed: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Topic proportions of documents with known responses, as the E-step of training has them, shape (D, K).

    `observed` holds the responses of all documents, as :func:`~dslda.prediction.responses.observed_responses` returns them.
    """
    parts, first = [np.zeros((0, record.parameters.n_topics))], 0
    for documents in counted:
        n = documents.block.n_documents
        lacking = undetermined(record, documents.columns, n, with_event=True) != ""
        posterior, _ = _inferred(record, documents, np.where(lacking, np.nan, observed[first : first + n]))
        parts.append(topic_proportions(posterior))
        first += n
    return np.concatenate(parts)


def check_is_a_sum(record: ModelRecord) -> None:
    """Refuse a response with a linear predictor for each class, which is no sum over topics."""
    if record.parameters.n_classes is not None:
        raise InputError(
            f"contributions are for responses with one linear predictor, got family {record.spec.family}, which has one for "
            "each class, and no sum over topics",
            remedy="use {class_coefficients()} beside {transform()}",
        )


def contributions(
    record: ModelRecord, counted: CountedBlock, doc_id: Sequence[str], *, relative: bool
) -> pa.Table:
    """Contributions to the linear predictors of a block, as :meth:`dslda.model.Model.contributions` describes them."""
    import pyarrow as pa

    parameters, design, scaling, family = record.parameters, record.design, record.scaling, record.family
    posterior, extras = _inferred(record, counted)
    omega, _ = _linear_predictor(record, posterior, extras)
    shares = _shares(posterior, parameters)
    coefficients = family.coefficients_to_user(parameters.eta, scaling.center, scaling.scale)
    # models of early releases do not know how frequent topics are
    average = 0.0 if not relative else float(np.average(coefficients, weights=record.prevalence))
    # shares sum to 1
    topics = shares * (coefficients - average)
    beside: dict[str, Any] = {}
    # the units of dslda.coefficients
    unit = scaling.scale if family.link == "identity" else 1.0
    if extras is not None:
        for p, column in enumerate(design.covariates):
            added = unit * parameters.zeta[p] * extras[:, FIRST_COVARIATE + p]
            name = f"covariate_{column.name}"
            beside[name] = beside[name] + added if name in beside else added
        if design.exposure is not None:
            beside["log_exposure"] = extras[:, OFFSET]
    if (remainder := parameters.remainder) is not None:
        block = counted.block
        terms = normalised_terms(block.indptr, block.terms, block.counts, parameters.n_terms)
        added = np.where(posterior.length > 0.0, remainder.of(terms, shares), np.nan)
        beside["words_beyond_topics"] = unit * added
    without = undetermined(record, counted.columns, counted.block.n_documents) != ""
    sums = np.where(without, np.nan, family.coefficients_to_user(omega, scaling.center, scaling.scale))
    columns: dict[str, NDArray[Any]] = {"linear_predictor": sums}
    if relative:
        columns["average"] = np.full(len(sums), average)
    columns |= {f"topic_{k}": column for k, column in enumerate(topics.T)}
    columns |= {name: np.where(without, np.nan, column) for name, column in beside.items()}
    table: dict[str, Any] = {"id": pa.array(doc_id, pa.string())}
    for name, values in columns.items():
        table[name] = pa.array(np.ascontiguousarray(values), from_pandas=True)
    return pa.table(table)
