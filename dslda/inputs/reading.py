"""Rules by which text files are read: their encoding, and the separator, escape character and missing values of CSV."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dslda.exceptions import InputError

__all__ = ["NO_CHARACTER", "UTF_8", "ReadingRules"]

UTF_8 = "utf-8"
NO_CHARACTER = "dslda.no_character"
"""Name of the error handler of streams for bytes that are no character of their encoding."""
TAB = r"\t"
"""A tab as shells and other programs let users write it."""
QUOTE = '"'


@dataclass(frozen=True, slots=True)
class ReadingRules:
    r"""Rules that a caller gives for the files of an input; None leaves a rule at its default.

    Attributes
    ----------
    encoding : str, optional
        Encoding of the files by any name that Python knows: "cp1252", "utf-16", "shift_jis". By default UTF-8.
    separator : str, optional
        The character between the cells of CSV, such as ";"; a tab may be written ``\t``. By default a comma, and a tab in
        files that end with ``.tsv`` or ``.tab``.
    escape : str, optional
        The character that takes the meaning from the next one in CSV, as a backslash does in ``"5\" screen"``. By default
        there is none, and quotes in quotes are doubled. They may be doubled beside an escape too.
    na_values : str or sequence of str, optional
        Cells of CSV that stand for a missing value, as written but for the white space around them, in every field that
        is read. Empty cells are missing without it.

    Raises
    ------
    InputError
        A rule cannot hold.
    """

    encoding: str | None = None
    separator: str | None = None
    escape: str | None = None
    na_values: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _encoding(self.encoding))
        for name in ("separator", "escape"):
            character = getattr(self, name)
            if character is not None:
                character = "\t" if character == TAB else character
                object.__setattr__(self, name, character)
                if not isinstance(character, str) or len(character) != 1 or character in f"{QUOTE}\r\n\0":
                    raise InputError(
                        f"must be one character, no quote and no line end, got {character!r:.40}",
                        parameter=name,
                    )
        if self.separator is not None and self.separator == self.escape:
            raise InputError("must differ, got the same character", parameter=("separator", "escape"))
        if self.na_values is not None:
            object.__setattr__(self, "na_values", _na_values(self.na_values))
            for value in self.na_values:
                if self.escape is not None and self.escape in value:
                    raise InputError(
                        f"must not hold the escape character, got {value!r:.40}: cells lose it when they are read",
                        parameter="na_values",
                        remedy="leave {escape=} out if no cell needs it",
                    )

    @property
    def given(self) -> dict[str, Any]:
        """The rules that are not left out, by their names."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def refuse_for(self, what: str, *, taken: Collection[str] = ()) -> None:
        """Refuse the given rules, but for those `taken`, for an input that has no use for them."""
        if unused := [name for name in self.given if name not in taken]:
            raise InputError(f"must be left out for {what}", parameter=unused)

    @property
    def in_words(self) -> str:
        """The given rules, in words."""
        return ", ".join(f"{name} {value!r}" for name, value in self.to_json().items())

    def to_json(self) -> dict[str, Any]:
        """The given rules as a JSON object."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in self.given.items()
        }


def _encoding(name: object) -> str:
    """The name that Python gives an encoding of texts."""
    try:
        if not isinstance(name, str):
            raise LookupError
        codec = codecs.lookup(name)
        # base64 and zip are codecs too; "undefined" refuses everything
        if not getattr(codec, "_is_text_encoding", True) or codec.incrementaldecoder is None:
            raise LookupError
        # punycode takes no handler of errors
        codec.incrementaldecoder(NO_CHARACTER).decode(b"", True)
    except (LookupError, ValueError):
        raise InputError(
            f"must be an encoding that Python knows, such as cp1252, utf-16 or shift_jis, got {name!r:.40}",
            parameter="encoding",
        ) from None
    # a byte order mark is taken off in any case
    return UTF_8 if codec.name == "utf-8-sig" else codec.name


def _na_values(values: object) -> tuple[str, ...]:
    listed = [values] if isinstance(values, str) else values
    if not isinstance(listed, Iterable) or isinstance(listed, (bytes, Mapping)):
        raise InputError(f"must be a list of cells, got {values!r:.40}", parameter="na_values")
    cells = list(listed)
    for cell in cells:
        if not isinstance(cell, str):
            raise InputError(
                f"must be strings, as the cells have them, got {cell!r:.40}",
                parameter="na_values",
                remedy=f"write {str(cell)!r:.40}",
            )
    return tuple(sorted({cell.strip() for cell in cells}))
