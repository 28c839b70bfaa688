"""Documents in any form that a caller holds, as blocks that a model predicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from dslda.corpus.store import Corpus
from dslda.exceptions import InputError
from dslda.inputs.in_memory import records_in_memory
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.alignment import aligned_block, blocks_of_matrix, corpus_alignment
from dslda.prediction.columns import check_columns, columns_of_corpus
from dslda.prediction.counted_block import CountedBlock
from dslda.prediction.record_counting import blocks_of_documents

__all__ = ["counted_documents"]


def counted_documents(
    documents: Any,
    record: ModelRecord,
    *,
    text: str | None = None,
    words: str | None = None,
    counts: str | None = None,
    terms: Any = None,
    realign: bool = False,
    covariates: Mapping[str, ArrayLike] | None = None,
) -> Iterator[tuple[CountedBlock, tuple[str, ...]]]:
    """Documents over the model's vocabulary, a batch or partition at a time, with their identifiers.

    Parameters are those of :meth:`dslda.model.Model.predict`, beside the record of the model, and so are the errors.
    """
    if isinstance(documents, Corpus):
        alignment = corpus_alignment(documents, record, realign=realign)
        if covariates is not None:
            raise InputError("covariates must be left out: those of the corpus are used")
        names = check_columns(documents, record)
        first = 0
        for partition in range(documents.n_partitions):
            block = documents.read(partition, responses=(), covariates=names, doc_id=True)
            columns = columns_of_corpus(block.covariates, record, documents.levels, first=first)
            first += block.n_documents
            yield replace(aligned_block(block, alignment), columns=columns), block.doc_id or ()
        return
    if isinstance(documents, (str, bytes, Mapping)):
        raise InputError(
            f"documents must be a list of texts, got one {type(documents).__name__}; write [it], or use dslda.score for files"
        )
    records = records_in_memory(documents)
    if records is not None or getattr(documents, "ndim", 0) != 2:
        given = documents if records is None else records
        for counted in blocks_of_documents(
            given, record, text=text, words=words, counts=counts, covariates=covariates
        ):
            yield counted, counted.block.doc_id or ()
        return
    for counted in blocks_of_matrix(documents, record, terms=terms, covariates=covariates):
        yield counted, tuple(map(str, range(counted.block.n_documents)))
