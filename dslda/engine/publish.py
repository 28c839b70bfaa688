"""Getting the parameters to every worker."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from dslda.engine.futures import wait_for
from dslda.engine.recovery import WorkersLostError
from dslda.variational.parameters import Parameters

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["publish", "publish_recomputable"]


def publish(client: Client, parameters: Parameters, *, timeout: float) -> Future[Parameters]:
    """Send `parameters` to all workers.

    Returns
    -------
    Future of Parameters
        The caller drops it after the iteration, so that nothing of it stays on the cluster
        (distributed#809: there is no other way to forget where a result came from).

    Raises
    ------
    WorkersLostError, OSError, CancelledError
        A worker died meanwhile, or it took more than `timeout` seconds.
    """
    try:
        # hash=False: keys made from content race with the release of an array of the same content
        # (distributed#3703, #4612, #8576). No broadcast=True: its loop has no exit when a worker leaves
        # (distributed#5704), and the memory manager drops the replicas (distributed#8657, #8796).
        future = client.scatter(parameters, hash=False, timeout=timeout)
    except KeyError as error:
        # what scatter raises when the worker it sends to is gone
        raise WorkersLostError("a worker left while parameters were sent to it") from error
    workers = list(client.nthreads())
    if len(workers) > 1:
        token = uuid.uuid4().hex
        # A worker that runs a task which needs the parameters fetches them: one touch on each spreads them
        # as fast as a broadcast. Loosely pinned, so that a touch whose worker dies runs elsewhere.
        touches = [
            client.submit(
                _touch,
                future,
                key=(f"dslda-touch-{token}", i),
                workers=[worker],
                allow_other_workers=True,
                priority=1000,
            )
            for i, worker in enumerate(workers)
        ]
        wait_for(client, touches, timeout=timeout)
    return future


def publish_recomputable(client: Client, parameters: Parameters) -> Future[Parameters]:
    """Send `parameters` such that they outlive every worker, at the price of a copy on the scheduler.

    For an iteration it is enough to notice that they are lost; for looking into what makes workers die, not.
    """
    import dask.config

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
        return client.submit(_identity, parameters, key=f"dslda-parameters-{uuid.uuid4().hex}")


def _touch(parameters: Parameters) -> None:
    pass


def _identity(parameters: Parameters) -> Parameters:
    return parameters
