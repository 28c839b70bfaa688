"""Topics that are Dirichlet distributions: closed forms, the bound on the evidence, and effects on a fit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

from dslda.datasets.simulate import simulate_corpus
from dslda.families.base import STANDARDISED, Family
from dslda.variational.estep import e_step, infer
from dslda.variational.mstep import m_step, objective
from dslda.variational.parameters import FitSpec, Parameters, Scaling, initial_parameters
from dslda.variational.topics import in_e_step, topic_divergence
from tests.helpers.enumeration import log_evidence_of_corpus
from tests.helpers.problems import Documents, documents_of, fit_in_a_loop, moments_of, random_documents


def distributions(*, prior: float = 0.01) -> tuple[Parameters, np.ndarray]:
    """Topics over 30 terms, 25 of them known to the model, and their Dirichlet parameters, some at the prior alone."""
    rng = np.random.default_rng(0)
    counts = rng.gamma(0.1, 20.0, (30, 4)) * (rng.random((30, 4)) < 0.7)
    counts[:, 2] *= 1e5
    parameters = counts + prior
    parameters[25:] = 0.0
    totals = parameters.sum(axis=0)
    topics = parameters / totals
    topics.setflags(write=False)
    return Parameters(topics, np.ones(4), np.zeros(4), np.ones(1), concentration=totals), parameters


@pytest.mark.parametrize("prior", [0.005, 0.01, 1.0, 1e6])
def test_the_e_step_sees_the_expected_logarithms(prior: float) -> None:
    given, parameters = distributions(prior=prior)
    seen = in_e_step(given)
    assert seen.concentration is None
    assert in_e_step(seen) is seen
    known = parameters[:25]
    expected = np.exp(special.digamma(known) - special.digamma(known.sum(axis=0)))
    assert_allclose(seen.topics[:25], expected, rtol=1e-11)
    # every term is known to every topic, and no other
    assert seen.topics[:25].min() > 1e-100
    assert_array_equal(seen.topics[25:], 0.0)
    assert np.all(seen.topics.sum(axis=0) < 1.0)


def test_the_divergence_is_that_of_dirichlet_distributions() -> None:
    given, parameters = distributions()
    known = parameters[:25]
    rng = np.random.default_rng(1)
    wanted = 0.0
    for column in known.T[:2]:
        # log q - log p is linear in log beta: at any beta, and from there to E[log beta]
        q, p = stats.dirichlet(column), stats.dirichlet(np.full(25, 0.01))
        beta = rng.dirichlet(np.ones(25))
        expected_log = special.digamma(column) - special.digamma(column.sum())
        wanted += q.logpdf(beta) - p.logpdf(beta) + (column - 0.01) @ (expected_log - np.log(beta))
    assert given.concentration is not None
    two = replace(given, topics=given.topics[:, :2], concentration=given.concentration[:2])
    assert topic_divergence(two, 0.01) == pytest.approx(wanted, rel=1e-9)
    prior = np.where(known[:, :1] > 0, 1 / 25, 0.0)
    at_prior = replace(given, topics=prior, concentration=np.array([2.5]))
    assert topic_divergence(at_prior, 0.1) == pytest.approx(0.0, abs=1e-10)


def test_the_m_step_adds_the_prior_to_the_counts_of_seen_terms(gaussian: Family) -> None:
    documents = random_documents(np.random.default_rng(1), 10, 20)
    spec = FitSpec(n_topics=3, topic_prior=0.5, topic_estimation="variational")
    start = initial_parameters(12, spec=spec, family=gaussian, moments=STANDARDISED)
    statistics = e_step(*documents.arrays, start, family=gaussian, spec=spec)
    new = m_step(start, statistics, family=gaussian, spec=spec)
    assert new.concentration is not None
    assert_allclose(new.topics[:10] * new.concentration, statistics.topic_counts[:10] + 0.5, rtol=1e-13)
    assert_array_equal(new.topics[10:], 0.0)
    # one word of an unseen term changes nothing: it stays unknown
    posterior = infer(*documents_of([([3, 11], [2, 5], math.nan)]).csr, new, spec=spec)
    assert posterior.n_known_tokens.tolist() == [2]


def test_the_start_is_that_of_points_as_the_e_step_sees_it(gaussian: Family) -> None:
    """A perturbation of 1%, not more, so that the response decides how topics part; see `initial_parameters`."""
    spec = FitSpec(n_topics=5, topic_estimation="variational")
    start = initial_parameters(200, spec=spec, family=gaussian, moments=STANDARDISED)
    points = initial_parameters(200, spec=FitSpec(n_topics=5), family=gaussian, moments=STANDARDISED)
    assert_array_equal(start.topics, points.topics)
    seen = in_e_step(start).topics
    assert_allclose(seen / seen.mean(), points.topics / points.topics.mean(), rtol=2e-4)


@pytest.mark.parametrize("prior", [0.005, 0.3, 20.0])
def test_with_one_topic_the_posterior_and_the_evidence_are_exact(prior: float, gaussian: Family) -> None:
    documents = random_documents(np.random.default_rng(2), 8, 12)
    spec = FitSpec(n_topics=1, topic_prior=prior, topic_estimation="variational", max_iter=3, tol=0.0)
    parameters, trace = fit_in_a_loop(documents, 8, family=gaussian, spec=spec)
    counts = np.bincount(documents.terms, documents.counts, minlength=8)
    assert parameters.concentration is not None
    assert_allclose(parameters.topics[:, 0] * parameters.concentration, counts + prior, rtol=1e-14)
    log_evidence = special.gammaln(8 * prior) - special.gammaln(8 * prior + counts.sum())
    log_evidence += (special.gammaln(prior + counts) - special.gammaln(prior)).sum()
    y = documents.y[~np.isnan(documents.y)]
    log_evidence += stats.norm(parameters.eta[0], np.sqrt(parameters.delta[0])).logpdf(y).sum()
    assert trace[-1] == pytest.approx(log_evidence, rel=1e-12)
    assert trace[0] < trace[-1]


@pytest.mark.parametrize("granularity", ["term", "token"])
@pytest.mark.parametrize("prior", [0.005, 0.1, 1.0])
def test_the_objective_is_a_lower_bound_of_the_evidence_of_the_corpus(
    prior: float, granularity: str, gaussian: Family
) -> None:
    """Topics integrated out in closed form, all assignments of all tokens summed over."""
    documents = documents_of(
        [([0, 1], [2, 1], -1.1), ([0, 2], [1, 2], 0.4), ([1, 3], [1, 2], 0.9), ([2], [2], np.nan)]
    )
    spec = FitSpec(
        n_topics=2,
        doc_topic_prior=0.7,
        topic_prior=prior,
        topic_estimation="variational",
        granularity=granularity,
    )
    spec = replace(spec, sweep_tol=1e-10, max_sweeps=1000)
    # a vocabulary of more terms than the corpus has: the first bound is one of a wider model, and lower still
    parameters = initial_parameters(6, spec=spec, family=gaussian, moments=STANDARDISED)
    found = []
    for _ in range(12):
        statistics = e_step(*documents.arrays, parameters, family=gaussian, spec=spec)
        found.append(objective(statistics, parameters, family=gaussian, spec=spec))
        evidence = log_evidence_of_corpus(documents, parameters, gaussian, topic_prior=prior)
        assert found[-1] < evidence
        parameters = m_step(parameters, statistics, family=gaussian, spec=spec)
    assert found[-1] > evidence - 4.0
    assert np.all(np.diff(found) >= -1e-9 * np.abs(found[1:]))


def test_topics_that_the_data_do_not_need_are_emptied(gaussian: Family) -> None:
    """Documents of three topics, fitted with eight: points spread the words over all, distributions do not."""
    drawn = simulate_corpus(400, 3, 2000, mean_tokens=60, seed=4)
    scaling = Scaling(*gaussian.scaling(moments_of(drawn.y)))
    block = drawn.block
    documents = Documents(block.indptr, block.terms, block.counts, scaling.to_model(block.responses["y"]))
    train, test = documents.take(range(100)), documents.take(range(100, 400))
    in_three, r2 = {}, {}
    for how in ("map", "variational"):
        spec = FitSpec(n_topics=8, doc_topic_prior="1/K", topic_prior=0.1, topic_estimation=how)
        parameters, _ = fit_in_a_loop(train, 2000, family=gaussian, spec=spec)
        words = np.sort(
            e_step(*train.arrays, parameters, family=gaussian, spec=spec).topic_counts.sum(axis=0)
        )
        in_three[how] = words[-3:].sum() / words.sum()
        predicted = infer(*test.csr, parameters, spec=spec).mean
        r2[how] = 1.0 - np.sum((test.y - predicted) ** 2) / np.sum((test.y - test.y.mean()) ** 2)
    assert in_three["map"] < 0.7
    assert in_three["variational"] > 0.9
    assert r2["variational"] > max(r2["map"], 0.8)
