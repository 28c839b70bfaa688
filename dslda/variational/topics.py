"""Topics that are distributions: q(beta_k) = Dirichlet(lambda_k), with lambda = topic_prior + expected counts.

A :class:`Parameters` keeps their means and the sums of their parameters, from which lambda follows: what users see as topics
are the means, and no second array of K x V numbers has to be stored. The compiled E-step needs
exp(E[log beta]) = exp(digamma(lambda) - digamma(sum of lambda)) in the place of beta; columns of it sum to less than 1, which
it does not mind.

A term that no document has is not in the Dirichlet at all, neither in q nor in the prior: it is unknown, as it is where
topics are points.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dslda.variational.parameters import Parameters

__all__ = ["in_e_step", "topic_divergence"]


def in_e_step(parameters: Parameters) -> Parameters:
    """The parameters with exp(E[log beta]) as topics; themselves where topics are points.

    A pass over K x V numbers: made once for all documents of an iteration, and of a model.

    Parameters
    ----------
    parameters : Parameters

    Returns
    -------
    Parameters
        Without concentration. 0 stays 0, other weights are at least 1e-100.
    """
    if parameters.concentration is None:
        return parameters
    weights = np.zeros_like(parameters.topics, order="C")
    _expected_logs(parameters, parameters.concentration, 0.0, weights)
    return replace(parameters, topics=weights, concentration=None)


def topic_divergence(parameters: Parameters, topic_prior: float) -> float:
    """Sum over topics of KL(q(beta_k) || Dirichlet(topic_prior, ..., topic_prior)), over the terms known.

    Parameters
    ----------
    parameters : Parameters
        With concentration.
    topic_prior : float
    """
    assert parameters.concentration is not None
    n_known, total = _expected_logs(
        parameters, parameters.concentration, topic_prior, np.empty((0, parameters.n_topics))
    )
    if n_known == 0:
        return 0.0
    total += float(special.gammaln(parameters.concentration).sum())
    prior = n_known * special.gammaln(topic_prior) - special.gammaln(n_known * topic_prior)
    return total + parameters.n_topics * float(prior)


def _expected_logs(
    parameters: Parameters,
    concentration: NDArray[np.float64],
    topic_prior: float,
    weights: NDArray[np.float64],
) -> tuple[int, float]:
    # here, so that those whose topics are points do not wait for it to be compiled
    from dslda.variational.kernels.expected_logs import expected_logs

    topics = np.require(parameters.topics, dtype=np.float64, requirements=["C", "A"])
    # of a topic without any term, which only a corpus without any term has
    known = np.where(concentration > 0.0, concentration, 1.0)
    n_known, total = expected_logs(topics, concentration, special.digamma(known), topic_prior, weights)
    return int(n_known), float(total)
