"""DataFrames in memory, which are told from matrices of counts without loading what makes them."""

from __future__ import annotations

from typing import Any

from dslda.exceptions import InputError

__all__ = ["check_no_table", "records_of_table"]

_RECORDS = {"pandas": 'to_dict("records")', "polars": "to_dicts()", "pyarrow": "to_pylist()"}


def records_of_table(value: Any) -> str | None:
    """The call that gives the records of a table in memory; None of all else, and of a DataFrame of numbers alone.

    Parameters
    ----------
    value : object
        Such as a pandas DataFrame of texts, beside which there may be numbers. One of numbers may be a matrix of counts.
    """
    # by the names of its modules, so that none of them need be loaded to say no
    for base in type(value).__mro__:
        call = _RECORDS.get(base.__module__.partition(".")[0])
        if call is not None and hasattr(value, "columns"):
            kinds = [getattr(dtype, "kind", "O") for dtype in getattr(value, "dtypes", ["O"])]
            return None if all(kind in "iufb" for kind in kinds) else call
    return None


def check_no_table(documents: Any) -> None:
    """Refuse a DataFrame of texts where documents are to be predicted.

    Raises
    ------
    InputError
        It is one; the message has the call that gives its records.
    """
    if (call := records_of_table(documents)) is not None:
        raise InputError(
            f"documents must be a list of texts or records, a corpus or a count matrix, got a {type(documents).__name__}; "
            f"give its records: table.{call}"
        )
