"""A scheduler that hangs: it takes what is sent to it, and never answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dslda.config import EngineSettings
from dslda.exceptions import DsldaError, EngineError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["no_scheduler", "told", "watched", "why_closed"]

SLICE_SECONDS = 0.5
INTERVAL_SECONDS = 5.0
"""Between an answer and the next question."""

CLOSE_SECONDS = 10.0
"""For a client without connections to close."""

_given_up: WeakKeyDictionary[Client, str] = WeakKeyDictionary()


@contextmanager
def watched(client: Client) -> Iterator[None]:
    """Close a client when its scheduler answers no question for the setting ``dslda.engine.scheduler-timeout``.

    Whatever waits for the scheduler has no limit of its own in Dask, and ends with some error when the client closes.
    A scheduler that is dead, or whose machine is, is Dask's own to find.

    Raises
    ------
    EngineError
        See :func:`told`.
    """
    patience = EngineSettings.load().scheduler_timeout
    watch = asyncio.run_coroutine_threadsafe(_watch(client, patience), client.loop.asyncio_loop)
    try:
        with told(client):
            yield
    finally:
        if client in _given_up:
            with suppress(Exception):  # it is closing the client
                watch.result(2 * CLOSE_SECONDS)
        watch.cancel()


@contextmanager
def told(client: Client) -> Iterator[None]:
    """Say that the scheduler is lost, in the place of what a client without one says, which may be anything.

    Raises
    ------
    EngineError
        In the place of an error that is none of dslda, when the client is closed, or looks for its scheduler.
    """
    try:
        yield
    except DsldaError:
        raise
    except Exception as error:
        if client.status == "running":
            raise
        raise EngineError(no_scheduler(client)) from error


def no_scheduler(client: Client) -> str:
    """What to say of a client that has lost its scheduler, in the place of what came of it somewhere."""
    busy = ", or raise the setting dslda.engine.scheduler-timeout where it is only busy"
    return (
        f"a cluster must have a scheduler that answers, got none: {why_closed(client)}; start one and run this again"
        f"{busy if client in _given_up else ''}"
    )


def why_closed(client: Client) -> str:
    """Why a client has lost its scheduler, in words."""
    return _given_up.get(client, "the connection to the scheduler is gone")


async def _watch(client: Client, patience: float) -> None:
    silent = 0.0
    length = min(SLICE_SECONDS, patience / 4)
    while client.status not in ("closing", "closed"):
        question = asyncio.ensure_future(_ask(client))
        try:
            while silent < patience:
                done, _ = await asyncio.wait([question], timeout=length)
                if done:
                    break
                # not by the clock: what holds up this process, or stops it, is not the scheduler's silence
                silent += length
        finally:
            question.cancel()
        if question.done() and not question.cancelled() and question.result():
            silent = 0.0
            await asyncio.sleep(min(INTERVAL_SECONDS, patience / 4))
        elif silent < patience:  # no connection: Dask makes a new one, or gives up
            silent += length
            await asyncio.sleep(length)
        else:
            await _give_up(client, patience)


async def _ask(client: Client) -> bool:
    """Whether the scheduler answers a question that costs it nothing."""
    with suppress(Exception):
        await client.scheduler.ncores(workers=[])
        return True
    return False


async def _give_up(client: Client, patience: float) -> None:
    address = client.scheduler.address if client.scheduler is not None else "an address that is gone"
    _given_up[client] = f"the scheduler at {address} has answered no question for {patience:.0f} seconds"
    # Whoever writes to one that does not read waits as well, also to close in order: so connections are cut. What waits
    # for an answer ends by that, and what waits for futures as they are released.
    if client.scheduler_comm is not None:
        client.scheduler_comm.abort()
    for comms in (*client.rpc.occupied.values(), *client.rpc.available.values()):
        for comm in list(comms):
            comm.abort()
    with suppress(Exception):
        await client.close(timeout=CLOSE_SECONDS)
