"""Stability of topics against its definition, and what it must not depend on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dslda.evaluation.topic_quality import N_TOP
from dslda.evaluation.topic_stability import UNSTABLE, TopicStability, topic_stability

Start = tuple[NDArray[np.float64], NDArray[np.float64]]


def a_start(
    generator: np.random.Generator, n_topics: int, n_terms: int = 60, n_documents: int = 300
) -> Start:
    """Topics of shape (V, K) and shares of shape (D, K)."""
    topics = generator.dirichlet(np.full(n_terms, 0.05), n_topics).T
    return topics, generator.dirichlet(np.full(n_topics, 0.3), n_documents)


def reordered(start: Start, order: NDArray[np.int64]) -> Start:
    topics, shares = start
    return topics[:, order], shares[:, order]


def mixed(generator: np.random.Generator, start: Start, weight: float) -> Start:
    """Something between a start and another one, which has its topics in another order."""
    topics, shares = start
    other_topics, other_shares = a_start(generator, topics.shape[1], len(topics), len(shares))
    between = (
        weight * topics + (1.0 - weight) * other_topics,
        weight * shares + (1.0 - weight) * other_shares,
    )
    return reordered(between, generator.permutation(topics.shape[1]))


def test_permuted_copies_of_one_start_are_stable() -> None:
    generator = np.random.default_rng(0)
    start = a_start(generator, 6)
    found = topic_stability(*start, [reordered(start, generator.permutation(6)) for _ in range(3)])
    assert_array_equal(found.words, np.ones(6))
    assert_allclose(found.shares, np.ones(6), rtol=1e-12)
    assert found.mean == pytest.approx(1.0)
    assert found.unstable == []
    assert found.in_words == "1.00 (words 1.00, documents 1.00), 0 of 6 topics unstable"


def test_topics_that_have_nothing_to_do_with_each_other_are_unstable() -> None:
    generator = np.random.default_rng(1)
    first, *others = (a_start(generator, 8, n_terms=3_000, n_documents=2_000) for _ in range(4))
    found = topic_stability(*first, others)
    assert found.of_topics.max() < 0.1
    assert found.unstable == list(range(8))


def plain(start: Start, others: list[Start]) -> tuple[list[float], list[float]]:
    """The definition, written out: partners by trying all orders, words as sets."""

    def top(topics: NDArray[np.float64], k: int) -> set[int]:
        return set(np.argsort(-topics[:, k], kind="stable")[:N_TOP].tolist())

    topics, shares = start
    n_topics = topics.shape[1]
    words, correlations = np.zeros(n_topics), np.zeros(n_topics)
    for other_topics, other_shares in others:
        partners = max(
            itertools.permutations(range(n_topics)),
            key=lambda order: sum(
                np.sqrt(topics[:, k] * other_topics[:, j]).sum() for k, j in enumerate(order)
            ),
        )
        for k, j in enumerate(partners):
            words[k] += len(top(topics, k) & top(other_topics, j)) / N_TOP / len(others)
            correlation = np.corrcoef(shares[:, k], other_shares[:, j])[0, 1]
            correlations[k] += max(correlation, 0.0) / len(others)
    return words.tolist(), correlations.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_it_is_that_of_its_definition(seed: int) -> None:
    generator = np.random.default_rng(seed)
    start = a_start(generator, 5)
    others = [mixed(generator, start, weight) for weight in (0.2, 0.5, 0.8)]
    found = topic_stability(*start, others)
    words, shares = plain(start, others)
    assert_allclose(found.words, words, rtol=1e-12)
    assert_allclose(found.shares, shares, rtol=1e-9)
    assert 0.2 < found.mean < 0.9
    assert_allclose(found.of_topics, (np.array(words) + shares) / 2, rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_order_of_topics_and_of_starts_makes_no_difference(
    n_topics: int, n_others: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    start = a_start(generator, n_topics, n_documents=50)
    others = [mixed(generator, start, generator.uniform()) for _ in range(n_others)]
    found = topic_stability(*start, others)
    order = generator.permutation(n_topics)
    shuffled = [
        reordered(others[i], generator.permutation(n_topics)) for i in generator.permutation(n_others)
    ]
    again = topic_stability(*reordered(start, order), shuffled)
    assert_allclose(again.words, found.words[order], rtol=1e-12)
    assert_allclose(again.shares, found.shares[order], rtol=1e-9, atol=1e-12)
    for values in (found.words, found.shares):
        assert values.min() >= 0.0
        assert values.max() <= 1.0


def test_opposite_and_constant_shares_count_as_nothing() -> None:
    topics = np.eye(3).repeat(20, axis=0) / 20.0
    rising = np.linspace(0.1, 0.3, 50)
    # a third is not a binary fraction: its mean is off by rounding
    constant = np.full(50, 1.0 / 3.0)
    shares = np.column_stack([rising, 1.0 - rising - constant, constant])
    found = topic_stability(topics, shares, [(topics, shares[:, [1, 0, 2]])])
    assert_array_equal(found.words, np.ones(3))
    assert_array_equal(found.shares, np.zeros(3))


def test_a_topic_of_few_words_is_compared_by_those_it_has() -> None:
    topics = np.zeros((30, 2))
    topics[[0, 1, 2, 3], 0] = [0.4, 0.3, 0.2, 0.1]
    topics[10:30, 1] = 0.05
    other = topics.copy()
    # a word that the topic has not takes the place of one that it has
    other[[3, 4], 0] = [0.0, 0.1]
    shares = np.random.default_rng(0).dirichlet(np.ones(2), 20)
    assert_allclose(topic_stability(topics, shares, [(other, shares)]).words, [0.75, 1.0])


def test_topics_below_the_bound_are_unstable() -> None:
    found = TopicStability(np.array([UNSTABLE, 0.2, 0.9]), np.array([UNSTABLE, 0.7, 0.0]))
    assert_allclose(found.of_topics, [UNSTABLE, 0.45, 0.45])
    assert found.unstable == [1, 2]
    assert found.mean == pytest.approx((UNSTABLE + 0.9) / 3)
