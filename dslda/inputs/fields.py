"""Fields of a record, and the document they hold: a text, or words with counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dslda.exceptions import InputError

__all__ = [
    "Attempt",
    "DocumentFields",
    "Fields",
    "Record",
    "field_value",
    "is_missing",
    "kind_of",
    "plain_value",
]

Record: TypeAlias = Mapping[str, Any]

Attempt: TypeAlias = Record | InputError
"""A record, or why it cannot be read."""

SEPARATORS = (",", ";", "\t", "|")
"""Separators that a header may have in place of the one it is read with."""


@dataclass(frozen=True, slots=True)
class DocumentFields:
    """Fields of a record that hold its document.

    Attributes
    ----------
    text : str or None
        Field of the text; None if documents are words with counts.
    words, counts : str or None
        Fields of the list of words and of the list of their counts.
    terms : sequence of str or None
        Terms of a vocabulary, if the words are positions in it, as digits.
    """

    text: str | None = None
    words: str | None = None
    counts: str | None = None
    terms: Sequence[str] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        for parameter in ("text", "words", "counts"):
            check_field_name(parameter, getattr(self, parameter))
        if self.text is not None and (self.words is not None or self.counts is not None):
            other = "words" if self.words is not None else "counts"
            raise InputError(
                "must not both be named: documents are texts, or words with counts", parameter=("text", other)
            )
        if (self.words is None) != (self.counts is None):
            raise InputError("must both be named, got only one of them", parameter=("words", "counts"))

    @property
    def is_named(self) -> bool:
        """True where a field holds the document."""
        return self.text is not None or self.words is not None

    def in_record(self, record: Record) -> bool:
        """True where a record has these fields."""
        if self.text is not None:
            return self.text in record
        return self.words in record and self.counts in record

    def document(self, record: Record) -> str | tuple[Sequence[Any], Sequence[Any]] | None:
        """The text, or the words and counts, of a record; None where they are missing."""
        if self.text is not None:
            text = field_value(record, self.text, "text")
            if is_missing(text):
                return None
            if not isinstance(text, str):
                raise InputError(f"text {self.text!r} must be a string, got {text!r:.60}")
            return text
        assert self.words is not None
        assert self.counts is not None
        words, counts = _list(record, self.words, "words"), _list(record, self.counts, "counts")
        if words is None and counts is None:
            return None
        if words is None or counts is None or len(words) != len(counts):
            raise InputError(
                f"words {self.words!r} and counts {self.counts!r} must be lists of the same length, got "
                f"{0 if words is None else len(words)} and {0 if counts is None else len(counts)}"
            )
        if self.terms is not None:
            words = [self.terms[int(position)] for position in words]
        return words, counts


@dataclass(frozen=True, slots=True)
class Fields(DocumentFields):
    """Fields of a record, by their use.

    Attributes
    ----------
    id : str or None
        Field of the identifier; None numbers the documents.
    responses, covariates : tuple of str
        Fields of numbers, or of names.
    weight : str or None
    categorical : tuple of str
        Those of the responses and covariates that hold names.
    optional : tuple of str
        Fields that a file may lack.
    """

    id: str | None = None
    responses: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    weight: str | None = None
    categorical: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        DocumentFields.__post_init__(self)  # super() does not work in a dataclass with slots
        for parameter in ("id", "weight"):
            check_field_name(parameter, getattr(self, parameter))
        columns = (*self.responses, *self.covariates)
        for name in self.categorical:
            if name not in columns:
                raise InputError(
                    f"must name fields among those of response and covariates, got {name!r}; "
                    f"these are: {', '.join(map(repr, columns)) or 'none'}",
                    parameter="categorical",
                )

    def named(self) -> dict[str, str]:
        """Every field in use, with its use."""
        single = {"text": self.text, "words": self.words, "counts": self.counts, "id": self.id}
        uses = {name: use for use, name in single.items() if name is not None}
        if self.weight is not None:
            uses.setdefault(self.weight, "weight")
        for name in self.covariates:
            uses.setdefault(name, "covariate")
        for name in self.responses:
            uses.setdefault(name, "response")
        return uses

    @property
    def required(self) -> set[str]:
        """Every field in use that a file must have."""
        return self.named().keys() - set(self.optional)

    def check_against(self, present: Sequence[str], place: str) -> None:
        """Refuse names of fields that are absent or ambiguous, and fields without a document."""
        if not self.is_named:
            raise InputError(
                f"the field of the documents must be named; {_listed(present)}",
                place=place,
                remedy=_separator_remedy(present)
                or (
                    "name that of the texts with {text=}",
                    "those of counted words with {words=} and {counts=}",
                ),
            )
        self.check_present(present, place)

    def check_present(self, names: Sequence[str], place: str) -> None:
        """Refuse names of fields that are absent or ambiguous."""
        for name, use in self.named().items():
            if name not in names and name not in self.optional:
                raise InputError(
                    f"has no field {name!r} for the {use}; {_listed(names)}",
                    place=place,
                    remedy=_separator_remedy(names),
                )
            if names.count(name) > 1:
                raise InputError(f"names the column {name!r} twice", place=place, remedy="rename one")


def check_field_name(parameter: str, name: object) -> None:
    """Refuse a value that cannot be the name of a field."""
    if name is not None and not (isinstance(name, str) and name):
        raise InputError(f"must be the name of a field, got {name!r:.60}", parameter=parameter)


def _listed(names: Sequence[str]) -> str:
    """The names of fields for a message."""
    return f"fields there are: {', '.join(map(repr, names[:50])) or 'none'}"


def _separator_remedy(names: Sequence[str]) -> tuple[str, ...]:
    """Advice where the only name looks like the header of a CSV file with another separator."""
    separator = max(SEPARATORS, key=names[0].count) if len(names) == 1 else ""
    if not separator or separator not in names[0]:
        return ()
    return (f"if {separator!r} is between the cells of the file, name it with {{separator={separator!r}}}",)


def is_missing(value: Any) -> bool:
    """True for null, NaN, and what else libraries write for a missing value: NA, NaT."""
    if value is None:
        return True
    if isinstance(value, (str, int)) or hasattr(value, "__len__"):
        return False
    try:
        return bool(value != value)
    except (TypeError, ArithmeticError):  # NA is neither equal nor unequal, a signalling NaN refuses to say
        return True


def plain_value(value: Any) -> Any:
    """The value in an array without dimensions, None if it is masked; any other value unchanged."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return None if np.ma.is_masked(value) else value[()]
    return value


def kind_of(value: object) -> str:
    """The kind of a value for a message, in the words of JSON if it has one."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else type(value).__name__)


def field_value(record: Record, name: str, use: str) -> Any:
    """The value of a field that a record must have."""
    try:
        return record[name]
    except KeyError:
        listed = ", ".join(map(repr, list(record)[:50])) or "none"
        raise InputError(f"has no field {name!r} for the {use}; fields there are: {listed}") from None


def _list(record: Record, name: str, use: str) -> Sequence[Any] | None:
    value = field_value(record, name, use)
    if is_missing(value):
        return None
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        hint = "; CSV has no lists, JSON lines and Parquet have them" if isinstance(value, str) else ""
        raise InputError(f"{use} {name!r} must be a list, got {value!r:.60}{hint}")
    values: Sequence[Any] = value
    return values
