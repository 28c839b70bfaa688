"""The tree of sums depends on the number of partitions and on nothing else."""

from __future__ import annotations

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


def by_tasks(n_leaves: int, level: int) -> SufficientStatistics:
    """What the Dask executor does: nodes of `level` in place, the rest as sums of results."""
    width = FAN_IN**level
    nodes = [
        sum_subtree(some_statistics, start, min(start + width, n_leaves), level=level)
        for start in range(0, n_leaves, width)
    ]
    while len(nodes) > 1:
        groups = [nodes[i : i + FAN_IN] for i in range(0, len(nodes), FAN_IN)]
        nodes = [group[0] if len(group) == 1 else add_children(group) for group in groups]
    return nodes[0]


@settings(deadline=None, max_examples=40)
@given(n_leaves=st.integers(1, 70))
def test_same_bits_at_whatever_level_tasks_work(n_leaves: int) -> None:
    top = number_of_levels(n_leaves)
    whole = sum_subtree(some_statistics, 0, n_leaves, level=top)
    assert whole.n_documents == n_leaves
    for level in range(top + 1):
        assert bits(by_tasks(n_leaves, level)) == bits(whole)


def test_another_order_gives_other_bits() -> None:
    backwards = sum_subtree(lambda i: some_statistics(20 - i), 0, 21, level=number_of_levels(21))
    assert bits(backwards) != bits(sum_subtree(some_statistics, 0, 21, level=number_of_levels(21)))


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
    assert number_of_levels(n) == levels
    assert number_of_nodes(n, levels) == 1


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
        sum_subtree(leaf, 0, 256, level=4)
    finally:
        gc.enable()
    assert most <= 5


@settings(deadline=None, max_examples=40)
@given(n_partitions=st.integers(1, 5000), n_threads=st.integers(1, 200))
def test_tasks_keep_all_threads_busy_where_partitions_allow(n_partitions: int, n_threads: int) -> None:
    level = task_level(n_partitions, n_threads)
    assert 0 <= level <= number_of_levels(n_partitions)
    if level > 0:
        assert number_of_nodes(n_partitions, level) >= 4 * n_threads


@settings(deadline=None, max_examples=40)
@given(n_partitions=st.integers(1, 100_000), n_threads=st.integers(1, 500))
def test_thousands_of_partitions_are_few_tasks_unless_threads_call_for_more(
    n_partitions: int, n_threads: int
) -> None:
    most = max(MOST_TASKS, GROUPS_PER_THREAD * n_threads)
    level = least_level(n_partitions, n_threads)
    groups = nodes(n_partitions, level)
    assert len(groups) == number_of_nodes(n_partitions, level) <= most
    assert [i for group in groups for i in group] == list(range(n_partitions))
    assert level == 0 or number_of_nodes(n_partitions, level - 1) > most
