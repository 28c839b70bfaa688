"""Weights of terms in a document: functions of their counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["RAW", "WEIGHTINGS", "TermWeighting"]

WEIGHTINGS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "raw": lambda counts: counts,
    "sqrt": np.sqrt,
    "log": lambda counts: 1.0 + np.log(counts),
    "binary": np.ones_like,
}
"""Functions of counts of at least 1."""


@dataclass(frozen=True, slots=True)
class TermWeighting:
    """The weight of a term that occurs c times in a document: ``scale`` times a function of c.

    A term that is repeated says less than as many different terms: the function bends. `scale` gives the training documents
    as much weight in all as they have tokens, so that alpha means what it means for counts.
    """

    name: Literal["raw", "sqrt", "log", "binary"] = "raw"
    scale: float = 1.0

    def of(self, counts: NDArray[np.integer]) -> NDArray[np.float64]:
        """The weights of counts of at least 1."""
        weights: NDArray[np.float64] = WEIGHTINGS[self.name](counts.astype(np.float64)) * self.scale
        return weights


RAW = TermWeighting()
