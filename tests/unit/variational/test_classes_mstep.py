"""The M-step of classes, and the ridge of all families: ascent, fixed points, and other programs on the same data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from dslda.families.base import Family
from dslda.families.categorical import Categorical
from dslda.families.registry import get_family
from dslda.variational.estep import e_step, neutral_extras
from dslda.variational.mstep import m_step, objective, prior_precision
from dslda.variational.oracle import one_predictor
from dslda.variational.parameters import FitSpec, Parameters
from tests.helpers.class_problems import (
    assert_rises,
    centred,
    class_parameters,
    class_statistics,
    documents_of_classes,
    random_extras,
    responses_of,
    simulated_classes,
)
from tests.helpers.problems import Documents, documents_of, fit_in_a_loop, random_documents, random_parameters

FORMS = pytest.mark.parametrize("form", ["bound", "delta"])


@FORMS
@pytest.mark.parametrize(
    ("longest", "n_covariates", "scale", "ridge"),
    [(1, 0, 0.3, None), (1, 2, 3.0, 5.0), (4, 0, 3.0, 0.0), (4, 2, 0.3, None)],
)
def test_no_step_lowers_the_objective_and_the_last_is_stationary(
    form: str, longest: int, n_covariates: int, scale: float, ridge: float | None
) -> None:
    """At the same phi, of short documents, with any classes."""
    rng = np.random.default_rng(longest)
    n_topics, n_classes = 3, 4
    parameters = class_parameters(rng, 12, n_topics, n_classes, n_covariates=n_covariates, scale=scale)
    documents = documents_of_classes(rng, 12, 20, n_classes, longest=longest, unlabelled=0.1)
    family, spec = Categorical(n_classes, form), FitSpec(n_topics=n_topics, ridge=ridge, response_weight=2.0)
    extras = random_extras(rng, 20, n_covariates)
    extras[:, 3] = 1.0
    responses = responses_of(documents, family, rho=spec.response_weight, extras=extras)
    states = []
    for d in range(20):
        state = one_predictor.cold_start(*documents.document(d)[:2], parameters, granularity="term")
        state.phi = rng.dirichlet(np.full(n_topics, 0.5), len(state.phi))
        states.append(state)
    trace = []
    for _ in range(40):
        statistics = class_statistics(
            states, responses, parameters, weights=extras[:, 2], rho=spec.response_weight
        )
        trace.append(objective(statistics, parameters, family=family, spec=spec))
        with np.errstate(all="raise"):
            moved = m_step(parameters, statistics, family=family, spec=spec)
        parameters = replace(moved, topics=parameters.topics)
    assert_rises(trace, slack=1e-12)
    coefficients = np.concatenate([parameters.eta, parameters.zeta])
    slope = statistics.score - prior_precision(parameters, family, spec) @ coefficients
    assert np.abs(slope).max() < 1e-3 * np.abs(statistics.information).max()


@pytest.mark.parametrize("name", ["bound", "delta", "gaussian", "binomial", "poisson"])
@pytest.mark.parametrize("ridge", [0.5, 20.0])
def test_the_penalised_slope_is_zero_where_steps_end(name: str, ridge: float) -> None:
    """Topics fixed; phi follows the coefficients."""
    rng = np.random.default_rng(2)
    if name in ("bound", "delta"):
        family: Family = Categorical(3, name)
        parameters = class_parameters(rng, 15, 3, 3, n_covariates=1)
        documents = documents_of_classes(rng, 15, 40, 3)
    else:
        family = get_family(name)
        parameters = replace(random_parameters(rng, 15, 3), zeta=np.zeros(1))
        documents = random_documents(rng, 15, 40)
        if name != "gaussian":
            documents = documents.with_response(np.where(documents.y > 0, 1.0, documents.y * 0.0))
    spec = FitSpec(n_topics=3, ridge=ridge, sweep_tol=1e-12, max_sweeps=1000, response_weight=1.5)
    extras = neutral_extras(40, 1)
    extras[:, 4] = rng.normal(size=40)
    for _ in range(150):
        statistics = e_step(*documents.arrays, parameters, family=family, spec=spec, extras=extras)
        moved = m_step(parameters, statistics, family=family, spec=spec)
        parameters = replace(moved, topics=parameters.topics)
    statistics = e_step(*documents.arrays, parameters, family=family, spec=spec, extras=extras)
    coefficients = np.concatenate([parameters.eta, parameters.zeta])
    penalty = ridge * coefficients
    penalty[:3] -= ridge * parameters.eta.mean(axis=0)
    assert np.abs(penalty).max() > 0.1
    assert_allclose(statistics.score, penalty, atol=1e-4 * np.abs(penalty).max())


def documents_of_sure_topics(
    rng: np.random.Generator, n_documents: int, n_topics: int, length: int
) -> tuple[Documents, Parameters, np.ndarray]:
    """Every term is possible in one topic only, so that words decide zbar: its rows come last."""
    shares = rng.dirichlet(np.ones(n_topics), n_documents)
    counts = np.maximum(np.rint(length * shares), 1).astype(np.int64)
    documents = documents_of([(np.arange(n_topics), row, 0.0) for row in counts])
    parameters = Parameters(np.eye(n_topics), np.full(n_topics, 0.5), np.zeros(n_topics), np.zeros(0))
    return documents, parameters, counts / counts.sum(axis=1, keepdims=True)


@FORMS
@pytest.mark.parametrize("ridge", [0.0, 0.7])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_coefficients_are_those_of_logistic_regression_where_topics_are_sure(
    form: str, ridge: float, n_classes: int
) -> None:
    """Long documents: zbar does not vary. The prior's mean over the topics is scikit-learn's intercept."""
    rng = np.random.default_rng(n_classes)
    documents, parameters, zbar = documents_of_sure_topics(rng, 150, 3, 1_000_000_000)
    x = rng.normal(size=(150, 1))
    truth = rng.normal(size=(4, n_classes))
    y = np.argmax(np.hstack([zbar, x]) @ truth + rng.gumbel(size=(150, n_classes)), axis=1)
    parameters = replace(parameters, eta=np.zeros((3, n_classes)), zeta=np.zeros((1, n_classes)))
    extras = neutral_extras(150, 1)
    extras[:, 2], extras[:, 4:] = rng.uniform(0.5, 2.0, 150), x
    family, spec = Categorical(n_classes, form), FitSpec(n_topics=3, ridge=ridge)
    documents = documents.with_response(y)
    for _ in range(250):
        statistics = e_step(*documents.arrays, parameters, family=family, spec=spec, extras=extras)
        moved = m_step(parameters, statistics, family=family, spec=spec)
        parameters = replace(moved, topics=parameters.topics)

    # two classes have one vector of coefficients there, twice as long as each of ours: half the sum of squares
    strength = 2.0 if n_classes == 2 else 1.0
    theirs = LogisticRegression(
        C=strength / ridge if ridge else np.inf,
        fit_intercept=ridge > 0.0,
        tol=1e-12,
        max_iter=100_000,
        solver="newton-cg",
    ).fit(np.hstack([zbar, x]), y, sample_weight=extras[:, 2])
    eta = theirs.coef_[:, :3] + theirs.intercept_[:, np.newaxis]
    if n_classes == 2:
        ours = np.diff(parameters.eta), np.diff(parameters.zeta)
    else:
        ours = centred(parameters.eta), centred(parameters.zeta)
        eta, theirs.coef_ = centred(eta.T).T, centred(theirs.coef_.T).T
    assert_allclose(ours[0], eta.T, atol=2e-6)
    assert_allclose(ours[1], theirs.coef_[:, 3:].T, atol=2e-6)


@FORMS
@pytest.mark.parametrize("seed", [0, 1])
def test_em_does_not_fall_on_a_simulated_corpus(form: str, seed: int) -> None:
    """The objective rises although every E-step starts afresh."""
    eta = np.array([[3.0, 0.0, -3.0], [-3.0, 3.0, 0.0], [0.0, -3.0, 3.0], [1.0, 1.0, 1.0]])
    _, documents = simulated_classes(eta, 300, 80, seed=seed, mean_tokens=40)
    spec = FitSpec(n_topics=4, max_iter=40, tol=0.0, sweep_tol=1e-8, max_sweeps=500)
    _, trace = fit_in_a_loop(documents, 80, family=Categorical(3, form), spec=spec)
    assert trace[-1] > trace[1] > trace[0]
    assert_rises(trace[3:], slack=1e-6)


@FORMS
def test_a_step_does_not_depend_on_what_the_classes_have_in_common(form: str) -> None:
    rng = np.random.default_rng(3)
    parameters = class_parameters(rng, 12, 3, 4, n_covariates=1)
    documents = documents_of_classes(rng, 12, 20, 4)
    extras = random_extras(rng, 20, 1)
    shifted = replace(parameters, eta=parameters.eta + 5.0, zeta=parameters.zeta - 2.0)
    family, spec = Categorical(4, form), FitSpec(n_topics=3, ridge=0.0)
    one, other = (
        m_step(
            p,
            e_step(*documents.arrays, p, family=family, spec=spec, extras=extras),
            family=family,
            spec=spec,
        )
        for p in (parameters, shifted)
    )
    assert_allclose(one.topics, other.topics, rtol=1e-9, atol=1e-12)
    assert_allclose(one.eta + 5.0, other.eta, rtol=1e-8)
    assert_allclose(one.zeta - 2.0, other.zeta, rtol=1e-8)
