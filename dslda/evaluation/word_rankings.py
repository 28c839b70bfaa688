"""Orders of the words of a topic: by probability, by FREX, by lift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import InputError

__all__ = ["WordRanking", "word_scorer"]

WordRanking: TypeAlias = Literal["probability", "frex", "lift"]

Scorer: TypeAlias = Callable[[int], NDArray[np.float64]]


def word_scorer(topics: NDArray[np.float64], ranking: Any, prevalence: NDArray[np.float64] | None) -> Scorer:
    """A function from the number of a topic to the scores of all words in it; the best words have the largest.

    Parameters
    ----------
    topics : ndarray of float64, shape (V, K)
        Probability beta_kv of each word v in each topic k. Words that no topic has are unknown, and score 0.
    ranking : {"probability", "frex", "lift"}
        - "probability": beta_kv itself. Common words of the corpus lead.
        - "frex": frequent and exclusive words, of Bischof and Airoldi (2012, "Summarizing topical content with word
          frequency and exclusivity"), as in the R package stm: the harmonic mean ``2 / (1 / E + 1 / F)``, both with the
          weight 0.5, of two shares of the known words. F is the share of those that the topic gives no higher
          probability than v, and E that of those that are no more exclusive, where the exclusivity of a word is
          beta_kv / sum_j beta_jv.
        - "lift": beta_kv / p_v, where p_v is the frequency of the word that the model gives the training documents,
          sum_j prevalence_j beta_jv. Rare words that hardly any other topic has lead.
    prevalence : ndarray of float64, shape (K,), or None
        Share of the training tokens in each topic; only "lift" needs it.

    Raises
    ------
    InputError
        There is no such ranking, or "lift" lacks the prevalence.
    """
    if ranking == "probability":
        return lambda topic: topics[:, topic]
    if ranking == "frex":
        totals = topics.sum(axis=1)
        return lambda topic: _frex(topics[:, topic], totals)
    if ranking != "lift":
        raise InputError(f"must be 'probability', 'frex' or 'lift', got {ranking!r:.60}", parameter="words")
    if prevalence is None:
        raise InputError(
            "'lift' needs the prevalence of topics, which a model of an early release lacks",
            parameter="words",
            remedy=("take 'frex'", "train again"),
        )
    frequency = topics @ prevalence
    return lambda topic: _ratio(topics[:, topic], frequency)


def _frex(weights: NDArray[np.float64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.stats import rankdata  # takes half a second to import

    known = np.flatnonzero(totals)
    frequent = rankdata(weights[known], method="max") / len(known)
    exclusive = rankdata(weights[known] / totals[known], method="max") / len(known)
    scores = np.zeros(len(weights))
    scores[known] = 2.0 / (1.0 / exclusive + 1.0 / frequent)
    return scores


def _ratio(weights: NDArray[np.float64], frequency: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(weights, frequency, out=np.zeros(len(weights)), where=frequency > 0.0)
