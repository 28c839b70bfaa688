"""Simulated corpora follow the model they are said to come from."""

from __future__ import annotations

import numpy as np
import pytest

from dslda.datasets import simulate_corpus
from dslda.exceptions import InputError


def test_same_arguments_same_corpus_and_another_seed_another():
    first, again, other = (simulate_corpus(20, 3, 30, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.block.terms, again.block.terms)
    assert np.array_equal(first.block.counts, again.block.counts)
    assert np.array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)


def test_topic_shares_and_words_follow_their_distributions():
    """Means over many documents and tokens within five standard errors of what the model says."""
    simulated = simulate_corpus(4000, 3, 10, mean_tokens=50, topic_concentration=1.0, alpha=0.5, seed=0)
    assert np.allclose(simulated.topics.sum(axis=1), 1)
    assert np.allclose(simulated.topic_proportions.sum(axis=1), 1)
    assert np.allclose(simulated.topic_shares.sum(axis=1), 1)
    error = simulated.topic_shares - simulated.topic_proportions
    assert np.abs(error.mean(axis=0)).max() < 5 * error.std() / np.sqrt(4000)

    block = simulated.block
    assert block.n_tokens / 4000 == pytest.approx(50, abs=5 * np.sqrt(50 / 4000))
    lengths = np.add.reduceat(block.counts, block.indptr[:-1])
    expected = lengths @ simulated.topic_shares @ simulated.topics
    seen = np.bincount(block.terms, weights=block.counts, minlength=10)
    assert np.abs(seen - expected).max() < 5 * np.sqrt(expected.max())


def test_documents_hold_the_words_of_their_topics_only():
    """With topics that share no word, the counts of a document by topic are exactly its topic shares."""
    simulated = simulate_corpus(50, 4, 100_000, topic_concentration=1e-4, mean_tokens=30, seed=5)
    topic_of = simulated.topics.argmax(axis=0)
    alone = simulated.topics.max(axis=0) > (1 - 1e-5) * simulated.topics.sum(axis=0)
    block = simulated.block
    assert alone[block.terms].all()
    owner = np.repeat(np.arange(50), np.diff(block.indptr))
    by_topic = np.zeros((50, 4))
    np.add.at(by_topic, (owner, topic_of[block.terms]), block.counts)
    assert np.allclose(by_topic / by_topic.sum(axis=1, keepdims=True), simulated.topic_shares)


def test_normal_response_has_the_mean_and_variance_asked_for():
    simulated = simulate_corpus(5000, 2, 5, eta=[-3.0, 4.0], delta=0.09, mean_tokens=5)
    residual = simulated.y - simulated.topic_shares @ [-3.0, 4.0]
    assert residual.mean() == pytest.approx(0, abs=5 * 0.3 / np.sqrt(5000))
    assert residual.var() == pytest.approx(0.09, rel=5 * np.sqrt(2 / 5000))


def test_other_responses_draw_from_the_linear_predictor():
    simulated = simulate_corpus(
        300,
        3,
        20,
        eta=[0.0, 1.0, 2.0],
        sample_response=lambda omega, generator: generator.poisson(np.exp(omega)),
    )
    assert (simulated.y == np.round(simulated.y)).all()
    assert simulated.y.min() >= 0
    assert simulated.y.dtype == np.float64


def test_missing_responses_are_hidden_in_the_block_only():
    simulated = simulate_corpus(1000, 2, 10, missing=0.3, seed=1)
    hidden = np.isnan(simulated.block.responses["y"])
    assert hidden.mean() == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 1000))
    assert np.isfinite(simulated.y).all()
    assert np.array_equal(simulated.block.responses["y"][~hidden], simulated.y[~hidden])


def test_every_document_has_a_token_and_extreme_sizes_work():
    simulated = simulate_corpus(200, 500, 1, mean_tokens=0.01, alpha=0.002)
    assert simulated.block.n_tokens >= 200
    assert (np.diff(simulated.block.indptr) == 1).all()
    assert simulate_corpus(1, 1, 1).block.n_documents == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_topics": 0}, "n_topics must be at least 1, got 0"),
        ({"alpha": 0.0}, "alpha must be positive"),
        ({"delta": -1.0}, "delta must be positive"),
        ({"missing": 1.5}, "missing must be a share"),
        ({"eta": [1.0]}, r"one coefficient for each of 3 topics, got shape \(1,\)"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        simulate_corpus(**{"n_documents": 5, "n_topics": 3, "n_terms": 10, **arguments})
