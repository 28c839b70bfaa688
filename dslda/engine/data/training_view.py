"""Views of blocks for a fit: the documents to train on, with response and columns on the scale of the fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock, entries_of
from dslda.corpus.summary import ResponseSummary
from dslda.engine.data.resampling import Resample
from dslda.variational.design import Design

__all__ = ["PartitionLoader", "TrainingBlock", "TrainingView", "unpacked"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class TrainingBlock:
    """A partition as the E-step sees it.

    Attributes
    ----------
    indptr, terms, counts : ndarray of int64, int32, int32, shapes (D + 1,), (nnz,), (nnz,)
        Term counts as in :class:`~dslda.corpus.block.DocumentBlock`.
    y : ndarray of float64, shape (D,)
        Standardised response, NaN where missing.
    extras : ndarray of float64, shape (D, 4 + P), or None
        See :meth:`~dslda.variational.design.Design.extras`.
    first_row : int
        Row in the source of the first stored document of the partition.
    numbers : ndarray of int64, shape (D,), or None
        The stored documents of the partition that these are, counted from 0; None if they are all.
    """

    indptr: NDArray[np.int64]
    terms: NDArray[np.int32]
    counts: NDArray[np.int32]
    y: NDArray[np.float64]
    extras: NDArray[np.float64] | None = None
    first_row: int = 0
    numbers: NDArray[np.int64] | None = None

    @property
    def n_documents(self) -> int:
        return len(self.indptr) - 1

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows in the source of the documents of the block, shape (D,)."""
        return self.first_row + (np.arange(self.n_documents) if self.numbers is None else self.numbers)

    def row(self, document: int) -> int:
        """The row in the source of a document of the block."""
        return int(self.rows[document])

    def take(self, rows: NDArray[np.bool_]) -> TrainingBlock:
        """The documents of a mask."""
        numbers = np.flatnonzero(rows)
        indptr, entries = entries_of(self.indptr, numbers)
        return TrainingBlock(
            indptr,
            self.terms[entries],
            self.counts[entries],
            self.y[numbers],
            None if self.extras is None else self.extras[numbers],
            self.first_row,
            numbers if self.numbers is None else self.numbers[numbers],
        )

    def __sizeof__(self) -> int:
        # without this Dask takes a dataclass for 0 bytes: no spilling, wrong placement (kartothek#175, xarray#9088)
        arrays = self.indptr, self.terms, self.counts, self.y, self.extras, self.numbers
        return sum(array.nbytes for array in arrays if array is not None) + 128


@dataclass(frozen=True, slots=True, eq=False)
class TrainingView:
    """Turns a block of documents into the training data of one fit. Small, and a pure function of the block.

    Attributes
    ----------
    design : Design
        The columns and their scales.
    kept : ndarray of uint8 or None
        Bits of the documents to keep (`numpy.packbits`), None to keep all. Packed, since it travels with every task.
    first_row : int
        Row in the source of the first document of the block.
    resample : Resample or None
        Weighs the documents to train on, and leaves out those that it does not draw; only :meth:`__call__` follows it.
    """

    design: Design
    kept: NDArray[np.uint8] | None = None
    first_row: int = 0
    resample: Resample | None = None

    def __call__(self, block: DocumentBlock) -> TrainingBlock:
        if self.resample is not None:
            return self._resampled(block, self.resample)
        raw = self._responses(block)
        extras = self.design.extras(block.covariates, y=raw, weight=block.weight)
        y = self.design.to_model(raw)
        if self.kept is None:
            return TrainingBlock(block.indptr, block.terms, block.counts, y, extras, self.first_row)
        numbers = self.rows(block)
        block = block.take(numbers)
        extras = None if extras is None else extras[numbers]
        return TrainingBlock(
            block.indptr, block.terms, block.counts, y[numbers], extras, self.first_row, numbers
        )

    def _resampled(self, block: DocumentBlock, resample: Resample) -> TrainingBlock:
        times = resample.times(self.first_row + np.arange(block.n_documents))
        weight = times if block.weight is None else times * block.weight
        drawn = replace(self, resample=None)(replace(block, weight=weight))
        return drawn.take(times[self.rows(block)] > 0.0)

    def raw(self, block: DocumentBlock) -> NDArray[np.float64]:
        """Responses of the documents kept, in the user's units, NaN where a column of the design is missing."""
        y = self._responses(block)
        return y if self.kept is None else y[self._mask(block)]

    def rows(self, block: DocumentBlock) -> NDArray[np.int64]:
        """Rows of the block of the documents kept."""
        return np.arange(block.n_documents) if self.kept is None else np.flatnonzero(self._mask(block))

    def left_out(self, block: DocumentBlock) -> NDArray[np.int64]:
        """Rows of the block of the documents kept that have a response but lack a column of the design."""
        rows = self.rows(block)
        observed = ~np.isnan(block.responses[self.design.response][rows])
        return rows[observed & np.isnan(self.raw(block))]

    def summary(self, block: DocumentBlock) -> ResponseSummary:
        return ResponseSummary.of(self.raw(block))

    def _responses(self, block: DocumentBlock) -> NDArray[np.float64]:
        y = block.responses[self.design.response]
        lacking = self.design.lacking(block.covariates)
        return y if lacking is None or not lacking.any() else np.where(lacking, np.nan, y)

    def _mask(self, block: DocumentBlock) -> NDArray[np.bool_]:
        assert self.kept is not None
        return unpacked(self.kept, block.n_documents)


def unpacked(bits: NDArray[np.uint8], n_documents: int) -> NDArray[np.bool_]:
    """The mask of shape (n_documents,) of packed bits."""
    return np.unpackbits(bits, count=n_documents).view(np.bool_)


@dataclass(frozen=True, slots=True)
class PartitionLoader:
    """Reads one partition for training. Picklable and small, so that any worker can have one."""

    read: Callable[[], DocumentBlock]
    view: TrainingView

    def __call__(self) -> TrainingBlock:
        return self.view(self.read())
