"""Summaries of responses and covariates, made by workers and merged by the driver."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from dslda.exceptions import InputError
from dslda.storage.typed_json import Count
from dslda.wording import short_repr

__all__ = ["DISTINCT_LIMIT", "ResponseSummary", "StoredSummary", "merged_moments", "new_share", "oov_share"]

LOOKS = {
    "missing": "no value",
    "constant": "all the same",
    "binary": "0 and 1",
    "count": "whole numbers",
    "integer": "whole numbers",
    "real": "real numbers",
}

MOMENTS = ("mean", "variance", "minimum", "maximum")

DISTINCT_LIMIT = 256
"""Distinct values are listed up to this many: enough for ratings and for codes of classes."""


@dataclass(frozen=True, slots=True, eq=False)
class ResponseSummary:
    """Summary of the values of one response or covariate, or of the codes of a categorical one.

    Attributes
    ----------
    n, missing : int
        Documents with a value, and without.
    mean, variance : float
        Moments of the values; the variance divides by `n`. Like `minimum` and `maximum`, NaN if there is no value.
    minimum, maximum : float
    whole : bool
        All values are whole numbers.
    distinct : tuple of float or None
        The distinct values in rising order, None when there are more than 256.
    counts : tuple of int or None
        Number of documents with each distinct value.
    """

    n: int = 0
    missing: int = 0
    mean: float = math.nan
    variance: float = math.nan
    minimum: float = math.nan
    maximum: float = math.nan
    whole: bool = True
    distinct: tuple[float, ...] | None = ()
    counts: tuple[int, ...] | None = ()

    __repr__ = short_repr

    @classmethod
    def of(cls, values: ArrayLike) -> ResponseSummary:
        """Summarise an array; NaN is missing.

        Raises
        ------
        InputError
            A value is infinite, or so large that its square is.
        """
        column = np.asarray(values, dtype=np.float64)
        observed = column[~np.isnan(column)]
        if observed.size == 0:
            return cls(missing=column.size)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(observed.mean())
            variance = float(np.square(observed - mean).mean())
        if not math.isfinite(variance):
            raise InputError(
                f"a value and its square must be finite, got {np.abs(observed).max()}; rescale the "
                "response or covariate"
            )
        distinct, counts = np.unique(observed, return_counts=True)
        few = distinct.size <= DISTINCT_LIMIT
        return cls(
            n=observed.size,
            missing=column.size - observed.size,
            mean=mean,
            variance=variance,
            minimum=float(distinct[0]),
            maximum=float(distinct[-1]),
            whole=bool((distinct == np.floor(distinct)).all()),
            distinct=tuple(distinct.tolist()) if few else None,
            counts=tuple(counts.tolist()) if few else None,
        )

    def merge(self, other: ResponseSummary) -> ResponseSummary:
        """Summary of the values of both (Chan, Golub and LeVeque 1983).

        Exact but for rounding; merge in the order of partitions for the same bits every time.
        """
        missing = self.missing + other.missing
        if not self.n or not other.n:
            return replace(self if self.n else other, missing=missing)
        n = self.n + other.n
        distinct, counts = _merge_counts(self, other)
        return ResponseSummary(
            n,
            missing,
            *merged_moments((self.mean, self.variance), (other.mean, other.variance), share=other.n / n),
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            whole=self.whole and other.whole,
            distinct=distinct,
            counts=counts,
        )

    @classmethod
    def merge_all(cls, summaries: Iterable[ResponseSummary]) -> ResponseSummary:
        """Merge summaries from the left."""
        return reduce(cls.merge, summaries, cls())

    @property
    def kind(self) -> str:
        """Kind of the values: "missing", "constant", "binary" (0 and 1), "count", "integer" or "real"."""
        if not self.n:
            return "missing"
        if self.minimum == self.maximum:
            return "constant"
        if self.distinct == (0.0, 1.0):
            return "binary"
        if self.whole:
            return "count" if self.minimum >= 0 else "integer"
        return "real"

    @property
    def looks(self) -> str:
        """Words for the kind; they do not decide how a model treats the values, but its family does."""
        return LOOKS[self.kind]

    def __eq__(self, other: object) -> bool:
        # NaN, where there is no value, equals nothing
        return self.to_json() == other.to_json() if isinstance(other, ResponseSummary) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.n, self.missing, self.distinct))

    def to_json(self) -> dict[str, Any]:
        """The summary as a JSON object, with null where there is no value."""
        moments = {name: getattr(self, name) if self.n else None for name in MOMENTS}
        return {
            "kind": self.kind,
            "n": self.n,
            "missing": self.missing,
            **moments,
            "whole": self.whole,
            "distinct": None if self.distinct is None else list(self.distinct),
            "counts": None if self.counts is None else list(self.counts),
        }


class StoredSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary in a manifest, as :meth:`ResponseSummary.to_json` wrote it."""

    n: Count
    missing: Count
    mean: float | None = None
    variance: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    whole: bool | None = None
    distinct: tuple[float, ...] | None = None
    counts: tuple[Count, ...] | None = None

    def __post_init__(self) -> None:
        self.summary()

    def summary(self) -> ResponseSummary:
        """The summary; ValueError where the fields contradict one another."""
        if self.n == 0:
            return ResponseSummary(missing=self.missing)
        for name in (*MOMENTS, "whole"):
            if getattr(self, name) is None:
                raise ValueError(f"`{name}` must not be `null` where `n` is not 0")
        values = {field.name: getattr(self, field.name) for field in fields(ResponseSummary)}
        summary = ResponseSummary(**values | ({"counts": None} if self.distinct is None else {}))
        if summary.variance < 0 or summary.minimum > summary.maximum:
            raise ValueError("`minimum` must not exceed `maximum` nor `variance` be negative")
        if self.distinct is not None and (
            self.counts is None or len(self.counts) != len(self.distinct) or sum(self.counts) != self.n
        ):
            raise ValueError(f"`counts` must say how many of `n` = {self.n} have each distinct value")
        return summary


def oov_share(n_known: int, n_all: int | None) -> float | None:
    """Share of `n_all` tokens that a vocabulary lacks, if it has `n_known` of them; None if unknown."""
    return 1.0 - n_known / n_all if n_all else None


def new_share(n_known: int, n_all: int | None, n_too_frequent: int | None) -> float | None:
    """:func:`oov_share` without the `n_too_frequent` tokens of terms that were left out as too frequent."""
    if n_all is None or n_too_frequent is None:
        return None
    return oov_share(n_known, n_all - n_too_frequent)


def merged_moments(
    one: tuple[float, float], other: tuple[float, float], *, share: float
) -> tuple[float, float]:
    """Mean and variance of the union of two sets of numbers (Chan, Golub and LeVeque 1983); `share` is the other's."""
    step = other[0] - one[0]
    within = one[1] * (1 - share) + other[1] * share
    return one[0] + step * share, within + step * step * share * (1 - share)


def _merge_counts(
    one: ResponseSummary, other: ResponseSummary
) -> tuple[tuple[float, ...] | None, tuple[int, ...] | None]:
    if one.distinct is None or other.distinct is None or one.counts is None or other.counts is None:
        return None, None
    total = Counter(dict(zip(one.distinct, one.counts, strict=True)))
    total.update(dict(zip(other.distinct, other.counts, strict=True)))
    if len(total) > DISTINCT_LIMIT:
        return None, None
    values = sorted(total)
    return tuple(values), tuple(total[value] for value in values)
