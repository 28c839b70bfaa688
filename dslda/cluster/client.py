"""Clients of a cluster: the user's, and those that are opened when there is work for them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError
from dslda.storage.location import is_in_memory

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClientLater", "check_client", "check_reach"]


@dataclass(frozen=True, slots=True)
class ClientLater:
    """A client that is opened when there is work for it, so that bad input is refused before workers start.

    Attributes
    ----------
    open : callable
        Returns the client as a context, which closes it and all that was started for it.
    here : bool
        Its workers run on this machine, with the environment of this process.
    """

    open: Callable[[], AbstractContextManager[Client]]
    here: bool


def check_client(client: Any) -> None:
    """Refuse a client that cannot be used; None and `ClientLater` pass.

    Raises
    ------
    InputError
        The client is not Dask's, or is asynchronous or closed.
    """
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
    """Refuse workers that cannot open their inputs or outputs, before any starts.

    Parameters
    ----------
    paths : iterable of str
    client : distributed.Client, ClientLater or None
        None works in this process.

    Raises
    ------
    InputError
        A path leads into the memory of this process, and a worker is in another one.
    """
    unseen = next(filter(is_in_memory, paths), None)
    if unseen is None or client is None:
        return
    if not isinstance(client, ClientLater):
        # the process number alone does not do: in containers all may be process 1
        processes = client.run(lambda: (os.getpid(), socket.gethostname()))
        if set(processes.values()) <= {(os.getpid(), socket.gethostname())}:
            return
    raise InputError(
        f"{unseen} must be where workers can open it; it is in the memory of this process, and they are other processes",
        remedy=("write it to a folder or URL that all can open", "work in this process, without them"),
    )
