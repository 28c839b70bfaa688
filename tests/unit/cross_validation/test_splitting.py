"""Folds: every document judges once, groups stay whole, and no fit sees what came later."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslda.cross_validation.splitting import Splitting, split
from dslda.exceptions import InputError


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
                split(Splitting(n_folds, kind, "author"), responses, column)
            continue
        folds = split(Splitting(n_folds, kind, "author"), responses, column)
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


def test_a_document_without_its_group_is_named() -> None:
    column = np.array([0.0, 1.0, np.nan, 2.0])
    with pytest.raises(InputError, match=r"'author' is missing for 1 document .* document 2 "):
        split(Splitting(2, "groups", "author"), np.ones(4, dtype=bool), column)
    # one that judges nothing needs none
    split(Splitting(2, "groups", "author"), np.array([True, True, False, True]), column)
