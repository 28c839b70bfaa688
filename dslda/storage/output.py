"""Outputs: refused before the work if they cannot be written, complete or absent, and named in errors."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from dslda.exceptions import DsldaError, FormatError, InputError, OutputError, OutputExistsError
from dslda.storage.location import (
    METADATA,
    Location,
    check_not_in_store,
    is_of_file_system,
    kind_of_store,
    metadata_of,
    reason_of,
)
from dslda.storage.typed_json import parse_json

__all__ = [
    "FULL",
    "check_output",
    "check_writable",
    "flush",
    "is_among",
    "move_into_place",
    "replace_attributes",
    "replace_file",
    "replacing",
    "report_leftovers",
    "writing",
]

logger = logging.getLogger("dslda.output")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of the system for a full disk, an exhausted quota, or a file that is too large."""
PASSING = re.compile(r"\.DS_Store|\.nfs.*|.*\.partial")
"""Files that come and go in a store without being part of it."""


def check_output(location: Location, *, encoding_type: str, overwrite: bool) -> bool:
    """Refuse an output that exists, unless it is of `encoding_type` and may be overwritten; return whether it exists.

    Raises
    ------
    InputError
        As :func:`check_not_in_store`.
    OutputExistsError
        It exists, or it holds something else too; dslda never removes what it did not write.
    """
    check_not_in_store(location)
    if not location.holds():
        return False
    try:
        ours = location.read_attributes().get("encoding-type") == encoding_type
    except (FormatError, InputError):
        ours = False
    if not ours:
        raise OutputExistsError(
            f"{location.url} is there and is not a {encoding_type}, so it is never replaced",
            remedy=("choose another path", "remove it yourself"),
        )
    if not overwrite:
        raise OutputExistsError(
            f"{location.url} is there already", remedy=("choose another path", "give {overwrite=True}")
        )
    if (other := _other_content(*location.file_system())) is not None:
        raise OutputExistsError(
            f"{location.url} holds {other}, which is no part of the {encoding_type}, so it is not replaced",
            remedy=("move that out of it", "choose another path"),
        )
    return True


def _other_content(fs: Any, root: str) -> str | None:
    """The first path in a store, or in a group of it, that no writer of dslda put there."""
    for path, is_folder in _listed(fs, root):
        if path.endswith(f"/{METADATA}"):
            continue
        if not is_folder or kind_of_store(fs, path) is not None:
            return path
        if metadata_of(fs, path).get("node_type") == "group":
            if (other := _other_content(fs, path)) is not None:
                return other
        # an array that has lost its metadata still has its chunks
        elif others := [
            inner for inner, _ in _listed(fs, path) if not inner.endswith(("/c", f"/{METADATA}"))
        ]:
            return others[0]
    return None


def _listed(fs: Any, root: str) -> list[tuple[str, bool]]:
    """The paths in a folder, and whether they are folders, without :data:`PASSING` files."""
    entries = [
        (entry["name"].rstrip("/"), entry["type"] == "directory") for entry in fs.ls(root, detail=True)
    ]
    return [
        (path, is_folder)
        for path, is_folder in sorted(entries)
        # folders of object stores may list themselves
        if path != root.rstrip("/") and not PASSING.fullmatch(path.rpartition("/")[2])
    ]


def check_writable(location: Location) -> None:
    """Create and remove something beside an output; raise an InputError if that is not possible.

    Rights do not suffice: a file system can be full or read-only, and a network may have its own rules. If the local parent
    folder is missing, the nearest one above it is tried, since the folders between are made later.
    """
    probe = location.sibling("probe")
    try:
        if location.local:
            folder, name = os.path.split(probe.url)
            missing = [os.path.basename(location.sibling("partial").url)]
            while not os.path.lexists(folder):
                folder, part = os.path.split(folder)
                missing.append(part)
            for part in missing:  # this fails for names that are too long for this disk
                with contextlib.suppress(FileNotFoundError):
                    os.lstat(os.path.join(folder, part))
            made = os.path.join(folder, name)
            os.mkdir(made)
            os.rmdir(made)
        else:
            fs, path = probe.file_system()
            fs.pipe_file(path, b"")
            with contextlib.suppress(Exception):  # a right to write need not include the right to remove
                fs.rm_file(path)
    # file systems of fsspec raise what the libraries beneath them raise
    except Exception as error:
        where = f" in {folder}" if location.local else ""
        raise InputError(
            f"{location.url} cannot be written: {reason_of(error)}{where}", remedy="choose another path"
        ) from error


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of the system, or of a library beneath a file system, into an OutputError that names the output.

    Files that are written may have hidden names; `path` is the output as the user knows it.
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


@contextlib.contextmanager
def replacing(file: Location, output: str | None = None) -> Iterator[IO[bytes]]:
    """Open a file that takes its name when the block ends without an error: readers find the old file or the new one.

    A local file is written beside its place and renamed. Its content is on the disk before its name is, since a machine that
    loses power must not keep only the name. An object store receives the file at the end. Messages name `output`.

    Raises
    ------
    OutputError
        It cannot be written; the old one stays.
    """
    output = output or file.url
    folder = None if file.local else tempfile.mkdtemp(prefix="dslda-")
    temporary = file.sibling("partial").url if folder is None else os.path.join(folder, "file")
    try:
        with writing(output):
            stream = open(temporary, "w+b")  # noqa: SIM115 - closing can fail too
        try:
            yield stream
        except BaseException:
            with contextlib.suppress(OSError):
                stream.close()
            raise
        with writing(output):
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
            if folder is None:
                os.replace(temporary, file.url)
                flush(os.path.dirname(file.url))
            else:
                fs, path = file.file_system()
                fs.put_file(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def replace_file(file: Location, raw: bytes, output: str | None = None) -> None:
    """Replace a file as a whole; parameters and errors are those of :func:`replacing`."""
    if file.local:
        with replacing(file, output) as stream, writing(output or file.url):
            stream.write(raw)
    else:
        fs, path = file.file_system()
        with writing(output or file.url):
            fs.pipe_file(path, raw)


def replace_attributes(group: Location, attributes: Mapping[str, Any], output: str) -> None:
    """Replace the attributes of a zarr group as a whole; errors are those of :func:`replacing`."""
    fs, root = group.file_system()
    with writing(output):
        metadata = parse_json(fs.cat_file(f"{root}/{METADATA}"))
    replace_file(
        group.child(METADATA), json.dumps(metadata | {"attributes": attributes}, indent=2).encode(), output
    )


def move_into_place(
    source: Location,
    target: Location,
    *,
    encoding_type: str,
    overwrite: bool,
    before_manifest: Callable[[], None] | None = None,
) -> None:
    """Give a complete store its name; the store that it replaces is removed only then.

    A local store is renamed. In an object store the objects are copied, the manifest last: a reader finds the old store,
    none, or the new one, but never a mixture. An error that `before_manifest` raises leaves none.

    Raises
    ------
    OutputExistsError
        As :func:`check_output`: another run wrote the same output meanwhile.
    """
    replaces = check_output(target, encoding_type=encoding_type, overwrite=overwrite)
    if target.local:
        _rename(source, target, replaces=replaces)
        return
    fs, target_root = target.file_system()
    if replaces:
        target.remove()
    _, source_root = source.file_system()
    fs.invalidate_cache()
    manifest = f"{source_root}/{METADATA}"
    names = [name for name in fs.find(source_root) if name != manifest]
    fs.copy(names, [target_root + name.removeprefix(source_root) for name in names])
    if before_manifest is not None:  # copying may take long
        before_manifest()
    fs.copy(
        [manifest], [f"{target_root}/{METADATA}"]
    )  # as lists, in which fsspec takes no brackets for a pattern
    source.remove()


def _rename(source: Location, target: Location, *, replaces: bool) -> None:
    if not replaces:
        if os.path.isdir(target.url):
            os.rmdir(target.url)  # empty, or check_output had refused it; Windows would not rename over it
        os.rename(source.url, target.url)
        return
    old = target.sibling("old")
    os.rename(target.url, old.url)
    try:
        os.rename(source.url, target.url)
    except BaseException:  # Ctrl-C too must not leave the old one under its hidden name
        if not os.path.lexists(target.url):
            os.rename(old.url, target.url)
        raise
    old.remove()


def flush(path: str) -> None:
    """Make the system write a file or folder to the disk, if it can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_among(path: str, pattern: str) -> bool:
    """Return whether an input path, folder or pattern covers a local file."""
    real, source = os.path.realpath(path), os.path.realpath(pattern)
    if real == source or real.startswith(os.path.join(source, "")):
        return True
    return any(
        os.path.realpath(file) == real or (os.path.exists(path) and os.path.samefile(path, file))
        for file in glob.iglob(pattern, recursive=True)
        if os.path.exists(file)
    )


def report_leftovers(path: str) -> None:
    """Log the leftovers of killed runs beside a local output.

    They stay, since another run may be writing them.
    """
    for left in Location(path, local=True).hidden("partial", "old"):
        logger.warning(
            "%s is %s, left by a run that was killed; remove it if no other run is writing %s now",
            left.url,
            "the output that was there before" if left.url.endswith(".old") else "an unfinished output",
            os.path.basename(path),
        )
