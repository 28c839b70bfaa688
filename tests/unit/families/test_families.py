"""The Gaussian's closed forms, the registry, and domains; what every family keeps is in test_every_family."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dslda.families.base import Interval
from dslda.families.registry import get_family
from dslda.testing import moments_of
from tests.helpers.errors import refused


def test_gaussian_scaling_standardises() -> None:
    y = np.array([1.0, 5.0, 9.0, 20.0])
    center, scale = get_family("gaussian").scaling(moments_of(y))
    standardised = (y - center) / scale
    assert_allclose([standardised.mean(), standardised.var()], [0, 1], atol=1e-12)


def test_gaussian_mean_is_the_mean_of_the_linear_predictor() -> None:
    m, v = np.array([-1.0, 0.5]), np.array([0.3, 2.0])
    assert_array_equal(get_family("gaussian").mean(m, v, np.ones(1)), m)


def test_gaussian_dispersion_is_the_expected_squared_residual_at_the_new_eta() -> None:
    """Paper, eq. 18, from statistics gathered at the old eta; checked by drawing the design matrix itself."""
    family = get_family("gaussian")
    rng = np.random.default_rng(0)
    n, k, delta = 40, 3, 0.6
    # q gives every document two equally likely zbar
    zbar = rng.dirichlet(np.ones(k), size=(n, 2))
    y, old, new = rng.normal(size=n), rng.normal(size=k), rng.normal(size=k)
    mean = zbar.mean(axis=1)
    second = np.einsum("dsi,dsj->ij", zbar, zbar) / 2
    m = mean @ old
    v = (zbar @ old).var(axis=1)
    d = np.array([delta])
    profile = sum(
        family.log_likelihood(y_d, m_d, d, 1.0) + 0.5 * family.second_derivative(y_d, m_d, d, 1.0) * v_d
        for y_d, m_d, v_d in zip(y, m, v, strict=True)
    )
    step = new - old
    score, information = (mean.T @ y - second @ old) / delta, second / delta
    gain = score @ step - 0.5 * step @ information @ step
    (updated,) = family.update_delta(d, np.array([profile]), weight=float(n), gain=gain)
    assert_allclose(updated, np.mean((y[:, np.newaxis] - zbar @ new) ** 2), rtol=1e-12)


@pytest.mark.parametrize("name", ["normal", "", "Gaussian", None, ["gaussian"]])
def test_an_unknown_family_is_refused_with_the_known_ones(name: object) -> None:
    with refused("family"):
        get_family(name)


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "text"),
    [
        (Interval(), [-1e300, 0.0], [np.nan, np.inf, -np.inf], "finite numbers"),
        (
            Interval(0.0, low_closed=True, integer=True),
            [0, 3],
            [-1, 0.5, np.inf],
            "whole numbers in [0, inf)",
        ),
        (Interval(0.0, 1.0), [0.5], [0.0, 1.0, np.nan], "numbers in (0, 1)"),
        (Interval(0.0, 1.0, high_closed=True), [1.0], [0.0], "numbers in (0, 1]"),
    ],
)
def test_interval_membership_and_wording(
    interval: Interval, inside: list[float], outside: list[float], text: str
) -> None:
    assert interval.contains(np.array(inside, float)).all()
    assert not interval.contains(np.array(outside, float)).any()
    assert str(interval) == text


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_the_unbounded_interval_holds_exactly_the_finite_numbers(y: float) -> None:
    assert Interval().contains(np.array([y]))[0] == math.isfinite(y)
