"""The columns of a corpus in a response model: from a document's columns to the `extras` of the E-step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dslda.families.base import Array, Interval
from dslda.variational.parameters import Parameters, Scaling

UNSCALED = Scaling()

# columns of a document's extras before the covariates
EXTRAS = ("offset", "aux", "weight", "emphasis")
OFFSET, AUX, WEIGHT, EMPHASIS = range(len(EXTRAS))
FIRST_COVARIATE = len(EXTRAS)
# replacements of missing values: the response is left out, and a document without a weight has weight 0
NEUTRAL = (0.0, 1.0, 0.0, 1.0)

__all__ = ["EXTRAS", "ROLES", "CovariateColumn", "Design", "outside_of_role"]

ROLES = {
    "weight": Interval(0.0, low_closed=True),
    "exposure": Interval(0.0),
    "trials": Interval(1.0, low_closed=True, integer=True),
    "event": Interval(0.0, 1.0, low_closed=True, high_closed=True, integer=True),
}
"""Values that the columns beside the response may hold, apart from NaN (missing)."""


def outside_of_role(role: str, values: Array) -> NDArray[np.bool_]:
    """True for each value that a column of this role must not hold."""
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

    def of(self, values: Array) -> Array:
        raw = values if self.level is None else np.asarray(values == self.level, dtype=np.float64)
        return (raw - self.center) / self.scale


@dataclass(frozen=True, slots=True)
class Design:
    """The columns of a fit. Small, since it travels with tasks and is stored with models.

    Attributes
    ----------
    response : str
    scaling : Scaling
        From the user's response to the one of the fit.
    exposure : str or None
        Covariate to which the expected response is proportional: its logarithm is an offset of the linear predictor.
    auxiliary : str or None
        Covariate that holds the trials or the event (see :attr:`~dslda.families.base.Family.auxiliary`).
    weight : str or None
        Covariate that holds document weights; they multiply the weights of the block, if it has any.
    trials : bool
        `auxiliary` holds trials, not events.
    classes : tuple of float or None
        The values of a response of classes, or of ordered levels from the lowest: a code is a position. None if the response
        is neither, or is a code already.
    class_weight : tuple of float or None
        Weight of each class by its code. A class of weight 0 is left out of the fit. Other weights play no part in the fit,
        but shift its log-odds (:meth:`weighed`).
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
        """The covariates of the corpus to read."""
        names = [self.exposure, self.auxiliary, self.weight, *(c.name for c in self.covariates)]
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def lacking(self, columns: Mapping[str, Array]) -> NDArray[np.bool_] | None:
        """Documents without a value in one of :attr:`columns`, shape (D,); None where there are no columns.

        Training treats their response as missing.
        """
        missing = [np.isnan(columns[name]) for name in self.columns]
        return np.logical_or.reduce(missing) if missing else None

    def to_model(self, y: Array) -> Array:
        """The response on the scale of the fit, NaN where it is missing or none of the classes."""
        if self.classes is None:
            return self.scaling.to_model(y)
        values = np.asarray(self.classes)
        order = np.argsort(values)
        place = np.minimum(np.searchsorted(values[order], y), len(values) - 1)
        codes = order[place].astype(np.float64)
        codes[values[order][place] != y] = np.nan
        return codes

    def weighed(self, parameters: Parameters, *, back: bool = False) -> Parameters:
        """Parameters for classes with the frequencies that `class_weight` implies; with `back`, those of the fit again.

        Sampling classes at different rates changes the log-odds by the logarithms of the rates, and nothing else (Prentice
        and Pyke 1979). Since zbar sums to 1, the logarithms are added to the coefficients of all topics.
        """
        if self.class_weight is None:
            return parameters
        logs = np.log([weight if weight > 0.0 else 1.0 for weight in self.class_weight])
        shift = logs - logs.mean() if parameters.eta.ndim == 2 else logs[1] - logs[0]
        return replace(parameters, eta=parameters.eta - shift if back else parameters.eta + shift)

    def extras(
        self,
        columns: Mapping[str, Array],
        *,
        y: Array,
        weight: Array | None,
    ) -> Array | None:
        """Inputs of the E-step beside words and responses, shape (D, 4 + P); None if all are neutral.

        See :func:`dslda.variational.estep.e_step`.

        Parameters
        ----------
        columns : mapping of str to ndarray of float64, shape (D,)
            Includes :attr:`columns`. A missing value, NaN, has no effect (a missing weight is 0).
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
        parts: Sequence[Array] = [
            offset,
            ones if self.auxiliary is None else columns[self.auxiliary],
            (ones if weight is None else weight) * (ones if self.weight is None else columns[self.weight]),
            emphasis,
            *(column.of(columns[column.name]) for column in self.covariates),
        ]
        extras = np.column_stack(parts)
        neutral = (*NEUTRAL, *np.zeros(len(self.covariates)))
        return np.where(np.isnan(extras), neutral, extras)
