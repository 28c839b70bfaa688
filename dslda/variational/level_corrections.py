"""Corrections to the probabilities of two classes, or of ordered levels, that a family gives for a linear predictor.

A logit, and the cumulative logits of levels, have one shape. Real responses may turn faster on one side of the middle than on
the other, or between some levels than between others. With x the linear predictor less the middle of the cutpoints, and s
the sigmoid, level c has the probability

    q_c proportional to p_c exp(a_c + b_c log s(x) + d_c log s(-x)),    a and b of the lowest level and d of the highest are 0

where p_c is the family's, and x stays at 20 above that, and at -20 below. For two classes this is the beta calibration of
Kull, Silva Filho and Flach (2017). With b and d above -1 the lowest and the highest level still have all of the probability
far below and far above the middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from dslda.families.base import Array, Family
    from dslda.variational.parameters import Parameters

__all__ = [
    "FARTHEST",
    "corrected",
    "correction_features",
    "level_middle",
    "level_probabilities",
    "takes_corrections",
]


FARTHEST = 20.0
"""Linear predictor, less the middle, from which on corrections stay the same. Hardly a response lies there, and farther out
the digits of small probabilities are lost, which corrections would multiply."""


def takes_corrections(family: Family, delta: Array) -> bool:
    """True for a response with one linear predictor for several levels: two classes, or ordered levels.

    An own family of two classes need not say their probabilities, and then has none to correct.
    """
    if not (family.has_levels or family.max_classes == 2):
        return False
    return family.probabilities(np.zeros(1), np.zeros(1), delta) is not None


def level_middle(family: Family, delta: Array) -> float:
    """Halfway between the lowest and the highest cutpoint; 0 for two classes."""
    cutpoints = family.cutpoints(delta) if family.has_levels else np.zeros(1)
    return 0.5 * float(cutpoints[0] + cutpoints[-1])


def correction_features(x: Array) -> Array:
    """What the corrections are multiplied by, shape (D, 3), for linear predictors less their middle."""
    x = np.clip(x, -FARTHEST, FARTHEST)
    return np.column_stack([np.ones(len(x)), special.log_expit(x), special.log_expit(-x)])


def level_probabilities(
    omega: Array, variance: Array, family: Family, parameters: Parameters
) -> Array | None:
    """Probabilities of the classes or levels for linear predictors, with the corrections of the model, shape (D, C).

    None for a response without. `variance` is that of each linear predictor, which corrections do not know: conditional
    training has none.
    """
    probabilities = family.probabilities(omega, variance, parameters.delta)
    if probabilities is None or parameters.level_corrections is None:
        return probabilities
    features = correction_features(omega - level_middle(family, parameters.delta))
    return corrected(probabilities, features, parameters.level_corrections)


def corrected(probabilities: Array, features: Array, corrections: Array) -> Array:
    """Probabilities of the levels with their corrections, shape (D, C).

    Parameters
    ----------
    probabilities : ndarray of float64, shape (D, C)
        Those of the family.
    features : ndarray of float64, shape (D, 3)
        See `correction_features`.
    corrections : ndarray of float64, shape (C - 1, 3)
        Row c has a and b of level c + 1, and d of level c.
    """
    own = np.zeros((probabilities.shape[1], 3))
    own[1:, :2], own[:-1, 2] = corrections[:, :2], corrections[:, 2]
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities)
    # row by row, so that no other document changes the bits
    logs += np.einsum("df,cf->dc", features, own)
    logs -= logs.max(axis=1, keepdims=True)
    chances: Array = np.exp(logs)
    chances /= chances.sum(axis=1, keepdims=True)
    return chances
