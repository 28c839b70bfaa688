"""The values that a response, or a column beside it, may take. By itself: reading a model needs it, and no compiler."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval"]


@dataclass(frozen=True, slots=True)
class Interval:
    """The values a response may take: validation, messages and test generators read this one object."""

    low: float = -math.inf
    high: float = math.inf
    low_closed: bool = False
    high_closed: bool = False
    integer: bool = False

    def contains(self, y: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Elementwise membership; NaN (missing) is never a member."""
        above = (y >= self.low) if self.low_closed else (y > self.low)
        below = (y <= self.high) if self.high_closed else (y < self.high)
        inside = above & below
        return inside & (np.floor(y) == y) if self.integer else inside

    def __str__(self) -> str:
        kind = "whole numbers" if self.integer else "numbers"
        if self.low == -math.inf and self.high == math.inf:
            return f"finite {kind}"
        left = "[" if self.low_closed else "("
        right = "]" if self.high_closed else ")"
        return f"{kind} in {left}{self.low:g}, {self.high:g}{right}"
