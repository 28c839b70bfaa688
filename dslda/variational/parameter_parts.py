"""Parameters in parts, and work on the rows of topics that a partition needs.

The vocabulary of a partition is often a small part of V. An E-step then runs on a table with the topics of its own terms,
and its statistics have rows only for these terms. That leaves less memory to zero, hold and send.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dslda.families.base import Array
from dslda.variational.parameters import Parameters
from dslda.variational.sums import Sums, is_dense

__all__ = ["ParameterParts", "as_sent", "borders", "on_own_rows"]

S = TypeVar("S", bound=Sums)


def borders(n_terms: int, n_parts: int) -> list[int]:
    """Borders of `n_parts` nearly equal ranges of the terms: `n_parts` + 1 numbers."""
    return [n_terms * i // n_parts for i in range(n_parts + 1)]


class ParameterParts:
    """Parameters as a worker gets them: in one piece, or in parts of consecutive ranges of the terms.

    Topics may be float32, and unaligned.
    """

    def __init__(self, parts: Sequence[Parameters]) -> None:
        self._parts = parts
        self._whole: Parameters | None = None
        self._ends = np.cumsum([part.n_terms for part in parts])

    @property
    def n_terms(self) -> int:
        return int(self._ends[-1])

    @property
    def in_one_piece(self) -> bool:
        return len(self._parts) == 1

    def whole(self) -> Parameters:
        """All topics, aligned for the kernels, since arrays may arrive unaligned (xgboost#8690); made once."""
        if self._whole is None:
            joined = (np.concatenate(tables) for tables in zip(*map(_tables, self._parts), strict=True))
            aligned = [np.require(table, dtype=np.float64, requirements=["C", "A"]) for table in joined]
            self._whole = _with_tables(self._parts[0], aligned)
        return self._whole

    def of_terms(self, terms: NDArray[np.int64]) -> Parameters:
        """Parameters with the rows of `terms`, which ascend."""
        tables = [np.empty((len(terms), *table.shape[1:])) for table in _tables(self._parts[0])]
        rows = [0, *np.searchsorted(terms, self._ends).tolist()]
        first = 0
        for part, a, b, end in zip(self._parts, rows[:-1], rows[1:], self._ends.tolist(), strict=True):
            rows_of_part = terms[a:b] - first
            for table, of_part in zip(tables, _tables(part), strict=True):
                if of_part.dtype == table.dtype:
                    # straight into the table, where an index makes a copy first
                    np.take(of_part, rows_of_part, axis=0, out=table[a:b], mode="clip")
                else:
                    table[a:b] = of_part[rows_of_part]
            first = end
        return _with_tables(self._parts[0], tables)


def _tables(parameters: Parameters) -> list[Array]:
    """The arrays with a row for every term."""
    remainder = parameters.remainder
    return [parameters.topics] if remainder is None else [parameters.topics, remainder.words]


def _with_tables(parameters: Parameters, tables: Sequence[Array]) -> Parameters:
    remainder = parameters.remainder
    if remainder is not None:
        remainder = replace(remainder, words=tables[1])
    return replace(parameters, topics=tables[0], remainder=remainder)


def on_own_rows(
    terms: NDArray[np.int32],
    parameters: ParameterParts,
    work: Callable[[NDArray[np.int32], Parameters], S],
) -> S:
    """The sums of a block of these terms, from `work` on the rows of topics that the block needs, with the same bits.

    `work` gets the terms as rows of the topics. It gets all rows if the block has most of the vocabulary and the parameters
    are in one piece.
    """
    n_terms = parameters.n_terms
    occurs = np.zeros(n_terms, dtype=np.bool_)
    # without a row the kernels would sum nothing
    occurs[0] = not len(terms)
    # the first entries of a large block have most of the vocabulary, and the others need not be looked at
    for first in range(0, len(terms), 4 * n_terms):
        occurs[terms[first : first + 4 * n_terms]] = True
        if parameters.in_one_piece and is_dense(int(np.count_nonzero(occurs)), n_terms):
            return work(terms, parameters.whole())
    used = np.flatnonzero(occurs)
    row = np.empty(n_terms, dtype=np.int32)
    row[used] = np.arange(len(used), dtype=np.int32)
    sums = work(row[terms], parameters.of_terms(used))
    if len(used) < n_terms:
        sums.terms, sums.n_terms = used, n_terms
    return sums


def as_sent(parameters: Parameters, n_parts: int, *, float32: bool) -> Iterator[Parameters]:
    """The parts in which parameters travel: consecutive, nearly equal ranges of the terms, with all that has no
    row for each term in every one.

    With `float32`, topics lose their last digits; otherwise they are views. An executor without workers does the same, to get
    the same bits.
    """
    for start, stop in itertools.pairwise(borders(parameters.n_terms, n_parts)):
        topics, *others = (table[start:stop] for table in _tables(parameters))
        yield _with_tables(parameters, [topics.astype(np.float32) if float32 else topics, *others])
