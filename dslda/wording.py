"""Words of messages that several rooms share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

__all__ = ["check_keywords", "first_few", "number_name", "number_of", "stage_in_words", "suggesting_keywords"]

_STAGES = {
    "scan": "scanning",
    "read": "reading",
    "write": "writing",
    "verify": "verifying",
    "score": "scoring",
    "check": "checking",
}

P = ParamSpec("P")
T = TypeVar("T")


def number_of(n: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun, in the plural, by default with an s, unless it is 1: ``1 topic``, ``2,000 topics``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def first_few(names: Sequence[str], n: int) -> str:
    """Up to `n` of the names, and dots where there are more: ``a, b, ...``."""
    return ", ".join(names[:n]) + (", ..." if len(names) > n else "")


def number_name(value: float) -> str:
    """What a class or level that is a number is called: all its digits, and no point where it is whole."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def stage_in_words(stage: str) -> str:
    """A stage of ingestion or scoring, as progress names it, in words."""
    return _STAGES.get(stage, stage)


def check_keywords(
    function: Callable[..., Any],
    given: Iterable[str],
    *,
    known: Collection[str],
    other_names: Mapping[str, str],
) -> None:
    """Refuse keywords that a function does not have, and say what they are called there.

    Parameters
    ----------
    function : callable
    given : iterable of str
    known : collection of str
        Those that are right.
    other_names : mapping of str to str
        What is right for names that others have for the same.

    Raises
    ------
    TypeError
        As Python raises.
    """
    told = []
    for name in sorted(set(given) - set(known)):
        close = get_close_matches(name, [*signature(function).parameters, *known], n=1, cutoff=0.7)
        right = other_names.get(name) or (close[0] if close else None)
        told.append(f"{name!r} (write {right}=)" if right else repr(name))
    if told:
        raise TypeError(f"{function.__name__}() has no keyword {', '.join(told)}")


def suggesting_keywords(other_names: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function so that a wrong keyword is refused as by :func:`check_keywords`."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known = signature(function).parameters

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            check_keywords(function, kwargs, known=known, other_names=other_names)
            return function(*args, **kwargs)

        return checked

    return decorate
