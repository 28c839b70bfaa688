"""A block of documents in memory: the unit of work of every worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.exceptions import InputError
from dslda.wording import short_repr

__all__ = ["DocumentBlock", "borders", "document_mask", "entries_of"]

MAX_COUNT = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True, eq=False)
class DocumentBlock:
    """Documents as term counts in compressed sparse rows, with the data of each document.

    Attributes
    ----------
    indptr : ndarray of int64, shape (n_documents + 1,)
        Document ``d`` owns entries ``indptr[d]:indptr[d + 1]`` of `terms` and `counts`.
    terms : ndarray of int32, shape (nnz,)
        Vocabulary indices, strictly ascending within a document.
    counts : ndarray of int32, shape (nnz,)
        Occurrences of each term, at least 1.
    responses : mapping of str to ndarray of float64, shape (n_documents,)
        Named responses in the user's units, those of a categorical one as codes; NaN where missing.
    covariates : mapping of str to ndarray of float64, shape (n_documents,)
        Named covariates, as responses.
    weight : ndarray of float64, shape (n_documents,), or None
        Document weights; None means 1 for every document.
    doc_id : tuple of str or None
        Document identifiers, None where not loaded.
    """

    indptr: NDArray[np.int64]
    terms: NDArray[np.int32]
    counts: NDArray[np.int32]
    responses: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    covariates: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    weight: NDArray[np.float64] | None = None
    doc_id: tuple[str, ...] | None = None

    __repr__ = short_repr

    @property
    def n_documents(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_tokens(self) -> int:
        return int(self.counts.sum(dtype=np.int64))

    def rows(self, start: int, stop: int) -> DocumentBlock:
        """Documents `start` to `stop` - 1; the arrays are views."""
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        return replace(
            self,
            indptr=self.indptr[start : stop + 1] - first,
            terms=self.terms[first:last],
            counts=self.counts[first:last],
            responses={name: values[start:stop] for name, values in self.responses.items()},
            covariates={name: values[start:stop] for name, values in self.covariates.items()},
            weight=None if self.weight is None else self.weight[start:stop],
            doc_id=None if self.doc_id is None else self.doc_id[start:stop],
        )

    @classmethod
    def from_entries(
        cls,
        rows: NDArray[np.int64],
        terms: NDArray[np.integer],
        counts: NDArray[np.integer],
        n_documents: int,
    ) -> DocumentBlock:
        """Make a block of entries in any order, each term of a document once; `rows` holds the document of each entry."""
        keys = rows * (int(terms.max(initial=0)) + 1) + terms
        if (np.diff(keys) < 0).any():
            order = np.argsort(keys)
            terms, counts = terms[order], counts[order]
        return cls(
            borders(np.bincount(rows, minlength=n_documents)),
            terms.astype(np.int32, copy=False),
            counts.astype(np.int32, copy=False),
        )

    def take(self, rows: NDArray[np.bool_] | NDArray[np.integer]) -> DocumentBlock:
        """The documents of a boolean mask, or of row numbers in their order."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        indptr, entries = entries_of(self.indptr, np.asarray(rows, dtype=np.int64))
        return DocumentBlock(
            indptr,
            self.terms[entries],
            self.counts[entries],
            responses={name: values[rows] for name, values in self.responses.items()},
            covariates={name: values[rows] for name, values in self.covariates.items()},
            weight=None if self.weight is None else self.weight[rows],
            doc_id=None if self.doc_id is None else tuple(self.doc_id[row] for row in rows.tolist()),
        )

    def __sizeof__(self) -> int:
        # Dask sees a dataclass as 0 bytes without this: no spilling, wrong placement (kartothek#175, xarray#9088).
        size = self.indptr.nbytes + self.terms.nbytes + self.counts.nbytes + 256
        size += sum(column.nbytes for column in (*self.responses.values(), *self.covariates.values()))
        size += 0 if self.weight is None else self.weight.nbytes
        return size + (0 if self.doc_id is None else sum(len(i) + 56 for i in self.doc_id))

    def validate(self, n_terms: int) -> DocumentBlock:
        """Check the invariants of the attributes against a vocabulary of `n_terms` and return self.

        Raises
        ------
        InputError
            A document breaks a rule; the message names the first one.
        """
        nnz = len(self.terms)
        if len(self.indptr) == 0 or self.indptr[0] != 0 or self.indptr[-1] != nnz or len(self.counts) != nnz:
            raise InputError(
                f"indptr must run from 0 to the number of entries ({nnz} terms, {len(self.counts)} "
                f"counts), got {self.indptr[:1]}..{self.indptr[-1:]}",
                place="document block",
            )
        lengths = np.diff(self.indptr)
        if np.any(lengths < 0):
            raise InputError(
                f"indptr falls at document {int(np.argmax(lengths < 0))}", place="document block"
            )
        for fault, bad in (
            (f"a term outside 0..{n_terms - 1}", (self.terms < 0) | (self.terms >= n_terms)),
            ("a count below 1", self.counts < 1),
        ):
            if bad.any():
                raise InputError(f"has {fault}", place=f"document {self._document_of(int(np.argmax(bad)))}")
        falls = np.diff(self.terms) <= 0
        inner = np.ones(max(nnz - 1, 0), dtype=bool)
        starts = self.indptr[1:-1]
        inner[starts[(starts > 0) & (starts < nnz)] - 1] = False
        if (falls & inner).any():
            entry = int(np.argmax(falls & inner)) + 1
            raise InputError("terms must be strictly ascending", place=f"document {self._document_of(entry)}")
        per_document = [*self.responses.items(), *self.covariates.items()]
        if self.weight is not None:
            per_document.append(("weight", self.weight))
        for name, values in per_document:
            if len(values) != self.n_documents:
                raise InputError(f"{name!r} has {len(values)} values for {self.n_documents} documents")
        return self

    def _document_of(self, entry: int) -> str:
        d = int(np.searchsorted(self.indptr, entry, side="right")) - 1
        return repr(self.doc_id[d]) if self.doc_id is not None else f"{d} of the block"


def document_mask(documents: ArrayLike, n_documents: int) -> NDArray[np.bool_]:
    """A boolean mask of shape (n_documents,) from a mask or from row numbers, in any order.

    Raises
    ------
    InputError
        The mask is of another length, a row number does not exist or comes twice, or nothing is selected.
    """
    chosen: NDArray[Any] = np.asarray(documents)
    mask: NDArray[np.bool_] = np.zeros(n_documents, dtype=np.bool_)
    reason = None
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        reason = (
            "must be a boolean mask or row numbers, in one dimension, got an array of "
            f"{chosen.dtype} with shape {chosen.shape}"
        )
    elif chosen.dtype.kind == "b":
        mask = chosen
        if len(mask) != n_documents:
            reason = f"must have one entry for each of {n_documents} documents, got {len(mask)}"
    elif len(outside := chosen[(chosen < 0) | (chosen >= n_documents)]):
        reason = f"must be row numbers in 0..{n_documents - 1}, got {outside[0]}"
    else:
        mask[chosen] = True
        if repeated := len(chosen) - int(mask.sum()):
            reason = f"must name each row once, got {repeated} rows again"
    if reason is None and not mask.any():
        reason = f"must select at least one of {n_documents} documents, got none"
    if reason is not None:
        raise InputError(reason, parameter="documents")
    return mask


def borders(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """The `indptr` of documents with these numbers of entries."""
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return indptr


def entries_of(
    indptr: NDArray[np.int64], rows: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The `indptr` of some documents, and the numbers of their entries among those of all."""
    lengths = np.diff(indptr)[rows]
    new = borders(lengths)
    return new, np.repeat(indptr[rows] - new[:-1], lengths) + np.arange(new[-1])
