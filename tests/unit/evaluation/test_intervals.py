"""Intervals around predictions: they hold what they say, also within thirds of the predictions."""

from __future__ import annotations

import numpy as np
import pytest

from dslda.evaluation.intervals import Intervals, conformal_intervals


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions, and responses that scatter by them."""
    random = np.random.default_rng(seed)
    predictions = random.uniform(1.0, 9.0, n)
    return predictions, random.gamma(2.0, predictions / 2.0)


def test_nine_of_ten_responses_lie_inside_also_within_thirds() -> None:
    held = []
    for seed in range(40):
        intervals = conformal_intervals(*drawn(600, seed), constant_scatter=False)
        assert intervals is not None
        predictions, y = drawn(2000, 1000 + seed)
        low, high = intervals.around(predictions)
        inside = (low <= y) & (y <= high)
        third = np.searchsorted([1 + 8 / 3, 1 + 16 / 3], predictions)
        held.append([inside[third == k].mean() for k in range(3)])
    # 40 x 200 documents set the bounds: by chance the mean is off by 0.4%
    assert np.mean(held, axis=0) == pytest.approx([0.9] * 3, abs=0.02)


def test_bounds_are_the_order_statistics_of_each_group() -> None:
    predictions, y = drawn(300, 3)
    intervals = conformal_intervals(predictions, y, constant_scatter=True)
    assert intervals is not None
    assert intervals.bounds.shape == (3, 2)
    group = np.searchsorted(np.quantile(predictions, [1 / 3, 2 / 3]), predictions, side="right")
    for k in range(3):
        residuals = np.sort((y - predictions)[group == k])
        assert len(residuals) == 100
        assert intervals.bounds[k].tolist() == [residuals[4], residuals[95]]


def test_few_documents_have_one_group_and_fewer_none() -> None:
    predictions, y = drawn(299, 4)
    assert conformal_intervals(predictions, y, constant_scatter=False) is None
    intervals = conformal_intervals(predictions, y, constant_scatter=True)
    assert intervals is not None
    assert intervals.bounds.shape == (1, 2)
    assert intervals.borders.size == 0
    assert conformal_intervals(predictions[:99], y[:99], constant_scatter=True) is None


def test_predictions_that_are_equal_are_one_group() -> None:
    y = np.random.default_rng(5).normal(size=400)
    intervals = conformal_intervals(np.zeros(400), y, constant_scatter=True)
    assert intervals is not None
    assert len(intervals.bounds) == 1


def test_no_lower_end_is_below_the_lowest_response() -> None:
    intervals = Intervals(np.array([5.0]), np.array([[-2.0, 3.0], [-4.0, 6.0]]))
    low, high = intervals.around(np.array([1.0, 5.0, np.nan]), lowest=0.0)
    assert low[:2].tolist() == [0.0, 1.0]
    assert high[:2].tolist() == [4.0, 11.0]
    assert np.isnan(low[2])
    assert np.isnan(high[2])
    assert intervals.in_words == "90%, predictions below 5: -2 to +3; above 5: -4 to +6"
