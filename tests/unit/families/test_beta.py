"""Shares between 0 and 1: the density where it is hard to compute, and training from simulated documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse, special, stats

import dslda
from dslda.datasets.simulate import simulate_corpus
from dslda.exceptions import InputError
from dslda.families.registry import get_family

FAMILY = get_family("beta")


@pytest.mark.parametrize("phi", [0.01, 0.9, 7.999, 8.0, 8.001, 60.0, 1e4, 1e6])
def test_derivatives_are_those_of_polygammas(phi: float) -> None:
    for y in (1e-6, 0.3, 0.999):
        for omega in (-5.0, -0.3, 2.0):
            mu, other = special.expit(omega), special.expit(-omega)
            psi = [
                special.polygamma(n, mu * phi) + [-1, 1, -1][n] * special.polygamma(n, other * phi)
                for n in range(3)
            ]
            g, s = special.logit(y) - psi[0], mu * other
            first = phi * s * g
            weight = (phi * s) ** 2 * psi[1]
            third = (1 - 6 * s) * first - 3 * (other - mu) * weight - (phi * s) ** 3 * psi[2]
            delta = np.array([phi])
            # the differences here lose digits in proportion to phi
            close = {"rtol": 1e-9, "atol": 1e-12 * phi}
            assert_allclose(
                FAMILY.log_likelihood(y, omega, delta, 1.0),
                stats.beta.logpdf(y, mu * phi, other * phi),
                **close,
            )
            assert_allclose(FAMILY.first_derivative(y, omega, delta, 1.0), first, **close)
            assert_allclose(FAMILY.information_weight(y, omega, delta, 1.0), weight, **close)
            assert_allclose(
                FAMILY.second_derivative(y, omega, delta, 1.0), (other - mu) * first - weight, **close
            )
            assert_allclose(FAMILY.third_derivative(y, omega, delta, 1.0), third, **close)


def test_everything_is_finite_at_the_ends() -> None:
    names = (
        "log_likelihood",
        "first_derivative",
        "second_derivative",
        "third_derivative",
        "information_weight",
    )
    for y in (1e-300, 0.5, 1.0 - 1e-16):
        for phi in FAMILY.delta_bounds:
            for omega in (-1e12, -700.0, -300.0, 300.0, 700.0, 1e12):
                values = [getattr(FAMILY, name)(y, omega, np.array([phi]), 1.0) for name in names]
                assert np.isfinite(values).all(), (y, phi, omega, values)
                assert values[-1] > 0.0


def test_the_start_follows_the_scatter_of_the_responses() -> None:
    from dslda.testing import moments_of

    generator = np.random.default_rng(0)
    for precision in (0.5, 20.0, 900.0):
        _, spread, delta = FAMILY.start(moments_of(generator.beta(0.3 * precision, 0.7 * precision, 20_000)))
        assert_allclose(delta, [precision], rtol=0.1)
        assert 0.0 < spread <= 1.0


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Counts and shares of 600 documents, drawn from the model with a precision of 30."""
    corpus = simulate_corpus(
        600,
        3,
        60,
        mean_tokens=100,
        eta=np.array([-2.0, 0.0, 1.5]),
        seed=1,
        sample_response=lambda omega, g: g.beta(30 * special.expit(omega), 30 * special.expit(-omega)),
    )
    block = corpus.block
    counts = sparse.csr_array((block.counts, block.terms, block.indptr), shape=(block.n_documents, 60))
    return counts.toarray(), corpus.y


def test_training_finds_coefficients_and_precision(
    drawn: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    counts, y = drawn
    model = dslda.train(counts, response=y, family="beta", n_topics=3, max_iter=200, tol=1e-5)
    eta = sorted(coefficient.coefficient for coefficient in model.coefficients())
    assert_allclose(eta, [-2.0, 0.0, 1.5], atol=0.3)
    assert model.dispersion == pytest.approx(30.0, rel=0.25)
    model.save(tmp_path / "shares.model")
    prediction = dslda.load_model(tmp_path / "shares.model").predict(counts)
    assert_allclose(prediction, model.predict(counts))
    assert ((prediction > 0.0) & (prediction < 1.0)).all()
    assert np.corrcoef(prediction, y)[0, 1] > 0.8


@pytest.mark.parametrize("share", [0.0, 1.0, 1.2])
def test_shares_of_0_and_1_are_refused_with_what_to_do(
    drawn: tuple[np.ndarray, np.ndarray], share: float
) -> None:
    counts, y = drawn
    with pytest.raises(InputError) as refused:
        dslda.train(counts, response=np.where(np.arange(len(y)) == 7, share, y), family="beta", n_topics=2)
    assert "numbers in (0, 1)" in refused.value.reason
    assert refused.value.remedy == get_family("beta").domain_remedy
