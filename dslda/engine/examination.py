"""Which partition brings its workers down."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslda.engine.futures import release, wait_for
from dslda.engine.placement import Partitions
from dslda.engine.tasks import GroupTask, try_partition
from dslda.variational.parameters import Parameters

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["deadly_partition"]

logger = logging.getLogger("dslda.engine")


def deadly_partition(
    client: Client,
    partitions: Partitions,
    tasks: Sequence[GroupTask],
    published: list[Future[Parameters]],
    *,
    timeout: float,
) -> int | None:
    """The partition that crashes its worker, None if all are run without a crash.

    The task that Dask names is often not the one that did it: all tasks assigned to a dead worker are
    blamed (distributed#5234), above all those pinned to it. So every partition is run by itself, its
    statistics thrown away, and those that fail once more alone on the cluster.

    Parameters
    ----------
    client : distributed.Client
    partitions : Partitions
        None of which is being read: that may be what brings workers down.
    tasks : sequence of GroupTask
        One for each partition.
    published : list of Future of Parameters
        That outlive workers: see :func:`~dslda.engine.publish.publish_recomputable`.
    timeout : float
        Seconds for each of the two rounds.
    """
    from distributed import KilledWorker

    logger.warning("looking for a partition that crashes its worker")
    token = uuid.uuid4().hex[:8]

    def suspects(numbers: Sequence[int], round_: str) -> list[int]:
        trials = [
            client.submit(
                try_partition,
                *partitions.argument(i, kept=False),
                published,
                tasks[i],
                key=(f"dslda-try-{token}", round_, i),
            )
            for i in numbers
        ]
        wait_for(client, trials, timeout=timeout)
        outcomes = [trial.exception() if trial.status == "error" else None for trial in trials]
        release(trials)
        return [i for i, outcome in zip(numbers, outcomes, strict=True) if isinstance(outcome, KilledWorker)]

    found = suspects(range(len(tasks)), "all")
    if len(found) > 1:
        found = next(([i] for i in found if suspects([i], f"alone-{i}")), [])
    return found[0] if found else None
