"""Tasks of an iteration, which run on workers."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    "Held",
    "Reading",
    "add_up",
    "nothing",
    "read_bundle",
    "run_group",
    "take_part",
    "try_partition",
]

Reading = PartitionLoader | TrainingView | None
"""How a task gets a partition: it reads it, takes its view of the block that is passed, or uses that block as it is."""

Held = Mapping[int, Any]
"""What workers keep of partitions, by their numbers: a block, or a list of the blocks from that number on."""


@dataclass(frozen=True, slots=True)
class GroupTask:
    """The part of a task that is the same in every iteration, for a node of the tree of sums.

    Attributes
    ----------
    start : int
        The first partition of the node.
    level : int
        Level of the node.
    descriptions : tuple of str
        Each partition of the node in words, for errors.
    readings : tuple of PartitionLoader, TrainingView or None
        How to get each partition of the node.
    topic : str
        The topic on which to report partitions that are done.
    family : Family
    spec : FitSpec
    """

    start: int
    level: int
    descriptions: tuple[str, ...]
    readings: tuple[Reading, ...]
    topic: str
    family: Family
    spec: FitSpec

    def packed(self) -> bytes:
        """The task as bytes, to be made once: turning thousands of loaders into bytes takes seconds."""
        import cloudpickle  # for a family of the user's own script

        pickled: bytes = cloudpickle.dumps(self)
        return pickled


def nothing() -> None:
    """A task that makes an adaptive cluster without workers start some."""


def read_bundle(loaders: Sequence[PartitionLoader], descriptions: Sequence[str]) -> list[TrainingBlock]:
    """Read neighbouring partitions to keep them on this worker."""
    worker = _usable_worker()
    blocks = []
    for loader, description in zip(loaders, descriptions, strict=True):
        with noting(f"reading {description} on worker {worker.address}"):
            blocks.append(loader())
    return blocks


def run_group(
    held: Held, parameters: Sequence[Parameters], packed: bytes, partitions: Sequence[int], attempt: str
) -> SufficientStatistics:
    """The E-step of partitions of a node and their sum, in place: one object to hold and move, not many.

    Parameters
    ----------
    held : mapping of int to list or block
        See :data:`Held`; empty where the task reads its partitions.
    parameters : sequence of Parameters
    packed : bytes
        A :class:`GroupTask`.
    partitions : sequence of int
        The partitions of the node to go over, ascending.
    attempt : str
        Reported with every partition that is done.
    """
    worker = _usable_worker()
    topics = ParameterParts(parameters)
    task: GroupTask = pickle.loads(packed)

    def leaf(partition: int) -> SufficientStatistics:
        with noting(f"E-step of {task.descriptions[partition - task.start]} on worker {worker.address}"):
            statistics = run_partition(blocks.take(), topics, task.family, task.spec)
        report_partition(worker, task.topic, attempt, partition, statistics.n_documents)
        return statistics

    with ReadAhead(_readers(held, task, partitions)) as blocks:
        return sum_subtree(leaf, partitions, level=task.level)


def take_part(statistics: SufficientStatistics, start: int, stop: int) -> SufficientStatistics:
    """The part of statistics for a range of the terms, if the whole is too large to send or to add up at once."""
    _usable_worker()
    return statistics.part(start, stop)


def add_up(children: list[SufficientStatistics]) -> SufficientStatistics:
    """A node of the tree above those that tasks compute; see :func:`~dslda.engine.reduction.add_children`."""
    _usable_worker()
    return add_children(children)


def try_partition(held: Held, parameters: Sequence[Parameters], packed: bytes) -> None:
    """The E-step of one partition, only to see whether its worker survives."""
    _usable_worker()
    task: GroupTask = pickle.loads(packed)
    (reader,) = _readers(held, task, [task.start])
    run_partition(reader(), ParameterParts(parameters), task.family, task.spec)


def _usable_worker() -> Worker:
    """The worker of this task, if it is prepared to give the same bits as all others."""
    worker = get_worker()
    # a worker that joins later goes on when one of its plugins fails
    plugin = worker.plugins.get(PLUGIN_NAME)
    if plugin is None:
        raise EngineError(
            f"worker {worker.address} must be prepared by dslda's plugin before it works, got none",
            remedy="let no other program take the plugins of this cluster away while a fit runs",
        )
    problem: EngineError | None = plugin.problem
    if problem is not None:
        raise copy.copy(problem)  # notes on it are of one task
    return worker


def _readers(held: Held, task: GroupTask, partitions: Sequence[int]) -> Iterator[Callable[[], TrainingBlock]]:
    blocks: dict[int, Any] = {}
    for first, kept in held.items():
        blocks.update(enumerate(kept, first) if isinstance(kept, list) else [(first, kept)])
    return (partial(_block, blocks.get(i), task.readings[i - task.start]) for i in partitions)


def _block(block: Any, reading: Reading) -> TrainingBlock:
    if isinstance(reading, PartitionLoader):
        return reading()
    viewed: TrainingBlock = block if reading is None else reading(block)
    return viewed
