"""Intervals around predictions: they hold what they say, also within thirds of the predictions."""

from __future__ import annotations

import numpy as np
import pytest

from dslda.evaluation.intervals import Intervals, conformal_intervals
from tests.helpers.errors import refused


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
    low, high = intervals.around(np.array([1.0, 5.0]), highest=np.array([3.0, 20.0]))
    assert high.tolist() == [3.0, 11.0]


def test_every_level_holds_what_it_says() -> None:
    levels = (0.25, 0.5, 0.8, 0.95)
    held = []
    for seed in range(40):
        intervals = conformal_intervals(*drawn(600, seed), constant_scatter=False)
        assert intervals is not None
        predictions, y = drawn(2000, 1000 + seed)
        ends = [intervals.at(level).around(predictions) for level in levels]
        held.append([np.mean((low <= y) & (y <= high)) for low, high in ends])
    assert np.mean(held, axis=0) == pytest.approx(levels, abs=0.02)


def test_other_levels_are_other_order_statistics_up_to_the_highest_that_the_documents_allow() -> None:
    predictions, y = drawn(300, 3)
    intervals = conformal_intervals(predictions, y, constant_scatter=True)
    assert intervals is not None
    assert intervals.residuals is not None
    assert intervals.at(0.9) is intervals
    for level, rank in ((0.8, 10), (0.5, 25), (0.98, 1)):
        other = intervals.at(level)
        assert other.level == level
        assert other.bounds.tolist() == [[own[rank - 1], own[100 - rank]] for own in intervals.residuals]
    assert intervals.at(0.5).in_words.startswith("50%, ")
    with refused("interval") as error:
        intervals.at(0.99)
    highest = 0.9801  # 1 - 2 / 101
    assert f"{highest}" in str(error.value)
    assert intervals.at(highest).bounds[:, 0].tolist() == [own[0] for own in intervals.residuals]


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 90, np.nan, True, "0.9", None])
def test_what_is_no_share_of_responses_is_no_level(level: object) -> None:
    with refused("interval"):
        Intervals(np.zeros(0), np.array([[-1.0, 1.0]])).at(level)  # type: ignore[arg-type]
