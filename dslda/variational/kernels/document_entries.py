"""The entries of a document, and their topic weights gathered into tiles.

The entries are the document's known terms, each with its c occurrences tied to one phi, or its single tokens, c = 1. Terms
serve granularity "term" and every document without response, for which ties change nothing.

A tile of beta is rows row, ..., row + K - 1 of one matrix of `width` columns, padded with zeros on the right. A view of each
tile would cost more than the arithmetic on it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dslda.variational.kernels.scratch import (
    LANES,
    OPTIONS,
    RESIDENT_DOUBLES,
    SMALLEST_WEIGHT,
    TILE_DOUBLES,
    WIDEST,
    KernelParameters,
    Matrix,
    Scratch,
)


class Observed(NamedTuple):
    """The response of a document and its companions, see `Family`; rho includes the document's emphasis."""

    y: float
    labelled: bool
    offset: float
    aux: float
    rho: float


class Document(NamedTuple):
    """A document as the sweeps see it; its entries are in `Scratch`."""

    observed: Observed
    n: int  # entries
    length: float  # N
    width: int  # entries in a tile
    resident: bool  # whether all tiles of topic weights are kept, or one
    weights: Matrix


@njit(**OPTIONS)
def tile_width(n: int, n_topics: int) -> int:
    """Entries in each tile of a document of `n`: a multiple of `LANES` that makes tiles nearly equal."""
    widest = min(WIDEST, max(2 * LANES, TILE_DOUBLES // n_topics // LANES * LANES))
    n_tiles = (n + widest - 1) // widest
    return ((n + n_tiles - 1) // n_tiles + LANES - 1) // LANES * LANES


@njit(**OPTIONS)
def cut(weight: float) -> float:
    """A topic weight, or zero where it is too small to calculate with."""
    return weight if weight >= SMALLEST_WEIGHT else 0.0


@njit(**OPTIONS)
def is_known(topics: Matrix, term: int) -> bool:
    """Whether the term has mass in some topic; as a rule the first topic answers."""
    for k in range(topics.shape[1]):
        if topics[term, k] >= SMALLEST_WEIGHT:
            return True
    return False


@njit(**OPTIONS)
def gather(
    topics: Matrix, terms: NDArray[np.int32], start: int, stop: int, weights: Matrix, row: int
) -> None:
    """Write the tile of the entries start, ..., stop - 1. Four terms a pass: their rows are far apart in memory."""
    n = stop - start
    blocked = n - n % 4
    for e in range(0, blocked, 4):
        w0, w1, w2, w3 = terms[start + e], terms[start + e + 1], terms[start + e + 2], terms[start + e + 3]
        for k in range(topics.shape[1]):
            weights[row + k, e] = cut(topics[w0, k])
            weights[row + k, e + 1] = cut(topics[w1, k])
            weights[row + k, e + 2] = cut(topics[w2, k])
            weights[row + k, e + 3] = cut(topics[w3, k])
    for k in range(topics.shape[1]):
        for e in range(blocked, n):
            weights[row + k, e] = cut(topics[terms[start + e], k])
        for e in range(n, weights.shape[1]):
            weights[row + k, e] = 0.0


@njit(**OPTIONS)
def lay_out(model: KernelParameters, s: Scratch, observed: Observed, n: int, length: float) -> Document:
    """Cut the first `n` entries in `s` into tiles, and gather their topic weights where they fit."""
    n_topics = model.topics.shape[1]
    width = tile_width(n, n_topics)
    resident = n_topics * n <= RESIDENT_DOUBLES
    n_rows = n_topics * ((n + width - 1) // width) if resident else n_topics
    weights = s.weights[: n_rows * width].reshape((n_rows, width))
    if resident:
        for start in range(0, n, width):
            gather(model.topics, s.terms, start, min(start + width, n), weights, n_topics * (start // width))
    return Document(observed, n, length, width, resident, weights)


@njit(**OPTIONS)
def tile_row(model: KernelParameters, s: Scratch, document: Document, start: int) -> int:
    """Row of `document.weights` at which the tile of entry `start` begins."""
    n_topics = model.topics.shape[1]
    if document.resident:
        return n_topics * (start // document.width)
    gather(model.topics, s.terms, start, min(start + document.width, document.n), document.weights, 0)
    return 0


@njit(**OPTIONS)
def load_entries(
    terms: NDArray[np.int32], counts: NDArray[np.int32], topics: Matrix, tied: bool, s: Scratch
) -> tuple[int, int]:
    """Write the entries of a document, with a_n = 0. Terms without mass in any topic are unknown, and left out.

    Returns the number of entries and N, the number of known tokens.
    """
    n = 0
    n_tokens = np.int64(0)
    for i in range(terms.shape[0]):
        if not is_known(topics, terms[i]):
            continue
        n_tokens += counts[i]
        repeats = 1 if tied else counts[i]
        for _ in range(repeats):
            s.terms[n] = terms[i]
            s.copies[n] = counts[i] / repeats
            s.a[n] = 0.0
            n += 1
    return n, n_tokens
