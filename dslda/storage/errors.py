"""Errors of the libraries beneath fsspec, as errors of dslda that name the place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dslda.exceptions import DsldaError, InputError

__all__ = ["is_of_file_system", "reaching", "reason_of"]

ANSWERS = (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError)
"""Errors that say what is at a place, and not that it cannot be reached."""


def is_of_file_system(error: Exception) -> bool:
    """Whether an error is the system's, or of a class that a library defines, as those of clouds do.

    An error of Python's other classes is rather a mistake of ours.
    """
    if isinstance(error, OSError):
        return not isinstance(error, DsldaError)
    kinds = set(type(error).__mro__) - {Exception, BaseException, object}
    return bool(kinds) and all(
        kind.__module__ != "builtins" and not issubclass(kind, DsldaError) for kind in kinds
    )


def reason_of(error: Exception) -> str:
    """The message of an error of any file system."""
    message = error.strerror if isinstance(error, OSError) else None
    return message or str(error) or type(error).__name__


@contextlib.contextmanager
def reaching(url: str) -> Iterator[None]:
    """Have errors name a place that cannot be reached: credentials or rights are missing, or a server is away.

    Errors that say what is at the place, or that name a file, as those of local files do, stay as they are.

    Raises
    ------
    InputError
    """
    try:
        yield
    except Exception as error:
        is_answer = isinstance(error, ANSWERS) or (isinstance(error, OSError) and error.filename is not None)
        if is_answer or not is_of_file_system(error):
            raise
        raise InputError(
            f"{url} cannot be reached: {reason_of(error)}",
            remedy="look at its address, and at your rights and credentials",
        ) from error
