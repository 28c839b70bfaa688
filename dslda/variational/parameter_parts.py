"""Parameters in parts, and the E-step of a partition on the rows of topics that it needs.

The vocabulary of a partition is often a small part of V. Its E-step then runs on a table with the topics of its own terms,
and its statistics have rows only for these terms. That leaves less memory to zero, hold and send.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dslda.families.base import Array, Family
from dslda.variational.estep import e_step
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics, is_dense

__all__ = ["ParameterParts", "as_sent", "borders", "e_step_of_parts"]


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
            topics = [part.topics for part in self._parts]
            joined = topics[0] if self.in_one_piece else np.concatenate(topics)
            aligned = np.require(joined, dtype=np.float64, requirements=["C", "A"])
            self._whole = replace(self._parts[0], topics=aligned)
        return self._whole

    def of_terms(self, terms: NDArray[np.int64]) -> Parameters:
        """Parameters with the topics of `terms`, which ascend."""
        topics = np.empty((len(terms), self._parts[0].n_topics))
        rows = [0, *np.searchsorted(terms, self._ends).tolist()]
        first = 0
        for part, a, b, end in zip(self._parts, rows[:-1], rows[1:], self._ends.tolist(), strict=True):
            topics[a:b] = part.topics[terms[a:b] - first]
            first = end
        return replace(self._parts[0], topics=topics)


def e_step_of_parts(
    indptr: NDArray[np.int64],
    terms: NDArray[np.int32],
    counts: NDArray[np.int32],
    y: Array,
    parameters: ParameterParts,
    *,
    family: Family,
    spec: FitSpec,
    extras: Array | None = None,
    joint: bool = False,
) -> SufficientStatistics:
    """Run :func:`~dslda.variational.estep.e_step`, with the same bits, on the rows of the terms in the block.

    It uses all rows if the block has most of the vocabulary and the parameters are in one piece.
    """
    occurs = np.zeros(parameters.n_terms, dtype=np.bool_)
    occurs[terms] = True
    # without a row the kernels would sum nothing
    occurs[0] |= not len(terms)
    used = np.flatnonzero(occurs)
    if parameters.in_one_piece and is_dense(len(used), parameters.n_terms):
        whole = parameters.whole()
        return e_step(indptr, terms, counts, y, whole, family=family, spec=spec, extras=extras, joint=joint)
    row = np.empty(parameters.n_terms, dtype=np.int32)
    row[used] = np.arange(len(used), dtype=np.int32)
    statistics = e_step(
        indptr,
        row[terms],
        counts,
        y,
        parameters.of_terms(used),
        family=family,
        spec=spec,
        extras=extras,
        joint=joint,
    )
    if len(used) < parameters.n_terms:
        statistics.terms, statistics.n_terms = used, parameters.n_terms
    return statistics


def as_sent(parameters: Parameters, n_parts: int, *, float32: bool) -> Iterator[Parameters]:
    """The parts in which parameters travel: consecutive, nearly equal ranges of the terms, with all but topics in each.

    With `float32`, topics lose their last digits; otherwise they are views. An executor without workers does the same, to get
    the same bits.
    """
    for start, stop in itertools.pairwise(borders(parameters.n_terms, n_parts)):
        topics = parameters.topics[start:stop]
        yield replace(parameters, topics=topics.astype(np.float32) if float32 else topics)
