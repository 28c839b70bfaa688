"""What our own clusters on this machine share, those that train and those that ingest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClientLater", "quiet_distributed"]


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
