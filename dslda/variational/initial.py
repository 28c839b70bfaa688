"""Starting values of EM."""

from __future__ import annotations

import numpy as np

from dslda.families.base import Family, ResponseMoments
from dslda.variational.parameters import FitSpec, Parameters

__all__ = ["initial_parameters"]

# relative size of the random perturbation of the uniform topics
_PERTURBATION = 0.01
# Dirichlet parameter of a term in every topic, for topics that are distributions: so far above 1 that exp(E[log beta]) has
# the perturbation of the means. (With counts of 0.1, digamma would turn 1% into 10%.)
_CERTAINTY = 100.0


def initial_parameters(
    n_terms: int, *, spec: FitSpec, family: Family, moments: ResponseMoments, n_covariates: int = 0
) -> Parameters:
    """Starting values of Blei and McAuliffe (2010, section 3.2), a pure function of the arguments.

    Topics are uniform with a perturbation of 1%. While they are nearly equal, the response decides how documents first
    split (movie reviews, K = 10, five folds: predictive R2 0.40, against 0.32 with a perturbation of 100%). eta is a grid
    around the family's starting point, [-1, 1] for a standardised response; delta is the family's. Topics that are
    distributions have these means and hardly any variance. `moments` are those of the responses on the scale of the fit.
    """
    rng = np.random.default_rng([spec.seed, n_terms, spec.n_topics])
    # in place: such a matrix may take a gigabyte
    topics = rng.random((n_terms, spec.n_topics))
    topics *= _PERTURBATION
    topics += 1.0
    topics /= topics.sum(axis=0)
    alpha = np.full(
        spec.n_topics,
        spec.doc_topic_prior if isinstance(spec.doc_topic_prior, (int, float)) else 1.0 / spec.n_topics,
    )
    concentration = None
    if spec.topic_estimation == "variational":
        concentration = np.full(spec.n_topics, _CERTAINTY * n_terms)
    eta, delta = family.initial_coefficients(spec.n_topics, moments)
    return Parameters(topics, alpha, eta, delta, np.zeros((n_covariates, *eta.shape[1:])), concentration)
