"""Parts of a run: new files are read once, for their hashes and records, and cut where the files alone decide."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dslda.cluster.runner import Runner
from dslda.exceptions import InputError
from dslda.inputs.fields import Fields
from dslda.inputs.files import (
    OPENING_BYTES,
    InputFiles,
    cut_file,
    group_sources,
    needs_cutting,
    target_bytes,
    whole_files,
)
from dslda.inputs.formats import FilePiece
from dslda.inputs.streams import InputFile
from dslda.scoring.run_folder import Part, RunState
from dslda.scoring.scoring_units import Input, ScoringUnit, changed, content_sha256, reason_of, state_of
from dslda.storage.typed_json import json_sha256
from dslda.wording import first_few

__all__ = ["Scanned", "log_unreadable", "part_key", "plan_files", "plan_partitions", "scan", "state_now"]

logger = logging.getLogger("dslda.score")

SHOWN = 5

T = TypeVar("T")


def plan_files(
    runner: Runner,
    state: RunState,
    files: InputFiles,
    fields: Fields,
    *,
    skip: bool,
    n_terms: int = 0,
) -> RunState:
    """Read new files once, and cut them into parts that follow those there.

    Large files are cut, and small ones put together, to about the same bytes of text. The cuts depend on the files alone.

    Raises
    ------
    InputError
        A file cannot be read, and may not be skipped.
    """
    target = 1 << (target_bytes(files).bit_length() - 1)  # the same for inputs of about the same size
    inputs: list[Input] = list(state.inputs)
    pieces: list[tuple[ScoringUnit, int]] = []
    for scanned in scan(runner, files, fields, target=target, skip=skip, n_terms=n_terms):
        if scanned.input.unreadable:
            log_unreadable(scanned.input.label, scanned.input.unreadable)
        pieces += [
            (ScoringUnit(len(inputs), n_rows, dict(limits)), cost + OPENING_BYTES)
            for limits, n_rows, cost in scanned.pieces
            if n_rows
        ]
        inputs.append(scanned.input)
    if not files.piece.one_document:  # two documents may well be the same
        _report_same(inputs, len(state.inputs))
    return _with_parts(replace(state, inputs=tuple(inputs)), group_sources(pieces, target))


def _report_same(inputs: Sequence[Input], n_known: int) -> None:
    """Warn of new files with the bytes of another one, such as a renamed one: their rows are there twice."""
    first: dict[str, str] = {}
    same: list[tuple[str, str]] = []
    for i, one in enumerate(inputs):
        if not one.rows:
            continue
        other = first.setdefault(one.sha256, one.label)
        if i >= n_known and other != one.label:
            same.append((one.label, other))
    if same:
        logger.warning(
            "%s the content of another, so the rows are there twice: %s",
            "1 input has" if len(same) == 1 else f"{len(same):,} inputs have",
            first_few([f"{path} that of {other}" for path, other in same], SHOWN),
            extra={"event": "same_content", "count": len(same)},
        )


def log_unreadable(path: str, reason: str) -> None:
    """Warn of a file that is left out, all of it or from some point on."""
    logger.warning(
        "%s cannot be scored, or not to its end: %s",
        path,
        reason,
        extra={"event": "unreadable_input", "place": path, "reason": reason},
    )


def plan_partitions(state: RunState, partitions: Sequence[Input]) -> RunState:
    """Make a part of each partition that has documents."""
    first = len(state.inputs)
    groups = [(ScoringUnit(first + i, one.rows, {}),) for i, one in enumerate(partitions) if one.rows]
    return _with_parts(replace(state, inputs=(*state.inputs, *partitions)), groups)


def _with_parts(state: RunState, groups: Sequence[tuple[ScoringUnit, ...]]) -> RunState:
    number, row = state.following
    parts = list(state.parts)
    for group in groups:
        part = Part(number, row, group)
        parts.append(part)
        number, row = number + 1, row + part.rows
    return replace(state, parts=tuple(parts), complete=False)


def part_key(part: Part, inputs: Sequence[Input], identity: Mapping[str, Any]) -> str:
    """Hash of all that decides the rows of a part: two with the same key have the same rows."""
    pieces = [
        [inputs[p.input].sha256, inputs[p.input].name, inputs[p.input].partition, p.rows, dict(p.range)]
        for p in part.pieces
    ]
    return json_sha256([part.first_row, pieces, identity])


def state_now(file: InputFile, name: str, *, skip: bool) -> Input:
    """The present state of a file, unread."""
    try:
        size, modified = state_of(file)
    except InputError:
        if not skip:
            raise
        return Input(file.url, name)
    return Input(file.url, name, None, size, modified)


@dataclass(frozen=True, slots=True)
class Scanned:
    """A file that was read once: its state and its cuts.

    Attributes
    ----------
    input : Input
    pieces : tuple of (mapping, int, int)
        Range, records and approximate bytes of text of each piece.
    """

    input: Input
    pieces: tuple[tuple[Mapping[str, Any], int, int], ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A large file that is cut and not yet read to its end.

    Attributes
    ----------
    source : FilePiece
        The whole file.
    cost : int
        Its approximate bytes of text.
    size : int
    modified : str
        As :func:`state_of` gives both, before it was cut.
    pieces : tuple of (FilePiece, int)
        Pieces with their bytes of text.
    """

    source: FilePiece
    cost: int
    size: int
    modified: str
    pieces: tuple[tuple[FilePiece, int], ...]

    def scanned(self, sha256: str, counts: Iterable[int]) -> Scanned:
        """The file with its hash and the records of each piece.

        Raises
        ------
        InputChangedError
            The file was changed since it was cut.
        """
        pieces = tuple(
            (piece.range(), n, n_bytes) for n, (piece, n_bytes) in zip(counts, self.pieces, strict=True)
        )
        n_records = sum(n for _, n, _ in pieces)
        scanned = Input(self.source.file.url, "", None, self.size, self.modified, sha256, n_records)
        if state_of(self.source.file) != (self.size, self.modified):
            raise changed(scanned)
        return Scanned(scanned, pieces)


def scan(
    runner: Runner, files: InputFiles, fields: Fields, *, target: int, skip: bool, n_terms: int = 0
) -> list[Scanned]:
    """Read files once, small ones together.

    The hash of a large file and the records of each of its pieces are tasks of their own: in one task, all other workers
    would wait for the one that reads the only large file.

    Parameters
    ----------
    target : int
        Bytes of text of a piece.
    skip : bool
        Leave a file that cannot be read to its end in one piece, and score its readable part.

    Returns
    -------
    list of Scanned
        In the order of the files.

    Raises
    ------
    InputError
        A file cannot be read.
    InputChangedError
        One changes while it is read.
    """
    sized = [((source, cost), cost) for source, cost in whole_files(files, n_terms=n_terms)]
    groups = group_sources(sized, target)
    files_of_groups = _values(runner, scan_group, [(group, fields, target, skip) for group in groups])
    results = [file for group in files_of_groups for file in group]
    counted = iter(_counted(runner, [file for file in results if isinstance(file, Cut)], skip=skip))
    return [next(counted) if isinstance(file, Cut) else file for file in results]


def scan_group(
    sources: Sequence[tuple[FilePiece, int]], fields: Fields, target: int, skip: bool
) -> list[Scanned | Cut]:
    """Read small files, and cut large ones, which are read only as far as that needs."""
    return [
        _cut(source, cost, fields, target, skip)
        if needs_cutting(source, cost, target)
        else scan_whole(source, cost, skip)
        for source, cost in sources
    ]


def scan_whole(source: FilePiece, cost: int, skip: bool) -> Scanned:
    """Read a file that stays in one piece."""
    file = source.file
    name = source.id if source.one_document else ""
    size: int | None = None
    modified = sha256 = ""
    try:
        size, modified = state_of(file)
        sha256 = content_sha256(file)
        n = _records(source)
    except InputError as error:
        if not skip:
            raise
        n = _records(source, skip=True) if sha256 else 0
        if not n:
            reason = reason_of(error, file.name)
            return Scanned(Input(file.url, name, None, size, modified, sha256, unreadable=reason), ())
    scanned = Input(file.url, name, None, size, modified, sha256, n)
    if state_of(file) != (size, modified):
        raise changed(scanned)
    return Scanned(scanned, (({}, n, cost),))


def _cut(source: FilePiece, cost: int, fields: Fields, target: int, skip: bool) -> Scanned | Cut:
    try:
        size, modified = state_of(source.file)
        pieces = cut_file(source, fields, target)
    except InputError:
        if not skip:
            raise
        return scan_whole(source, cost, skip)
    return Cut(source, cost, size, modified, tuple(pieces))


def _counted(runner: Runner, large: Sequence[Cut], *, skip: bool) -> list[Scanned]:
    """Large files with their hashes, and the records of their pieces."""
    # hashes first: each takes as long as its whole file
    tasks: list[tuple[FilePiece, bool, bool]] = [(cut.source, True, skip) for cut in large]
    tasks += [(piece, False, skip) for cut in large for piece, _ in cut.pieces]
    figures: list[Any] = _values(runner, hash_or_count, tasks)
    hashes, counts = figures[: len(large)], iter(figures[len(large) :])
    whole: dict[int, tuple[FilePiece, int, bool]] = {}
    scanned: dict[int, Scanned] = {}
    for i, (cut, sha256) in enumerate(zip(large, hashes, strict=True)):
        numbers = [next(counts) for _ in cut.pieces]
        if isinstance(sha256, str) and None not in numbers:
            scanned[i] = cut.scanned(sha256, numbers)
        else:
            whole[i] = (cut.source, cut.cost, skip)
    again = _values(runner, scan_whole, list(whole.values()))
    scanned |= zip(whole, again, strict=True)
    return [scanned[i] for i in range(len(large))]


def hash_or_count(source: FilePiece, hashing: bool, skip: bool) -> str | int | None:
    """The hash of the file, or the number of records of the piece; with `skip` None where it cannot be read."""
    try:
        return content_sha256(source.file) if hashing else _records(source)
    except InputError:
        if not skip:
            raise
        return None


def _values(runner: Runner, function: Callable[..., T], rows: Sequence[tuple[Any, ...]]) -> list[T]:
    """The function's values in the order of the rows."""
    values = dict(runner.stream(function, rows, n=len(rows), stage="scan"))
    return [values[i] for i in range(len(rows))]


def _records(source: FilePiece, *, skip: bool = False) -> int:
    """Number of records of a piece, also of those with an error; with `skip`, up to where the piece cannot be read."""
    n = 0
    try:
        for _ in source.raw_records():
            n += 1
    except InputError:
        if not skip:
            raise
    return n
