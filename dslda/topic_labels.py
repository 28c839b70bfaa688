"""Labels of topics: the names that a user gives them, in words that a table and a terminal can show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np

from dslda.exceptions import InputError
from dslda.wording import printable

__all__ = ["LONGEST_LABEL", "Label", "checked_label", "with_label"]

LONGEST_LABEL = 80
"""Most characters of a label: a phrase, beside which a table has room for numbers and words."""

Label: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_LABEL)]


def checked_label(label: Any, *, parameter: str = "label") -> str:
    """A label without blanks around it.

    Raises
    ------
    InputError
        It is no text, is blank or too long, or has control characters or ends of lines.
    """
    if not isinstance(label, str):
        raise InputError(f"must be a text, got {label!r:.60}", parameter=parameter)
    name = label.strip()
    if not 0 < len(name) <= LONGEST_LABEL:
        raise InputError(
            f"must have 1 to {LONGEST_LABEL} characters, got {len(name)}: {name!r:.60}", parameter=parameter
        )
    if printable(name) != name or any("\ud800" <= character <= "\udfff" for character in name):
        raise InputError(
            f"must be one line of text without control characters, got {name!r:.60}", parameter=parameter
        )
    return name


def with_label(
    labels: Sequence[str | None], n_topics: int, topic: Any, label: str | None
) -> tuple[str | None, ...]:
    """Labels of all topics after a change of one; empty if none is left.

    Raises
    ------
    InputError
        There is no such topic, or the label cannot be one.
    """
    if isinstance(topic, bool) or not isinstance(topic, (int, np.integer)) or not 0 <= topic < n_topics:
        raise InputError(f"must be a topic, 0 to {n_topics - 1}, got {topic!r:.60}", parameter="topic")
    changed = list(labels) or [None] * n_topics
    changed[int(topic)] = None if label is None else checked_label(label)
    return tuple(changed) if any(changed) else ()
