"""Measures of topics as lists of words, from the probabilities of words and from the documents."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["coherence", "distinct_share", "exclusivity", "top_terms"]


def top_terms(topic_word: NDArray[np.float64], n: int) -> NDArray[np.intp]:
    """The n most probable terms of each topic, shape (n_topics, n), the most probable first."""
    return np.argsort(-topic_word, axis=1, kind="stable")[:, :n]


def coherence(topic_word: NDArray[np.float64], counts: csr_array, *, n: int = 10) -> float:
    """Mean normalised pointwise mutual information of pairs of top words, by their documents in common.

    Of a pair it is ``log(p_ij / (p_i p_j)) / -log p_ij``, where p are shares of the documents that have the words (Bouma
    2009): -1 for words that never meet, 0 for independent ones, 1 for words that occur only together.

    Parameters
    ----------
    topic_word : ndarray of float64, shape (n_topics, n_terms)
    counts : csr_array, shape (n_documents, n_terms)
    n : int, default 10
        Top words of a topic.
    """
    top = top_terms(topic_word, n)
    terms, places = np.unique(top, return_inverse=True)
    present = csr_array(counts[:, terms] > 0).astype(np.float64)
    joint = (present.T @ present).toarray() / counts.shape[0]
    share = joint.diagonal()
    values = []
    for topic in places.reshape(top.shape):
        for i, j in combinations(topic, 2):
            p = joint[i, j]
            if p == 0.0:
                values.append(-1.0)
            elif p == 1.0:
                values.append(1.0)
            else:
                values.append(float(np.log(p / (share[i] * share[j])) / -np.log(p)))
    return float(np.mean(values))


def exclusivity(topic_word: NDArray[np.float64], *, n: int = 8) -> float:
    """Mean share that a topic has of its top words: their probability in it over the sum of that in all topics."""
    top = top_terms(topic_word, n)
    return float(np.mean(np.take_along_axis(topic_word, top, axis=1) / topic_word.sum(axis=0)[top]))


def distinct_share(topic_word: NDArray[np.float64], *, n: int = 8) -> float:
    """Share of different words among the top words of all topics."""
    top = top_terms(topic_word, n)
    return len(np.unique(top)) / top.size
