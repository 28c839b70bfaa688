"""What is known of a response or covariate without reading it: summaries that workers make and the driver merges."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dslda.corpus.json_fields import boolean, count, items, number
from dslda.exceptions import FormatError, InputError

__all__ = ["DISTINCT_LIMIT", "ResponseSummary"]

DISTINCT_LIMIT = 64
"""Distinct values are listed up to this many: enough for ratings and for codes of classes."""


@dataclass(frozen=True, slots=True, eq=False)
class ResponseSummary:
    """Summary of the values of one response or covariate; of a categorical one, of its codes.

    Attributes
    ----------
    n, missing : int
        Documents with a value, and without.
    mean, variance : float
        Of the values; the variance divides by `n`. NaN when there is no value, as `minimum` and `maximum`.
    minimum, maximum : float
    whole : bool
        All values are whole numbers.
    distinct : tuple of float or None
        The distinct values in rising order, None when there are more than 64.
    """

    n: int = 0
    missing: int = 0
    mean: float = math.nan
    variance: float = math.nan
    minimum: float = math.nan
    maximum: float = math.nan
    whole: bool = True
    distinct: tuple[float, ...] | None = ()

    @classmethod
    def of(cls, values: ArrayLike) -> ResponseSummary:
        """Summarise an array; NaN is missing.

        Raises
        ------
        InputError
            A value is infinite, or so large that its square is.
        """
        given = np.asarray(values, dtype=np.float64)
        seen = given[~np.isnan(given)]
        if seen.size == 0:
            return cls(missing=given.size)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(seen.mean())
            variance = float(np.square(seen - mean).mean())
        if not math.isfinite(variance):
            raise InputError(
                f"a value and its square must be finite, got {np.abs(seen).max()}; rescale the "
                "response or covariate"
            )
        distinct = np.unique(seen)
        return cls(
            n=seen.size,
            missing=given.size - seen.size,
            mean=mean,
            variance=variance,
            minimum=float(distinct[0]),
            maximum=float(distinct[-1]),
            whole=bool((distinct == np.floor(distinct)).all()),
            distinct=tuple(distinct.tolist()) if distinct.size <= DISTINCT_LIMIT else None,
        )

    def merge(self, other: ResponseSummary) -> ResponseSummary:
        """Summary of the values of both (Chan, Golub and LeVeque 1983).

        Exact but for rounding; merge in the order of partitions for the same bits every time.
        """
        missing = self.missing + other.missing
        if not self.n or not other.n:
            return replace(self if self.n else other, missing=missing)
        n = self.n + other.n
        share = other.n / n
        step = other.mean - self.mean
        distinct = None
        if self.distinct is not None and other.distinct is not None:
            union = sorted({*self.distinct, *other.distinct})
            distinct = tuple(union) if len(union) <= DISTINCT_LIMIT else None
        within = self.variance * (1 - share) + other.variance * share
        return ResponseSummary(
            n=n,
            missing=missing,
            mean=self.mean + step * share,
            variance=within + step * step * share * (1 - share),
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            whole=self.whole and other.whole,
            distinct=distinct,
        )

    @classmethod
    def merge_all(cls, summaries: Iterable[ResponseSummary]) -> ResponseSummary:
        """Merge any number of summaries, from the left."""
        return reduce(cls.merge, summaries, cls())

    @property
    def kind(self) -> str:
        """What values look like: "missing", "constant", "binary" (0 and 1), "count", "integer" or "real"."""
        if not self.n:
            return "missing"
        if self.minimum == self.maximum:
            return "constant"
        if self.distinct == (0.0, 1.0):
            return "binary"
        if self.whole:
            return "count" if self.minimum >= 0 else "integer"
        return "real"

    def __eq__(self, other: object) -> bool:
        # not field by field: NaN, where there is no value, equals nothing
        return self.to_json() == other.to_json() if isinstance(other, ResponseSummary) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.n, self.missing, self.distinct))

    def to_json(self) -> dict[str, Any]:
        """The summary as a JSON object, with null where there is no value."""
        some = bool(self.n)
        return {
            "kind": self.kind,
            "n": self.n,
            "missing": self.missing,
            "mean": self.mean if some else None,
            "variance": self.variance if some else None,
            "minimum": self.minimum if some else None,
            "maximum": self.maximum if some else None,
            "whole": self.whole,
            "distinct": None if self.distinct is None else list(self.distinct),
        }

    @classmethod
    def from_json(cls, data: object, where: str) -> ResponseSummary:
        """The reverse of :meth:`to_json`; `where` begins the message of a FormatError."""
        n, missing = count(data, "n", where), count(data, "missing", where)
        if n == 0:
            return cls(missing=missing)
        assert isinstance(data, dict)
        distinct = None
        if data.get("distinct", ()) is not None:
            listed = items(data, "distinct", where)
            distinct = tuple(number({"distinct": value}, "distinct", where) for value in listed)
        summary = cls(
            n=n,
            missing=missing,
            mean=number(data, "mean", where),
            variance=number(data, "variance", where),
            minimum=number(data, "minimum", where),
            maximum=number(data, "maximum", where),
            whole=boolean(data, "whole", where),
            distinct=distinct,
        )
        if summary.variance < 0 or summary.minimum > summary.maximum:
            raise FormatError(
                f"{where}: minimum must not exceed maximum nor variance be negative, got {data!r:.200}"
            )
        return summary
