"""Publication of parameters to every worker."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from dslda.cluster.client import release, spread, within
from dslda.engine.dask.recovery import WorkersLostError
from dslda.variational.parameter_parts import as_sent
from dslda.variational.parameters import Parameters

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["number_of_parts", "publish", "publish_recomputable"]

LARGEST_MESSAGE = 1 << 30
"""Bytes of the largest matrix that is sent in one piece."""

PART_BYTES = 256 << 20
"""Bytes of each part of a larger matrix. Sending takes the memory of one more part, not of one more matrix."""


def number_of_parts(n_terms: int, n_topics: int) -> int:
    """Number of parts, by ranges of the terms, in which to send a matrix of n_terms x n_topics doubles."""
    size = 8 * n_terms * n_topics
    return 1 if size <= LARGEST_MESSAGE else min(-(-size // PART_BYTES), n_terms)


def publish(
    client: Client, parameters: Parameters, *, n_parts: int, float32: bool, timeout: float, everywhere: bool
) -> list[Future[Parameters]]:
    """Send `parameters` to a worker; return a future of each part.

    Other workers fetch them for their tasks. With `everywhere` all do now, and no task goes to the first worker only because
    it has them. Tasks that are pinned to their workers need no such round trip.

    The caller releases them after the iteration (distributed#809: a result keeps its lineage until it is released).

    Raises
    ------
    WorkersLostError, OSError, CancelledError
        A worker died meanwhile, or did not receive a part within `timeout` seconds.
    """
    futures: list[Future[Parameters]] = []
    try:
        for part in as_sent(parameters, n_parts, float32=float32):
            # hash=False: keys made from content race with the release of an array of the same content
            # (distributed#3703, #4612, #8576). No broadcast=True: its loop has no exit when a worker leaves
            # (distributed#5704), and the memory manager drops the replicas (distributed#8657, #8796).
            # The timeout of scatter limits only the wait for a worker; sending to one that hangs has no limit.
            futures.append(within(client, timeout, client.scatter, part, hash=False, timeout=timeout))
            if everywhere:
                spread(client, futures[-1], timeout=timeout)
    except BaseException as error:
        release(futures)
        if isinstance(error, KeyError):  # from scatter, when its worker is gone
            raise WorkersLostError("a worker left while parameters were sent to it") from error
        raise
    return futures


def publish_recomputable(
    client: Client, parameters: Parameters, *, n_parts: int, float32: bool
) -> list[Future[Parameters]]:
    """Send `parameters` so that they outlive every worker, at the price of a copy on the scheduler.

    An iteration can start again when its parameters are lost; a search for the cause of crashes cannot.
    """
    import dask.config

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
        return [
            client.submit(_identity, part, key=f"dslda-parameters-{uuid.uuid4().hex}")
            for part in as_sent(parameters, n_parts, float32=float32)
        ]


def _identity(parameters: Parameters) -> Parameters:
    return parameters
