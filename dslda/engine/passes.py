"""What one iteration does with every partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dslda.engine.data.training_view import TrainingBlock
from dslda.evaluation.topic_quality import CoOccurrence, co_occurrence
from dslda.families.base import Family
from dslda.variational.design import WEIGHT
from dslda.variational.estep import e_step
from dslda.variational.parameter_parts import ParameterParts, on_own_rows
from dslda.variational.parameters import FitSpec
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.sums import Sums

__all__ = ["E_STEP", "CoOccurrencePass", "EStepPass", "Pass"]

S_co = TypeVar("S_co", bound=Sums, covariant=True)


class Pass(Protocol[S_co]):
    """The work of an iteration on one partition. Small, since it travels with tasks, and a pure function of its arguments.

    Statistics of few terms have no rows for the others.
    """

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> S_co: ...


@dataclass(frozen=True, slots=True)
class EStepPass:
    """The E-step of sLDA; options as in :func:`~dslda.variational.estep.e_step`."""

    words_alone: bool = False
    joint: bool = False

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> SufficientStatistics:
        return on_own_rows(
            block.terms,
            parameters,
            lambda terms, own: e_step(
                block.indptr,
                terms,
                block.counts,
                block.y,
                own,
                family=family,
                spec=spec,
                extras=block.extras,
                words_alone=self.words_alone,
                joint=self.joint,
            ),
        )


E_STEP = EStepPass()


@dataclass(frozen=True, slots=True, eq=False)
class CoOccurrencePass:
    """Counts the documents that hold words of a topic together, each by its weight, as in the topics.

    Attributes
    ----------
    top : ndarray of int32, shape (K, N_TOP)
        See :func:`~dslda.evaluation.topic_quality.top_terms`.
    """

    top: NDArray[np.int32]

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> CoOccurrence:
        weight = np.ones(block.n_documents) if block.extras is None else block.extras[:, WEIGHT]
        return co_occurrence(block.indptr, block.terms, weight, top=self.top, n_terms=parameters.n_terms)
