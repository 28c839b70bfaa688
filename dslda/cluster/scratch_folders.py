"""Folders for the files of our workers."""

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
