"""Corpora of any size, generated partition by partition straight into the store."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.corpus.partition_writer import WrittenPartition
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusWriter

__all__ = ["Shape", "generate"]

TOPICS_OF_DOCUMENT = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a generated corpus: documents, documents of a partition, tokens of a document, terms, and topics."""

    documents: int
    partition_documents: int
    tokens: int
    terms: int
    topics: int

    @property
    def partitions(self) -> int:
        return -(-self.documents // self.partition_documents)


def generate(shape: Shape, path: Path) -> Corpus:
    """Write the corpus of a shape to `path`, unless it is there already. It has one response, ``y``.

    Topics have the frequencies of Zipf's law, each in its own order; a document has three of them.
    """
    if path.exists():
        return open_corpus(path)
    writer = CorpusWriter(
        path,
        vocabulary=Vocabulary(tuple(f"t{i:07}" for i in range(shape.terms))),
        text_settings=TextSettings(),
        n_partitions=shape.partitions,
        document_capacity=shape.partition_documents,
        entry_capacity=shape.partition_documents * shape.tokens,
        responses=["y"],
    )
    writer.prepare()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn, _start, (writer, shape)) as pool:
        writer.finish(pool.map(_write, range(shape.partitions)))
    return open_corpus(path)


_of_process: dict[str, tuple[CorpusWriter, Shape, NDArray[np.int32]]] = {}


def _start(writer: CorpusWriter, shape: Shape) -> None:
    rng = np.random.default_rng(0)
    orders = np.array([rng.permutation(shape.terms) for _ in range(shape.topics)], dtype=np.int32)
    _of_process["it"] = writer, shape, orders


def _write(partition: int) -> WrittenPartition:
    writer, shape, orders = _of_process["it"]
    first = partition * shape.partition_documents
    n = min(shape.partition_documents, shape.documents - first)
    rng = np.random.default_rng([1, partition])
    of_document = rng.integers(shape.topics, size=(n, TOPICS_OF_DOCUMENT))
    topic = of_document[np.arange(n)[:, np.newaxis], rng.integers(TOPICS_OF_DOCUMENT, size=(n, shape.tokens))]
    # log-uniform ranks: Zipf's law
    rank = (np.exp(rng.random((n, shape.tokens)) * np.log(shape.terms + 1)) - 1.0).astype(np.int64)
    word = orders[topic, np.minimum(rank, shape.terms - 1)]
    drawn = np.sort((np.arange(n)[:, np.newaxis] * shape.terms + word).ravel())
    starts = np.flatnonzero(np.diff(drawn, prepend=-1))
    owner, terms = np.divmod(drawn[starts], shape.terms)
    y = np.linspace(-2.0, 2.0, shape.topics)[of_document].mean(axis=1) + 0.5 * rng.normal(size=n)
    block = DocumentBlock(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))]).astype(np.int64),
        terms=terms.astype(np.int32),
        counts=np.diff(starts, append=len(drawn)).astype(np.int32),
        responses={"y": y},
    )
    return writer.write_partition(partition, block)
