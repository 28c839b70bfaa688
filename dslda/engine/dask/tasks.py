"""The functions that run on workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from distributed import Worker, get_worker

from dslda.engine.dask.events import report_partition
from dslda.engine.dask.plugin import PLUGIN_NAME
from dslda.engine.data.read_ahead import ReadAhead
from dslda.engine.data.training_view import PartitionLoader, TrainingBlock, TrainingView
from dslda.engine.executor import noting, run_partition
from dslda.engine.reduction import add_children, sum_subtree
from dslda.exceptions import EngineError
from dslda.families.base import Family
from dslda.variational.parameter_parts import ParameterParts
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics

__all__ = [
    "GroupTask",
    "Reading",
    "add_up",
    "nothing",
    "read_bundle",
    "run_group",
    "take_part",
    "try_partition",
]

Reading = PartitionLoader | TrainingView | None
"""How a task comes by a partition: it reads it, takes its view of a block it is given, or that block as it is."""


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
    readings : tuple of PartitionLoader, TrainingView or None
        How to come by each partition.
    topic : str
        Where to report partitions that are done.
    family : Family
    spec : FitSpec
    """

    start: int
    stop: int
    level: int
    descriptions: tuple[str, ...]
    readings: tuple[Reading, ...]
    topic: str
    family: Family
    spec: FitSpec

    def packed(self) -> bytes:
        """For sending: the same in every iteration, and turning thousands of loaders into bytes takes seconds."""
        import cloudpickle  # for a family of the user's own script

        written: bytes = cloudpickle.dumps(self)
        return written


def nothing() -> None:
    """A task for a cluster that has no worker and starts some when there are tasks."""


def read_bundle(loaders: Sequence[PartitionLoader], descriptions: Sequence[str]) -> list[TrainingBlock]:
    """Read neighbouring partitions to keep them on this worker."""
    worker = _usable_worker()
    blocks = []
    for loader, description in zip(loaders, descriptions, strict=True):
        with noting(f"reading {description} on worker {worker.address}"):
            blocks.append(loader())
    return blocks


def run_group(
    held: Sequence[Any], parameters: Sequence[Parameters], packed: bytes, attempt: str
) -> SufficientStatistics:
    """The E-step of a node's partitions and their sum, in place: one object to hold and move, not many.

    Parameters
    ----------
    held : sequence
        Blocks of the partitions in turn, or lists of them; none where the task reads its partitions.
    parameters : sequence of Parameters
    packed : bytes
        A :class:`GroupTask`.
    attempt : str
        Told with every partition that is done.
    """
    worker = _usable_worker()
    topics = ParameterParts(parameters)
    task: GroupTask = pickle.loads(packed)
    readers = _readers(held, task)

    def leaf(partition: int) -> SufficientStatistics:
        offset = partition - task.start
        with noting(f"E-step of {task.descriptions[offset]} on worker {worker.address}"):
            block = blocks.take(offset)
            statistics = run_partition(block, topics, task.family, task.spec)
        report_partition(worker, task.topic, attempt, partition, statistics.n_documents)
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


def try_partition(held: Sequence[Any], parameters: Sequence[Parameters], packed: bytes) -> None:
    """The E-step of one partition for nothing but to see whether its worker survives."""
    _usable_worker()
    task: GroupTask = pickle.loads(packed)
    (reader,) = _readers(held, task)
    run_partition(reader(), ParameterParts(parameters), task.family, task.spec)


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


def _readers(held: Sequence[Any], task: GroupTask) -> list[Callable[[], TrainingBlock]]:
    blocks = [block for part in held for block in (part if isinstance(part, list) else [part])]
    if not blocks:
        blocks = [None] * len(task.readings)
    return [partial(_block, block, reading) for block, reading in zip(blocks, task.readings, strict=True)]


def _block(held: Any, reading: Reading) -> TrainingBlock:
    if isinstance(reading, PartitionLoader):
        return reading()
    block: TrainingBlock = held if reading is None else reading(held)
    return block
