"""Topics that are distributions: q(beta_k) = Dirichlet(lambda_k), with lambda = topic_prior + expected counts.

:class:`Parameters` hold their means and the sums of their parameters, from which lambda follows. Users see the means as
topics, and there is no second array of K x V numbers to store. Instead of beta, the compiled E-step takes
exp(E[log beta]) = exp(digamma(lambda) - digamma(sum of lambda)); its columns sum to less than 1, which does no harm.

A term in no document is not part of the Dirichlet, neither in q nor in the prior. It is unknown, as with topics that are
points.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import special

from dslda.families.base import Array
from dslda.variational.parameters import Parameters

__all__ = ["in_e_step", "topic_divergence"]


def in_e_step(parameters: Parameters) -> Parameters:
    """Parameters with exp(E[log beta]) as topics, and without concentration; unchanged if topics are points.

    This takes a pass over K x V numbers, once per iteration or model. 0 stays 0; other weights are at least 1e-100.
    """
    if parameters.concentration is None:
        return parameters
    weights = np.zeros_like(parameters.topics, order="C")
    _expected_logs(parameters, parameters.concentration, 0.0, weights)
    return replace(parameters, topics=weights, concentration=None)


def topic_divergence(parameters: Parameters, topic_prior: float) -> float:
    """Sum over topics of KL(q(beta_k) || Dirichlet(topic_prior, ..., topic_prior)), over known terms."""
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
    concentration: Array,
    topic_prior: float,
    weights: Array,
) -> tuple[int, float]:
    # imported here: importing compiles it, and topics that are points do not need it
    from dslda.variational.kernels.expected_logs import expected_logs

    topics = np.require(parameters.topics, dtype=np.float64, requirements=["C", "A"])
    # 0 if the corpus has no term at all
    known = np.where(concentration > 0.0, concentration, 1.0)
    n_known, total = expected_logs(topics, concentration, special.digamma(known), topic_prior, weights)
    return int(n_known), float(total)
