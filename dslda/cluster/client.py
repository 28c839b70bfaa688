"""Clients that users give, and those that are opened when there is work for them."""

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
    """A client that is opened when there is work for it: what cannot be done is refused before workers start.

    Attributes
    ----------
    open : callable
        Gives the client as a context, which closes it and what was started for it.
    here : bool
        Its workers are started on this machine, with the environment of this process.
    """

    open: Callable[[], AbstractContextManager[Client]]
    here: bool


def check_client(client: Any) -> None:
    """Refuse a client that nothing can be asked of; None and `ClientLater` are not asked.

    Raises
    ------
    InputError
        It is no client of Dask, asynchronous or closed.
    """
    if client is None or isinstance(client, ClientLater):
        return
    from distributed import Client

    if not isinstance(client, Client):
        raise InputError(
            f"client must be a distributed.Client, got {client!r:.60}; write client=Client('tcp://...') of an address"
        )
    if client.asynchronous:
        raise InputError("client must not be asynchronous: make it with Client(..., asynchronous=False)")
    if client.status != "running":
        raise InputError(f"client must be connected, got one that is {client.status}; make a new one")


def check_reach(paths: Iterable[str], client: Client | ClientLater | None) -> None:
    """Refuse workers that cannot open what they are to read or write, before any starts.

    Parameters
    ----------
    paths : iterable of str
    client : distributed.Client, ClientLater or None
        Workers of None are in this process.

    Raises
    ------
    InputError
        A path leads into the memory of this process, and a worker is in another one.
    """
    unseen = next(filter(is_in_memory, paths), None)
    if unseen is None or client is None:
        return
    if not isinstance(client, ClientLater):
        # not by the number alone: in containers all may be process 1
        where = client.run(lambda: (os.getpid(), socket.gethostname()))
        if set(where.values()) <= {(os.getpid(), socket.gethostname())}:
            return
    raise InputError(
        f"{unseen} must be where workers can open it, it is in the memory of this process, and they are others; write it to "
        "a folder or URL that all can open, or work without them, in this process"
    )
