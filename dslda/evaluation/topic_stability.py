"""Stability of topics: whether other starts of the same fit find them too, by their words and by their documents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dslda.evaluation.topic_quality import NO_TERM, top_terms
from dslda.variational.topics import partners
from dslda.wording import number_of, short_repr

__all__ = ["UNSTABLE", "TopicStability", "topic_stability"]

UNSTABLE = 0.5
"""Stability below which a topic is unstable; docs/model.md has what was measured on real corpora."""

_ROUNDING = 1e-9
"""Range below which the share of a topic is the same in all documents."""


@dataclass(frozen=True, slots=True, eq=False)
class TopicStability:
    """How much of each topic other starts find too; docs/model.md has the definitions.

    Attributes
    ----------
    words : ndarray of float64, shape (K,)
        Share of the topic's 10 most probable words that are among the 10 of its partner, mean over the other starts.
    shares : ndarray of float64, shape (K,)
        Correlation, over documents, of the topic's share and its partner's, mean over the other starts. Negative ones, and
        those of a share that is the same in all documents, count as 0.
    """

    words: NDArray[np.float64]
    shares: NDArray[np.float64]

    __repr__ = short_repr

    @property
    def of_topics(self) -> NDArray[np.float64]:
        """Stability of each topic, the mean of both measures, shape (K,): 1 where every start has the very same topic."""
        return (self.words + self.shares) / 2.0

    @property
    def mean(self) -> float:
        """Stability of the model, the mean over its topics."""
        return float(self.of_topics.mean())

    @property
    def unstable(self) -> list[int]:
        """Numbers of the topics whose stability is below `UNSTABLE`."""
        numbers: list[int] = np.flatnonzero(self.of_topics < UNSTABLE).tolist()
        return numbers

    @property
    def in_words(self) -> str:
        """The mean, its two parts, and how many topics are unstable."""
        return (
            f"{self.mean:.2f} (words {self.words.mean():.2f}, documents {self.shares.mean():.2f}), "
            f"{len(self.unstable)} of {number_of(len(self.words), 'topic')} unstable"
        )


def topic_stability(
    topics: NDArray[np.float64],
    shares: NDArray[np.float64],
    others: Iterable[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> TopicStability:
    """Compare the topics of one start with those of at least one other.

    Each topic gets a partner in every other start, another one for each topic, so that the sum of their Bhattacharyya
    coefficients, sum_v sqrt(beta_kv beta'_jv), is as large as possible.

    Parameters
    ----------
    topics : ndarray of float64, shape (V, K)
        Probabilities of terms in each topic.
    shares : ndarray of float64, shape (D, K)
        Share of each topic in the words of at least one document.
    others : iterable of (topics, shares)
        The same of the other starts, for the same terms and documents. Taken one at a time.
    """
    top = top_terms(topics)
    of_words, of_shares = [], []
    for other_topics, other_shares in others:
        places = partners(topics, other_topics)
        of_words.append(_words_in_common(top, top_terms(other_topics)[places]))
        of_shares.append(_correlations(shares, other_shares[:, places]))
    return TopicStability(np.mean(of_words, axis=0), np.mean(of_shares, axis=0))


def _words_in_common(top: NDArray[np.int32], theirs: NDArray[np.int32]) -> NDArray[np.float64]:
    """Share of the terms of each row that are in the same row of the other lists, shape (K,)."""
    known = top != NO_TERM
    common = (top[:, :, np.newaxis] == theirs[:, np.newaxis]).any(axis=2) & known
    shares: NDArray[np.float64] = common.sum(axis=1) / known.sum(axis=1)
    return shares


def _correlations(shares: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's correlation of each two columns, shape (K,); 0 where it is negative or not defined."""
    vary = (np.ptp(shares, axis=0) > _ROUNDING) & (np.ptp(theirs, axis=0) > _ROUNDING)
    one, other = shares - shares.mean(axis=0), theirs - theirs.mean(axis=0)
    norms = np.sqrt(np.square(one).sum(axis=0) * np.square(other).sum(axis=0))
    correlations = np.zeros(len(vary))
    np.divide((one * other).sum(axis=0), norms, out=correlations, where=vary)
    return np.clip(correlations, 0.0, 1.0)
