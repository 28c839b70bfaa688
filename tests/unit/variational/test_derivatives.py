"""The E-step's coefficients and the M-step's score against finite differences of the ELBO."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dslda.families.base import Family
from dslda.families.gaussian import Gaussian
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import ScalarResponse
from dslda.variational.parameters import Parameters
from tests.helpers.problems import PoissonLike, random_document, random_parameters

RHO = 1.7
FAMILIES = pytest.mark.parametrize("family", [Gaussian(), PoissonLike()], ids=lambda f: f.name)
GRANULARITIES = pytest.mark.parametrize("granularity", ["term", "token"])


def problem(granularity: str, seed: int = 0) -> tuple[one_predictor.DocumentState, float, Parameters]:
    """A document with some phi, far from converged."""
    rng = np.random.default_rng(seed)
    parameters = random_parameters(rng, 20, 4, delta=0.4, eta_scale=1.5)
    terms, counts, y = random_document(rng, 20, distinct=4, most=3)
    state = one_predictor.cold_start(terms, counts, parameters, granularity=granularity)
    state.phi = rng.dirichlet(np.ones(4), len(state.phi))
    return state, abs(y), parameters


def elbo(state: one_predictor.DocumentState, y: float, parameters: Parameters, family: Family) -> float:
    return one_predictor.document_elbo(state, parameters, ScalarResponse(family, y, rho=RHO))


def elbo_at_phi(
    state: one_predictor.DocumentState,
    n: int,
    k: int,
    change: float,
    y: float,
    parameters: Parameters,
    family: Family,
) -> float:
    moved = copy.copy(state)
    moved.phi = state.phi.copy()
    moved.phi[n, k] += change
    return elbo(moved, y, parameters, family)


@FAMILIES
@GRANULARITIES
def test_token_coefficients_are_the_derivative_of_the_response_term_by_phi(
    family: Family, granularity: str
) -> None:
    state, y, parameters = problem(granularity)
    eta, n = parameters.eta, state.length
    m, v = one_predictor.moments(state, eta)
    l1, l2, l3 = (
        derivative(y, m, parameters.delta, 1.0)
        for derivative in (family.first_derivative, family.second_derivative, family.third_derivative)
    )
    b = l2 / (2 * n**2)
    for i, phi in enumerate(state.phi):
        a = (l1 + l3 * v / 2) / n - l2 * (eta @ phi) / n**2
        for k in range(len(eta)):
            # without y the ELBO is the same but for the response term
            up, down = (
                elbo_at_phi(state, i, k, h, y, parameters, family)
                - elbo_at_phi(state, i, k, h, math.nan, parameters, family)
                for h in (1e-5, -1e-5)
            )
            expected = RHO * state.copies[i] * (a * eta[k] + b * eta[k] ** 2)
            assert_allclose((up - down) / 2e-5, expected, rtol=1e-6, atol=1e-7)


@FAMILIES
@GRANULARITIES
def test_converged_sweeps_leave_a_stationary_point(family: Family, granularity: str) -> None:
    state, y, parameters = problem(granularity, seed=2)
    state, _ = one_predictor.update_until_converged(
        state, parameters, ScalarResponse(family, y, rho=RHO), tol=0.0, max_sweeps=300
    )
    for i, phi in enumerate(state.phi):
        inner = [k for k in range(len(phi)) if phi[k] > 1e-4]
        slopes = [
            (
                elbo_at_phi(state, i, k, 1e-3 * phi[k], y, parameters, family)
                - elbo_at_phi(state, i, k, -1e-3 * phi[k], y, parameters, family)
            )
            / (2e-3 * phi[k])
            for k in inner
        ]
        # equal on the simplex: the Lagrange multiplier of sum_k phi_k = 1
        assert_allclose(slopes, slopes[0], atol=2e-5 * max(1.0, np.abs(slopes).max()))
    for k in range(parameters.n_topics):
        h = 1e-4 * state.gamma[k]
        up, down = (
            elbo(dataclasses.replace(state, gamma=state.gamma + s * h * np.eye(4)[k]), y, parameters, family)
            for s in (1, -1)
        )
        assert abs(up - down) / (2 * h) * state.gamma[k] < 1e-5


def elbo_at_eta(
    eta: np.ndarray, state: one_predictor.DocumentState, y: float, parameters: Parameters, family: Family
) -> float:
    return elbo(state, y, dataclasses.replace(parameters, eta=eta), family)


@FAMILIES
@GRANULARITIES
def test_score_is_the_derivative_of_the_elbo_by_eta(family: Family, granularity: str) -> None:
    state, y, parameters = problem(granularity, seed=1)
    score, _ = one_predictor.document_statistics(state, parameters, ScalarResponse(family, y))
    steps = 1e-5 * np.eye(parameters.n_topics)
    numeric = [
        (
            elbo_at_eta(parameters.eta + h, state, y, parameters, family)
            - elbo_at_eta(parameters.eta - h, state, y, parameters, family)
        )
        / 2e-5
        for h in steps
    ]
    assert_allclose(RHO * score, numeric, rtol=1e-6, atol=1e-7)


@GRANULARITIES
def test_gaussian_information_is_minus_the_second_derivative_of_the_elbo_by_eta(granularity: str) -> None:
    state, y, parameters = problem(granularity, seed=3)
    family = Gaussian()
    _, information = one_predictor.document_statistics(state, parameters, ScalarResponse(family, y))
    columns = []
    for h in np.eye(parameters.n_topics):
        up, down = (
            one_predictor.document_statistics(
                state,
                dataclasses.replace(parameters, eta=parameters.eta + s * h),
                ScalarResponse(family, y),
            )[0]
            for s in (1, -1)
        )
        columns.append((down - up) / 2)
    # the score is linear in eta
    assert_allclose(np.array(columns).T, information, rtol=1e-10, atol=1e-12)
