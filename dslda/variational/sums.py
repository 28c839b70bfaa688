"""Sums over documents: what a pass over a partition returns, and the tree of reduction adds up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["ARRAY", "FIRST", "NUMBER", "PER_TERM", "REPORT", "Sums", "is_dense", "join_parts"]

S = TypeVar("S", bound="Sums")

# The kinds of fields. Methods go over the fields of a kind, so that a new sum needs no new method.
PER_TERM: Mapping[str, str] = {"kind": "per term"}
"""An array with a row for each term, of float64 and shape (V, K)."""
ARRAY: Mapping[str, str] = {"kind": "array"}
"""An array that does not grow with the vocabulary."""
NUMBER: Mapping[str, str] = {"kind": "number"}
"""A sum that an estimate or the objective uses."""
REPORT: Mapping[str, str] = {"kind": "report"}
"""A sum that no estimate depends on."""
FIRST: Mapping[str, str] = {"kind": "first"}
"""A row of the source, or None: of two rows the sum is the lower one."""


@dataclass(slots=True, eq=False, kw_only=True)
class Sums:
    """Sums over documents; those of two partitions add to those of their union. Subclasses declare what is summed.

    Attributes
    ----------
    n_documents : int
    seconds : float
        CPU seconds of the thread that worked on the documents.
    terms : ndarray of int64, shape (less than V,), or None
        The terms of the rows of every array per term, ascending; all other rows are zero. None for all terms.
    n_terms : int
        V, if `terms` is not None.
    """

    n_documents: int = field(default=0, metadata=REPORT)
    seconds: float = field(default=0.0, metadata=REPORT)
    terms: NDArray[np.int64] | None = None
    n_terms: int = 0

    def copy(self) -> Self:
        """An independent copy; arrays that came over the wire are aligned again."""
        arrays: dict[str, Any] = {name: np.array(a) for name, a in self._of(PER_TERM, ARRAY).items()}
        return replace(self, **arrays)

    def add(self, other: Self) -> Self:
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
        for name, row in self._of(FIRST).items():
            both = row, getattr(other, name)
            setattr(self, name, min((row for row in both if row is not None), default=None))
        return self

    def blend(self, other: Self, weight: float) -> Self:
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
        for name in self._of(FIRST):
            setattr(self, name, None)
        self.add(stretched)
        self.n_documents = n_documents
        return self

    def placed(self, row: Callable[[int], int]) -> Self:
        """The same sums, in place, with rows of the source for the numbers of documents in a block."""
        for name, number in self._of(FIRST).items():
            setattr(self, name, None if number is None else row(number))
        return self

    def dense(self) -> Self:
        """The same statistics with a row for every term; self if it has them."""
        if self.terms is None:
            return self
        return replace(self, **self._spread(self.n_terms, self.terms), terms=None, n_terms=0)

    def part(self, start: int, stop: int) -> Self:
        """The rows of the terms ``start`` to ``stop - 1``, as views; the first part also has all else.

        Parts of one range add up like whole statistics; :func:`join_parts` puts the ranges together.
        """
        first, last, terms, n_terms = start, stop, None, 0
        if self.terms is not None:
            first, last = np.searchsorted(self.terms, [start, stop]).tolist()
            terms, n_terms = self.terms[first:last] - start, stop - start
        changes = {name: rows[first:last] for name, rows in self._of(PER_TERM).items()}
        if start > 0:
            changes |= {name: array[:0] for name, array in self._of(ARRAY).items()}
            changes |= {name: type(value)(0) for name, value in self._of(NUMBER, REPORT).items()}
            changes |= dict.fromkeys(self._of(FIRST))
        return replace(self, **changes, terms=terms, n_terms=n_terms)

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

    def _add_rows(self, other: Self) -> None:
        from dslda.variational.kernels.layout import read_only
        from dslda.variational.kernels.term_rows import add_rows

        if self.terms is not None and (other.terms is None or not np.array_equal(self.terms, other.terms)):
            self._make_room(other.terms)
        rows = None
        if other.terms is not None and (self.terms is None or len(self.terms) > len(other.terms)):
            rows = other.terms if self.terms is None else np.searchsorted(self.terms, other.terms)
        for name, total in self._of(PER_TERM).items():
            array = getattr(other, name)
            if rows is None:
                total += array
            else:
                add_rows(total, read_only(rows, np.int64), read_only(array))

    def _make_room(self, terms: NDArray[np.int64] | None) -> None:
        """Give each of `terms` a row; None for all terms."""
        assert self.terms is not None
        union = None if terms is None else _union(self.terms, terms)
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


def _union(ascending: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of both, each once, ascending. A stable sort merges them, where `numpy.union1d` hashes them first."""
    both = np.concatenate([ascending, others])
    both.sort(kind="stable")
    first = np.ones(len(both), dtype=np.bool_)
    np.not_equal(both[1:], both[:-1], out=first[1:])
    return both[first]


def join_parts(parts: Iterable[S], n_terms: int) -> S:
    """Join the parts of consecutive ranges, and drop each before asking for the next."""
    whole: S | None = None
    first = 0
    for part in parts:
        if whole is None:
            whole = replace(part, **part._spread(n_terms, None), terms=None, n_terms=0)
        rows = part._of(PER_TERM)
        width = part.n_terms if part.terms is not None else max(map(len, rows.values()), default=0)
        for name, array in rows.items():
            target = getattr(whole, name)[first : first + width]
            target[slice(None) if part.terms is None else part.terms] = array
        first += width
        del part
    assert whole is not None
    return whole


def is_dense(n_rows: int, n_terms: int) -> bool:
    """True if so many terms have a row that every term may as well have one."""
    return 2 * n_rows > n_terms
