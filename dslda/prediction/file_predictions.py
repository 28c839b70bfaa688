"""Predictions for documents in files, one batch in memory at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError
from dslda.inputs.files import InputFiles, check_first_records, list_files, whole_files
from dslda.inputs.readers import Fields, Piece, Record
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.columns import wanted_columns
from dslda.prediction.predict import predict_block
from dslda.prediction.record_counting import BATCH_DOCUMENTS, blocks_of_documents

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["fields_of_records", "predict_files"]


def predict_files(
    record: ModelRecord,
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | InputFiles,
    *,
    format: str = "auto",
    text: str | None = None,
    words: str | None = None,
    counts: str | None = None,
    id: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[pa.Table]:
    """Score tables of the documents in files, in their order, as :meth:`~dslda.model.Model.score_table` has them.

    Parameters
    ----------
    record : ModelRecord
        As documents are scored with it: :attr:`~dslda.model.Model.scoring_record`.
    inputs : path, glob or URL, or several; InputFiles
        Files and folders as :func:`dslda.ingest` reads them, except LDA-C, whose terms are numbers in a
        vocabulary; or files that are listed already, with their format.
    format : {"auto", "jsonl", "csv", "parquet", "text"}
        "auto" goes by the files' endings.
    text, words, counts : str, optional
        Field of the text, or those of the words and their counts. By default those of the documents trained
        on.
    id : str, optional
        Field of the identifier. By default that of the documents trained on where these records have it, else
        documents are numbered from "0".
    storage_options : mapping, optional
        For fsspec.

    Yields
    ------
    pyarrow.Table
        Of up to 1,024 documents.

    Raises
    ------
    InputError
        A file cannot be read or a record is not a document, naming file and line. The first records are
        checked before this function returns.
    """
    files = (
        inputs
        if isinstance(inputs, InputFiles)
        else list_files(inputs, format, storage_options=storage_options)
    )
    fields = fields_of_records(record, files, text=text, words=words, counts=counts, id=id)
    check_first_records(files, fields)
    return _tables(record, files, fields)


def _tables(record: ModelRecord, files: InputFiles, fields: Fields) -> Iterator[pa.Table]:
    reader = _Reader(files, fields)
    batches = blocks_of_documents(
        reader.records(),
        record,
        text=fields.text,
        words=fields.words,
        counts=fields.counts,
        id=fields.id,
        place=reader.place,
    )
    for counted in batches:
        yield predict_block(record, counted, counted.block.doc_id or ()).table()


class _Reader:
    """Records of all files; remembers where the last ones came from."""

    def __init__(self, files: InputFiles, fields: Fields) -> None:
        self._files = files
        self._fields = fields
        self._origins: deque[tuple[int, Piece, int]] = deque(maxlen=2 * BATCH_DOCUMENTS)

    def records(self) -> Iterator[Record]:
        position = 0
        for source, _ in whole_files(self._files, n_terms=0):
            for number, record in source.records(self._fields):
                self._origins.append((position, source, number))
                yield record
                position += 1

    def place(self, position: int) -> str:
        for known, source, number in self._origins:
            if known == position:
                return source.place(number)
        return f"document {position}"


def fields_of_records(
    record: ModelRecord,
    files: InputFiles,
    *,
    text: str | None,
    words: str | None,
    counts: str | None,
    id: str | None,
) -> Fields:
    """Fields to read: those given, else those of the training records.

    Raises
    ------
    InputError
        They do not go together, or the files have none of a document.
    """
    if files.format == "ldac":
        raise InputError("LDA-C files must be ingested first: their terms are numbers in a vocabulary file")
    if files.format == "text":
        if any(name is not None for name in (text, words, counts, id)):
            raise InputError("text, words, counts and id must be left out: text files have no fields")
        return Fields(text="text", id="id")
    if text is not None and (words is not None or counts is not None):
        raise InputError(
            "documents must be texts or counted words: give text=, or words= and counts=, not both"
        )
    for parameter, name in (("text", text), ("words", words), ("counts", counts), ("id", id)):
        if name is not None and not (isinstance(name, str) and name):
            raise InputError(f"{parameter} must be the name of a field, got {name!r:.60}")
    if (words is None) != (counts is None):
        raise InputError("words= and counts= belong together, got only one of them")
    if text is None and words is None:
        known = record.fields
        if "words" in known:
            words, counts = known["words"], known["counts"]
        else:
            text = known.get("text", "text")
    needed, used = wanted_columns(record)
    remembered = None if id is not None else record.fields.get("id")
    return Fields(
        text=text,
        words=words,
        counts=counts,
        id=id or remembered,
        covariates=(*needed, *used),
        # each file by itself
        optional=used if remembered is None else (*used, remembered),
    )
