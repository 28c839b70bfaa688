"""Documents in the form that a model predicts them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock

__all__ = ["CountedBlock", "no_documents"]


@dataclass(frozen=True, slots=True, eq=False)
class CountedBlock:
    """Documents over the model's vocabulary, and what of them is not in it.

    Attributes
    ----------
    block : DocumentBlock
    n_unknown : ndarray of int64, shape (D,)
        Tokens of each document that are not in the vocabulary.
    columns : mapping of str to ndarray of float64, shape (D,)
        Covariates of the documents, in the codes of the model.
    """

    block: DocumentBlock
    n_unknown: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


def no_documents() -> CountedBlock:
    """A block of no document: what is said of it has the columns of what is said of any."""
    nothing = DocumentBlock(
        np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
    )
    return CountedBlock(nothing, np.zeros(0, dtype=np.int64))
