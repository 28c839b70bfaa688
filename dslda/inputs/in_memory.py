"""Records in memory: tables, lists of mappings, partitions of Dask collections, matrices of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dslda.exceptions import InputError
from dslda.inputs.fields import Attempt, Fields, Record, is_missing, kind_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BagRecords",
    "FrameRows",
    "MatrixRows",
    "categories_of_dtypes",
    "categories_of_table",
    "columns_of_table",
    "computed",
    "is_dask_collection",
    "is_ordered",
    "is_table",
    "records_in_memory",
    "rows_of_table",
    "summable_counts",
]

_LIBRARIES = {"pandas": "to_dict", "polars": "to_dicts", "pyarrow": "to_pylist"}
"""Methods that only tables with all rows in memory have; a lazy frame lacks them."""


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Rows of a pandas DataFrame that is a partition of a Dask one."""

    frame: pd.DataFrame
    label: str

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        present = list(map(str, self.frame.columns))
        fields.check_present(present, self.label)
        names = [name for name in fields.named() if name in present]
        yield from enumerate(_rows(names, [self.frame.iloc[:, present.index(name)] for name in names]))

    def place(self, number: int) -> str:
        return f"{self.label}, row {number}"


@dataclass(frozen=True, slots=True)
class BagRecords:
    """Records of a partition of a Dask bag: texts, (text, response) pairs, or mappings."""

    items: Iterable[Any]
    label: str

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        for number, item in enumerate(self.items):
            try:
                yield number, item if isinstance(item, Mapping) else _record_of(item, fields)
            except InputError as error:
                raise error.at(self.place(number)) from None

    def place(self, number: int) -> str:
        return f"{self.label}, record {number}"


@dataclass(frozen=True, slots=True)
class MatrixRows:
    """Rows of a sparse matrix of counts, with columns of values; words are positions of terms, as digits."""

    matrix: Any
    columns: Mapping[str, Sequence[Any]]

    def records(self, fields: Fields) -> Iterator[tuple[int, Record]]:
        indptr, indices, data = self.matrix.indptr, self.matrix.indices, self.matrix.data
        for number in range(self.matrix.shape[0]):
            entries = slice(indptr[number], indptr[number + 1])
            record = {name: values[number] for name, values in self.columns.items()}
            record["words"] = [str(i) for i in indices[entries].tolist()]
            record["counts"] = data[entries].tolist()
            yield number, record

    def place(self, number: int) -> str:
        return f"matrix, row {number}"


def summable_counts(matrix: Any, name: str = "the matrix") -> Any:
    """A count matrix whose entries can be added up: in 64 bits, if it is sparse and may hold an entry twice.

    Booleans become numbers, and all other matrices stay as they are.

    Raises
    ------
    InputError
        A value is masked.
    """
    if isinstance(matrix, np.ma.MaskedArray) and np.ma.is_masked(matrix):
        masked = np.argwhere(np.ma.getmaskarray(matrix))
        raise InputError(
            f"{name} must hold counts, got a masked value at {tuple(masked[0].tolist())} ({len(masked)} such values in all)",
            remedy="fill them: MATRIX.filled(0)",
        )
    if hasattr(matrix, "tocsr") and (
        matrix.dtype.kind == "b" or not getattr(matrix, "has_canonical_format", True)
    ):
        return matrix.astype(np.result_type(matrix.dtype, np.int64), copy=False)
    return matrix


def is_dask_collection(value: Any) -> bool:
    """True for a collection of Dask, such as a bag or DataFrame, and for one of its delayed objects."""
    # compare names of modules, so that Dask need not be loaded to say no
    modules = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    return "dask" in modules and hasattr(value, "to_delayed")


def computed(value: Any) -> Any:
    """What a collection of Dask holds, brought into this process; any other value as it is."""
    return value.compute() if is_dask_collection(value) else value


def is_table(value: Any) -> bool:
    """True for a DataFrame or table in memory, unless it has only numbers: that may be a matrix of counts."""
    return _library(value) is not None


def columns_of_table(value: Any) -> list[str] | None:
    """The names of the columns of a table; None for any other value."""
    if not is_table(value):
        return None
    return [str(name) for name in (value.column_names if hasattr(value, "column_names") else value.columns)]


def categories_of_table(table: Any, names: Iterable[str]) -> dict[str, list[Any]]:
    """Categories of those of the columns that are ordered, from the lowest, of a table of pandas, Dask or pyarrow."""
    found: dict[str, list[Any]] = {}
    if hasattr(table, "schema") and hasattr(table, "column_names"):
        for name in names:
            if name in table.column_names and is_ordered(table.schema.field(name).type) and table.num_rows:
                found[name] = table.column(name).chunk(0).dictionary.to_pylist()
    elif getattr(table, "ndim", 0) == 2 and hasattr(table, "dtypes") and hasattr(table, "columns"):
        dtypes = dict(zip(map(str, table.columns), table.dtypes, strict=True))
        found = categories_of_dtypes({name: dtypes[name] for name in names if name in dtypes})
    return found


def categories_of_dtypes(dtypes: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Categories of the ordered ones among data types of pandas, by name."""
    found = {
        name: dtype.categories.tolist()
        for name, dtype in dtypes.items()
        if getattr(dtype, "ordered", False) and hasattr(dtype, "categories")
    }
    # Dask may not know the categories of a column
    return {name: values for name, values in found.items() if "__UNKNOWN_CATEGORIES__" not in values}


def is_ordered(kind: Any) -> bool:
    """True for a type of pyarrow whose values are ordered categories."""
    return bool(getattr(kind, "ordered", False)) and hasattr(kind, "index_type")


def records_in_memory(value: Any) -> list[Any] | None:
    """The records of a table (of pandas, polars or pyarrow) as mappings, with None for missing values, or those of a list of
    mappings; None for any other value.

    Raises
    ------
    InputError
        A table has two columns of one name.
    """
    names = columns_of_table(value)
    if names is None:
        first = (
            next((item for item in value if not is_missing(item)), None)
            if isinstance(value, (list, tuple))
            else None
        )
        return list(value) if isinstance(first, Mapping) else None
    for name, n in Counter(names).items():
        if n > 1:
            raise InputError(
                f"names the column {name!r} twice", place=f"the {type(value).__name__}", remedy="rename one"
            )
    library = _library(value)
    if library == "pandas":
        return list(_rows(names, [column for _, column in value.items()]))
    records: list[Any] = []
    for row, record in enumerate(rows_of_table(value)):
        if isinstance(record, InputError):
            raise record.at(f"the {type(value).__name__}, row {row}")
        records.append(record)
    return records


def rows_of_table(table: Any) -> Iterator[Attempt]:
    """Rows of a table of polars or pyarrow as mappings, with an error in place of each that Python cannot hold."""
    method = "to_dicts" if hasattr(table, "to_dicts") else "to_pylist"
    try:
        rows: list[Attempt] = getattr(table, method)()
    except (ValueError, OverflowError) as error:  # a date after the year 9999, a text that is not UTF-8
        n = table.shape[0]
        if n > 1:
            for first, last in ((0, n // 2), (n // 2, n)):
                yield from rows_of_table(table.slice(first, last - first))
            return
        rows = [InputError(f"holds a value that cannot be read: {error}")]
    yield from rows


def _rows(names: Sequence[str], columns: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Rows of columns of pandas, with Python's own numbers and strings, and None for all missing values."""
    values = [column.astype(object).where(column.notna(), None).tolist() for column in columns]
    return (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))


def _record_of(item: Any, fields: Fields) -> Record:
    """The record of a text or a (text, response) pair."""
    text = fields.text or "text"
    if isinstance(item, str) or is_missing(item):
        if fields.responses:
            raise InputError(
                f"must have the response {fields.responses[0]!r}, got only a text",
                remedy="make the records pairs (text, response) or mappings",
            )
        return {text: item}
    if (
        isinstance(item, (tuple, list))
        and len(item) == 2
        and (isinstance(item[0], str) or is_missing(item[0]))
    ):
        if len(fields.responses) != 1:
            raise InputError(
                f"a pair (text, response) must have one name for its response, got {list(fields.responses)}",
                remedy="name it with {response=}",
            )
        return {text: item[0], fields.responses[0]: item[1]}
    raise InputError(f"must be a text, a pair (text, response) or a mapping, got {kind_of(item)}")


def _library(value: Any) -> str | None:
    # compare names of modules, so that no library must be loaded
    for base in type(value).__mro__:
        library = base.__module__.partition(".")[0]
        if library in _LIBRARIES and hasattr(value, "columns") and hasattr(value, _LIBRARIES[library]):
            kinds = [getattr(dtype, "kind", "O") for dtype in getattr(value, "dtypes", ["O"])]
            return None if all(kind in "iufb" for kind in kinds) else library
    return None
