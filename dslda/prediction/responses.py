"""Known responses of documents, for comparison with predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.levels import UNKNOWN, LevelIndex
from dslda.exceptions import InputError
from dslda.ingestion.counting import number_value
from dslda.inputs.fields import is_missing, plain_value
from dslda.inputs.in_memory import records_in_memory
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.record_counting import chosen_blocks
from dslda.wording import first_few

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus

__all__ = [
    "observed_and_predicted",
    "observed_responses",
    "responses_as_numbers",
    "responses_of_corpus",
    "responses_of_records",
    "share_right",
]


def observed_responses(y: Any, record: ModelRecord, n_documents: int) -> NDArray[np.float64]:
    """Responses of new documents as the design takes them: numbers, or codes of names.

    Classes, and levels with names, are matched by :class:`~dslda.corpus.levels.LevelIndex`; where none is named by a number,
    codes are matched too.

    Raises
    ------
    InputError
        A response is no number, or none of the classes.
    """
    from dslda.array_inputs import response_array

    classes = record.classes
    if classes is None:
        return response_array(y, n_documents, name="y", as_records=True)
    # as objects, for a mask gives None
    values = np.asarray(y.tolist() if hasattr(y, "tolist") else y, dtype=object)
    if values.shape != (n_documents,):
        got = type(y).__name__ if values.ndim == 0 else f"shape {values.shape}"
        raise InputError(f"must have one class for each of {n_documents} documents, got {got}", parameter="y")
    index = LevelIndex(classes)
    codes = np.full(n_documents, np.nan)
    for row, item in enumerate(values.tolist()):
        value = plain_value(item)
        if is_missing(value):
            continue
        try:
            codes[row] = index.code(value, "y")
            if codes[row] == UNKNOWN and not index.has_numbers and value in range(len(classes)):
                codes[row] = value
        except InputError:  # nothing that has a name
            codes[row] = UNKNOWN
        if codes[row] == UNKNOWN:
            expected = first_few([repr(name) for name in classes], 5)
            plain = value.item() if isinstance(value, np.generic) else value
            raise InputError(
                f"must be one of the classes of training ({expected}), got {plain!r:.60} in row {row}",
                parameter="y",
            )
    if record.design.classes is None:
        return codes
    known = ~np.isnan(codes)
    codes[known] = np.asarray(record.design.classes)[codes[known].astype(np.int64)]
    return codes


def responses_of_corpus(corpus: Corpus, response: str, documents: ArrayLike | None = None) -> list[Any]:
    """Responses of all documents of a corpus, NaN or None where missing; only those of `documents` are read."""
    if response not in corpus.response_names:
        raise InputError(f"must be given: {corpus.path} has no response {response!r}", parameter="y")
    values = np.full(corpus.n_documents, np.nan)
    for rows, block in chosen_blocks(corpus, documents, responses=[response]):
        values[rows] = block.responses[response]
    names = corpus.levels.get(response)
    return values.tolist() if names is None else [None if v != v else names[int(v)] for v in values.tolist()]


def responses_of_records(documents: Any, response: str | None, *, names: bool) -> list[Any]:
    """Responses in documents that are mappings, NaN or None where missing; refused where no document has the field.

    Numbers are read as ingestion does, unless they may be `names`.
    """
    in_memory = records_in_memory(documents)
    documents = documents if in_memory is None else in_memory
    # a mapping is one document, which predict refuses with advice
    several = isinstance(documents, Iterable) and not isinstance(documents, (str, bytes, Mapping))
    records = [document if isinstance(document, Mapping) else {} for document in documents] if several else []
    if response is None or not any(response in record for record in records):
        raise InputError(
            "must be given where documents are neither a corpus nor records with the field of the model's response"
            + ("" if response is None else f", {response!r}"),
            parameter="y",
        )
    values = [record.get(response) for record in records]
    if names:
        return [None if is_missing(value) or value == "" else value for value in values]
    return [number_value(value, f"response {response!r} of document {i}") for i, value in enumerate(values)]


def responses_as_numbers(record: ModelRecord, observed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Responses as the design takes them, on the scale of predictions that are numbers; NaN for an unknown class."""
    if record.design.classes is None:
        return observed
    codes = record.design.to_model(observed)  # of two classes, predictions are of the second
    if (numbers := record.level_numbers) is None:
        return codes
    known = ~np.isnan(codes)
    codes[known] = numbers[codes[known].astype(np.int64)]
    return codes


def observed_and_predicted(observed: NDArray[np.float64], predicted: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the documents with a response and a prediction, which is neither NaN nor None."""
    is_predicted = [value is not None and value == value for value in predicted]
    return ~np.isnan(observed) & np.array(is_predicted, dtype=np.bool_)


def share_right(record: ModelRecord, observed: NDArray[np.float64], predicted: NDArray[Any]) -> float:
    """Share of right predictions, which are names of classes; `observed` holds the numbers trained on."""
    codes = record.design.to_model(observed).astype(np.int64)
    return float(np.mean(np.array(record.classes, dtype=object)[codes] == predicted))
