"""The estimate of alpha: by itself, and within EM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import optimize, special

from dslda.datasets.simulate import simulate_corpus
from dslda.families.base import Family
from dslda.variational.mstep import update_alpha
from dslda.variational.parameters import FitSpec
from tests.helpers.class_problems import assert_rises
from tests.helpers.problems import Documents, fit_in_a_loop


def log_likelihood(alpha: NDArray[np.float64], log_theta: NDArray[np.float64], weight: float) -> float:
    beta = special.gammaln(alpha).sum() - special.gammaln(alpha.sum())
    return float(-weight * beta + (alpha - 1.0) @ log_theta)


def drawn(alpha: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Sum of log theta over draws, from logs of Gamma draws: theta itself underflows where alpha is small."""
    rng = np.random.default_rng(0)
    logs = np.log(rng.gamma(alpha + 1.0, size=(n, len(alpha))))
    logs += np.log(rng.random((n, len(alpha)))) / alpha
    return (logs - special.logsumexp(logs, axis=1, keepdims=True)).sum(axis=0)


@pytest.mark.parametrize("start", [1e-10, 0.1, 50.0, 1e6])
@pytest.mark.parametrize("truth", [[0.2] * 5, [3.0, 0.5, 0.05, 12.0], [0.01, 0.02], [80.0, 200.0, 120.0]])
def test_alpha_of_draws_is_recovered_from_anywhere(truth: list[float], start: float) -> None:
    alpha = np.array(truth)
    log_theta = drawn(alpha, 20_000)
    with np.errstate(all="raise", under="ignore"):
        estimate = update_alpha(np.full(len(alpha), start), log_theta, 20_000.0, symmetric=False)
    assert_allclose(estimate, alpha, rtol=0.1)
    best = optimize.minimize(
        lambda logs: -log_likelihood(np.exp(logs), log_theta, 20_000.0) / 20_000.0, np.log(alpha), tol=1e-14
    )
    assert_allclose(estimate, np.exp(best.x), rtol=1e-3)
    # the slope is zero
    slope = special.digamma(estimate.sum()) - special.digamma(estimate) + log_theta / 20_000.0
    assert_allclose(estimate * slope, 0.0, atol=1e-7 * max(1.0, estimate.max()))


@pytest.mark.parametrize("start", [[1e-10] * 6, [0.1, 5.0, 0.01, 2.0, 0.3, 0.3]])
def test_symmetric_alpha_is_the_best_of_the_equal_ones(start: list[float]) -> None:
    log_theta = drawn(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 2.0]), 5000)
    estimate = update_alpha(np.array(start), log_theta, 5000.0, symmetric=True)
    assert_array_equal(estimate, estimate[0])
    best = optimize.minimize_scalar(
        lambda log: -log_likelihood(np.full(6, np.exp(log)), log_theta, 5000.0),
        bounds=(-8, 3),
        method="bounded",
    )
    assert_allclose(estimate[0], np.exp(best.x), rtol=1e-4)


@given(
    n_topics=st.integers(1, 8),
    means=st.lists(st.floats(-1e5, -1e-3), min_size=8, max_size=8),
    starts=st.lists(st.floats(-23.0, 13.0), min_size=8, max_size=8),
    weight=st.sampled_from([1e-3, 1.0, 1e7]),
    symmetric=st.booleans(),
    most=st.sampled_from([np.inf, 1.5, 1.0, 0.3]),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_the_objective_never_falls_and_alpha_stays_where_the_e_step_is_finite(
    n_topics: int, means: list[float], starts: list[float], weight: float, symmetric: bool, most: float
) -> None:
    """Also for sums beyond those of any documents, and if the sum of alpha is bounded by `most` times its start."""
    alpha = np.exp(np.array(starts[:n_topics]))
    if symmetric:
        alpha[:] = alpha[0]
    log_theta = weight * np.array(means[:n_topics])
    with np.errstate(all="raise", under="ignore"):
        estimate = update_alpha(
            alpha, log_theta, weight, symmetric=symmetric, n_words=most * alpha.sum() * weight
        )
    assert np.all((estimate >= 0.299e-10) & (estimate <= 1.001e6))
    assert n_topics == 1 or estimate.sum() <= most * alpha.sum() * (1 + 1e-12)
    if most < 1.0:  # the start was beyond the bound
        return
    before, after = (log_likelihood(a, log_theta, weight) for a in (alpha, estimate))
    rounding = weight * (special.gammaln(alpha).sum() + special.gammaln(alpha.sum()))
    assert after >= before - 1e-12 * (abs(before) + abs(rounding))


@pytest.mark.parametrize("symmetric", [True, False])
def test_extremes(symmetric: bool) -> None:
    with np.errstate(all="raise", under="ignore"):
        # nearly every document is of one topic: alpha goes to its floor, not below
        low = update_alpha(np.full(3, 0.3), np.full(3, -1e13), 1e3, symmetric=symmetric)
        assert np.all((low >= 0.999e-10) & (low < 1e-8))
        rare = update_alpha(np.full(3, 0.3), np.array([-1e5, -0.7, -0.7]), 1.0, symmetric=symmetric)
        assert np.all(np.isfinite(rare))
        # all documents alike, exactly: alpha goes to its ceiling
        high = update_alpha(np.full(3, 0.3), np.full(3, -np.log(3.0)), 1.0, symmetric=symmetric)
        assert np.all((high > 1e5) & (high <= 1.001e6))
        # one topic: alpha says nothing
        one = update_alpha(np.array([0.7]), np.zeros(1), 5.0, symmetric=symmetric)
        assert_allclose(one, 0.7)


def test_without_documents_alpha_stays() -> None:
    alpha = np.array([0.1, 0.4])
    assert_array_equal(update_alpha(alpha, np.zeros(2), 0.0, symmetric=False), alpha)
    assert_array_equal(update_alpha(alpha, np.zeros(2), 0.0, symmetric=True), alpha)


@pytest.mark.parametrize("proportions", ["equal", "unequal"])
def test_em_with_an_estimated_alpha_rises_above_the_fixed_one(proportions: str, gaussian: Family) -> None:
    """Few topics a document, while the fixed alpha is 1/K; and where topics differ in size, one number each is better."""
    corpus = simulate_corpus(300, 4, 80, mean_tokens=40, alpha=0.08, seed=3)
    block = corpus.block
    y = (corpus.y - corpus.y.mean()) / corpus.y.std()
    documents = Documents(block.indptr, block.terms, block.counts, y)
    if proportions == "unequal":
        # leave out most documents of two of the topics
        main = corpus.topic_shares.argmax(axis=1)
        documents = documents.take([d for d in range(300) if main[d] < 2 or d % 6 == 0])
    spec = FitSpec(n_topics=4, max_iter=40, tol=0.0, sweep_tol=1e-8, max_sweeps=500)
    ends, alphas = {}, {}
    for alpha in (None, "auto", "asymmetric"):
        parameters, trace = fit_in_a_loop(
            documents, 80, family=gaussian, spec=replace(spec, doc_topic_prior=alpha)
        )
        ends[alpha], alphas[alpha] = trace[-1], parameters.alpha
        # an E-step that starts afresh may end beside the last one: single documents fall, alpha itself cannot make them
        assert_rises(trace[5:], slack=1e-4)
    assert ends["auto"] > ends[None] + 10.0
    assert ends["asymmetric"] > ends["auto"] + (10.0 if proportions == "unequal" else -1.0)
    assert np.ptp(alphas["auto"]) == 0.0
    assert 0.03 < alphas["auto"][0] < 0.15
    if proportions == "unequal":
        assert alphas["asymmetric"].max() > 2.0 * alphas["asymmetric"].min()


@pytest.mark.parametrize("alpha", ["auto", "asymmetric"])
def test_em_of_one_topic_leaves_alpha(alpha: str, gaussian: Family) -> None:
    block = simulate_corpus(20, 2, 30, seed=1).block
    documents = Documents(block.indptr, block.terms, block.counts, block.responses["y"])
    spec = FitSpec(n_topics=1, doc_topic_prior=alpha, max_iter=5, tol=0.0)
    parameters, _ = fit_in_a_loop(documents, 30, family=gaussian, spec=spec)
    assert_allclose(parameters.alpha, 1.0)
