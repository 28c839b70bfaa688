"""Survey of the columns of a fit before it starts: invalid values, and weighted moments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.corpus.summary import ResponseSummary, merged_moments
from dslda.engine.data.training_view import TrainingView
from dslda.families.base import Family
from dslda.variational.design import outside_of_role

__all__ = ["Moments", "Survey", "Wrong", "survey_block"]


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of the numbers with a weight above 0; NaN if there are none. The variance divides by `weight`, the sum."""

    weight: float = 0.0
    mean: float = math.nan
    variance: float = math.nan
    minimum: float = math.nan
    maximum: float = math.nan

    @classmethod
    def of(cls, values: NDArray[np.float64], weights: NDArray[np.float64]) -> Moments:
        """Moments of values, shape (D,), with weights of the same shape."""
        total = float(weights.sum())
        if not total > 0.0:
            return cls()
        values, weights = values[weights > 0.0], weights[weights > 0.0]
        shares = weights / total
        mean = float(shares @ values)
        variance = float(shares @ np.square(values - mean))
        return cls(total, mean, variance, float(values.min()), float(values.max()))

    @classmethod
    def of_summary(cls, summary: ResponseSummary) -> Moments:
        """Moments of numbers of weight 1."""
        return cls(float(summary.n), summary.mean, summary.variance, summary.minimum, summary.maximum)

    def merge(self, other: Moments) -> Moments:
        """Moments of the numbers of both."""
        if not (self.weight > 0.0 and other.weight > 0.0):
            return self if self.weight > 0.0 else other
        weight = self.weight + other.weight
        mean, variance = merged_moments(
            (self.mean, self.variance), (other.mean, other.variance), share=other.weight / weight
        )
        return Moments(
            weight, mean, variance, min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        )


@dataclass(frozen=True, slots=True)
class Wrong:
    """The first invalid value of a column, the row of its document, and the document's trials or event (NaN without)."""

    row: int
    value: float
    auxiliary: float = math.nan


@dataclass(frozen=True, slots=True)
class Survey:
    """Survey of the training documents, or of one partition of them.

    Attributes
    ----------
    moments : mapping of str to Moments
        Moments of each column (of its codes, if it holds names) over the documents with a response, by their weights.
    masses : mapping of str to ndarray of float64, shape (number of levels,)
        Weight of the documents with a response at each level of a column of names, or in each class.
    wrong : mapping of str to Wrong
        Invalid values by role, such as "response", including those in documents of weight 0.
    """

    moments: Mapping[str, Moments] = field(default_factory=dict)
    masses: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    wrong: Mapping[str, Wrong] = field(default_factory=dict)

    def merge(self, other: Survey) -> Survey:
        """Survey of both; the documents of `self` come first."""
        return Survey(
            {
                name: self.moments.get(name, Moments()).merge(moments)
                for name, moments in other.moments.items()
            },
            {name: self.masses.get(name, 0.0) + mass for name, mass in other.masses.items()},
            {**other.wrong, **self.wrong},
        )

    @classmethod
    def merge_all(cls, parts: Sequence[Survey]) -> Survey:
        """Survey of all, in their order."""
        return reduce(cls.merge, parts, cls())

    def moved(self, start: int) -> Survey:
        """The same survey with rows counted from `start` on."""
        return replace(self, wrong={role: replace(w, row=start + w.row) for role, w in self.wrong.items()})


def survey_block(
    block: DocumentBlock, view: TrainingView, *, family: Family, n_levels: Mapping[str, int]
) -> Survey:
    """Survey one partition; rows are counted in the stored block.

    `n_levels` has the number of names in each column of names, and of classes of the response if it has classes.
    """
    design, rows = view.design, view.rows(block)
    columns = {name: block.covariates[name][rows] for name in design.columns}
    y = view.raw(block)
    observed = ~np.isnan(y)
    wrong: dict[str, Wrong] = {}

    def note(role: str, values: NDArray[np.float64], bad: NDArray[np.bool_]) -> None:
        if bad.any():
            i = int(np.argmax(bad))
            wrong[role] = Wrong(int(rows[i]), float(values[i]), math.nan if aux is None else float(aux[i]))

    aux = None if design.auxiliary is None else columns[design.auxiliary]
    roles = {"weight": design.weight, "exposure": design.exposure, family.auxiliary: design.auxiliary}
    for role, name in roles.items():
        if name is not None:
            note(role, columns[name], outside_of_role(role, columns[name]))
    if design.response not in n_levels:
        note("response", y, observed & ~family.check(y, aux))
    weights = np.ones(len(y)) if block.weight is None else block.weight[rows]
    if design.weight is not None:
        weights = weights * columns[design.weight]
    weights = np.maximum(weights[observed], 0.0)
    codes = {design.response: design.to_model(y)} | columns
    moments = {
        name: Moments.of(values[observed], weights)
        for name, values in (columns | {design.response: y}).items()
    }
    masses = {
        name: np.asarray(
            np.bincount(codes[name][observed].astype(np.int64), weights, minlength=n), np.float64
        )
        for name, n in n_levels.items()
    }
    return Survey(moments, masses, wrong)
