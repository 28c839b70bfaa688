"""From what a user names to sources: paths, globs and folders are listed, and large files cut into pieces."""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from dslda.exceptions import InputError
from dslda.inputs.readers import (
    CsvLines,
    Fields,
    JsonLines,
    LdacLines,
    ParquetRows,
    Piece,
    TextFile,
    fields_there_are,
)
from dslda.inputs.streams import InputFile, compression_of, read_blocks
from dslda.storage.errors import is_of_file_system
from dslda.wording import first_few

__all__ = [
    "FileFormat",
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

FileFormat: TypeAlias = Literal["jsonl", "csv", "parquet", "text", "ldac"]

ENDINGS: Mapping[str, FileFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "text",
    ".ldac": "ldac",
    ".dat": "ldac",
}

SPREADSHEETS = frozenset({".xlsx", ".xlsm", ".xls", ".ods", ".numbers"})

LONGEST_NAME = 255
"""Characters of a name in any file system."""

MIN_CHUNK_BYTES = 1 << 20
MAX_CHUNK_BYTES = 16 << 20
CHUNKS_WANTED = 64
"""A chunk is 1/64 of the input, from 1 MB (so that a task is worth its cost) to 16 MB (a few seconds of
tokenising)."""

OPENING_BYTES = 16 << 10
"""What opening a file costs, as bytes of text: keeps thousands of tiny files from becoming one chunk."""

COMPRESSED_PIECES = 8
MAX_COMPRESSED_PIECE_BYTES = 512 << 20
"""A compressed file can only be entered at its start, so a piece costs decompressing all before it. With 8
pieces that is 4 times the file in all, about a seventh of the work of tokenising it."""

EXPANSION = 3
"""Bytes of text in a byte of a compressed file, about."""


class NoFileError(InputError):
    """A path, folder or pattern is right, and there is no file."""


def listed(inputs: Any) -> list[Any]:
    """Inputs as a list: of one that is alone, and of an iterable that can be gone through but once."""
    alone = isinstance(inputs, (str, os.PathLike)) or not isinstance(inputs, Iterable)
    return [inputs] if alone else list(inputs)


@dataclass(frozen=True, slots=True)
class InputFiles:
    """The files of an input.

    Attributes
    ----------
    format : {"jsonl", "csv", "parquet", "text", "ldac"}
    files : tuple of InputFile
        In the order given; those of a folder or glob sorted by path.
    ids : tuple of str
        Path of each, relative to the folder it was found in.
    """

    format: FileFormat
    files: tuple[InputFile, ...]
    ids: tuple[str, ...]

    @property
    def text_bytes(self) -> int:
        """Bytes of text, about: compressed files and Parquet are counted three times."""
        return sum(_text_bytes(file, self.format) for file in self.files)


def list_files(
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    format: str = "auto",
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> InputFiles:
    """List the files of paths, globs, folders and URLs.

    Parameters
    ----------
    inputs : path or URL, or several
        Folders are searched to their depths; names that begin with ``.`` or ``_`` are passed over there.
    format : {"auto", "jsonl", "csv", "parquet", "text", "ldac"}
        "auto" goes by the files' endings, which must agree.
    storage_options : mapping, optional
        For fsspec.

    Raises
    ------
    InputError
        Nothing is there, a folder cannot be listed, the format is not clear, or files are of several formats.
    """
    if format != "auto" and format not in get_args(FileFormat):
        raise InputError(f"format must be 'auto' or one of {', '.join(get_args(FileFormat))}, got {format!r}")
    if hasattr(inputs, "columns") or hasattr(inputs, "__array__"):
        raise InputError(
            f"inputs must be paths or URLs, got a {type(inputs).__name__} in memory; write it to a file, or give "
            "dslda.ingest a DataFrame with a column of texts, or a scipy sparse matrix of counts"
        )
    given = listed(inputs)
    if not given:
        raise InputError("there must be at least one input, got none")
    files: list[InputFile] = []
    ids: list[str] = []
    others: list[str] = []
    for one in given:
        if isinstance(one, str) and not one.strip():
            raise InputError(f"an input must be a path or URL that is not empty, got {one!r}")
        if isinstance(one, str) and "://" not in one and len(one.rpartition("/")[2]) > LONGEST_NAME:
            raise InputError(
                f"an input must be a path or URL, got a string of {len(one):,} characters; give texts as mappings, "
                "[{'text': '...'}, ...]"
            )
        if not isinstance(one, (str, os.PathLike)) or not os.fspath(one):
            raise InputError(
                "inputs must be paths or URLs, a DataFrame of texts, mappings, a sparse matrix, or a dask bag or DataFrame, "
                f"got {repr(one) if isinstance(one, str) else type(one).__name__}"
            )
        found, passed_over = _expand(os.fspath(one), dict(storage_options or {}))
        files += [file for file, _ in found]
        ids += [doc_id for _, doc_id in found]
        others += passed_over
    chosen = _format_by_ending(files) if format == "auto" else format
    for name in dict.fromkeys(others):
        logger.warning(
            "%s is passed over: it is no file, or a link to a folder; name that folder itself", name
        )
    return InputFiles(chosen, tuple(files), tuple(ids))  # type: ignore[arg-type]


def check_first_records(
    inputs: InputFiles, fields: Fields, *, tolerant: bool = False, any_file: bool = False
) -> None:
    """Compare the fields asked for with those of the first file that has any, before long work.

    A response may be absent from a JSON record, but not from all of the first thousand: that is a wrong name. With
    `tolerant` files that cannot be read, and inputs without a record, are left to whoever reads the records; with
    `any_file` it is enough that one of the files has the fields.

    Raises
    ------
    InputError
        A field is not there; or no file has a record.
    """
    if inputs.format in ("text", "ldac"):
        return
    makers: Mapping[str, Callable[[InputFile], JsonLines | CsvLines | ParquetRows]] = {
        "jsonl": JsonLines,
        "csv": CsvLines,
        "parquet": ParquetRows,
    }
    wrong: list[InputError] = []
    for file in inputs.files:
        empty = inputs.format == "parquet" and file.size == 0
        try:
            present = None if empty else makers[inputs.format](file).field_names()
        except InputError:
            if not tolerant:
                raise
            continue
        if present is None:
            continue
        where = f"{file.name} (its first thousand records)" if inputs.format == "jsonl" else file.name
        if fields.text is None and fields.words is None:
            raise InputError(
                f"{file.name}: name the field of the texts with text=, or those of counted words with words= "
                f"and counts=; {fields_there_are(list(present))}"
            )
        try:
            fields.check_against(present, where)
        except InputError as error:
            if not any_file:
                raise
            wrong.append(error)
            continue
        return
    if wrong:
        raise wrong[0]
    if not tolerant:
        raise InputError(
            f"no documents: {_names(inputs.files)} {'is' if len(inputs.files) == 1 else 'are'} empty"
        )


def target_bytes(inputs: InputFiles) -> int:
    """Bytes of a chunk."""
    return min(max(inputs.text_bytes // CHUNKS_WANTED, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES)


def whole_files(inputs: InputFiles, *, n_terms: int) -> list[tuple[Piece, int]]:
    """A source for each file, uncut, and its cost in bytes."""
    return [
        (_whole(file, doc_id, inputs.format, n_terms), _text_bytes(file, inputs.format) + OPENING_BYTES)
        for file, doc_id in zip(inputs.files, inputs.ids, strict=True)
    ]


def cut_file(source: Piece, fields: Fields, target: int) -> list[tuple[Piece, int]]:
    """Cut the source of a whole file into pieces of about `target` bytes of text, with the bytes of each.

    Files that say nothing of their inside (compressed ones, and CSV, where a line end may be part of a cell)
    are read through for it once, which is quick beside tokenising and finds a file that is cut short before
    long work.
    """
    if isinstance(source, ParquetRows):
        return list(_cut_parquet(source, fields, target))
    if isinstance(source, CsvLines):
        return list(_cut_csv(source, target))
    assert isinstance(source, (JsonLines, LdacLines))
    size = source.file.size
    if source.file.compression is not None:
        size = sum(len(block) for block in read_blocks(source.file))
        target = _compressed_target(size, target)
    n = max(round(size / target), 1)
    borders = [size * i // n for i in range(n + 1)]
    cut: list[tuple[Piece, int]] = []
    for i in range(n):
        start, stop = borders[i], borders[i + 1] if i + 1 < n else None
        piece: Piece = (
            JsonLines(source.file, start, stop)
            if isinstance(source, JsonLines)
            else LdacLines(source.file, source.n_terms, start, stop)
        )
        cut.append((piece, borders[i + 1] - start))
    return cut


def needs_cutting(source: Piece, cost: int, target: int) -> bool:
    """Whether a whole file is too large for one chunk."""
    return cost > 2 * target and not isinstance(source, TextFile)


def group_sources(sources: Iterable[tuple[T, int]], target: int) -> list[tuple[T, ...]]:
    """Put sources, or what else has a size, together where they follow each other, up to `target` bytes."""
    groups: list[tuple[T, ...]] = []
    group: list[T] = []
    held = 0
    for source, cost in sources:
        if group and held + cost > target:
            groups.append(tuple(group))
            group, held = [], 0
        group.append(source)
        held += cost
    if group:
        groups.append(tuple(group))
    return groups


def why_no_file(given: str | os.PathLike[str], options: Mapping[str, Any]) -> str | None:
    """That no file is at a path, folder or pattern that is right; None where one is.

    Raises
    ------
    InputError
        It is not right, or cannot be read.
    """
    try:
        _expand(os.fspath(given), dict(options))
    except NoFileError as error:
        return str(error)
    return None


def _expand(given: str, options: dict[str, Any]) -> tuple[list[tuple[InputFile, str]], list[str]]:
    """The files of an input, each with what identifies it, and what there is but files."""
    from fsspec.core import url_to_fs

    from dslda.inputs.listing import entries_of_folder, entries_of_pattern

    try:
        filesystem, path = url_to_fs(given, **options)
        path = path.rstrip("/") or path
        # a file first: names and URLs may hold what a glob would read as a wildcard
        root = None
        if filesystem.isfile(path):
            found = {path: filesystem.info(path)}
        elif filesystem.isdir(path):
            root = path
            found = entries_of_folder(filesystem, path)
        else:
            found = entries_of_pattern(filesystem, path)
        listed = {name: info for name, info in found.items() if _is_file(name, info)}
    except InputError:
        raise
    except Exception as error:
        if not (isinstance(error, (ImportError, ValueError)) or is_of_file_system(error)):
            raise
        raise InputError(f"{given}: cannot be read: {error}") from error
    others = sorted(found.keys() - listed.keys())
    if not listed:
        told = f"; passed over, as no file or a link to a folder: {first_few(others, 3)}" if others else ""
        raise NoFileError(f"{given}: no file is there{told}")
    files = []
    for name in sorted(listed):
        url = filesystem.unstrip_protocol(name)
        doc_id = posixpath.basename(name) if root is None else name.removeprefix(root).lstrip("/")
        size = int(listed[name]["size"] or 0)
        files.append((InputFile(url, size, compression_of(url), options), doc_id))
    return files, others


def _is_file(name: str, info: Mapping[str, Any]) -> bool:
    """Whether an entry is a file or a link, but to no folder, which may lead back to where one came from."""
    # of a link fsspec does not say to what; one that leads nowhere is refused when it is opened
    return info["type"] == "file" or bool(info.get("islink") and not os.path.isdir(name))


def _format_by_ending(files: Sequence[InputFile]) -> FileFormat:
    found: dict[FileFormat, InputFile] = {}
    for file in files:
        plain = file.url.removesuffix(".gz").removesuffix(".zst")
        ending = posixpath.splitext(plain)[1].lower()
        if ending in SPREADSHEETS:
            raise InputError(
                f"{file.name}: a spreadsheet cannot be read; save the sheet with the documents as CSV: UTF-8, with commas "
                "between the cells ('CSV UTF-8 (Comma delimited)' in Excel)"
            )
        if ending not in ENDINGS:
            raise InputError(
                f"{file.name}: the format is not clear from the ending {ending!r}; name it with format=, "
                f"one of {', '.join(get_args(FileFormat))}"
            )
        found.setdefault(ENDINGS[ending], file)
    if len(found) > 1:
        each = ", ".join(f"{kind} ({file.name})" for kind, file in found.items())
        raise InputError(
            f"the inputs must be of one format, got {each}; give those of one alone, or name it with format="
        )
    return next(iter(found))


def _whole(file: InputFile, doc_id: str, format: FileFormat, n_terms: int) -> Piece:
    if format == "jsonl":
        return JsonLines(file)
    if format == "csv":
        return CsvLines(file)
    if format == "parquet":
        return ParquetRows(file)
    if format == "ldac":
        return LdacLines(file, n_terms)
    return TextFile(file, doc_id)


def _text_bytes(file: InputFile, format: FileFormat) -> int:
    expands = file.compression is not None or format == "parquet"
    return file.size * (EXPANSION if expands else 1)


def _compressed_target(size: int, target: int) -> int:
    return max(target, min(-(-size // COMPRESSED_PIECES), MAX_COMPRESSED_PIECE_BYTES))


def _cut_csv(source: CsvLines, target: int) -> Iterator[tuple[Piece, int]]:
    lines = source.lines()
    rows = source.rows(lines)
    header = next(rows, None)
    if header is None:
        return
    columns = tuple(header[1])
    borders = [(lines.end, lines.count + 1)]
    for _ in rows:
        if lines.end - borders[-1][0] >= target:
            borders.append((lines.end, lines.count + 1))
    if source.file.compression is not None:
        # now that the size is known, fewer of them will do
        target = _compressed_target(lines.end, target)
        found, borders = borders, borders[:1]
        for border in found:
            if border[0] - borders[-1][0] >= target:
                borders.append(border)
    ends = [start for start, _ in borders[1:]] + [lines.end]
    for (start, line), stop in zip(borders, ends, strict=True):
        if stop > start:
            yield CsvLines(source.file, start, stop, line, columns), stop - start


def _cut_parquet(source: ParquetRows, fields: Fields, target: int) -> Iterator[tuple[Piece, int]]:
    """Group small row groups, and cut large ones into ranges of rows, at most 8 since all before are decoded
    too."""
    with source.file.open() as raw:
        metadata = source.parquet(raw).metadata
        wanted = set(fields.named())
        sizes = []
        for g in range(metadata.num_row_groups):
            group = metadata.row_group(g)
            columns = (group.column(c) for c in range(group.num_columns))
            used = sum(c.total_uncompressed_size for c in columns if c.path_in_schema.split(".")[0] in wanted)
            sizes.append((group.num_rows, used))
    first_row = 0
    for g, (rows, n_bytes) in enumerate(sizes):
        n = min(max(round(n_bytes / target), 1), COMPRESSED_PIECES)
        borders = [rows * i // n for i in range(n + 1)]
        for start, stop in pairwise(borders):
            yield ParquetRows(source.file, (g,), start, stop, first_row), n_bytes // n
        first_row += rows


def _names(files: Sequence[InputFile]) -> str:
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
