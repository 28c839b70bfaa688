"""Topics that are distributions: q(beta_k) = Dirichlet(lambda_k), with lambda = topic_prior + expected counts.

:class:`Parameters` hold their means and the sums of their parameters, from which lambda follows. Users see the means as
topics, and there is no second array of K x V numbers to store. Instead of beta, the compiled E-step takes
exp(E[log beta]) = exp(digamma(lambda) - digamma(sum of lambda)); its columns sum to less than 1, which does no harm.

A term in no document is not part of the Dirichlet, neither in q nor in the prior. It is unknown, as with topics that are
points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dslda.families.base import Array
from dslda.variational.parameters import Parameters
from dslda.variational.topic_seeds import TopicSeeds

__all__ = [
    "NEAR_EQUAL",
    "are_near_equal",
    "in_e_step",
    "near_equal_topics",
    "partners",
    "topic_divergence",
]

NEAR_EQUAL = 0.95
"""Affinity above which two topics are nearly the same. (Movie reviews: at most 0.85 for the topics of a fit, 0.999 for those
that never parted.)"""
_EMPTY = 0.01
"""Share of an even prevalence below which a topic is empty: variational topics that documents do not need are alike."""
_BLOCK_NUMBERS = 1 << 22


def in_e_step(parameters: Parameters) -> Parameters:
    """Parameters with exp(E[log beta]) as topics, and without concentration; unchanged if topics are points.

    This takes a pass over K x V numbers, once per iteration or model. 0 stays 0; other weights are at least 1e-100.
    """
    if parameters.concentration is None:
        return parameters
    weights = np.zeros_like(parameters.topics, order="C")
    _expected_logs(parameters, parameters.concentration, 0.0, weights)
    return replace(parameters, topics=weights, concentration=None)


def topic_divergence(
    parameters: Parameters,
    topic_prior: float,
    seeds: TopicSeeds | None = None,
    pseudo_counts: Array | None = None,
) -> float:
    """Sum over topics of KL(q(beta_k) || Dirichlet(topic_prior, ..., topic_prior)), over known terms.

    With `seeds` their `pseudo_counts` are added to the parameters of the prior.
    """
    assert parameters.concentration is not None
    n_known, total = _expected_logs(
        parameters, parameters.concentration, topic_prior, np.empty((0, parameters.n_topics))
    )
    if n_known == 0:
        return 0.0
    total += float(special.gammaln(parameters.concentration).sum())
    prior = n_known * special.gammaln(topic_prior) - special.gammaln(n_known * topic_prior)
    total += parameters.n_topics * float(prior)
    if seeds is not None and pseudo_counts is not None:
        total += seeds.divergence(
            parameters.topics,
            parameters.concentration,
            pseudo_counts,
            topic_prior=topic_prior,
            n_known=n_known,
        )
    return total


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


def _affinities(topics: Array, others: Array) -> Array:
    """Hellinger affinity of each topic with each of the others, the Bhattacharyya coefficient sum of sqrt(beta_kv beta'_lv).

    Both have shape (V, K), the affinities (K, K): 1 if equal, 0 if disjoint.
    """
    total = np.zeros((topics.shape[1], others.shape[1]))
    for roots, other_roots in zip(_roots(topics), _roots(others), strict=True):
        total += roots.T @ other_roots
    return total


def partners(topics: Array, others: Array) -> NDArray[np.intp]:
    """Which of the others goes with each topic: each once, so that the sum of the affinities is as large as possible."""
    from scipy.optimize import linear_sum_assignment  # takes a tenth of a second to import

    places: NDArray[np.intp] = linear_sum_assignment(_affinities(topics, others), maximize=True)[1]
    return places


def near_equal_topics(topics: Array, prevalence: Array | None) -> list[int]:
    """Numbers of the topics that are nearly the same as another one; those that hardly any word belongs to are left out."""
    n_topics = topics.shape[1]
    used = np.arange(n_topics) if prevalence is None else np.flatnonzero(prevalence > _EMPTY / n_topics)
    own = topics[:, used]
    of_pairs = _affinities(own, own)
    np.fill_diagonal(of_pairs, 0.0)
    twins: list[int] = used[(of_pairs > NEAR_EQUAL).any(axis=1)].tolist()
    return twins


def are_near_equal(topics: Array) -> bool:
    """True if the affinity of two topics is above `NEAR_EQUAL` on average; a pass over K x V numbers."""
    n_topics = topics.shape[1]
    all_pairs = sum(float(np.square(roots.sum(axis=1)).sum()) for roots in _roots(topics))
    return bool(all_pairs - n_topics > NEAR_EQUAL * n_topics * (n_topics - 1))


def _roots(topics: Array) -> Iterator[Array]:
    """The square roots of some rows at a time, since a copy of the topics may take gigabytes."""
    step = max(_BLOCK_NUMBERS // topics.shape[1], 1)
    for start in range(0, len(topics), step):
        yield np.sqrt(topics[start : start + step])
