"""Folds: every document judges once, groups stay whole, and no fit sees what came later."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dslda.cross_validation.splitting import Splitting, split, with_known_classes, with_own_groups
from dslda.exceptions import InputError
from tests.helpers.errors import refused


@st.composite
def documents(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Which documents have a response, a column of few values, and a number of folds."""
    n = draw(st.integers(12, 60))
    responses = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    column = np.array(draw(st.lists(st.integers(0, 15), min_size=n, max_size=n)), dtype=np.float64)
    return responses, column, draw(st.integers(2, 5))


@settings(max_examples=60, deadline=None)
@given(documents())
def test_every_document_with_a_response_judges_once(made: tuple[np.ndarray, np.ndarray, int]) -> None:
    responses, column, n_folds = made
    rows = np.flatnonzero(responses)
    for kind in ("random", "groups"):
        enough = len(rows) if kind == "random" else len(np.unique(column[rows]))
        if enough < n_folds:
            with pytest.raises(InputError, match="folds"):
                split(Splitting(n_folds, kind, "author"), responses, column if kind == "groups" else None)
            continue
        folds = split(Splitting(n_folds, kind, "author"), responses, column if kind == "groups" else None)
        assert len(folds) == n_folds
        assert sorted(np.concatenate([fold.judging for fold in folds]).tolist()) == rows.tolist()
        for fold in folds:
            # those without a response are trained on in every fold
            together = np.concatenate([fold.training, fold.judging])
            assert sorted(together.tolist()) == list(range(len(responses)))
            assert len(fold.judging) > 0
            if kind == "groups":
                trained = fold.training[responses[fold.training]]
                assert not set(column[fold.judging]) & set(column[trained])
        if kind == "random":
            sizes = [len(fold.judging) for fold in folds]
            assert max(sizes) - min(sizes) <= 1


@settings(max_examples=60, deadline=None)
@given(documents())
def test_in_the_order_of_time_all_that_a_fit_sees_came_before(
    made: tuple[np.ndarray, np.ndarray, int],
) -> None:
    responses, column, n_folds = made
    times = np.unique(column[responses])
    if len(times) < n_folds + 1:
        with pytest.raises(InputError, match="different values"):
            split(Splitting(n_folds, "time", "year"), responses, column)
        return
    folds = split(Splitting(n_folds, "time", "year"), responses, column)
    judged = np.concatenate([fold.judging for fold in folds])
    assert len(set(judged.tolist())) == len(judged)
    # all but the first part judge
    assert set(judged) == set(np.flatnonzero(responses & (column >= column[judged].min())))
    for fold in folds:
        assert column[fold.training].max() < column[fold.judging].min()
        assert responses[fold.training].any()


def test_groups_of_many_documents_are_spread_over_the_folds() -> None:
    column = np.repeat(np.arange(7.0), [40, 30, 30, 10, 10, 5, 5])
    folds = split(Splitting(3, "groups", "author"), np.ones(130, dtype=bool), column)
    assert sorted(len(fold.judging) for fold in folds) == [40, 45, 45]


def test_parts_in_the_order_of_time_are_of_about_as_many_documents() -> None:
    column = np.random.default_rng(0).permutation(1000).astype(np.float64)
    folds = split(Splitting(4, "time", "day"), np.ones(1000, dtype=bool), column)
    assert [len(fold.judging) for fold in folds] == [200] * 4
    assert [len(fold.training) for fold in folds] == [200, 400, 600, 800]


@settings(max_examples=60, deadline=None)
@given(documents())
def test_repeats_stay_together_and_classes_are_spread_evenly(
    made: tuple[np.ndarray, np.ndarray, int],
) -> None:
    responses, classes, n_folds = made
    assume(responses.sum() >= n_folds)
    random = np.random.default_rng(len(responses))
    contents = random.integers(1, 2**63, len(responses)).astype(np.uint64)
    folds = split(Splitting(n_folds), responses, contents=contents, classes=classes)
    for code in np.unique(classes[responses]):
        held = [np.count_nonzero(classes[fold.judging] == code) for fold in folds]
        assert max(held) - min(held) <= 1
    sizes = [len(fold.judging) for fold in folds]
    assert max(sizes) - min(sizes) <= 1
    repeats = contents[random.integers(0, 6, len(responses))]
    n_different = len(np.unique(repeats[responses]))
    if n_different < n_folds:
        with refused("folds"):
            split(Splitting(n_folds), responses, contents=repeats, classes=classes)
        return
    folds = split(Splitting(n_folds), responses, contents=repeats, classes=classes)
    for fold in folds:
        trained = fold.training[responses[fold.training]]
        assert not set(repeats[fold.judging].tolist()) & set(repeats[trained].tolist())


def test_folds_follow_the_documents_wherever_they_stand() -> None:
    random = np.random.default_rng(1)
    contents = random.integers(1, 2**63, 100).astype(np.uint64)
    order = random.permutation(100)
    folds, moved = (
        split(Splitting(4), np.ones(100, dtype=bool), contents=each) for each in (contents, contents[order])
    )
    for fold, other in zip(folds, moved, strict=True):
        assert set(contents[fold.judging].tolist()) == set(contents[order][other.judging].tolist())
    # documents without words are no repeats
    empty = split(Splitting(4), np.ones(100, dtype=bool), contents=np.zeros(100, dtype=np.uint64))
    assert [len(fold.judging) for fold in empty] == [25] * 4


def test_a_document_without_its_group_is_a_group_of_its_own() -> None:
    column = np.array([0.0, 1.0, np.nan, 2.0, np.nan, 1.0])
    groups = with_own_groups(column)
    assert np.array_equal(groups[[0, 1, 3, 5]], column[[0, 1, 3, 5]])
    assert len(np.unique(groups)) == 5
    folds = split(Splitting(5, "groups", "author"), np.ones(6, dtype=bool), groups)
    assert sorted(fold.judging.tolist() for fold in folds) == [[0], [1, 5], [2], [3], [4]]


def test_a_document_without_a_time_is_in_no_fold() -> None:
    column = np.array([3.0, np.nan, 1.0, 2.0, np.nan, 4.0])
    folds = split(Splitting(3, "time", "year"), np.ones(6, dtype=bool), column)
    assert [(fold.training.tolist(), fold.judging.tolist()) for fold in folds] == [
        ([2], [3]),
        ([2, 3], [0]),
        ([0, 2, 3], [5]),
    ]


def test_documents_of_a_class_that_a_fold_does_not_train_on_judge_nothing() -> None:
    y = np.array([0.0, 1.0, 0.0, 1.0, 2.0, 2.0, np.nan])
    year = np.array([1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 1.0])
    cut = split(Splitting(2, "time", "year"), np.isfinite(y), year)
    found, left_out = with_known_classes(cut, y, ("a", "b", "c"))
    assert left_out == 1
    assert [fold.judging.tolist() for fold in found] == [[2, 3], [5]]
    assert [fold.training.tolist() for fold in found] == [fold.training.tolist() for fold in cut]
    with refused("folds", place="fold 1"):
        with_known_classes(cut, np.where(y == 1.0, 0.0, y), ("a", "b", "c"))
