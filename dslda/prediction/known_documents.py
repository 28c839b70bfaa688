"""Documents in any form that a caller holds, as blocks that a model predicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.block import DocumentBlock, document_mask
from dslda.corpus.store import Corpus
from dslda.exceptions import InputError
from dslda.inputs.in_memory import records_in_memory
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.alignment import aligned_block, blocks_of_matrix, corpus_alignment
from dslda.prediction.columns import check_columns, columns_of_corpus
from dslda.prediction.counted_block import CountedBlock
from dslda.prediction.record_counting import blocks_of_documents

__all__ = ["PredictOptions", "chosen_blocks", "counted_documents"]


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

    Parameters are those of :meth:`dslda.model.Model.predict`, beside the record of the model, and so are the errors.
    """
    if isinstance(data, Corpus):
        yield from _blocks_of_corpus(data, record, **options)
        return
    if options.get("documents") is not None:
        raise InputError("must be left out: only documents of a corpus are chosen so", parameter="documents")
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
    for counted in blocks_of_documents(
        data if records is None else records,
        record,
        text=options.get("text"),
        words=options.get("words"),
        counts=options.get("counts"),
        covariates=covariates,
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
