"""Documents drawn again with replacement, for the bootstrap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dslda.engine.data.hashes import mixed, uniform

__all__ = ["Resample"]

_TAIL = np.cumsum(np.exp(-1.0) / np.cumprod([1.0, *range(1, 18)]))
"""Probability that a Poisson number of mean 1 is at most 0, 1, 2, ..., up to what 53 bits tell from 1."""


@dataclass(frozen=True, slots=True)
class Resample:
    """One resample of all documents: each counts as many times as a Poisson number of mean 1 says.

    For many documents that is as good as drawing as many with replacement, and no document needs to know of another
    (Chamandy, Muralidharan, Najmi and Naidu 2012, "Estimating uncertainty for massive data streams").

    Attributes
    ----------
    seed, number : int
        Of the fit, and of the resample.
    """

    seed: int
    number: int

    def times(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """How often the documents of these rows of the source count: a pure function of seed, number and row."""
        stream = mixed(mixed(np.array([self.seed], dtype=np.uint64)) + np.uint64(self.number))
        draws = uniform(mixed(stream ^ mixed(rows.astype(np.uint64))))
        return np.searchsorted(_TAIL, draws, side="right").astype(np.float64)
