"""Words of messages that several rooms share."""

from __future__ import annotations

__all__ = ["number_of"]


def number_of(n: int, noun: str) -> str:
    """A number with its noun, which has an s unless the number is 1: ``1 topic``, ``2,000 topics``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
