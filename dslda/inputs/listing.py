"""Files in a folder or at a pattern. A local folder that cannot be listed is an error."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from dslda.exceptions import InputError

__all__ = ["entries_of_folder", "entries_of_pattern", "with_literal_folders"]

Entries: TypeAlias = dict[str, Mapping[str, Any]]
"""Descriptions of files by fsspec, by path."""

WILDCARD = re.compile(r"[*?\[]")


def entries_of_folder(filesystem: AbstractFileSystem, path: str) -> Entries:
    """Entries of a folder and all folders below, without folders, and without names that begin with ``.`` or ``_``."""
    entries = _strict(filesystem, lambda folder: not _hidden(folder, path)).find(path, detail=True)
    return {name: info for name, info in entries.items() if not _hidden(name, path)}


def entries_of_pattern(filesystem: AbstractFileSystem, pattern: str) -> Entries:
    """Entries that a pattern matches, without folders. The folder before its first wildcard must exist."""
    if isinstance(filesystem, LocalFileSystem):
        _check_beginning(pattern)
    entries = _strict(filesystem, lambda folder: _leads_into(pattern, folder)).glob(pattern, detail=True)
    return {name: info for name, info in entries.items() if info["type"] != "directory"}


def with_literal_folders(filesystem: AbstractFileSystem, pattern: str) -> str:
    """The pattern with the deepest folder that exists by the name before its rest, brackets and all, escaped."""
    folder, rest = os.path.split(pattern)
    while WILDCARD.search(folder):
        if filesystem.isdir(folder):
            return f"{glob.escape(folder)}/{rest}"
        folder, _, name = folder.rpartition("/")
        rest = f"{name}/{rest}"
    return pattern


class _Strict(LocalFileSystem):
    """The local file system. It raises if a `needed` folder cannot be listed, which fsspec silently passes over."""

    cachable = False

    def __init__(self, needed: Callable[[str], bool]) -> None:
        super().__init__()
        self._needed = needed

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Walk as fsspec does, which calls this again for each folder."""

        def refuse(error: OSError) -> None:
            # a folder that was removed meanwhile holds nothing
            if self._needed(path) and not isinstance(error, FileNotFoundError):
                raise _not_listed(path, error) from error

        yield from super().walk(path, maxdepth, topdown, refuse, **kwargs)


def _strict(filesystem: AbstractFileSystem, needed: Callable[[str], bool]) -> AbstractFileSystem:
    # object stores have no folders, and report a refusal
    return _Strict(needed) if isinstance(filesystem, LocalFileSystem) else filesystem


def _check_beginning(pattern: str) -> None:
    """Refuse a pattern if the folder before its first wildcard cannot be listed, and a name in a folder without access."""
    wildcard = WILDCARD.search(pattern)
    if wildcard is None:
        if os.path.islink(pattern) and not os.path.exists(pattern):
            raise InputError(
                f"is a link to {os.readlink(pattern)}, which is not there",
                place=pattern,
                remedy="mend or remove it",
            )
        try:
            os.stat(pattern)
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError as error:
            raise _not_listed(os.path.dirname(pattern), error) from error
        return
    folder = pattern[: wildcard.start()].rpartition("/")[0] or "/"
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        raise InputError(
            f"the folder {folder} is not there", place=pattern, remedy=("make or mount it", "name another")
        ) from None
    except OSError as error:
        raise _not_listed(folder, error) from error


def _not_listed(folder: str, error: OSError) -> InputError:
    denied = isinstance(error, PermissionError)
    return InputError(
        f"the folder cannot be read: {error.strerror}",
        place=folder.rstrip("/"),
        remedy="give the user that runs this the right to read it" if denied else (),
    )


def _leads_into(pattern: str, folder: str) -> bool:
    """True where a folder may hold matches of a pattern."""
    for name, part in zip(folder.rstrip("/").split("/"), pattern.split("/"), strict=False):
        if part == "**":
            return True
        if not fnmatchcase(name, part):
            return False
    return True


def _hidden(name: str, root: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.removeprefix(root).strip("/").split("/"))
