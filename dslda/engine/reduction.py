"""The tree in which the statistics of partitions are added up.

Floating-point sums depend on their order, so only the numbers of the partitions define the tree: node ``j`` of level ``l``
covers partitions ``j * 4**l`` to ``(j + 1) * 4**l - 1`` and adds up its children from left to right. The tree of a subset is
the same tree without the nodes that cover none of it. So all executors get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

from dslda.variational.sums import Sums

__all__ = [
    "FAN_IN",
    "add_children",
    "least_level",
    "lowest_level",
    "nodes",
    "number_of_levels",
    "number_of_nodes",
    "sum_subtree",
    "task_level",
]

S = TypeVar("S", bound=Sums)

FAN_IN = 4
"""Not an option, since results depend on it. Two needs more levels; eight holds more statistics at once."""

GROUPS_PER_THREAD = 6
"""Fewest tasks of an iteration for each thread: fewer leave threads idle at its end, and more add overhead."""

MOST_TASKS = 1024
"""Most tasks of an iteration, unless the threads need more, and most futures of partitions in memory. Each costs client and
scheduler some milliseconds."""


def nodes(leaves: Sequence[int], level: int) -> dict[int, list[int]]:
    """The nodes of a level by number, each with its leaves; `leaves` ascend."""
    width = FAN_IN**level
    return {node: list(covered) for node, covered in groupby(leaves, key=lambda leaf: leaf // width)}


def number_of_nodes(leaves: Sequence[int], level: int) -> int:
    """Number of nodes of a level; leaves are level 0."""
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

    A task that computes a whole node leaves one statistics object instead of ``4**level``. The tree is the same at any
    level, so that the number of threads changes no bit.
    """
    level = 0
    most = number_of_levels(leaves)
    while level < most and number_of_nodes(leaves, level + 1) >= GROUPS_PER_THREAD * n_threads:
        level += 1
    return level


def least_level(leaves: Sequence[int], n_threads: int) -> int:
    """The lowest level of the tree with at most ``MOST_TASKS`` nodes, or as many as the threads need."""
    return lowest_level(leaves, max(MOST_TASKS, GROUPS_PER_THREAD * n_threads))


def lowest_level(leaves: Sequence[int], most: int) -> int:
    """The lowest level of the tree with at most so many nodes, of at least 1."""
    level = 0
    while number_of_nodes(leaves, level) > most:
        level += 1
    return level


def sum_subtree(leaf: Callable[[int], S], leaves: Sequence[int], *, level: int) -> S:
    """The sum over the ascending leaves of one node of `level`, depth first, with ``level + 1`` statistics at a time.

    `leaf` returns new statistics for a partition, which are changed in place.
    """
    if level == 0:
        return leaf(leaves[0])
    first, *others = nodes(leaves, level - 1).values()
    total = sum_subtree(leaf, first, level=level - 1)
    for group in others:
        total.add(sum_subtree(leaf, group, level=level - 1))
    return total


def add_children(children: list[S]) -> S:
    """The sum of a node's children, from left to right, without changing them.

    Children are results of tasks; if changed, they differ when the sum runs again (a fault of dask-ml's ``_partial_fit``).
    Copying adds to zero, which is exact here, since sums that start from zero are never minus zero.
    """
    total = children[0].copy()
    for child in children[1:]:
        total.add(child)
    return total
