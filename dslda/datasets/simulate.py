"""Corpora drawn from the supervised topic model itself, where the truth is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.block import DocumentBlock
from dslda.exceptions import InputError
from dslda.wording import short_repr

__all__ = ["SimulatedCorpus", "simulate_corpus"]


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedCorpus:
    """Simulated documents and the truth behind them.

    Attributes
    ----------
    block : DocumentBlock
        The documents, with the response "y", NaN where it was hidden.
    y : ndarray of float64, shape (n_documents,)
        The complete responses, hidden ones included.
    topics : ndarray of float64, shape (n_topics, n_terms)
        Word probabilities of each topic (the paper's beta).
    coefficients : ndarray of float64, shape (n_topics,)
        The paper's eta.
    topic_proportions : ndarray of float64, shape (n_documents, n_topics)
        Each document's theta.
    topic_shares : ndarray of float64, shape (n_documents, n_topics)
        Each document's zbar: the shares of its tokens that came from each topic.
    """

    block: DocumentBlock
    y: NDArray[np.float64]
    topics: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    topic_proportions: NDArray[np.float64]
    topic_shares: NDArray[np.float64]

    __repr__ = short_repr


def simulate_corpus(
    n_documents: int,
    n_topics: int,
    n_terms: int,
    *,
    mean_tokens: float = 100.0,
    eta: ArrayLike | None = None,
    delta: float = 0.25,
    alpha: float | None = None,
    topic_concentration: float = 0.05,
    seed: int = 0,
    missing: float = 0.0,
    sample_response: Callable[[NDArray[np.float64], np.random.Generator], NDArray[np.float64]] | None = None,
) -> SimulatedCorpus:
    """Draw a labelled corpus from the generative process of supervised LDA.

    Topics from a symmetric Dirichlet, and for each document: its length from a Poisson (at least one
    token), theta from a symmetric Dirichlet, each token's topic from theta and its word from the topic, and
    the response given ``omega = eta' zbar``: normal with mean omega and variance `delta`, unless
    `sample_response` says otherwise.

    Parameters
    ----------
    n_documents, n_topics, n_terms : int
        Sizes, each at least 1.
    mean_tokens : float, default 100
        Mean length of a document in tokens.
    eta : array-like of float, shape (n_topics,), optional
        Coefficients; by default evenly spaced from -2 to 2, which with the other defaults leaves the
        response well predictable.
    delta : float, default 0.25
        Variance of a normal response around its mean.
    alpha : float, optional
        Parameter of the Dirichlet of theta; default 1 / n_topics.
    topic_concentration : float, default 0.05
        Parameter of the Dirichlet of the topics; smaller means fewer words a topic.
    seed : int, default 0
        Same arguments, same corpus.
    missing : float, default 0
        Share of documents, 0 to 1, whose response is hidden in the block.
    sample_response : callable, optional
        ``sample_response(omega, generator)`` draws the responses of another family; both arrays have shape
        (n_documents,).

    Returns
    -------
    SimulatedCorpus

    Raises
    ------
    InputError
        A size is below 1, a parameter is not positive, `missing` is outside 0..1 or `eta` has the wrong
        length.
    """
    if alpha is None:
        alpha = 1.0 / max(n_topics, 1)
    for name, value, least in (
        ("n_documents", n_documents, 1),
        ("n_topics", n_topics, 1),
        ("n_terms", n_terms, 1),
        ("mean_tokens", mean_tokens, np.nextafter(0, 1)),
        ("delta", delta, 0),
        ("alpha", alpha, np.nextafter(0, 1)),
        ("topic_concentration", topic_concentration, np.nextafter(0, 1)),
    ):
        if not value >= least:
            raise InputError(f"{name} must be {'positive' if least < 1 else 'at least 1'}, got {value}")
    if not 0 <= missing <= 1:
        raise InputError(f"must be a share between 0 and 1, got {missing}", parameter="missing")
    coefficients = np.linspace(-2, 2, n_topics) if eta is None else np.array(eta, dtype=np.float64)
    if coefficients.shape != (n_topics,):
        raise InputError(
            f"must have one coefficient for each of {n_topics} topics, got shape {coefficients.shape}",
            parameter="eta",
        )

    generator = np.random.default_rng(seed)
    topics = generator.dirichlet(np.full(n_terms, topic_concentration), size=n_topics)
    proportions = generator.dirichlet(np.full(n_topics, alpha), size=n_documents)
    lengths = np.maximum(generator.poisson(mean_tokens, size=n_documents), 1)
    # Tokens of a document are exchangeable, so only their number in each topic matters.
    tokens = generator.multinomial(lengths, proportions)
    shares = tokens / lengths[:, None]

    block_arrays = _draw_words(tokens, topics, generator)
    omega = shares @ coefficients
    if sample_response is None:
        y = generator.normal(omega, np.sqrt(delta))
    else:
        y = np.asarray(sample_response(omega, generator), dtype=np.float64)
    observed = np.where(generator.random(n_documents) < missing, np.nan, y)
    block = DocumentBlock(*block_arrays, responses={"y": observed}).validate(n_terms)
    return SimulatedCorpus(block, y, topics, coefficients, proportions, shares)


def _draw_words(
    tokens: NDArray[np.int64], topics: NDArray[np.float64], generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Words for `tokens` (D, K) from `topics` (K, V): indptr (D + 1,), terms and counts (nnz,)."""
    n_documents, n_terms = len(tokens), topics.shape[1]
    documents = np.arange(n_documents, dtype=np.int64)
    drawn = np.empty(int(tokens.sum()), dtype=np.int64)
    end = 0
    for of_topic, probabilities in zip(tokens.T, topics, strict=True):
        start, end = end, end + int(of_topic.sum())
        below = np.cumsum(probabilities)
        # Scaled by the last sum, not by 1: rounding must not draw a term past the end, nor one of
        # probability zero.
        words = np.searchsorted(below, generator.random(end - start) * below[-1], side="right")
        drawn[start:end] = np.repeat(documents, of_topic) * n_terms + np.minimum(words, n_terms - 1)
    entries, counts = np.unique(drawn, return_counts=True)
    owner, terms = np.divmod(entries, n_terms)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n_documents))])
    return indptr.astype(np.int64), terms.astype(np.int32), counts.astype(np.int32)
