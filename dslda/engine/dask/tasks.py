"""Tasks of an iteration, run by workers."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from distributed import Worker, get_worker

from dslda.engine.dask.plugin import PLUGIN_NAME
from dslda.engine.data.training_view import PartitionLoader, TrainingBlock, TrainingView
from dslda.engine.executor import noting, read_ahead
from dslda.engine.passes import Pass
from dslda.engine.reduction import add_children, sum_subtree
from dslda.exceptions import EngineError
from dslda.families.base import Family
from dslda.variational.parameter_parts import ParameterParts
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.sums import Sums

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

S = TypeVar("S", bound=Sums)

Reading = PartitionLoader | TrainingView | None
"""A task's access to a partition: a loader that reads it, a view of the block that the task gets, or that block itself."""

Held = Mapping[int, Any]
"""Partitions that workers keep, by number: a block, or a list of the blocks from that number on."""


@dataclass(frozen=True, slots=True)
class GroupTask:
    """The part of a task that is the same in every iteration, for a node of the tree of sums.

    Attributes
    ----------
    start, level : int
        The first partition of the node, and its level.
    descriptions : tuple of str
        Names of the partitions of the node, for errors.
    readings : tuple of PartitionLoader, TrainingView or None
        Access to each partition of the node.
    topic : str
        The topic on which to report partitions that are done.
    """

    start: int
    level: int
    descriptions: tuple[str, ...]
    readings: tuple[Reading, ...]
    topic: str
    family: Family
    spec: FitSpec


def nothing() -> None:
    """Make an adaptive cluster without workers start some."""


def read_bundle(loaders: Sequence[PartitionLoader], descriptions: Sequence[str]) -> list[TrainingBlock]:
    """Read neighbouring partitions to keep them on this worker."""
    worker = _usable_worker()
    blocks = []
    for loader, description in zip(loaders, descriptions, strict=True):
        with noting(f"reading {description} on worker {worker.address}"):
            blocks.append(loader())
    return blocks


def run_group(
    held: Held,
    parameters: Sequence[Parameters],
    packed: bytes,
    partitions: Sequence[int],
    attempt: str,
    work: Pass[S],
) -> S:
    """Run a pass over ascending partitions of a node and sum in place: one object to hold and move, not many.

    `held` is empty if the task reads its partitions. `packed` is a pickled :class:`GroupTask`. The worker reports `attempt`
    with every partition that is done.
    """
    worker = _usable_worker()
    topics = ParameterParts(parameters)
    task: GroupTask = pickle.loads(packed)

    def leaf(partition: int) -> S:
        with noting(f"E-step of {task.descriptions[partition - task.start]} on worker {worker.address}"):
            sums = work(next(blocks), topics, task.family, task.spec)
        # An event, since a client that follows leaves by their futures would keep all their statistics in memory.
        event = {"attempt": attempt, "partition": partition, "documents": sums.n_documents}
        worker.log_event(task.topic, event)
        return sums

    with closing(read_ahead(_readers(held, task, partitions))) as blocks:
        return sum_subtree(leaf, partitions, level=task.level)


def take_part(sums: S, start: int, stop: int) -> S:
    """Cut out a range of the terms, if the whole is too large to send or to add up at once."""
    _usable_worker()
    return sums.part(start, stop)


def add_up(children: list[S]) -> S:
    """Sum a node of the tree above those that :func:`run_group` computes."""
    _usable_worker()
    return add_children(children)


def try_partition(held: Held, parameters: Sequence[Parameters], packed: bytes, work: Pass[Sums]) -> None:
    """Run a pass over one partition, only to see whether its worker survives."""
    _usable_worker()
    task: GroupTask = pickle.loads(packed)
    (reader,) = _readers(held, task, [task.start])
    work(reader(), ParameterParts(parameters), task.family, task.spec)


def _usable_worker() -> Worker:
    """The worker of this task, if it is prepared so that it computes the same bits as all others."""
    worker = get_worker()
    # a worker that joins later keeps running if one of its plugins fails
    plugin = worker.plugins.get(PLUGIN_NAME)
    if plugin is None:
        raise EngineError(
            f"worker {worker.address} must be prepared by dslda's plugin before it works, got none",
            remedy="let no other program take the plugins of this cluster away while a fit runs",
        )
    problem: EngineError | None = plugin.problem
    if problem is not None:
        raise copy.copy(problem)  # a copy, since notes belong to one task
    return worker


def _readers(held: Held, task: GroupTask, partitions: Sequence[int]) -> Iterator[Callable[[], TrainingBlock]]:
    blocks: dict[int, Any] = {}
    for start, data in held.items():
        blocks.update(enumerate(data, start) if isinstance(data, list) else [(start, data)])
    return (partial(_block, blocks.get(i), task.readings[i - task.start]) for i in partitions)


def _block(block: Any, reading: Reading) -> TrainingBlock:
    if isinstance(reading, PartitionLoader):
        return reading()
    viewed: TrainingBlock = block if reading is None else reading(block)
    return viewed
