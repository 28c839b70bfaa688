"""The tree in which partitions' statistics are added up.

Floating-point sums depend on their order, so the tree is fixed by the number of partitions alone: node
``j`` of level ``l`` covers partitions ``j * 4**l`` to ``(j + 1) * 4**l - 1`` and adds up its children from
left to right. Any executor that follows it, in one process or on any number of workers, gets the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

from dslda.variational.statistics import SufficientStatistics

__all__ = [
    "FAN_IN",
    "add_children",
    "least_level",
    "nodes",
    "number_of_levels",
    "number_of_nodes",
    "sum_subtree",
    "task_level",
]

FAN_IN = 4
"""Not an option: results depend on it. Two makes more levels, eight holds more statistics at once."""

GROUPS_PER_THREAD = 6
"""Tasks of an iteration for each thread, at least: fewer leave threads idle at its end, more cost more."""

MOST_TASKS = 1024
"""Tasks of an iteration where threads do not call for more, and futures of partitions that are kept: each costs some
milliseconds of the client and the scheduler."""


def number_of_nodes(n_leaves: int, level: int) -> int:
    """Nodes of the tree at a level; leaves are level 0."""
    return -(-n_leaves // FAN_IN**level)


def nodes(n_leaves: int, level: int) -> list[range]:
    """The leaves of each node of the tree at a level."""
    width = FAN_IN**level
    return [range(start, min(start + width, n_leaves)) for start in range(0, n_leaves, width)]


def number_of_levels(n_leaves: int) -> int:
    """The level of the root."""
    level = 0
    while number_of_nodes(n_leaves, level) > 1:
        level += 1
    return level


def task_level(n_partitions: int, n_threads: int) -> int:
    """The highest level of the tree with enough nodes to keep all threads busy.

    A task that does a whole node by itself leaves one statistics object instead of ``4**level``. The tree
    is the same at any level, so that the number of threads may decide this without changing a bit.
    """
    level = 0
    while (
        level < number_of_levels(n_partitions)
        and number_of_nodes(n_partitions, level + 1) >= GROUPS_PER_THREAD * n_threads
    ):
        level += 1
    return level


def least_level(n_partitions: int, n_threads: int) -> int:
    """The lowest level of the tree with at most ``MOST_TASKS`` nodes, or as many as threads call for."""
    most = max(MOST_TASKS, GROUPS_PER_THREAD * n_threads)
    level = 0
    while number_of_nodes(n_partitions, level) > most:
        level += 1
    return level


def sum_subtree(
    leaf: Callable[[int], SufficientStatistics], start: int, stop: int, *, level: int
) -> SufficientStatistics:
    """The node of `level` over leaves ``start`` to ``stop - 1``, depth first.

    Parameters
    ----------
    leaf : callable
        Gives new statistics for a partition; they are added to in place.
    start, stop : int
    level : int
        At most ``level + 1`` statistics are alive at any time.
    """
    if level == 0:
        return leaf(start)
    width = FAN_IN ** (level - 1)
    total = sum_subtree(leaf, start, min(start + width, stop), level=level - 1)
    for first in range(start + width, stop, width):
        total.add(sum_subtree(leaf, first, min(first + width, stop), level=level - 1))
    return total


def add_children(children: list[SufficientStatistics]) -> SufficientStatistics:
    """The sum of a node's children, from left to right, none of which is changed.

    They are results of tasks: one that is changed in place would differ when the task runs again (dask-ml's
    ``_partial_fit`` has this fault). Copying adds to zero, which is exact here: sums that start from zero
    are never minus zero.
    """
    total = children[0].copy()
    for child in children[1:]:
        total.add(child)
    return total
