"""An executor reads the same documents from memory and from a store, also for a subset."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from dslda.corpus.block import DocumentBlock
from dslda.corpus.store import Corpus
from dslda.datasets.simulate import simulate_corpus
from dslda.engine.data.fit_source import CorpusSource, FitSource, MemorySource
from dslda.exceptions import InputError
from dslda.ingestion.ingest import ingest
from dslda.variational.design import Design
from dslda.variational.parameters import Scaling

N_TERMS = 60


@pytest.fixture(scope="module")
def block() -> DocumentBlock:
    return simulate_corpus(3750, 3, N_TERMS, mean_tokens=450, missing=0.1, seed=3).block


@pytest.fixture(scope="module")
def corpus(block: DocumentBlock, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path: Path = tmp_path_factory.mktemp("sources") / "simulated.corpus"
    matrix = sparse.csr_array((block.counts, block.terms, block.indptr), shape=(block.n_documents, N_TERMS))
    terms = [f"t{i}" for i in range(N_TERMS)]
    return ingest(matrix, path, vocabulary=terms, response={"y": block.responses["y"]})


def all_rows(source: FitSource) -> list[tuple[bytes, bytes, float]]:
    """Terms, counts and response of every document."""
    rows = []
    for i in range(source.n_partitions):
        part = source.load(i)
        assert part.n_documents == source.n_documents[i] == len(part.y)
        for d, (a, b) in enumerate(zip(part.indptr[:-1], part.indptr[1:], strict=True)):
            rows.append((part.terms[a:b].tobytes(), part.counts[a:b].tobytes(), float(part.y[d])))
    return rows


def same(left: object, right: object) -> bool:
    return repr(left) == repr(right)  # NaN equals itself in text


def test_memory_and_store_have_the_same_partitions(block: DocumentBlock, corpus: Corpus) -> None:
    memory = MemorySource(block, N_TERMS, design=Design("y"))
    stored = CorpusSource(corpus, design=Design("y"))
    assert memory.n_partitions == stored.n_partitions > 1
    for i in range(memory.n_partitions):
        left, right = memory.load(i), stored.load(i)
        for name in ("indptr", "terms", "counts", "y"):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    assert same(memory.response_summary(), stored.response_summary())


def test_response_is_standardised(block: DocumentBlock) -> None:
    source = MemorySource(block, N_TERMS, design=Design("y", Scaling(2.0, 4.0)))
    y = np.concatenate([source.load(i).y for i in range(source.n_partitions)])
    np.testing.assert_array_equal(y, (block.responses["y"] - 2.0) / 4.0)


def test_a_subset_keeps_just_those_rows(block: DocumentBlock, corpus: Corpus) -> None:
    keep = np.random.default_rng(0).random(block.n_documents) < 0.7
    whole = all_rows(MemorySource(block, N_TERMS, design=Design("y")))
    wanted = [row for row, kept in zip(whole, keep, strict=True) if kept]
    by_mask = CorpusSource(corpus, design=Design("y"), documents=keep)
    assert same(all_rows(by_mask), wanted)
    numbers = np.flatnonzero(keep)[::-1]
    assert same(all_rows(CorpusSource(corpus, design=Design("y"), documents=numbers)), wanted)
    in_memory = MemorySource(block, N_TERMS, design=Design("y"), documents=keep)
    assert same(all_rows(in_memory), wanted)
    summary = by_mask.response_summary()
    assert same(summary, in_memory.response_summary())
    seen = block.responses["y"][keep]
    assert summary.n == np.isfinite(seen).sum()
    assert summary.mean == pytest.approx(np.nanmean(seen))


def test_loaders_travel_and_stay_small(corpus: Corpus) -> None:
    keep = np.ones(corpus.n_documents, dtype=bool)
    keep[::3] = False
    source = CorpusSource(corpus, design=Design("y"), documents=keep)
    sent = pickle.dumps(source.loader(0))
    assert len(sent) < 3000
    np.testing.assert_array_equal(pickle.loads(sent)().terms, source.load(0).terms)


def test_a_partition_may_be_left_without_documents(corpus: Corpus) -> None:
    first = corpus.partitions[0].n_documents
    source = CorpusSource(corpus, design=Design("y"), documents=np.arange(first, corpus.n_documents))
    assert source.n_documents[0] == source.load(0).n_documents == 0


def test_messages_name_partition_and_documents(corpus: Corpus) -> None:
    source = CorpusSource(corpus, design=Design("y"))
    n = corpus.partitions[0].n_documents
    assert source.describe(0) == f"partition 0 (documents 0 to {n - 1})"


def test_training_blocks_tell_their_size(corpus: Corpus) -> None:
    source = CorpusSource(corpus, design=Design("y"))
    size = source.load(0).__sizeof__()
    assert size == pytest.approx(int(source.nbytes[0]), abs=200)


def test_an_unknown_response_is_refused_at_once(corpus: Corpus) -> None:
    with pytest.raises(InputError, match="'stars'"):
        CorpusSource(corpus, design=Design("stars"))
