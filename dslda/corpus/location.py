"""Where a store lies: a local directory or any fsspec URL, and how a new one takes its place."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dslda.exceptions import FormatError, InputError, OutputExistsError

if TYPE_CHECKING:
    from zarr.abc.store import Store

__all__ = ["Location", "check_output", "move_into_place"]

METADATA = "zarr.json"


@dataclass(frozen=True, slots=True)
class Location:
    """A place a store can be at; picklable, holds no open file or connection.

    Attributes
    ----------
    url : str
        Absolute local path with symbolic links followed, or an fsspec URL.
    local : bool
    storage_options : mapping
        For the fsspec file system; never shown in messages, since it may hold credentials.
    """

    url: str
    local: bool
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Location:
        """Resolve what a user gave.

        Raises
        ------
        InputError
            Not a path, or a protocol that fsspec does not know or cannot load.
        """
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise InputError(f"a path must be a string or path that is not empty, got {path!r}")
        url = os.fspath(path)
        options = dict(storage_options or {})
        try:
            fs, root = url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise InputError(f"{url} cannot be opened: {error}") from error
        if isinstance(fs, LocalFileSystem):
            return cls(os.path.realpath(root), True)
        return cls(url.rstrip("/"), False, options)

    def file_system(self) -> tuple[Any, str]:
        """The fsspec file system and the root path in it."""
        from fsspec.core import url_to_fs

        fs, root = url_to_fs(self.url, **self.storage_options)
        return fs, root

    def store(self, *, read_only: bool) -> Store:
        """A zarr store on this place."""
        from zarr.storage import FsspecStore, LocalStore

        if self.local:
            return LocalStore(self.url, read_only=read_only)
        options = dict(self.storage_options) or None
        return FsspecStore.from_url(self.url, storage_options=options, read_only=read_only)

    def sibling(self, suffix: str) -> Location:
        """A new place beside this one: ``.name.<random>.<suffix>``."""
        parent, _, name = self.url.rpartition("/")
        return Location(f"{parent}/.{name}.{uuid.uuid4().hex[:8]}.{suffix}", self.local, self.storage_options)

    def holds(self, name: str = "") -> bool:
        """Whether a file, or anything below a folder, is there; an empty folder is nothing."""
        if self.local:
            path = os.path.join(self.url, name)
            return os.path.isfile(path) or (os.path.isdir(path) and bool(os.listdir(path)))
        fs, root = self.file_system()
        fs.invalidate_cache()
        path = f"{root}/{name}" if name else root
        return bool(fs.isfile(path) or fs.find(path, maxdepth=3))

    def read_attributes(self) -> dict[str, Any]:
        """Attributes of the zarr group at this place.

        Raises
        ------
        InputError
            There is nothing.
        FormatError
            It is not a zarr group, or its metadata cannot be read.
        """
        fs, root = self.file_system()
        try:
            raw = fs.cat_file(f"{root}/{METADATA}")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if not self.holds():
                raise InputError(f"{self.url} does not exist") from None
            if self.holds(f"terms/{METADATA}"):
                raise FormatError(
                    f"{self.url} has no manifest: its file {METADATA} is missing; copy the corpus again or ingest again"
                ) from None
            raise FormatError(f"{self.url} is not a dslda corpus; make one with dslda ingest") from None
        try:
            metadata = json.loads(raw)
        except ValueError as error:
            raise FormatError(
                f"{self.url}: the manifest {METADATA} is damaged or cut short ({error}); copy the corpus again or "
                "ingest again"
            ) from error
        if not isinstance(metadata, dict) or metadata.get("node_type") != "group":
            raise FormatError(f"{self.url} is not a dslda corpus: its {METADATA} is not that of a zarr group")
        attributes = metadata.get("attributes", {})
        return attributes if isinstance(attributes, dict) else {}

    def remove(self) -> None:
        """Remove everything here; nothing there is no error."""
        if self.local:
            shutil.rmtree(self.url, ignore_errors=True)
            return
        fs, root = self.file_system()
        fs.invalidate_cache()
        if fs.exists(root):
            fs.rm(root, recursive=True)


def check_output(location: Location, *, encoding_type: str, overwrite: bool) -> bool:
    """Refuse an output that is there, before any work is done; True when there is one to be replaced.

    Raises
    ------
    OutputExistsError
        Something is there and `overwrite` is False, or it is not of `encoding_type`: what dslda did not write, it
        never deletes.
    """
    if not location.holds():
        return False
    try:
        ours = location.read_attributes().get("encoding-type") == encoding_type
    except (FormatError, InputError):
        ours = False
    if not ours:
        raise OutputExistsError(
            f"{location.url} is there and is not a {encoding_type}, so it is never replaced; remove it yourself or "
            "choose another path"
        )
    if not overwrite:
        raise OutputExistsError(f"{location.url} is there already; choose another path, or overwrite")
    return True


def move_into_place(source: Location, target: Location, *, encoding_type: str, overwrite: bool) -> None:
    """Give a complete store its name; what it replaces is removed only then.

    On a local disk this is two renames. An object store has no rename: the objects are copied, the manifest last,
    so that a reader sees the old corpus, none, or the new one, never a mixture.

    Raises
    ------
    OutputExistsError
        As :func:`check_output`: somebody wrote the same output in the meantime.
    """
    replaces = check_output(target, encoding_type=encoding_type, overwrite=overwrite)
    if target.local:
        if replaces:
            old = target.sibling("old")
            os.replace(target.url, old.url)
            try:
                os.replace(source.url, target.url)
            except OSError:
                os.replace(old.url, target.url)
                raise
            old.remove()
        else:
            if os.path.isdir(target.url):
                os.rmdir(target.url)  # an empty folder, which Windows would not replace
            os.replace(source.url, target.url)
        return
    fs, old_root = target.file_system()
    if replaces:
        fs.rm_file(f"{old_root}/{METADATA}")
        target.remove()
    _, new_root = source.file_system()
    fs.invalidate_cache()
    manifest = f"{new_root}/{METADATA}"
    names = [name for name in fs.find(new_root) if name != manifest]
    fs.copy(names, [old_root + name.removeprefix(new_root) for name in names])
    fs.copy(manifest, f"{old_root}/{METADATA}")
    source.remove()
