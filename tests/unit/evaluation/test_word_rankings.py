"""A topic's words by probability, FREX and lift, against their definitions written out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dslda.evaluation.topic_quality import most_probable
from dslda.evaluation.word_rankings import word_scorer
from tests.helpers.errors import refused

N_TERMS, N_TOPICS, UNKNOWN = 30, 4, 7


@pytest.fixture
def topics() -> np.ndarray:
    drawn = np.random.default_rng(0).dirichlet(np.full(N_TERMS, 0.3), N_TOPICS).T
    drawn[UNKNOWN] = 0.0
    return drawn / drawn.sum(axis=0)


def test_frex_is_the_harmonic_mean_of_two_shares_of_the_words(topics: np.ndarray) -> None:
    scores = word_scorer(topics, "frex", None)
    known = [v for v in range(N_TERMS) if v != UNKNOWN]
    for k in range(N_TOPICS):
        exclusivity = {v: topics[v, k] / topics[v].sum() for v in known}
        for v in known:
            frequent = np.mean([topics[w, k] <= topics[v, k] for w in known])
            exclusive = np.mean([exclusivity[w] <= exclusivity[v] for w in known])
            assert scores(k)[v] == pytest.approx(1.0 / (0.5 / exclusive + 0.5 / frequent))
        assert scores(k)[UNKNOWN] == 0.0


def test_a_word_that_is_frequent_everywhere_leads_by_probability_but_not_by_frex_or_lift() -> None:
    """Word 0 has most of all topics; words 1 to 3 are those of topic 0; word 4 is its rarest, and nobody else's."""
    topics = np.array(
        [[0.5, 0.5], [0.2, 0.01], [0.15, 0.01], [0.1, 0.01], [0.001, 0.0], [0.02, 0.2], [0.029, 0.27]]
    )
    prevalence = np.array([0.5, 0.5])
    best = {
        ranking: most_probable(word_scorer(topics, ranking, prevalence)(0), 3).tolist()
        for ranking in ("probability", "frex", "lift")
    }
    assert best["probability"] == [0, 1, 2]
    assert best["frex"][:2] == [1, 2]
    assert best["lift"][0] == 4


def test_lift_is_the_probability_as_a_multiple_of_that_in_the_corpus(topics: np.ndarray) -> None:
    prevalence = np.array([0.1, 0.2, 0.3, 0.4])
    scores = word_scorer(topics, "lift", prevalence)
    overall = topics @ prevalence
    for k in range(N_TOPICS):
        assert_allclose(scores(k) * overall, topics[:, k])
        assert scores(k)[UNKNOWN] == 0.0


def test_probability_is_the_topic_itself(topics: np.ndarray) -> None:
    assert_array_equal(word_scorer(topics, "probability", None)(2), topics[:, 2])


def test_what_cannot_be_ranked_is_refused(topics: np.ndarray) -> None:
    with refused("words"):
        word_scorer(topics, "tf-idf", None)
    with refused("words"):
        word_scorer(topics, "lift", None)
