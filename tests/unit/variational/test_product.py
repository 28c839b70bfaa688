"""The Poisson response, whose E[exp(omega)] is a product over tokens: exact in E-step, M-step, ELBO and prediction."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from dslda.datasets.simulate import simulate_corpus
from dslda.families.own import compile_response
from dslda.families.poisson import Poisson
from dslda.families.registry import FAMILIES, get_family
from dslda.variational.estep import e_step, infer, neutral_extras
from dslda.variational.mstep import m_step, objective
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import ScalarResponse
from dslda.variational.parameters import FitSpec, Parameters
from tests.helpers.enumeration import log_evidence, moments_of_assignments, tokens_of
from tests.helpers.problems import (
    Documents,
    documents_of,
    fit_in_a_loop,
    random_documents,
    random_parameters,
    reference_statistics,
)

N_TERMS = 7
SMALL = [([0], [1]), ([4], [5]), ([1, 3], [1, 1]), ([0, 2, 6], [2, 1, 2]), ([0, 1, 2, 3, 5], [1, 1, 1, 1, 1])]
FAMILY = Poisson()
GRANULARITIES = pytest.mark.parametrize("granularity", ["term", "token"])


def small_documents(rng: np.random.Generator, mean: float = 2.0) -> Documents:
    return documents_of([(terms, counts, rng.poisson(mean)) for terms, counts in SMALL])


def counted(documents: Documents, rng: np.random.Generator, mean: float) -> Documents:
    y = rng.poisson(mean, len(documents)).astype(float)
    y[np.isnan(documents.y)] = np.nan
    return documents.with_response(y)


def assert_never_falls(values: list[float] | np.ndarray) -> None:
    values = np.asarray(values)
    assert np.all(np.diff(values) >= -1e-9 * np.abs(values[1:])), values


@pytest.mark.parametrize("n_topics", [1, 2, 4])
@pytest.mark.parametrize("d", range(len(SMALL)))
def test_statistics_and_prediction_agree_with_enumeration(d: int, n_topics: int) -> None:
    rng = np.random.default_rng(10 * d + n_topics)
    one = small_documents(rng).take([d])
    parameters = dataclasses.replace(
        random_parameters(rng, N_TERMS, n_topics, delta=1.0, eta_scale=2.0), zeta=np.array([0.4])
    )
    extras = neutral_extras(1, 1)
    extras[0, 0], extras[0, 4] = 0.3, -0.7
    offset, x, y = 0.3 - 0.7 * 0.4, -0.7, one.y[0]
    spec = FitSpec(n_topics=n_topics)
    statistics = e_step(*one.arrays, parameters, family=FAMILY, spec=spec, extras=extras)
    terms, counts, _ = one.document(0)
    phi = tokens_of(statistics.topic_counts[terms] / counts[:, np.newaxis], counts)
    zbar, probability, _ = moments_of_assignments(phi)
    omega = offset + zbar @ parameters.eta
    a = np.exp(omega)
    rows = np.column_stack([zbar, np.full(len(zbar), x)])
    assert_allclose(statistics.score, (probability * (y - a)) @ rows, rtol=1e-9, atol=1e-11)
    assert_allclose(
        statistics.information, np.einsum("a,ai,aj->ij", probability * a, rows, rows), rtol=1e-9, atol=1e-12
    )
    expected = probability @ [FAMILY.log_likelihood(y, o, parameters.delta, 1.0) for o in omega]
    assert_allclose(statistics.profile, [expected], rtol=1e-10)
    # of training, and of the words alone
    for given in (one.y, None):
        posterior = infer(*one.csr, parameters, spec=spec, y=given, family=FAMILY, extras=extras)
        if given is None:
            plain = e_step(
                *one.with_response([np.nan]).arrays, parameters, family=FAMILY, spec=spec, extras=extras
            )
            phi = tokens_of(plain.topic_counts[terms] / counts[:, np.newaxis], counts)
            zbar, probability, _ = moments_of_assignments(phi)
            omega = offset + zbar @ parameters.eta
        assert_allclose(posterior.mean, [probability @ omega], rtol=1e-9)
        rate = FAMILY.mean(posterior.mean, posterior.variance, parameters.delta)
        assert_allclose(rate, [probability @ np.exp(omega)], rtol=1e-9)


def test_erratum_1_would_be_seen_in_predictions() -> None:
    """The printed kappa has an additional K - 1."""
    rng = np.random.default_rng(0)
    parameters = random_parameters(rng, N_TERMS, 3, delta=1.0)
    documents = documents_of([([0, 1, 4], [1, 3, 2], np.nan)])
    posterior = infer(*documents.csr, parameters, spec=FitSpec(n_topics=3), family=FAMILY)
    statistics = e_step(*documents.arrays, parameters, family=FAMILY, spec=FitSpec(n_topics=3))
    counts = np.array([1, 3, 2])
    phi = tokens_of(statistics.topic_counts[[0, 1, 4]] / counts[:, np.newaxis], counts)
    kappa = phi @ np.exp(parameters.eta / 6)
    rate = FAMILY.mean(posterior.mean, posterior.variance, parameters.delta)[0]
    assert rate == pytest.approx(kappa.prod(), rel=1e-10)
    assert (3 - 1 + kappa).prod() > 100 * rate


@pytest.mark.parametrize("name", [name for name in FAMILIES if get_family(name).link == "log"])
def test_predictions_with_a_log_link_are_exact_and_never_beyond_the_largest_coefficient(name: str) -> None:
    """exp(m + v / 2) with the variance of omega as v has no bound: 10^9 for a topic of zeros and three words."""
    rng = np.random.default_rng(5)
    family = get_family(name)
    parameters = dataclasses.replace(
        random_parameters(rng, N_TERMS, 3, delta=1.0), eta=np.array([-40.0, -1.0, 3.0])
    )
    documents = documents_of([([0, 1, 4], [1, 1, 2], np.nan)])
    posterior = infer(*documents.csr, parameters, spec=FitSpec(n_topics=3), family=family)
    statistics = e_step(*documents.arrays, parameters, family=family, spec=FitSpec(n_topics=3))
    counts = np.array([1, 1, 2])
    phi = tokens_of(statistics.topic_counts[[0, 1, 4]] / counts[:, np.newaxis], counts)
    zbar, probability, _ = moments_of_assignments(phi)
    mean = family.mean(posterior.mean, posterior.variance, parameters.delta)[0]
    # the mean depends on exp(omega) alone
    of_one = family.mean(np.zeros(1), np.zeros(1), parameters.delta)[0]
    assert mean / of_one == pytest.approx(probability @ np.exp(zbar @ parameters.eta), rel=1e-9)
    assert mean / of_one < np.exp(3.0)


def test_the_update_of_a_token_is_the_derivative_of_the_enumerated_response_term() -> None:
    rng = np.random.default_rng(2)
    phi, eta, offset, y = rng.dirichlet(np.ones(3), 4), np.array([-1.5, 0.3, 2.0]), 0.4, 3.0

    def enumerated(phi: np.ndarray) -> float:
        total = 0.0
        for z in itertools.product(range(3), repeat=4):
            omega = offset + eta[list(z)].mean()
            total += phi[np.arange(4), z].prod() * FAMILY.log_likelihood(y, omega, np.ones(1), 1.0)
        return total

    kappa = phi @ np.exp(eta / 4)
    a = np.exp(offset) * kappa.prod()
    for n in range(4):
        pull = y * eta / 4 - a / kappa[n] * np.exp(eta / 4)
        slopes = []
        for k in range(3):
            step = np.zeros((4, 3))
            step[n, k] = 1e-4
            slopes.append((enumerated(phi + step) - enumerated(phi - step)) / 2e-4)
        # equal coefficients do not pull
        assert_allclose(np.array(slopes) - slopes[0], pull - pull[0], rtol=1e-8, atol=1e-9)


@GRANULARITIES
def test_the_fixed_point_is_the_exact_coordinate_update(granularity: str) -> None:
    """Documents of one to twelve tokens, where 1 / kappa is far from 1 - m / N, and with terms that occur many times."""
    rng = np.random.default_rng(4)
    rows = [([2], [1]), ([0, 5], [1, 1]), ([0, 1, 3, 6], [1, 1, 1, 1])]
    if granularity == "term":  # occurrences by themselves need not end with the same phi
        rows += [([2], [6]), ([0, 5], [1, 2]), ([1, 3, 4], [1, 9, 2])]
    documents = documents_of([(*row, y) for row in rows for y in (0.0, 4.0, 30.0)])
    parameters = random_parameters(rng, N_TERMS, 3, delta=1.0, eta_scale=3.0)
    spec = FitSpec(n_topics=3, granularity=granularity, max_sweeps=2000, sweep_tol=1e-15)
    for d in range(len(documents)):
        one = documents.take([d])
        terms, counts, y = one.document(0)
        statistics = e_step(*one.arrays, parameters, family=FAMILY, spec=spec)
        gamma = infer(*one.csr, parameters, spec=spec, y=one.y, family=FAMILY).gamma[0]
        phi = statistics.topic_counts[terms] / counts[:, np.newaxis]
        state = one_predictor.DocumentState(terms, counts.astype(float), phi, gamma)
        again = one_predictor.sweep(state, parameters, ScalarResponse(FAMILY, y))
        assert_allclose(again.phi, phi, atol=2e-6)


@GRANULARITIES
@pytest.mark.parametrize("rho", [1.0, 3.0])
def test_elbo_is_a_bound_of_the_log_evidence(granularity: str, rho: float) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        documents = small_documents(rng, mean=float(rng.choice([0.3, 3.0, 100.0])))
        n_topics = int(rng.integers(2, 5))
        parameters = random_parameters(
            rng, N_TERMS, n_topics, delta=1.0, eta_scale=rng.uniform(0.1, 5.0), alpha=rng.uniform(0.05, 2)
        )
        exact = [
            log_evidence(tokens_of(*document[:2]), document[2], parameters, FAMILY, rho=rho)
            for document in map(documents.document, range(len(documents)))
        ]
        for max_sweeps in (1, 2, 100):
            spec = FitSpec(
                n_topics=n_topics, granularity=granularity, max_sweeps=max_sweeps, response_weight=rho
            )
            elbo = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=FAMILY).elbo
            assert np.all(elbo <= exact + 1e-9 * np.abs(exact))


@GRANULARITIES
def test_no_sweep_lowers_the_elbo(granularity: str) -> None:
    """Documents short and long, with counts from 0 to thousands and coefficients from 0.3 to 5."""
    for seed in range(24):
        rng = np.random.default_rng(seed)
        parameters = random_parameters(
            rng, 60, 6, delta=1.0, eta_scale=float(rng.choice([0.3, 1.0, 2.5, 5.0]))
        )
        documents = random_documents(rng, 60, 12, longest=int(rng.choice([2, 8, 50])), unlabelled=0.0)
        documents = counted(documents, rng, mean=float(rng.choice([0.2, 3.0, 50.0, 3000.0])))
        rho = float(rng.choice([1.0, 8.0]))
        elbo = [
            infer(
                *documents.csr,
                parameters,
                spec=FitSpec(
                    n_topics=6, granularity=granularity, max_sweeps=n, sweep_tol=0.0, response_weight=rho
                ),
                y=documents.y,
                family=FAMILY,
            ).elbo
            for n in (1, 2, 3, 4, 6, 10, 20)
        ]
        for one_document in np.array(elbo).T:
            assert_never_falls(one_document)


@GRANULARITIES
@pytest.mark.parametrize(("rho", "ridge"), [(1.0, None), (4.0, 1.0)])
def test_em_from_the_last_phi_never_lowers_the_objective(
    granularity: str, rho: float, ridge: float | None
) -> None:
    rng = np.random.default_rng(6)
    documents = counted(random_documents(rng, 12, 15, longest=6), rng, 3.0)
    spec = FitSpec(n_topics=3, granularity=granularity, response_weight=rho, ridge=ridge)
    parameters = random_parameters(rng, 14, 3, delta=1.0)
    states = [
        one_predictor.cold_start(*documents.document(d)[:2], parameters, granularity=granularity)
        for d in range(len(documents))
    ]
    trace = []
    for _ in range(8):
        states = [
            one_predictor.sweep(state, parameters, ScalarResponse(FAMILY, y, rho=rho))
            for state, y in zip(states, documents.y, strict=True)
        ]
        statistics = reference_statistics(states, documents.y, parameters, family=FAMILY, spec=spec)
        trace.append(objective(statistics, parameters, family=FAMILY, spec=spec))
        parameters = m_step(parameters, statistics, family=FAMILY, spec=spec)
        statistics = reference_statistics(states, documents.y, parameters, family=FAMILY, spec=spec)
        trace.append(objective(statistics, parameters, family=FAMILY, spec=spec))
    assert_never_falls(trace)
    assert trace[-1] > trace[0]


def test_a_fit_finds_topics_coefficients_and_rates() -> None:
    truth = np.array([-1.0, 0.5, 2.0])
    drawn = simulate_corpus(
        900, 3, 200, mean_tokens=60, eta=truth, seed=1, sample_response=lambda o, g: g.poisson(np.exp(o))
    )
    block = drawn.block
    documents = Documents(block.indptr, block.terms, block.counts, drawn.y)
    spec = FitSpec(n_topics=3, max_iter=60)
    parameters, trace = fit_in_a_loop(documents, 200, family=FAMILY, spec=spec)
    distance = 0.5 * np.abs(drawn.topics[:, np.newaxis] - parameters.topics.T).sum(axis=2)
    nearest = distance.argmin(axis=1)
    assert sorted(nearest) == [0, 1, 2]
    assert distance.min(axis=1).max() < 0.06
    assert np.abs(parameters.eta[nearest] - truth).max() < 0.15
    # a sure start may fall into other optima, so that the trace may fall: hardly ever, and by little
    assert np.diff(trace).min() > -1e-5 * abs(trace[-1])


def test_known_topics_give_the_fit_of_another_program() -> None:
    """Terms of one topic each: zbar is known, and what is left is a Poisson regression."""
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(3)
    n = 300
    counts = rng.integers(0, 4, (n, 3))
    counts[:, 0] += 1
    exposure, age = rng.uniform(0.5, 3.0, n), rng.normal(size=n)
    zbar = counts / counts.sum(axis=1, keepdims=True)
    y = rng.poisson(exposure * np.exp(zbar @ [0.2, 1.5, -1.0] + 0.3 * age)).astype(float)
    documents = documents_of(
        [(np.flatnonzero(row), row[row > 0], y_d) for row, y_d in zip(counts, y, strict=True)]
    )
    extras = neutral_extras(n, 1)
    extras[:, 0], extras[:, 4] = np.log(exposure), age
    spec = FitSpec(n_topics=3, ridge=0.0, topic_prior=0.0)
    parameters = Parameters(np.eye(3), np.full(3, 0.5), np.zeros(3), np.ones(1), np.zeros(1))
    for _ in range(40):
        statistics = e_step(*documents.arrays, parameters, family=FAMILY, spec=spec, extras=extras)
        parameters = m_step(parameters, statistics, family=FAMILY, spec=spec)
    other = sm.GLM(
        y, np.column_stack([zbar, age]), family=sm.families.Poisson(), offset=np.log(exposure)
    ).fit(tol=1e-14)
    assert_allclose([*parameters.eta, *parameters.zeta], other.params, rtol=1e-6)
    errors = np.sqrt(np.diag(np.linalg.inv(statistics.information)))
    assert_allclose(errors, other.bse, rtol=1e-6)


class Divided(Poisson):
    """The likelihood raised to 1 / delta."""

    name = "divided"

    @staticmethod
    @compile_response
    def log_likelihood(y, omega, delta, aux):
        return (y * omega - math.exp(omega)) / delta[0]


def test_a_dispersion_divides_the_response() -> None:
    """As rho in the E-step, and in the sums of the M-step too."""
    rng = np.random.default_rng(8)
    documents = small_documents(rng)
    plain = random_parameters(rng, N_TERMS, 3, delta=1.0)
    divided = dataclasses.replace(plain, delta=np.array([2.5]))
    weaker = FitSpec(n_topics=3, response_weight=0.4)
    one = e_step(*documents.arrays, plain, family=FAMILY, spec=weaker)
    two = e_step(*documents.arrays, divided, family=Divided(), spec=FitSpec(n_topics=3))
    assert_allclose(two.topic_counts, one.topic_counts, rtol=1e-9)
    assert_allclose(two.score, 0.4 * one.score, rtol=1e-9)
    assert_allclose(two.information, 0.4 * one.information, rtol=1e-9)
    fixed = -0.4 * special.gammaln(documents.y + 1.0).sum()
    assert_allclose(two.elbo, one.elbo - fixed, rtol=1e-10)
    assert_allclose(two.profile, 0.4 * one.profile - fixed, rtol=1e-9)


EXTREMES = {
    "one token, coefficients of 50": ([([0], [1]), ([1], [1]), ([2], [1])], [-50.0, 50.0, 3.0], 0.0),
    "coefficients of 50": (SMALL, [-50.0, 50.0, 0.0], 0.0),
    "coefficients of 700": (SMALL, [-700.0, 700.0, 0.0], 0.0),
    "a large offset": (SMALL, [-1.0, 0.0, 2.0], 20.0),
    "a small offset": (SMALL, [-1.0, 0.0, 2.0], -20.0),
    "both": (SMALL, [-50.0, 50.0, 49.0], 20.0),
    "one term 50,000 times": ([([0], [50_000]), ([0, 1], [50_000, 1])], [-1.0, 3.0, 0.0], 0.0),
    "one term 5,000 times, coefficients of 50": ([([0], [5_000])], [-50.0, 50.0, 0.0], 0.0),
    "one topic": (SMALL, [0.7], 0.0),
    "equal coefficients": (SMALL, [0.3, 0.3, 0.3], 0.0),
}


@GRANULARITIES
@pytest.mark.parametrize("extreme", EXTREMES)
def test_everything_stays_finite(extreme: str, granularity: str) -> None:
    rows, eta, offset = EXTREMES[extreme]
    rng = np.random.default_rng(0)
    plain = random_parameters(rng, N_TERMS, len(eta), delta=1.0)
    for rho in (1.0, 1e4):
        parameters = dataclasses.replace(plain, eta=np.array(eta))
        documents = documents_of([(*row, y) for row in rows for y in (0.0, 1.0, 1e6, np.nan)])
        extras = neutral_extras(len(documents), 0)
        extras[:, 0] = offset
        spec = FitSpec(n_topics=len(eta), granularity=granularity, response_weight=rho)
        with np.errstate(all="raise"):
            for _ in range(3):
                statistics = e_step(*documents.arrays, parameters, family=FAMILY, spec=spec, extras=extras)
                posterior = infer(
                    *documents.csr, parameters, spec=spec, y=documents.y, family=FAMILY, extras=extras
                )
                for record in (statistics, posterior):
                    for field in dataclasses.fields(record):
                        value = getattr(record, field.name)
                        assert value is None or np.all(np.isfinite(value)), field.name
                assert np.all(posterior.variance >= 0.0)
                tokens = posterior.gamma.sum(axis=1) - parameters.alpha.sum()
                assert_allclose(tokens, posterior.n_known_tokens, rtol=1e-10)
                assert np.all(
                    np.linalg.eigvalsh(statistics.information) >= -1e-9 * np.trace(statistics.information)
                )
                assert np.all(np.isfinite(FAMILY.mean(posterior.mean, posterior.variance, np.ones(1))))
                parameters = m_step(parameters, statistics, family=FAMILY, spec=spec)
                assert np.all(np.isfinite(parameters.eta))
