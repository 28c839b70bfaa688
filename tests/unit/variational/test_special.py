"""The vectorised special functions against numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from dslda.variational.special import exp_digamma_parts, exp_shifted, log, log_gamma_sum_and_digamma

SIZES = [1, 3, 16, 17, 50]


def exp_of(x: np.ndarray, shift: float) -> np.ndarray:
    out = np.empty_like(x)
    exp_shifted(x, shift, out, np.empty(len(x), dtype=np.uint64))
    return out


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", [0.0, -3.7, 1e5])
def test_exp_is_right_to_the_last_bits(size: int, shift: float) -> None:
    x = np.random.default_rng(size).uniform(-229, 700, size) + shift
    assert_allclose(exp_of(x, shift), np.exp(x - shift), rtol=4.5e-16)


def test_exp_of_zero_is_one_and_of_small_numbers_exact() -> None:
    assert_array_equal(exp_of(np.zeros(5), 0.0), np.ones(5))
    small = np.array([1e-17, -1e-17, 1e-9, -1e-9])
    assert_allclose(exp_of(small, 0.0), np.exp(small), rtol=2.3e-16)


@pytest.mark.parametrize("size", SIZES)
def test_exponents_below_minus_230_are_raised_to_it(size: int) -> None:
    x = np.resize([-230.0, -231.0, -1e4, -1e12, -1e300, -np.inf], size)
    assert_allclose(exp_of(x, 0.0), np.full(size, np.exp(-230.0)), rtol=4.5e-16)


@pytest.mark.parametrize("size", SIZES)
def test_log_is_right_from_the_smallest_normal_number_to_the_largest(size: int) -> None:
    rng = np.random.default_rng(size)
    ends = [np.finfo(float).tiny, np.finfo(float).max, 1.0]
    for x in (10.0 ** rng.uniform(-307, 308, size), rng.uniform(0.5, 2.0, size), np.resize(ends, size)):
        out = np.empty(size)
        expected = np.log(x)
        log(size, x, out, np.empty(size, dtype=np.uint64))
        assert_allclose(out, expected, rtol=4.5e-16, atol=1e-17)


def test_log_leaves_what_lies_behind_n_alone() -> None:
    out = np.full(8, -1.0)
    log(5, np.full(8, 2.0), out, np.empty(8, dtype=np.uint64))
    assert_allclose(out, [np.log(2.0)] * 5 + [-1.0] * 3, rtol=1e-15)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("low", "high"), [(-40, 30), (-3, 3), (-40, -39), (29, 30)])
def test_log_gamma_sum_and_digamma_agree_with_scipy(size: int, low: int, high: int) -> None:
    x = 10.0 ** np.random.default_rng(size).uniform(low, high, size)
    digamma = np.empty(size)
    total = log_gamma_sum_and_digamma(x, digamma, np.empty((2, size)), np.empty(size, dtype=np.uint64))
    # digamma has a root at 1.46, log Gamma at 1 and 2: there the error is absolute
    assert_allclose(digamma, special.digamma(x), rtol=1e-13, atol=1e-13)
    expected = special.gammaln(x)
    assert_allclose(total, expected.sum(), rtol=0.0, atol=1e-13 * np.abs(expected).sum() + 1e-13 * size)


@pytest.mark.parametrize(("size", "low", "high"), [(1, -30, 30), (20, -2, 4), (257, -30, 30)])
def test_exp_of_digamma_is_the_product_of_its_parts(size: int, low: int, high: int) -> None:
    x = 10.0 ** np.linspace(low, high, size)
    factors, exponents = np.empty(size), np.empty(size)
    exp_digamma_parts(x, factors, exponents)
    assert_allclose(np.log(factors) + exponents, special.digamma(x), rtol=2e-13, atol=2e-13)
