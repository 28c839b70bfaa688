"""Numbers as a reader of the page wants them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dslda.coefficients import Topic

__all__ = ["Digits", "response_value", "signed", "with_minus"]

MOST_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Digits:
    """Decimals that numbers of one kind are shown with."""

    decimals: int

    @classmethod
    def of(cls, topics: Sequence[Topic]) -> Digits:
        """Decimals in which the uncertainty of the coefficients has one digit, where it is known."""
        errors = sorted(error for topic in topics if (error := _uncertainty(topic)) > 0.0)
        scale = errors[len(errors) // 2] if errors else max(abs(t.coefficient) for t in topics) / 100.0
        if not scale > 0.0:
            return cls(2)
        return cls(min(max(-math.floor(math.log10(scale)), 1), MOST_DECIMALS))

    @classmethod
    def of_numbers(cls, values: Sequence[float]) -> Digits:
        """Decimals in which the largest of some numbers has two digits."""
        largest = max(map(abs, values), default=0.0)
        if not 0.0 < largest < math.inf:
            return cls(2)
        return cls(min(max(1 - math.floor(math.log10(largest)), 0), MOST_DECIMALS))

    def shown(self, value: float, *, sign: bool = False) -> str:
        """The number, with its sign even if it is above 0 where that is asked for."""
        # no minus before a zero
        value = round(value, self.decimals) + 0.0
        return with_minus(f"{value:{'+' if sign else ''},.{self.decimals}f}")


def _uncertainty(topic: Topic) -> float:
    """About the standard error of a coefficient."""
    if topic.low is None or topic.high is None:
        return topic.conditional_error
    return (topic.high - topic.low) / 4.0


def signed(value: float) -> str:
    """A difference with two digits and its sign."""
    return with_minus(f"{value:+.2g}")


def with_minus(number: str) -> str:
    """A number with the minus sign of print."""
    return number.replace("-", "\N{MINUS SIGN}")


def response_value(value: Any) -> str:
    """An observed or predicted response; a dash where it is missing."""
    if value is None:
        return "\N{EN DASH}"
    return with_minus(f"{value:.3g}") if isinstance(value, float) else str(value)
