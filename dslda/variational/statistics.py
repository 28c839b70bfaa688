"""Sufficient statistics of the E-step: what a partition sends to the M-step, and how they add up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["SufficientStatistics"]


@dataclass(slots=True, eq=False)
class SufficientStatistics:
    """Sums over documents; two partitions' statistics add to those of their union.

    Attributes
    ----------
    topic_word : ndarray of float64, shape (V, K)
        Expected number of tokens of each term assigned to each topic.
    score : ndarray of float64, shape (K,)
        First derivative by eta of the expected log-likelihood of the response, without rho (model.md, section 3).
    information : ndarray of float64, shape (K, K)
        Minus its (expected) second derivative: sum of -l2 E[zbar zbar'].
    dispersion : float
        Sum over labelled documents of the family's dispersion statistic (Gaussian: expected squared residual).
    elbo : float
        Sum of the documents' evidence lower bounds, the response term multiplied by rho.
    n_documents, n_labelled, n_empty, n_unconverged, n_sweeps, n_tokens : int
        Documents; those with a response; those with no known term; those stopped by the sweep cap; sweeps over all
        documents; tokens of known terms.
    seconds : float
        CPU seconds of the thread that ran the E-step, for reports only.
    """

    topic_word: NDArray[np.float64]
    score: NDArray[np.float64]
    information: NDArray[np.float64]
    dispersion: float = 0.0
    elbo: float = 0.0
    n_documents: int = 0
    n_labelled: int = 0
    n_empty: int = 0
    n_unconverged: int = 0
    n_sweeps: int = 0
    n_tokens: int = 0
    seconds: float = 0.0

    @classmethod
    def zeros(cls, n_terms: int, n_topics: int) -> SufficientStatistics:
        """Statistics of no document."""
        return cls(np.zeros((n_terms, n_topics)), np.zeros(n_topics), np.zeros((n_topics, n_topics)))

    def copy(self) -> SufficientStatistics:
        """An independent copy; arrays that came over the wire are aligned again."""
        new = SufficientStatistics.zeros(*self.topic_word.shape)
        return new.add(self)

    def add(self, other: SufficientStatistics) -> SufficientStatistics:
        """Add `other` in place and return self; `other` is not changed."""
        self.topic_word += other.topic_word
        self.score += other.score
        self.information += other.information
        self.dispersion += other.dispersion
        self.elbo += other.elbo
        self.n_documents += other.n_documents
        self.n_labelled += other.n_labelled
        self.n_empty += other.n_empty
        self.n_unconverged += other.n_unconverged
        self.n_sweeps += other.n_sweeps
        self.n_tokens += other.n_tokens
        self.seconds += other.seconds
        return self

    def __sizeof__(self) -> int:
        # Dask sees a dataclass as 0 bytes without this (kartothek#175, xarray#9088).
        return self.topic_word.nbytes + self.score.nbytes + self.information.nbytes + 256
