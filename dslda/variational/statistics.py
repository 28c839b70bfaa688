"""Sufficient statistics of the E-step: sums that a partition sends to the M-step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from dslda.families.base import Array, Family
from dslda.variational.design import AUX, EMPHASIS, FIRST_COVARIATE, WEIGHT

__all__ = ["SufficientStatistics", "has_pearson", "is_dense", "joint_information", "pearson_sums"]

# The kinds of fields. Methods go over the fields of a kind, so that a new statistic needs no new method.
PER_TERM: Mapping[str, str] = {"kind": "per term"}
"""An array with a row for each term, of float64 and shape (V, K)."""
ARRAY: Mapping[str, str] = {"kind": "array"}
"""An array that does not grow with the vocabulary."""
NUMBER: Mapping[str, str] = {"kind": "number"}
"""A sum that the M-step or the objective uses."""
REPORT: Mapping[str, str] = {"kind": "report"}
"""A sum that no estimate depends on."""

# rows to add at once where an index copies them
_ROWS_BYTES = 16 << 20
# the largest term of Pearson's statistic, so that the sum stays finite
_LARGEST_TERM = 1e200


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
    joint_information : ndarray of float64, shape (C (K + P), C (K + P)), or (0, 0) unless it was asked for
        Expected minus second derivative by the coefficients of all classes together, class by class: the sum of
        (diag(p) - pp') x E[(zbar, x)(zbar, x)'], of which `information` leaves out pp'.
    elbo : float
        Sum of the documents' evidence lower bounds, the response term multiplied by rho.
    labelled_weight : float
        Sum of the weights of the documents with a response.
    log_theta_weight : float
        Sum of the weights of the documents in `log_theta`.
    curvature, curvature_bound : float
        Sum of the weights in `information`, and sum of the largest curvatures of l over the scatter of omega under q. Both
        are 0 if `information` bounds the curvature: for a quadratic l, and for classes.
    pearson, pearson_weight : float
        Pearson's X2 of the responses, and the sum of the weights of its documents; 0 for families without a variance.
    n_documents, n_labelled, n_empty, n_unconverged, n_sweeps, n_tokens : int
        Documents; those with a response; those with no known term; those stopped by the sweep cap; sweeps over all
        documents; tokens of known terms.
    seconds : float
        CPU seconds of the thread that ran the E-step.
    terms : ndarray of int64, shape (less than V,), or None
        The terms of the rows of every array per term, ascending; all other rows are zero. None for all terms.
    n_terms : int
        V, if `terms` is not None.
    """

    topic_counts: Array = field(metadata=PER_TERM)
    score: Array = field(metadata=ARRAY)
    information: Array = field(metadata=ARRAY)
    log_theta: Array = field(metadata=ARRAY)
    profile: Array = field(metadata=ARRAY)
    joint_information: Array = field(default_factory=lambda: np.zeros((0, 0)), metadata=ARRAY)
    elbo: float = field(default=0.0, metadata=NUMBER)
    labelled_weight: float = field(default=0.0, metadata=NUMBER)
    log_theta_weight: float = field(default=0.0, metadata=NUMBER)
    curvature: float = field(default=0.0, metadata=NUMBER)
    curvature_bound: float = field(default=0.0, metadata=NUMBER)
    pearson: float = field(default=0.0, metadata=NUMBER)
    pearson_weight: float = field(default=0.0, metadata=NUMBER)
    n_documents: int = field(default=0, metadata=REPORT)
    n_labelled: int = field(default=0, metadata=REPORT)
    n_empty: int = field(default=0, metadata=REPORT)
    n_unconverged: int = field(default=0, metadata=REPORT)
    n_sweeps: int = field(default=0, metadata=REPORT)
    n_tokens: int = field(default=0, metadata=REPORT)
    seconds: float = field(default=0.0, metadata=REPORT)
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
        per_term: dict[str, Any] = {
            f.name: np.zeros((n_terms, n_topics)) for f in fields(cls) if f.metadata == PER_TERM
        }
        return cls(
            **per_term,
            score=np.zeros(n if n_classes is None else (n, n_classes)),
            information=np.zeros((n, n) if n_classes is None else (n_classes, n, n)),
            log_theta=np.zeros(n_topics),
            profile=np.zeros(n_probes),
        )

    def copy(self) -> SufficientStatistics:
        """An independent copy; arrays that came over the wire are aligned again."""
        arrays: dict[str, Any] = {name: np.array(a) for name, a in self._of(PER_TERM, ARRAY).items()}
        return replace(self, **arrays)

    def add(self, other: SufficientStatistics) -> SufficientStatistics:
        """Add `other` in place and return self; `other` is not changed.

        Statistics with rows for some terms gain rows for the terms of `other`, and rows for all terms once more than half
        of them have one. The bits are those of a sum of all rows: a missing row is a sum of zeros, and adding 0 changes
        only minus zero, which no sum that starts from zero can be.
        """
        self._add_rows(other)
        for name, total in self._of(ARRAY).items():
            total += getattr(other, name)
        for name, total in self._of(NUMBER, REPORT).items():
            setattr(self, name, total + getattr(other, name))
        return self

    def blend(self, other: SufficientStatistics, weight: float) -> SufficientStatistics:
        """Move a share of the way to `other`, in place, and return self; `other` is not changed.

        This is the step of online EM, with a minibatch as `other` (Hoffman, Blei and Bach 2010). Every array and number s
        becomes ``(1 - weight) * s + weight * (n / m) * s'``, where s' is that of `other`, and n and m are the numbers of
        documents of self and `other`. `n_documents` stays n; the other reports become those of `other`. An `other` of no
        documents changes nothing. `weight` is 0 to 1.
        """
        n_documents = self.n_documents
        if other.n_documents == 0:
            return self
        stretched = other.copy()
        stretched._multiply(weight * n_documents / other.n_documents)
        self._multiply(1.0 - weight)
        for name, value in self._of(REPORT).items():
            setattr(self, name, type(value)(0))
        self.add(stretched)
        self.n_documents = n_documents
        return self

    def dense(self) -> SufficientStatistics:
        """The same statistics with a row for every term; self if it has them."""
        if self.terms is None:
            return self
        return replace(self, **self._spread(self.n_terms, self.terms), terms=None, n_terms=0)

    def part(self, start: int, stop: int) -> SufficientStatistics:
        """The rows of the terms ``start`` to ``stop - 1``, as views; the first part also has all else.

        Parts of one range add up like whole statistics; :meth:`of_parts` puts the ranges together.
        """
        first, last, terms, n_terms = start, stop, None, 0
        if self.terms is not None:
            first, last = np.searchsorted(self.terms, [start, stop]).tolist()
            terms, n_terms = self.terms[first:last] - start, stop - start
        changes = {name: rows[first:last] for name, rows in self._of(PER_TERM).items()}
        if start > 0:
            changes |= {name: array[:0] for name, array in self._of(ARRAY).items()}
            changes |= {name: type(value)(0) for name, value in self._of(NUMBER, REPORT).items()}
        return replace(self, **changes, terms=terms, n_terms=n_terms)

    @classmethod
    def of_parts(cls, parts: Iterable[SufficientStatistics], n_terms: int) -> SufficientStatistics:
        """Join the parts of consecutive ranges, and drop each before asking for the next."""
        whole: SufficientStatistics | None = None
        first = 0
        for part in parts:
            if whole is None:
                whole = replace(part, **part._spread(n_terms, None), terms=None, n_terms=0)
            width = len(part.topic_counts) if part.terms is None else part.n_terms
            for name, rows in part._of(PER_TERM).items():
                target = getattr(whole, name)[first : first + width]
                target[slice(None) if part.terms is None else part.terms] = rows
            first += width
            del part
        assert whole is not None
        return whole

    def _of(self, *kinds: Mapping[str, str]) -> dict[str, Any]:
        """Values by name of the fields of some kinds."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.metadata in kinds}

    def _multiply(self, factor: float) -> None:
        for array in self._of(PER_TERM, ARRAY).values():
            array *= factor
        for name, value in self._of(NUMBER).items():
            setattr(self, name, value * factor)

    def _spread(self, n_rows: int, rows: NDArray[np.int64] | None) -> dict[str, Any]:
        """Arrays per term with `n_rows` rows, zero but for those of self at `rows`, if any."""
        wider: dict[str, Any] = {}
        for name, array in self._of(PER_TERM).items():
            wider[name] = np.zeros((n_rows, *array.shape[1:]))
            if rows is not None:
                wider[name][rows] = array
        return wider

    def _add_rows(self, other: SufficientStatistics) -> None:
        if self.terms is not None and (other.terms is None or not np.array_equal(self.terms, other.terms)):
            self._make_room(other.terms)
        rows = None
        if other.terms is not None and (self.terms is None or len(self.terms) > len(other.terms)):
            rows = other.terms if self.terms is None else np.searchsorted(self.terms, other.terms)
        for name, total in self._of(PER_TERM).items():
            array = getattr(other, name)
            if rows is None:
                total += array
                continue
            # in parts, since indexing on the left copies the rows that it adds to
            step = max(_ROWS_BYTES // max(array[:1].nbytes, 1), 1)
            for start in range(0, len(rows), step):
                total[rows[start : start + step]] += array[start : start + step]

    def _make_room(self, terms: NDArray[np.int64] | None) -> None:
        """Give each of `terms` a row; None for all terms."""
        assert self.terms is not None
        union = None if terms is None else np.union1d(self.terms, terms)
        if union is not None and len(union) == len(self.terms):
            return
        if union is None or is_dense(len(union), self.n_terms):
            wider = self._spread(self.n_terms, self.terms)
            self.terms, self.n_terms = None, 0
        else:
            wider = self._spread(len(union), np.searchsorted(union, self.terms))
            self.terms = union
        for name, array in wider.items():
            setattr(self, name, array)

    def __sizeof__(self) -> int:
        # Dask sees a dataclass as 0 bytes without this (kartothek#175, xarray#9088).
        arrays = list(self._of(PER_TERM, ARRAY).values()) + ([] if self.terms is None else [self.terms])
        return sum(int(array.nbytes) for array in arrays) + 256


def is_dense(n_rows: int, n_terms: int) -> bool:
    """True if so many terms have a row that every term may as well have one."""
    return 2 * n_rows > n_terms


def has_pearson(family: Family, *, trials: bool) -> bool:
    """True if the family has a variance that data can contradict; `trials` is True if documents have trials."""
    return type(family).variance is not Family.variance and (trials or family.auxiliary != "trials")


def pearson_sums(
    family: Family,
    y: Array,
    delta: Array,
    extras: Array | None,
    *,
    mean: Array,
    variance: Array,
    counted: NDArray[np.bool_],
) -> tuple[float, float]:
    """Pearson's X2 = sum of w (y - mu)^2 / Var(y | mu) over documents with a response, and the sum of w.

    Both are 0 if the family has no variance. A single binomial trial says nothing about scatter (McCullagh and Nelder 1989,
    chapter 4) and is left out. Sums are exact, so that the order of documents does not matter.

    Parameters
    ----------
    y, delta, extras
        As in the E-step.
    mean, variance : ndarray of float64, shape (D,)
        Moments of the linear predictor after the E-step.
    counted : ndarray of bool, shape (D,)
        Documents with a known term; they take part if they have a response.
    """
    counted = counted & ~np.isnan(y)
    aux, weight = np.ones(len(y)), np.ones(len(y))
    if extras is not None:
        aux, weight = extras[:, AUX], extras[:, WEIGHT] * extras[:, EMPHASIS]
    if family.auxiliary == "trials":
        counted &= aux > 1.0
    y, aux, weight = y[counted], aux[counted], weight[counted]
    expected = family.mean(mean[counted], variance[counted], delta)
    if family.auxiliary == "trials":
        expected = aux * expected
    # extreme means may give 0 / 0, and numbers too large to square
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        scatter = family.variance(expected, delta, aux)
        if scatter is None:
            return 0.0, 0.0
        terms = weight * (y - expected) ** 2 / scatter
    terms = np.minimum(np.nan_to_num(terms, nan=0.0, posinf=_LARGEST_TERM), _LARGEST_TERM)
    return math.fsum(terms.tolist()), math.fsum(weight.tolist())


def joint_information(
    y: Array, extras: Array | None, *, assigned: Array, n_tokens: NDArray[np.int64], predictors: Array
) -> Array:
    """Sum of `SufficientStatistics.joint_information` over documents with a response and a known term.

    Parameters
    ----------
    y, extras
        As in the E-step.
    assigned : ndarray of float64, shape (D, K)
        Expected number of tokens of each topic.
    n_tokens : ndarray of int64, shape (D,)
        Tokens of known terms.
    predictors : ndarray of float64, shape (D, C)
        Numbers whose softmax is the probabilities of the classes.
    """
    counted = ~np.isnan(y) & (n_tokens > 0)
    length = n_tokens[counted].astype(np.float64)
    phibar = assigned[counted] / length[:, np.newaxis]
    weight, means = np.ones(len(length)), phibar
    if extras is not None:
        weight = extras[counted, WEIGHT] * extras[counted, EMPHASIS]
        means = np.column_stack([phibar, extras[counted, FIRST_COVARIATE:]])
    p = softmax(predictors[counted], axis=1)
    n, (n_topics, n_classes) = means.shape[1], (phibar.shape[1], p.shape[1])
    topics = np.arange(n_topics)
    information = np.zeros((n_classes, n, n_classes, n))
    for c in range(n_classes):
        for d in range(c + 1):
            curvature = weight * p[:, c] * ((c == d) - p[:, d])
            # E[zbar zbar'] is that of independent tokens, phibar phibar' and their scatter
            moments = means.T @ (curvature[:, np.newaxis] * means)
            scatter = curvature / length
            moments[:n_topics, :n_topics] -= phibar.T @ (scatter[:, np.newaxis] * phibar)
            moments[topics, topics] += scatter @ phibar
            information[c, :, d] = information[d, :, c] = moments
    return information.reshape(n_classes * n, n_classes * n)
