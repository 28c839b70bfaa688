"""The tree in which partitions' statistics are added up.

Floating-point sums depend on their order, so the tree is fixed by the numbers of the partitions alone: node
``j`` of level ``l`` covers partitions ``j * 4**l`` to ``(j + 1) * 4**l - 1`` and adds up its children from
left to right. The tree of a subset is the same tree without the nodes that cover none of it. Any executor that
follows it, in one process or on any number of workers, gets the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

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
"""Tasks of an iteration, unless threads call for more, and futures of partitions that are kept. Each costs some
milliseconds of the client and the scheduler."""


def nodes(leaves: Sequence[int], level: int) -> dict[int, list[int]]:
    """The nodes of the tree at a level by their number, each with its leaves; `leaves` ascend."""
    width = FAN_IN**level
    return {node: list(covered) for node, covered in groupby(leaves, key=lambda leaf: leaf // width)}


def number_of_nodes(leaves: Sequence[int], level: int) -> int:
    """Nodes of the tree at a level; leaves are level 0."""
    width = FAN_IN**level
    return len({leaf // width for leaf in leaves})


def number_of_levels(leaves: Sequence[int]) -> int:
    """The level of the root, the lowest node that covers all leaves."""
    level = 0
    while leaves[0] // FAN_IN**level != leaves[-1] // FAN_IN**level:
        level += 1
    return level


def task_level(leaves: Sequence[int], n_threads: int) -> int:
    """The highest level of the tree with enough nodes to keep all threads busy.

    A task that does a whole node by itself leaves one statistics object instead of ``4**level``. The tree
    is the same at any level, so that the number of threads may decide this without changing a bit.
    """
    level = 0
    while (
        level < number_of_levels(leaves)
        and number_of_nodes(leaves, level + 1) >= GROUPS_PER_THREAD * n_threads
    ):
        level += 1
    return level


def least_level(leaves: Sequence[int], n_threads: int) -> int:
    """The lowest level of the tree with at most ``MOST_TASKS`` nodes, or as many as threads call for."""
    most = max(MOST_TASKS, GROUPS_PER_THREAD * n_threads)
    level = 0
    while number_of_nodes(leaves, level) > most:
        level += 1
    return level


def sum_subtree(
    leaf: Callable[[int], SufficientStatistics], leaves: Sequence[int], *, level: int
) -> SufficientStatistics:
    """The sum over the leaves of one node of `level`, depth first.

    Parameters
    ----------
    leaf : callable
        Gives new statistics for a partition; they are added to in place.
    leaves : sequence of int
        Ascending.
    level : int
        At most ``level + 1`` statistics are alive at any time.
    """
    if level == 0:
        return leaf(leaves[0])
    first, *others = nodes(leaves, level - 1).values()
    total = sum_subtree(leaf, first, level=level - 1)
    for covered in others:
        total.add(sum_subtree(leaf, covered, level=level - 1))
    return total


def add_children(children: list[SufficientStatistics]) -> SufficientStatistics:
    """The sum of a node's children, from left to right, without changing them.

    Children are results of tasks. One that is changed in place would differ when the sum runs again (dask-ml's
    ``_partial_fit`` has this fault). Copying adds to zero, which is exact here, since sums that start from zero
    are never minus zero.
    """
    total = children[0].copy()
    for child in children[1:]:
        total.add(child)
    return total
