"""Documents in any form that a caller holds, counted over the vocabulary of a model.

Terms of other vocabularies are matched by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.array_inputs import matrix_block
from dslda.corpus.block import DocumentBlock, document_mask
from dslda.corpus.store import Corpus
from dslda.corpus.text import Analyzer, Document, TextSettings, count_documents
from dslda.corpus.vocabulary import vocabulary_of
from dslda.exceptions import InputError, VocabularyMismatchError
from dslda.ingestion.counting import identifier_value
from dslda.inputs.fields import DocumentFields, is_missing
from dslda.inputs.in_memory import computed, records_in_memory
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.columns import check_columns, columns_of_arrays, columns_of_corpus, columns_of_records

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "BATCH_DOCUMENTS",
    "CountedBlock",
    "PredictOptions",
    "aligned_block",
    "blocks_of_documents",
    "check_analyzer_is_ready",
    "chosen_blocks",
    "corpus_alignment",
    "count_batch",
    "counted_documents",
    "counts_of_corpus",
    "fields_of_documents",
    "no_documents",
    "settings_of_texts",
]

BATCH_DOCUMENTS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class CountedBlock:
    """Documents counted over the vocabulary of a model.

    Attributes
    ----------
    block : DocumentBlock
    n_unknown : ndarray of int64, shape (D,)
        Tokens of each document outside the vocabulary.
    columns : mapping of str to ndarray of float64, shape (D,)
        Covariates of the documents, in the codes of the model.
    """

    block: DocumentBlock
    n_unknown: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


def no_documents() -> CountedBlock:
    """A block without documents, for results that have columns but no rows."""
    nothing = np.zeros(0, dtype=np.int32)
    return CountedBlock(
        DocumentBlock(np.zeros(1, dtype=np.int64), nothing, nothing), np.zeros(0, dtype=np.int64)
    )


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
    """Yield the row numbers and the block of the chosen documents of each partition that has any; None chooses all.

    `columns` are those to read, as :meth:`~dslda.corpus.store.Corpus.read` takes them.
    """
    mask = None if documents is None else document_mask(documents, corpus.n_documents)
    offsets = corpus.document_offsets.tolist()
    for partition, (start, stop) in enumerate(pairwise(offsets)):
        if mask is None:
            yield np.arange(start, stop), corpus.read(partition, **columns)
        elif (own := mask[start:stop]).any():
            yield start + np.flatnonzero(own), corpus.read(partition, **columns).take(own)


def counts_of_corpus(corpus: Corpus, rows: NDArray[np.int64]) -> csr_array:
    """Counts of some documents, with the 32-bit indices that scikit-learn's solvers take."""
    from scipy.sparse import csr_array

    counts, terms, sizes = [], [], []
    for _, block in chosen_blocks(corpus, rows):
        counts.append(block.counts)
        terms.append(block.terms)
        sizes.append(np.diff(block.indptr))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int32)
    values = np.concatenate(counts).astype(np.float64)
    return csr_array((values, np.concatenate(terms), indptr), shape=(len(rows), corpus.n_terms))


def counted_documents(
    data: Any, record: ModelRecord, **options: Unpack[PredictOptions]
) -> Iterator[tuple[CountedBlock, tuple[str, ...]]]:
    """Count documents, a batch or partition at a time, and yield them with their identifiers.

    Data, options and errors are those of :meth:`dslda.model.Model.predict`.
    """
    if isinstance(data, Corpus):
        yield from _blocks_of_corpus(data, record, **options)
        return
    if options.get("documents") is not None:
        raise InputError(
            "must be left out: it chooses among the documents of a corpus", parameter="documents"
        )
    data = computed(data)
    is_matrix = getattr(data, "ndim", 0) == 2  # one of scipy's is a mapping too
    if isinstance(data, (str, bytes, Mapping)) and not is_matrix:
        raise InputError(
            f"must be a list of texts, got one {type(data).__name__}",
            parameter="data",
            remedy=("write [it]", "use {score()} for files"),
        )
    records = records_in_memory(data)
    covariates = options.get("covariates")
    if records is None and is_matrix:
        counted = _counted_matrix(data, record, options.get("terms"), covariates)
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
    """Count texts, (words, counts) pairs, or mappings that hold one of these in `fields`, a batch at a time.

    Covariates come from the arrays, or else from the mappings. Identifiers come from the field `id`, by default that of the
    training records. `place` names a document by its position.
    """
    settings = settings_of_texts(record)
    if not isinstance(documents, Iterable) or getattr(documents, "ndim", 1) == 0:
        raise InputError(
            f"must be a list of texts or of (words, counts), a corpus or a count matrix, got {type(documents).__name__}",
            parameter="data",
        )
    named = record.fields.get("id") if id is None else id
    analyze = Analyzer(settings)
    arrays = None
    if covariates is not None:
        documents = list(documents)
        arrays = columns_of_arrays(covariates, record, len(documents))
    numbered = enumerate(documents)
    while batch := list(islice(numbered, BATCH_DOCUMENTS)):
        counted = count_batch(batch, record, analyze, fields, place, id=named)
        if arrays is None:
            columns = columns_of_records(batch, record, place)
        else:
            first = batch[0][0]
            columns = {name: values[first : first + len(batch)] for name, values in arrays.items()}
        yield replace(counted, columns=columns)


def settings_of_texts(record: ModelRecord) -> TextSettings:
    """Text settings of a model; a model trained on a matrix without terms has none and is refused."""
    if record.vocabulary is None or record.text_settings is None:
        raise InputError(
            "this model was trained on a matrix without terms, it cannot count texts or words",
            remedy=(
                f"give a count matrix with {record.parameters.n_terms} columns (or predict with the scikit-learn pipeline "
                "that the model is part of)",
                "train with {terms=}",
            ),
        )
    return record.text_settings


def check_analyzer_is_ready(record: ModelRecord) -> None:
    """Import the analyzer of a model of texts before the first document, whose fault an error would seem.

    Raises
    ------
    InputError
        As :meth:`~dslda.corpus.text.Analyzer.ready`, and for a model without terms.
    """
    Analyzer(settings_of_texts(record)).ready()


def _identifier(document: Any, name: str | None, position: int) -> str:
    """Identifier of a document: its field `name`, or its position where the field is missing or empty."""
    if name is None or not isinstance(document, Mapping):
        return str(position)
    return identifier_value(document.get(name), name) or str(position)


def fields_of_documents(
    record: ModelRecord, text: str | None, words: str | None, counts: str | None
) -> tuple[DocumentFields, ...]:
    """Fields that may hold the documents of mappings: those named here, else those of the training records."""
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
    id: str | None,
    new_words: Callable[[str, int], None] | None = None,
) -> CountedBlock:
    """Count numbered documents over the vocabulary of a model, without their columns.

    A mapping holds its document in the first of the `fields` that it has, and its identifier in the field `id`. `place` names
    a document by its number, and `new_words` is as in :func:`~dslda.corpus.text.count_documents`.

    Raises
    ------
    InputError
        An item of the batch is no document; the error names its place.
    """
    assert record.vocabulary is not None
    doc_id: list[str] = []

    def documents() -> Iterator[Document]:
        for position, item in batch:
            try:
                document = _document(item, fields)
                doc_id.append(_identifier(item, id, position))
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

    block, n_unknown = count_documents(
        documents(), record.vocabulary, analyze, new_words=new_words, place=lambda i: place(batch[i][0])
    )
    return CountedBlock(replace(block, doc_id=tuple(doc_id)), n_unknown)


def _document(document: Any, fields: Sequence[DocumentFields]) -> Document:
    """The text or (words, counts) pair in a mapping, empty if it is missing; anything else unchanged."""
    if is_missing(document):
        return (), ()
    if not isinstance(document, Mapping):
        return document  # type: ignore[no-any-return]  # counting checks it
    for choice in fields:
        if choice.in_record(document):
            content = choice.document(document)
            if content is None:
                return "" if choice.text is not None else ((), ())
            return content
    listed = ", or ".join(
        repr(choice.text) if choice.text is not None else f"{choice.words!r} and {choice.counts!r}"
        for choice in fields
    )
    raise InputError(
        f"must have the field {listed}, got {', '.join(map(repr, document)) or 'none'}",
        remedy="name its fields with {text=}, or {words=} and {counts=}",
    )


def _counted_matrix(
    matrix: Any,
    record: ModelRecord,
    terms: Iterable[str] | None,
    covariates: Mapping[str, ArrayLike] | None,
) -> CountedBlock:
    """Count the rows of a matrix, its columns in the model's order or named by `terms`."""
    shape = np.shape(matrix)
    alignment = None
    if terms is None and record.vocabulary is not None:
        # the columns of a DataFrame are matched by name where they are terms
        names = list(getattr(matrix, "columns", ()))
        if any(isinstance(name, str) and name in record.vocabulary.index for name in names):
            terms = [str(name) for name in names]
    if terms is None:
        if len(shape) == 2 and shape[1] != record.parameters.n_terms:
            raise VocabularyMismatchError(
                f"the matrix has {shape[1]} columns, the model has {record.parameters.n_terms} terms",
                remedy="name its columns with {terms=}, so that they are matched",
            )
    else:
        theirs = vocabulary_of(terms)
        if record.vocabulary is None:
            raise InputError("this model was trained on a matrix without terms, so terms cannot be matched")
        if len(shape) == 2 and shape[1] != len(theirs):
            raise InputError(
                f"must name the {shape[1]} columns of the matrix, got {len(theirs)} terms", parameter="terms"
            )
        alignment = record.vocabulary.alignment(theirs)
    # the whole matrix: slices would convert it again and again
    block = matrix_block(matrix)
    columns = columns_of_arrays(covariates, record, block.n_documents)
    return replace(aligned_block(block, alignment), columns=columns)


def corpus_alignment(corpus: Corpus, record: ModelRecord, *, realign: bool) -> NDArray[np.int32] | None:
    """The model's ids of a corpus's terms, None where the vocabularies are the same.

    Raises
    ------
    VocabularyMismatchError
        The vocabularies differ and `realign` is False, or the model has none.
    """
    ours = record.vocabulary
    if ours is None:
        raise VocabularyMismatchError(
            "this model was trained on a matrix without terms, so it cannot be matched with a corpus",
            remedy="train with {terms=}",
        )
    if ours.sha256 == corpus.vocabulary_sha256:
        return None
    if not realign:
        raise VocabularyMismatchError(
            f"{corpus.path} is counted over another vocabulary than the model's ({corpus.n_terms} terms, "
            f"hash {corpus.vocabulary_sha256[:12]}; the model has {len(ours)}, hash {ours.sha256[:12]})",
            remedy=("ingest it with the model's vocabulary", "match the terms by name with {realign=True}"),
        )
    return ours.alignment(corpus.vocabulary)


def aligned_block(block: DocumentBlock, alignment: NDArray[np.int32] | None) -> CountedBlock:
    """Rename the terms of a block; terms without a new name count as unknown."""
    if alignment is None:
        return CountedBlock(block, np.zeros(block.n_documents, dtype=np.int64))
    rows = np.repeat(np.arange(block.n_documents), np.diff(block.indptr))
    terms = alignment[block.terms]
    known = terms >= 0
    unknown = np.bincount(rows[~known], weights=block.counts[~known], minlength=block.n_documents)
    aligned = DocumentBlock.from_entries(rows[known], terms[known], block.counts[known], block.n_documents)
    aligned = replace(aligned, responses=block.responses, doc_id=block.doc_id)
    return CountedBlock(aligned, unknown.astype(np.int64))
