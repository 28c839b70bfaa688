"""Sources of a fit: the documents of a corpus as the E-step sees them, partition by partition."""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.block import DocumentBlock, document_mask
from dslda.corpus.partitioning import choose_partition_tokens, cut, join_pieces, number_of_partitions, work
from dslda.corpus.summary import ResponseSummary
from dslda.engine.data.resampling import Resample
from dslda.engine.data.response_survey import Survey, survey_block
from dslda.engine.data.training_view import PartitionLoader, TrainingBlock, TrainingView, unpacked
from dslda.evaluation.metrics import held_out
from dslda.families.base import Family, ResponseMoments
from dslda.storage.typed_json import json_sha256
from dslda.storage.zarr_arrays import checksum
from dslda.variational.design import Design
from dslda.variational.parameters import Scaling

if TYPE_CHECKING:
    from distributed import Future

    from dslda.corpus.store import Corpus

__all__ = ["CorpusSource", "FitSource", "FutureSource", "MemorySource"]

T = TypeVar("T")

# one (document, term) entry: an int32 term and an int32 count; one document: its indptr entry and its response
_ENTRY_BYTES = 8
_DOCUMENT_BYTES = 16


class FitSource(ABC):
    """The documents of one fit, in partitions that depend only on the data.

    Parameters
    ----------
    n_terms : int
    n_documents : sequence of int, length P
        Stored documents of each partition.
    n_entries : sequence of int, length P
        (document, term) entries of each partition.
    design : Design
        The columns to use.
    documents : array_like, optional
        The documents to train on: a boolean mask, or row numbers. All by default. A subset keeps the partitions of
        all documents.

    Attributes
    ----------
    n_terms : int
    design : Design
    n_documents : ndarray of int64, shape (P,)
        Training documents of each partition.
    n_others : ndarray of int64, shape (P,)
        Documents of each partition that evaluate the model: those held out, or else all that `documents` leaves out.
    n_entries : ndarray of int64, shape (P,)
    nbytes : ndarray of int64, shape (P,)
        Size in memory of each partition, before documents are left out.
    weighted : bool
        The stored documents have weights.

    Raises
    ------
    InputError
        `documents` is a mask of another length, has a row number that does not exist, or selects nothing.
    """

    def __init__(
        self,
        *,
        n_terms: int,
        n_documents: Sequence[int] | NDArray[np.int64],
        n_entries: Sequence[int] | NDArray[np.int64],
        design: Design,
        documents: ArrayLike | None,
    ) -> None:
        stored = np.asarray(n_documents, dtype=np.int64)
        self.n_terms = n_terms
        self.weighted = False
        self.design = design
        self.n_entries = np.asarray(n_entries, dtype=np.int64)
        self.nbytes = self.n_entries * _ENTRY_BYTES + stored * _DOCUMENT_BYTES
        self._first = np.concatenate([[0], np.cumsum(stored)])
        self._training: list[NDArray[np.uint8]] | None = None
        self._held_out: list[NDArray[np.uint8]] | None = None
        self._resample: Resample | None = None
        self.n_documents = stored
        self.n_others = np.zeros_like(stored)
        if documents is not None:
            self._training, self.n_documents = self._cut(document_mask(documents, int(stored.sum())))
            self.n_others = stored - self.n_documents

    @property
    def n_partitions(self) -> int:
        return len(self.n_documents)

    def hold_out(self, share: float) -> Self:
        """The same documents with a share of them held out, the same ones in every fit."""
        mask = np.ones(int(self._first[-1]), dtype=np.bool_)
        if self._training is not None:
            sizes = np.diff(self._first)
            mask = np.concatenate([unpacked(bits, n) for bits, n in zip(self._training, sizes, strict=True)])
        rows = np.flatnonzero(mask)
        others = np.zeros_like(mask)
        others[rows[held_out(len(rows), share)]] = True
        new = copy.copy(self)
        new._training, new.n_documents = self._cut(mask & ~others)
        new._held_out, new.n_others = self._cut(others)
        return new

    def _cut(self, mask: NDArray[np.bool_]) -> tuple[list[NDArray[np.uint8]], NDArray[np.int64]]:
        """The packed mask of each partition, and the number of its documents."""
        parts = [mask[a:b] for a, b in zip(self._first[:-1], self._first[1:], strict=True)]
        return [np.packbits(part) for part in parts], np.array([part.sum() for part in parts], dtype=np.int64)

    def with_design(self, design: Design) -> Self:
        """The same documents, other columns or another scale."""
        new = copy.copy(self)
        new.design = design
        return new

    def resampled(self, resample: Resample) -> Self:
        """The same documents, drawn again for training."""
        new = copy.copy(self)
        new._resample = resample
        return new

    def view(self, partition: int) -> TrainingView:
        """The view of a partition's training documents."""
        bits = None if self._training is None else self._training[partition]
        return TrainingView(self.design, bits, int(self._first[partition]), self._resample)

    def others(self, partition: int) -> TrainingView:
        """The view of the documents of a partition that evaluate the model, if the source has some."""
        assert self._training is not None
        bits = ~self._training[partition] if self._held_out is None else self._held_out[partition]
        return TrainingView(self.design, bits, int(self._first[partition]))

    def loader(self, partition: int) -> PartitionLoader:
        """A function that reads a partition for training."""
        return PartitionLoader(self.reader(partition), self.view(partition))

    def load(self, partition: int) -> TrainingBlock:
        """Read a partition now."""
        return self.loader(partition)()

    @abstractmethod
    def reader(self, partition: int) -> Callable[[], DocumentBlock]:
        """A function that reads the stored documents of a partition."""

    def each(self, function: Callable[[DocumentBlock, TrainingView], T]) -> Iterator[T]:
        """Apply a function to every partition and its view, in order, on workers if the documents live there."""
        return (function(self.reader(i)(), self.view(i)) for i in range(self.n_partitions))

    def response_summary(self) -> ResponseSummary:
        """Summary of the training responses, in the user's units, with the same bits for every kind of source.

        Raises
        ------
        InputError
            A response is infinite.
        """
        return ResponseSummary.merge_all(self.each(_summarise))

    def data_hash(self) -> str:
        """SHA-256 of documents without a stored corpus, and of the columns in the design."""
        return json_sha256({"n_terms": self.n_terms, "partitions": list(self.each(_block_hash))})

    def selection_hash(self) -> str:
        """SHA-256 of the mask of the training documents."""
        digest = hashlib.sha256()
        for i, n_documents in enumerate(self.n_documents):
            bits = self.view(i).kept
            digest.update(
                (np.packbits(np.ones(n_documents, dtype=np.uint8)) if bits is None else bits).tobytes()
            )
        return digest.hexdigest()

    def survey(self, family: Family, n_levels: Mapping[str, int]) -> Survey:
        """Survey of the columns of the training documents; see :func:`~dslda.engine.data.response_survey.survey_block`."""
        surveys = self.each(partial(survey_block, family=family, n_levels=n_levels))
        return Survey.merge_all([s.moved(int(start)) for start, s in zip(self._first, surveys, strict=False)])

    def first_with(self, y: float) -> int | None:
        """The row of the first training document with this response."""
        return next(iter(self._rows(partial(_with_response, y=y))), None)

    def left_out(self) -> list[int]:
        """Rows of the documents whose response is ignored because they lack one of the design's columns."""
        return list(self._rows(_left_out))

    def _rows(self, function: Callable[[DocumentBlock, TrainingView], NDArray[np.int64]]) -> Iterator[int]:
        """Rows of the source, from a function that returns rows of a block."""
        for start, rows in zip(self._first, self.each(function), strict=False):
            yield from (int(start) + row for row in rows.tolist())

    def name_of(self, row: int) -> str:
        """Name a document in messages."""
        return f"document {row:,} (counted from 0)"

    def standardised(self, family: Family) -> Self:
        """The same documents with the response on the scale on which `family` is fitted."""
        summary = self.response_summary()
        moments = ResponseMoments(summary.n, summary.mean, summary.variance, summary.minimum, summary.maximum)
        scaling = Scaling(*family.scaling(moments))
        return self.with_design(replace(self.design, scaling=scaling))

    def describe(self, partition: int) -> str:
        """Words for a partition and its documents."""
        start, stop = self._first[partition : partition + 2]
        return f"partition {partition} (documents {start} to {stop - 1})"


class CorpusSource(FitSource):
    """The partitions of a stored corpus, read where they are needed."""

    def __init__(self, corpus: Corpus, *, design: Design, documents: ArrayLike | None = None) -> None:
        super().__init__(
            n_terms=corpus.n_terms,
            n_documents=[p.n_documents for p in corpus.partitions],
            n_entries=[p.nnz for p in corpus.partitions],
            design=design,
            documents=documents,
        )
        self._corpus = corpus
        self.weighted = corpus.has_weight
        # refuse unknown columns now, not on a worker
        corpus.reader(0, responses=[design.response], covariates=design.columns)

    def reader(self, partition: int) -> Callable[[], DocumentBlock]:
        return self._corpus.reader(
            partition, responses=[self.design.response], covariates=self.design.columns, weight=True
        )

    def response_summary(self) -> ResponseSummary:
        complete = not any(self._corpus.covariate_summaries[name].missing for name in self.design.columns)
        if self._training is None and complete:
            return self._corpus.response_summaries[self.design.response]
        return super().response_summary()

    def name_of(self, row: int) -> str:
        if not self._corpus.has_doc_id:
            return super().name_of(row)
        partition = int(np.searchsorted(self._first, row, side="right")) - 1
        names = self._corpus.read(partition, responses=(), doc_id=True).doc_id or ()
        return f"document {names[row - int(self._first[partition])]!r}"


class MemorySource(FitSource):
    """Documents in memory, cut into the partitions that a stored corpus of them would have.

    Only this process can use them, since documents are not sent to a cluster.
    """

    def __init__(
        self, block: DocumentBlock, n_terms: int, *, design: Design, documents: ArrayLike | None = None
    ) -> None:
        n_tokens = block.n_tokens
        n_partitions = number_of_partitions(n_tokens, choose_partition_tokens(n_tokens, None))
        # one block gives one piece per partition
        pieces = [p.pieces[0] for p in join_pieces([cut(block, 0, work(block), n_partitions)])]
        super().__init__(
            n_terms=n_terms,
            n_documents=[piece.stop - piece.start for piece in pieces],
            n_entries=[piece.n_entries for piece in pieces],
            design=design,
            documents=documents,
        )
        self.weighted = block.weight is not None
        self._blocks = [block.rows(piece.start, piece.stop) for piece in pieces]

    def reader(self, partition: int) -> Callable[[], DocumentBlock]:
        block = self._blocks[partition]
        return lambda: block


class FutureSource(FitSource):
    """Blocks of documents that live on the workers of a cluster, such as those counted from a Dask bag.

    Parameters
    ----------
    futures : sequence of distributed.Future, length P
        Futures of :class:`~dslda.corpus.block.DocumentBlock`, in the order of the corpus. They must be results of tasks,
        so that Dask computes a lost one again. The caller keeps them alive and releases them.
    n_terms, n_documents, n_entries, design, documents
        See :class:`FitSource`.
    """

    def __init__(
        self,
        futures: Sequence[Future[DocumentBlock]],
        *,
        n_terms: int,
        n_documents: Sequence[int],
        n_entries: Sequence[int],
        design: Design,
        documents: ArrayLike | None = None,
    ) -> None:
        super().__init__(
            n_terms=n_terms,
            n_documents=n_documents,
            n_entries=n_entries,
            design=design,
            documents=documents,
        )
        self.futures = list(futures)

    def reader(self, partition: int) -> Callable[[], DocumentBlock]:
        result: Callable[[], DocumentBlock] = self.futures[partition].result
        return result

    def each(self, function: Callable[[DocumentBlock, TrainingView], T]) -> Iterator[T]:
        views = [self.view(i) for i in range(self.n_partitions)]
        client = self.futures[0].client
        # the blocks stay on their workers
        results: list[T] = client.gather(client.map(function, self.futures, views, pure=False))
        return iter(results)


def _summarise(block: DocumentBlock, view: TrainingView) -> ResponseSummary:
    return view.summary(block)


def _with_response(block: DocumentBlock, view: TrainingView, *, y: float) -> NDArray[np.int64]:
    hits: NDArray[np.int64] = view.rows(block)[view.raw(block) == y]
    return hits


def _left_out(block: DocumentBlock, view: TrainingView) -> NDArray[np.int64]:
    return view.left_out(block)


def _block_hash(block: DocumentBlock, view: TrainingView) -> list[list[str]]:
    columns = {f"response/{name}": values for name, values in block.responses.items()}
    columns |= {f"covariates/{name}": values for name, values in block.covariates.items()}
    if block.weight is not None:
        columns["weight"] = block.weight
    return [
        ["counts", checksum(block.indptr, block.terms, block.counts)],
        *([name, checksum(columns[name])] for name in sorted(columns)),
    ]
