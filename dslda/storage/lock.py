"""One writer at a time: a lock on an output that the operating system releases when its process ends.

In an object store, where no system does that, the lock is a :mod:`lease <dslda.storage.lease>`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dslda.exceptions import OutputError
from dslda.storage.lease import Lease, NoExclusiveCreationError, signature, written_by_another
from dslda.storage.location import Location, is_in_memory
from dslda.storage.output import writing

__all__ = ["LOCK_INSIDE", "UNLOCKED", "Lock", "only_writer"]

logger = logging.getLogger("dslda.output")

NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL})
"""Errors of the system where a file system has no locks."""

LOCK_INSIDE = ".lock"
"""File of a lock inside an output; in an object store its folder."""

ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that is held.

    Attributes
    ----------
    alone : bool
        Nobody else is writing. False if nothing could be locked, so that nobody knows.
    check : callable
        Raises :class:`OutputError` if the lock was lost, which happens only in an object store, and another run writes
        there now; call this before a manifest is written.
    """

    alone: bool
    check: Callable[[], None] = lambda: None

    def is_lost(self) -> bool:
        """Return whether the output may belong to another run by now."""
        try:
            self.check()
        except OutputError:
            return True
        return False


UNLOCKED = Lock(alone=False)


@contextlib.contextmanager
def only_writer(location: Location, *, inside: bool = False) -> Iterator[Lock]:
    """Keep other processes, and other threads of this one, from writing an output.

    The lock is on the file ``.<name>.lock`` beside the output, or ``.lock`` inside. The operating system releases it when its
    process ends, so the file of a killed process locks nothing. In an object store the lock is a folder, which holds a
    :class:`~dslda.storage.lease.Lease`; the next run takes the lease of a killed process after a while. Workers need no lock.

    Parameters
    ----------
    location : Location
        Outputs in the memory of this process are not locked.
    inside : bool
        The output is a folder that stays in place while it is written; it may be the only writable folder of a disk.

    Yields
    ------
    Lock

    Raises
    ------
    OutputError
        Another run is writing, or the file of the lock cannot be made.
    """
    url = location.url
    with contextlib.ExitStack() as stack:
        if location.local:
            folder, name = (url, "") if inside else os.path.split(url)
            stack.enter_context(_folders(folder, url))
            path = os.path.join(folder, LOCK_INSIDE if inside else f".{name}.lock")
            lock = Lock(stack.enter_context(_locked_file(path, url)))
        elif is_in_memory(url):
            lock = UNLOCKED
        else:
            fs, root = location.file_system()
            parent, _, name = root.rpartition("/")
            try:
                if "::" in url:  # a cache hides what others renew
                    raise NoExclusiveCreationError("it is written through another file system")
                lease = Lease(fs, f"{root}/{LOCK_INSIDE}" if inside else f"{parent}/.{name}.lock", url)
                lock = Lock(True, stack.enter_context(lease).check)
            except NoExclusiveCreationError as error:
                _warn_without_lock(url, str(error))
                lock = UNLOCKED
        yield lock


@contextlib.contextmanager
def _locked_file(path: str, output: str) -> Iterator[bool]:
    """Lock a file, and remove it at the end; yield whether the file system has locks."""
    for _ in range(ATTEMPTS):
        with writing(output):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except FileNotFoundError:  # another run that failed has removed the folder that it had made
                os.makedirs(os.path.dirname(path), exist_ok=True)
                continue
            except IsADirectoryError:
                raise OutputError(
                    f"{output} could not be written: its lock {path} must be a file, it is a folder",
                    remedy="remove that",
                ) from None
        try:
            locked = _lock(descriptor, path, output)
            if locked and not _is_at(descriptor, path):
                continue  # the previous holder removed the file meanwhile
            with contextlib.suppress(OSError):  # only messages need the name, so a full disk does not matter
                os.ftruncate(descriptor, 0)
                # behind the first byte, which nobody else can read while Windows locks it
                os.write(descriptor, b" " + signature())
            try:
                yield locked
            finally:
                # before the lock ends, since afterwards the file may be another's
                with contextlib.suppress(OSError):
                    os.remove(path)
            return
        finally:
            os.close(descriptor)
    raise OutputError(f"{output} could not be written: its lock {path} comes and goes", remedy="try again")


def _lock(descriptor: int, path: str, output: str) -> bool:
    # not FileLock, which opens the file itself and falls back to a lock that a killed process leaves locked
    from filelock import lock_descriptor

    try:
        if lock_descriptor(descriptor, blocking=False):
            return True
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        _warn_without_lock(output, str(error.strerror))
        return False
    holder = b""
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        file.seek(1)
        holder = file.read()
    raise written_by_another(output, holder)


def _warn_without_lock(output: str, reason: str) -> None:
    logger.warning("%s is not locked (%s): see to it that no other run writes it now", output, reason)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _folders(folder: str, output: str) -> Iterator[None]:
    """Make the missing folders above an output; remove those that are empty at the end."""
    missing = []
    parent = folder
    while not os.path.lexists(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    with writing(output):
        os.makedirs(folder, exist_ok=True)
    try:
        yield
    finally:
        for made in missing:
            with contextlib.suppress(OSError):
                os.rmdir(made)
