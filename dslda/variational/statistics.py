"""Sufficient statistics of the E-step: what a partition sends to the M-step, and how they add up."""

from __future__ import annotations

from dataclasses import dataclass, fields

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
    score : ndarray of float64, shape (K + P,), or (K + P, C) for a response of classes
        First derivative by eta, then zeta, of the expected log-likelihood of the response, without rho (model.md,
        section 3).
    information : ndarray of float64, shape (K + P, K + P), or (C, K + P, K + P) for a response of classes
        Weighted second moments of (zbar, x): minus the second derivative, or an upper bound of it.
    log_theta : ndarray of float64, shape (K,)
        Sum of E[log theta] over the documents with a known term.
    profile : ndarray of float64, shape (n_probes,)
        Expected log-likelihood of the responses at the family's probes of delta; the first is delta itself.
    elbo : float
        Sum of the documents' evidence lower bounds, the response term multiplied by rho.
    response_weight : float
        Sum of the weights of the documents with a response.
    log_theta_weight : float
        Sum of the weights of the documents that `log_theta` is summed over.
    curvature, curvature_bound : float
        Sum of the weights in `information`, and of the largest that l bends with over the scatter of omega under q. Both 0
        where `information` bounds the curvature as it is: l is quadratic, or the response one of classes.
    n_documents, n_labelled, n_empty, n_unconverged, n_sweeps, n_tokens : int
        Documents; those with a response; those with no known term; those stopped by the sweep cap; sweeps over all
        documents; tokens of known terms.
    seconds : float
        CPU seconds of the thread that ran the E-step, for reports only.
    """

    topic_word: NDArray[np.float64]
    score: NDArray[np.float64]
    information: NDArray[np.float64]
    log_theta: NDArray[np.float64]
    profile: NDArray[np.float64]
    elbo: float = 0.0
    response_weight: float = 0.0
    log_theta_weight: float = 0.0
    curvature: float = 0.0
    curvature_bound: float = 0.0
    n_documents: int = 0
    n_labelled: int = 0
    n_empty: int = 0
    n_unconverged: int = 0
    n_sweeps: int = 0
    n_tokens: int = 0
    seconds: float = 0.0

    @classmethod
    def zeros(
        cls,
        n_terms: int,
        n_topics: int,
        *,
        n_covariates: int = 0,
        n_probes: int = 1,
        n_classes: int | None = None,
    ) -> SufficientStatistics:
        """Statistics of no document; `n_classes` for a response of classes."""
        n = n_topics + n_covariates
        return cls(
            np.zeros((n_terms, n_topics)),
            np.zeros(n if n_classes is None else (n, n_classes)),
            np.zeros((n, n) if n_classes is None else (n_classes, n, n)),
            np.zeros(n_topics),
            np.zeros(n_probes),
        )

    def copy(self) -> SufficientStatistics:
        """An independent copy; arrays that came over the wire are aligned again."""
        arrays = {name: np.zeros_like(getattr(self, name)) for name in _ARRAYS}
        return SufficientStatistics(**arrays).add(self)

    def add(self, other: SufficientStatistics) -> SufficientStatistics:
        """Add `other` in place and return self; `other` is not changed."""
        for name in _ARRAYS:
            total = getattr(self, name)
            total += getattr(other, name)
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def __sizeof__(self) -> int:
        # Dask sees a dataclass as 0 bytes without this (kartothek#175, xarray#9088).
        return sum(int(getattr(self, name).nbytes) for name in _ARRAYS) + 256


_ARRAYS = ("topic_word", "score", "information", "log_theta", "profile")
_NUMBERS = tuple(f.name for f in fields(SufficientStatistics) if f.name not in _ARRAYS)
