"""Levels: the names that a categorical column holds, such as classes.

A chunk numbers names in the order of their occurrence. Merging sorts the names of all chunks. Codes are positions in the
sorted list, so the way the input is cut cannot change them.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MAX_LEVELS",
    "are_codes",
    "are_levels",
    "check_number",
    "encodable",
    "level_name",
    "merge_levels",
    "recode",
]

MAX_LEVELS = 10_000
"""More names than any classification has; a column with more holds texts, identifiers or measurements."""


def level_name(value: Any, what: str) -> str | None:
    """The name that a value stands for; None when it is missing.

    A string is its own name, without white space around it. Numbers and booleans have the names that JSON writes: ``true``,
    ``3``, ``2.5``.

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
    if value is None:
        return None
    if isinstance(value, str):
        return encodable(value).strip() or None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, (numbers.Real, Decimal)):
        if value != value:
            return None
        if math.isfinite(value):
            # a float may not hold all digits of a Decimal
            return str(value) if isinstance(value, Decimal) else json.dumps(float(value))
    raise InputError(
        f"{what} must be a name to be categorical (a string, a number, true or false), got {value!r:.60}"
    )


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
    """The names in any of `parts`, by column, each once and in the order of their code points; checked for their number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    merged = {}
    for name in parts[0]:
        names = pc.unique(pa.concat_arrays([part[name] for part in parts]))
        check_number(len(names), name)
        # Arrow compares UTF-8, whose order is that of code points, as that of Python's strings
        merged[name] = names.take(pc.sort_indices(names))
    return merged


def recode(
    codes: NDArray[np.float64], names: pa.LargeStringArray, levels: pa.LargeStringArray
) -> NDArray[np.float64]:
    """Turn codes, positions in the `names` of a chunk or NaN where missing, into positions in the corpus's `levels`."""
    import pyarrow.compute as pc

    positions = pc.index_in(names, value_set=levels)
    if positions.null_count:
        raise InputError(
            "the input changed while it was read", remedy="ingest again when nothing writes to it any more"
        )
    present = ~np.isnan(codes)
    recoded = np.full(len(codes), np.nan)
    recoded[present] = positions.to_numpy()[codes[present].astype(np.int64)]
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
