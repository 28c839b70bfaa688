"""Which partition brings its workers down."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dslda.cluster.futures import release, wait_for
from dslda.engine.dask.placement import Partitions
from dslda.engine.dask.tasks import Reading, try_partition
from dslda.variational.parameters import Parameters

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["deadly_partition"]

logger = logging.getLogger("dslda.engine")


def deadly_partition(
    client: Client,
    partitions: Partitions,
    task: Callable[[int, Sequence[Reading]], bytes],
    publish: Callable[[], list[Future[Parameters]]],
    *,
    n_partitions: int,
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
    task : callable
        Packs the :class:`~dslda.engine.dask.tasks.GroupTask` of a partition that is read so.
    publish : callable
        Gives parameters that outlive workers: see :func:`~dslda.engine.dask.publish.publish_recomputable`.
    n_partitions : int
    timeout : float
        Seconds for each round.
    """
    from distributed import KilledWorker

    logger.warning("looking for a partition that crashes its worker")
    token = uuid.uuid4().hex[:8]

    def suspects(numbers: Sequence[int], round_: str) -> list[int]:
        published = publish()
        trials = []
        try:
            for i in numbers:
                held, readings = partitions.argument(range(i, i + 1), kept=False)
                key = (f"dslda-try-{token}", round_, i)
                trials.append(client.submit(try_partition, held, published, task(i, readings), key=key))
            wait_for(client, trials, timeout=timeout)
            outcomes = [trial.exception() if trial.status == "error" else None for trial in trials]
            # where the parameters are what was on dying workers, that is the outcome of all that need them
            return [
                i
                for i, trial, outcome in zip(numbers, trials, outcomes, strict=True)
                if isinstance(outcome, KilledWorker) and outcome.task == trial.key
            ]
        finally:
            release([*trials, *published])

    found = suspects(range(n_partitions), "all")
    # by itself even if it is the only one: workers may have died for reasons of their own
    return next((i for i in found if suspects([i], f"alone-{i}")), None)
