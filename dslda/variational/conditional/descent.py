"""Steps of topics and coefficients down the conditional objective.

    F = - (1 / D) sum_d log p(y_d | omega_d) / dispersion - (bound of the words + topic_prior sum log beta) / (all mass)

with gamma, and so zbar and omega, those of inference from words alone; seed words add their pseudo-counts to topic_prior.
docs/model.md has the derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dslda.families.base import Array, Family
from dslda.variational.conditional.gradient import ConditionalStatistics
from dslda.variational.kernels.layout import read_only
from dslda.variational.mstep import coefficient_step
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics

__all__ = ["CoefficientSums", "TopicDescent"]

FIRST_DECAY, SECOND_DECAY = 0.9, 0.99
SMOOTHING = 5.0
"""Multiple of the mean root of the second moments that is added to each of them. With a large one, steps are nearly those of
gradient descent, and rare terms move little: Adam's own equal steps overfit them (docs/model.md)."""
LOWEST = 1e-87
"""Floor of beta, so that every weight and the products of two are normal numbers."""


@dataclass(slots=True, eq=False)
class TopicDescent:
    """Adam on log beta, with a floor under its second moments (Kingma and Ba 2015).

    Attributes
    ----------
    first, second : ndarray of float64, shape (V, K)
        Running means of the gradient and of its squares.
    n_steps : int
    """

    first: Array
    second: Array
    n_steps: int = 0

    @classmethod
    def start(cls, parameters: Parameters) -> TopicDescent:
        return cls(np.zeros_like(parameters.topics), np.zeros_like(parameters.topics))

    def step(
        self, topics: Array, gradient: Array, step_size: float, *, scale: float = 1.0, prior: float = 0.0
    ) -> Array:
        """New topics. The derivative of the objective by log beta, before topics are normalised, is `scale` times `gradient`,
        less `prior` for every known term.

        Terms that no document has keep their zeros.
        """
        from dslda.variational.kernels.topic_moves import add_moments, move

        self.n_steps += 1
        topics = read_only(topics)
        roots, n_known = add_moments(
            topics, read_only(gradient), scale, prior, self.first, self.second, FIRST_DECAY, SECOND_DECAY
        )
        # unknown terms have had no gradient
        floor = SMOOTHING * roots / max(n_known * topics.shape[1], 1)
        if not math.isfinite(floor):
            # whoever takes the step refuses these
            return np.full_like(topics, np.nan)
        if floor == 0.0:
            return topics
        # both moments start from 0
        size = step_size * math.sqrt(1.0 - SECOND_DECAY**self.n_steps) / (1.0 - FIRST_DECAY**self.n_steps)
        new = np.empty_like(topics)
        move(topics, read_only(self.first), read_only(self.second), size, floor, LOWEST, new)
        return new


@dataclass(slots=True, eq=False)
class CoefficientSums:
    """The quadratic model of the likelihood in the coefficients, from the latest visit to each slice of the documents.

    A slice contributes its information H and H coefficients + score at the coefficients of that visit. For a quadratic
    likelihood these are its normal equations; for others one scoring step from each slice's own point.

    Attributes
    ----------
    information : ndarray of float64, shape (n_slices, K + P, K + P), or (n_slices, C, K + P, K + P)
    target : ndarray of float64, shape (n_slices, K + P), or (n_slices, K + P, C)
    """

    information: Array
    target: Array

    @classmethod
    def of_all(
        cls, statistics: ConditionalStatistics, parameters: Parameters, n_slices: int
    ) -> CoefficientSums:
        """All slices alike, from the sums over all documents."""
        information, target = _normal_equations(statistics, parameters)
        return cls(np.stack([information / n_slices] * n_slices), np.stack([target / n_slices] * n_slices))

    def copy(self) -> CoefficientSums:
        return CoefficientSums(self.information.copy(), self.target.copy())

    def visit(self, index: int, statistics: ConditionalStatistics, parameters: Parameters) -> None:
        """Replace what a slice contributes."""
        self.information[index], self.target[index] = _normal_equations(statistics, parameters)

    def solve(self, parameters: Parameters, *, family: Family, spec: FitSpec) -> Parameters:
        """Parameters with the coefficients of a ridge regression, or of one damped scoring step from where they are."""
        coefficients = np.concatenate([parameters.eta, parameters.zeta])
        total = SufficientStatistics.zeros(
            0, parameters.n_topics, n_covariates=len(parameters.zeta), n_classes=parameters.n_classes
        )
        total.information = self.information.sum(axis=0)
        total.score = self.target.sum(axis=0) - _applied(total.information, coefficients)
        step, _ = coefficient_step(parameters, total, family=family, spec=spec)
        n_topics = parameters.n_topics
        return replace(
            parameters, eta=parameters.eta + step[:n_topics], zeta=parameters.zeta + step[n_topics:]
        )


def _normal_equations(statistics: ConditionalStatistics, parameters: Parameters) -> tuple[Array, Array]:
    coefficients = np.concatenate([parameters.eta, parameters.zeta])
    return statistics.information, _applied(statistics.information, coefficients) + statistics.score


def _applied(information: Array, coefficients: Array) -> Array:
    """The information, of classes one for each, times the coefficients."""
    if coefficients.ndim == 1:
        return information @ coefficients
    applied: Array = np.einsum("cij,jc->ic", information, coefficients)
    return applied
