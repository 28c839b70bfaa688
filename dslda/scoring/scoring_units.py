"""Inputs of a run, files and partitions of corpora, with the state that shows whether they are still the same."""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

from dslda.corpus.store import Corpus
from dslda.exceptions import FormatError, InputChangedError, InputError
from dslda.inputs.formats import FORMATS, FilePiece
from dslda.inputs.streams import InputFile, compression_of, why_not_opened
from dslda.storage.errors import is_of_file_system
from dslda.storage.typed_json import Count, json_sha256

if TYPE_CHECKING:
    from io import BufferedIOBase

__all__ = [
    "Input",
    "ScoringUnit",
    "changed",
    "check_unchanged",
    "content_sha256",
    "opens",
    "partition_inputs",
    "reason_of",
    "sha256_of",
    "source_of",
    "state_of",
]


@dataclass(frozen=True, slots=True)
class Input:
    """A file, or a partition of a corpus, as the manifest remembers it.

    Attributes
    ----------
    path : str
        URL of a file, path of a corpus.
    name : str
        What identifies the document of a text file.
    partition : int or None
        Of a corpus.
    size : int or None
        Bytes of a file.
    modified : str
        When a file was changed last, as its file system tells it; "" where it does not.
    sha256 : str
        Of the bytes of a file; of the checksums of what is read of a partition. "" before it was read.
    rows : int
        Records in it.
    unreadable : str
        Why nothing of it can be scored, with ``on_error="skip"``; "" otherwise.
    verified : bool
        It was still the same when all its rows were scored.
    """

    path: str
    name: str = ""
    partition: Count | None = None
    size: Count | None = None
    modified: str = ""
    sha256: str = ""
    rows: Count = 0
    unreadable: str = ""
    verified: bool = False

    @property
    def key(self) -> tuple[str, int | None]:
        """What makes it the same input as one of an earlier run."""
        return self.path, self.partition

    @property
    def label(self) -> str:
        """As messages name it."""
        path = self.path.removeprefix("file://")
        return path if self.partition is None else f"{path}, partition {self.partition}"

    def file(self, options: Mapping[str, Any]) -> InputFile:
        """The file to open."""
        return InputFile(self.path, self.size or 0, compression_of(self.path), options)

    def looks_like(self, other: Input) -> bool:
        """Whether size and time, or the checksums of a partition, say that it was not changed."""
        if self.partition is not None:
            return self.sha256 == other.sha256
        return self.size == other.size and self.modified == other.modified


class ScoringUnit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A range of an input whose rows are scored one after the other.

    Attributes
    ----------
    input : int
        Position of the input in the manifest.
    rows : int
        Records in it.
    range : dict
        Fields of the source that say where it begins and ends; empty for all of the input.
    """

    input: Count
    rows: Count
    range: dict[str, Any] = {}


def state_of(file: InputFile) -> tuple[int, str]:
    """Size of a file and when it was changed last, now.

    Raises
    ------
    InputError
        It is not there, or cannot be asked for.
    """
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    try:
        filesystem, path = fsspec.core.url_to_fs(file.url, **file.options)
        if isinstance(filesystem, LocalFileSystem):
            found = os.stat(path)
            second, rest = divmod(found.st_mtime_ns, 10**9)
            moment = datetime.datetime.fromtimestamp(second, datetime.UTC)
            return found.st_size, f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
        filesystem.invalidate_cache()
        info = filesystem.info(path)
    except Exception as error:
        # ValueError: a NUL, or an unknown protocol
        if not (isinstance(error, (ImportError, ValueError)) or is_of_file_system(error)):
            raise
        raise InputError(f"cannot be opened: {why_not_opened(file.name, error)}", place=file.name) from error
    marks = (info.get(name) for name in ("ETag", "etag", "LastModified", "last_modified", "mtime", "created"))
    return int(info["size"] or 0), " ".join(str(mark) for mark in marks if mark is not None)


def sha256_of(stream: IO[bytes]) -> str:
    """SHA-256 of what is left of a file, in hexadecimal digits."""
    # every file that is opened for bytes has readinto, which the type does not say
    return hashlib.file_digest(cast("BufferedIOBase", stream), "sha256").hexdigest()


def content_sha256(file: InputFile) -> str:
    """SHA-256 of the bytes of a file as stored.

    Raises
    ------
    InputError
        It cannot be read.
    """
    try:
        with file.open() as raw:
            return sha256_of(raw)
    except Exception as error:
        if not is_of_file_system(error):
            raise
        raise InputError(f"cannot be read: {error}", place=file.name) from error


def opens(file: InputFile) -> bool:
    """Whether a file can be opened and read from, now."""
    try:
        with file.open() as raw:
            raw.read(1)
    except (InputError, OSError):
        return False
    return True


def reason_of(error: InputError, place: str) -> str:
    """An error of a record or file, without its `place`, and without advice on parameters, which are for all records."""
    bare = InputError(error.reason, parameter=error.parameter, remedy=error.remedy)
    reason = bare.in_words(lambda reference: None)
    if error.place in (None, place):
        return reason
    # a record of several lines is wrong in one of the others
    return f"{error.place.removeprefix(place.rpartition(', line ')[0] + ', ')}: {reason}"


def changed(found: Input) -> InputChangedError:
    """The error of a file that is not what it was when it was read first."""
    return InputChangedError(
        f"{found.label} must stay as it is while it is scored, it was changed meanwhile",
        remedy="nothing of it is kept: run again when nothing writes to it any more",
    )


def check_unchanged(found: Input, options: Mapping[str, Any]) -> None:
    """Compare size and time of a file with those that it had.

    Raises
    ------
    InputChangedError
        They are others.
    """
    if found.partition is None and state_of(found.file(options)) != (found.size, found.modified):
        raise changed(found)


def partition_inputs(corpus: Corpus, covariates: Sequence[str]) -> list[Input]:
    """The partitions of a corpus, by the checksums of what is read of them."""
    positions = [corpus.covariate_names.index(name) for name in covariates]
    read = ["doc_id", *(f"covariates/{position}" for position in positions)]
    return [
        Input(
            corpus.path,
            partition=i,
            sha256=json_sha256([info.checksum, *(info.column_checksums.get(name) for name in read)]),
            rows=info.n_documents,
        )
        for i, info in enumerate(corpus.partitions)
    ]


def source_of(
    found: Input, unit: ScoringUnit, *, format: str, n_terms: int, options: Mapping[str, Any]
) -> FilePiece:
    """The piece of a file that a unit describes by its range.

    Raises
    ------
    FormatError
        The range is none: the manifest was edited.
    """
    limits: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in unit.range.items()}
    try:
        return FORMATS[format](found.file(options), id=found.name, n_terms=n_terms, **limits)
    except TypeError as error:
        reason = f"the range of a piece of {found.label} must be one of {format}: {error}"
        raise FormatError(reason) from None
