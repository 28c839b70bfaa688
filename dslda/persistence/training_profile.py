"""Profile of the training documents by their own model, with which later documents are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LEFT_OUT", "N_BINS", "BinCounts", "Reference"]

N_BINS = 10
LEFT_OUT = 0.05
"""Share of responses below an interval, and share above."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Distributions of predictions and topic proportions of known documents, made without their responses.

    Attributes
    ----------
    prediction_borders : ndarray of float64, shape (9,), or (0,) for a response of classes
        Deciles of the predictions.
    prediction_counts : ndarray of int64, shape (10,), or (C,) for a response of classes
        Documents in each bin, from one border, included, to the next; or documents predicted to be of each class.
    topic_borders : ndarray of float64, shape (K, 9)
    topic_counts : ndarray of int64, shape (K, 10)
    topic_means : ndarray of float64, shape (K,)
        Mean topic proportions.
    residuals : ndarray of float64, shape (2,), or None
        Bounds of response minus prediction, in the user's units, for 90% of the documents that were kept from training. None
        where there were too few, or the scatter of the family depends on the level.
    classes : tuple of str
    of_training : bool
        The documents are those trained on; False where enough were kept from training. Those are better: a model fits its
        training documents more closely than new ones.
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
        """The documents, in words."""
        return "trained on" if self.of_training else "kept from training"

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The arrays that a model stores."""
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
        """Counts of zero documents in these bins."""
        return BinCounts(np.zeros_like(self.prediction_counts), np.zeros_like(self.topic_counts))


@dataclass(slots=True, eq=False)
class BinCounts:
    """Numbers of documents in the bins of a reference.

    Attributes
    ----------
    predictions : ndarray of int64, shape (10,) or (C,)
    topics : ndarray of int64, shape (K, 10)
    """

    predictions: NDArray[np.int64]
    topics: NDArray[np.int64]

    def add(self, reference: Reference, predictions: NDArray[Any], proportions: NDArray[np.float64]) -> None:
        """Count documents; those without a prediction only among the topics."""
        if reference.classes:
            for c, name in enumerate(reference.classes):
                self.predictions[c] += np.count_nonzero(predictions == name)
        else:
            finite = predictions[~np.isnan(predictions)]
            self.predictions += _counted(reference.prediction_borders, finite)
        for k, borders in enumerate(reference.topic_borders):
            self.topics[k] += _counted(borders, proportions[:, k])

    def add_json(self, data: Mapping[str, Any]) -> None:
        """Add counts from :meth:`to_json`."""
        self.predictions += np.array(data["predictions"], dtype=np.int64)
        self.topics += np.array(data["topics"], dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """The counts as lists."""
        return {"predictions": self.predictions.tolist(), "topics": self.topics.tolist()}


def _counted(borders: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.bincount(np.searchsorted(borders, values, side="right"), minlength=len(borders) + 1)
