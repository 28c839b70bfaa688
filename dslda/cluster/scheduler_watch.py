"""Watch over schedulers that hang: they accept messages but never answer."""

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

__all__ = ["no_scheduler", "reporting_loss", "watched", "why_closed"]

SLICE_SECONDS = 0.5
INTERVAL_SECONDS = 5.0
"""Time between an answer and the next question."""

CLOSE_SECONDS = 10.0
"""Time for a client without connections to close."""

_given_up: WeakKeyDictionary[Client, str] = WeakKeyDictionary()


@contextmanager
def watched(client: Client) -> Iterator[None]:
    """Close a client whose scheduler answers no question for ``dslda.engine.scheduler-timeout``.

    Dask waits for a scheduler without limit; the wait ends with some error when the client closes. Dask itself notices
    when a scheduler or its machine is dead.

    Raises
    ------
    EngineError
        See :func:`reporting_loss`.
    """
    patience = EngineSettings.load().scheduler_timeout
    watch = asyncio.run_coroutine_threadsafe(_watch(client, patience), client.loop.asyncio_loop)
    try:
        with reporting_loss(client):
            yield
    finally:
        if client in _given_up:
            with suppress(Exception):  # it is closing the client
                watch.result(2 * CLOSE_SECONDS)
        watch.cancel()


@contextmanager
def reporting_loss(client: Client) -> Iterator[None]:
    """Replace any error of a client without a scheduler, except dslda's own, with an EngineError that says so."""
    try:
        yield
    except DsldaError:
        raise
    except Exception as error:
        if client.status == "running":
            raise
        raise no_scheduler(client) from error


def no_scheduler(client: Client, *, during: str = "") -> EngineError:
    """The error of a client that has lost its scheduler; it replaces the errors that follow from the loss."""
    remedy = ["start one and run this again"]
    if client in _given_up:
        remedy.append("raise the setting dslda.engine.scheduler-timeout if it is only busy")
    return EngineError(
        f"{during}a cluster must have a scheduler that answers, got none: {why_closed(client)}",
        remedy=remedy,
    )


def why_closed(client: Client) -> str:
    """The reason that a client has lost its scheduler."""
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
                # not by the clock, since time in which this process was held up or stopped is not the scheduler's silence
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
    """Return whether the scheduler answers a question that costs it nothing."""
    with suppress(Exception):
        await client.scheduler.ncores(workers=[])
        return True
    return False


async def _give_up(client: Client, patience: float) -> None:
    address = client.scheduler.address if client.scheduler is not None else "an address that is gone"
    _given_up[client] = f"the scheduler at {address} has answered no question for {patience:.0f} seconds"
    # A writer waits too if nobody reads, even for an orderly close. So connections are cut, which ends waits for an answer;
    # waits for futures end when these are released.
    if client.scheduler_comm is not None:
        client.scheduler_comm.abort()
    for comms in (*client.rpc.occupied.values(), *client.rpc.available.values()):
        for comm in list(comms):
            comm.abort()
    with suppress(Exception):
        await client.close(timeout=CLOSE_SECONDS)
