"""The folder of a run: its parts, a note on each, and the manifest that says which parts belong to the run."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dslda.exceptions import DsldaError, FormatError, OutputExistsError
from dslda.scoring.scoring_units import Input, ScoringUnit
from dslda.scoring.tables import OUTPUT_FORMATS
from dslda.storage.location import Location, reaching
from dslda.storage.lock import UNLOCKED, Lock
from dslda.storage.output import replace_file, writing
from dslda.storage.typed_json import MANIFEST_CHECKSUM, Count, decode, is_whole, parse_json, with_checksum

__all__ = ["ENCODING_TYPE", "MANIFEST", "UNFINISHED", "Part", "RunFolder", "RunState"]

ENCODING_TYPE = "dslda-scores"
ENCODING_VERSION = "1"
MANIFEST = "manifest.json"
UNFINISHED = "unfinished.json"
"""State of an open run beside the manifest of a complete one, whose rows count until the next run is complete."""

PARTS = "parts"
ANOTHER_FOLDER = "choose another folder"

ENDINGS = "|".join(re.escape(writer.ending) for writer in OUTPUT_FORMATS.values())
PART_FILE = re.compile(rf"part-\d{{6,}}({ENDINGS})")
PART_NOTE = re.compile(r"\d{6,}\.(json|ids)")
TEMPORARY = re.compile(r"\..*\.[0-9a-f]{8}\.(partial|probe)")
"""Files that are being written, and probes for the right to write."""
FOLDERS = (("", PART_FILE), (f"{PARTS}/", PART_NOTE))
"""Folders of a run, with the names of its files there."""


class Part(msgspec.Struct, frozen=True, rename={"number": "part"}):
    """A unit of work: pieces of inputs whose rows become one file."""

    number: Count
    """Number that no other part ever gets."""
    first_row: Count
    """Number of records before the part."""
    pieces: tuple[ScoringUnit, ...]

    @property
    def rows(self) -> int:
        """Number of records."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def inputs(self) -> set[int]:
        """Positions of its inputs in the manifest."""
        return {piece.input for piece in self.pieces}

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        pieces = msgspec.to_builtins(list(self.pieces))
        return {"part": self.number, "first_row": self.first_row, "pieces": pieces}


@dataclass(frozen=True, slots=True)
class RunState:
    """State of a run in its manifest, from which the next run continues."""

    identity: Mapping[str, Any]
    """Model and settings, which all runs on a folder share."""
    versions: Mapping[str, str]
    """Versions of the programs that scored last."""
    inputs: tuple[Input, ...] = ()
    parts: tuple[Part, ...] = ()
    next_part: int = 0
    next_row: int = 0
    latest_part: int | None = None
    """Number of the first part of the last run that added any; None where none did, or its release did not tell."""
    complete: bool = False
    """All parts are done, and the manifest has all counts."""

    @property
    def following(self) -> tuple[int, int]:
        """Numbers of the next part and record, after all that the folder ever held."""
        return (
            max([self.next_part, *(part.number + 1 for part in self.parts)]),
            max([self.next_row, *(part.first_row + part.rows for part in self.parts)]),
        )

    def to_json(self) -> dict[str, Any]:
        """The fields that an open run writes."""
        return {
            "encoding-type": ENCODING_TYPE,
            "encoding-version": ENCODING_VERSION,
            "status": "complete" if self.complete else "unfinished",
            **self.identity,
            "versions": dict(self.versions),
            "inputs": msgspec.to_builtins(list(self.inputs)),
            "parts": [part.to_json() for part in self.parts],
            "next_part": self.next_part,
            "next_row": self.next_row,
            "latest_part": self.latest_part,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], place: str) -> RunState:
        """The state that :meth:`to_json` wrote; the counts of a complete run are ignored.

        Raises
        ------
        FormatError
            A field is missing or not valid.
        """
        fields = vars(decode(data, _StoredState, place=place, remedy=ANOTHER_FOLDER))
        identity = {name: fields.pop(name) for name in ("model", "settings")}
        return cls(identity, complete=fields.pop("status") == "complete", **fields)


@dataclass
class _StoredState:
    """Fields of a manifest that make a state."""

    status: str
    model: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    inputs: tuple[Input, ...]
    parts: tuple[Part, ...]
    next_part: Count
    next_row: Count
    latest_part: Count | None = None

    def __post_init__(self) -> None:
        if any(i >= len(self.inputs) for part in self.parts for i in part.inputs):
            raise ValueError("parts must name inputs that are there")


class RunFolder:
    """Reads and writes the files of a run; every file is replaced as a whole, and only while `lock` is not lost."""

    def __init__(self, location: Location, output_format: str, lock: Lock = UNLOCKED) -> None:
        self.location = location
        self._lock = lock
        self._ending = OUTPUT_FORMATS[output_format].ending

    def part_name(self, number: int) -> str:
        """Name of the file with the rows of a part."""
        return f"part-{number:06d}{self._ending}"

    def part_file(self, number: int) -> Location:
        """The file with the rows of a part."""
        return self.location.child(self.part_name(number))

    def ids_file(self, number: int) -> Location:
        """The file with the hashes of the identifiers of a part."""
        return self.location.child(_ids(number))

    def read_manifest(self) -> dict[str, Any] | None:
        """The manifest; None where no run was begun.

        Raises
        ------
        OutputExistsError
            The folder is not empty and holds no run.
        FormatError
            The manifest is damaged, edited, or of another version.
        """
        raw = self._read(MANIFEST)
        path = f"{self.location.url}/{MANIFEST}"
        if raw is None:
            if others := [name for name in self._entries("") if not name.startswith(".")]:
                raise OutputExistsError(
                    f"{self.location.url} is there and is no run of dslda score ({others[0]} is in it, and no {MANIFEST}), "
                    "so nothing is written there",
                    remedy=ANOTHER_FOLDER,
                )
            return None
        try:
            data = parse_json(raw)
        except ValueError as error:
            raise FormatError(f"{path} is damaged or cut short ({error})", remedy=ANOTHER_FOLDER) from error
        if not isinstance(data, dict) or data.get("encoding-type") != ENCODING_TYPE:
            raise OutputExistsError(
                f"{path} is not that of a run of dslda score, so nothing is written there",
                remedy=ANOTHER_FOLDER,
            )
        if data.get("encoding-version") != ENCODING_VERSION:
            raise FormatError(
                f"{path} is of version {data.get('encoding-version')!r}, this release of dslda reads version "
                f"{ENCODING_VERSION!r}",
                remedy="update dslda",
            )
        if not is_whole(data):
            raise FormatError(
                f"{path} does not agree with its checksum, it was damaged or edited",
                remedy=("put it back from a copy", ANOTHER_FOLDER),
            )
        return data

    def complete_manifest(self) -> dict[str, Any] | None:
        """The manifest of a complete run; None where the folder has none, or it cannot be read."""
        with contextlib.suppress(DsldaError, OSError):
            manifest = self.read_manifest()
            if manifest is not None and manifest.get("status") == "complete":
                return manifest
        return None

    def check_kinds(self) -> None:
        """Refuse a folder in place of a file of the run, and a file in place of its folder."""
        for folder, pattern in FOLDERS:
            for name, kind in self._entries(folder).items():
                path = f"{folder}{name}"
                is_ours = pattern.fullmatch(name) or path == UNFINISHED
                if path == PARTS and kind == "file":
                    must, is_now = "a folder", "a file"
                elif is_ours and kind == "directory":
                    must, is_now = "a file", "a folder"
                else:
                    continue
                raise FormatError(
                    f"{self.location.url}/{path} must be {must} of the run, it is {is_now}",
                    remedy=("move that away, and the missing rows are scored again", ANOTHER_FOLDER),
                )

    def write_manifest(self, data: Mapping[str, Any]) -> None:
        """Replace the manifest, with its checksum."""
        self._write_checked(MANIFEST, data)

    def read_unfinished(self, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
        """State of an open run beside the manifest of a complete one; None where there is none.

        A state that is damaged or follows another manifest is ignored: a run that was killed just after it was complete
        leaves such a state, and the manifest and the inputs hold everything in it.
        """
        if manifest.get("status") != "complete":
            return None
        data = self._read_checked(UNFINISHED)
        return data if data is not None and data.get("follows") == manifest[MANIFEST_CHECKSUM] else None

    def write_unfinished(self, state: RunState, counting: Mapping[str, Any] | None) -> None:
        """Write the state of an open run.

        The manifest `counting` of a complete run stays. With None (there is none, or it has lost rows), the manifest
        then says that nothing counts.
        """
        if counting is None:
            self.write_manifest(state.to_json())
            self._remove(UNFINISHED)
        else:
            self._write_checked(UNFINISHED, state.to_json() | {"follows": counting[MANIFEST_CHECKSUM]})

    def tidy(self, parts: Sequence[int]) -> None:
        """Remove all parts except those of a complete run, after an open run that was completed or given up."""
        if self.size(self.location.child(UNFINISHED)) is not None:
            self.clear(parts)
            self._remove(UNFINISHED)  # last: while it is there, other files may be left too

    def read_note(self, part: Part, key: str) -> dict[str, Any] | None:
        """The note of a finished part; None where the part is open, or has other files or another key."""
        note = self._read_checked(_note(part.number))
        is_of_part = note is not None and note.get("key") == key and self.has_files(part.number, note)
        return note if is_of_part else None

    def has_files(self, number: int, done: Mapping[str, Any]) -> bool:
        """True if the files of a part are there, with the sizes that they had when it was finished."""
        sizes = [self.size(file) for file in (self.part_file(number), self.ids_file(number))]
        has_note = self.size(self.location.child(_note(number))) is not None
        return has_note and sizes == [done.get("bytes"), 8 * done.get("rows", -1)]

    def has_all_files(self, parts: Sequence[Mapping[str, Any]]) -> bool:
        """True if the files of all these parts of a manifest are there."""
        return all(self.has_files(entry["part"], entry) for entry in parts)

    def write_note(self, part: Part, note: Mapping[str, Any]) -> None:
        """Write the note of a finished part, with its checksum."""
        self._write_checked(_note(part.number), note, indent=None)

    def size(self, file: Location) -> int | None:
        """Bytes of a file; None where there is none."""
        fs, path = file.file_system()
        if not file.local:
            fs.invalidate_cache()
        try:
            with reaching(file.url):
                return int(fs.size(path))
        except FileNotFoundError:
            return None

    def prepare(self) -> None:
        """Make the folders."""
        if self.location.local:
            with writing(self.location.url):
                os.makedirs(os.path.join(self.location.url, PARTS), exist_ok=True)

    def clear(self, parts: Sequence[int]) -> None:
        """Remove temporary files of killed runs, and parts whose numbers are not among these."""
        staying = {name for n in parts for name in (self.part_name(n), _note(n), _ids(n))}
        for folder, pattern in FOLDERS:
            for name, kind in self._entries(folder).items():
                is_temporary = kind != "directory" and TEMPORARY.fullmatch(name)
                if is_temporary or (pattern.fullmatch(name) and f"{folder}{name}" not in staying):
                    self._remove(f"{folder}{name}")

    def clear_unfinished(self) -> None:
        """Remove files that workers were writing when they ended; object stores have none."""
        if self.location.local:
            for folder, _ in FOLDERS:
                for name in filter(TEMPORARY.fullmatch, self._entries(folder)):
                    with contextlib.suppress(OSError):  # the failure that ended the run matters more
                        self._remove(f"{folder}{name}")

    def forget(self, number: int) -> None:
        """Mark a part as open; its rows stay until they are replaced."""
        self._remove(_note(number))

    def remove_part(self, number: int) -> None:
        """Remove a part, its note first: a removal that is cut short must not leave a part that seems finished."""
        for name in (_note(number), _ids(number), self.part_name(number)):
            self._remove(name)

    def remove_if_empty(self) -> None:
        """Remove the folders of a run that could not begin."""
        if self.location.local:
            for folder in (os.path.join(self.location.url, PARTS), self.location.url):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def _entries(self, folder: str) -> dict[str, str]:
        """Names in a folder with their kind: "file", "directory", or another kind of the file system."""
        fs, root = self.location.file_system()
        path = f"{root}/{folder}".rstrip("/")
        if not self.location.local:
            fs.invalidate_cache()
        try:
            with reaching(self.location.url):
                listed = fs.ls(path, detail=True)
        except FileNotFoundError:
            return {}
        except NotADirectoryError:
            return {os.path.basename(root): "file"}
        kinds = {os.path.basename(entry["name"].rstrip("/")): entry["type"] for entry in listed}
        return {name: kind for name, kind in kinds.items() if name and name != os.path.basename(path)}

    def _read(self, name: str) -> bytes | None:
        fs, root = self.location.file_system()
        try:
            with reaching(self.location.url):
                return bytes(fs.cat_file(f"{root}/{name}"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError:
            raise FormatError(
                f"{self.location.url}/{name} must be a file of the run, it is a folder",
                remedy=("put it back from a copy", ANOTHER_FOLDER),
            ) from None

    def _read_checked(self, name: str) -> dict[str, Any] | None:
        """Content that :meth:`_write_checked` wrote; None where it is missing or damaged."""
        try:
            data = parse_json(self._read(name) or b"")
        except ValueError:
            return None
        return data if isinstance(data, dict) and is_whole(data) else None

    def _write_checked(self, name: str, data: Mapping[str, Any], *, indent: int | None = 1) -> None:
        raw = json.dumps(with_checksum(data), indent=indent, allow_nan=False).encode()
        self._lock.check()
        replace_file(self.location.child(name), raw, self.location.url)

    def _remove(self, name: str) -> None:
        self._lock.check()
        fs, root = self.location.file_system()
        with writing(self.location.url), contextlib.suppress(FileNotFoundError):
            fs.rm_file(f"{root}/{name}")


def _note(number: int) -> str:
    return f"{PARTS}/{number:06d}.json"


def _ids(number: int) -> str:
    return f"{PARTS}/{number:06d}.ids"
