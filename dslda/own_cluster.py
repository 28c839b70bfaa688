"""What training and ingestion share of clients, and of our own clusters on this machine."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClientLater", "check_client", "quiet_distributed", "scratch_folder"]

PREFIX = "dslda-"
LOCK = "dslda.lock"


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


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A temporary folder for the files of our workers, which is removed at the end.

    A process that is killed leaves its folder behind, so those are removed first. One is left over when its file
    ``dslda.lock`` is there and not locked: the operating system gives up a lock with the process that holds it.
    Without such locks (Windows, some file systems) there is no file, and nothing of others is removed.
    """
    _remove_left_over()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        lock = _hold(folder)
        try:
            yield folder
        finally:
            if lock is not None:
                os.close(lock)


def _hold(folder: str) -> int | None:
    """Lock a folder that is ours; the descriptor, or None where there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    # under another name until it is locked, so that it is never there without a lock while we live
    waiting = os.path.join(folder, "locking")
    try:
        descriptor = os.open(waiting, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:  # a full disk, which whoever uses the folder will report
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(waiting, os.path.join(folder, LOCK))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_left_over() -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX):
                continue
            with suppress(OSError):  # it is not ours, has no lock, or is in use
                if (
                    not entry.is_dir(follow_symlinks=False)
                    or entry.stat(follow_symlinks=False).st_uid != os.getuid()
                ):
                    continue
                descriptor = os.open(os.path.join(entry.path, LOCK), os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(descriptor)
