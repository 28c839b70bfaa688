"""The passes that find what single words add to the topics."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from dslda.engine.conditional.selection import Selection
from dslda.engine.conditional.work import on_rows
from dslda.engine.data.training_view import TrainingBlock
from dslda.families.base import Array, Family
from dslda.variational.conditional.posterior import infer_words_of
from dslda.variational.conditional.word_regression import (
    CombinationSums,
    TermSums,
    WordRegressionSums,
    combination_sums,
    term_sums,
    word_regression_sums,
)
from dslda.variational.parameter_parts import ParameterParts
from dslda.variational.parameters import FitSpec
from dslda.variational.remainder import normalised_entries

__all__ = ["CombinationPass", "TermPass", "WordRegressionPass"]

_ENTRIES: WeakKeyDictionary[TrainingBlock, Array] = WeakKeyDictionary()
"""Normalised entries of the blocks in memory: to make them takes longer than a step of the search with them."""


def _entries(block: TrainingBlock) -> Array:
    if block not in _ENTRIES:
        _ENTRIES[block] = normalised_entries(block.indptr, block.counts)
    return _ENTRIES[block]


@dataclass(frozen=True, slots=True)
class TermPass:
    """How many documents have each term; see `term_sums`."""

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> TermSums:
        return on_rows(block, parameters, lambda documents, own: term_sums(documents, own.n_terms))


@dataclass(frozen=True, slots=True, eq=False)
class WordRegressionPass:
    """Sums of the regression on words; documents of the `inner` part judge it, if there is one."""

    intercept: Array
    inner: Selection | None
    differentiated: bool = True

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> WordRegressionSums:
        judging = (
            np.zeros(block.n_documents, dtype=np.bool_) if self.inner is None else self.inner.mask(block)
        )
        return on_rows(
            block,
            parameters,
            lambda documents, own: word_regression_sums(
                replace(documents, entries=_entries(block)),
                block.y,
                own,
                family=family,
                intercept=self.intercept,
                judging=judging,
                extras=block.extras,
                differentiated=self.differentiated,
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class CombinationPass:
    """How well factors of topics and words predict the inner part; see `combination_sums`."""

    inner: Selection
    factors: Array
    topic_center: Array
    word_center: Array
    farthest: float = math.inf

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> CombinationSums:
        chosen = self.inner.of(block)
        return on_rows(
            chosen,
            parameters,
            lambda documents, own: combination_sums(
                documents,
                infer_words_of(documents, own, max_sweeps=spec.max_sweeps),
                chosen.y,
                own,
                family=family,
                factors=self.factors,
                topic_center=self.topic_center,
                word_center=self.word_center,
                extras=chosen.extras,
                farthest=self.farthest,
            ),
        )
