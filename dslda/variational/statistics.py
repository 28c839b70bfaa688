"""Sufficient statistics of the E-step: what a partition sends to the M-step, and how they add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["SufficientStatistics", "is_dense"]


@dataclass(slots=True, eq=False)
class SufficientStatistics:
    """Sums over documents; two partitions' statistics add to those of their union.

    Attributes
    ----------
    topic_counts : ndarray of float64, shape (V, K), or (len(terms), K)
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
    labelled_weight : float
        Sum of the weights of the documents with a response.
    log_theta_weight : float
        Sum of the weights of the documents that `log_theta` is summed over.
    curvature, curvature_bound : float
        Sum of the weights in `information`, and of the largest that l bends with over the scatter of omega under q. Both 0
        where `information` bounds the curvature as it is: l is quadratic, or the response one of classes.
    pearson, pearson_weight : float
        Pearson's X2 of the responses, and the sum of the weights of the documents that it is over; 0 for families that do not
        ask.
    n_documents, n_labelled, n_empty, n_unconverged, n_sweeps, n_tokens : int
        Documents; those with a response; those with no known term; those stopped by the sweep cap; sweeps over all
        documents; tokens of known terms.
    seconds : float
        CPU seconds of the thread that ran the E-step, for reports only.
    terms : ndarray of int64, shape (less than V,), or None
        The terms that the rows of `topic_counts` are of, ascending; the other terms have nothing. None: all terms.
    n_terms : int
        V, where `terms` is given.
    """

    topic_counts: NDArray[np.float64]
    score: NDArray[np.float64]
    information: NDArray[np.float64]
    log_theta: NDArray[np.float64]
    profile: NDArray[np.float64]
    elbo: float = 0.0
    labelled_weight: float = 0.0
    log_theta_weight: float = 0.0
    curvature: float = 0.0
    curvature_bound: float = 0.0
    pearson: float = 0.0
    pearson_weight: float = 0.0
    n_documents: int = 0
    n_labelled: int = 0
    n_empty: int = 0
    n_unconverged: int = 0
    n_sweeps: int = 0
    n_tokens: int = 0
    seconds: float = 0.0
    terms: NDArray[np.int64] | None = None
    n_terms: int = 0

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
        new = replace(self)
        for name in _ARRAYS:
            setattr(new, name, np.array(getattr(self, name)))
        return new

    def add(self, other: SufficientStatistics) -> SufficientStatistics:
        """Add `other` in place and return self; `other` is not changed.

        What has rows for some terms only gets those of `other` too, and a row for every term once more than
        half of them have one. Its bits are those of a sum of all rows: what is left out is a sum of zeros, and
        adding 0 to what is not minus zero, as sums that start from zero never are, changes nothing.
        """
        self._add_topic_counts(other)
        for name in _SMALL_ARRAYS:
            total = getattr(self, name)
            total += getattr(other, name)
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def dense(self) -> SufficientStatistics:
        """With a row for every term: self where that is so already."""
        if self.terms is None:
            return self
        rows = np.zeros((self.n_terms, self.topic_counts.shape[1]))
        rows[self.terms] = self.topic_counts
        return replace(self, topic_counts=rows, terms=None, n_terms=0)

    def part(self, start: int, stop: int) -> SufficientStatistics:
        """What belongs to the terms ``start`` to ``stop - 1``, all else with the first; the arrays are views.

        Parts of one range add up like whole statistics, to what :meth:`of_parts` puts together.
        """
        if self.terms is None:
            rows, terms = self.topic_counts[start:stop], None
        else:
            first, last = np.searchsorted(self.terms, [start, stop]).tolist()
            rows, terms = self.topic_counts[first:last], self.terms[first:last] - start
        n_terms = 0 if terms is None else stop - start
        if start == 0:
            return replace(self, topic_counts=rows, terms=terms, n_terms=n_terms)
        none = (self.score[:0], self.information[:0], self.log_theta[:0], self.profile[:0])
        return SufficientStatistics(rows, *none, terms=terms, n_terms=n_terms)

    @classmethod
    def of_parts(cls, parts: Iterable[SufficientStatistics], n_terms: int) -> SufficientStatistics:
        """Put together the parts of consecutive ranges; each is let go of before the next is asked for."""
        whole: SufficientStatistics | None = None
        first = 0
        for part in parts:
            if whole is None:
                rows = np.zeros((n_terms, part.topic_counts.shape[1]))
                whole = replace(part, topic_counts=rows, terms=None, n_terms=0)
            width = len(part.topic_counts) if part.terms is None else part.n_terms
            here = slice(None) if part.terms is None else part.terms
            whole.topic_counts[first : first + width][here] = part.topic_counts
            first += width
            del part
        assert whole is not None
        return whole

    def _add_topic_counts(self, other: SufficientStatistics) -> None:
        if self.terms is not None and (other.terms is None or not np.array_equal(self.terms, other.terms)):
            self._make_room(other.terms)
        if other.terms is None or (self.terms is not None and len(self.terms) == len(other.terms)):
            self.topic_counts += other.topic_counts
            return
        rows = other.terms if self.terms is None else np.searchsorted(self.terms, other.terms)
        # in parts: indexing on the left makes a copy of what it adds to
        step = max(_ROWS_BYTES // max(other.topic_counts[:1].nbytes, 1), 1)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            self.topic_counts[rows[part]] += other.topic_counts[part]

    def _make_room(self, terms: NDArray[np.int64] | None) -> None:
        """Give every one of `terms` a row, None for all terms."""
        assert self.terms is not None
        union = None if terms is None else np.union1d(self.terms, terms)
        if union is not None and len(union) == len(self.terms):
            return
        if union is None or is_dense(len(union), self.n_terms):
            dense = self.dense()
            self.topic_counts, self.terms, self.n_terms = dense.topic_counts, None, 0
            return
        wider = np.zeros((len(union), self.topic_counts.shape[1]))
        wider[np.searchsorted(union, self.terms)] = self.topic_counts
        self.topic_counts, self.terms = wider, union

    def __sizeof__(self) -> int:
        # Dask sees a dataclass as 0 bytes without this (kartothek#175, xarray#9088).
        arrays = [getattr(self, name) for name in _ARRAYS] + ([] if self.terms is None else [self.terms])
        return sum(int(array.nbytes) for array in arrays) + 256


def is_dense(n_rows: int, n_terms: int) -> bool:
    """Whether rows for `n_rows` of the terms are so many that there may as well be one for every term."""
    return 2 * n_rows > n_terms


_ROWS_BYTES = 16 << 20
_SMALL_ARRAYS = ("score", "information", "log_theta", "profile")
_ARRAYS = ("topic_counts", *_SMALL_ARRAYS)
_NUMBERS = tuple(f.name for f in fields(SufficientStatistics) if f.name not in (*_ARRAYS, "terms", "n_terms"))
