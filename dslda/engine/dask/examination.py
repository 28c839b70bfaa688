"""Examination of partitions, to find one that crashes its workers."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dslda.cluster.futures import release, wait_for
from dslda.engine.dask.placement import Partitions
from dslda.engine.dask.tasks import try_partition
from dslda.variational.parameters import Parameters

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["deadly_partition"]

logger = logging.getLogger("dslda.engine")


def deadly_partition(
    client: Client,
    partitions: Partitions,
    task: Callable[[int], bytes],
    publish: Callable[[], list[Future[Parameters]]],
    *,
    suspects: Sequence[int],
    timeout: float,
) -> int | None:
    """The partition that crashes its worker, None if all run without a crash.

    The task that Dask names is often not the culprit: all tasks assigned to a dead worker are blamed
    (distributed#5234), above all those pinned to it. So every partition runs by itself, and those that fail run once
    more, alone on the cluster. Their statistics are thrown away.

    Parameters
    ----------
    client : distributed.Client
    partitions : Partitions
        Dropped, so that none is being read: that may be what brings workers down.
    task : callable
        Gives the packed :class:`~dslda.engine.dask.tasks.GroupTask` of a partition.
    publish : callable
        Sends parameters that outlive workers: see :func:`~dslda.engine.dask.publish.publish_recomputable`.
    suspects : sequence of int
        The partitions to run.
    timeout : float
        Seconds for each round.
    """
    from distributed import KilledWorker

    logger.warning("looking for a partition that crashes its worker")
    token = uuid.uuid4().hex[:8]

    def crashing(numbers: Sequence[int], round_: str) -> list[int]:
        published = publish()
        trials = []
        try:
            for i in numbers:
                key = (f"dslda-try-{token}", round_, i)
                trials.append(client.submit(try_partition, partitions.held([i]), published, task(i), key=key))
            wait_for(client, trials, timeout=timeout)
            outcomes = [trial.exception() if trial.status == "error" else None for trial in trials]
            # if the parameters were on the dying workers, all tasks that need them have this outcome
            return [
                i
                for i, trial, outcome in zip(numbers, trials, outcomes, strict=True)
                if isinstance(outcome, KilledWorker) and outcome.task == trial.key
            ]
        finally:
            release([*trials, *published])

    failed = crashing(suspects, "all")
    # alone even if it is the only one, since workers may have died for reasons of their own
    return next((i for i in failed if crashing([i], f"alone-{i}")), None)
