"""The corrections to the probabilities of levels that suit the inner part; see `dslda.variational.level_corrections`."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dslda.engine.conditional.selection import ALL, Selection
from dslda.engine.conditional.work import on_predictors
from dslda.engine.data.training_view import TrainingBlock
from dslda.families.base import Array, Family
from dslda.variational.conditional.loss import Responses
from dslda.variational.level_corrections import FARTHEST, corrected, correction_features, level_middle
from dslda.variational.parameter_parts import ParameterParts
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.sums import ARRAY, Sums

__all__ = ["LevelPass", "LevelSums", "level_corrections", "level_shift"]

logger = logging.getLogger("dslda.engine")

STEP = 0.05
GRID: Array = np.arange(-round(FARTHEST / STEP), round(FARTHEST / STEP) + 1, dtype=np.float64) * STEP
"""Linear predictors, less the middle of the cutpoints, around which responses are counted. Corrections depend on these
alone, so one pass over the documents is enough to find them."""

LEAST_GAIN = 1.0
"""Log-likelihood of the inner part, over its dispersion, that each correction must gain."""

PENALTY = 1.0
"""Precision of the prior of the corrections, which keeps them small where hardly any document tells of them."""

FARTHEST_SHIFT = 1.0
"""Longest shift of the linear predictors; what lies farther off is no matter of spread."""

NOISE = 1e-7
"""Fall of the expected level from a point to the next that rounding may make."""

LOWEST = -0.9
"""Lowest slope of a correction; at -1 a level would keep its probability far away from the documents that have it."""


@dataclass(slots=True, eq=False)
class LevelSums(Sums):
    """Weighted counts of the levels of some documents around each point of `GRID`, shape (n_points, C)."""

    counts: Array = field(default_factory=lambda: np.zeros((0, 0)), metadata=ARRAY)


@dataclass(frozen=True, slots=True)
class LevelPass:
    """See `LevelSums`. A document counts for the two points around its linear predictor, the nearer the more."""

    selection: Selection = ALL

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> LevelSums:
        def counted(
            responses: Responses, omega: Array, known: NDArray[np.bool_], own: Parameters
        ) -> LevelSums:
            x = omega - level_middle(family, own.delta)
            rows = responses.labelled & known & np.isfinite(x)
            place = (np.clip(x[rows], GRID[0], GRID[-1]) - GRID[0]) / STEP
            below = np.minimum(place.astype(np.int64), len(GRID) - 2)
            mass = responses.weight[rows, np.newaxis] * _by_level(responses, family, own.delta)[rows]
            share = (place - below)[:, np.newaxis]
            counts = np.zeros((len(GRID), mass.shape[1]))
            np.add.at(counts, below, mass * (1.0 - share))
            np.add.at(counts, below + 1, mass * share)
            return LevelSums(counts=counts)

        return on_predictors(self.selection.of(block), parameters, spec, counted)


def _by_level(responses: Responses, family: Family, delta: Array) -> Array:
    """How often each document has each level, shape (D, C): once, or its trials without and with success."""
    if family.has_levels:
        return np.eye(len(family.cutpoints(delta)) + 1)[responses.codes]
    return np.column_stack([responses.aux - responses.y, responses.y])


def _of_family(x: Array, family: Family, delta: Array) -> Array:
    """The family's probabilities of the levels for linear predictors less their middle, shape (D, C)."""
    probabilities = family.probabilities(x + level_middle(family, delta), np.zeros(len(x)), delta)
    assert probabilities is not None
    return probabilities


def level_shift(counts: Array, family: Family, delta: Array, corrections: Array | None) -> float:
    """What is added to the linear predictors, so that documents have their mean level; `counts` are those of all documents.

    Topics that were trained on since the inner part was predicted have another spread, and with it another mean response.
    """
    from scipy.optimize import brentq

    seen = np.flatnonzero(counts.sum(axis=1))
    if not len(seen):
        return 0.0
    levels, totals = np.arange(counts.shape[1], dtype=np.float64), counts[seen].sum(axis=1)
    observed = float((counts[seen] @ levels).sum())

    def excess(shift: float) -> float:
        x = GRID[seen] + shift
        chances = _of_family(x, family, delta)
        if corrections is not None:
            chances = corrected(chances, correction_features(x), corrections)
        return float(totals @ (chances @ levels)) - observed

    if not excess(-FARTHEST_SHIFT) < 0.0 < excess(FARTHEST_SHIFT):
        return 0.0
    return float(brentq(excess, -FARTHEST_SHIFT, FARTHEST_SHIFT, xtol=1e-12))


def level_corrections(counts: Array, family: Family, delta: Array, *, dispersion: float) -> Array | None:
    """The corrections that suit the counts best, shape (C - 1, 3).

    None where they gain no more than they may by chance, and where the expected level would fall as the predictor rises.

    Parameters
    ----------
    counts : ndarray of float64, shape (n_points, C)
        See `LevelSums`.
    delta : ndarray of float64
        The family's own parameters, as in the pass that counted.
    dispersion : float
        Pearson's dispersion of the responses.
    """
    from scipy.optimize import minimize

    seen = np.flatnonzero(counts.sum(axis=1))
    if not len(seen):
        return None
    family_has = _of_family(GRID, family, delta)
    everywhere = correction_features(GRID)
    rows = slice(seen[0], seen[-1] + 1)
    probabilities, features = family_has[rows], everywhere[rows]
    observed = counts[rows] / max(dispersion, 1.0)
    totals = observed.sum(axis=1, keepdims=True)

    def log_likelihood(chances: Array) -> float:
        return float((observed * np.log(np.maximum(chances, 1e-300))).sum())

    def objective(flat: Array) -> tuple[float, Array]:
        chances = corrected(probabilities, features, flat.reshape(-1, 3))
        pulls = (observed - totals * chances).T @ features
        slopes = np.column_stack([pulls[1:, :2], pulls[:-1, 2]]).ravel()
        return 0.5 * PENALTY * float(flat @ flat) - log_likelihood(chances), PENALTY * flat - slopes

    n_steps = counts.shape[1] - 1
    found = minimize(
        objective,
        np.zeros(3 * n_steps),
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None), (LOWEST, None), (LOWEST, None)] * n_steps,
        options={"maxiter": 500},
    )
    corrections: Array = found.x.reshape(-1, 3)
    chances = corrected(probabilities, features, corrections)
    gain = log_likelihood(chances) - log_likelihood(probabilities)
    # also where no document of the inner part lies: others may
    expected = corrected(family_has, everywhere, corrections) @ np.arange(n_steps + 1, dtype=np.float64)
    if not gain >= LEAST_GAIN * corrections.size or np.any(np.diff(expected) < -NOISE):
        return None
    logger.info("probabilities are corrected by the inner part, whose log-likelihood gains %.3g", gain)
    return corrections
