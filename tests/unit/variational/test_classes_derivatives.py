"""F of a response of classes: derivatives against finite differences, values against all assignments of topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from dslda.families.categorical import Categorical
from dslda.variational.estep import infer
from dslda.variational.oracle import class_predictors, one_predictor
from dslda.variational.oracle.class_predictors import ClassResponse
from dslda.variational.parameters import FitSpec, Parameters
from tests.helpers.class_problems import class_parameters
from tests.helpers.enumeration import log_evidence_of_class, moments_of_assignments, tokens_of
from tests.helpers.problems import documents_of, random_document

FORMS = pytest.mark.parametrize("form", ["bound", "delta"])


def problem(
    seed: int, form: str, *, scale: float = 1.5
) -> tuple[one_predictor.DocumentState, Parameters, ClassResponse]:
    """A document with covariates and some phi, far from converged."""
    rng = np.random.default_rng(seed)
    n_topics, n_classes = int(rng.integers(1, 5)), int(rng.integers(2, 6))
    parameters = class_parameters(rng, 20, n_topics, n_classes, n_covariates=2, scale=scale)
    terms, counts, _ = random_document(rng, 20, distinct=int(rng.integers(1, 4)), most=2)
    state = one_predictor.cold_start(terms, counts, parameters, granularity="token")
    state.phi = rng.dirichlet(np.ones(n_topics), len(state.phi))
    y = float(rng.integers(0, n_classes))
    return state, parameters, ClassResponse(y, form, x=rng.normal(size=2))


def numeric(function: Callable[[np.ndarray], float], at: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Central differences, in the shape of `at`."""
    derivative = np.empty_like(at)
    for i in np.ndindex(at.shape):
        move = np.zeros_like(at)
        move[i] = h
        derivative[i] = (function(at + move) - function(at - move)) / (2 * h)
    return derivative


@FORMS
@pytest.mark.parametrize("seed", range(6))
def test_slope_is_the_derivative_by_phibar(form: str, seed: int) -> None:
    state, parameters, response = problem(seed, form)
    phibar, length = class_predictors.mean_assignment(state), state.length
    expected = numeric(
        lambda p: class_predictors.expected_log_likelihood(p, length, parameters, response), phibar
    )
    derivative = class_predictors.slope(phibar, length, parameters, response)
    assert_allclose(derivative, expected, rtol=1e-6, atol=1e-7)


@FORMS
@pytest.mark.parametrize("seed", range(6))
def test_score_is_the_derivative_by_the_coefficients(form: str, seed: int) -> None:
    state, parameters, response = problem(seed, form)
    phibar, length = class_predictors.mean_assignment(state), state.length
    score, _ = class_predictors.document_statistics(state, parameters, response)
    for name, part in (("eta", score[: parameters.n_topics]), ("zeta", score[parameters.n_topics :])):
        expected = numeric(
            lambda value, name=name: class_predictors.expected_log_likelihood(
                phibar, length, replace(parameters, **{name: value}), response
            ),
            getattr(parameters, name),
        )
        assert_allclose(part, expected, rtol=1e-6, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_information_of_the_bound_is_no_less_than_minus_its_second_derivative(
    seed: int, scale: float
) -> None:
    """The information bounds the curvature, which makes the M-step safe."""
    state, parameters, response = problem(seed, "bound", scale=scale)
    n_topics, n_classes = parameters.eta.shape
    n = n_topics + 2
    at = np.concatenate([parameters.eta, parameters.zeta])

    def score_at(coefficients: np.ndarray) -> np.ndarray:
        moved = replace(parameters, eta=coefficients[:n_topics], zeta=coefficients[n_topics:])
        return class_predictors.document_statistics(state, moved, response)[0]

    hessian = np.empty((n_classes, n, n_classes, n))
    for i, c in np.ndindex(n, n_classes):
        move = np.zeros_like(at)
        move[i, c] = 1e-5
        hessian[:, :, c, i] = ((score_at(at + move) - score_at(at - move)) / 2e-5).T
    _, information = class_predictors.document_statistics(state, parameters, response)
    surplus = hessian.copy()
    for c in range(n_classes):
        surplus[c, :, c, :] += information[c]
    values = np.linalg.eigvalsh(surplus.reshape(n_classes * n, -1))
    assert values.min() >= -1e-7


@FORMS
def test_information_is_positive_semidefinite_and_symmetric(form: str) -> None:
    for seed in range(6):
        _, information = class_predictors.document_statistics(*problem(seed, form, scale=4.0))
        for of_class in information:
            assert_allclose(of_class, of_class.T, rtol=1e-12)
            assert np.linalg.eigvalsh(of_class).min() >= -1e-12


def exact_expectation(
    state: one_predictor.DocumentState, parameters: Parameters, response: ClassResponse
) -> float:
    """E[log p(y)] under q(z) = prod_n phi_n."""
    zbar, probability, _ = moments_of_assignments(tokens_of(state.phi, state.copies.astype(int)))
    omega = zbar @ parameters.eta + response.x @ parameters.zeta
    return float(probability @ special.log_softmax(omega, axis=1)[:, int(response.y)])


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [0.3, 1.5, 10.0])
def test_the_bound_is_one_under_any_phi(seed: int, scale: float) -> None:
    state, parameters, response = problem(seed, "bound", scale=scale)
    exact = exact_expectation(state, parameters, response)
    phibar, length = class_predictors.mean_assignment(state), state.length
    bound = class_predictors.expected_log_likelihood(phibar, length, parameters, response)
    assert bound <= exact + 1e-12 * abs(exact)
    # also after a change common to all classes, which leaves log p(y) alone
    shifted = replace(
        parameters, eta=parameters.eta + np.random.default_rng(seed).normal(size=(len(phibar), 1))
    )
    assert exact_expectation(state, shifted, response) == pytest.approx(exact)
    assert class_predictors.expected_log_likelihood(phibar, length, shifted, response) <= exact + 1e-12 * abs(
        exact
    )


def test_the_delta_method_is_closer_than_the_bound_where_coefficients_are_moderate() -> None:
    errors = {}
    for form in ("bound", "delta"):
        errors[form] = [
            class_predictors.expected_log_likelihood(
                class_predictors.mean_assignment(state), state.length, parameters, response
            )
            - exact_expectation(state, parameters, response)
            for state, parameters, response in (problem(seed, form, scale=0.7) for seed in range(40))
        ]
    assert np.abs(errors["delta"]).mean() < 0.5 * np.abs(errors["bound"]).mean()
    assert np.abs(errors["delta"]).max() < 0.1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_elbo_is_below_the_evidence(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    parameters = class_parameters(rng, 10, 3, 4, n_covariates=1, scale=scale)
    terms, counts, _ = random_document(rng, 10, distinct=3, most=2)
    x = rng.normal(size=1)
    tokens = tokens_of(terms, counts)
    for y in (0.0, 3.0, np.nan):
        documents = documents_of([(terms, counts, y)])
        evidence = log_evidence_of_class(tokens, y, parameters, x=x)
        elbo = {}
        for form in ("bound", "delta"):
            elbo[form] = infer(
                *documents.csr,
                parameters,
                spec=FitSpec(n_topics=3, sweep_tol=1e-10),
                y=documents.y,
                family=Categorical(4, form),
                extras=np.array([[0.0, 1.0, 1.0, 1.0, x[0]]]),
            ).elbo[0]
        assert elbo["bound"] <= evidence
        if np.isnan(y):
            assert elbo["bound"] == elbo["delta"]
        elif scale < 1.0:
            assert elbo["bound"] - 0.01 <= elbo["delta"] <= evidence + 0.01


@FORMS
def test_what_all_classes_have_in_common_changes_nothing(form: str) -> None:
    """Common changes: one number for all topics and classes, one for each covariate; in the delta form one for each topic."""
    state, parameters, response = problem(3, form)
    phibar, length = class_predictors.mean_assignment(state), state.length
    rng = np.random.default_rng(0)
    by_topic = rng.normal(size=(len(phibar), 1))
    moved = replace(
        parameters,
        eta=parameters.eta + (by_topic if form == "delta" else 0.7),
        zeta=parameters.zeta + rng.normal(size=(2, 1)),
    )
    before, after = (
        (
            class_predictors.expected_log_likelihood(phibar, length, p, response),
            *class_predictors.document_statistics(state, p, response),
        )
        for p in (parameters, moved)
    )
    for one, other in zip(before, after, strict=True):
        assert_allclose(one, other, rtol=1e-10, atol=1e-12)
