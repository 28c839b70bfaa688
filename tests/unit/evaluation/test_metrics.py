"""Predictive R2, correlation and folds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslda.evaluation.metrics import (
    correlation,
    folds,
    held_out,
    predictive_r2,
    predictive_r2_standard_error,
    share_standard_error,
)
from dslda.exceptions import InputError
from tests.helpers.errors import refused


def test_predictive_r2_known_values():
    y = [1.0, 2.0, 3.0, 6.0]  # mean 3, variation 14
    assert predictive_r2(y, y) == 1.0
    assert predictive_r2(y, [3.0] * 4) == 0.0
    assert predictive_r2(y, [2.0, 2.0, 3.0, 4.0]) == pytest.approx(1 - 5 / 14)
    assert predictive_r2(y, [6.0, 3.0, 2.0, 1.0]) < 0


def test_predictive_r2_keeps_its_value_when_the_unit_of_the_response_changes():
    generator = np.random.default_rng(0)
    y, predicted = generator.normal(size=(2, 50))
    assert predictive_r2(1000 * y + 50, 1000 * predicted + 50) == pytest.approx(predictive_r2(y, predicted))


def test_the_standard_error_of_r2_is_that_of_leaving_out_each_document():
    generator = np.random.default_rng(2)
    y, noise = generator.normal(size=(2, 12))
    without = [predictive_r2(np.delete(y, i), np.delete(y + noise, i)) for i in range(12)]
    expected = np.sqrt(11 * np.var(without))
    assert predictive_r2_standard_error(y, y + noise) == pytest.approx(expected)
    assert predictive_r2_standard_error(100 * y + 50, 100 * (y + noise) + 50) == pytest.approx(expected)
    for few in ([1.0, 2.0], [0.1, 0.1, 0.1, 3.0]):
        assert np.isnan(predictive_r2_standard_error(few, [0.0] * len(few)))


@pytest.mark.parametrize(("n", "freedom"), [(100, 100.0), (400, 5.0)])
def test_standard_errors_are_how_much_the_measures_scatter(n, freedom):
    generator = np.random.default_rng(3)
    found = []
    for _ in range(1000):
        signal, noise = generator.normal(size=n), generator.standard_t(freedom, size=n)
        y = signal + noise
        found.append((predictive_r2(y, signal), predictive_r2_standard_error(y, signal)))
    r2, errors = np.array(found).T
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(np.std(r2), rel=0.1)
    assert 0.92 <= np.mean(np.abs(r2 - np.mean(r2)) < 1.96 * errors) <= 0.97
    right = generator.binomial(n, 0.8, size=1000) / n
    errors = np.array([share_standard_error(share, n) for share in right])
    assert np.mean(errors) == pytest.approx(np.std(right), rel=0.1)
    assert 0.93 <= np.mean(np.abs(right - 0.8) < 1.96 * errors) <= 0.98
    assert share_standard_error(1.0, n) > 0.5 / n


def test_correlation_is_that_of_numpy_and_undefined_for_constants():
    generator = np.random.default_rng(1)
    y, noise = generator.normal(size=(2, 200))
    assert correlation(y, y + noise) == pytest.approx(np.corrcoef(y, y + noise)[0, 1])
    assert correlation(y, -3 * y + 7) == pytest.approx(-1)
    assert np.isnan(correlation(y, np.full(200, 0.1)))


@pytest.mark.parametrize(
    ("y", "predicted", "message"),
    [
        ([1.0, 2.0], [1.0], r"got shapes \(2,\) and \(1,\)"),
        ([], [], "not empty"),
        ([1.0, np.nan], [1.0, 2.0], "responses must be finite, got nan at document 1"),
        ([1.0, 2.0], [np.inf, 2.0], "predictions must be finite, got inf at document 0"),
    ],
)
@pytest.mark.parametrize("metric", [predictive_r2, correlation])
def test_unusable_input_is_refused_with_its_place(metric, y, predicted, message):
    with pytest.raises(InputError, match=message):
        metric(y, predicted)


def test_predictive_r2_refuses_equal_responses():
    with pytest.raises(InputError, match="got 3 times 4"):
        predictive_r2([4.0, 4.0, 4.0], [1.0, 2.0, 3.0])


@given(st.integers(2, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(2, n))), st.integers(0, 5))
def test_folds_hold_out_every_document_once_in_nearly_equal_parts(sizes, seed):
    n, k = sizes
    parts = folds(n, k, seed=seed)
    assert len(parts) == k
    assert np.array_equal(np.sort(np.concatenate([left_out for _, left_out in parts])), np.arange(n))
    for train, left_out in parts:
        assert np.array_equal(np.sort(np.concatenate([train, left_out])), np.arange(n))
        assert n // k <= len(left_out) <= -(-n // k)


def test_folds_are_shuffled_and_the_same_for_one_seed():
    first, again, other = (folds(100, 5, seed=seed)[0][1] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, np.arange(20))


@pytest.mark.parametrize(("n", "k"), [(10, 1), (3, 4), (0, 2)])
def test_impossible_folds_are_refused(n, k):
    with pytest.raises(InputError, match=f"got {k}"):
        folds(n, k)


@given(st.integers(3, 3000), st.floats(0.001, 0.5), st.integers(0, 2**63 - 1))
def test_held_out_documents_are_the_share_and_a_function_of_the_arguments(n, share, seed):
    if not 1 <= round(share * n) <= n - 2:
        with refused("hold_out"):
            held_out(n, share, seed=seed)
        return
    chosen = held_out(n, share, seed=seed)
    assert (chosen.dtype, chosen.shape, chosen.sum()) == (np.bool_, (n,), round(share * n))
    assert np.array_equal(chosen, held_out(n, share, seed=seed))


def test_held_out_documents_are_spread_and_differ_by_seed():
    first, second = held_out(2_000_000, 0.25), held_out(2_000_000, 0.25, seed=1)
    assert first.sum() == second.sum() == 500_000
    assert abs(np.mean(first & second) - 0.0625) < 0.002
    assert abs(first.reshape(20, -1).mean(axis=1) - 0.25).max() < 0.01


@pytest.mark.parametrize("share", [0.0, 1.0, 0.51, -0.1, float("nan"), float("inf")])
def test_a_share_that_is_none_is_refused(share):
    with refused("hold_out"):
        held_out(100, share)
