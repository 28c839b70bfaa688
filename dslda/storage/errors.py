"""Errors of file systems: what the libraries beneath fsspec raise, as errors of dslda that name the place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dslda.exceptions import DsldaError, InputError

__all__ = ["is_of_file_system", "reaching", "reason_of"]

ANSWERS = (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError)
"""What says what is there, and not that it cannot be seen."""


def is_of_file_system(error: Exception) -> bool:
    """Whether an error is the system's, or one of a kind that a library has made for itself, as those of clouds have.

    Of Python's other kinds it is rather a mistake of ours.
    """
    if isinstance(error, OSError):
        return not isinstance(error, DsldaError)
    kinds = set(type(error).__mro__) - {Exception, BaseException, object}
    return bool(kinds) and all(
        kind.__module__ != "builtins" and not issubclass(kind, DsldaError) for kind in kinds
    )


def reason_of(error: Exception) -> str:
    """What an error says, of whatever file system."""
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error) or type(error).__name__


@contextlib.contextmanager
def reaching(url: str) -> Iterator[None]:
    """Have errors name a place that cannot be reached: credentials are missing, a server is away, rights are not given.

    Those that say what is there, or of which file they are, as the errors of local files do, stay what they are.

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
            f"{url} cannot be reached: {reason_of(error)}; look at its address, and at your rights and credentials"
        ) from error
