"""Moments and bounds of small documents against the sum over every assignment of topics to tokens."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dslda.families.base import Family
from dslda.variational.estep import e_step, infer
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import ScalarResponse
from dslda.variational.parameters import FitSpec, Parameters
from tests.helpers.enumeration import log_evidence, moments_of_assignments, tokens_of
from tests.helpers.problems import Documents, documents_of, random_parameters

N_TERMS = 7
# (terms, counts): up to five tokens
SMALL = [([0], [1]), ([4], [5]), ([1, 3], [1, 1]), ([0, 2, 6], [2, 1, 2]), ([0, 1, 2, 3, 5], [1, 1, 1, 1, 1])]


def small_documents(rng: np.random.Generator) -> Documents:
    return documents_of([(terms, counts, rng.normal()) for terms, counts in SMALL])


def kernel_phi(
    documents: Documents, d: int, parameters: Parameters, family: Family, spec: FitSpec
) -> tuple[np.ndarray, Documents]:
    """phi of every token of document d as the E-step left it (tied occurrences share it)."""
    alone = documents.take([d])
    terms, counts, _ = alone.document(0)
    statistics = e_step(*alone.arrays, parameters, family=family, spec=spec)
    return tokens_of(statistics.topic_counts[terms] / counts[:, np.newaxis], counts), alone


@pytest.mark.parametrize("n_topics", [1, 2, 4])
@pytest.mark.parametrize("d", range(len(SMALL)))
def test_moments_of_the_mean_assignment_agree_with_enumeration(
    d: int, n_topics: int, gaussian: Family
) -> None:
    rng = np.random.default_rng(10 * d + n_topics)
    documents = small_documents(rng)
    parameters = random_parameters(rng, N_TERMS, n_topics, delta=0.3, eta_scale=2.0)
    spec = FitSpec(n_topics=n_topics, granularity="term")
    phi, alone = kernel_phi(documents, d, parameters, gaussian, spec)
    zbar, probability, second_moment = moments_of_assignments(phi)
    omega = zbar @ parameters.eta
    y = alone.y[0]

    posterior = infer(*alone.csr, parameters, spec=spec, y=alone.y, family=gaussian)
    n = len(phi)
    assert_allclose((posterior.gamma[0] - parameters.alpha) / n, probability @ zbar, rtol=1e-10, atol=1e-12)
    assert_allclose(posterior.mean[0], probability @ omega, rtol=1e-10)
    variance = probability @ omega**2 - (probability @ omega) ** 2
    assert_allclose(posterior.variance[0], variance, rtol=1e-8, atol=1e-12)

    statistics = e_step(*alone.arrays, parameters, family=gaussian, spec=spec)
    delta = parameters.delta
    assert_allclose(statistics.information * delta, second_moment, rtol=1e-9, atol=1e-12)
    assert_allclose(
        statistics.score * delta,
        probability @ zbar * y - second_moment @ parameters.eta,
        rtol=1e-8,
        atol=1e-10,
    )
    expected = probability @ [gaussian.log_likelihood(y, o, delta, 1.0) for o in omega]
    assert_allclose(statistics.profile, [expected], rtol=1e-9)


@pytest.mark.parametrize("granularity", ["term", "token"])
def test_reference_moments_and_statistics_agree_with_enumeration(granularity: str, gaussian: Family) -> None:
    rng = np.random.default_rng(5)
    documents = small_documents(rng)
    parameters = random_parameters(rng, N_TERMS, 3, eta_scale=2.0)
    for d in range(len(documents)):
        terms, counts, y = documents.document(d)
        state = one_predictor.cold_start(terms, counts, parameters, granularity=granularity)
        state.phi = rng.dirichlet(np.ones(3), len(state.phi))
        phi = np.repeat(state.phi, state.copies.astype(int), axis=0)
        zbar, probability, second_moment = moments_of_assignments(phi)
        omega = zbar @ parameters.eta
        m = probability @ omega
        assert_allclose(
            one_predictor.moments(state, parameters.eta),
            (m, probability @ omega**2 - m**2),
            rtol=1e-9,
            atol=1e-12,
        )
        score, information = one_predictor.document_statistics(state, parameters, ScalarResponse(gaussian, y))
        assert_allclose(information * parameters.delta, second_moment, rtol=1e-12)
        exact = probability @ zbar * y - second_moment @ parameters.eta
        assert_allclose(score * parameters.delta, exact, rtol=1e-9, atol=1e-12)


def test_expected_gaussian_log_likelihood_is_exact(gaussian: Family) -> None:
    rng = np.random.default_rng(8)
    phi = rng.dirichlet(np.ones(3), 5)
    eta, delta, y = 2.0 * rng.normal(size=3), 0.3, 0.7
    zbar, probability, _ = moments_of_assignments(phi)
    omega = zbar @ eta
    m = probability @ omega
    v = probability @ (omega - m) ** 2
    exact = probability @ [gaussian.log_likelihood(y, o, np.array([delta]), 1.0) for o in omega]
    delta_method = gaussian.log_likelihood(y, m, np.array([delta]), 1.0)
    delta_method += 0.5 * gaussian.second_derivative(y, m, np.array([delta]), 1.0) * v
    assert_allclose(delta_method, exact, rtol=1e-12)


@pytest.mark.parametrize("granularity", ["term", "token"])
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("n_topics", [2, 4])
@pytest.mark.parametrize("rho", [1.0, 3.0])
def test_elbo_never_exceeds_the_log_evidence(
    granularity: str, labelled: bool, n_topics: int, rho: float, gaussian: Family
) -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        documents = small_documents(rng)
        if not labelled:
            documents = documents.with_response(np.full(len(documents), np.nan))
        parameters = random_parameters(
            rng,
            N_TERMS,
            n_topics,
            delta=10.0 ** rng.uniform(-6, 0),
            eta_scale=3.0,
            alpha=rng.uniform(0.05, 2),
        )
        exact = [
            log_evidence(tokens_of(*document[:2]), document[2], parameters, gaussian, rho=rho)
            for document in map(documents.document, range(len(documents)))
        ]
        for max_sweeps in (1, 2, 100):
            spec = FitSpec(
                n_topics=n_topics, granularity=granularity, max_sweeps=max_sweeps, response_weight=rho
            )
            elbo = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=gaussian).elbo
            assert np.all(elbo <= exact + 1e-9 * np.abs(exact))


def test_elbo_of_one_topic_is_the_log_evidence(gaussian: Family) -> None:
    rng = np.random.default_rng(3)
    documents = small_documents(rng)
    parameters = random_parameters(rng, N_TERMS, 1)
    elbo = infer(*documents.csr, parameters, spec=FitSpec(n_topics=1), y=documents.y, family=gaussian).elbo
    for d in range(len(documents)):
        terms, counts, y = documents.document(d)
        assert_allclose(elbo[d], log_evidence(tokens_of(terms, counts), y, parameters, gaussian), rtol=1e-12)
