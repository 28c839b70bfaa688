"""Levels: the names that a categorical column holds, such as classes.

A chunk numbers names in the order of their occurrence. Merging sorts the names of all chunks. Codes are positions in the
sorted list, so the way the input is cut cannot change them.
"""

from __future__ import annotations

import contextlib
import json
import math
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import InputError
from dslda.inputs.fields import is_missing, plain_value
from dslda.inputs.in_memory import categories_of_dtypes

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MAX_LEVELS",
    "UNKNOWN",
    "LevelIndex",
    "are_codes",
    "are_levels",
    "check_number",
    "encodable",
    "has_number_categories",
    "level_name",
    "level_order",
    "merge_levels",
    "named_value",
    "numbers_of",
    "one_of_each_boolean",
    "ordered_categories",
    "plain_name",
    "recode",
    "sorted_levels",
]

MAX_LEVELS = 10_000
"""More names than any classification has; a column with more holds texts, identifiers or measurements."""

UNKNOWN = -1.0
"""Code of a name that is no level."""

_WHOLE = re.compile(r"(-?\d+)\.0+")

_TRUTH = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
"""Spellings of booleans by Python and by spreadsheets."""

_BOOLEANS = {"false": "0", "true": "1"}
"""Booleans, and the numbers that stand for them."""

_LONGEST_DECIMAL = 64
"""Digits of a decimal that is written out rather than with an exponent."""

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
"""Names that are spelt as numbers; 007 is not."""


def named_value(value: Any) -> Any:
    """The value that a name is made of: the text of UTF-8, the value in an array without dimensions, any other unchanged."""
    value = plain_value(value)
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
    return value


def level_name(value: Any, what: str) -> str | None:
    """The name that a value stands for; None when it is missing.

    A string is its own name, without white space around it, as is UTF-8. Numbers and booleans have the names that JSON
    writes: ``true``, ``3``, ``2.5``. A whole float has the name of the integer, since pandas makes floats of integers where
    one is missing.

    Parameters
    ----------
    value : object
    what : str
        Begins the message of an error.

    Raises
    ------
    InputError
        The value is none of these.
    """
    value = named_value(value)
    if is_missing(value):
        return None
    if isinstance(value, str):
        return encodable(value).strip() or None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    is_number = isinstance(value, (numbers.Real, Decimal)) and not isinstance(value, np.timedelta64)
    if is_number and isinstance(value, numbers.Integral):
        return str(int(value))
    if is_number and math.isfinite(value):
        # a float may not hold all digits of a Decimal
        if isinstance(value, Decimal):
            return format(value, "f") if abs(value.adjusted()) < _LONGEST_DECIMAL else str(value)
        return str(int(float(value))) if _is_integer(value) else json.dumps(float(value))
    raise InputError(
        f"{what} must be a name to be categorical (a string, a number, true or false), got {value!r:.60}"
    )


def _is_integer(value: Any) -> bool:
    """True for a float that is an integer of 64 bits."""
    return isinstance(value, (float, np.floating)) and float(value).is_integer() and abs(float(value)) < 2**64


def plain_name(name: str) -> str:
    """The name in the spelling of :func:`level_name`: ``3`` for ``3.0``, ``0`` for ``-0``, ``true`` for Python's ``True``."""
    whole = _WHOLE.fullmatch(name) if name.endswith("0") else None
    plain = _TRUTH.get(name, name) if whole is None else whole[1]
    return "0" if plain == "-0" else plain


def level_order(levels: Any) -> tuple[str, ...] | None:
    """The names of a user's `levels`, from the lowest; None for None.

    Raises
    ------
    InputError
        They are no sequence of at least two different names.
    """
    if levels is None:
        return None
    if isinstance(levels, (str, bytes, Mapping, Set)) or not isinstance(levels, Iterable):
        raise InputError(
            f"must be a list, from the lowest level to the highest, got {levels!r:.60}", parameter="levels"
        )
    values = list(levels)
    names = [level_name(value, "a level") for value in values]
    if None in names:
        raise InputError(f"must be names, got {values[names.index(None)]!r}", parameter="levels")
    plain = [plain_name(name) for name in names if name is not None]
    if twice := [name for i, name in enumerate(plain) if name in plain[:i]]:
        raise InputError(f"must name each level once, got {twice[0]!r} twice", parameter="levels")
    if len(plain) < 2:
        raise InputError(
            f"must be at least 2, from the lowest to the highest, got {plain}", parameter="levels"
        )
    return tuple(plain)


def ordered_categories(column: Any) -> tuple[str, ...] | None:
    """The names of the categories, from the lowest, of an ordered column of pandas; None for any other.

    None too for numbers that rise: they say their order themselves.
    """
    dtype = getattr(column, "dtype", column)
    categories = categories_of_dtypes({"": dtype}).get("", [])
    if len(categories) < 2 or (has_number_categories(dtype) and categories == sorted(categories)):
        return None
    return level_order(categories)


def has_number_categories(column: Any) -> bool:
    """True for a categorical column of pandas, or its dtype, with numbers for categories."""
    categories = getattr(getattr(column, "dtype", column), "categories", None)
    return getattr(getattr(categories, "dtype", None), "kind", "O") in "iuf"


def numbers_of(names: Sequence[str]) -> tuple[float, ...] | None:
    """The numbers that names spell; None if some name spells none."""
    return tuple(map(float, names)) if all(map(_NUMBER.fullmatch, names)) else None


def sorted_levels(names: Iterable[str]) -> tuple[str, ...]:
    """The names in the order of their code points, one of all spellings of a level: the plain one if it is there."""
    chosen: dict[str, str] = {}
    for name in sorted(set(names)):
        plain = plain_name(name)
        if plain == name or plain not in chosen:
            chosen[plain] = name
    return tuple(sorted(chosen.values()))


def one_of_each_boolean(levels: Sequence[str]) -> tuple[str, ...]:
    """The levels without 0 or 1 where the column has the word for it too, and holds nothing but booleans.

    Only the levels of a whole column tell, so merging cannot do this.
    """
    plain = {plain_name(level): level for level in levels}
    if not plain.keys() <= {*_BOOLEANS, *_BOOLEANS.values()}:
        return tuple(levels)
    numbers_left_out = {plain.get(number) for word, number in _BOOLEANS.items() if word in plain}
    return tuple(level for level in levels if level not in numbers_left_out)


class LevelIndex:
    """Codes of values by the names of levels, whatever the types of the values.

    A string is looked up as it is, then in its plain spelling, then a boolean as 0 or 1 and the reverse. A number or boolean
    is looked up by its name, then as a number among the names that are spelt as numbers; ``true`` is 1 and ``false`` 0.

    Parameters
    ----------
    names : sequence of str
        Levels by code.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._codes = {name: code for code, name in enumerate(names)}
        self._plain: dict[str, int] = {}
        self._numbers: dict[float, int] = {}
        for name, code in self._codes.items():
            plain = plain_name(name)
            self._plain.setdefault(plain, code)
            if plain in ("false", "true"):
                self._numbers.setdefault(float(plain == "true"), code)
            elif _NUMBER.fullmatch(name):
                self._numbers.setdefault(float(name), code)

    @property
    def has_numbers(self) -> bool:
        """True if some name stands for a number."""
        return bool(self._numbers)

    def code(self, value: Any, what: str) -> float:
        """The code of a value, NaN where it is missing, UNKNOWN where it is no level; errors as in :func:`level_name`."""
        name = level_name(value, what)
        if name is None:
            return math.nan
        code = self._codes.get(name)
        if code is None:
            plain = plain_name(name)
            code = self._plain.get(plain)
            if code is None and (number := _BOOLEANS.get(plain, plain)) in _BOOLEANS.values():
                code = self._numbers.get(int(number))
        value = named_value(value)
        if code is None and not isinstance(value, str):
            code = self._numbers.get(int(value) if isinstance(value, numbers.Integral) else float(value))
        return UNKNOWN if code is None else float(code)


def encodable(text: str) -> str:
    """The text with lone surrogates, which JSON can hold and UTF-8 cannot, as question marks."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def check_number(n_levels: int, name: str) -> None:
    """Raise an InputError for a column with more than 10,000 levels."""
    if n_levels > MAX_LEVELS:
        raise InputError(
            f"field {name!r} must have at most {MAX_LEVELS:,} levels to be categorical, got more",
            remedy="it probably is a text, an identifier or a number: leave it out of {categorical=}",
        )


def merge_levels(*parts: Mapping[str, pa.LargeStringArray]) -> dict[str, pa.LargeStringArray]:
    """The names in any of `parts`, by column, as :func:`sorted_levels` gives them; checked for their number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    merged = {}
    for name in parts[0]:
        names = pc.unique(pa.concat_arrays([part[name] for part in parts]))
        check_number(len(names), name)
        merged[name] = pa.array(sorted_levels(names.to_pylist()), pa.large_string())
    return merged


def recode(
    codes: NDArray[np.float64], names: pa.LargeStringArray, levels: pa.LargeStringArray
) -> NDArray[np.float64]:
    """Turn codes, positions in the `names` of a chunk or NaN where missing, into positions in the corpus's `levels`."""
    index = LevelIndex(levels.to_pylist())
    positions = np.array([index.code(name, "a level") for name in names.to_pylist()])
    if (positions == UNKNOWN).any():
        raise InputError(
            "the input changed while it was read", remedy="ingest again when nothing writes to it any more"
        )
    present = ~np.isnan(codes)
    recoded = np.full(len(codes), np.nan)
    recoded[present] = positions[codes[present].astype(np.int64)]
    return recoded


def are_codes(values: NDArray[np.float64], n_levels: int) -> NDArray[np.bool_]:
    """A mask of the values that are missing, or codes 0..``n_levels - 1``."""
    whole = (values >= 0) & (values < n_levels) & (values == np.floor(values))
    return np.asarray(whole | np.isnan(values))


def are_levels(names: Sequence[str]) -> bool:
    """Return whether a corpus can store these names as levels: distinct strings in the order of code points.

    A lone surrogate is not text: it can be neither printed nor written.
    """
    are_texts = all(isinstance(name, str) and encodable(name) == name for name in names)
    return are_texts and list(names) == sorted(set(names))
