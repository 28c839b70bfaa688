"""Covariates, exposure and trials of the documents that a model predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.levels import UNKNOWN, LevelIndex
from dslda.exceptions import InputError
from dslda.ingestion.counting import number_value
from dslda.variational.design import outside_of_role
from dslda.wording import first_few

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus
    from dslda.persistence.model_record import ModelRecord

__all__ = [
    "check_columns",
    "columns_of_arrays",
    "columns_of_corpus",
    "columns_of_records",
    "extras_of",
    "undetermined",
    "wanted_columns",
]

Columns = Mapping[str, NDArray[np.float64]]


def wanted_columns(record: ModelRecord) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the columns that predictions need, and of the optional ones: exposure, trials, event."""
    design = record.design
    needed = tuple(dict.fromkeys(column.name for column in design.covariates))
    used = [design.exposure, design.auxiliary]
    return needed, tuple(name for name in used if name is not None and name not in needed)


def columns_of_corpus(
    block_columns: Columns,
    record: ModelRecord,
    corpus_levels: Mapping[str, Sequence[str]],
    rows: Sequence[int] | NDArray[np.int64],
) -> dict[str, NDArray[np.float64]]:
    """Columns of documents of a corpus with the model's codes of names; `rows` number the documents, for messages."""

    def place(row: int) -> str:
        return f"document {rows[row]}"

    columns = dict(block_columns)
    for name, codes in block_columns.items():
        names, theirs = record.levels.get(name), corpus_levels.get(name)
        if (names is None) != (theirs is None) and name != _event(record):
            wanted, got = ("names", "numbers") if theirs is None else ("numbers", "names")
            raise InputError(f"covariate {name!r} must hold {wanted}, as in training, got {got}")
        if names is not None and theirs is not None and tuple(theirs) != tuple(names):
            values = [None if np.isnan(code) else theirs[int(code)] for code in codes.tolist()]
            columns[name] = _codes(values, names, name, place)
    _check_values(columns, record, place)
    return columns


def check_columns(corpus: Corpus, record: ModelRecord) -> tuple[str, ...]:
    """Names of the columns of the corpus to read; a corpus without a covariate of the model is refused."""
    needed, used = wanted_columns(record)
    missing = [name for name in needed if name not in corpus.covariate_names]
    if missing:
        raise InputError(
            f"{corpus.path} must have the covariates of the model, {', '.join(map(repr, missing))} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            remedy="ingest it with {covariates=}",
        )
    return needed + tuple(name for name in used if name in corpus.covariate_names)


def columns_of_arrays(
    arrays: Mapping[str, ArrayLike] | None, record: ModelRecord, n_documents: int
) -> dict[str, NDArray[np.float64]]:
    """Columns from arrays by name."""
    from dslda.array_inputs import response_array

    arrays = {} if arrays is None else arrays
    if not isinstance(arrays, Mapping):
        raise InputError(
            f"must be a mapping of name to array, got {type(arrays).__name__}", parameter="covariates"
        )
    needed, used = wanted_columns(record)
    missing = [name for name in needed if name not in arrays]
    if unfit := missing or sorted(set(arrays) - {*needed, *used}):
        names = ", ".join(map(repr, (*needed, *used))) or "none"
        wrong = f"{'without' if missing else 'got'} {', '.join(map(repr, unfit))}"
        raise InputError(f"must be those of the model ({names}), {wrong}", parameter="covariates")
    columns: dict[str, NDArray[np.float64]] = {}
    for name, values in arrays.items():
        if name in record.levels:
            listed = values.tolist() if hasattr(values, "tolist") else values
            if isinstance(listed, str) or not isinstance(listed, Sequence):
                raise InputError(f"covariate {name!r} must be an array of names, got {type(values).__name__}")
            columns[name] = _codes(listed, record.levels[name], name, "row {}".format)
        else:
            columns[name] = response_array(values, n_documents, name=f"covariate {name!r}", as_records=True)
        if len(columns[name]) != n_documents:
            raise InputError(
                f"covariate {name!r} must have a value for each of {n_documents} documents, got {len(columns[name])}"
            )
    _check_values(columns, record, "row {}".format)
    return columns


def columns_of_records(
    batch: Iterable[tuple[int, Any]], record: ModelRecord, place: Callable[[int], str]
) -> dict[str, NDArray[np.float64]]:
    """Columns from documents that are mappings, NaN where a document lacks a value.

    The exposure and trials of a document without such a field are 1; an empty field is a missing value.
    """
    needed, used = wanted_columns(record)
    columns: dict[str, list[float]] = {name: [] for name in (*needed, *used)}
    positions = []
    for position, document in batch:
        positions.append(position)
        if needed and not isinstance(document, Mapping):
            shown = first_few([repr(name) for name in needed], 5)
            raise InputError(
                f"must be a mapping with the covariates of the model ({shown}) beside the words, got only words",
                place=place(position),
                remedy=("give such records", "give arrays with {covariates=}"),
            )
        mapping = document if isinstance(document, Mapping) else {}
        for name, values in columns.items():
            if name in used and name not in mapping:
                values.append(1.0)
            else:
                values.append(_value(mapping.get(name), record, name, place(position)))
    arrays = {name: np.array(values) for name, values in columns.items()}
    _check_values(arrays, record, lambda row: place(positions[row]))
    return arrays


def undetermined(
    record: ModelRecord, columns: Columns, n_documents: int, *, with_event: bool = False
) -> NDArray[np.object_]:
    """Flag of each document without a linear predictor, as in :class:`~dslda.prediction.predict.Predictions`; "" for others.

    `with_event` requires the event of a duration too, as training does.
    """
    flags = np.full(n_documents, "", dtype=object)
    needed, used = wanted_columns(record)
    for name in needed:
        if name in record.levels and name in columns:
            flags[columns[name] == UNKNOWN] = "unknown_level"
    for name in (*needed, *used):
        if name in columns and (with_event or name in needed or name != _event(record)):
            flags[np.isnan(columns[name])] = "no_covariate"
    return flags


def extras_of(
    record: ModelRecord, columns: Columns, n_documents: int, *, y: NDArray[np.float64] | None = None
) -> NDArray[np.float64] | None:
    """Covariates, offsets and weights of documents as inference takes them; None where the model has none.

    `y` holds the responses where they are known; one outside the domain of the family is refused.
    """
    design = record.design
    # inference takes no weight of a document; nor, without a response, its class or event
    plain = replace(design, weight=None)
    if y is None:
        y = np.full(n_documents, np.nan)
        plain = replace(plain, class_weight=None, auxiliary=design.auxiliary if design.trials else None)
    elif record.parameters.n_classes is None:
        auxiliary = columns.get(design.auxiliary or "")
        family = record.family
        known = y if design.classes is None else design.to_model(y)
        if (bad := ~family.check(known, auxiliary)).any():
            row = int(np.argmax(bad))
            raise InputError(
                f"must be one that family {record.spec.family} takes, got {y[row]:g} in row {row}",
                parameter="y",
            )
    if not (plain.columns or plain.class_weight):
        return None
    needed = dict.fromkeys(plain.columns, np.ones(n_documents)) | dict(columns)
    return plain.extras(needed, y=y, weight=None)


def _event(record: ModelRecord) -> str | None:
    return None if record.design.trials else record.design.auxiliary


def _check_values(columns: Columns, record: ModelRecord, place: Callable[[int], str]) -> None:
    """Refuse an exposure, trials or an event outside their domain."""
    design = record.design
    trials = design.auxiliary if design.trials else None
    for name, role, rule in (
        (design.exposure, "exposure", "a number above 0"),
        (trials, "trials", "a whole number of at least 1"),
        (_event(record), "event", "0 or 1"),
    ):
        if name is not None and name in columns and (bad := outside_of_role(role, columns[name])).any():
            row = int(np.argmax(bad))
            raise InputError(f"{role} {name!r} must be {rule}, got {columns[name][row]:g}", place=place(row))


def _value(value: Any, record: ModelRecord, name: str, place: str) -> float:
    if name in record.levels:
        return float(_codes([value], record.levels[name], name, lambda _: place)[0])
    try:
        return number_value(value, f"covariate {name!r}")
    except InputError as error:
        raise error.at(place) from None


def _codes(
    values: Iterable[Any], names: Sequence[str], column: str, place: Callable[[int], str]
) -> NDArray[np.float64]:
    """Codes of names: NaN for a missing name, UNKNOWN for one that training did not see."""
    index = LevelIndex(names)
    codes = [index.code(value, f"{place(row)}: covariate {column!r}") for row, value in enumerate(values)]
    return np.array(codes, dtype=np.float64)
