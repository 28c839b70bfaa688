"""Seed words as a prior: at the start, in the M-step, and in the objective that EM raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from dslda.families.base import STANDARDISED, Family
from dslda.families.registry import get_family
from dslda.variational.estep import e_step
from dslda.variational.mstep import m_step, objective
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.topic_seeds import TopicSeeds, checked_seed_words
from dslda.variational.topics import topic_divergence
from tests.helpers.errors import refused
from tests.helpers.problems import documents_of

N_TERMS, N_TOPICS = 12, 4
WORDS = {"fit": ("small", "tight"), "quality": ("cheap", "tight")}
SEEDS = TopicSeeds(np.array([0, 1, 2, 1]), np.array([0, 0, 1, 1]))
PAIRS = [(0, 0), (1, 0), (2, 1), (1, 1)]


def spec_of(**settings: Any) -> FitSpec:
    return FitSpec(n_topics=N_TOPICS, seed_words=WORDS, **settings)


def test_names_and_words_are_kept_in_their_order() -> None:
    pairs = (("fit", ("small", "tight")), ("quality", ("cheap", "tight")))
    assert spec_of().seed_words == spec_of().seeded_topics == pairs
    assert FitSpec(n_topics=2, seed_words=[["fit", ["small", "tight", "small"]]]).seeded_topics == pairs[:1]
    assert FitSpec(n_topics=2, seed_words={" fit ": iter(["small", "tight"])}).seeded_topics == pairs[:1]
    assert FitSpec().seeded_topics == ()
    assert spec_of() != FitSpec(n_topics=N_TOPICS, seed_words=dict(reversed(WORDS.items())))


@pytest.mark.parametrize(
    "given",
    [
        *(
            {},
            [],
            "fit",
            3,
            [1.0],
            [[]],
            [["fit"]],
            {"fit": "small"},
            {"fit": []},
            {"fit": [1]},
            {"fit": [""]},
        ),
        *({"": ["small"]}, {"a\nb": ["small"]}, {3: ["small"]}, {"x" * 81: ["small"]}),
        [["fit", ["small"]], ["fit", ["tight"]]],
        {name: ["small"] for name in "abcde"},
    ],
)
def test_what_are_no_seed_words_is_refused(given: Any) -> None:
    with refused("seed_words"):
        checked_seed_words(given, N_TOPICS)
    with refused("seed_words"):
        FitSpec(n_topics=N_TOPICS, seed_words=given)


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_topics_start_as_if_each_had_its_share_of_all_words_beside_the_prior(objective: str) -> None:
    start = initial_parameters(
        N_TERMS,
        spec=spec_of(objective=objective),
        family=get_family("gaussian"),
        moments=STANDARDISED,
        seeds=SEEDS,
    )
    plain = initial_parameters(
        N_TERMS,
        spec=FitSpec(n_topics=N_TOPICS, objective=objective),
        family=get_family("gaussian"),
        moments=STANDARDISED,
    )
    factors = start.topics / plain.topics
    factors /= factors[-1]  # of a term without a topic
    expected = np.ones((N_TERMS, N_TOPICS))
    for pair in PAIRS:
        expected[pair] = 1 + N_TOPICS
    assert_allclose(factors, expected)
    assert_allclose(start.topics.sum(axis=0), 1.0)
    # those with seeds are in the middle of the others, so that responses do not choose their documents
    assert_allclose(start.eta, [0.0, 0.0, -1.0, 1.0])


def test_classes_have_the_other_topics_to_start_with() -> None:
    family = get_family("categorical", {"n_classes": 2})
    start = initial_parameters(N_TERMS, spec=spec_of(), family=family, moments=STANDARDISED, seeds=SEEDS)
    assert_allclose(start.eta, [[0, 0], [0, 0], [0.5, -0.5], [-0.5, 0.5]])
    every = FitSpec(n_topics=2, seed_words=WORDS)
    start = initial_parameters(N_TERMS, spec=every, family=family, moments=STANDARDISED, seeds=SEEDS)
    assert start.eta.shape == (2, 2)


def test_no_other_topic_has_more_of_a_seed() -> None:
    """The prior has as much of the word as the documents, of which any topic may have all."""
    counts = np.random.default_rng(0).gamma(0.3, 10.0, (N_TERMS, N_TOPICS))
    counts[:3] = [[0, 0, 0, 50], [0, 0, 60, 0], [70, 0, 0, 0]]
    counts[5] = 0.0
    statistics = SufficientStatistics.zeros(N_TERMS, N_TOPICS)
    statistics.topic_counts = counts.copy()
    start = Parameters(
        np.full((N_TERMS, N_TOPICS), 1 / N_TERMS), np.ones(N_TOPICS), np.zeros(N_TOPICS), np.ones(1)
    )
    new = m_step(
        start,
        statistics,
        family=get_family("gaussian"),
        spec=spec_of(topic_prior=0.5, doc_topic_prior=1.0),
        seeds=SEEDS,
    )
    expected = counts + 0.5 * (counts.sum(axis=1) > 0.0)[:, np.newaxis]
    for term, topic in PAIRS:
        expected[term, topic] += counts[term].sum()
    assert (expected[0, 0], expected[1, 1], expected[2, 1]) == (50.5, 60.5, 70.5)
    assert expected[2].argmax() in (0, 1)
    assert_allclose(new.topics, expected / expected.sum(axis=0))
    assert_array_equal(new.topics[5], 0.0)
    assert_array_equal(statistics.topic_counts, counts)


def test_the_divergence_from_an_asymmetric_prior_is_that_of_dirichlets() -> None:
    generator = np.random.default_rng(1)
    prior, pseudo_counts = 0.3, np.array([4.0, 7.5, 2.0, 0.0])
    of_prior = np.full((N_TERMS, N_TOPICS), prior)
    for pair, count in zip(PAIRS, pseudo_counts, strict=True):
        of_prior[pair] += count
    posterior = of_prior + generator.gamma(1.0, 5.0, of_prior.shape)
    totals = posterior.sum(axis=0)
    parameters = Parameters(
        posterior / totals, np.ones(N_TOPICS), np.zeros(N_TOPICS), np.ones(1), concentration=totals
    )
    logs = special.digamma(posterior) - special.digamma(totals)
    expected = (
        special.gammaln(totals).sum()
        - special.gammaln(posterior).sum()
        - special.gammaln(of_prior.sum(axis=0)).sum()
        + special.gammaln(of_prior).sum()
        + ((posterior - of_prior) * logs).sum()
    )
    assert topic_divergence(parameters, prior, SEEDS, pseudo_counts) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("how", ["map", "variational"])
def test_no_step_lowers_the_objective(how: Any, gaussian: Family) -> None:
    generator = np.random.default_rng(2)
    documents = documents_of(
        [
            (sorted(generator.choice(11, 5, replace=False).tolist()), generator.integers(1, 4, 5).tolist(), y)
            for y in generator.normal(size=30)
        ]
    )
    spec = spec_of(
        topic_prior=0.1, topic_estimation=how, sweep_tol=1e-12, max_sweeps=2000, doc_topic_prior=0.5
    )
    parameters = initial_parameters(N_TERMS, spec=spec, family=gaussian, moments=STANDARDISED, seeds=SEEDS)
    trace = []
    for _ in range(25):
        statistics = e_step(*documents.arrays, parameters, family=gaussian, spec=spec)
        trace.append(objective(statistics, parameters, family=gaussian, spec=spec, seeds=SEEDS))
        parameters = m_step(parameters, statistics, family=gaussian, spec=spec, seeds=SEEDS)
    # the first variational topics know of no term that is in no document
    assert np.all(np.diff(trace[1:]) >= -1e-8 * np.abs(trace[2:]))
    assert trace[-1] > trace[1]
