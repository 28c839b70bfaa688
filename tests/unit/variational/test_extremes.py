"""Problems at the edge of the possible: every number of statistics, posterior and M-step stays finite."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dslda.families.base import Family
from dslda.variational.estep import e_step, infer
from dslda.variational.mstep import m_step, objective
from dslda.variational.parameters import FitSpec, Parameters
from tests.helpers.problems import Documents, documents_of, random_documents, random_parameters

Problem = tuple[Documents, Parameters]


def ordinary(n_topics: int = 4, *, n_documents: int = 12, n_terms: int = 30, **parameters: float) -> Problem:
    rng = np.random.default_rng(0)
    drawn = random_parameters(rng, n_terms, n_topics, **parameters)
    return random_documents(rng, n_terms, n_documents), drawn


def one_topic() -> Problem:
    return ordinary(1)


def one_document() -> Problem:
    return ordinary(n_documents=1)


def one_token() -> Problem:
    return documents_of([([3], [1], 0.4)]), ordinary()[1]


def no_document() -> Problem:
    return documents_of([]), ordinary()[1]


def one_term_fifty_thousand_times() -> Problem:
    return documents_of([([3], [50_000], 0.4), ([3], [50_000], np.nan)]), ordinary(delta=1e-3)[1]


def one_token_and_no_dispersion() -> Problem:
    documents = documents_of([([t], [1], y) for t, y in enumerate((0.0, 3.0, -40.0))])
    return documents, ordinary(delta=1e-8, eta_scale=3.0)[1]


def large_coefficients() -> Problem:
    documents, parameters = ordinary(delta=0.01)
    return documents, dataclasses.replace(parameters, eta=np.array([-50.0, 50.0, 0.0, 49.0]))


def large_coefficients_and_no_dispersion() -> Problem:
    documents, parameters = large_coefficients()
    return documents, dataclasses.replace(parameters, delta=np.array([1e-8]))


def equal_coefficients() -> Problem:
    documents, parameters = ordinary()
    return documents, dataclasses.replace(parameters, eta=np.full(4, 0.3))


def five_hundred_topics() -> Problem:
    return ordinary(500)


def vocabulary_partly_never_seen() -> Problem:
    documents, _ = ordinary(n_terms=27)
    return documents, ordinary(n_terms=30)[1]


def all_unlabelled() -> Problem:
    documents, parameters = ordinary()
    return documents.with_response(np.full(len(documents), np.nan)), parameters


def an_empty_document() -> Problem:
    return documents_of([([], [], 1.0), ([1, 2], [1, 3], 0.5), ([], [], np.nan)]), ordinary()[1]


def only_empty_documents() -> Problem:
    return documents_of([([], [], 1.0), ([], [], np.nan)]), ordinary()[1]


def only_unknown_terms() -> Problem:
    _, parameters = ordinary()
    parameters.topics[[1, 2]] = 0.0
    return documents_of([([1, 2], [4, 1], 1.0), ([2, 5], [1, 1], -1.0)]), parameters


def topics_with_exact_zeros() -> Problem:
    """Every term is possible in one topic only."""
    documents, parameters = ordinary(delta=0.01, eta_scale=5.0)
    own = np.arange(30) % 4
    return documents, dataclasses.replace(parameters, topics=np.eye(4)[own] / np.bincount(own))


def a_dead_topic() -> Problem:
    documents, parameters = ordinary()
    parameters.topics[:, 2] = 0.0
    return documents, parameters


def weights_at_the_smallest_number() -> Problem:
    documents, parameters = ordinary()
    parameters.topics[:15, 0] = 5e-324
    parameters.topics[15:, 1] = 1e-200
    return documents, parameters


PROBLEMS = [
    one_topic,
    one_document,
    one_token,
    no_document,
    one_term_fifty_thousand_times,
    one_token_and_no_dispersion,
    large_coefficients,
    large_coefficients_and_no_dispersion,
    equal_coefficients,
    five_hundred_topics,
    vocabulary_partly_never_seen,
    all_unlabelled,
    an_empty_document,
    only_empty_documents,
    only_unknown_terms,
    topics_with_exact_zeros,
    a_dead_topic,
    weights_at_the_smallest_number,
]


def assert_finite(record: object) -> None:
    for field in dataclasses.fields(record):
        values = getattr(record, field.name)
        # None for points
        assert not isinstance(values, np.ndarray) or np.all(np.isfinite(values)), field.name


@pytest.mark.parametrize("granularity", ["term", "token"])
@pytest.mark.parametrize(
    ("topic_prior", "topic_estimation"), [(0.0, "map"), (0.01, "map"), (0.005, "variational")]
)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.__name__)
def test_everything_stays_finite(
    problem: Callable[[], Problem],
    granularity: str,
    topic_prior: float,
    topic_estimation: str,
    gaussian: Family,
) -> None:
    documents, parameters = problem()
    n_topics = parameters.n_topics
    spec = FitSpec(
        n_topics=n_topics,
        granularity=granularity,
        topic_prior=topic_prior,
        topic_estimation=topic_estimation,
    )
    with np.errstate(all="raise"):
        for _ in range(2 if n_topics > 100 else 4):
            statistics = e_step(*documents.arrays, parameters, family=gaussian, spec=spec)
            posteriors = (
                infer(*documents.csr, parameters, spec=spec),
                infer(*documents.csr, parameters, spec=spec, y=documents.y, family=gaussian),
            )
            assert_finite(statistics)
            for posterior in posteriors:
                assert_finite(posterior)
                assert np.all(posterior.gamma > 0)
                assert np.all(posterior.variance >= 0)
                # every known token is in some topic, once
                tokens = posterior.gamma.sum(axis=1) - parameters.alpha.sum()
                assert_allclose(tokens, posterior.n_known_tokens, rtol=1e-10, atol=1e-10)
            assert_allclose(statistics.topic_counts.sum(), statistics.n_tokens, rtol=1e-10)
            assert np.array_equal(statistics.information, statistics.information.T)
            parameters = m_step(parameters, statistics, family=gaussian, spec=spec)
            assert_finite_parameters(parameters)
            # once the topics are distributions too, a term that is known stays known
            n_tokens = e_step(*documents.arrays, parameters, family=gaussian, spec=spec).n_tokens
            assert n_tokens == statistics.n_tokens
    if statistics.n_tokens:
        assert_allclose(parameters.topics.sum(axis=0), np.ones(n_topics), rtol=1e-12)
        assert np.isfinite(objective(statistics, parameters, family=gaussian, spec=spec))


def assert_finite_parameters(parameters: Parameters) -> None:
    assert_finite(parameters)
    assert parameters.delta[0] > 0
    assert np.all(parameters.topics >= 0)


def test_empty_documents_get_the_prior_and_are_counted(gaussian: Family) -> None:
    documents, parameters = an_empty_document()
    spec = FitSpec(n_topics=4)
    posterior = infer(*documents.csr, parameters, spec=spec)
    for d in (0, 2):
        assert np.array_equal(posterior.gamma[d], parameters.alpha)
        assert posterior.mean[d] == pytest.approx(parameters.eta @ parameters.alpha / parameters.alpha.sum())
    assert posterior.n_known_tokens.tolist() == [0, 4, 0]
    assert np.all(posterior.converged)
    statistics = e_step(*documents.arrays, parameters, family=gaussian, spec=spec)
    assert (statistics.n_empty, statistics.n_labelled, statistics.n_documents) == (2, 1, 3)


def test_a_sure_token_follows_its_response(gaussian: Family) -> None:
    """N = 1 and delta = 1e-8: the topic with coefficient y takes the token, against all words."""
    topics = np.full((2, 3), 0.5)
    topics[0] = [1e-6, 0.9, 1e-6]
    parameters = Parameters(topics, np.full(3, 1 / 3), np.array([-1.0, 0.0, 1.0]), np.array([1e-8]))
    documents = documents_of([([0], [1], 1.0), ([0], [1], -1.0)])
    posterior = infer(*documents.csr, parameters, spec=FitSpec(n_topics=3), y=documents.y, family=gaussian)
    assert_allclose(posterior.mean, documents.y, rtol=1e-12)
    assert_allclose(posterior.gamma - 1 / 3, [[0, 0, 1], [1, 0, 0]], atol=1e-12)
