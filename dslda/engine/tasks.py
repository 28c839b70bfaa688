"""The functions that run on workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from distributed import Worker, get_worker

from dslda.engine.events import report_partition
from dslda.engine.executor import noting, run_partition
from dslda.engine.plugin import PLUGIN_NAME
from dslda.engine.read_ahead import ReadAhead
from dslda.engine.reduction import add_children, sum_subtree
from dslda.engine.sources import PartitionLoader, TrainingBlock, TrainingView
from dslda.exceptions import EngineError
from dslda.families.base import Family
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.parts import ParameterParts
from dslda.variational.statistics import SufficientStatistics

__all__ = ["GroupTask", "add_up", "read_partition", "run_group", "take_part", "try_partition"]


@dataclass(frozen=True, slots=True)
class GroupTask:
    """What a task is told of the partitions it goes over: a whole node of the tree of sums.

    Attributes
    ----------
    start, stop : int
        Partitions ``start`` to ``stop - 1``.
    level : int
        Level of the node.
    descriptions : tuple of str
        Each partition in words, for errors.
    topic, attempt : str
        Where to report partitions that are done.
    family : Family
    spec : FitSpec
    """

    start: int
    stop: int
    level: int
    descriptions: tuple[str, ...]
    topic: str
    attempt: str
    family: Family
    spec: FitSpec


def read_partition(loader: PartitionLoader, description: str) -> TrainingBlock:
    """Read a partition to keep it on this worker."""
    with noting(f"reading {description} on worker {_usable_worker().address}"):
        return loader()


def run_group(
    parts: Sequence[Any],
    views: Sequence[TrainingView | None],
    parameters: Sequence[Parameters],
    task: GroupTask,
) -> SufficientStatistics:
    """The E-step of a node's partitions and their sum, in place: one object to hold and move, not many."""
    worker = _usable_worker()
    topics = ParameterParts(parameters)
    readers = [partial(_block, part, view) for part, view in zip(parts, views, strict=True)]

    def leaf(partition: int) -> SufficientStatistics:
        offset = partition - task.start
        with noting(f"E-step of {task.descriptions[offset]} on worker {worker.address}"):
            block = blocks.take(offset)
            statistics = run_partition(block, topics, task.family, task.spec)
        report_partition(worker, task.topic, task.attempt, partition, statistics.n_documents)
        return statistics

    with ReadAhead(readers) as blocks:
        return sum_subtree(leaf, task.start, task.stop, level=task.level)


def take_part(statistics: SufficientStatistics, start: int, stop: int) -> SufficientStatistics:
    """What belongs to a range of the terms, for statistics that are too large to send or to add up at once."""
    _usable_worker()
    return statistics.part(start, stop)


def add_up(children: Sequence[SufficientStatistics]) -> SufficientStatistics:
    """A node of the tree above those that tasks compute; see :func:`~dslda.engine.reduction.add_children`."""
    _usable_worker()
    return add_children(children)


def try_partition(
    part: Any, view: TrainingView | None, parameters: Sequence[Parameters], task: GroupTask
) -> None:
    """The E-step of one partition for nothing but to see whether its worker survives."""
    _usable_worker()
    run_partition(_block(part, view), ParameterParts(parameters), task.family, task.spec)


def _usable_worker() -> Worker:
    """The worker of this task, which must give the bits that any other gives."""
    worker = get_worker()
    # A worker that joins later runs its plugins too, but goes on when one of them fails.
    plugin = worker.plugins.get(PLUGIN_NAME)
    if plugin is None:
        raise EngineError(
            f"worker {worker.address} must be prepared by dslda's plugin before it works, got none; let no other "
            "program take the plugins of this cluster away while a fit runs"
        )
    problem: str | None = plugin.problem
    if problem is not None:
        raise EngineError(problem)
    return worker


def _block(part: Any, view: TrainingView | None) -> TrainingBlock:
    if isinstance(part, PartitionLoader):
        return part()
    block: TrainingBlock = part if view is None else view(part)
    return block
