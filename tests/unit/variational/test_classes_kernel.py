"""The compiled E-step of classes against the readable one, its ascent, and its extremes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dslda.families.categorical import Categorical
from dslda.variational.estep import e_step, infer, neutral_extras
from dslda.variational.mstep import m_step, objective
from dslda.variational.oracle import class_predictors, one_predictor
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.topics import in_e_step
from tests.helpers.class_problems import (
    assert_rises,
    class_parameters,
    class_statistics,
    documents_of_classes,
    random_extras,
    responses_of,
)
from tests.helpers.problems import Documents, as_distributions, documents_of, random_document

FORMS = pytest.mark.parametrize("form", ["bound", "delta"])
N_TERMS = 30


def assert_kernel_equals_reference(
    documents: Documents,
    parameters: Parameters,
    spec: FitSpec,
    form: str,
    extras: NDArray[np.float64] | None = None,
) -> None:
    family = Categorical(parameters.n_classes, form)
    all_extras = neutral_extras(len(documents), len(parameters.zeta)) if extras is None else extras
    responses = responses_of(documents, family, rho=spec.response_weight, extras=all_extras)
    posterior = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family, extras=extras)
    states = []
    for d, response in enumerate(responses):
        terms, counts, _ = documents.document(d)
        if not len(terms):
            states.append(one_predictor.cold_start(terms, counts, parameters, granularity="term"))
            prior = parameters.alpha / parameters.alpha.sum()
            expected = class_predictors.predictors(prior, 1.0, parameters, response)
            assert_allclose(posterior.gamma[d], parameters.alpha)
            assert_allclose(posterior.mean[d], expected, rtol=1e-12, atol=1e-12)
            assert (posterior.elbo[d], posterior.n_known_tokens[d], posterior.converged[d]) == (0.0, 0, True)
            continue
        state, trace, converged = class_predictors.ascend(
            terms, counts, parameters, response, tol=spec.sweep_tol, max_sweeps=spec.max_sweeps
        )
        states.append(state)
        assert_allclose(posterior.elbo[d], trace[-1], rtol=1e-11, atol=1e-11)
        assert_allclose(posterior.gamma[d], state.gamma, rtol=1e-6, atol=1e-6)
        m = class_predictors.predictors(
            class_predictors.mean_assignment(state), state.length, parameters, response
        )
        assert_allclose(posterior.mean[d], m, rtol=1e-6, atol=1e-6)
        assert posterior.n_known_tokens[d] == counts.sum()
        if spec.sweep_tol > 0.0:
            assert posterior.converged[d] == converged

    statistics = e_step(*documents.arrays, parameters, family=family, spec=spec, extras=extras)
    expected = class_statistics(
        states, responses, parameters, weights=all_extras[:, 2], rho=spec.response_weight
    )
    for name in ("topic_counts", "score", "information", "log_theta", "profile"):
        wanted = getattr(expected, name)
        assert_allclose(
            getattr(statistics, name),
            wanted,
            rtol=1e-6,
            atol=1e-6 * max(1.0, np.abs(wanted).max(initial=0.0)),
            err_msg=name,
        )
    for name in ("elbo", "labelled_weight", "log_theta_weight"):
        assert getattr(statistics, name) == pytest.approx(getattr(expected, name), rel=1e-11, abs=1e-11), name
    for name in ("n_documents", "n_labelled", "n_empty", "n_tokens"):
        assert getattr(statistics, name) == getattr(expected, name), name
    assert statistics.n_unconverged == (~posterior.converged).sum()


@given(
    seed=st.integers(0, 2**32),
    n_topics=st.integers(1, 20),
    n_classes=st.integers(2, 7),
    n_covariates=st.integers(0, 2),
    scale=st.sampled_from([0.0, 0.3, 1.0, 4.0, 20.0]),
    alpha=st.sampled_from([0.01, 0.1, 1.0, 5.0]),
    longest=st.sampled_from([1, 3, 12]),
    form=st.sampled_from(["bound", "delta"]),
    rho=st.sampled_from([0.5, 1.0, 4.0]),
    max_sweeps=st.integers(1, 6),
    sweep_tol=st.sampled_from([0.0, 1e-4]),
    with_extras=st.booleans(),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_any_documents(
    seed: int,
    n_topics: int,
    n_classes: int,
    n_covariates: int,
    scale: float,
    alpha: float,
    longest: int,
    form: str,
    rho: float,
    max_sweeps: int,
    sweep_tol: float,
    with_extras: bool,
) -> None:
    rng = np.random.default_rng(seed)
    parameters = class_parameters(
        rng, N_TERMS, n_topics, n_classes, n_covariates=n_covariates, scale=scale, alpha=alpha
    )
    documents = documents_of_classes(rng, N_TERMS, 4, n_classes, longest=longest)
    spec = FitSpec(n_topics=n_topics, response_weight=rho, max_sweeps=max_sweeps, sweep_tol=sweep_tol)
    extras = random_extras(rng, 4, n_covariates) if with_extras else None
    assert_kernel_equals_reference(documents, parameters, spec, form, extras)


@FORMS
@pytest.mark.parametrize("prior", [0.005, 0.1])
def test_weights_of_topics_that_are_distributions(prior: float, form: str) -> None:
    rng = np.random.default_rng(13)
    plain = class_parameters(rng, N_TERMS, 9, 3, scale=2.0, alpha=0.05)
    parameters = in_e_step(as_distributions(rng, plain, prior=prior))
    documents = documents_of_classes(rng, N_TERMS, 6, 3, longest=12)
    spec = FitSpec(n_topics=9, max_sweeps=12, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, form)


@FORMS
def test_long_documents_empty_ones_and_many_classes(form: str) -> None:
    """Documents of several tiles, with and without a class, beside empty ones."""
    rng = np.random.default_rng(0)
    parameters = class_parameters(rng, 400, 17, 100, n_covariates=1)
    rows = [
        (*random_document(rng, 400, distinct=distinct)[:2], y)
        for distinct, y in ((128, 99.0), (129, 0.0), (300, 7.0), (200, np.nan))
    ]
    documents = documents_of([*rows, ([], [], 3.0), ([], [], np.nan)])
    spec = FitSpec(n_topics=17, max_sweeps=8)
    assert_kernel_equals_reference(documents, parameters, spec, form, random_extras(rng, 6, 1))


@FORMS
def test_a_term_without_mass_in_any_topic_is_left_out(form: str) -> None:
    rng = np.random.default_rng(12)
    parameters = class_parameters(rng, 10, 3, 3)
    parameters.topics[4] = 0.0
    with_it = documents_of([([1, 4, 7], [2, 5, 1], 2.0), ([4], [2], 0.0)])
    without = documents_of([([1, 7], [2, 1], 2.0), ([], [], 0.0)])
    spec = FitSpec(n_topics=3)
    one, other = (
        infer(*d.csr, parameters, spec=spec, y=d.y, family=Categorical(3, form)) for d in (with_it, without)
    )
    for name in ("gamma", "mean", "elbo"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    statistics = e_step(*with_it.arrays, parameters, family=Categorical(3, form), spec=spec)
    assert (statistics.n_empty, statistics.n_labelled, statistics.n_tokens) == (1, 1, 3)


# ---- ascent -------------------------------------------------------------------------------------


@FORMS
@pytest.mark.parametrize(("scale", "rho"), [(1.0, 1.0), (20.0, 1.0), (20.0, 30.0), (3.0, 1000.0)])
@pytest.mark.parametrize("longest", [1, 3, 20])
def test_sweeps_never_lower_the_elbo(form: str, scale: float, rho: float, longest: int) -> None:
    """At any cap: a document that stops while it tries a shorter step stays where it was."""
    rng = np.random.default_rng(longest)
    parameters = class_parameters(rng, N_TERMS, 6, 4, scale=scale)
    documents = documents_of_classes(rng, N_TERMS, 25, 4, longest=longest)
    family = Categorical(4, form)
    elbo, gamma = [], []
    for cap in range(1, 16):
        spec = FitSpec(n_topics=6, response_weight=rho, max_sweeps=cap, sweep_tol=1e-12)
        posterior = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family)
        assert np.all(posterior.n_sweeps <= cap)
        elbo.append(posterior.elbo)
        gamma.append(posterior.gamma)
    for one_document in np.array(elbo).T:
        assert_rises(one_document, slack=2e-12, what="ELBO")
    # the ELBO belongs to the posterior: same document, same gamma
    for before, after, first, second in zip(elbo[:-1], elbo[1:], gamma[:-1], gamma[1:], strict=True):
        same = np.all(first == second, axis=1)
        assert_allclose(before[same], after[same], rtol=1e-12)


@FORMS
def test_steps_are_halved_where_full_ones_swing(form: str) -> None:
    """Word and class contradict each other: the class pulls hard until it has won, and then no more."""
    parameters = Parameters(
        np.array([[0.999, 0.1], [0.001, 0.9]]),
        np.full(2, 0.5),
        np.array([[4.0, -4.0], [-4.0, 4.0]]),
        np.zeros(0),
        np.zeros((0, 2)),
    )
    response = class_predictors.ClassResponse(0.0, form, rho=5.0)
    state = one_predictor.cold_start(np.array([1]), np.array([8]), parameters, granularity="term")
    swings = []
    for _ in range(12):
        h = class_predictors._target(state, parameters, response)
        state = class_predictors._assign(state, h, parameters)
        swings.append(class_predictors.document_elbo(state, parameters, response))
    assert np.diff(swings).min() < -1e-3
    documents = documents_of([([1], [8], 0.0)])
    posterior = infer(
        *documents.csr,
        parameters,
        spec=FitSpec(n_topics=2, response_weight=5.0, sweep_tol=1e-10),
        y=documents.y,
        family=Categorical(2, form),
    )
    assert posterior.converged[0]
    assert posterior.elbo[0] >= max(swings) - 1e-6


@FORMS
@pytest.mark.parametrize(("scale", "rho"), [(1.0, 1.0), (10.0, 1.0), (4.0, 50.0)])
def test_a_converged_document_is_at_a_stationary_point(form: str, scale: float, rho: float) -> None:
    rng = np.random.default_rng(5)
    parameters = class_parameters(rng, N_TERMS, 4, 3, scale=scale)
    documents = documents_of_classes(rng, N_TERMS, 12, 3, longest=5)
    spec = FitSpec(n_topics=4, response_weight=rho, max_sweeps=5000, sweep_tol=1e-14)
    posterior = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=Categorical(3, form))
    assert posterior.converged.all()
    for d in range(len(documents)):
        terms, counts, y = documents.document(d)
        response = class_predictors.ClassResponse(y, form, rho)
        state = one_predictor.cold_start(terms, counts, parameters, granularity="term")
        state.gamma = posterior.gamma[d]
        # phi of the last state, and of one more sweep
        state.phi = np.tile((state.gamma - parameters.alpha) / state.length, (len(terms), 1))
        again = class_predictors._assign(
            state, class_predictors._target(state, parameters, response), parameters
        )
        assert_allclose(again.gamma, state.gamma, rtol=1e-4, atol=1e-4 * max(1.0, scale * rho))


@FORMS
def test_convergence_is_told_as_it_is(form: str) -> None:
    rng = np.random.default_rng(6)
    parameters = class_parameters(rng, N_TERMS, 5, 4, scale=6.0)
    documents = documents_of_classes(rng, N_TERMS, 30, 4, longest=6)
    family = Categorical(4, form)

    def after(cap: int, tol: float = 1e-5) -> np.ndarray:
        spec = FitSpec(n_topics=5, response_weight=3.0, max_sweeps=cap, sweep_tol=tol)
        return infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family)

    capped, free, end = after(4), after(500, 1e-8), after(5000, 1e-13)
    assert free.converged.all()
    assert 0 < (~capped.converged).sum() < len(documents)
    assert np.all(capped.n_sweeps[~capped.converged] == 4)
    assert np.all(capped.n_sweeps[capped.converged] <= 4)
    # little is left to gain where it has converged
    assert np.all(end.elbo - free.elbo <= 1e-3 * np.abs(end.elbo))
    assert after(1).n_sweeps.tolist() == [1] * len(documents)


# ---- extremes -----------------------------------------------------------------------------------


def ordinary(n_classes: int = 3, **options: float) -> tuple[Documents, Parameters]:
    rng = np.random.default_rng(0)
    parameters = class_parameters(rng, N_TERMS, 4, n_classes, **options)
    return documents_of_classes(rng, N_TERMS, 12, n_classes), parameters


def one_topic() -> tuple[Documents, Parameters]:
    documents, parameters = ordinary()
    return documents, dataclasses.replace(
        parameters, topics=np.full((N_TERMS, 1), 1 / N_TERMS), alpha=np.ones(1), eta=parameters.eta[:1]
    )


def one_token_and_coefficients_of(size: float) -> tuple[Documents, Parameters]:
    documents = documents_of([([t], [1], float(t % 3)) for t in range(6)] + [([3], [1], np.nan)])
    eta = size * np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, -1.0, -1.0]])
    return documents, dataclasses.replace(ordinary()[1], eta=eta)


def fifty_thousand_copies_of_a_term() -> tuple[Documents, Parameters]:
    rows = [([3], [50_000], y) for y in (0.0, 2.0, np.nan)]
    return documents_of(rows), ordinary(scale=10.0)[1]


def topics_with_exact_zeros() -> tuple[Documents, Parameters]:
    documents, parameters = ordinary(scale=10.0)
    own = np.arange(N_TERMS) % 4
    return documents, dataclasses.replace(parameters, topics=np.eye(4)[own] / np.bincount(own))


def a_dead_topic() -> tuple[Documents, Parameters]:
    documents, parameters = ordinary()
    parameters.topics[:, 2] = 0.0
    return documents, parameters


def nothing_to_read() -> tuple[Documents, Parameters]:
    return documents_of([([], [], 1.0), ([], [], np.nan)]), ordinary()[1]


def all_unlabelled() -> tuple[Documents, Parameters]:
    documents, parameters = ordinary()
    return documents.with_response(np.full(len(documents), np.nan)), parameters


def one_class_only() -> tuple[Documents, Parameters]:
    documents, parameters = ordinary()
    return documents.with_response(np.full(len(documents), 1.0)), parameters


PROBLEMS = {
    "one topic": one_topic,
    "one token, coefficients of 50": lambda: one_token_and_coefficients_of(50.0),
    "one token, coefficients of 600": lambda: one_token_and_coefficients_of(600.0),
    "one token, coefficients of 3000": lambda: one_token_and_coefficients_of(3000.0),
    "no document": lambda: (documents_of([]), ordinary()[1]),
    "a hundred classes": lambda: ordinary(100, scale=5.0),
    "tiny alpha": lambda: ordinary(alpha=1e-10, scale=5.0),
    "huge alpha": lambda: ordinary(alpha=1e6),
    "fifty thousand copies of a term": fifty_thousand_copies_of_a_term,
    "topics with exact zeros": topics_with_exact_zeros,
    "a dead topic": a_dead_topic,
    "nothing to read": nothing_to_read,
    "all unlabelled": all_unlabelled,
    "one class only": one_class_only,
}


@FORMS
@pytest.mark.parametrize(("rho", "topic_estimation"), [(1.0, "variational"), (1e6, "map")])
@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_everything_stays_finite(problem: str, form: str, rho: float, topic_estimation: str) -> None:
    documents, parameters = PROBLEMS[problem]()
    n_topics = parameters.n_topics
    family = Categorical(parameters.n_classes, form)
    spec = FitSpec(n_topics=n_topics, response_weight=rho, topic_estimation=topic_estimation)
    with np.errstate(all="raise"):
        for _ in range(4):
            statistics = e_step(*documents.arrays, parameters, family=family, spec=spec)
            posteriors = (
                infer(*documents.csr, parameters, spec=spec, family=family),
                infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family),
            )
            for record in (statistics, *posteriors, parameters):
                for field in dataclasses.fields(record):
                    values = getattr(record, field.name)
                    assert not isinstance(values, np.ndarray) or np.all(np.isfinite(values)), field.name
            for posterior in posteriors:
                tokens = posterior.gamma.sum(axis=1) - parameters.alpha.sum()
                assert_allclose(
                    tokens, posterior.n_known_tokens, rtol=1e-9, atol=1e-9 * max(1.0, parameters.alpha[0])
                )
                with np.errstate(under="ignore"):
                    p = family.mean(posterior.mean, posterior.variance, parameters.delta)
                assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
            assert np.array_equal(statistics.information, statistics.information.transpose(0, 2, 1))
            parameters = m_step(parameters, statistics, family=family, spec=spec)
    assert np.isfinite(objective(statistics, parameters, family=family, spec=spec))
