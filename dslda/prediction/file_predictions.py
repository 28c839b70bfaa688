"""Predictions for documents in files, with one batch in memory at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError
from dslda.ingestion.arguments import given_vocabulary
from dslda.inputs.fields import Fields, Record
from dslda.inputs.files import InputFiles, check_first_records, list_files, whole_files
from dslda.inputs.formats import FilePiece
from dslda.inputs.reading import ReadingRules
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.columns import wanted_columns
from dslda.prediction.predict import predict_block
from dslda.prediction.record_counting import (
    BATCH_DOCUMENTS,
    blocks_of_documents,
    check_analyzer_is_ready,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from dslda.corpus.store import Corpus
    from dslda.corpus.vocabulary import Vocabulary

__all__ = ["fields_of_records", "input_terms", "predict_files"]


def predict_files(
    record: ModelRecord,
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | InputFiles,
    *,
    format: str = "auto",
    encoding: str | None = None,
    separator: str | None = None,
    escape: str | None = None,
    na_values: str | Sequence[str] | None = None,
    text: str | None = None,
    words: str | None = None,
    counts: str | None = None,
    id: str | None = None,
    vocabulary: str | os.PathLike[str] | Iterable[str] | Vocabulary | Corpus | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[pa.Table]:
    """Score documents in files, in their order.

    Parameters
    ----------
    record : ModelRecord
        See :attr:`~dslda.model.Model.scoring_record`.
    inputs : path, glob or URL, or several; InputFiles
        Files and folders as :func:`dslda.ingest` reads them; or files that are already listed, with their format.
    format : str
        Name of a format; "auto" goes by the files' names.
    encoding, separator, escape, na_values : str, optional
        See :class:`~dslda.inputs.reading.ReadingRules`; `na_values` may be several.
    text, words, counts : str, optional
        Field of the text, or those of the words and their counts; by default those of the documents trained on.
    id : str, optional
        Field of the identifier; by default that of the documents trained on where these records have it, else
        documents are numbered from "0".
    vocabulary : path of a corpus or of a file with a term a line, sequence or mapping of str, Vocabulary or Corpus, optional
        Terms of files that hold positions of terms instead of words; a mapping holds the positions of its terms.
    storage_options : mapping, optional
        For fsspec.

    Yields
    ------
    pyarrow.Table
        Of up to 1,024 documents, as from :meth:`~dslda.model.Model.score_table`.

    Raises
    ------
    InputError
        A file cannot be read, or a record is not a document; the error names file and line. The first records are
        checked before this function returns.
    """
    rules = ReadingRules(encoding, separator, escape, na_values)  # type: ignore[arg-type]  # which checks them
    files = inputs
    if not isinstance(files, InputFiles):
        files = list_files(files, format, storage_options=storage_options)
    files = files.read_by(rules)
    terms = input_terms(files, vocabulary, storage_options)
    fields = fields_of_records(record, files, text=text, words=words, counts=counts, id=id, terms=terms)
    check_first_records(files, fields)
    if fields.text is not None:
        check_analyzer_is_ready(record)
    return _tables(record, files, fields)


def _tables(record: ModelRecord, files: InputFiles, fields: Fields) -> Iterator[pa.Table]:
    origins: deque[tuple[int, FilePiece, int]] = deque(maxlen=2 * BATCH_DOCUMENTS)

    def records() -> Iterator[Record]:
        for source, _ in whole_files(files, n_terms=len(fields.terms or ())):
            for number, document in source.records(fields):
                origins.append((origins[-1][0] + 1 if origins else 0, source, number))
                yield document

    def place(position: int) -> str:
        _, source, number = origins[position - origins[0][0]]
        return source.place(number)

    for counted in blocks_of_documents(records(), record, (fields,), id=fields.id, place=place):
        yield predict_block(record, counted, counted.block.doc_id or ()).table()


def input_terms(
    files: InputFiles, vocabulary: Any, storage_options: Mapping[str, Any] | None
) -> tuple[str, ...] | None:
    """Terms for files that hold positions in a vocabulary, which need them; None for files of words, which take none."""
    if vocabulary is not None and not files.piece.by_position:
        raise InputError(f"must be left out: {files.piece.title} hold words", parameter="vocabulary")
    loaded = given_vocabulary(vocabulary, files.piece.by_position, storage_options, None)
    return None if loaded is None else tuple(loaded.vocabulary.terms)


def fields_of_records(
    record: ModelRecord,
    files: InputFiles,
    *,
    text: str | None,
    words: str | None,
    counts: str | None,
    id: str | None,
    terms: Sequence[str] | None,
) -> Fields:
    """Fields to read: those named here, else those of the training records; files without fields accept no names."""
    own = files.piece.own_fields
    if own is not None:
        named = {"text": text, "words": words, "counts": counts, "id": id}
        if any(name is not None for name in named.values()):
            raise InputError(f"must be left out: {files.piece.title} have no fields", parameter=tuple(named))
        return replace(own, terms=terms)
    chosen = Fields(text, words, counts, id)
    if not chosen.is_named:
        uses = record.fields
        if "words" in uses:
            chosen = replace(chosen, words=uses["words"], counts=uses["counts"])
        else:
            chosen = replace(chosen, text=uses.get("text", "text"))
    needed, used = wanted_columns(record)
    remembered = None if id is not None else record.fields.get("id")
    return replace(
        chosen,
        id=id or remembered,
        covariates=(*needed, *used),
        # each file by itself
        optional=used if remembered is None else (*used, remembered),
    )
