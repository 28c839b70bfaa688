"""Files of an input: paths, globs and folders are listed, and large files cut into pieces."""

from __future__ import annotations

import codecs
import io
import logging
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import unquote

from dslda.exceptions import InputError
from dslda.inputs.fields import Fields
from dslda.inputs.formats import FORMATS, FilePiece
from dslda.inputs.pipes import check_pipes, is_pipe, spool
from dslda.inputs.reading import UTF_8, ReadingRules
from dslda.inputs.streams import UNPACK, InputFile, is_archive, not_read, read_blocks
from dslda.storage.location import METADATA, chain_parts
from dslda.wording import first_few

__all__ = [
    "InputFiles",
    "check_first_records",
    "cut_file",
    "group_sources",
    "list_files",
    "listed",
    "needs_cutting",
    "target_bytes",
    "whole_files",
    "why_no_file",
]

logger = logging.getLogger("dslda.ingest")

T = TypeVar("T")

SPREADSHEETS = frozenset({".xlsx", ".xlsm", ".xls", ".ods", ".numbers"})

LONGEST_NAME = 255
"""Characters of a name in any file system."""

MIN_CHUNK_BYTES = 1 << 20
MAX_CHUNK_BYTES = 16 << 20
CHUNKS_WANTED = 64
"""A chunk is 1/64 of the input, from 1 MB (so that a task is worth its cost) to 16 MB (seconds of tokenising)."""

OPENING_BYTES = 16 << 10
"""Cost of opening a file, as bytes of text: keeps thousands of tiny files from becoming one chunk."""

COMPRESSION = 3
"""Approximate bytes of text in a byte of a compressed file."""


class NoFileError(InputError):
    """A valid path, folder or pattern without a file."""


def listed(inputs: Any) -> list[Any]:
    """Inputs as a list; a single input becomes a list of one."""
    alone = isinstance(inputs, (str, os.PathLike)) or not isinstance(inputs, Iterable)
    return [inputs] if alone else list(inputs)


@dataclass(frozen=True, slots=True)
class InputFiles:
    """The files of an input.

    Attributes
    ----------
    format : str
        A key of :data:`~dslda.inputs.formats.FORMATS`.
    files : tuple of InputFile
        In the order of the inputs; those of a folder or glob sorted by path.
    ids : tuple of str
        Path of each, relative to the folder that was searched.
    """

    format: str
    files: tuple[InputFile, ...]
    ids: tuple[str, ...]

    @property
    def piece(self) -> type[FilePiece]:
        """The class of their pieces, which is their format."""
        return FORMATS[self.format]

    @property
    def text_bytes(self) -> int:
        """Approximate bytes of text."""
        return sum(self.text_bytes_of(file) for file in self.files)

    def text_bytes_of(self, file: InputFile) -> int:
        """Approximate bytes of text of one file."""
        return file.size * max(self.piece.expansion, 1 if file.compression is None else COMPRESSION)

    def read_by(self, rules: ReadingRules) -> InputFiles:
        """The same files to be read by these rules; those that the format has no use for are refused."""
        rules.refuse_for(self.piece.title, taken=self.piece.rules)
        if self.files and self.files[0].size:  # a stream has none, and cannot be read twice
            _report_utf8(self.files[0], rules)
        accepted = rules if self.piece.rules else None
        return replace(self, files=tuple(replace(file, rules=accepted) for file in self.files))


def _report_utf8(file: InputFile, rules: ReadingRules) -> None:
    """Warn if a file that is to be read in another encoding looks as if it were in UTF-8."""
    if rules.encoding in (None, UTF_8):
        return
    with suppress(InputError), closing(read_blocks(file)) as blocks:  # type: ignore[type-var]
        block = next(blocks, b"")
        # other encodings hardly ever make valid UTF-8; the block may end in the middle of a character
        with suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(UTF_8)().decode(block)
            if not block.isascii():
                logger.warning("%s looks like UTF-8, and is read as %s", file.name, rules.encoding)


def list_files(
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    format: str = "auto",
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> InputFiles:
    """List the files of paths, globs, folders and URLs.

    Folders are searched to their depths, without names that begin with ``.`` or ``_``. The `format` "auto" goes by the
    files' names, which must agree. A pipe that is named is copied to a temporary file, and the format "auto" may go by its
    content; pipes in folders and at patterns are passed over.

    Raises
    ------
    InputError
        Nothing is there, a folder cannot be listed, the format is not clear, or files have several formats.
    """
    if format != "auto" and format not in FORMATS:
        raise InputError(
            f"must be 'auto' or one of {', '.join(FORMATS)}, got {format!r:.60}", parameter="format"
        )
    if isinstance(inputs, (bytes, bytearray, Mapping, io.IOBase)):
        raise InputError(
            "must be paths or URLs, a DataFrame of texts, mappings, a sparse matrix, or a dask bag or DataFrame, "
            f"got {'an open file' if isinstance(inputs, io.IOBase) else type(inputs).__name__}",
            parameter="inputs",
            remedy="give its path"
            if isinstance(inputs, io.IOBase)
            else "give a list of one mapping for each document",
        )
    if hasattr(inputs, "columns") or hasattr(inputs, "__array__"):
        raise InputError(
            f"must be paths or URLs, got a {type(inputs).__name__} in memory",
            parameter="inputs",
            remedy=(
                "write it to a file",
                "give {ingest()} a DataFrame with a column of texts, or a scipy sparse matrix of counts",
            ),
        )
    paths = listed(inputs)
    if not paths:
        raise InputError("must name at least one input, got none", parameter="inputs")
    check_pipes(paths)
    files: list[InputFile] = []
    ids: list[str] = []
    others: list[str] = []
    for path in paths:
        if isinstance(path, str) and not path.strip():
            raise InputError(f"must be a path or URL that is not empty, got {path!r}", parameter="inputs")
        if isinstance(path, str) and "://" not in path and len(path.rpartition("/")[2]) > LONGEST_NAME:
            raise InputError(
                f"must be a path or URL, got a string of {len(path):,} characters",
                parameter="inputs",
                remedy="give texts as mappings, [{'text': '...'}, ...]",
            )
        if not isinstance(path, (str, os.PathLike)):
            raise InputError(
                "must be paths or URLs, a DataFrame of texts, mappings, a sparse matrix, or a dask bag or DataFrame, "
                f"got {type(path).__name__}",
                parameter="inputs",
            )
        if is_pipe(path):
            files.append(spool(path, format))
            ids.append(posixpath.basename(files[-1].name))
            continue
        found, passed_over = _expand(os.fspath(path), dict(storage_options or {}))
        files += [file for file, _ in found]
        ids += [doc_id for _, doc_id in found]
        others += passed_over
    chosen = _format_by_ending(files) if format == "auto" else format
    for name in dict.fromkeys(others):
        logger.warning(
            "%s is passed over: it is no file, or a link to a folder; name that folder itself", name
        )
    return InputFiles(chosen, tuple(files), tuple(ids)).read_by(ReadingRules())


def check_first_records(
    inputs: InputFiles, fields: Fields, *, tolerant: bool = False, any_file: bool = False
) -> None:
    """Compare fields with those of the first file that has any, before long work.

    A JSON record may lack a field, as Spark leaves nulls out, but not all records of all files: then its name is wrong.
    `tolerant` leaves files that cannot be read, and inputs without a record, to the reader of the records; with
    `any_file` one file with the fields is enough.
    """
    if inputs.piece.own_fields is not None:
        return
    errors: list[InputError] = []
    seen: dict[str, None] = {}
    for file in inputs.files:
        piece = inputs.piece(file)
        try:
            present = piece.field_names(fields.required - seen.keys())
        except InputError:
            if not tolerant:
                raise
            continue
        if present is None:
            continue
        if piece.fields_vary:
            seen.update(dict.fromkeys(present))
            present = list(seen)
        try:
            fields.check_against(present, file.name)
        except InputError as error:
            if not ((any_file or piece.fields_vary) and fields.is_named):
                raise
            errors.append(error)
            continue
        return
    if errors:
        raise errors[0]
    if not tolerant:
        more = len(inputs.files) - 1
        names = f"{inputs.files[0].name} and {more} more are" if more else f"{inputs.files[0].name} is"
        raise InputError(f"no documents: {names} empty")


def target_bytes(inputs: InputFiles) -> int:
    """Bytes of a chunk."""
    return min(max(inputs.text_bytes // CHUNKS_WANTED, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES)


def whole_files(inputs: InputFiles, *, n_terms: int) -> list[tuple[FilePiece, int]]:
    """A piece for each file, uncut, and its cost in bytes; `n_terms` is the size of the vocabulary, if there is one."""
    return [
        (inputs.piece(file, id=doc_id, n_terms=n_terms), inputs.text_bytes_of(file) + OPENING_BYTES)
        for file, doc_id in zip(inputs.files, inputs.ids, strict=True)
    ]


def cut_file(piece: FilePiece, fields: Fields, target: int) -> list[tuple[FilePiece, int]]:
    """Cut a whole file into pieces of about `target` bytes of text, with the bytes of each."""
    return list(piece.cut(fields, target))


def needs_cutting(piece: FilePiece, cost: int, target: int) -> bool:
    """True for a whole file that is too large for one chunk."""
    return cost > 2 * target and not piece.one_document


def group_sources(sources: Iterable[tuple[T, int]], target: int) -> list[tuple[T, ...]]:
    """Group neighbours among items with their sizes, up to `target` bytes per group."""
    groups: list[tuple[T, ...]] = []
    group: list[T] = []
    size = 0
    for source, cost in sources:
        if group and size + cost > target:
            groups.append(tuple(group))
            group, size = [], 0
        group.append(source)
        size += cost
    if group:
        groups.append(tuple(group))
    return groups


def why_no_file(url: str | os.PathLike[str], options: Mapping[str, Any]) -> str | None:
    """A message that a valid path, folder or pattern has no file; None if it has one."""
    try:
        _expand(os.fspath(url), dict(options))
    except NoFileError as error:
        return str(error)
    return None


def _expand(url: str, options: dict[str, Any]) -> tuple[list[tuple[InputFile, str]], list[str]]:
    """Files of a path, folder or pattern with identifiers, sorted by name, and the names of entries that are not files."""
    from fsspec.core import url_to_fs

    from dslda.inputs.listing import entries_of_folder, entries_of_pattern, with_literal_folders

    scheme, separator, rest = url.partition("://")
    if separator and scheme.isalpha():
        url = f"{scheme.lower()}://{rest}"
    try:
        filesystem, path = url_to_fs(url, **options)
        path = path.rstrip("/") or path
        if url.startswith("file://") and not filesystem.exists(path):
            path = unquote(path)  # as pathlib writes a URL
        # try a file first: its name or URL may hold what a glob would read as a wildcard
        root = None
        if filesystem.isfile(path):
            entries = {path: filesystem.info(path)}
        elif filesystem.isdir(path):
            root = path
            entries = entries_of_folder(filesystem, path)
        else:
            entries = entries_of_pattern(filesystem, path)
            if not entries and (literal := with_literal_folders(filesystem, path)) != path:
                entries = entries_of_pattern(filesystem, literal)
        names = sorted(name for name, info in entries.items() if _is_file(name, info))
    except InputError:
        raise
    except Exception as error:
        raise not_read(error, url) from error
    others = sorted(entries.keys() - names)
    before, _, after = chain_parts(url) if "::" in url else ("", url, "")
    if not names:
        skipped = f"; passed over, as no file or a link to a folder: {first_few(others, 3)}" if others else ""
        raise NoFileError(f"no file is there{skipped}", place=url)
    files = []
    for name in names:
        doc_id = posixpath.basename(name) if root is None else name.removeprefix(root).lstrip("/")
        size = int(entries[name]["size"] or 0)
        files.append(
            (InputFile(f"{before}{filesystem.unstrip_protocol(name)}{after}", size, options), doc_id)
        )
    return files, others


def _is_file(name: str, info: Mapping[str, Any]) -> bool:
    """True for a file, and for a link that leads to no folder: a link to a folder may close a circle."""
    # fsspec does not say where a link leads; one that leads nowhere is refused when it is opened
    return info["type"] == "file" or bool(info.get("islink") and not os.path.isdir(name))


def _format_by_ending(files: Sequence[InputFile]) -> str:
    by_ending = {ending: name for name, piece in FORMATS.items() for ending in piece.endings}
    by_beginning = {beginning: name for name, piece in FORMATS.items() for beginning in piece.beginnings}
    stores = [posixpath.dirname(file.name) for file in files if posixpath.basename(file.url) == METADATA]
    if stores:
        raise InputError(
            "a corpus, model or checkpoint, which holds no documents to read",
            place=min(stores, key=len),
            remedy="name the files of the documents",
        )
    examples: dict[str, InputFile] = {}
    for file in files:
        name = file.base_name
        ending = posixpath.splitext(name)[1].lower()
        if ending in SPREADSHEETS:
            raise InputError(
                "a spreadsheet cannot be read",
                place=file.name,
                remedy="save the sheet with the documents as CSV: UTF-8, with commas between the cells ('CSV UTF-8 "
                "(Comma delimited)' in Excel)",
            )
        if is_archive(name):
            raise InputError("an archive cannot be read", place=file.name, remedy=UNPACK)
        begun = [format for beginning, format in by_beginning.items() if name.startswith(beginning)]
        if not begun and ending not in by_ending:
            raise InputError(
                f"the format is not clear from the ending {ending!r}",
                place=file.name,
                remedy=f"name it with {{format=}}, one of {', '.join(FORMATS)}",
            )
        examples.setdefault(begun[0] if begun else by_ending[ending], file)
    if len(examples) > 1:
        shown = ", ".join(f"{name} ({file.name})" for name, file in examples.items())
        raise InputError(
            f"must be of one format, got {shown}",
            parameter="inputs",
            remedy=("give only those of one", "name it with {format=}"),
        )
    return next(iter(examples))
