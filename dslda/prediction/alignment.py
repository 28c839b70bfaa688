"""Counted documents over the vocabulary of a model; terms of other vocabularies are matched by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.array_inputs import matrix_block, vocabulary_of
from dslda.corpus.block import DocumentBlock
from dslda.exceptions import InputError, VocabularyMismatchError
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.columns import columns_of_arrays

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus

__all__ = ["CountedBlock", "aligned_block", "blocks_of_matrix", "corpus_alignment", "no_documents"]


@dataclass(frozen=True, slots=True, eq=False)
class CountedBlock:
    """Documents over the model's vocabulary, and their tokens outside of it.

    Attributes
    ----------
    block : DocumentBlock
    n_unknown : ndarray of int64, shape (D,)
        Tokens of each document that are not in the vocabulary.
    columns : mapping of str to ndarray of float64, shape (D,)
        Covariates of the documents, in the codes of the model.
    """

    block: DocumentBlock
    n_unknown: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


def no_documents() -> CountedBlock:
    """A block without documents, for results that have columns but no rows."""
    nothing = DocumentBlock(
        np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
    )
    return CountedBlock(nothing, np.zeros(0, dtype=np.int64))


def blocks_of_matrix(
    matrix: Any,
    record: ModelRecord,
    *,
    terms: Iterable[str] | None,
    covariates: Mapping[str, ArrayLike] | None = None,
) -> Iterator[CountedBlock]:
    """Rows of a count matrix, its columns in the model's order or named by `terms`."""
    shape = np.shape(matrix)
    alignment = None
    if terms is None and record.vocabulary is not None:
        # a DataFrame names its columns: where these are terms, they count, and not their order
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
    # whole: slices would convert the matrix again and again
    block = matrix_block(matrix)
    columns = columns_of_arrays(covariates, record, block.n_documents)
    yield replace(aligned_block(block, alignment), columns=columns)


def corpus_alignment(corpus: Corpus, record: ModelRecord, *, realign: bool) -> NDArray[np.int32] | None:
    """The model's ids of a corpus's terms, None where they are the same.

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
