"""Posteriors of documents from their words alone, with real-valued weights of terms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dslda.families.base import Array
from dslda.variational.kernels.layout import read_only
from dslda.variational.parameters import Parameters
from dslda.variational.remainder import normalised_terms
from dslda.variational.term_weights import TermWeighting

__all__ = ["WeightedDocuments", "WordPosterior", "infer_words_of"]

TOLERANCE = 4e-3
"""Change of gamma, as a share of a document's length, at which inference has settled."""


@dataclass(frozen=True, eq=False)
class WeightedDocuments:
    """Documents as compressed sparse rows, as the kernels take them.

    Attributes
    ----------
    indptr, terms, counts : ndarray of int64, int32, int32, shapes (D + 1,) and two times (nnz,)
    weighting : TermWeighting
    entries : ndarray of float64, shape (nnz,), or None
        The normalised entries, where a search that needs them dozens of times keeps them.
    """

    indptr: NDArray[np.int64]
    terms: NDArray[np.int32]
    counts: NDArray[np.int32]
    weighting: TermWeighting
    entries: Array | None = None

    @classmethod
    def of(
        cls,
        indptr: NDArray[np.int64],
        terms: NDArray[np.int32],
        counts: NDArray[np.int32],
        parameters: Parameters,
    ) -> WeightedDocuments:
        return cls(
            read_only(indptr, np.int64),
            read_only(terms, np.int32),
            counts,
            parameters.weighting,
        )

    @cached_property
    def weights(self) -> Array:
        """Weights of the terms, shape (nnz,); a regression on words needs none."""
        return read_only(self.weighting.of(self.counts))

    @property
    def n_documents(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_tokens(self) -> int:
        return int(self.counts.sum(dtype=np.int64))

    def normalised(self, n_terms: int) -> csr_array:
        """See :func:`~dslda.variational.remainder.normalised_terms`."""
        if self.entries is None:
            return normalised_terms(self.indptr, self.terms, self.counts, n_terms)
        return csr_array((self.entries, self.terms, self.indptr), shape=(self.n_documents, n_terms))


@dataclass(frozen=True, slots=True, eq=False)
class WordPosterior:
    """Posterior of documents from their words.

    Attributes
    ----------
    gamma : ndarray of float64, shape (D, K)
        Dirichlet parameters of the topic proportions; those of the prior where no term is known.
    zbar : ndarray of float64, shape (D, K)
        Mean topic assignment, (gamma - alpha) / length: rows sum to 1. The prior's mean where no term is known.
    length : ndarray of float64, shape (D,)
        Sum of the weights of known terms.
    n_sweeps : ndarray of int64, shape (D,)
    converged : ndarray of bool, shape (D,)
    """

    gamma: Array
    zbar: Array
    length: Array
    n_sweeps: NDArray[np.int64]
    converged: NDArray[np.bool_]

    @classmethod
    def of(
        cls, gamma: Array, length: Array, n_sweeps: NDArray[np.int64], alpha: Array, max_sweeps: int
    ) -> WordPosterior:
        """From what the kernels write."""
        unknown = length == 0.0
        zbar = (gamma - alpha) / np.where(unknown, 1.0, length)[:, np.newaxis]
        zbar[unknown] = alpha / alpha.sum()
        return cls(gamma, zbar, length, np.minimum(n_sweeps, max_sweeps), n_sweeps <= max_sweeps)


def infer_words_of(documents: WeightedDocuments, parameters: Parameters, *, max_sweeps: int) -> WordPosterior:
    """Mean-field inference without the response. Every document is inferred on its own."""
    from dslda.variational.kernels.word_inference import infer_words

    n = documents.n_documents
    gamma, length, n_sweeps = np.empty((n, parameters.n_topics)), np.empty(n), np.empty(n, dtype=np.int64)
    infer_words(
        documents.indptr,
        documents.terms,
        documents.weights,
        read_only(parameters.topics),
        read_only(parameters.alpha),
        max_sweeps,
        TOLERANCE,
        gamma,
        length,
        n_sweeps,
    )
    return WordPosterior.of(gamma, length, n_sweeps, parameters.alpha, max_sweeps)
