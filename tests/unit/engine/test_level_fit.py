"""Corrections to the probabilities of classes and levels, found from the inner part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import special
from scipy.sparse import csr_array

import dslda
from dslda.engine.conditional.level_fit import GRID, level_corrections
from dslda.families.base import Array
from dslda.families.binomial import Binomial
from dslda.families.ordinal import Ordinal
from dslda.variational.level_corrections import corrected, correction_features, level_middle

DELTA = np.array([-0.2, 0.3])
LEVELS = 4


def family_and_delta(name: str) -> tuple[Binomial | Ordinal, np.ndarray]:
    return (Binomial(), np.ones(1)) if name == "binomial" else (Ordinal(), DELTA)


def probabilities(name: str, x: np.ndarray, corrections: np.ndarray) -> np.ndarray:
    family, delta = family_and_delta(name)
    own = family.probabilities(x + level_middle(family, delta), np.zeros(len(x)), delta)
    return corrected(own, correction_features(x), corrections)


@given(st.floats(-3, 3), st.floats(-0.8, 2), st.floats(-0.8, 2))
def test_two_classes_have_the_beta_calibration(a: float, b: float, d: float) -> None:
    """log(q / (1 - q)) = a + (1 + b) log p - (1 + d) log(1 - p), as Kull, Silva Filho and Flach have it."""
    x = np.linspace(-8.0, 8.0, 33)
    q = probabilities("binomial", x, np.array([[a, b, d]]))
    expected = a + (1.0 + b) * special.log_expit(x) - (1.0 + d) * special.log_expit(-x)
    np.testing.assert_allclose(np.log(q[:, 1]) - np.log(q[:, 0]), expected, rtol=1e-9, atol=1e-9)


@given(arrays(np.float64, (LEVELS - 1, 3), elements=st.floats(-0.9, 2.0)))
def test_levels_share_all_of_the_probability_and_the_ends_win_far_away(corrections: np.ndarray) -> None:
    q = probabilities("ordinal", np.array([-300.0, -2.0, 0.0, 0.7, 300.0]), corrections)
    np.testing.assert_allclose(q.sum(axis=1), 1.0, rtol=1e-12)
    assert q[0, 0] > 0.999
    assert q[-1, -1] > 0.999


def test_no_corrections_change_nothing() -> None:
    x = np.linspace(-5.0, 5.0, 11)
    family, delta = family_and_delta("ordinal")
    own = family.probabilities(x + level_middle(family, delta), np.zeros(11), delta)
    np.testing.assert_allclose(probabilities("ordinal", x, np.zeros((3, 3))), own, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "corrections"),
    [
        ("binomial", np.array([[-0.9, -0.6, 0.4]])),
        ("ordinal", np.array([[0.1, 0.4, -0.3], [0.5, 0.2, -0.2], [-0.3, 0.6, 0.3]])),
    ],
)
def test_the_corrections_of_simulated_responses_are_found(name: str, corrections: np.ndarray) -> None:
    """From a million responses, to what such a sample tells of the probabilities."""
    random = np.random.default_rng(3)
    points = random.normal(0.0, 2.0, 1_000_000).clip(-8.0, 8.0).round(1)
    places, index = np.unique(points, return_inverse=True)
    truth = probabilities(name, places, corrections)
    drawn = (random.random((len(points), 1)) > truth.cumsum(axis=1)[index, :-1]).sum(axis=1)
    counts = np.zeros((len(GRID), truth.shape[1]))
    np.add.at(counts, (np.searchsorted(GRID, points - 1e-9), drawn), 1.0)
    family, delta = family_and_delta(name)
    found = level_corrections(counts, family, delta, dispersion=1.0)
    assert found is not None
    often = (places > -4.0) & (places < 4.0)
    np.testing.assert_allclose(probabilities(name, places, found)[often], truth[often], atol=0.01)


def test_responses_that_follow_the_family_have_no_corrections() -> None:
    """The expected counts themselves: nothing is left to gain."""
    for name in ("binomial", "ordinal"):
        family, delta = family_and_delta(name)
        x = GRID[300:501]
        counts = np.zeros((len(GRID), 2 if name == "binomial" else LEVELS))
        counts[300:501] = 20.0 * family.probabilities(
            x + level_middle(family, delta), np.zeros(len(x)), delta
        )
        assert level_corrections(counts, family, delta, dispersion=1.0) is None


def test_few_or_scattered_responses_have_no_corrections() -> None:
    """What gains enough by itself gains too little where each response counts a hundredth."""
    x = GRID[300:501]
    counts = np.zeros((len(GRID), 2))
    counts[300:501] = 20.0 * probabilities("binomial", x, np.array([[-0.9, -0.6, 0.4]]))
    assert level_corrections(counts, Binomial(), np.ones(1), dispersion=1.0) is not None
    assert level_corrections(counts, Binomial(), np.ones(1), dispersion=100.0) is None
    assert level_corrections(np.zeros_like(counts), Binomial(), np.ones(1), dispersion=1.0) is None


def test_the_expected_level_falls_nowhere_not_even_where_the_inner_part_has_nothing() -> None:
    """These rise over all points with counts, and fall below them."""
    counts = np.zeros((len(GRID), LEVELS))
    seen = slice(394, 422)
    corrections = np.array([[0.2, -0.8, -0.3], [-0.7, 0.4, 3.4], [-0.2, 0.7, 1.5]])
    counts[seen] = 200.0 * probabilities("ordinal", GRID[seen], corrections)
    assert level_corrections(counts, Ordinal(), DELTA, dispersion=1.0) is None


@pytest.mark.parametrize("name", ["binomial", "ordinal"])
def test_corrections_multiply_no_rounding_of_small_probabilities(name: str) -> None:
    """From 36 on the digits of 1 - s(x) are few, and then there are none."""
    corrections = np.full((1 if name == "binomial" else LEVELS - 1, 3), [0.0, -0.9, -0.9])
    x = np.linspace(-60.0, 60.0, 2401)
    q = probabilities(name, x, corrections)
    assert np.diff(q @ np.arange(q.shape[1])).min() > -1e-7
    lowest, highest = q[0, 0], q[-1, -1]
    np.testing.assert_allclose([lowest, highest], 1.0, rtol=1e-9)


@pytest.fixture(scope="module")
def bent() -> tuple[csr_array, np.ndarray, np.ndarray]:
    """Documents of good and bad words, whose chance of a yes falls slowly below the middle and rises fast above it."""
    random = np.random.default_rng(5)
    n = 10_000
    good = random.random(n)
    shares = np.concatenate(
        [np.outer(good, np.full(10, 0.1)), np.outer(1.0 - good, np.full(10, 0.1))], axis=1
    )
    counts = np.array([random.multinomial(30, row) for row in shares])
    x = 8.0 * (good - 0.5)
    chance = probabilities("binomial", x, np.array([[-1.5, -0.8, 1.5]]))[:, 1]
    return csr_array(counts.astype(np.int32)), (random.random(n) < chance).astype(np.float64), chance


def test_a_fit_learns_probabilities_that_no_logit_has(bent: tuple[csr_array, np.ndarray, np.ndarray]) -> None:
    counts, y, chance = bent
    train = np.arange(len(y)) < 7_000
    model = dslda.train(counts[train], response=y[train], family="binomial", n_topics=2, remainder=False)
    assert model.record.parameters.level_corrections is not None
    record = model.record
    plain = dslda.Model(replace(record, parameters=replace(record.parameters, level_corrections=None)))

    def farthest(of: dslda.Model) -> float:
        """The largest error of a tenth of the predictions."""
        predicted = of.predict(counts[~train])
        tenths = np.array_split(np.argsort(predicted), 10)
        return max(abs(predicted[rows].mean() - chance[~train][rows].mean()) for rows in tenths)

    assert farthest(plain) > 0.06
    assert farthest(model) < 0.75 * farthest(plain)
    probability = model.predict_proba(counts[~train])
    np.testing.assert_array_equal(model.predict(counts[~train]), probability[:, 1])


def test_the_training_documents_have_their_mean(bent: tuple[csr_array, np.ndarray, np.ndarray]) -> None:
    counts, y, _ = bent
    model = dslda.train(counts, response=y, family="binomial", n_topics=4)
    # the grid is fine, but not infinitely so
    assert model.predict(counts).mean() == pytest.approx(y.mean(), abs=1e-4)


def test_no_known_word_has_the_base_rate(bent: tuple[csr_array, np.ndarray, np.ndarray]) -> None:
    counts, y, _ = bent
    model = dslda.train(counts, response=y, family="binomial", n_topics=2, remainder=False)
    assert model.record.parameters.level_corrections is not None
    nothing = csr_array((1, counts.shape[1]), dtype=np.int32)
    assert model.predict(nothing)[0] == pytest.approx(y.mean(), rel=1e-6)


class OfTheMean(Binomial):
    """A response of two classes whose family says its mean alone, as an own one may."""

    name = "of_the_mean"
    auxiliary = ""

    def probabilities(self, m: Array, v: Array, delta: Array) -> None:
        return None

    def variance(self, mean: Array, delta: Array, aux: Array) -> None:
        return None


def test_an_own_family_without_probabilities_has_none_to_correct(
    bent: tuple[csr_array, np.ndarray, np.ndarray],
) -> None:
    counts, y, _ = (rows[:600] for rows in bent)
    model = dslda.train(
        counts, response=y, family=OfTheMean(), objective="conditional", n_topics=2, remainder=False
    )
    assert model.record.parameters.level_corrections is None
    assert np.isfinite(model.predict(counts)).all()
