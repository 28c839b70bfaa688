"""Words beyond the topics: a linear predictor of single words, less what the topics lead one to expect of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dslda.families.base import Array
from dslda.variational.term_weights import WEIGHTINGS

__all__ = ["Remainder", "normalised_entries", "normalised_terms"]


@dataclass(frozen=True, slots=True, eq=False)
class Remainder:
    """What single words add to the linear predictor of a document that its topics do not.

    With t the normalised terms of a document, it is ``t'words - zbar'expected``: over documents not trained on it has no
    correlation with what topics predict, and mean 0 where the response is normal.

    Attributes
    ----------
    words : ndarray of float64, shape (V,) or (V, C)
        Coefficients of the terms, on the scale of the linear predictor.
    expected : ndarray of float64, shape (K,) or (K, C)
        What each topic leads one to expect of t'words.
    share : float
        Its share of the log-likelihood that topics and words add to the responses of the inner part, 0 to 1; of a Gaussian
        response that is a share of the explained variance.
    """

    words: Array
    expected: Array
    share: float

    def of(self, terms: csr_array, zbar: Array) -> Array:
        """What it adds to the linear predictors of documents with these normalised terms, shape (D,) or (D, C)."""
        # row by row in both products, so that no other document changes the bits
        added: Array = terms @ self.words - np.einsum("dk,k...->d...", zbar, self.expected)
        added[np.diff(terms.indptr) == 0] = 0.0
        return added


def normalised_entries(indptr: NDArray[np.int64], counts: NDArray[np.int32]) -> Array:
    """1 + log c for terms that occur c times, divided by the Euclidean length of their document, shape (nnz,).

    This is TF-IDF but for the weights of the terms, which are part of their coefficients.
    """
    values = WEIGHTINGS["log"](counts.astype(np.float64))
    sizes = np.diff(indptr)
    known = sizes > 0  # reduceat sums no empty range
    lengths = np.sqrt(np.add.reduceat(np.square(values), indptr[:-1][known]))
    values /= np.repeat(lengths, sizes[known])
    return values


def normalised_terms(
    indptr: NDArray[np.int64], terms: NDArray[np.int32], counts: NDArray[np.int32], n_terms: int
) -> csr_array:
    """Rows of the normalised entries of documents, shape (D, V)."""
    return csr_array((normalised_entries(indptr, counts), terms, indptr), shape=(len(indptr) - 1, n_terms))
