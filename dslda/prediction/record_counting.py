"""Documents in any form that a caller holds, counted over the vocabulary of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.block import DocumentBlock, document_mask
from dslda.corpus.levels import encodable
from dslda.corpus.store import Corpus
from dslda.corpus.text import Analyzer, Document, TextSettings, count_documents
from dslda.exceptions import InputError
from dslda.inputs.fields import DocumentFields
from dslda.inputs.in_memory import records_in_memory
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.alignment import CountedBlock, aligned_block, blocks_of_matrix, corpus_alignment
from dslda.prediction.columns import check_columns, columns_of_arrays, columns_of_corpus, columns_of_records

__all__ = [
    "BATCH_DOCUMENTS",
    "PredictOptions",
    "blocks_of_documents",
    "chosen_blocks",
    "count_batch",
    "counted_documents",
    "fields_of_documents",
    "identifier_of",
    "settings_of_texts",
]

BATCH_DOCUMENTS = 1024


class PredictOptions(TypedDict, total=False):
    """Keywords of :meth:`dslda.model.Model.predict` and the methods like it."""

    text: str | None
    words: str | None
    counts: str | None
    terms: Iterable[str] | None
    realign: bool
    covariates: Mapping[str, ArrayLike] | None
    documents: ArrayLike | None


def chosen_blocks(
    corpus: Corpus, documents: ArrayLike | None, **columns: Any
) -> Iterator[tuple[NDArray[np.int64], DocumentBlock]]:
    """Chosen documents of a corpus and their row numbers, a partition at a time; partitions without any are not read.

    Parameters
    ----------
    corpus : Corpus
    documents : array-like or None
        As :func:`~dslda.corpus.block.document_mask` takes them; None chooses all.
    **columns
        Columns to read, as :meth:`~dslda.corpus.store.Corpus.read` takes them.
    """
    mask = None if documents is None else document_mask(documents, corpus.n_documents)
    offsets = corpus.document_offsets.tolist()
    for partition, (start, stop) in enumerate(pairwise(offsets)):
        if mask is None:
            yield np.arange(start, stop), corpus.read(partition, **columns)
        elif (own := mask[start:stop]).any():
            yield start + np.flatnonzero(own), corpus.read(partition, **columns).take(own)


def counted_documents(
    data: Any, record: ModelRecord, **options: Unpack[PredictOptions]
) -> Iterator[tuple[CountedBlock, tuple[str, ...]]]:
    """Documents over the model's vocabulary, a batch or partition at a time, with their identifiers.

    Parameters and errors are those of :meth:`dslda.model.Model.predict`, beside the record of the model.
    """
    if isinstance(data, Corpus):
        yield from _blocks_of_corpus(data, record, **options)
        return
    if options.get("documents") is not None:
        raise InputError(
            "must be left out: it chooses among the documents of a corpus", parameter="documents"
        )
    if isinstance(data, (str, bytes, Mapping)):
        raise InputError(
            f"must be a list of texts, got one {type(data).__name__}",
            parameter="data",
            remedy=("write [it]", "use {score()} for files"),
        )
    records = records_in_memory(data)
    covariates = options.get("covariates")
    if records is None and getattr(data, "ndim", 0) == 2:
        for counted in blocks_of_matrix(data, record, terms=options.get("terms"), covariates=covariates):
            yield counted, tuple(map(str, range(counted.block.n_documents)))
        return
    fields = fields_of_documents(record, options.get("text"), options.get("words"), options.get("counts"))
    for counted in blocks_of_documents(
        data if records is None else records, record, fields, covariates=covariates
    ):
        yield counted, counted.block.doc_id or ()


def _blocks_of_corpus(
    corpus: Corpus, record: ModelRecord, **options: Unpack[PredictOptions]
) -> Iterator[tuple[CountedBlock, tuple[str, ...]]]:
    alignment = corpus_alignment(corpus, record, realign=options.get("realign", False))
    if options.get("covariates") is not None:
        raise InputError("must be left out: those of the corpus are used", parameter="covariates")
    names = check_columns(corpus, record)
    for rows, block in chosen_blocks(
        corpus, options.get("documents"), responses=(), covariates=names, doc_id=True
    ):
        columns = columns_of_corpus(block.covariates, record, corpus.levels, rows)
        yield replace(aligned_block(block, alignment), columns=columns), block.doc_id or ()


def blocks_of_documents(
    documents: Iterable[Any],
    record: ModelRecord,
    fields: Sequence[DocumentFields],
    *,
    id: str | None = None,
    covariates: Mapping[str, ArrayLike] | None = None,
    place: Callable[[int], str] = "document {}".format,
) -> Iterator[CountedBlock]:
    """Count texts, (words, counts) pairs or mappings that hold them in `fields`, a batch at a time; `place` names one.

    Covariates come from the arrays, or else from the mappings. Identifiers come from the field `id`, or that of the
    training records.
    """
    settings = settings_of_texts(record)
    if not isinstance(documents, Iterable) or getattr(documents, "ndim", 1) == 0:
        raise InputError(
            f"must be a list of texts or of (words, counts), a corpus or a count matrix, got {type(documents).__name__}",
            parameter="data",
        )
    named = record.fields.get("id") if id is None else id
    # its regular expression is compiled once for all batches
    analyze = Analyzer(settings)
    arrays = None
    if covariates is not None:
        documents = list(documents)
        arrays = columns_of_arrays(covariates, record, len(documents))
    numbered = enumerate(documents)
    while batch := list(islice(numbered, BATCH_DOCUMENTS)):
        counted = count_batch(batch, record, analyze, fields, place)
        if arrays is None:
            columns = columns_of_records(batch, record, place)
        else:
            first = batch[0][0]
            columns = {name: values[first : first + len(batch)] for name, values in arrays.items()}
        doc_id = tuple(identifier_of(document, named, position) for position, document in batch)
        yield replace(counted, block=replace(counted.block, doc_id=doc_id), columns=columns)


def settings_of_texts(record: ModelRecord) -> TextSettings:
    """Text settings of a model.

    Raises
    ------
    InputError
        It was trained on a matrix without terms.
    """
    if record.vocabulary is None or record.text_settings is None:
        raise InputError(
            "this model was trained on a matrix without terms, it cannot count texts or words",
            remedy=(
                f"give a count matrix with {record.parameters.n_terms} columns (or predict with the scikit-learn pipeline, "
                "if it is of one)",
                "train with {terms=}",
            ),
        )
    return record.text_settings


def identifier_of(document: Any, name: str | None, position: int) -> str:
    """Identifier of a document: its field of that name, or its position where that is missing."""
    value = document.get(name) if name is not None and isinstance(document, Mapping) else None
    missing = value is None or value == "" or value != value
    return str(position) if missing else encodable(str(value))


def fields_of_documents(
    record: ModelRecord, text: str | None, words: str | None, counts: str | None
) -> tuple[DocumentFields, ...]:
    """Fields that may hold the documents of mappings: those with a name here, else those of the training records."""
    uses = record.fields
    both = DocumentFields(
        words=words or uses.get("words", "words"), counts=counts or uses.get("counts", "counts")
    )
    if text is None and (words is not None or counts is not None):
        return (both,)
    return DocumentFields(text=text or uses.get("text", "text")), both


def count_batch(
    batch: Sequence[tuple[int, Any]],
    record: ModelRecord,
    analyze: Analyzer,
    fields: Sequence[DocumentFields],
    place: Callable[[int], str],
    *,
    new_words: Callable[[str, int], None] | None = None,
) -> CountedBlock:
    """Count documents over the vocabulary of a model, without their columns.

    Parameters
    ----------
    batch : sequence of (int, document)
        Numbered documents.
    record : ModelRecord
        Of a model with a vocabulary.
    analyze : Analyzer
        Of its text settings.
    fields : sequence of DocumentFields
        Those that a document may have, where it is a mapping; the first of them that it has hold it.
    place : callable
        Names a document by its number.
    new_words : callable, optional
        As in :func:`~dslda.corpus.text.count_documents`.

    Raises
    ------
    InputError
        One is no document, naming its place.
    """
    assert record.vocabulary is not None

    def documents() -> Iterator[Document]:
        for position, given in batch:
            try:
                document = _document(given, fields)
            except InputError as error:
                raise error.at(place(position)) from None
            if isinstance(document, str) and analyze.settings.kind == "counts":
                raise InputError(
                    "the model was trained on words with counts and does not know how a text is cut into words, "
                    "got a text",
                    place=place(position),
                    remedy=(
                        "count the words and give (words, counts), such as (['small', 'dress'], [2, 1])",
                        "train on a corpus that was ingested from texts",
                    ),
                )
            yield document

    counted = count_documents(
        documents(), record.vocabulary, analyze, new_words=new_words, place=lambda i: place(batch[i][0])
    )
    return CountedBlock(DocumentBlock(counted.indptr, counted.terms, counted.counts), counted.n_unknown)


def _document(document: Any, fields: Sequence[DocumentFields]) -> Document:
    """A text or a (words, counts) pair, taken out of a mapping where it is one; a missing one is empty."""
    if not isinstance(document, Mapping):
        given: Document = document  # whether it is one is seen when it is counted
        return given
    for choice in fields:
        if choice.in_record(document):
            found = choice.document(document)
            if found is None:
                return "" if choice.text is not None else ((), ())
            return found
    listed = ", or ".join(
        repr(choice.text) if choice.text is not None else f"{choice.words!r} and {choice.counts!r}"
        for choice in fields
    )
    raise InputError(
        f"must have the field {listed}, got {', '.join(map(repr, document)) or 'none'}",
        remedy="name its fields with {text=}, or {words=} and {counts=}",
    )
