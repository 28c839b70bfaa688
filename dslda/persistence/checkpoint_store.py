"""Writing and reading a checkpoint: what EM needs to go on (specified in docs/formats.md).

A checkpoint is replaced many times while a fit runs, and the process may be killed at any moment. So its arrays lie in a
group with a unique name, and the manifest names the group of *the* checkpoint. The manifest is one file, which is replaced as
a whole, so that a reader finds the old checkpoint or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import FormatError, InputError, OutputError, OutputExistsError
from dslda.storage.location import METADATA, Location, check_not_in_store, reaching
from dslda.storage.lock import LOCK_INSIDE, UNLOCKED, only_writer
from dslda.storage.output import check_writable, flush, replace_file, writing
from dslda.storage.typed_json import (
    PositiveCount,
    check_distinct,
    decode,
    is_whole,
    json_sha256,
    with_checksum,
)
from dslda.storage.zarr_arrays import StoredArray, damaged, entries, read_arrays, write_array
from dslda.wording import short_repr

__all__ = ["ENCODING_TYPE", "CheckpointRecord", "CheckpointStore", "read_checkpoint"]

ENCODING_TYPE = "dslda-checkpoint"
ENCODING_VERSION = "1"
STATE = re.compile(r"state-[0-9a-f]{12}")
UNFINISHED = re.compile(rf"\.{re.escape(METADATA)}\.[0-9a-f]{{8}}\.partial")
"""A manifest whose writing was cut short."""
TRACE = "trace"
REMEDY = ("copy it again", "train from the beginning")
READ_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointRecord:
    """State of a fit between two iterations, as plain data.

    Attributes
    ----------
    parameters : mapping of str to ndarray of float64
        The non-empty fields of :class:`~dslda.variational.parameters.Parameters` for the next iteration. `topics` has shape
        (V, K) as there; the transpose, which a model stores, would take a copy.
    trace : mapping of str to ndarray of float64, shape (n_iterations,)
        Measurements of each complete iteration, at least one.
    fit : mapping
        Identity and settings of the fit, as JSON.
    """

    parameters: Mapping[str, NDArray[np.float64]]
    trace: Mapping[str, NDArray[np.float64]]
    fit: Mapping[str, Any]

    __repr__ = short_repr

    @property
    def n_iterations(self) -> int:
        """Complete iterations."""
        return len(next(iter(self.trace.values())))


class _CheckpointManifest(msgspec.Struct, frozen=True):
    iterations: PositiveCount
    state: Annotated[str, msgspec.Meta(pattern=rf"\A{STATE.pattern}\Z")]
    trace: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    fit: dict[str, Any]
    arrays: dict[str, StoredArray]

    def __post_init__(self) -> None:
        check_distinct("`trace`", self.trace)


class CheckpointStore:
    """The place of a checkpoint that one fit reads and writes: a local directory, made with its parents, or an fsspec URL."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._location = Location.of(path)
        self.url = self._location.url
        self._lock = UNLOCKED
        # manifests that may be here without any other fit
        self._known: set[str | None] = {None}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other fits from this place, from :meth:`check` to the last :meth:`write`.

        Two fits that begin at the same moment could not see each other by their files, and each would remove the other's.
        Raises as :func:`~dslda.storage.lock.only_writer`.
        """
        with only_writer(self._location, inside=True) as self._lock:
            yield

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse a place that cannot be used, before the long work.

        Raises
        ------
        OutputExistsError
            A checkpoint is there and neither `resume` nor `overwrite` is set, or something else is there.
        FormatError
            The checkpoint to resume is damaged or of another version.
        InputError
            Nothing can be written there, or it is inside a corpus, model or other checkpoint.
        """
        check_not_in_store(self._location)
        manifest = self._manifest()
        if manifest is not None and resume:
            _check_manifest(manifest, self.url)
        elif manifest is not None and not overwrite:
            raise OutputExistsError(
                f"{self.url} holds a checkpoint",
                remedy=(
                    "go on from it with {resume=True}",
                    "replace it with {overwrite=True}",
                    "choose another path",
                ),
            )
        # an existing checkpoint is replaced from inside
        check_writable(self._location if manifest is None else self._location.child(METADATA))
        self._known = {None if manifest is None else _identity(manifest)}

    def read(self) -> CheckpointRecord | None:
        """Read the checkpoint, None if there is none yet; errors as :func:`read_checkpoint`."""
        if self._manifest() is None:
            return None
        record, identity = _read(self._location)
        self._known = {identity}
        return record

    def write(self, record: CheckpointRecord) -> None:
        """Replace the checkpoint.

        Raises
        ------
        OutputError
            It cannot be written, and the previous one is still there; or another fit has written here meanwhile.
        """
        import zarr

        for array_name, array in record.parameters.items():
            if not np.isfinite(array).all():
                raise OutputError(
                    f"keeps the checkpoint before: parameters must be finite, got {array_name} that are not",
                    place=self.url,
                )
        name = f"state-{uuid.uuid4().hex[:12]}"
        group = self._location.child(name)
        try:
            with writing(self.url):
                self._check_owner()  # before the large arrays are written in vain
                stored = zarr.create_group(group.store(read_only=False), zarr_format=3)
                arrays = {**record.parameters, TRACE: np.column_stack(list(record.trace.values()))}
                for array_name, array in arrays.items():
                    write_array(stored, array_name, array)
                attributes = with_checksum(
                    {
                        "encoding-type": ENCODING_TYPE,
                        "encoding-version": ENCODING_VERSION,
                        "iterations": record.n_iterations,
                        "state": name,
                        "fit": dict(record.fit),
                        "trace": list(record.trace),
                        "arrays": entries(arrays),
                    }
                )
                self._check_owner()
                self._known.add(_identity(attributes))  # an interrupt may come right after the commit
                self._commit(group, attributes)
                self._known = {_identity(attributes)}
        except BaseException:
            # an interrupt may come when the manifest was just replaced
            with contextlib.suppress(Exception):
                if (self._manifest() or {}).get("state") != name:
                    group.remove()
            raise
        self._remove_all_but(name)

    def _manifest(self) -> dict[str, Any] | None:
        """Attributes of the checkpoint; None where there is nothing but, at most, a first write that was cut short.

        Raises
        ------
        OutputExistsError
            Something else is there.
        """
        try:
            attributes = self._location.read_attributes()
        except (FormatError, InputError) as error:
            are_states = [STATE.fullmatch(entry) is not None for entry in self._entries()]
            if all(are_states):
                return None
            if isinstance(error, FormatError) and any(are_states):
                raise  # ours, with a damaged manifest
            attributes = {}
        if attributes.get("encoding-type") != ENCODING_TYPE:
            raise OutputExistsError(
                f"{self.url} is there and is not a {ENCODING_TYPE}, so it is never replaced",
                remedy=("choose another path", "remove it yourself"),
            )
        return attributes

    def _entries(self) -> list[str]:
        """Names of everything here but the lock and unfinished manifests."""
        fs, root = self._location.file_system()
        fs.invalidate_cache()
        with reaching(self.url):
            if fs.isfile(root):
                return [""]
            try:
                paths = fs.ls(root, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        names = (os.path.basename(entry.rstrip("/")) for entry in paths if entry.rstrip("/") != root)
        return [name for name in names if name and name != LOCK_INSIDE and not UNFINISHED.fullmatch(name)]

    def _check_owner(self) -> None:
        self._lock.check()
        manifest = self._manifest()
        if (None if manifest is None else _identity(manifest)) not in self._known:
            raise OutputError(
                f"{self.url} was written by another fit meanwhile, so this one keeps off it",
                remedy="give every fit a checkpoint of its own",
            )

    def _commit(self, group: Location, attributes: Mapping[str, Any]) -> None:
        """Replace the manifest, in one step."""
        metadata = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        # flush to the disk before the manifest names them: a machine that loses power must not keep only the name
        for folder, _, files in os.walk(group.url) if group.local else ():
            for file in files:
                flush(os.path.join(folder, file))
            flush(folder)
        content = json.dumps(metadata, indent=2, allow_nan=False).encode()
        replace_file(self._location.child(METADATA), content, self.url)

    def _remove_all_but(self, name: str) -> None:
        """Remove the previous state, and what killed writes have left."""
        with contextlib.suppress(Exception):  # rights to write need not be rights to remove
            for entry in self._location.entries():
                if (STATE.fullmatch(entry) and entry != name) or UNFINISHED.fullmatch(entry):
                    self._location.child(entry).remove()


def read_checkpoint(path: str | os.PathLike[str]) -> CheckpointRecord:
    """Read a checkpoint and compare every array with its checksum.

    Raises
    ------
    InputError
        There is nothing at `path`.
    FormatError
        It is no checkpoint, or is damaged, truncated, or of a version that this release cannot read.
    """
    return _read(Location.of(path))[0]


def _read(location: Location) -> tuple[CheckpointRecord, str]:
    attempt = 0
    while True:
        attempt += 1
        data = location.read_attributes()
        _check_manifest(data, location.url)
        try:
            return _record(location, data), _identity(data)
        except FormatError:
            # a running fit may have replaced the state
            if attempt == READ_ATTEMPTS or _identity(location.read_attributes()) == _identity(data):
                raise


def _record(location: Location, data: Mapping[str, Any]) -> CheckpointRecord:
    place = f"{location.url}: attributes"
    manifest = decode(data, _CheckpointManifest, place=place, remedy=REMEDY)
    arrays = read_arrays(location.child(manifest.state), manifest.arrays, remedy=REMEDY)
    for name, array in arrays.items():
        if array.dtype != np.float64 or not (name == TRACE or np.isfinite(array).all()):
            raise damaged(location.url, name, "has values that no checkpoint can have", REMEDY)
    trace = arrays.pop(TRACE, np.zeros((0, 0)))
    if trace.shape != (manifest.iterations, len(manifest.trace)):
        raise FormatError(
            f"array 'trace' must have a row for each iteration, got shape {trace.shape}",
            place=place,
            remedy=REMEDY,
        )
    columns = {
        name: np.ascontiguousarray(column) for name, column in zip(manifest.trace, trace.T, strict=True)
    }
    return CheckpointRecord(arrays, columns, manifest.fit)


def _check_manifest(data: Mapping[str, Any], path: str) -> None:
    """Refuse what is not a complete, undamaged checkpoint of the version this release reads."""
    kind, version = data.get("encoding-type"), data.get("encoding-version")
    if kind != ENCODING_TYPE:
        raise FormatError(
            f"{path} is not a checkpoint of dslda", remedy="dslda train --checkpoint writes one"
        )
    if version != ENCODING_VERSION:
        raise FormatError(
            f"{path} is a checkpoint of version {version!r}, and this release of dslda reads version {ENCODING_VERSION!r}",
            remedy="go on with the release that wrote it",
        )
    if not is_whole(data):
        raise FormatError(
            "the attributes do not agree with their checksum, the checkpoint was damaged or edited",
            place=path,
            remedy=REMEDY,
        )


def _identity(data: Mapping[str, Any]) -> str:
    """Hash of the state of a checkpoint, damaged or not."""
    return json_sha256(dict(data))
