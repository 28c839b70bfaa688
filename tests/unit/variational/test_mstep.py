"""The M-step against independent computations of the paper's closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dslda.families.base import Family
from dslda.families.gaussian import Gaussian
from dslda.families.registry import get_family
from dslda.variational.estep import e_step
from dslda.variational.mstep import m_step, objective
from dslda.variational.oracle import one_predictor
from dslda.variational.parameters import FitSpec, Parameters, Scaling, initial_parameters
from dslda.variational.statistics import SufficientStatistics
from tests.helpers.enumeration import moments_of_assignments
from tests.helpers.problems import (
    documents_of,
    moments_of,
    random_document,
    random_documents,
    random_parameters,
    reference_statistics,
    wild_responses,
)

N_TERMS = 8
SPEC = FitSpec(n_topics=3, granularity="token", dispersion_floor=1e-9)


@pytest.fixture(scope="module")
def labelled() -> tuple[list[one_predictor.DocumentState], np.ndarray, Parameters]:
    """Documents of up to four tokens with any phi: the closed forms hold at every one, not only at converged ones."""
    rng = np.random.default_rng(0)
    parameters = random_parameters(rng, N_TERMS, 3, delta=0.7)
    states = []
    for _ in range(10):
        n = int(rng.integers(1, 5))
        state = one_predictor.cold_start(
            rng.integers(0, N_TERMS, n), np.ones(n, int), parameters, granularity="token"
        )
        state.phi = rng.dirichlet(np.full(3, 0.5), n)
        states.append(state)
    return states, rng.normal(size=10), parameters


def test_eta_and_delta_are_the_closed_forms(
    labelled: tuple[list[one_predictor.DocumentState], np.ndarray, Parameters], gaussian: Family
) -> None:
    states, y, parameters = labelled
    statistics = reference_statistics(states, y, parameters, family=gaussian, spec=SPEC)
    new = m_step(parameters, statistics, family=gaussian, spec=SPEC)

    enumerated = [moments_of_assignments(state.phi) for state in states]
    mean = np.array([probability @ zbar for zbar, probability, _ in enumerated])
    second = sum(moment for *_, moment in enumerated)
    eta = np.linalg.solve(second, mean.T @ y)
    assert_allclose(new.eta, eta, rtol=1e-9)
    squared = [
        probability @ (y_d - zbar @ eta) ** 2
        for (zbar, probability, _), y_d in zip(enumerated, y, strict=True)
    ]
    assert_allclose(new.delta, np.mean(squared), rtol=1e-9)
    assert_allclose(new.delta, (y @ y - y @ mean @ eta) / len(y), rtol=1e-9)
    # the residual of least squares on E[zbar] leaves out the variance of zbar
    least_squares = np.linalg.lstsq(mean, y, rcond=None)[0]
    assert new.delta > 1.01 * np.mean((y - mean @ least_squares) ** 2)


def test_closed_forms_do_not_depend_on_the_parameters_they_start_from(
    labelled: tuple[list[one_predictor.DocumentState], np.ndarray, Parameters], gaussian: Family
) -> None:
    states, y, parameters = labelled
    other = Parameters(parameters.topics, parameters.alpha, parameters.eta * -3.0 + 1.0, np.array([0.01]))
    one, two = (
        m_step(p, reference_statistics(states, y, p, family=gaussian, spec=SPEC), family=gaussian, spec=SPEC)
        for p in (parameters, other)
    )
    assert_allclose(one.eta, two.eta, rtol=1e-8)
    assert_allclose(one.delta, two.delta, rtol=1e-8)


@pytest.mark.parametrize("topic_prior", [0.0, 0.01, 2.0])
def test_topics_are_normalised_counts_and_unseen_terms_stay_unknown(
    topic_prior: float, gaussian: Family
) -> None:
    rng = np.random.default_rng(1)
    parameters = random_parameters(rng, 12, 3)
    documents = random_documents(rng, 10, 20)
    spec = FitSpec(n_topics=3, doc_topic_prior="1/K", topic_prior=topic_prior)
    statistics = e_step(*documents.arrays, parameters, family=gaussian, spec=spec)
    new = m_step(parameters, statistics, family=gaussian, spec=spec)
    smoothed = statistics.topic_counts[:10] + topic_prior
    assert_allclose(new.topics[:10], smoothed / smoothed.sum(axis=0), rtol=1e-12)
    assert_array_equal(new.topics[10:], 0.0)
    assert_array_equal(new.alpha, parameters.alpha)


def test_a_topic_without_tokens_becomes_uniform_over_the_seen_terms(gaussian: Family) -> None:
    statistics = SufficientStatistics.zeros(5, 2)
    statistics.topic_counts[:3, 0] = [1.0, 2.0, 1.0]
    new = m_step(
        random_parameters(np.random.default_rng(0), 5, 2),
        statistics,
        family=gaussian,
        spec=FitSpec(n_topics=2, topic_prior=0.0),
    )
    assert_allclose(new.topics.T, [[0.25, 0.5, 0.25, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0, 0]])


def test_without_responses_coefficients_and_dispersion_stay(gaussian: Family) -> None:
    rng = np.random.default_rng(2)
    parameters = random_parameters(rng, 10, 3)
    documents = random_documents(rng, 10, 6, unlabelled=1.0)
    new = m_step(
        parameters,
        e_step(*documents.arrays, parameters, family=gaussian, spec=SPEC),
        family=gaussian,
        spec=SPEC,
    )
    assert_array_equal(new.eta, parameters.eta)
    assert new.delta == parameters.delta


@pytest.mark.parametrize("floor", [0.01, 0.3])
def test_dispersion_does_not_fall_below_its_floor(floor: float, gaussian: Family) -> None:
    parameters = random_parameters(np.random.default_rng(3), 4, 1)
    documents = documents_of([([0], [2], 0.5), ([1], [1], 0.5)])
    spec = FitSpec(n_topics=1, dispersion_floor=floor)
    statistics = e_step(*documents.arrays, parameters, family=gaussian, spec=spec)
    new = m_step(parameters, statistics, family=gaussian, spec=spec)
    assert_allclose(new.eta, [0.5])
    assert new.delta == floor


@pytest.mark.parametrize("case", ["two identical topics", "more topics than labelled documents"])
def test_a_singular_information_matrix_gives_a_finite_step_upwards(case: str, gaussian: Family) -> None:
    rng = np.random.default_rng(4)
    if case == "two identical topics":
        parameters = random_parameters(rng, 20, 4)
        parameters.topics[:, 1] = parameters.topics[:, 0]
        parameters.eta[1] = parameters.eta[0]
        documents = random_documents(rng, 20, 15)
    else:
        parameters = random_parameters(rng, 20, 12)
        documents = random_documents(rng, 20, 3, unlabelled=0.0)
    spec = FitSpec(n_topics=parameters.n_topics, topic_prior=0.0)
    statistics = e_step(*documents.arrays, parameters, family=gaussian, spec=spec)
    with np.errstate(all="raise"):
        new = m_step(parameters, statistics, family=gaussian, spec=spec)
    assert np.all(np.isfinite(new.eta))
    assert np.abs(new.eta).max() < 1e3
    assert spec.dispersion_floor <= new.delta < 10
    # no direction that data determine is left to climb
    slope = statistics.score - statistics.information @ (new.eta - parameters.eta)
    assert np.abs(slope).max() <= 1e-6 * np.abs(statistics.score).max()
    if case == "two identical topics":
        assert new.eta[0] == pytest.approx(new.eta[1], rel=1e-9)


def test_objective_adds_the_log_prior_of_known_terms() -> None:
    statistics = SufficientStatistics.zeros(3, 2)
    statistics.elbo = -10.0
    topics = np.array([[0.5, 0.25], [0.5, 0.75], [0.0, 0.0]])
    parameters = Parameters(topics, np.ones(2), np.zeros(2), np.ones(1))
    assert (
        objective(statistics, parameters, family=Gaussian(), spec=FitSpec(n_topics=2, topic_prior=0.0))
        == -10.0
    )
    expected = -10.0 + 0.1 * np.log([0.5, 0.5, 0.25, 0.75]).sum()
    assert objective(
        statistics, parameters, family=Gaussian(), spec=FitSpec(n_topics=2, topic_prior=0.1)
    ) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "gamma", "weibull", "binomial", "ordinal"])
def test_no_step_lowers_the_objective_of_few_short_documents(name: str) -> None:
    """omega scatters so widely under q that full steps near the optimum would swing to and fro."""
    family = get_family(name)
    for seed in (8, 33, 46, 51):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(4, 16))
        y, _ = wild_responses(family, rng, n)
        y = np.minimum(y, 1.0) if family.auxiliary == "trials" else y
        moments = moments_of(y)
        scaling = Scaling(*family.scaling(moments))
        spec = FitSpec(n_topics=3)
        parameters = initial_parameters(
            12, spec=spec, family=family, moments=moments.scaled(scaling.center, scaling.scale)
        )
        states = []
        for _ in range(n):
            terms, counts, _ = random_document(rng, 12, distinct=int(rng.integers(1, 6)), most=3)
            state = one_predictor.cold_start(terms, counts, parameters, granularity="token")
            state.phi = rng.dirichlet(np.full(3, 0.3), len(state.phi))
            states.append(state)
        trace = []
        for _ in range(25):
            statistics = reference_statistics(
                states, scaling.to_model(y), parameters, family=family, spec=spec
            )
            trace.append(objective(statistics, parameters, family=family, spec=spec))
            moved = m_step(parameters, statistics, family=family, spec=spec)
            parameters = replace(moved, topics=parameters.topics)
        assert np.all(np.diff(trace) >= -1e-9 * np.abs(trace[1:]))
