"""What the documents trained on look like to their own model: what later documents are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LEFT_OUT", "N_BINS", "BinCounts", "Reference"]

N_BINS = 10
LEFT_OUT = 0.05
"""Share of responses below an interval, and of those above."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Distributions of predictions and topic proportions of known documents, their responses left out.

    Attributes
    ----------
    prediction_borders : ndarray of float64, shape (9,), or (0,) for a response of classes
        Deciles of the predictions.
    prediction_counts : ndarray of int64, shape (10,), or (C,) for a response of classes
        Documents in each bin: those from one border, included, to the next; or predicted to be of each class.
    topic_borders : ndarray of float64, shape (K, 9)
    topic_counts : ndarray of int64, shape (K, 10)
    topic_means : ndarray of float64, shape (K,)
        Mean topic proportions.
    residuals : ndarray of float64, shape (2,), or None
        Between these lie response less prediction, in the user's units, of 90% of the documents that were kept from
        training; None where there were too few, or the family says that the scatter depends on the level.
    classes : tuple of str
    of_training : bool
        The documents are those trained on; False where enough were kept from training, which are better: what a model was
        trained on it fits more closely than what is new.
    """

    prediction_borders: NDArray[np.float64]
    prediction_counts: NDArray[np.int64]
    topic_borders: NDArray[np.float64]
    topic_counts: NDArray[np.int64]
    topic_means: NDArray[np.float64]
    residuals: NDArray[np.float64] | None = None
    classes: tuple[str, ...] = ()
    of_training: bool = True

    @property
    def of_which(self) -> str:
        """Which documents these are, in words."""
        return "trained on" if self.of_training else "kept from training"

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The fields as a model stores them."""
        arrays: dict[str, ArrayLike] = {
            "prediction_counts": self.prediction_counts,
            "topic_borders": self.topic_borders,
            "topic_counts": self.topic_counts,
            "topic_means": self.topic_means,
            "of_training": [float(self.of_training)],
        }
        if len(self.prediction_borders):
            arrays["prediction_borders"] = self.prediction_borders
        if self.residuals is not None:
            arrays["residuals"] = self.residuals
        return {name: np.asarray(values, dtype=np.float64) for name, values in arrays.items()}

    def no_counts(self) -> BinCounts:
        """Counts of no document in these bins."""
        return BinCounts(np.zeros_like(self.prediction_counts), np.zeros_like(self.topic_counts))


@dataclass(slots=True, eq=False)
class BinCounts:
    """Documents in the bins of a reference.

    Attributes
    ----------
    predictions : ndarray of int64, shape (10,) or (C,)
    topics : ndarray of int64, shape (K, 10)
    """

    predictions: NDArray[np.int64]
    topics: NDArray[np.int64]

    def add(self, reference: Reference, predictions: NDArray[Any], proportions: NDArray[np.float64]) -> None:
        """Count documents; those without a prediction among the topics alone."""
        if reference.classes:
            for c, name in enumerate(reference.classes):
                self.predictions[c] += np.count_nonzero(predictions == name)
        else:
            known = predictions[~np.isnan(predictions)]
            self.predictions += _counted(reference.prediction_borders, known)
        for k, borders in enumerate(reference.topic_borders):
            self.topics[k] += _counted(borders, proportions[:, k])

    def add_json(self, data: Mapping[str, Any]) -> None:
        """Add the counts that :meth:`to_json` has given."""
        self.predictions += np.array(data["predictions"], dtype=np.int64)
        self.topics += np.array(data["topics"], dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """The counts as lists."""
        return {"predictions": self.predictions.tolist(), "topics": self.topics.tolist()}


def _counted(borders: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.bincount(np.searchsorted(borders, values, side="right"), minlength=len(borders) + 1)
