"""Clients of a cluster: checks before work begins, and calls that end in time."""

from __future__ import annotations

import contextvars
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError
from dslda.storage.location import is_in_memory

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["ClientLater", "check_client", "check_reach", "release", "spread", "wait_for", "within"]


@dataclass(frozen=True, slots=True)
class ClientLater:
    """A client that is opened when there is work for it, so that bad input is refused before workers start.

    Attributes
    ----------
    open : callable
        Returns the client as a context, which at its end closes the client and everything started for it.
    here : bool
        The workers run on this machine, with the environment of this process.
    """

    open: Callable[[], AbstractContextManager[Client]]
    here: bool


def check_client(client: Any) -> None:
    """Refuse a client that is not Dask's, is asynchronous or closed; accept None and `ClientLater`."""
    if client is None or isinstance(client, ClientLater):
        return
    from distributed import Client

    if not isinstance(client, Client):
        raise InputError(
            f"must be a distributed.Client, got {client!r:.60}",
            parameter="client",
            remedy="make one of an address with Client('tcp://...')",
        )
    if client.asynchronous:
        raise InputError(
            "must not be asynchronous",
            parameter="client",
            remedy="make it with Client(..., asynchronous=False)",
        )
    if client.status != "running":
        raise InputError(
            f"must be connected, got one that is {client.status}", parameter="client", remedy="make a new one"
        )


def check_reach(paths: Iterable[str], client: Client | ClientLater | None) -> None:
    """Refuse a path in the memory of this process if a worker is another process."""
    unseen = next(filter(is_in_memory, paths), None)
    if unseen is None or client is None:
        return
    if not isinstance(client, ClientLater):
        # with the host, since in containers all may be process 1
        processes = client.run(lambda: (os.getpid(), socket.gethostname()))
        if set(processes.values()) <= {(os.getpid(), socket.gethostname())}:
            return
    raise InputError(
        f"{unseen} must be where workers can open it; it is in the memory of this process, and they are other processes",
        remedy=("write it to a folder or URL that all can open", "work in this process, without them"),
    )


def wait_for(client: Client, futures: Sequence[Future[Any]], *, timeout: float) -> None:
    """Wait until all futures are finished or failed.

    Raises
    ------
    TimeoutError
        They take longer than `timeout` seconds.
    CancelledError
        One was cancelled, or lost.
    """
    from distributed import wait

    # `wait` asks the current client, which need not be ours
    with client.as_current():
        wait(futures, timeout=timeout)


def release(futures: Iterable[Future[Any]]) -> None:
    """Let the cluster forget results now, not when the garbage collector finds their futures."""
    for future in futures:
        future.release()


def spread(client: Client, future: Future[Any], *, timeout: float) -> None:
    """Make every worker hold a value, so that none waits for work: tasks go first to the workers that hold their inputs.

    A worker fetches the inputs of its tasks. So one small task on each worker spreads a value as fast as a broadcast,
    which goes on for ever when a worker leaves (distributed#5704). A worker that is busy or hangs holds up the others for
    at most `timeout` seconds.
    """
    workers = list(client.nthreads())
    if len(workers) < 2:
        return
    token = uuid.uuid4().hex
    touches = [
        # loosely pinned, so that a touch whose worker dies runs elsewhere
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
    with suppress(TimeoutError):
        wait_for(client, touches, timeout=timeout)
    release(touches)


def within(
    client: Client, seconds: float, method: Callable[..., Any], *arguments: Any, **keywords: Any
) -> Any:
    """Call a client's method that talks to workers with a time limit, since a worker that hangs never answers.

    Raises
    ------
    TimeoutError
        It takes longer than `seconds`.
    """
    # In the client's event loop a method returns a coroutine. The empty context hides a task of another cluster that we may
    # be in: `scatter` would leave the data with the worker of that task, where no other looks for them.
    return client.sync(
        lambda: contextvars.Context().run(method, *arguments, **keywords), callback_timeout=seconds
    )


def _touch(value: object) -> None:
    pass
