"""Records in memory: DataFrames of texts, told from matrices of counts without loading what makes them, and lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dslda.exceptions import InputError

__all__ = ["columns_of_table", "is_table", "records_in_memory"]

_LIBRARIES = {"pandas": "to_dict", "polars": "to_dicts", "pyarrow": "to_pylist"}
"""What has all rows in memory has this; a lazy frame has not."""


def is_table(value: Any) -> bool:
    """Whether a value is a DataFrame or table in memory; not one of numbers alone, which may be a matrix of counts."""
    return _library(value) is not None


def columns_of_table(value: Any) -> list[Any] | None:
    """The names of the columns of a table; None of all else."""
    if not is_table(value):
        return None
    return list(value.column_names if hasattr(value, "column_names") else value.columns)


def records_in_memory(value: Any) -> list[Any] | None:
    """The records of a table, as mappings in which None is missing, and those of a list of mappings; None of all else.

    Parameters
    ----------
    value : object
        Such as a pandas or polars DataFrame of texts, beside which there may be numbers, or a pyarrow Table.

    Raises
    ------
    InputError
        A table has two columns of one name, of which a record could have but one.
    """
    library = _library(value)
    if library is not None:
        names = [str(name) for name in columns_of_table(value) or ()]
        twice = [name for name, n in Counter(names).items() if n > 1]
        if twice:
            raise InputError(f"the {type(value).__name__} names the column {twice[0]!r} twice; rename one")
    if library == "pandas":
        # one kind of missing, and Python's own numbers and strings
        columns = [column.astype(object).where(column.notna(), None).tolist() for _, column in value.items()]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if library is not None:
        records: list[Any] = value.to_dicts() if library == "polars" else value.to_pylist()
        return records
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
        return list(value)
    return None


def _library(value: Any) -> str | None:
    # by the names of its modules, so that none of them need be loaded to say no
    for base in type(value).__mro__:
        library = base.__module__.partition(".")[0]
        if library in _LIBRARIES and hasattr(value, "columns") and hasattr(value, _LIBRARIES[library]):
            kinds = [getattr(dtype, "kind", "O") for dtype in getattr(value, "dtypes", ["O"])]
            return None if all(kind in "iufb" for kind in kinds) else library
    return None
