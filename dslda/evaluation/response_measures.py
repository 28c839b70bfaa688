"""Measures of held-out predictions, and the loss of each document, by kind of response.

A prediction is an array of expected responses, shape (D,), or of probabilities of levels or classes, shape (D, C).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dslda.evaluation.metrics import correlation, predictive_r2

__all__ = ["Kind", "calibration_error", "document_losses", "measures", "poisson_deviances"]

Kind: TypeAlias = Literal["real", "count", "ordinal", "binary", "classes"]
"""Kinds of response, each with its measures."""

SMALLEST_PROBABILITY = 1e-15
SMALLEST_MEAN = 1e-6
N_BINS = 10


def document_losses(
    kind: Kind, y: NDArray[np.float64], predicted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The loss of each document, by which methods are compared.

    For a real response the squared error over the variance of all of them, so that the mean is 1 - R2; for a count the
    Poisson deviance over that of the mean count, so that the mean is 1 - D2; else the negative logarithm of the probability
    of the level or class.
    """
    if kind == "real":
        errors: NDArray[np.float64] = (y - predicted) ** 2 / y.var()
        return errors
    if kind == "count":
        of_mean = poisson_deviances(y, np.full_like(y, y.mean())).mean()
        deviances: NDArray[np.float64] = poisson_deviances(y, predicted) / of_mean
        return deviances
    chosen = predicted[np.arange(len(y)), y.astype(np.intp)]
    losses: NDArray[np.float64] = -np.log(np.maximum(chosen, SMALLEST_PROBABILITY))
    return losses


def poisson_deviances(y: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Deviance of each count from its mean; a mean below 1e-6 counts as 1e-6."""
    from scipy.special import xlogy

    mean = np.maximum(mean, SMALLEST_MEAN)
    deviances: NDArray[np.float64] = 2.0 * (xlogy(y, y / mean) - y + mean)
    return deviances


def measures(
    kind: Kind, levels: NDArray[Any] | None, y: NDArray[np.float64], predicted: NDArray[np.float64]
) -> dict[str, float]:
    """All measures that the kind of response has, by name.

    "r2" (that of expected levels, where `levels` are numbers), "correlation" (of real responses), "d2" (Poisson deviance
    explained), "accuracy", "auc", "log_loss", "calibration_error".
    """
    from sklearn.metrics import roc_auc_score

    if kind == "real":
        return {"r2": predictive_r2(y, predicted), "correlation": correlation(y, predicted)}
    losses = document_losses(kind, y, predicted)
    if kind == "count":
        return {"r2": predictive_r2(y, predicted), "d2": 1.0 - float(losses.mean())}
    right = predicted.argmax(axis=1) == y
    found = {"accuracy": float(right.mean()), "log_loss": float(losses.mean())}
    if kind == "binary":
        return found | {
            "auc": float(roc_auc_score(y, predicted[:, 1])),
            "calibration_error": calibration_error(predicted[:, 1], y),
        }
    if kind == "ordinal" and levels is not None:
        found["r2"] = predictive_r2(levels[y.astype(np.intp)], predicted @ levels)
    return found | {"calibration_error": calibration_error(predicted.max(axis=1), right)}


def calibration_error(probability: NDArray[np.float64], happened: NDArray[Any]) -> float:
    """Expected calibration error, over ten bins of as many documents each.

    The mean over documents of the distance, in their bin, between the mean probability and the share of documents for
    which the event happened. For several classes the event is that the most probable one is right.
    """
    order = np.argsort(probability, kind="stable")
    error = 0.0
    for chosen in np.array_split(order, min(N_BINS, len(order))):
        error += len(chosen) * abs(probability[chosen].mean() - happened[chosen].mean())
    return float(error / len(order))
