"""Inputs of a run: files and partitions of corpora, with the state that shows whether they have changed."""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

from dslda.corpus.store import Corpus
from dslda.exceptions import FormatError, InputChangedError, InputError
from dslda.inputs.formats import FORMATS, FilePiece
from dslda.inputs.reading import ReadingRules
from dslda.inputs.streams import InputFile, why_not_opened
from dslda.storage.location import is_of_file_system
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
    """A file or a partition of a corpus, as the manifest remembers it."""

    path: str
    """URL of a file, path of a corpus."""
    name: str = ""
    """Identifier of the document of a text file."""
    partition: Count | None = None
    size: Count | None = None
    modified: str = ""
    """Time of the last change of a file, as its file system has it."""
    sha256: str = ""
    """Hash of the bytes of a file, or of the checksums of the arrays that are read from a partition; "" before reading."""
    rows: Count = 0
    unreadable: str = ""
    """Reason why no record can be scored, with ``on_error="skip"``."""
    verified: bool = False
    """The input had not changed when all its rows were scored."""

    @property
    def key(self) -> tuple[str, int | None]:
        """Identity of the input in all runs."""
        return self.path, self.partition

    @property
    def label(self) -> str:
        """Name of the input in messages."""
        path = self.path.removeprefix("file://")
        return path if self.partition is None else f"{path}, partition {self.partition}"

    def file(self, options: Mapping[str, Any]) -> InputFile:
        """The file to open."""
        return InputFile(self.path, self.size or 0, options)

    def looks_like(self, other: Input) -> bool:
        """True if the size and time of a file, or the checksums of a partition, are the same."""
        if self.partition is not None:
            return self.sha256 == other.sha256
        return self.size == other.size and self.modified == other.modified


class ScoringUnit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A range of an input whose rows are scored one after the other."""

    input: Count
    """Position of the input in the manifest."""
    rows: Count
    range: dict[str, Any] = {}
    """Fields of the source for the beginning and end of the range; empty for the whole input."""


def state_of(file: InputFile) -> tuple[int, str]:
    """Current size of a file, and the time of its last change.

    Raises
    ------
    InputError
        The file is not there, or its file system does not answer.
    """
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    try:
        filesystem, path = fsspec.core.url_to_fs(file.url, **file.options)
        if isinstance(filesystem, LocalFileSystem):
            status = os.stat(path)
            second, rest = divmod(status.st_mtime_ns, 10**9)
            moment = datetime.datetime.fromtimestamp(second, datetime.UTC)
            return status.st_size, f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
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
    """SHA-256 of the rest of a file, in hexadecimal digits."""
    # files opened for bytes have readinto, which the type does not say
    return hashlib.file_digest(cast("BufferedIOBase", stream), "sha256").hexdigest()


def content_sha256(file: InputFile) -> str:
    """SHA-256 of the stored bytes of a file; one that cannot be read is an `InputError`."""
    try:
        with file.open() as raw:
            return sha256_of(raw)
    except Exception as error:
        if not is_of_file_system(error):
            raise
        raise InputError(f"cannot be read: {error}", place=file.name) from error


def opens(file: InputFile) -> bool:
    """True if a file can be opened and read at present."""
    try:
        with file.open() as raw:
            raw.read(1)
    except (InputError, OSError):
        return False
    return True


def reason_of(error: InputError, place: str) -> str:
    """The reason of an error of a record or file, without its `place` and without advice on parameters of the run."""
    bare = InputError(error.reason, parameter=error.parameter, remedy=error.remedy)
    reason = bare.in_words(lambda reference: None)
    if error.place in (None, place):
        return reason
    # a record of several lines may be wrong in another line than its first
    return f"{error.place.removeprefix(place.rpartition(', line ')[0] + ', ')}: {reason}"


def changed(scanned: Input) -> InputChangedError:
    """Error for a file that has changed since it was scanned."""
    return InputChangedError(
        f"{scanned.label} must stay as it is while it is scored, it was changed meanwhile",
        remedy="nothing of it is kept: run again when nothing writes to it any more",
    )


def check_unchanged(scanned: Input, options: Mapping[str, Any]) -> None:
    """Refuse a file whose size or time has changed since it was scanned."""
    if state_of(scanned.file(options)) != (scanned.size, scanned.modified):
        raise changed(scanned)


def partition_inputs(corpus: Corpus, covariates: Sequence[str]) -> list[Input]:
    """The partitions of a corpus, with the checksums of the arrays that are read."""
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
    scanned: Input,
    unit: ScoringUnit,
    *,
    format: str,
    n_terms: int,
    options: Mapping[str, Any],
    rules: ReadingRules | None = None,
) -> FilePiece:
    """The piece of a file that a unit describes; an invalid range, as in an edited manifest, is a `FormatError`."""
    limits: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in unit.range.items()}
    try:
        file = replace(scanned.file(options), rules=rules)
        return FORMATS[format](file, id=scanned.name, n_terms=n_terms, **limits)
    except TypeError as error:
        reason = f"the range of a piece of {scanned.label} must be one of {format}: {error}"
        raise FormatError(reason) from None
