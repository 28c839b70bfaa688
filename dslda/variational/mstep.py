"""The M-step: new parameters from the sums of the E-step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dslda.families.base import Family
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics

__all__ = ["m_step", "objective", "topic_log_prior"]

# eigenvalues of the information below this fraction of the largest are directions the data say nothing about
_RANK_TOLERANCE = 1e-12


# what falls below the smallest double is 0, whatever the caller has asked numpy to raise
@np.errstate(under="ignore")
def m_step(
    parameters: Parameters, statistics: SufficientStatistics, *, family: Family, spec: FitSpec
) -> Parameters:
    """Maximise the expected complete log-likelihood.

    beta: posterior mode under Dirichlet(1 + topic_prior), the row-normalised expected counts (paper, eq. 13, with the
    prior's pseudo-counts). eta: one scoring step H^-1 g, which for the Gaussian is the paper's closed form
    (E[X'X])^-1 E[X]'y (eq. 17). delta: the family's update at the new eta (eq. 18), not below its floor.

    Parameters
    ----------
    parameters : Parameters
        Those of the E-step.
    statistics : SufficientStatistics
        Of all documents.
    family : Family
    spec : FitSpec
    """
    topics = _topics(statistics.topic_word, spec.topic_prior)
    eta, delta = parameters.eta, parameters.delta
    if statistics.n_labelled > 0:
        step = _solve(statistics.information, statistics.score)
        eta = eta + step
        delta = family.update_dispersion(
            statistics.dispersion,
            statistics.n_labelled,
            delta=delta,
            score=statistics.score,
            information=statistics.information,
            step=step,
        )
        # responses are standardised: their variance is 1
        delta = max(delta, spec.delta_floor)
    return Parameters(topics, parameters.alpha, eta, delta)


def objective(statistics: SufficientStatistics, parameters: Parameters, *, spec: FitSpec) -> float:
    """What EM ascends: the documents' ELBO plus the log density of the topics under their prior, up to a constant."""
    return statistics.elbo + topic_log_prior(parameters.topics, spec.topic_prior)


def topic_log_prior(topics: NDArray[np.float64], topic_prior: float) -> float:
    """topic_prior * sum log beta over the terms the model knows; 0 without a prior."""
    if topic_prior == 0.0:
        return 0.0
    known = topics.max(axis=1) > 0.0
    return topic_prior * float(np.log(topics[known]).sum())


def _topics(topic_word: NDArray[np.float64], topic_prior: float) -> NDArray[np.float64]:
    """Normalised topics, shape (V, K). A term that no document has stays without mass, and so unknown, everywhere."""
    seen = topic_word.sum(axis=1) > 0.0
    topics = topic_word + np.where(seen, topic_prior, 0.0)[:, np.newaxis]
    totals = topics.sum(axis=0)
    # without a prior a topic may die: uniform over the terms seen keeps it harmless and finite
    dead = ~(totals > 0.0)
    if dead.any():
        topics[:, dead] = np.where(seen, 1.0, 0.0)[:, np.newaxis]
        totals = topics.sum(axis=0)
    topics /= np.where(totals > 0.0, totals, 1.0)
    return topics


def _solve(information: NDArray[np.float64], score: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shortest solution of information * step = score."""
    values, vectors = linalg.eigh(information)
    keep = values > _RANK_TOLERANCE * max(float(values[-1]), 0.0)
    vectors = vectors[:, keep]
    step: NDArray[np.float64] = vectors @ ((vectors.T @ score) / values[keep])
    return step
