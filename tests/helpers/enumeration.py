"""Exact quantities of small documents, by summing over every assignment of topics to tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dslda.families.base import Family
from dslda.variational.parameters import Parameters
from tests.helpers.problems import Documents

__all__ = [
    "log_evidence",
    "log_evidence_of_class",
    "log_evidence_of_corpus",
    "moments_of_assignments",
    "tokens_of",
]


def tokens_of(rows: NDArray, counts: NDArray[np.integer]) -> NDArray:
    """Values of a document's entries (term, phi), repeated for every token."""
    return np.repeat(rows, counts, axis=0)


def every_assignment(n_tokens: int, n_topics: int) -> NDArray[np.int64]:
    """All K^N vectors z, shape (K^N, N)."""
    return np.array(list(itertools.product(range(n_topics), repeat=n_tokens)), dtype=np.int64)


def mean_assignments(assignments: NDArray[np.int64], n_topics: int) -> NDArray[np.float64]:
    """zbar of every assignment, shape (K^N, K)."""
    return np.eye(n_topics)[assignments].mean(axis=1)


def moments_of_assignments(
    phi: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Every zbar, shape (K^N, K), its probability under q(z) = prod_n phi_n, and E[zbar zbar'].

    E[f(zbar)] is ``probability @ f(zbar)`` for any f.
    """
    n_tokens, n_topics = phi.shape
    assignments = every_assignment(n_tokens, n_topics)
    probability = phi[np.arange(n_tokens), assignments].prod(axis=1)
    zbar = mean_assignments(assignments, n_topics)
    return zbar, probability, np.einsum("a,ai,aj->ij", probability, zbar, zbar)


def log_evidence(
    tokens: NDArray[np.integer], y: float, parameters: Parameters, family: Family, *, rho: float = 1.0
) -> float:
    """log p(w, y): theta integrated out in closed form (Dirichlet-multinomial), z summed over.

    A missing y (NaN) gives log p(w). `rho` weighs log p(y | z) as in the E-step.
    """

    def of_response(zbar: NDArray[np.float64]) -> NDArray[np.float64]:
        omega = zbar @ parameters.eta
        return rho * np.array([family.log_likelihood(y, o, parameters.delta, 1.0) for o in omega])

    return _log_evidence(tokens, parameters, None if np.isnan(y) else of_response)


def log_evidence_of_class(
    tokens: NDArray[np.integer],
    y: float,
    parameters: Parameters,
    *,
    x: NDArray[np.float64] | None = None,
    rho: float = 1.0,
) -> float:
    """log p(w, y) for a response of classes and a document with covariates x; a missing y (NaN) gives log p(w)."""

    def of_response(zbar: NDArray[np.float64]) -> NDArray[np.float64]:
        omega = zbar @ parameters.eta + (0.0 if x is None else x @ parameters.zeta)
        return rho * special.log_softmax(omega, axis=1)[:, int(y)]

    return _log_evidence(tokens, parameters, None if np.isnan(y) else of_response)


def log_evidence_of_corpus(
    documents: Documents, parameters: Parameters, family: Family, *, topic_prior: float
) -> float:
    """log p(all words, all y) with topics drawn from Dirichlet(topic_prior) over the terms that occur.

    Topics and topic proportions are integrated out in closed form (a Dirichlet-multinomial each), the assignments of all
    tokens of all documents are summed over.
    """
    n_topics = parameters.n_topics
    n_terms = len(np.unique(documents.terms))
    lengths = [int(documents.document(d)[1].sum()) for d in range(len(documents))]
    ends = np.cumsum(lengths)
    assignments = every_assignment(int(ends[-1]), n_topics)
    one_hot = np.eye(n_topics)[assignments]
    tokens = tokens_of(documents.terms, documents.counts)
    log_p = np.zeros(len(assignments))
    of_terms = np.stack([one_hot[:, tokens == t].sum(axis=1) for t in np.unique(tokens)], axis=1)
    log_p += (special.gammaln(topic_prior + of_terms) - special.gammaln(topic_prior)).sum(axis=(1, 2))
    total = n_terms * topic_prior
    log_p += (special.gammaln(total) - special.gammaln(total + of_terms.sum(axis=1))).sum(axis=1)
    alpha = parameters.alpha
    for d, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        counts = one_hot[:, end - length : end].sum(axis=1)
        log_p += (special.gammaln(alpha + counts) - special.gammaln(alpha)).sum(axis=1)
        log_p += special.gammaln(alpha.sum()) - special.gammaln(alpha.sum() + length)
        if not np.isnan(documents.y[d]):
            omega = counts @ parameters.eta / length
            y = documents.y[d]
            log_p += [family.log_likelihood(y, o, parameters.delta, 1.0) for o in omega]
    return float(special.logsumexp(log_p))


def _log_evidence(
    tokens: NDArray[np.integer],
    parameters: Parameters,
    of_response: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None,
) -> float:
    alpha, n_topics = parameters.alpha, parameters.n_topics
    assignments = every_assignment(len(tokens), n_topics)
    zbar = mean_assignments(assignments, n_topics)
    gamma = alpha + len(tokens) * zbar
    log_p = special.gammaln(gamma).sum(axis=1) - special.gammaln(gamma.sum(axis=1))
    log_p -= special.gammaln(alpha).sum() - special.gammaln(alpha.sum())
    with np.errstate(divide="ignore"):
        log_p += np.log(parameters.topics[tokens, assignments]).sum(axis=1)
    if of_response is not None:
        log_p += of_response(zbar)
    return float(special.logsumexp(log_p))
