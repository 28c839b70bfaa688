"""Scratch folders for the files of our workers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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
    """Lock a folder of ours; return the descriptor, or None where there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    # it gets its name when it is locked, so that no file of that name is unlocked while we live
    waiting = os.path.join(folder, "locking")
    try:
        descriptor = os.open(waiting, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:  # a full disk, which the user of the folder will report
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
            with suppress(OSError):  # not ours, without a lock, or in use
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
