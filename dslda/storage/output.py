"""Outputs: refused before the work where they cannot be written, and errors that name them and not our files."""

from __future__ import annotations

import contextlib
import errno
import glob
import logging
import os
from collections.abc import Iterator

from dslda.exceptions import DsldaError, InputError, OutputError
from dslda.storage.errors import is_of_file_system, reason_of
from dslda.storage.location import Location

__all__ = ["FULL", "check_writable", "report_leftovers", "writing", "written_by_another"]

logger = logging.getLogger("dslda.output")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when there is no room: of the disk, of the user, in a file."""


def check_writable(location: Location) -> None:
    """Make something beside an output and remove it, since only that tells whether it will be possible.

    Rights alone do not: a file system can be full or read-only, and a network may have rules of its own. A
    missing local parent folder is looked for upwards, since it is made later.

    Raises
    ------
    InputError
        It is not possible.
    """
    probe = location.sibling("probe")
    try:
        if location.local:
            folder, name = os.path.split(probe.url)
            missing = [os.path.basename(location.sibling("partial").url)]
            while not os.path.lexists(folder):
                folder, part = os.path.split(folder)
                missing.append(part)
            for part in missing:  # names that are too long for this disk
                with contextlib.suppress(FileNotFoundError):
                    os.lstat(os.path.join(folder, part))
            made = os.path.join(folder, name)
            os.mkdir(made)
            os.rmdir(made)
        else:
            fs, path = probe.file_system()
            fs.pipe_file(path, b"")
            with contextlib.suppress(Exception):  # rights to write need not be rights to remove
                fs.rm_file(path)
    # file systems of fsspec raise what the libraries beneath them raise
    except Exception as error:
        where = f" in {folder}" if location.local else ""
        raise InputError(
            f"{location.url} cannot be written: {reason_of(error)}{where}; choose another path"
        ) from error


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn what the system says while an output is written into an error that names the output.

    Parameters
    ----------
    path : str
        The output as the user knows it; files that are written may have hidden names beside it.

    Raises
    ------
    OutputError
        In the place of what the system says, or a library beneath a file system.
    """
    try:
        yield
    except (DsldaError, BrokenPipeError):  # a reader that has all it wants is no error
        raise
    except Exception as error:
        if not is_of_file_system(error):
            raise
        is_full = isinstance(error, OSError) and error.errno in FULL
        remedy = "make room there, or choose another path" if is_full else "choose another path"
        raise OutputError(f"{path} could not be written: {reason_of(error)}; {remedy}") from error


def is_among(path: str, given: str) -> bool:
    """Whether a local file is one that a path, folder or pattern of an input names, or lies in such a folder."""
    real, place = os.path.realpath(path), os.path.realpath(given)
    if real == place or real.startswith(os.path.join(place, "")):
        return True
    return any(
        os.path.realpath(each) == real or (os.path.exists(path) and os.path.samefile(path, each))
        for each in glob.iglob(given, recursive=True)
        if os.path.exists(each)
    )


def report_leftovers(path: str) -> None:
    """Log what runs that were killed have left beside a local output.

    They are not removed, since nothing tells them from what a run is writing now.
    """
    for left in Location(path, local=True).hidden("partial", "old"):
        what = "the output that was there before" if left.url.endswith(".old") else "an unfinished output"
        logger.warning(
            "%s is %s, left by a run that was killed; remove it if no other run is writing %s now",
            left.url,
            what,
            os.path.basename(path),
        )


def written_by_another(path: str, process: object = None, host: object = None) -> OutputError:
    """The error of an output that another run is writing: which, where that is known."""
    holder = "" if process is None else f" (process {process} on {host})"
    return OutputError(
        f"{path} is being written by another run{holder}; wait for it to end, or choose another path"
    )
