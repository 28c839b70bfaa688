"""What one iteration does with every partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from dslda.engine.data.training_view import TrainingBlock
from dslda.families.base import Family
from dslda.variational.estep import e_step
from dslda.variational.parameter_parts import ParameterParts, on_own_rows
from dslda.variational.parameters import FitSpec
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.sums import Sums

__all__ = ["E_STEP", "EStepPass", "Pass"]

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
    """The E-step of sLDA; `joint` as in :func:`~dslda.variational.estep.e_step`."""

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
                joint=self.joint,
            ),
        )


E_STEP = EStepPass()
