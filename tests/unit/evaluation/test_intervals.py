"""Intervals around predictions: they hold what they say, also within thirds of the predictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

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
        intervals = conformal_intervals(*drawn(600, seed))
        assert intervals is not None
        predictions, y = drawn(2000, 1000 + seed)
        low, high = intervals.around(predictions)
        inside = (low <= y) & (y <= high)
        third = np.searchsorted([1 + 8 / 3, 1 + 16 / 3], predictions)
        held.append([inside[third == k].mean() for k in range(3)])
    # 40 x 200 documents set the bounds: by chance the mean is off by 0.4%
    assert np.mean(held, axis=0) == pytest.approx([0.9] * 3, abs=0.02)


def test_the_width_follows_the_scatter_within_a_third() -> None:
    intervals = conformal_intervals(*drawn(3000, 3))
    assert intervals is not None
    places = np.array([1.5, 2.5, 3.5])
    low, high = intervals.around(places)
    # quantiles of gamma(2) times half the prediction, level by level
    ends = np.outer(places / 2.0, stats.gamma(2.0).ppf([0.05, 0.95]))
    assert np.column_stack([low, high]) == pytest.approx(ends, rel=0.35, abs=0.35)
    assert (np.diff(high - low) > 0.5).all()


def test_bounds_follow_the_scatter_nearly_to_the_ends() -> None:
    """Neighbours lie on both sides there too: with windows to one side the highest twentieth had 0.69."""
    held = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        predictions = np.exp(random.normal(size=5000))
        y = random.exponential(predictions)
        intervals = conformal_intervals(predictions[:1000], y[:1000])
        assert intervals is not None
        low, high = intervals.around(predictions, lowest=0.0)
        new = np.arange(5000) >= 1000
        highest = new & (predictions > np.quantile(predictions, 0.95))
        inside = (low <= y) & (y <= high)
        held.append([inside[new].mean(), inside[highest].mean()])
    assert np.mean(held, axis=0) == pytest.approx([0.9, 0.85], abs=0.03)


def test_where_one_side_has_no_scatter_the_other_has_all_that_is_left_out() -> None:
    """Stars end at five: most reviews with a high prediction have five, none more."""
    held = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        predictions = random.uniform(4.0, 5.0, 3000)
        y = np.where(random.random(3000) < 0.7, 5.0, random.uniform(1.0, 5.0, 3000))
        intervals = conformal_intervals(predictions[:1000], y[:1000])
        assert intervals is not None
        low, high = intervals.around(predictions[1000:])
        held.append(np.mean((low <= y[1000:]) & (y[1000:] <= high)))
    assert np.mean(held) == pytest.approx(0.9, abs=0.015)


@pytest.mark.parametrize("n", [100, 101, 130, 400])
def test_documents_lie_between_quantiles_of_their_own_neighbours(n: int) -> None:
    """At least as many as the level says of any number of documents, each left out of its own bounds."""
    held = []
    for seed in range(150):
        predictions, y = drawn(n + 1, seed)
        intervals = conformal_intervals(predictions[1:], y[1:])
        assert intervals is not None
        low, high = intervals.around(predictions[:1])
        held.append(low[0] <= y[0] <= high[0])
    # the standard deviation of the mean is 0.025
    assert np.mean(held) == pytest.approx(0.9, abs=0.08)


@given(shift=st.floats(-100.0, 100.0), scale=st.floats(0.01, 100.0), seed=st.integers(0, 50))
def test_units_and_the_order_of_documents_change_nothing(shift: float, scale: float, seed: int) -> None:
    predictions, y = drawn(250, seed)
    order = np.random.default_rng(seed).permutation(250)
    one, other = (
        conformal_intervals(predictions, y),
        conformal_intervals((shift + scale * predictions)[order], (shift + scale * y)[order]),
    )
    assert one is not None
    assert other is not None
    new = np.linspace(0.0, 10.0, 23) + 0.0123
    for mine, theirs in zip(one.around(new), other.around(shift + scale * new), strict=True):
        assert theirs == pytest.approx(shift + scale * mine, rel=1e-6, abs=1e-6 * scale)


def test_a_regression_on_these_documents_is_taken_for_what_others_will_see() -> None:
    """Twenty numbers are fitted to 390 documents: of others, 1.4% fewer lie inside than of these."""
    held: dict[int, list[float]] = {0: [], 20: []}
    for seed in range(100):
        random = np.random.default_rng(seed)
        x, y = random.normal(size=(1390, 20)), random.normal(size=1390)
        predictions = x @ np.linalg.lstsq(x[:390], y[:390])[0]
        for n_fitted, found in held.items():
            intervals = conformal_intervals(predictions[:390], y[:390], n_fitted=n_fitted)
            assert intervals is not None
            low, high = intervals.around(predictions[390:])
            found.append(np.mean((low <= y[390:]) & (y[390:] <= high)))
    # the standard deviation of the means is 0.002
    assert np.mean(held[20]) == pytest.approx(0.9, abs=0.01)
    assert np.mean(held[0]) < 0.892


def test_fewer_than_a_hundred_documents_have_none() -> None:
    predictions, y = drawn(100, 4)
    assert conformal_intervals(predictions, y) is not None
    assert conformal_intervals(predictions[:99], y[:99]) is None


def test_predictions_that_are_equal_have_the_same_bounds() -> None:
    y = np.random.default_rng(5).normal(size=400)
    intervals = conformal_intervals(np.zeros(400), y)
    assert intervals is not None
    assert len(intervals.bounds) == 1
    assert intervals.bounds[0] == pytest.approx([-1.645, 1.645], abs=0.3)
    assert intervals.in_words.startswith("90%, prediction -1")
    # two values, one of them of nearly all documents
    predictions = np.repeat([0.0, 1.0], [390, 10])
    intervals = conformal_intervals(predictions, predictions + y)
    assert intervals is not None
    assert len(intervals.bounds) == 2
    assert np.isfinite(intervals.bounds).all()


def test_responses_that_are_predicted_exactly_have_intervals_without_width() -> None:
    predictions, _ = drawn(300, 6)
    intervals = conformal_intervals(predictions, predictions)
    assert intervals is not None
    assert not intervals.bounds.any()


@pytest.mark.parametrize("share", [0.3, 0.6, 0.85, 0.95, 0.99])
def test_many_equal_residuals_are_inside_or_outside_together(share: float) -> None:
    """As of counts that are nearly all 0: the ends never cross, and at least nine of ten lie inside."""
    held = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        predictions = random.uniform(0.0, 1.0, 2400)
        y = predictions + np.where(random.random(2400) < share, 0.0, random.normal(size=2400))
        intervals = conformal_intervals(predictions[:400], y[:400])
        assert intervals is not None
        assert (intervals.bounds[:, 0] <= intervals.bounds[:, 1]).all()
        low, high = intervals.around(predictions[400:])
        held.append(np.mean((low <= y[400:]) & (y[400:] <= high)))
    assert np.mean(held) == pytest.approx(max(0.9, share), abs=0.02)


def test_ends_that_no_response_can_reach_are_cut_off_on_both_sides() -> None:
    intervals = Intervals(np.zeros(0), np.array([[-0.4, -0.1]]))
    low, high = intervals.around(np.array([0.05, 0.3, 2.0]), lowest=0.0)
    assert low == pytest.approx([0.0, 0.0, 1.6])
    assert high == pytest.approx([0.0, 0.2, 1.9])


def test_no_lower_end_is_below_the_lowest_response() -> None:
    intervals = Intervals(np.array([5.0]), np.array([[-2.0, 3.0], [-4.0, 6.0]]))
    low, high = intervals.around(np.array([1.0, 5.0, np.nan]), lowest=0.0)
    assert low[:2].tolist() == [0.0, 1.0]
    assert high[:2].tolist() == [4.0, 11.0]
    assert np.isnan(low[2])
    assert np.isnan(high[2])
    assert intervals.in_words == "90%, -4 to +6 around a prediction of 5"
    low, high = intervals.around(np.array([1.0, 5.0]), highest=np.array([3.0, 20.0]))
    assert high.tolist() == [3.0, 11.0]


def test_every_level_holds_what_it_says() -> None:
    levels = (0.25, 0.5, 0.8, 0.95)
    held = []
    for seed in range(40):
        intervals = conformal_intervals(*drawn(600, seed))
        assert intervals is not None
        predictions, y = drawn(2000, 1000 + seed)
        ends = [intervals.at(level).around(predictions) for level in levels]
        held.append([np.mean((low <= y) & (y <= high)) for low, high in ends])
    assert np.mean(held, axis=0) == pytest.approx(levels, abs=0.02)


@pytest.mark.parametrize("n", [100, 300, 2000])
def test_levels_are_nested_up_to_the_highest_that_the_documents_allow(n: int) -> None:
    intervals = conformal_intervals(*drawn(n, 3))
    assert intervals is not None
    assert intervals.at(0.9) is intervals
    for level in (1e-15, 1e-3):
        assert np.ptp(intervals.at(level).bounds, axis=1).max() < 1.0
    highest = np.floor(1e4 * (1.0 - 3.0 / (n + 1))) / 1e4
    widths = [np.ptp(intervals.at(level).bounds, axis=1).mean() for level in (0.5, 0.8, 0.9, 0.95, highest)]
    assert widths == sorted(widths)
    assert intervals.at(0.5).level == 0.5
    assert intervals.at(0.5).in_words.startswith("50%, ")
    again = intervals.at(0.5).at(0.9)
    assert np.array_equal(again.bounds, intervals.bounds)
    with refused("interval") as error:
        intervals.at(highest + 0.0002)
    assert f"at most {highest:g}" in str(error.value)


def test_models_of_early_releases_know_one_level() -> None:
    early = Intervals(np.zeros(0), np.array([[-1.0, 1.0]]))
    assert early.at(0.9) is early
    with refused("interval"):
        early.at(0.8)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 90, np.nan, True, "0.9", None])
def test_what_is_no_share_of_responses_is_no_level(level: object) -> None:
    with refused("interval"):
        Intervals(np.zeros(0), np.array([[-1.0, 1.0]])).at(level)  # type: ignore[arg-type]
