"""Sums of statistics, by their fields: added, blended, cut into ranges of the terms and put together again."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dslda.variational.statistics import SufficientStatistics
from dslda.variational.sums import ARRAY, FIRST, NUMBER, PER_TERM, REPORT, Sums, join_parts

N_TERMS, N_TOPICS = 12, 3


@dataclass(slots=True, eq=False)
class SquaredCounts(SufficientStatistics):
    """Statistics with a second array per term."""

    topic_counts_squared: NDArray[np.float64] = field(
        default_factory=lambda: np.zeros((0, N_TOPICS)), metadata=PER_TERM
    )


def some_statistics(
    seed: int, *, sparse: bool = False, kind: type[SufficientStatistics] = SquaredCounts
) -> SufficientStatistics:
    generator = np.random.default_rng(seed)
    terms = np.flatnonzero(generator.random(N_TERMS) < 0.4) if sparse else None
    sums = kind.zeros(N_TERMS if terms is None else len(terms), N_TOPICS, n_covariates=1, n_probes=2)
    sums.joint_information = np.zeros((6, 6))
    for f in fields(sums):
        value = getattr(sums, f.name)
        if f.metadata in (PER_TERM, ARRAY):
            value += generator.random(value.shape)
        elif f.metadata in (NUMBER, REPORT):
            setattr(sums, f.name, type(value)(generator.integers(1, 100)))
    if terms is not None:
        sums.terms, sums.n_terms = terms, N_TERMS
    return sums


def values(sums: SufficientStatistics) -> dict[str, Any]:
    """Every field but `terms` and `n_terms`, with a row for each term."""
    dense = sums.dense()
    return {f.name: np.array(getattr(dense, f.name)) for f in fields(sums) if f.metadata}


def assert_equal(one: SufficientStatistics, two: SufficientStatistics, *, rtol: float = 0.0) -> None:
    expected = values(two)
    for name, value in values(one).items():
        assert_allclose(value, expected[name], rtol=rtol, err_msg=name)


@pytest.mark.parametrize("sparse", [False, True])
def test_every_field_is_added_in_place_and_the_other_left_alone(sparse: bool) -> None:
    one, other = some_statistics(1, sparse=sparse), some_statistics(2, sparse=sparse)
    before, unchanged = values(one), values(other)
    assert one.add(other) is one
    for name, total in values(one).items():
        assert np.array_equal(total, before[name] + unchanged[name]), name
        assert np.any(total != before[name]), name
    assert_equal(other, some_statistics(2, sparse=sparse))


def test_a_copy_shares_no_memory() -> None:
    one = some_statistics(1)
    copy = one.copy()
    copy.add(one)
    assert_equal(one, some_statistics(1))


@pytest.mark.parametrize("sparse", [False, True])
def test_ranges_of_terms_add_up_to_the_whole(sparse: bool) -> None:
    whole = some_statistics(3, sparse=sparse)
    parts = [whole.part(a, b) for a, b in ((0, 5), (5, 6), (6, N_TERMS))]
    together = join_parts(iter(parts), N_TERMS)
    assert isinstance(together, SquaredCounts)
    assert together.terms is None
    assert_equal(together, whole)


def test_records_tell_dask_their_size() -> None:
    """A dataclass without __sizeof__ looks like 0 bytes to the scheduler."""
    one, two = SufficientStatistics.zeros(1000, 50), SquaredCounts.zeros(1000, 50)
    assert 8 * (1000 * 50 + 50 + 50 * 50) < sys.getsizeof(one) < 430_000
    assert sys.getsizeof(two) - sys.getsizeof(one) == 8 * 1000 * 50


@pytest.mark.parametrize("sparse", [(False, False), (False, True), (True, False), (True, True)])
@settings(deadline=None, max_examples=20)
@given(weight=st.floats(0.0, 1.0), seed=st.integers(0, 100))
def test_a_blend_is_a_convex_combination_of_sums_over_as_many_documents(
    sparse: tuple[bool, bool], weight: float, seed: int
) -> None:
    one, other = (some_statistics(seed + i, sparse=sparse[i]) for i in (0, 1))
    before, new = values(one), values(other)
    stretch = before["n_documents"] / new["n_documents"]
    assert one.blend(other, weight) is one
    assert_equal(other, some_statistics(seed + 1, sparse=sparse[1]))
    after = values(one)
    assert after["n_documents"] == before["n_documents"]
    for f in fields(one):
        if f.metadata in (PER_TERM, ARRAY, NUMBER):
            expected = (1.0 - weight) * before[f.name] + weight * stretch * new[f.name]
            # the absolute tolerance is for subnormal numbers, which have fewer digits
            assert_allclose(after[f.name], expected, rtol=1e-13, atol=1e-300, err_msg=f.name)
        elif f.metadata == REPORT and f.name != "n_documents":
            assert after[f.name] == new[f.name], f.name


def test_the_ends_of_a_blend() -> None:
    """Weight 0 keeps the sums; with weight 1 zeros become the other's, as of their own number of documents."""
    kept = some_statistics(1).blend(some_statistics(2), 0.0)
    for name in ("topic_counts", "topic_counts_squared", "score", "information", "elbo", "n_documents"):
        assert np.array_equal(getattr(kept, name), getattr(some_statistics(1), name)), name
    batch = some_statistics(2, sparse=True)
    whole = SquaredCounts.zeros(N_TERMS, N_TOPICS, n_covariates=1, n_probes=2)
    whole.joint_information = np.zeros((6, 6))
    whole.n_documents = 4 * batch.n_documents
    whole.blend(batch, 1.0)
    assert_allclose(whole.topic_counts, 4.0 * batch.dense().topic_counts, rtol=1e-15)
    assert whole.log_theta_weight == 4.0 * batch.log_theta_weight
    assert_equal(whole.blend(SquaredCounts.zeros(N_TERMS, N_TOPICS, n_covariates=1, n_probes=2), 0.7), whole)


@dataclass(slots=True, eq=False)
class Found(Sums):
    """Sums that name a document."""

    document: int | None = field(default=None, metadata=FIRST)


@pytest.mark.parametrize(
    ("rows", "first"), [([None, 7, 3, None, 5], 3), ([0, None], 0), ([None, None], None)]
)
def test_the_first_row_of_a_sum_is_the_lowest_of_its_terms(rows: list[int | None], first: int | None) -> None:
    for ordered in (rows, rows[::-1]):
        total = Found()
        for row in ordered:
            total.add(Found(document=row))
        assert total.document == first
        assert total.part(0, 3).document == first
        assert total.part(3, 9).document is None
        assert total.placed(lambda number: number + 100).document == (None if first is None else first + 100)


def test_small_steps_towards_one_batch_end_there() -> None:
    """1 - (1 - w)^n of the way after n steps of weight w."""
    sums, batch = some_statistics(1), some_statistics(2)
    start, end = sums.copy(), some_statistics(1).blend(batch, 1.0)
    for _ in range(5):
        sums.blend(batch, 0.3)
    left = 0.7**5
    assert_allclose(
        sums.topic_counts, left * start.topic_counts + (1.0 - left) * end.topic_counts, rtol=1e-12
    )
    assert sums.elbo == pytest.approx(left * start.elbo + (1.0 - left) * end.elbo)
