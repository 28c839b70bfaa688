"""Parts of the training documents, drawn by lot: a hash of each document's row in the source decides.

A document is in the same inner part on any cluster, however the documents are cut into partitions. Each hundred rows that
follow one another give their share to every part, so that parts of small corpora have the size that they should, and parts
of sorted ones have documents from everywhere.

Copies of a document are drawn one by one, since new documents will have as many copies among those trained on as the inner
part has; or together, by a hash of their words, where so many documents are stored more than once that the inner part would
only repeat what the others have taught.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dslda.engine.data.hashes import document_hashes, mixed, uniform
from dslda.engine.data.training_view import TrainingBlock

__all__ = ["ALL", "Selection"]

_DRAWS: WeakKeyDictionary[TrainingBlock, dict[tuple[np.uint64, bool], NDArray[np.float64]]] = (
    WeakKeyDictionary()
)
"""Draws of the blocks in memory, since a fit selects from each block hundreds of times."""

_INNER_SALT, _SLICE_SALT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_SAMPLE_SALT = np.uint64(0x8CB92BA72F3D8DD7)

STRATUM = 100
"""Rows that are drawn together: of them, a part of 0.1 gets ten."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Some of the documents of a block.

    Attributes
    ----------
    inner : bool or None
        Those of the inner part, which chooses when to stop and how far predictions are stretched, or the others; None
        for all.
    share : float
        Share of the documents that the inner part has.
    slice_of : tuple of int (number, n_slices), or None
        One of nearly equal slices of these.
    sample : float
        Share of the documents that a sample of them has.
    by_words : bool
        Draw by words and not by row, so that copies are in one part.
    """

    inner: bool | None = None
    share: float = 0.0
    slice_of: tuple[int, int] | None = None
    sample: float = 1.0
    by_words: bool = False

    def of(self, block: TrainingBlock) -> TrainingBlock:
        """The block of the selected documents."""
        if self.inner is None and self.slice_of is None and self.sample >= 1.0:
            return block
        return block.take(self.mask(block))

    def mask(self, block: TrainingBlock) -> NDArray[np.bool_]:
        """Which documents of the block are selected."""
        mask = np.ones(block.n_documents, dtype=np.bool_)
        if self.inner is not None:
            mask &= (self._draws(block, _INNER_SALT) < self.share) == self.inner
        if self.slice_of is not None:
            number, n_slices = self.slice_of
            mask &= (self._draws(block, _SLICE_SALT) * n_slices).astype(np.int64) == number
        if self.sample < 1.0:
            mask &= self._draws(block, _SAMPLE_SALT) < self.sample
        return mask

    def _draws(self, block: TrainingBlock, salt: np.uint64) -> NDArray[np.float64]:
        """A number of at least 0 and below 1 for each document for one purpose, independent of those for others."""
        draws, key = _DRAWS.setdefault(block, {}), (salt, self.by_words)
        if key not in draws:
            if self.by_words:
                own = document_hashes(block.indptr, block.terms, block.counts)
                draws[key] = uniform(mixed(own ^ salt))
            else:
                draws[key] = _spread(block.rows, salt)
        return draws[key]


def _spread(rows: NDArray[np.int64], salt: np.uint64) -> NDArray[np.float64]:
    """A number for each row of which those of a stratum are spread evenly: one in every hundredth of 0 to 1."""
    strata, own = np.unique(rows // STRATUM, return_inverse=True)
    members = (strata[:, np.newaxis] * STRATUM + np.arange(STRATUM)).astype(np.uint64)
    hashes = mixed(mixed(members) ^ salt)
    places = hashes.argsort(axis=1).argsort(axis=1).astype(np.uint64)
    # of 32 bits below the place, the largest number is below 1
    lots = (places << np.uint64(32)) + (mixed(hashes) >> np.uint64(32))
    numbers: NDArray[np.float64] = (lots / (STRATUM * 2.0**32))[own, rows % STRATUM]
    return numbers


ALL = Selection()
