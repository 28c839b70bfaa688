"""Clients that users give, and those that are opened when there is work for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClientLater", "check_client"]


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
