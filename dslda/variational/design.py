"""Which columns of a corpus a response model uses, and how: from a document's columns to what the E-step reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dslda.families.interval import Interval
from dslda.variational.parameters import Parameters, Scaling

UNSCALED = Scaling()

# names of the columns of a document's extras that come before the covariates, in order
EXTRAS = ("offset", "aux", "weight", "emphasis")
OFFSET, AUX, WEIGHT, EMPHASIS = range(len(EXTRAS))
FIRST_COVARIATE = len(EXTRAS)
# of a document that lacks one, whose response is left out; without a weight it is left out altogether
NEUTRAL = (0.0, 1.0, 0.0, 1.0)

__all__ = ["EXTRAS", "ROLES", "CovariateColumn", "Design", "outside_of_role"]

ROLES = {
    "weight": Interval(0.0, low_closed=True),
    "exposure": Interval(0.0),
    "trials": Interval(1.0, low_closed=True, integer=True),
    "event": Interval(0.0, 1.0, low_closed=True, high_closed=True, integer=True),
}
"""What the columns beside the response may hold; missing values are none of these."""


def outside_of_role(role: str, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each value is one that a column of this role must not hold; NaN (missing) is none."""
    return ~(ROLES[role].contains(values) | np.isnan(values))


@dataclass(frozen=True, slots=True)
class CovariateColumn:
    """One column of the standardised covariates x.

    Attributes
    ----------
    name : str
        The covariate.
    level : int or None
        The column is 1 where the covariate has this code, else 0; None where the covariate is a number.
    center, scale : float
        The column is ``(value - center) / scale``.
    """

    name: str
    level: int | None
    center: float
    scale: float

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        raw = values if self.level is None else np.asarray(values == self.level, dtype=np.float64)
        return (raw - self.center) / self.scale


@dataclass(frozen=True, slots=True)
class Design:
    """The columns of a fit. Small: it travels with tasks and is stored with models.

    Attributes
    ----------
    response : str
    scaling : Scaling
        From the user's response to the one that is fitted.
    exposure : str or None
        Covariate that the expected response is proportional to: its logarithm is an offset of the linear predictor.
    auxiliary : str or None
        Covariate that holds the trials or the event (see :attr:`~dslda.families.base.Family.auxiliary`).
    weight : str or None
        Covariate that holds document weights; they multiply the weights of the block, if it has any.
    trials : bool
        `auxiliary` holds trials, not events.
    classes : tuple of float or None
        The values that a response of classes takes, in rising order: its code is the position. None where the response is
        no class, or a code already.
    class_weight : tuple of float or None
        Weight of each class by its code. A class of weight 0 is left out of the fit; the others shift the log-odds of what
        the fit has found (:meth:`weighed`), and take no part in it.
    covariates : tuple of CovariateColumn
    """

    response: str
    scaling: Scaling = UNSCALED
    exposure: str | None = None
    auxiliary: str | None = None
    weight: str | None = None
    trials: bool = False
    classes: tuple[float, ...] | None = None
    class_weight: tuple[float, ...] | None = None
    covariates: tuple[CovariateColumn, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The covariates of the corpus that must be read."""
        named = [self.exposure, self.auxiliary, self.weight, *(c.name for c in self.covariates)]
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def lacking(self, columns: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_] | None:
        """Documents without a value in one of :attr:`columns`, shape (D,); None where there are no columns.

        Their response says nothing: training takes it for missing.
        """
        found = [np.isnan(columns[name]) for name in self.columns]
        return np.logical_or.reduce(found) if found else None

    def to_model(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """The response that is fitted, NaN where missing."""
        if self.classes is None:
            return self.scaling.to_model(y)
        codes = np.searchsorted(self.classes, y).astype(np.float64)
        codes[np.isnan(y)] = np.nan
        return codes

    def weighed(self, parameters: Parameters, *, back: bool = False) -> Parameters:
        """Parameters for classes that are as frequent as `class_weight` makes them; `back` for those of the fit.

        Where classes are drawn at other rates than they have, the log-odds change by the logarithms of the rates and nothing
        else does (Prentice and Pyke 1979). zbar sums to 1, so that they are added to the coefficients of all topics.
        """
        if self.class_weight is None:
            return parameters
        logs = np.log([weight if weight > 0.0 else 1.0 for weight in self.class_weight])
        shift = logs - logs.mean() if parameters.eta.ndim == 2 else logs[1] - logs[0]
        return replace(parameters, eta=parameters.eta - shift if back else parameters.eta + shift)

    def extras(
        self,
        columns: Mapping[str, NDArray[np.float64]],
        *,
        y: NDArray[np.float64],
        weight: NDArray[np.float64] | None,
    ) -> NDArray[np.float64] | None:
        """What the E-step is told of each document beside its words and response, shape (D, 4 + P).

        None where there is nothing to tell. See :func:`dslda.variational.estep.e_step`.

        Parameters
        ----------
        columns : mapping of str to ndarray of float64, shape (D,)
            Holds :attr:`columns`; NaN where missing, which is then without effect (a weight: 0).
        y : ndarray of float64, shape (D,)
            Responses in the user's units.
        weight : ndarray of float64, shape (D,), optional
            Document weights of the corpus.
        """
        left_out = self.class_weight is not None and min(self.class_weight) == 0.0
        if not self.columns and weight is None and not left_out:
            return None
        ones = np.ones(len(y))
        offset = np.zeros(len(y)) if self.exposure is None else np.log(columns[self.exposure])
        emphasis = ones
        if left_out:
            known = ~np.isnan(y)
            emphasis = ones.copy()
            emphasis[known] = np.asarray(self.class_weight)[self.to_model(y)[known].astype(np.int64)] > 0.0
        parts: Sequence[NDArray[np.float64]] = [
            offset,
            ones if self.auxiliary is None else columns[self.auxiliary],
            (ones if weight is None else weight) * (ones if self.weight is None else columns[self.weight]),
            emphasis,
            *(column.of(columns[column.name]) for column in self.covariates),
        ]
        extras = np.column_stack(parts)
        neutral = (*NEUTRAL, *np.zeros(len(self.covariates)))
        return np.where(np.isnan(extras), neutral, extras)
