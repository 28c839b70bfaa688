"""Outputs: a refusal before the work where they cannot be written, and errors that name them and not our files."""

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
"""Errors of the system when there is no room: of the disk, of the user, in a file."""


def check_writable(location: Location) -> None:
    """Make something beside an output and remove it, since only that tells whether the output can be written.

    Rights alone do not: a file system can be full or read-only, and a network may have rules of its own. Where the local
    parent folder is missing, the nearest one above it is tried, since the folders between are made later.

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
            f"{location.url} cannot be written: {reason_of(error)}{where}", remedy="choose another path"
        ) from error


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of the system while an output is written into one that names the output.

    Parameters
    ----------
    path : str
        The output as the user knows it; files that are written may have hidden names beside it.

    Raises
    ------
    OutputError
        Replaces the error of the system, or of a library beneath a file system.
    """
    try:
        yield
    except (DsldaError, BrokenPipeError):  # a reader may leave when it has enough
        raise
    except Exception as error:
        if not is_of_file_system(error):
            raise
        is_full = isinstance(error, OSError) and error.errno in FULL
        remedy = [*(["make room there"] if is_full else []), "choose another path"]
        raise OutputError(f"{path} could not be written: {reason_of(error)}", remedy=remedy) from error


def is_among(path: str, pattern: str) -> bool:
    """Whether a path, folder or pattern of an input covers a local file."""
    real, place = os.path.realpath(path), os.path.realpath(pattern)
    if real == place or real.startswith(os.path.join(place, "")):
        return True
    return any(
        os.path.realpath(file) == real or (os.path.exists(path) and os.path.samefile(path, file))
        for file in glob.iglob(pattern, recursive=True)
        if os.path.exists(file)
    )


def report_leftovers(path: str) -> None:
    """Log the leftovers of killed runs beside a local output.

    They are not removed, since nothing tells them from what another run is writing.
    """
    for left in Location(path, local=True).hidden("partial", "old"):
        kind = "the output that was there before" if left.url.endswith(".old") else "an unfinished output"
        logger.warning(
            "%s is %s, left by a run that was killed; remove it if no other run is writing %s now",
            left.url,
            kind,
            os.path.basename(path),
        )


def written_by_another(path: str, process: object = None, host: object = None) -> OutputError:
    """The error of an output that another run is writing; it names the run where that is known."""
    holder = "" if process is None else f" (process {process} on {host})"
    return OutputError(
        f"{path} is being written by another run{holder}",
        remedy=("wait for it to end", "choose another path"),
    )
