"""Known responses of documents, for comparison with predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.levels import level_name
from dslda.exceptions import InputError
from dslda.inputs.in_memory import records_in_memory
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.record_counting import chosen_blocks
from dslda.wording import first_few

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus

__all__ = [
    "observed_and_predicted",
    "observed_responses",
    "responses_of_corpus",
    "responses_of_records",
    "share_right",
]


def observed_responses(y: Any, record: ModelRecord, n_documents: int) -> NDArray[np.float64]:
    """Responses of new documents as the design takes them: numbers, or codes of names.

    Raises
    ------
    InputError
        A response is no number, or none of the classes.
    """
    from dslda.array_inputs import response_array

    def unknown(value: str, row: int) -> InputError:
        expected = first_few([repr(name) for name in record.classes or ()], 5)
        return InputError(
            f"must be one of the classes of training ({expected}), got {value} in row {row}", parameter="y"
        )

    classes, numbers = record.classes, record.design.classes
    listed = y.tolist() if hasattr(y, "tolist") else y
    if (
        classes is None
        or not isinstance(listed, Sequence)
        or not any(isinstance(value, str) for value in listed)
    ):
        observed = response_array(y, n_documents, name="y")
        if classes is not None:
            allowed = np.arange(len(classes)) if numbers is None else np.asarray(numbers)
            strange = ~np.isin(observed, allowed) & ~np.isnan(observed)
            if strange.any():
                row = int(np.argmax(strange))
                raise unknown(f"{observed[row]:g}", row)
        return observed
    if isinstance(y, str) or len(listed) != n_documents:
        raise InputError(
            f"must have one class for each of {n_documents} documents, got {len(listed)}", parameter="y"
        )
    codes = {name: code if numbers is None else numbers[code] for code, name in enumerate(classes)}
    observed = np.full(n_documents, np.nan)
    for row, value in enumerate(listed):
        name = level_name(value, f"y, row {row}")
        if name is None:
            continue
        if name not in codes:
            raise unknown(f"{value!r:.60}", row)
        observed[row] = codes[name]
    return observed


def responses_of_corpus(corpus: Corpus, response: str, documents: ArrayLike | None = None) -> list[Any]:
    """Responses of all documents of a corpus, NaN or None where missing; only those of `documents` are read."""
    if response not in corpus.response_names:
        raise InputError(f"must be given: {corpus.path} has no response {response!r}", parameter="y")
    values = np.full(corpus.n_documents, np.nan)
    for rows, block in chosen_blocks(corpus, documents, responses=[response]):
        values[rows] = block.responses[response]
    names = corpus.levels.get(response)
    return values.tolist() if names is None else [None if v != v else names[int(v)] for v in values.tolist()]


def responses_of_records(documents: Any, response: str | None) -> list[Any]:
    """Responses in documents that are mappings, None where missing; refused where no document has the field."""
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
    return [None if record.get(response) == "" else record.get(response) for record in records]


def observed_and_predicted(observed: NDArray[np.float64], predicted: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the documents with a response and a prediction, which is neither NaN nor None."""
    is_predicted = [value is not None and value == value for value in predicted]
    return ~np.isnan(observed) & np.array(is_predicted, dtype=np.bool_)


def share_right(record: ModelRecord, observed: NDArray[np.float64], predicted: NDArray[Any]) -> float:
    """Share of right predictions, which are names of classes; `observed` holds the numbers trained on."""
    codes = record.design.to_model(observed).astype(np.int64)
    return float(np.mean(np.array(record.classes, dtype=object)[codes] == predicted))
