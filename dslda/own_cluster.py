"""What training and ingestion share of clients, and of our own clusters on this machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClientLater", "check_client", "quiet_distributed"]


@dataclass(frozen=True, slots=True)
class ClientLater:
    """A client that is opened when there is work for it: what cannot be done is refused before workers start.

    Attributes
    ----------
    open : callable
        Gives the client as a context, which closes it and what was started for it.
    """

    open: Callable[[], AbstractContextManager[Client]]


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


@contextmanager
def quiet_distributed() -> Iterator[None]:
    """Keep what `distributed` says of our own cluster out of the user's log: we log what matters.

    `silence_logs` of a cluster ends when it closes, and a message of a connection just cut comes after that.
    """
    names = [n for n in logging.root.manager.loggerDict if n.partition(".")[0] == "distributed"]
    levels = {name: logging.getLogger(name).level for name in names}
    for name, level in levels.items():
        if level != logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
