"""What belongs to documents beside their words when a model with covariates predicts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.levels import level_name
from dslda.exceptions import InputError

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus
    from dslda.persistence.record import ModelRecord

__all__ = [
    "check_columns",
    "columns_of_arrays",
    "columns_of_corpus",
    "columns_of_records",
    "extras_of",
    "wanted_columns",
]

Columns = Mapping[str, NDArray[np.float64]]


def wanted_columns(record: ModelRecord) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the columns that predictions need, and of those that they use where they are: exposure and trials."""
    design = record.design
    needed = tuple(dict.fromkeys(column.name for column in design.covariates))
    used = [design.exposure, design.auxiliary if design.trials else None]
    return needed, tuple(name for name in used if name is not None and name not in needed)


def columns_of_corpus(
    block_columns: Columns, record: ModelRecord, corpus_levels: Mapping[str, Sequence[str]]
) -> dict[str, NDArray[np.float64]]:
    """Columns of a corpus, the codes of names changed to those of the model."""
    columns = dict(block_columns)
    for name, names in record.levels.items():
        if name not in columns:
            continue
        theirs = corpus_levels.get(name)
        if theirs is None:
            raise InputError(f"covariate {name!r} must hold names, as in training, got numbers")
        if tuple(theirs) != tuple(names):
            columns[name] = _codes(
                [theirs[int(code)] for code in columns[name]], names, name, "document {}".format
            )
    return columns


def check_columns(corpus: Corpus, record: ModelRecord) -> tuple[str, ...]:
    """The columns of the corpus to read.

    Raises
    ------
    InputError
        A covariate of the model is not in the corpus.
    """
    needed, used = wanted_columns(record)
    missing = [name for name in needed if name not in corpus.covariate_names]
    if missing:
        raise InputError(
            f"{corpus.path} must have the covariates of the model, {', '.join(map(repr, missing))} "
            f"{'is' if len(missing) == 1 else 'are'} missing; ingest it with covariates="
        )
    return needed + tuple(name for name in used if name in corpus.covariate_names)


def columns_of_arrays(
    given: Mapping[str, ArrayLike] | None, record: ModelRecord, n_documents: int
) -> dict[str, NDArray[np.float64]]:
    """Columns that a caller gives as arrays by name."""
    from dslda.arrays import response_array

    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise InputError(f"covariates must be a mapping of name to array, got {type(given).__name__}")
    needed, used = wanted_columns(record)
    _check_names(set(given), needed, used)
    columns = {}
    for name, values in given.items():
        if name in record.levels:
            listed = np.asarray(values, dtype=object).ravel().tolist()
            columns[name] = _codes(listed, record.levels[name], name, "row {}".format)
        else:
            columns[name] = response_array(values, n_documents, what=f"covariate {name!r}")
        if len(columns[name]) != n_documents:
            raise InputError(
                f"covariate {name!r} must have a value for each of {n_documents} documents, got {len(columns[name])}"
            )
        if np.isnan(columns[name]).any():
            row = int(np.argmax(np.isnan(columns[name])))
            raise InputError(f"covariate {name!r} must have a value for each document, got none in row {row}")
    return columns


def columns_of_records(
    batch: Iterable[tuple[int, Any]], record: ModelRecord, place: Callable[[int], str]
) -> dict[str, NDArray[np.float64]]:
    """Columns out of the documents themselves, where they are mappings."""
    needed, used = wanted_columns(record)
    columns: dict[str, list[float]] = {name: [] for name in (*needed, *used)}
    for position, document in batch:
        mapping = document if isinstance(document, Mapping) else {}
        for name, values in columns.items():
            value = mapping.get(name)
            if value is None or value == "":
                if name in used:
                    values.append(1.0)
                    continue
                raise InputError(
                    f"{place(position)}: must have the covariate {name!r} of the model, got none"
                )
            values.append(_value(value, record, name, place(position)))
    return {name: np.array(values) for name, values in columns.items()}


def extras_of(record: ModelRecord, columns: Columns, n_documents: int) -> NDArray[np.float64] | None:
    """What inference is told of each document, its response being unknown; None where there is nothing to tell."""
    from dataclasses import replace

    design = record.design
    if not design.columns:
        return None
    ones = np.ones(n_documents)
    # weights play no part in predictions, nor does whether a duration has ended
    plain = replace(
        design, weight=None, class_weight=None, auxiliary=design.auxiliary if design.trials else None
    )
    needed = dict.fromkeys(plain.columns, ones) | dict(columns)
    return plain.extras(needed, y=np.full(n_documents, np.nan), weight=None)


def _check_names(given: set[str], needed: Sequence[str], used: Sequence[str]) -> None:
    missing = [name for name in needed if name not in given]
    unknown = sorted(given - {*needed, *used})
    if missing or unknown:
        have = ", ".join(map(repr, (*needed, *used))) or "none"
        wrong = (
            f"without {', '.join(map(repr, missing))}" if missing else f"got {', '.join(map(repr, unknown))}"
        )
        raise InputError(
            f"covariates must be those of the model ({have}), {wrong}; give them with covariates="
        )


def _value(value: Any, record: ModelRecord, name: str, where: str) -> float:
    if name in record.levels:
        return float(_codes([value], record.levels[name], name, lambda _: where)[0])
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise InputError(f"{where}: covariate {name!r} must be a number, got {value!r:.60}")
    return number


def _codes(
    values: Iterable[Any], names: Sequence[str], column: str, place: Callable[[int], str]
) -> NDArray[np.float64]:
    codes = {name: float(code) for code, name in enumerate(names)}
    found = []
    for row, value in enumerate(values):
        name = level_name(value, f"covariate {column!r}")
        if name not in codes:
            shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
            raise InputError(
                f"{place(row)}: covariate {column!r} must be one of the levels of training ({shown}), got {value!r:.60}"
            )
        found.append(codes[name])
    return np.array(found)
