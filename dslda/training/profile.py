"""The profile of the training documents that a model keeps, to compare later documents with.

It is made after the fit, in this process, from a sample that depends only on the documents. So it is the same on every
cluster, and costs a few seconds for a corpus of any size. Responses are left out, as in scoring.
"""

from __future__ import annotations

import logging
import math
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.engine.conditional.selection import Selection
from dslda.engine.data.fit_source import FitSource
from dslda.engine.data.training_view import TrainingView
from dslda.engine.executor import single_threaded_blas
from dslda.evaluation.intervals import FEWEST, Intervals, conformal_intervals
from dslda.evaluation.metrics import (
    predictive_r2,
    predictive_r2_standard_error,
    root_mean_squared_error,
    share_standard_error,
)
from dslda.exceptions import DsldaError
from dslda.families.categorical import Categorical
from dslda.model import Model
from dslda.persistence.model_record import N_BINS, HeldOut, ModelRecord, Reference
from dslda.prediction.predict import predict_block
from dslda.prediction.record_counting import CountedBlock
from dslda.prediction.responses import observed_and_predicted, responses_as_numbers, share_right
from dslda.training.sampling import evenly_spread, sampled_partitions, sampled_rows
from dslda.wording import number_of

__all__ = ["training_reference"]

logger = logging.getLogger("dslda.engine")

MOST_DOCUMENTS = 10_000

FEWEST_KEPT = 250
"""Fewest documents kept from training that the profile describes in place of the training documents."""
N_FACTORS = 2
"""Numbers of the last stage of conditional training that are fitted to the inner part: one of topics, one of words."""
MISFIT = 1.2
"""Mean squared error of the documents trained on, over that of their mean, above which predictions are of no use. A family
that gives outliers little weight, and predictions that hardly follow words, may come close to it."""
WHEN_WORSE = {
    "joint": "compare with a lower rho, another alpha or fewer topics, or train on more documents; where words say little of "
    "the response no model does better",
    "conditional": "compare with fewer topics, or train on more documents; where words say little of the response no model "
    "does better",
}


def training_reference(
    record: ModelRecord, source: FitSource, unseen: tuple[ModelRecord, Selection] | None = None
) -> tuple[Reference | None, HeldOut | None]:
    """Profile of the documents that a model was fitted to, and the quality of its predictions for others.

    Parameters
    ----------
    record : ModelRecord
    source : FitSource
    unseen : tuple of (ModelRecord, Selection), optional
        The model as it was before it had learned from a part of the documents, and this part. It gives intervals where
        too few documents were kept from training and, where none was and the topics are still those, the profile.

    Returns
    -------
    Reference or None
        None where no document could be read again, or none has a known word.
    HeldOut or None
        Of the documents that were kept from training, or else of this part; None where they allow no measurement.
    """
    try:
        with single_threaded_blas():
            return _reference(Model(record).scoring_record, source, unseen)
    # the fit may have taken days, and is complete without it
    except (DsldaError, OSError, CancelledError) as error:
        logger.warning(
            "documents could not be read once more after training (%s): the model will not know by how much documents that "
            "are scored later differ from them (drift)%s, and gives no intervals; going on from a checkpoint measures it "
            "again",
            error,
            ", nor how well it predicts those kept from training" if source.n_others.any() else "",
        )
        return None, None


def _reference(
    record: ModelRecord, source: FitSource, unseen: tuple[ModelRecord, Selection] | None
) -> tuple[Reference | None, HeldOut | None]:
    trained, left_out = _Collected(record), _Collected(record)
    inner = None if unseen is None else _Collected(unseen[0])
    has_others = bool(source.n_others.any())
    describes = (
        unseen is not None
        and not has_others
        and np.array_equal(unseen[0].parameters.topics, record.parameters.topics)
    )
    chosen = sampled_partitions(source.n_partitions)
    of_trained = sampled_rows(source.n_documents[chosen], record, most=MOST_DOCUMENTS)
    of_left_out = sampled_rows(source.n_others[chosen], record, most=MOST_DOCUMENTS)
    for partition, rows, others in zip(chosen, of_trained, of_left_out, strict=True):
        block = source.reader(partition)()  # read once for both
        trained.add(block, source.view(partition), rows)
        if len(others):
            left_out.add(block, source.others(partition), others)
        if unseen is not None and inner is not None:
            view = source.view(partition)
            of_inner = np.flatnonzero(unseen[1].mask(view(block)))
            chosen_rows = of_inner[evenly_spread(len(of_inner), -(-MOST_DOCUMENTS // len(chosen)))]
            inner.add(block, view, chosen_rows)
            if describes:
                left_out.add(block, view, chosen_rows)
    if not trained.n_documents:
        return None, None
    trained.report_misfit()
    # too few may have been left out: one bad document, say
    intervals = left_out.intervals() if has_others else None
    if intervals is None and inner is not None:
        intervals = inner.intervals(n_fitted=N_FACTORS)
    measured = None
    if any(len(rows) for rows in of_left_out):
        measured = left_out.report(has_intervals=intervals is not None)
    elif inner is not None and (found := inner.measured()[0]) is not None:
        measured = replace(found, set_aside=True)
        logger.info("%s", measured.in_words)
    of_training = left_out.n_documents < FEWEST_KEPT
    sample = trained if of_training else left_out
    predicted, topics = np.concatenate(sample.predictions), np.concatenate(sample.proportions)
    of_classes = predicted.dtype == object
    classes = tuple(record.classes or ()) if of_classes else ()
    reference = Reference(
        prediction_borders=np.zeros(0) if of_classes else _borders(predicted[~np.isnan(predicted)]),
        prediction_counts=np.zeros(len(classes) or N_BINS, dtype=np.int64),
        topic_borders=np.array([_borders(column) for column in topics.T]),
        topic_counts=np.zeros((topics.shape[1], N_BINS), dtype=np.int64),
        topic_means=topics.mean(axis=0),
        intervals=intervals,
        classes=classes,
        of_training=of_training,
    )
    counts = reference.no_counts()
    counts.add(reference, predicted, topics)
    reference.prediction_counts[:] = counts.predictions
    reference.topic_counts[:] = counts.topics
    return reference, measured


class _Collected:
    """Predictions and topics of documents with a known word, and predictions and responses of all."""

    def __init__(self, record: ModelRecord) -> None:
        self._record = record
        self._family = record.family
        self.predictions: list[NDArray[Any]] = []
        self.proportions: list[NDArray[np.float64]] = []
        self.n_documents = 0
        self._is_cut_off = False
        self._scored: list[tuple[NDArray[np.float64], NDArray[Any]]] = []
        self._known: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._weights: list[NDArray[np.float64]] = []

    def add(self, block: DocumentBlock, view: TrainingView, rows: NDArray[np.int64]) -> None:
        """Predict these documents of a view."""
        y, documents = view.raw(block)[rows], block.take(view.rows(block)[rows])
        design = self._record.design
        aux = None if design.auxiliary is None else documents.covariates[design.auxiliary]
        if aux is not None and not design.trials:
            # a duration that was cut off is only a lower bound, and those that ended are the shorter ones
            y = np.where(aux == 0.0, np.nan, y)
            self._is_cut_off |= bool((aux == 0.0).any())
        if design.classes is None and not isinstance(self._family, Categorical):
            # responses that training would refuse measure nothing: documents= may have left them out for that
            y = np.where(self._family.check(y, aux), y, np.nan)
        if not self._record.predicts_names:
            y = responses_as_numbers(self._record, y)
        # an exposure of documents kept from training may have no logarithm
        with np.errstate(all="ignore"):
            scored = predict_block(
                self._record,
                CountedBlock(
                    documents, np.zeros(documents.n_documents, dtype=np.int64), documents.covariates
                ),
                [""] * documents.n_documents,
            )
        self._scored.append((y, scored.prediction))
        weights = np.ones(len(y)) if documents.weight is None else documents.weight
        self._weights.append(
            weights if design.weight is None else weights * documents.covariates[design.weight]
        )
        mask = scored.known_tokens > 0
        self.n_documents += int(mask.sum())
        self.predictions.append(scored.prediction[mask])
        self.proportions.append(scored.topic_proportions[mask])
        if scored.prediction.dtype != object:
            known = mask & np.isfinite(y) & np.isfinite(scored.prediction)
            self._known.append((scored.prediction[known], y[known]))

    def report_misfit(self) -> None:
        """Say where the documents trained on are predicted worse than by their mean."""
        family, design = self._family, self._record.design
        # the mean of durations that ended is no rival where others were cut off, nor the squared error one of classes
        if family.has_classes or family.has_levels or design.auxiliary is not None:
            return
        y, predicted = (np.concatenate(columns) for columns in zip(*self._scored, strict=True))
        weights = np.concatenate(self._weights)
        mask = ~np.isnan(y) & ~np.isnan(predicted) & (weights > 0.0)
        y, predicted, weights = y[mask], predicted[mask], weights[mask]
        if len(set(y.tolist())) < 2:
            return
        with np.errstate(over="ignore"):
            mean = np.average(y, weights=weights)
            ratio = float((weights @ np.square(y - predicted)) / (weights @ np.square(y - mean)))
        if not ratio <= MISFIT:
            logger.warning(
                "the documents trained on are predicted worse than by their mean (the mean squared error is %.3g times as "
                "large, responses go from %.3g to %.3g, predictions from %.3g to %.3g): mend or leave out responses far "
                "smaller or larger than the others, compare with another family or fewer topics, or train on more documents",
                *(ratio, y.min(), y.max(), predicted.min(), predicted.max()),
            )

    def measured(self) -> tuple[HeldOut | None, NDArray[np.bool_], NDArray[np.float64], NDArray[Any]]:
        """How well the responses are predicted; which documents have both, and their responses and predictions."""
        y = np.concatenate([responses for responses, _ in self._scored])
        predicted = np.concatenate([predictions for _, predictions in self._scored])
        mask = observed_and_predicted(y, predicted) & np.isfinite(y)
        if predicted.dtype != object:
            mask &= np.isfinite(predicted)
        y, predicted = y[mask], predicted[mask]
        return self._measured(y, predicted), mask, y, predicted

    def report(self, *, has_intervals: bool) -> HeldOut | None:
        """Log how well the responses of documents kept from training are predicted, and whether there are enough."""
        measured, mask, y, predicted = self.measured()
        numbers: dict[str, float] = {}
        if measured is None:
            reason = "none has a response and a prediction"
            if len(y):
                reason = "predictions are too large to be squared"
            kept = f"{number_of(len(mask), 'document')} kept from training"
            message = f"nothing is known of how well it predicts: {reason}, on {kept}"
            if len(y) and np.all(y == y[0]):
                with np.errstate(all="ignore"):
                    error = root_mean_squared_error(y, predicted)
                numbers = {"root_mean_squared_error": error}
                message = (
                    f"root mean squared error {error:.4g}, on {kept}; their predictive R2 is not defined: all have the "
                    "same response"
                )
        else:
            message = measured.in_words
            numbers = {measured.measure: measured.value}
            if measured.standard_error is not None:
                numbers[f"{measured.measure}_standard_error"] = measured.standard_error
        logger.info(message, extra={"event": "held_out", "documents": len(y), **numbers})
        remedy = WHEN_WORSE["conditional" if self._record.spec.objective == "conditional" else "joint"]
        if measured is not None and measured.is_worse_than_mean:
            logger.warning(f"these documents are predicted worse than by their mean: {remedy}")
        elif (
            measured is not None
            and measured.most_frequent is not None
            and measured.value < measured.most_frequent
            and self._record.design.class_weight is None
        ):
            most = measured.most_frequent
            logger.warning(
                f"one class for all would be right of {most:.1%} of these documents, which is more: {remedy}"
            )
        n = sum(len(y) for _, y in self._known)
        if self._may_have_intervals and not has_intervals:
            logger.info(
                "predictions will be without intervals: at least %d documents with a response and a known word must be kept "
                "from training, got %d",
                FEWEST,
                n,
            )
        if self.n_documents < FEWEST_KEPT:
            logger.info(
                "drift, by which documents that are scored later differ, will be measured against the documents trained on, "
                "which an overfitted model knows better than any others: at least %d with a known word must be kept from "
                "training, got %d",
                FEWEST_KEPT,
                self.n_documents,
            )
        return measured

    def _measured(self, y: NDArray[np.float64], predicted: NDArray[Any]) -> HeldOut | None:
        """Measure known responses against their predictions."""
        record = self._record
        if (
            predicted.dtype != object
            and record.classes is not None
            and record.level_numbers is None
            and len(y)
        ):
            # probabilities of the second of two classes
            right = float(np.mean((predicted > 0.5) == y))
            return HeldOut(len(y), "accuracy", right, share_standard_error(right, len(y)), _largest_share(y))
        if predicted.dtype == object and len(y):
            # a class without training documents is never right
            mask = np.isin(y, record.design.classes or range(len(record.classes or ())))
            accuracy = (
                share_right(record, y[mask], predicted[mask]) * float(mask.mean()) if mask.any() else 0.0
            )
            return HeldOut(
                len(y), "accuracy", accuracy, share_standard_error(accuracy, len(y)), _largest_share(y)
            )
        if len(set(y.tolist())) < 2:
            return None
        with np.errstate(all="ignore"):
            r2, error = predictive_r2(y, predicted), predictive_r2_standard_error(y, predicted)
        if not math.isfinite(r2):
            return None
        return HeldOut(len(y), "predictive_r2", r2, error if math.isfinite(error) else None)

    def intervals(self, *, n_fitted: int = 0) -> Intervals | None:
        """Intervals around predictions that rest on a word.

        None for classes and levels, where some durations were cut off, and for too few documents.
        """
        if not self._may_have_intervals or not self._known:
            return None
        predictions, y = (np.concatenate(values) for values in zip(*self._known, strict=True))
        return conformal_intervals(predictions, y, n_fitted=n_fitted)

    @property
    def _may_have_intervals(self) -> bool:
        return self._record.class_names is None and not self._is_cut_off


def _largest_share(y: NDArray[Any]) -> float:
    return float(np.unique(y, return_counts=True)[1].max()) / len(y)


def _borders(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Deciles, each the value of a document."""
    if not len(values):
        return np.zeros(N_BINS - 1)
    borders: NDArray[np.float64] = np.quantile(values, np.arange(1, N_BINS) / N_BINS, method="inverted_cdf")
    return borders
