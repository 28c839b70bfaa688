"""Responses of any unit, and those of which a few are far smaller or larger than the others."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from dslda.datasets.simulate import simulate_corpus
from dslda.exceptions import ConvergenceWarning, DataWarning
from dslda.model import Model
from dslda.training.train import train

N, N_TERMS = 300, 60
BLOCK = simulate_corpus(N, 3, N_TERMS, mean_tokens=30, alpha=0.3, seed=6).block
COUNTS = csr_array((BLOCK.counts, BLOCK.terms, BLOCK.indptr), shape=(N, N_TERMS))
OMEGA = (BLOCK.responses["y"] - BLOCK.responses["y"].mean()) / BLOCK.responses["y"].std()
AMOUNTS = np.exp(0.5 * OMEGA) * np.random.default_rng(7).gamma(3.0, 1.0 / 3.0, N)
MISFIT = "predicted worse than by their mean"
FAMILIES = ("gamma", "weibull", "inverse_gaussian", "gaussian", "student_t")


def trained(y: Any, family: str, **settings: Any) -> tuple[Model, list[str]]:
    """A model, and the warnings about its data."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = train(COUNTS, response=y, family=family, n_topics=2, max_iter=20, **settings)
    assert {warning.category for warning in caught} <= {DataWarning, ConvergenceWarning}
    return model, [str(warning.message) for warning in caught if warning.category is DataWarning]


@pytest.mark.parametrize("objective", ["conditional", "joint"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_unit_of_the_response_is_that_of_the_predictions(family: str, objective: str) -> None:
    one, told = trained(AMOUNTS, family, objective=objective)
    assert told == []
    for unit in (1e-90, 1e12):
        other, told = trained(unit * AMOUNTS, family, objective=objective)
        assert told == []
        assert_allclose(other.record.parameters.topics, one.record.parameters.topics, rtol=1e-5, atol=1e-12)
        assert_allclose(other.predict(COUNTS), unit * one.predict(COUNTS), rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", [1e6, 1e30])
def test_one_response_beyond_all_others_is_named(family: str, value: float) -> None:
    y = AMOUNTS.copy()
    y[17] = value
    _, told = trained(y, family)
    assert "in document 17 (counted from 0) has 99." in told[0]


def test_tiny_responses_that_ruin_a_fit_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Those of 1e-300 say more of the shape of durations, or of the dispersion, than all others."""
    y = np.where(np.arange(N) % 10 == 0, 1e-300, AMOUNTS)
    weight = (y > 1e-200).astype(float)
    # of weight 0 they are not trained on, and the others are predicted well
    for family in ("weibull", "inverse_gaussian"):
        assert trained(y, family, weight=weight)[1] == []
    assert MISFIT not in caplog.text
    model, _ = trained(y, "weibull")
    assert model.predict(COUNTS).min() > 1000.0 * AMOUNTS.max()
    assert caplog.text.count(MISFIT) == 1
    _, told = trained(y, "inverse_gaussian")
    assert any("reached the limit of 1000" in line for line in told)
