"""Words that the messages of several rooms share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from itertools import islice
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "alpha_in_words",
    "check_keywords",
    "error_in_words",
    "first_few",
    "labelled",
    "number_name",
    "number_of",
    "printable",
    "short_repr",
    "stage_in_words",
    "suggesting_keywords",
]

SHOWN_CHARACTERS = 60
SHOWN_ITEMS = 3

_STAGES = {
    "scan": "scanning",
    "read": "reading",
    "write": "writing",
    "verify": "verifying",
    "score": "scoring",
    "predict": "predicting",
    "check": "checking",
    "fit": "fitting",
    "start": "training",
    "replicate": "fitting documents drawn again",
}

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, ends of lines and paragraphs, and what reverses the direction of text."""

P = ParamSpec("P")
T = TypeVar("T")


def number_of(n: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun, whose plural has an s by default: ``1 topic``, ``2,000 topics``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def first_few(names: Sequence[str], n: int) -> str:
    """Up to `n` of the names, and dots for the rest: ``a, b, ...``."""
    return ", ".join(names[:n]) + (", ..." if len(names) > n else "")


def labelled(topic: object, label: str | None) -> str:
    """The number of a topic with its label, where it has one: ``3 (it does not fit)``."""
    return f"{topic}" if label is None else f"{topic} ({label})"


def printable(text: str) -> str:
    """Text that stays on its line of a terminal and changes nothing there: control characters as Python writes them."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def error_in_words(error: BaseException) -> str:
    """An error of code that is not ours, in one line: ``ValueError: too long``."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def number_name(value: float) -> str:
    """The name of a class or level that is a number: all its digits, and no point if it is whole."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def short_repr(value: Any) -> str:
    """The fields of an object of a dataclass or struct, for its ``__repr__``: shapes of arrays, a few of many items."""
    names = getattr(value, "__struct_fields__", None) or value.__dataclass_fields__
    fields = ", ".join(f"{name}={_shortened(getattr(value, name))}" for name in names)
    return f"{type(value).__name__}({fields})"


def _shortened(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"<{value.dtype} {list(value.shape)}>"
    if hasattr(value, "__dataclass_fields__") or hasattr(value, "__struct_fields__"):
        return f"<{type(value).__name__}>"
    if isinstance(value, Mapping):
        items = [f"{name!r}: {_shortened(item)}" for name, item in islice(value.items(), SHOWN_ITEMS)]
        return f"{{{_few(items, len(value))}}}"
    if isinstance(value, (tuple, list)):
        begin, end = "()" if isinstance(value, tuple) else "[]"
        comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
        return f"{begin}{_few(list(map(_shortened, value[:SHOWN_ITEMS])), len(value))}{comma}{end}"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _few(first: Sequence[str], n: int) -> str:
    """The first items, and the number of all if there are more."""
    return ", ".join(first) + (f", ... {n:,} in all" if n > len(first) else "")


def alpha_in_words(alpha: Sequence[float]) -> str:
    """The Dirichlet parameter of the topic proportions: ``0.94 for each topic``, ``0.12 to 1.4, 8.2 in all``."""
    lowest, highest = min(alpha), max(alpha)
    if lowest == highest:
        return f"{lowest:.3g} for each topic"
    return f"{lowest:.3g} to {highest:.3g}, {sum(alpha):.3g} in all"


def stage_in_words(stage: str) -> str:
    """A stage of ingestion or scoring, as progress names it, in words."""
    return _STAGES.get(stage, stage)


def check_keywords(
    function: Callable[..., Any],
    keywords: Iterable[str],
    *,
    known: Collection[str],
    other_names: Mapping[str, str],
) -> None:
    """Refuse keywords that are not `known`, and suggest the right ones, also for names that other libraries use.

    Raises
    ------
    TypeError
        As Python raises.
    """
    unknown = []
    for name in sorted(set(keywords) - set(known)):
        close = get_close_matches(name, [*signature(function).parameters, *known], n=1, cutoff=0.7)
        right = other_names.get(name) or (close[0] if close else None)
        unknown.append(f"{name!r} (write {right}=)" if right else repr(name))
    if unknown:
        raise TypeError(f"{function.__name__}() has no keyword {', '.join(unknown)}")


def suggesting_keywords(other_names: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function so that it refuses wrong keywords as :func:`check_keywords` does."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known = signature(function).parameters

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            check_keywords(function, kwargs, known=known, other_names=other_names)
            return function(*args, **kwargs)

        return checked

    return decorate
