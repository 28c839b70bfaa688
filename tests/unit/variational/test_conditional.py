"""Inference from words alone, and the gradient of conditional training through it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.special import logsumexp

from dslda.families.base import STANDARDISED, Family
from dslda.families.registry import get_family
from dslda.variational.conditional import gradient, posterior
from dslda.variational.conditional.descent import CoefficientSums, TopicDescent
from dslda.variational.conditional.gradient import (
    ConditionalStatistics,
    conditional_statistics,
    pulled_statistics,
)
from dslda.variational.conditional.loss import Responses, predictors
from dslda.variational.conditional.posterior import WeightedDocuments, infer_words_of
from dslda.variational.estep import infer, neutral_extras
from dslda.variational.kernels.layout import read_only
from dslda.variational.mstep import prior_precision
from dslda.variational.oracle.words_alone import (
    assignments,
    bound_of_words,
    log_topics_derivative,
    posterior_of_words,
    pulled_posterior,
)
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.sums import ARRAY, NUMBER, PER_TERM
from dslda.variational.term_weights import TermWeighting
from tests.helpers.class_problems import class_parameters, documents_of_classes
from tests.helpers.problems import (
    Documents,
    PoissonLike,
    documents_of,
    random_documents,
    random_parameters,
)

N_TERMS = 30
SQRT = TermWeighting("sqrt", 1.3)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inference to the last digits, and the derivative without a discount."""
    monkeypatch.setattr(posterior, "TOLERANCE", 1e-14)
    monkeypatch.setattr(gradient, "DISCOUNT", 0.0)


def problem(seed: int, n_topics: int = 4, *, alpha: float = 1.5, n: int = 6) -> tuple[Documents, Parameters]:
    rng = np.random.default_rng(seed)
    parameters = random_parameters(rng, N_TERMS, n_topics, alpha=alpha)
    parameters = replace(parameters, topics=np.maximum(parameters.topics, 1e-3), weighting=SQRT)
    return random_documents(rng, N_TERMS, n, longest=12, unlabelled=0.0), parameters


def weighted(documents: Documents, parameters: Parameters) -> WeightedDocuments:
    return WeightedDocuments.of(*documents.csr, parameters)


def statistics_of(
    documents: Documents, parameters: Parameters, family: Family, **options: Any
) -> ConditionalStatistics:
    return conditional_statistics(
        weighted(documents, parameters), documents.y, parameters, family=family, max_sweeps=2_000, **options
    )


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("n_topics", [1, 3, 8])
def test_the_kernels_do_what_the_reference_says(n_topics: int) -> None:
    documents, parameters = problem(1, n_topics)
    found = infer_words_of(weighted(documents, parameters), parameters, max_sweeps=2_000)
    slopes = np.random.default_rng(2).normal(size=(len(documents), n_topics))
    expected, counts, bound = np.zeros_like(parameters.topics), np.zeros_like(parameters.topics), 0.0
    for d, slope in enumerate(slopes):
        terms, copies, _ = documents.document(d)
        weights = SQRT.of(copies)
        gamma = posterior_of_words(terms, weights, parameters)
        assert_allclose(found.gamma[d], gamma, rtol=1e-9)
        expected[terms] += log_topics_derivative(terms, weights, gamma, slope, parameters, discount=0.05)
        bound += bound_of_words(terms, weights, gamma, parameters)
    sums = np.zeros((len(parameters.topics), n_topics))
    total, failed = np.zeros(1), np.zeros(len(documents), dtype=np.bool_)
    from dslda.variational.kernels.word_derivative import differentiate

    own = weighted(documents, parameters)

    def add(slopes: np.ndarray, sums: np.ndarray, bound: np.ndarray) -> None:
        differentiate(
            own.indptr,
            own.terms,
            own.weights,
            read_only(parameters.topics),
            read_only(parameters.alpha),
            read_only(np.zeros((0, n_topics))),
            read_only(found.gamma),
            read_only(slopes),
            read_only(np.ones(len(documents))),
            0.05,
            sums,
            bound,
            failed,
        )

    add(slopes, sums, total)
    add(np.zeros((0, n_topics)), counts, np.zeros(1))
    assert not failed.any()
    assert_allclose(sums, expected - counts, rtol=1e-7, atol=1e-10)
    assert total[0] == pytest.approx(bound, rel=1e-10)
    assert_allclose(counts.sum(axis=0), (found.gamma - parameters.alpha).sum(axis=0), rtol=1e-8)


@pytest.mark.usefixtures("exact")
def test_extrapolation_saves_at_least_a_third_of_the_sweeps() -> None:
    documents, parameters = problem(3, 6, n=40)
    found = infer_words_of(weighted(documents, parameters), parameters, max_sweeps=2_000)
    plain = 0
    for d in range(len(documents)):
        terms, copies, _ = documents.document(d)
        weights = SQRT.of(copies)
        gamma, change = parameters.alpha + weights.sum() / 6, math.inf
        while change > 1e-14 * weights.sum():
            before, plain = gamma, plain + 1
            gamma = parameters.alpha + weights @ assignments(terms, gamma, parameters)
            change = float(np.abs(gamma - before).sum())
    assert found.converged.all()
    assert found.n_sweeps.sum() < 0.67 * plain


@pytest.mark.usefixtures("exact")
def test_inference_of_counts_is_that_of_the_joint_model_without_a_response() -> None:
    documents, parameters = problem(3)
    parameters = replace(parameters, weighting=TermWeighting())
    spec = FitSpec(n_topics=4, max_sweeps=2000, sweep_tol=0.0)
    joint = infer(*documents.csr, parameters, spec=spec)
    words = infer(*documents.csr, parameters, spec=replace(spec, objective="conditional"))
    assert_allclose(words.gamma, joint.gamma, atol=2e-2)
    assert_allclose(words.mean, joint.mean, atol=2e-3)
    assert words.n_known_tokens.tolist() == joint.n_known_tokens.tolist()
    statistics = statistics_of(documents, parameters, get_family("gaussian"), differentiated=False)
    assert statistics.elbo == pytest.approx(joint.elbo.sum(), rel=1e-5)


def cases() -> list[Any]:
    return [
        pytest.param("gaussian", id="gaussian"),
        pytest.param("poisson", id="poisson"),
        pytest.param("binomial", id="binomial"),
        pytest.param("negative_binomial", id="negative_binomial"),
        pytest.param("student_t", id="student_t"),
        pytest.param("own", id="own"),
        pytest.param("categorical", id="categorical"),
    ]


def case(name: str) -> tuple[Family, Documents, Parameters]:
    """A small problem of a family, with responses in its domain and covariates."""
    documents, parameters = problem(5, n=5)
    rng = np.random.default_rng(6)
    parameters = replace(parameters, zeta=rng.normal(size=2))
    if name == "categorical":
        family: Family = get_family(name, {"n_classes": 3})
        classes = class_parameters(rng, N_TERMS, 4, 3, n_covariates=2)
        parameters = replace(classes, topics=parameters.topics, alpha=parameters.alpha, weighting=SQRT)
        return family, documents_of_classes(rng, N_TERMS, 5, 3, unlabelled=0.0), parameters
    family = PoissonLike() if name == "own" else get_family(name)
    if name != "gaussian" and name != "student_t":
        y = rng.integers(0, 2 if name == "binomial" else 5, len(documents)).astype(float)
        documents = documents.with_response(y)
    delta = family.initial_coefficients(4, gradient_moments(documents.y))[1]
    return family, documents, replace(parameters, delta=delta)


def gradient_moments(y: NDArray[np.float64]) -> Any:
    from dslda.families.base import ResponseMoments

    return ResponseMoments(len(y), float(y.mean()), float(y.var()) + 0.1, float(y.min()), float(y.max()))


def loss(
    log_topics: NDArray[np.float64],
    documents: Documents,
    parameters: Parameters,
    family: Family,
    extras: NDArray[np.float64],
) -> float:
    """The weighted loss of prediction, as a function of unnormalised log beta."""
    topics = np.exp(log_topics - logsumexp(log_topics, axis=0))
    own = replace(parameters, topics=topics)
    zbar = infer_words_of(weighted(documents, own), own, max_sweeps=2_000).zbar
    responses = Responses.of(documents.y, extras)
    omega = predictors(zbar, responses, own, weighted(documents, own))
    return -float(responses.weight @ responses.log_likelihood(omega, family, own.delta))


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", cases())
def test_the_gradient_is_that_of_finite_differences(name: str) -> None:
    family, documents, parameters = case(name)
    extras = neutral_extras(len(documents), 2)
    rng = np.random.default_rng(7)
    extras[:, 2] = rng.uniform(0.5, 2.0, len(documents))
    extras[:, 4:] = rng.normal(size=(len(documents), 2))
    log_topics = np.log(parameters.topics / parameters.topics.sum(axis=0))
    parameters = replace(parameters, topics=np.exp(log_topics))
    statistics = statistics_of(documents, parameters, family, extras=extras)
    words = statistics_of(documents, parameters, family, extras=extras, differentiated=False)
    gradient = statistics.gradient + words.topic_counts
    exact = gradient - parameters.topics * gradient.sum(axis=0)
    step = 1e-5
    seen = np.unique(documents.terms)
    for v, k in [(int(v), k) for v in seen[:: max(len(seen) // 6, 1)] for k in range(4)]:
        move = np.zeros_like(log_topics)
        move[v, k] = step
        arguments = (documents, parameters, family, extras)
        slope = (loss(log_topics + move, *arguments) - loss(log_topics - move, *arguments)) / (2.0 * step)
        assert exact[v, k] == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.usefixtures("exact")
def test_expected_counts_are_the_derivative_of_the_bound() -> None:
    documents, parameters = problem(8)
    family = get_family("gaussian")
    parameters = replace(parameters, topics=parameters.topics / parameters.topics.sum(axis=0))
    counts = statistics_of(documents, parameters, family, differentiated=False).topic_counts
    step = 1e-6
    for v, k in ((int(v), k) for v in np.unique(documents.terms)[::5] for k in range(4)):
        values = []
        for sign in (1.0, -1.0):
            topics = parameters.topics.copy()
            topics[v, k] *= math.exp(sign * step)
            values.append(statistics_of(documents, replace(parameters, topics=topics), family).elbo)
        assert counts[v, k] == pytest.approx((values[0] - values[1]) / (2.0 * step), rel=1e-4, abs=1e-6)


def sums_of(statistics: ConditionalStatistics) -> dict[str, Any]:
    return statistics._of(PER_TERM, ARRAY, NUMBER)


@given(seed=st.integers(0, 2**32), n_topics=st.integers(1, 9))
@settings(deadline=None, max_examples=25)
def test_order_of_documents_terms_and_topics_is_only_order(seed: int, n_topics: int) -> None:
    documents, parameters = problem(seed, n_topics, n=5)
    family = get_family("gaussian")
    rng = np.random.default_rng(seed)
    expected = sums_of(statistics_of(documents, parameters, family))

    rows = [documents.document(d) for d in rng.permutation(len(documents))]
    shuffled = []
    for terms, counts, y in rows:
        order = rng.permutation(len(terms))
        shuffled.append((terms[order], counts[order], y))
    found = sums_of(statistics_of(documents_of(shuffled), parameters, family))
    for name, value in expected.items():
        assert_allclose(found[name], value, rtol=1e-7, atol=1e-9, err_msg=name)

    order = rng.permutation(n_topics)
    permuted = replace(
        parameters,
        topics=parameters.topics[:, order],
        alpha=parameters.alpha[order],
        eta=parameters.eta[order],
    )
    found = sums_of(statistics_of(documents, permuted, family))
    assert_allclose(found["gradient"], expected["gradient"][:, order], rtol=1e-7, atol=1e-9)
    before, after = (
        statistics_of(documents, p, family, differentiated=False).topic_counts for p in (parameters, permuted)
    )
    assert_allclose(after, before[:, order], rtol=1e-7, atol=1e-9)


def test_a_document_of_weight_two_is_two_documents() -> None:
    documents, parameters = problem(9)
    family = get_family("gaussian")
    extras = neutral_extras(len(documents), 0)
    extras[0, 2] = 2.0
    twice = documents.take([0, *range(len(documents))])
    for differentiated in (True, False):
        options = {"differentiated": differentiated}
        one = sums_of(statistics_of(documents, parameters, family, extras=extras, **options))
        two = sums_of(statistics_of(twice, parameters, family, **options))
        for name in ("gradient", "topic_counts", "score", "information", "elbo", "log_likelihood"):
            assert_allclose(one[name], two[name], rtol=1e-10, atol=1e-12, err_msg=name)


def test_a_document_without_a_response_teaches_only_words() -> None:
    documents, parameters = problem(10)
    family = get_family("gaussian")
    silent = documents.with_response(np.full(len(documents), np.nan))
    with_y, without = (statistics_of(d, parameters, family) for d in (documents, silent))
    heard, words = (statistics_of(d, parameters, family, differentiated=False) for d in (documents, silent))
    assert np.array_equal(heard.topic_counts, words.topic_counts)
    assert_allclose(with_y.gradient.sum(), without.gradient.sum(), rtol=1e-12)
    assert with_y.elbo == without.elbo
    assert np.array_equal(without.gradient, -words.topic_counts)
    assert without.labelled_weight == without.n_labelled == 0.0


@pytest.mark.parametrize("alpha", [1e-10, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("n_topics", [1, 40])
def test_extremes_are_finite(alpha: float, n_topics: int) -> None:
    rng = np.random.default_rng(11)
    parameters = random_parameters(rng, N_TERMS, n_topics, alpha=alpha)
    topics = parameters.topics.copy()
    topics[:5] = 0.0  # unknown terms
    parameters = replace(parameters, topics=topics, eta=50.0 * parameters.eta, weighting=SQRT)
    documents = documents_of(
        [
            ([7], [50_000], 1.0),
            ([8], [1], -1.0),
            ([0, 1], [3, 1], 0.5),
            ([], [], 2.0),
            ([3, 9, 12], [1, 2, 1], math.nan),
        ]
    )
    family = get_family("gaussian")
    with np.errstate(all="raise", under="ignore"):
        for statistics in (
            statistics_of(documents, parameters, family),
            pulled_statistics(
                weighted(documents, parameters), documents.y, parameters, family=family, pull=2.0
            ),
        ):
            for name, value in sums_of(statistics).items():
                assert np.isfinite(value).all(), name
            assert statistics.n_empty == 2
            assert statistics.n_labelled == 2


@pytest.mark.parametrize("name", ["gaussian", "poisson", "binomial"])
def test_the_pull_is_that_of_the_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "TOLERANCE", 0.0)
    documents, parameters = problem(14, n=12)
    family, rng = get_family(name), np.random.default_rng(15)
    y = np.abs(np.round(documents.y)) % 2.0 if name == "binomial" else np.abs(np.round(documents.y))
    y[3] = math.nan
    offset, weight, emphasis = rng.normal(size=12), rng.uniform(0.5, 2.0, 12), rng.uniform(0.5, 2.0, 12)
    parameters = replace(parameters, delta=np.ones(len(family.start(STANDARDISED)[2])))
    found = pulled_statistics(
        weighted(documents, parameters),
        y,
        parameters,
        family=family,
        pull=3.0,
        extras=np.column_stack([offset, np.ones(12), weight, emphasis]),
    )
    expected = np.zeros_like(parameters.topics)
    for d in range(12):
        terms, copies, _ = documents.document(d)
        own = SQRT.of(copies)
        gamma, tilt = pulled_posterior(
            terms,
            own,
            parameters,
            family=family,
            y=0.0 if math.isnan(y[d]) else y[d],
            beside=offset[d],
            pull=0.0 if math.isnan(y[d]) else 3.0 * emphasis[d],
            rounds=gradient.PULL_ROUNDS,
            sweeps=gradient.PULL_SWEEPS,
        )
        phi = assignments(terms, gamma, parameters, tilt)
        expected[terms] += weight[d] * own[:, np.newaxis] * phi
    assert_allclose(found.topic_counts, expected, rtol=1e-7, atol=1e-10)


def test_a_response_pulls_the_start_towards_itself() -> None:
    documents, parameters = problem(12, n=40)
    family = get_family("gaussian")
    own = weighted(documents, parameters)
    words = statistics_of(documents, parameters, family, differentiated=False)
    pulled = pulled_statistics(own, documents.y, parameters, family=family, pull=3.0)
    assert pulled.log_likelihood > words.log_likelihood
    none = pulled_statistics(own, documents.y, parameters, family=family, pull=0.0)
    assert_allclose(none.topic_counts, words.topic_counts, atol=0.05 * words.topic_counts.max())


def test_small_steps_lower_the_objective() -> None:
    documents, parameters = problem(13, n=60)
    family = get_family("gaussian")
    parameters = replace(parameters, topics=parameters.topics / parameters.topics.sum(axis=0))
    descent = TopicDescent.start(parameters)
    values = []
    for _ in range(30):
        loss_weight = weighted(documents, parameters).weights.sum() / len(documents)
        statistics = statistics_of(documents, parameters, family, loss_weight=loss_weight)
        mass = -statistics.gradient.sum()
        values.append(-statistics.log_likelihood / statistics.labelled_weight - statistics.elbo / mass)
        topics = descent.step(parameters.topics, statistics.gradient, 0.01, scale=1.0 / mass)
        parameters = replace(parameters, topics=topics)
        assert_allclose(parameters.topics.sum(axis=0), 1.0)
    assert (np.diff(values) < 0.0).all()


def test_unknown_terms_stay_unknown() -> None:
    _, parameters = problem(14)
    topics = parameters.topics.copy()
    topics[3] = 0.0
    topics /= topics.sum(axis=0)
    slope = np.random.default_rng(1).normal(size=topics.shape)
    moved = TopicDescent.start(parameters).step(topics, slope, 0.1)
    assert not moved[3].any()
    assert (np.delete(moved, 3, axis=0) > 0.0).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_leaves_no_topics(wrong: float) -> None:
    _, parameters = problem(14)
    gradient = np.zeros_like(parameters.topics)
    gradient[3, 1] = wrong
    assert np.isnan(TopicDescent.start(parameters).step(parameters.topics, gradient, 0.1)).all()


@pytest.mark.parametrize("ridge", [None, 0.5])
def test_coefficients_are_those_of_a_ridge_regression(ridge: float | None) -> None:
    documents, parameters = problem(15, n=50)
    family = get_family("gaussian")
    spec = FitSpec(n_topics=4, objective="conditional", ridge=ridge)
    statistics = statistics_of(documents, parameters, family)
    solved = CoefficientSums.of_all(statistics, parameters, 3).solve(parameters, family=family, spec=spec)
    zbar = infer_words_of(weighted(documents, parameters), parameters, max_sweeps=2_000).zbar
    delta = float(parameters.delta[0])
    precision = prior_precision(parameters, family, spec)
    expected = np.linalg.solve(zbar.T @ zbar / delta + precision, zbar.T @ documents.y / delta)
    assert_allclose(solved.eta, expected, rtol=1e-8)
