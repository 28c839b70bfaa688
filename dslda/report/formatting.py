"""Numbers as a reader of the page wants them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dslda.coefficients import Topic

__all__ = ["Digits", "response_value"]

MOST_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Digits:
    """Decimals that coefficients are shown with: two of the standard errors' own, as far as these are known."""

    decimals: int

    @classmethod
    def of(cls, topics: Sequence[Topic]) -> Digits:
        """The decimals for all topics of a model."""
        errors = sorted(t.standard_error for t in topics if t.standard_error > 0.0)
        scale = errors[len(errors) // 2] if errors else max((abs(t.coefficient) for t in topics), default=1.0) / 100.0
        if not scale > 0.0:
            return cls(2)
        return cls(min(max(1 - math.floor(math.log10(scale)), 0), MOST_DECIMALS))

    def shown(self, value: float, *, sign: bool = False) -> str:
        """The number, with its sign even if it is above 0 where that is asked for."""
        text = f"{value:{'+' if sign else ''},.{self.decimals}f}"
        return text.replace("-", "\N{MINUS SIGN}")


def response_value(value: Any) -> str:
    """An observed or predicted response; a dash where it is missing."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
