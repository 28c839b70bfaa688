"""Places of stores, a local directory or any fsspec URL, and the errors of their file systems."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dslda.exceptions import DsldaError, FormatError, InputError
from dslda.storage.typed_json import parse_json

if TYPE_CHECKING:
    from zarr.abc.store import Store

__all__ = [
    "METADATA",
    "Location",
    "chain_parts",
    "check_not_in_store",
    "holds_store",
    "is_in_memory",
    "is_of_file_system",
    "kind_of_store",
    "metadata_of",
    "reaching",
    "reason_of",
]

METADATA = "zarr.json"

IMPOSSIBLE = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
"""Errors of the system for a path at which nothing can ever be."""
REMOVAL_LOOKS = 40
REMOVAL_SECONDS = 0.05
ANSWERS = (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError)
"""Errors that say what is at a place, not that it cannot be reached."""


def is_of_file_system(error: Exception) -> bool:
    """Return whether an error is the operating system's, or of a class of a library, such as those for clouds.

    An error of one of Python's other classes is more likely a mistake of ours.
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
    """Raise an InputError that names the place if it cannot be reached, for lack of rights or while a server is away.

    Errors that say what is at the place, or that name a file, as those of local files do, stay as they are.
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


@dataclass(frozen=True, slots=True)
class Location:
    """A place for a store; it is picklable and holds no open file or connection.

    Attributes
    ----------
    url : str
        Absolute local path with symbolic links followed, or an fsspec URL.
    local : bool
    storage_options : mapping
        For the fsspec file system; never shown, since it may hold credentials.
    """

    url: str
    local: bool
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Location:
        """Resolve a user's path.

        Raises
        ------
        InputError
            The path names no folder, or no file system can have it (a NUL, too long a name, circular links), or
            fsspec does not know its protocol or cannot load it.
        """
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise InputError(f"a path must be a string or path that is not empty, got {path!r}")
        url = os.fspath(path)
        if not isinstance(url, str) or "\0" in url:
            raise InputError(f"a path must be a string without NUL characters, got {url!r:.60}")
        options = dict(storage_options or {})
        try:
            fs, root = url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise InputError(f"{url} cannot be opened: {error}") from error
        if not root.strip("/"):
            raise InputError(f"a path must name a folder, got the root of a file system: {url!r}")
        if isinstance(fs, LocalFileSystem):
            local = os.path.realpath(root)
            try:
                os.stat(local)
            except OSError as error:
                # a path that does not exist, or is not ours to see, may still become an output
                if error.errno in IMPOSSIBLE:
                    raise InputError(
                        f"{_shortened(url)} cannot be a path here: {error.strerror}",
                        remedy="give another path",
                    ) from None
            return cls(local, True)
        return cls(url.rstrip("/"), False, options)

    def file_system(self) -> tuple[Any, str]:
        """The fsspec file system, and the root of the store in it."""
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
        """A new place beside this one: ``.<name>.<random>.<suffix>``."""
        parent, name = self._split()
        return replace(self, url=f"{parent}/.{name}.{uuid.uuid4().hex[:8]}.{suffix}")

    def child(self, name: str) -> Location:
        """The place of a group in the store."""
        before, link, after = chain_parts(self.url)
        return replace(self, url=f"{before}{link}/{name}{after}")

    @property
    def inside(self) -> str:
        """Full name of this place with a final slash, however the user wrote it; names of its contents begin with it."""
        if self.local:
            return os.path.join(self.url, "")
        fs, root = self.file_system()
        return f"{fs.unstrip_protocol(root)}/"

    def entries(self) -> list[str]:
        """Sorted names in the folder here; none where nothing can be listed."""
        fs, root = self.file_system()
        fs.invalidate_cache()  # fsspec remembers listings, which miss what other processes did
        try:
            paths = [entry.rstrip("/") for entry in fs.ls(root, detail=False)]
        except OSError:
            return []
        # folders of object stores may list themselves
        return sorted(path.rpartition("/")[2] for path in paths if path != root)

    def hidden(self, *suffixes: str) -> list[Location]:
        """Existing places beside this one that :meth:`sibling` has named."""
        folder, name = self._split()
        pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}\.({'|'.join(suffixes)})")
        names = [name for name in replace(self, url=folder).entries() if pattern.fullmatch(name)]
        return [replace(self, url=f"{folder.rstrip('/')}/{name}") for name in names]

    def _split(self) -> tuple[str, str]:
        """The parent folder, and the name in it."""
        # a URL may have no slashes but those of its protocol
        return os.path.split(self.url) if self.local else self.url.rpartition("/")[::2]

    def holds(self, name: str = "") -> bool:
        """Return whether this place, or a `name` in it, is a file or a folder that is not empty."""
        fs, root = self.file_system()
        path = f"{root}/{name}" if name else root
        fs.invalidate_cache()  # fsspec remembers listings, which miss what other processes did
        with reaching(self.url):
            if fs.isfile(path):
                return True
            try:
                return any(entry.rstrip("/") != path for entry in fs.ls(path, detail=False))
            except (FileNotFoundError, NotADirectoryError):
                return False

    def read_attributes(self) -> dict[str, Any]:
        """Attributes of the zarr group at this place.

        Raises
        ------
        InputError
            Nothing is there.
        FormatError
            It is not a zarr group, or its metadata cannot be read.
        """
        fs, root = self.file_system()
        try:
            with reaching(self.url):
                raw = fs.cat_file(f"{root}/{METADATA}")
        except (FileNotFoundError, NotADirectoryError):
            if not self.holds():
                left = self.hidden("old")[-1:] if self.local else []
                raise InputError(
                    f"{self.url} does not exist, or is an empty folder",
                    remedy=[
                        f"a run that was killed while it replaced it has left it as {old.url}: rename that"
                        for old in left
                    ],
                ) from None
            if fs.isfile(root):
                raise FormatError(
                    f"{self.url} is a file, and corpora, models and checkpoints are folders: dslda ingest makes a corpus "
                    "of a file of documents, dslda train a model of a corpus"
                ) from None
            if self.holds("manifest.json"):
                raise FormatError(
                    f"{self.url} is a folder of scores, neither corpus nor model",
                    remedy="look at it with dslda info",
                ) from None
            raise FormatError(
                f"{self.url} is not written by dslda or has lost its manifest, there is no {METADATA} in it",
                remedy=("give another path", "copy the whole folder again"),
            ) from None
        except IsADirectoryError:
            raise FormatError(
                f"its manifest {METADATA} must be a file, it is a folder",
                place=self.url,
                remedy=("copy the whole again", "write it anew"),
            ) from None
        try:
            metadata = parse_json(raw)
        except ValueError as error:
            raise FormatError(
                f"its manifest {METADATA} is damaged or cut short ({error})",
                place=self.url,
                remedy=("copy it again", "write the whole anew"),
            ) from error
        attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
        if not isinstance(attributes, dict) or metadata.get("node_type") != "group":
            raise FormatError(
                f"{self.url} is not written by dslda: its {METADATA} is not that of a zarr group"
            )
        return attributes

    def remove(self) -> None:
        """Remove everything here, the manifest first: a removal that is cut short leaves nothing that looks like a store."""
        if self.local:
            for file in (self.url, os.path.join(self.url, METADATA)):
                with contextlib.suppress(OSError):
                    os.remove(file)
            # at least twice: after Ctrl-C in a write, threads of zarr finish it, and make folders anew
            absent = 0
            for _ in range(REMOVAL_LOOKS):
                shutil.rmtree(self.url, ignore_errors=True)
                time.sleep(REMOVAL_SECONDS)
                absent = 0 if os.path.lexists(self.url) else absent + 1
                if absent == 2:
                    return
        elif self.holds():
            fs, root = self.file_system()
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(f"{root}/{METADATA}")
            if self.holds():
                fs.rm(glob.escape(root), recursive=True)  # fsspec takes brackets for a pattern


def _shortened(path: str) -> str:
    """A path for a message, without the middle of a long one."""
    return path if len(path) <= 120 else f"{path[:58]}...{path[-58:]}"


def check_not_in_store(location: Location) -> None:
    """Raise an InputError for an output inside a store: a run that replaces that store would remove it."""
    fs, root = location.file_system()
    folder = root.rstrip("/").rpartition("/")[0]
    while folder:
        if (kind := kind_of_store(fs, folder)) is not None:
            raise InputError(
                f"an output must not lie inside a corpus, model or checkpoint, got {location.url} in the {kind} {folder}",
                remedy="choose a path beside it",
            )
        folder = folder.rpartition("/")[0]


def kind_of_store(fs: Any, path: str) -> str | None:
    """Type of the store of dslda at a path; None where there is none."""
    kind = metadata_of(fs, path).get("attributes", {}).get("encoding-type")
    return kind if isinstance(kind, str) and kind.startswith("dslda-") else None


def metadata_of(fs: Any, path: str) -> dict[str, Any]:
    """Metadata of the zarr node at a path, empty where none can be read."""
    try:
        metadata = parse_json(fs.cat_file(f"{path}/{METADATA}"))
    except Exception:  # nobody can lose a store that cannot be read, whatever the reason
        return {}
    return metadata if isinstance(metadata, dict) and isinstance(metadata.get("attributes", {}), dict) else {}


def holds_store(path: str, options: Mapping[str, Any]) -> bool:
    """Return whether a store is at a path; a pattern is no such path, unless a local file or folder has its name."""
    try:
        if glob.has_magic(path) and (
            ("?" in path and "://" in path) or not Location.of(path, options).holds()
        ):
            return False  # what follows a question mark may be the query of a URL
        return Location.of(path, options).holds(METADATA)
    except PermissionError:  # the listing of the folder will name what may not be read
        return False


def chain_parts(url: str) -> tuple[str, str, str]:
    """Cut a chained URL, as ``simplecache::zip://a.csv::/b.zip``, around the link that has the path: caches have none."""
    from fsspec import get_filesystem_class
    from fsspec.implementations.cached import CachingFileSystem

    links = url.split("::")
    position = 0
    while position + 1 < len(links) and "://" not in links[position]:
        try:
            if not issubclass(get_filesystem_class(links[position]), CachingFileSystem):
                break
        except (ImportError, ValueError):  # a name that holds colons
            return "", url, ""
        position += 1
    before = "".join(f"{link}::" for link in links[:position])
    return before, links[position], "".join(f"::{link}" for link in links[position + 1 :])


def is_in_memory(path: str) -> bool:
    """Return whether a path leads, even through a cache, into the memory of this process, which no other shares."""
    return any(link.startswith("memory://") for link in path.split("::"))
