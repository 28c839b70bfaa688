"""Where Blei and McAuliffe (2010) print what enumeration and derivatives contradict (docs/model.md, section 5)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, special, stats

from dslda.families.registry import get_family


def test_erratum_1_expected_exponential_is_a_mean_over_topics() -> None:
    """E[exp(eta'Z_n / N)] = sum_i phi_i exp(eta_i / N): Z_n has one 1, so no K - 1 is added."""
    rng = np.random.default_rng(0)
    n, k = 4, 3
    phi, eta = rng.dirichlet(np.ones(k), n), np.array([-1.5, 0.4, 2.0])
    assignments = np.stack(np.meshgrid(*[np.arange(k)] * n, indexing="ij"), axis=-1).reshape(-1, n)
    probability = phi[np.arange(n), assignments].prod(axis=1)
    exact = probability @ np.exp(eta[assignments].mean(axis=1))
    kappa = phi @ np.exp(eta / n)
    assert_allclose(np.prod(kappa), exact, rtol=1e-12)
    assert np.prod(k - 1 + kappa) > 50 * exact


def test_erratum_2_gaussian_base_measure_holds_the_dispersion() -> None:
    """p(y) = h exp((y omega - omega^2 / 2) / delta) with h = exp(-y^2 / (2 delta)) / sqrt(2 pi delta)."""
    y, omega, delta = 1.3, -0.4, 0.3
    rest = (
        get_family("gaussian").log_likelihood(y, omega, np.array([delta]), 1.0)
        - (y * omega - omega**2 / 2) / delta
    )
    assert_allclose(rest, -(y**2) / (2 * delta) - 0.5 * math.log(2 * math.pi * delta), rtol=1e-12)
    printed = -(y**2) / 2 - 0.5 * math.log(2 * math.pi * delta)
    assert abs(rest - printed) > 1


def test_erratum_3_derivative_of_the_expected_log_likelihood_by_the_dispersion() -> None:
    family = get_family("gaussian")
    y, m, v = 1.3, 0.5, 0.2

    def expected(delta: float) -> float:
        d = np.array([delta])
        return family.log_likelihood(y, m, d, 1.0) + 0.5 * family.second_derivative(y, m, d, 1.0) * v

    for delta in (0.2, 1.0, 4.0):
        h = 1e-5 * delta
        numeric = (expected(delta + h) - expected(delta - h)) / (2 * h)
        base_measure = -1 / (2 * delta) + y**2 / (2 * delta**2)
        braces = y * m - (m**2 + v) / 2
        assert_allclose(base_measure - braces / delta**2, numeric, rtol=1e-7, atol=1e-9)
        if delta != 1.0:
            assert abs(base_measure + braces / delta - numeric) > 1e-2
    # the update itself is right: the derivative vanishes at the expected squared residual
    best = (y - m) ** 2 + v
    assert expected(best) > max(expected(0.99 * best), expected(1.01 * best))


def test_erratum_4_poisson_likelihood_has_no_best_dispersion() -> None:
    """With h free of delta, the derivative -(1 / delta^2) sum (y omega - exp(omega)) has no root."""
    y = np.random.default_rng(0).poisson(3.0, 200)
    omega = math.log(y.mean())
    total = float((y * omega - math.exp(omega)).sum())
    slopes = [-total / delta**2 for delta in (0.1, 1.0, 10.0, 100.0)]
    assert len(set(np.sign(slopes))) == 1
    # at the optimum of eta the printed ratio sum(y omega) / sum(mu) is sum(mu log mu) / sum(mu): no dispersion in it
    mu = np.full(200, y.mean())
    printed = (y * omega).sum() / mu.sum()
    assert_allclose(printed, (mu * np.log(mu)).sum() / mu.sum(), rtol=1e-12)
    pearson = ((y - mu) ** 2 / mu).mean()
    assert pearson == pytest.approx(1.0, abs=0.25)
    assert abs(printed - pearson) > 0.05


def test_erratum_5_overdispersed_poisson_density_is_not_normalised() -> None:
    omega = 0.7
    y = np.arange(400)

    def total(delta: float) -> float:
        return float(
            np.exp(special.logsumexp((y * omega - math.exp(omega)) / delta - special.gammaln(y + 1)))
        )

    assert_allclose(total(1.0), 1.0, rtol=1e-12)
    assert_allclose(stats.poisson.pmf(y, math.exp(omega)).sum(), 1.0, rtol=1e-12)
    assert abs(total(2.0) - 1.0) > 0.1
    assert optimize.brentq(lambda d: total(d) - 1.0, 0.9, 1.1) == pytest.approx(1.0)
