"""Scratch folders for the files of our workers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from filelock import lock_descriptor

__all__ = ["scratch_folder"]

PREFIX = "dslda-"
LOCK = "dslda.lock"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A temporary folder for the files of our workers, removed at the end.

    Folders that killed processes left behind are removed first. Such a folder has a file ``dslda.lock`` that is not
    locked: the operating system releases a lock when the process that holds it ends. Without such locks (Windows, some
    file systems) there is no such file, and no other folder is removed.
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
    """Lock a folder of ours; return the descriptor, or None if there are no locks or the disk is full."""
    # the file gets its name once it is locked, so no file of that name is unlocked while this process lives
    temporary = os.path.join(folder, "locking")
    with suppress(OSError):
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_descriptor(descriptor, blocking=False)
            os.rename(temporary, os.path.join(folder, LOCK))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    return None


def _remove_left_over() -> None:
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not (entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)):
                continue
            with suppress(OSError):  # another user's, without a lock, or in use
                # Windows has no such flag, nor such files
                flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
                descriptor = os.open(os.path.join(entry.path, LOCK), flags)
                try:
                    is_ours = os.fstat(descriptor).st_uid == os.getuid()
                    if is_ours and lock_descriptor(descriptor, blocking=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(descriptor)
