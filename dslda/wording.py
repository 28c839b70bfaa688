"""Words of messages that several rooms share."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_few", "number_name", "number_of"]


def number_of(n: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun, in the plural, by default with an s, unless it is 1: ``1 topic``, ``2,000 topics``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def first_few(names: Sequence[str], n: int) -> str:
    """Up to `n` of the names, and dots where there are more: ``a, b, ...``."""
    return ", ".join(names[:n]) + (", ..." if len(names) > n else "")


def number_name(value: float) -> str:
    """What a class or level that is a number is called: all its digits, and no point where it is whole."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))
