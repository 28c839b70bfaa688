"""The tree of sums depends only on the numbers of the partitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslda.engine.reduction import (
    FAN_IN,
    GROUPS_PER_THREAD,
    MOST_TASKS,
    add_children,
    least_level,
    nodes,
    number_of_levels,
    number_of_nodes,
    sum_subtree,
    task_level,
)
from dslda.variational.statistics import SufficientStatistics


def some_statistics(i: int) -> SufficientStatistics:
    generator = np.random.default_rng(i)
    # magnitudes far apart, so that another order gives other bits
    scale = 10.0 ** generator.integers(-8, 8)
    return SufficientStatistics(
        generator.random((7, 3)) * scale,
        generator.normal(size=3) * scale,
        generator.random((3, 3)) * scale,
        generator.normal(size=3) * scale,
        generator.normal(size=1) * scale,
        labelled_weight=float(generator.random() * scale),
        elbo=float(generator.normal() * scale),
        n_documents=1,
    )


def bits(s: SufficientStatistics) -> tuple[bytes, ...]:
    numbers = np.array([s.labelled_weight, s.elbo])
    return tuple(a.tobytes() for a in (s.topic_counts, s.score, s.information, numbers))


def whole(leaves: Sequence[int]) -> SufficientStatistics:
    return sum_subtree(some_statistics, leaves, level=number_of_levels(leaves))


def by_tasks(leaves: Sequence[int], level: int) -> SufficientStatistics:
    """Add up like the Dask executor: nodes of `level` in place, the rest as sums of results."""
    terms = {
        node: sum_subtree(some_statistics, group, level=level) for node, group in nodes(leaves, level).items()
    }
    while len(terms) > 1:
        terms = {
            node: add_children([terms[child] for child in children])
            if len(children) > 1
            else terms[children[0]]
            for node, children in nodes(list(terms), 1).items()
        }
    (root,) = terms.values()
    return root


@settings(deadline=None, max_examples=40)
@given(leaves=st.sets(st.integers(0, 90), min_size=1).map(sorted))
def test_same_bits_at_whatever_level_tasks_work(leaves: list[int]) -> None:
    total = whole(leaves)
    assert total.n_documents == len(leaves)
    for level in range(number_of_levels(leaves) + 2):
        assert bits(by_tasks(leaves, level)) == bits(total)


@settings(deadline=None, max_examples=20)
@given(n_leaves=st.integers(1, 70))
def test_the_tree_of_all_is_the_one_that_is_fixed_by_their_number(n_leaves: int) -> None:
    level = [some_statistics(i) for i in range(n_leaves)]
    while len(level) > 1:
        level = [add_children(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
    assert bits(whole(range(n_leaves))) == bits(level[0])


def test_another_order_gives_other_bits() -> None:
    backwards = sum_subtree(lambda i: some_statistics(20 - i), range(21), level=number_of_levels(range(21)))
    assert bits(backwards) != bits(whole(range(21)))


def test_sums_do_not_change_their_terms() -> None:
    children = [some_statistics(i) for i in range(4)]
    for child in children:
        for array in (child.topic_counts, child.score, child.information):
            array.setflags(write=False)
    before = [bits(child) for child in children]
    add_children(children)
    assert [bits(child) for child in children] == before


@pytest.mark.parametrize(
    ("n", "levels"), [(1, 0), (2, 1), (4, 1), (5, 2), (16, 2), (17, 3), (64, 3), (65, 4)]
)
def test_number_of_levels(n: int, levels: int) -> None:
    assert number_of_levels(range(n)) == levels
    assert number_of_nodes(range(n), levels) == 1


def test_few_statistics_are_alive_at_once() -> None:
    import gc
    import weakref

    class Tracked(SufficientStatistics):
        __slots__ = ("__weakref__",)

    alive: weakref.WeakSet[Tracked] = weakref.WeakSet()
    most = 0

    def leaf(i: int) -> SufficientStatistics:
        nonlocal most
        new = Tracked(np.zeros((2, 2)), np.zeros(2), np.zeros((2, 2)), np.zeros(2), np.zeros(1))
        alive.add(new)
        most = max(most, len(alive))
        return new

    gc.disable()
    try:
        sum_subtree(leaf, range(256), level=4)
    finally:
        gc.enable()
    assert most <= 5


@settings(deadline=None, max_examples=40)
@given(n_partitions=st.integers(1, 5000), n_threads=st.integers(1, 200))
def test_tasks_keep_all_threads_busy_where_partitions_allow(n_partitions: int, n_threads: int) -> None:
    level = task_level(range(n_partitions), n_threads)
    assert 0 <= level <= number_of_levels(range(n_partitions))
    if level > 0:
        assert number_of_nodes(range(n_partitions), level) >= 4 * n_threads


@settings(deadline=None, max_examples=40)
@given(n_partitions=st.integers(1, 100_000), n_threads=st.integers(1, 500))
def test_thousands_of_partitions_are_few_tasks_unless_threads_call_for_more(
    n_partitions: int, n_threads: int
) -> None:
    most = max(MOST_TASKS, GROUPS_PER_THREAD * n_threads)
    leaves = range(n_partitions)
    level = least_level(leaves, n_threads)
    groups = nodes(leaves, level)
    assert len(groups) == number_of_nodes(leaves, level) <= most
    assert [i for group in groups.values() for i in group] == list(leaves)
    assert level == 0 or number_of_nodes(leaves, level - 1) > most
