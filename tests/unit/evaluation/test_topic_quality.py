"""Coherence, exclusivity and distinct words against their definitions, written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dslda.datasets.simulate import simulate_corpus
from dslda.evaluation import topic_quality as module
from dslda.evaluation.topic_quality import (
    N_EXCLUSIVE,
    N_TOP,
    NO_TERM,
    CoOccurrence,
    TopicQuality,
    co_occurrence,
    most_probable,
    npmi,
    top_terms,
    topic_quality,
)


def quality_of(holds: NDArray[np.bool_], topics: NDArray[np.float64], weight: object = None) -> TopicQuality:
    """The measures for documents by terms, True where a document holds a term."""
    top = top_terms(topics)
    return topic_quality(topics, top, counted(holds, top, weight))


def counted(holds: NDArray[np.bool_], top: NDArray[np.int32], weight: object = None) -> CoOccurrence:
    rows, terms = np.nonzero(holds)
    indptr = np.searchsorted(rows, np.arange(len(holds) + 1))
    weights = np.ones(len(holds)) if weight is None else np.array(weight, dtype=np.float64)
    return co_occurrence(indptr, terms.astype(np.int32), weights, top=top, n_terms=holds.shape[1])


def plain_npmi(holds: NDArray[np.bool_], words: list[int], weight: NDArray[np.float64]) -> float:
    """Bouma (2009) pair by pair."""
    values = []
    for i, j in itertools.combinations(words, 2):
        p, q, both = (
            weight[chosen].sum() / weight.sum()
            for chosen in (holds[:, i], holds[:, j], holds[:, i] & holds[:, j])
        )
        if both == 0.0:
            values.append(-1.0)
        elif both == 1.0:
            values.append(1.0)
        else:
            values.append(math.log(both / (p * q)) / -math.log(both))
    return float(np.mean(values))


def simulated(
    n_documents: int = 150, n_topics: int = 4, n_terms: int = 60, *, seed: int = 0
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which terms documents hold, and the topics that they were drawn from."""
    drawn = simulate_corpus(n_documents, n_topics, n_terms, mean_tokens=15, seed=seed)
    block = drawn.block
    holds = np.zeros((n_documents, n_terms), dtype=bool)
    holds[np.repeat(np.arange(n_documents), np.diff(block.indptr)), block.terms] = True
    return holds, np.ascontiguousarray(drawn.topics.T)


@pytest.mark.parametrize("numbers", [8, 1 << 18], ids=["two documents at a time", "all at once"])
@pytest.mark.parametrize("seed", range(3))
def test_the_measures_are_those_of_their_definitions(
    seed: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", numbers)
    holds, topics = simulated(seed=seed)
    weight = np.random.default_rng(seed).choice([0.0, 0.3, 1.0, 2.5], len(holds))
    found = quality_of(holds, topics, weight)
    words = [np.argsort(-column, kind="stable").tolist() for column in topics.T]
    assert_allclose(found.npmi, [plain_npmi(holds, own[:10], weight) for own in words], rtol=1e-9)
    assert -0.9 < found.npmi.min() < found.npmi.max() < 0.9
    expected = [np.mean([topics[w, k] / topics[w].sum() for w in own[:8]]) for k, own in enumerate(words)]
    assert_allclose(found.exclusivity, expected, rtol=1e-12)
    assert found.distinct_share == len({w for own in words for w in own[:8]}) / 32


def test_words_that_are_always_together_have_coherence_1_and_those_that_never_are_have_minus_1() -> None:
    holds = np.zeros((30, 30), dtype=bool)
    holds[:10, :10] = True  # together, in a third of the documents
    holds[np.arange(10, 20), np.arange(10, 20)] = True  # each in a document of its own
    holds[:, 20:29] = True  # in every document
    topics = np.zeros((30, 3))
    for k in range(3):
        topics[10 * k : 10 * k + 10, k] = 0.1
    found = quality_of(holds, topics)
    # the third has a word, 29, that is in no document
    assert found.npmi.tolist() == [1.0, -1.0, (36 - 9) / 45]
    assert found.exclusivity.tolist() == [1.0, 1.0, 1.0]
    assert found.distinct_share == 1.0


def test_a_pair_in_every_document_counts_as_together_for_all_weights() -> None:
    holds, topics = np.ones((7, 3), dtype=bool), np.full((3, 2), 1 / 3)
    found = quality_of(holds, topics, np.random.default_rng(0).random(7))
    assert found.npmi.tolist() == [1.0, 1.0]
    assert found.exclusivity.tolist() == [0.5, 0.5]
    assert found.distinct_share == 0.5


def test_independent_words_have_coherence_0() -> None:
    """All combinations of ten words, each once."""
    holds = (np.arange(1024)[:, np.newaxis] >> np.arange(10) & 1).astype(bool)
    assert_allclose(quality_of(holds, np.full((10, 1), 0.1)).npmi, 0.0, atol=1e-14)


def test_a_document_of_weight_2_counts_as_two_and_one_of_weight_0_not_at_all() -> None:
    holds, topics = simulated(40)
    weight = np.arange(40) % 3
    found = quality_of(holds, topics, weight)
    assert found.npmi.tolist() == quality_of(np.repeat(holds, weight, axis=0), topics).npmi.tolist()


def test_topics_keep_their_measures_in_any_order() -> None:
    holds, topics = simulated()
    order = [2, 0, 3, 1]
    found, moved = quality_of(holds, topics), quality_of(holds, topics[:, order])
    assert moved.npmi.tolist() == found.npmi[order].tolist()
    assert_allclose(moved.exclusivity, found.exclusivity[order], rtol=1e-12)
    assert moved.distinct_share == found.distinct_share


def test_the_counts_of_parts_add_up() -> None:
    holds, topics = simulated()
    top = top_terms(topics)
    weight = np.arange(len(holds)) % 4
    whole = counted(holds, top, weight)
    parts = [counted(holds[rows], top, weight[rows]) for rows in np.array_split(np.arange(len(holds)), 7)]
    total = parts[0].copy()
    for part in [counted(holds[:0], top), *parts[1:]]:
        total.add(part)
    assert total.documents.tobytes() == whole.documents.tobytes()
    assert (
        (total.weight, total.n_documents) == (whole.weight, whole.n_documents) == (weight.sum(), len(holds))
    )
    assert_array_equal(whole.documents, whole.documents.transpose(0, 2, 1))


def test_one_topic_has_all_of_its_words_to_itself() -> None:
    holds, topics = simulated(n_topics=1)
    found = quality_of(holds, topics)
    assert (found.exclusivity.tolist(), found.distinct_share) == ([1.0], 1.0)
    assert_allclose(found.npmi, [plain_npmi(holds, list(top_terms(topics)[0]), np.ones(len(holds)))])


def test_words_that_a_topic_cannot_have_are_not_among_its_top_words() -> None:
    """Unknown terms are rows of zeros, and without a prior a topic may have few words."""
    topics = np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 1.0], [0.3, 0.9, 0.0], [0.2, 0.1, 0.0]])
    top = top_terms(topics)
    assert [[t for t in row if t != NO_TERM] for row in top.tolist()] == [[1, 2, 3], [2, 3], [1]]
    assert top.shape == (3, N_TOP)
    holds = np.array([[0, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 1], [0, 0, 0, 0]], dtype=bool)
    found = quality_of(holds, topics)
    weight = np.ones(4)
    assert_allclose(found.npmi[:2], [plain_npmi(holds, [1, 2, 3], weight), plain_npmi(holds, [2, 3], weight)])
    assert math.isnan(found.npmi[2])
    assert_allclose(found.exclusivity[2], 1.0 / 1.5)
    assert found.distinct_share == 3 / 6
    assert "coherence (NPMI) 0." in found.in_words
    alone = quality_of(holds[:, 1:2], topics[1:2, 2:])
    assert alone.in_words == "coherence (NPMI) not known, exclusivity 1.00, 100% of the top words distinct"


def test_of_equally_probable_words_the_first_are_taken() -> None:
    topics = np.full((30, 2), 1 / 30)
    topics[25, 1] += 0.1
    assert top_terms(topics).tolist() == [[*range(10)], [25, *range(9)]]
    generator = np.random.default_rng(0)
    for n in (1, 3, 10, 40):
        weights = generator.integers(0, 4, 40).astype(float)
        assert most_probable(weights, n).tolist() == np.argsort(-weights, kind="stable")[:n].tolist()
    assert most_probable(np.zeros(0), 3).tolist() == []


def test_the_measures_of_all_documents_of_none() -> None:
    """A partition may be without documents, and a document without words."""
    top = top_terms(np.full((5, 2), 0.2))
    nothing = counted(np.zeros((0, 5), dtype=bool), top)
    assert (nothing.n_documents, nothing.weight, nothing.documents.sum()) == (0, 0.0, 0.0)
    empty = counted(np.zeros((3, 5), dtype=bool), top)
    assert (empty.n_documents, empty.weight, empty.documents.sum()) == (3, 3.0, 0.0)
    assert npmi(empty, top).tolist() == [-1.0, -1.0]
    assert N_EXCLUSIVE < N_TOP
