"""Plan of a run: new files are read once, for their hashes and records, and cut in places that depend only on the files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

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
from dslda.scoring.run_folder import Part, RunState
from dslda.scoring.scoring_units import Input, ScoringUnit, changed, content_sha256, reason_of, state_of
from dslda.storage.typed_json import json_sha256
from dslda.wording import first_few, number_of

__all__ = ["SHOWN", "Scanned", "log_unreadable", "part_key", "plan_files", "plan_partitions", "scan"]

logger = logging.getLogger("dslda.score")

SHOWN = 5
"""Names in a message."""

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
    """Read new files once, and append their parts to the plan.

    Large files are cut, and small ones put together, to about the same bytes of text.

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
    """Warn of new files with the bytes of another file, such as a renamed one: their rows are there twice."""
    labels: dict[str, str] = {}
    pairs: list[str] = []
    for i, file in enumerate(inputs):
        if file.rows:
            other = labels.setdefault(file.sha256, file.label)
            if i >= n_known and other != file.label:
                pairs.append(f"{file.label} that of {other}")
    if pairs:
        logger.warning(
            "%s the content of another, so the rows are there twice: %s",
            number_of(len(pairs), "input has", "inputs have"),
            first_few(pairs, SHOWN),
            extra={"event": "same_content", "count": len(pairs)},
        )


def log_unreadable(path: str, reason: str) -> None:
    """Warn of a file that is left out, wholly or from some point on."""
    logger.warning(
        "%s cannot be scored, or not to its end: %s",
        path,
        reason,
        extra={"event": "unreadable_input", "place": path, "reason": reason},
    )


def plan_partitions(state: RunState, partitions: Sequence[Input]) -> RunState:
    """Make a part of each partition that has documents."""
    first = len(state.inputs)
    groups = [(ScoringUnit(first + i, each.rows),) for i, each in enumerate(partitions) if each.rows]
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
    """Hash of everything that the rows of a part depend on: parts with the same key have the same rows."""
    pieces = [
        [inputs[p.input].sha256, inputs[p.input].name, inputs[p.input].partition, p.rows, dict(p.range)]
        for p in part.pieces
    ]
    return json_sha256([part.first_row, pieces, identity])


class Scanned(NamedTuple):
    """A file that was read once, with the range, the records and the approximate bytes of text of each piece."""

    input: Input
    pieces: tuple[tuple[Mapping[str, Any], int, int], ...]


class Cut(NamedTuple):
    """A large file that is cut and not yet read to its end, with the approximate bytes of text of the whole and the pieces.

    `size` and `modified` are from before the cut.
    """

    source: FilePiece
    cost: int
    size: int
    modified: str
    pieces: list[tuple[FilePiece, int]]


def scan(
    runner: Runner, files: InputFiles, fields: Fields, *, target: int, skip: bool, n_terms: int = 0
) -> list[Scanned]:
    """Read files once, small ones together; the result has the order of the files.

    The hash of a large file and the records of each of its pieces are tasks of their own, so that all workers share the
    reading of a single large file.

    Parameters
    ----------
    target : int
        Bytes of text of a piece.
    skip : bool
        Leave a file that cannot be read to its end in one piece, and score its readable part.

    Raises
    ------
    InputError
        A file cannot be read.
    InputChangedError
        A file changes while it is read.
    """
    sized = [((source, cost), cost) for source, cost in whole_files(files, n_terms=n_terms)]
    groups = group_sources(sized, target)
    scanned_groups = _values(runner, scan_group, [(group, fields, target, skip) for group in groups])
    results = [file for group in scanned_groups for file in group]
    counted = iter(_counted(runner, [file for file in results if isinstance(file, Cut)], skip=skip))
    return [next(counted) if isinstance(file, Cut) else file for file in results]


def scan_group(
    sources: Sequence[tuple[FilePiece, int]], fields: Fields, target: int, skip: bool
) -> list[Scanned | Cut]:
    """Read small files, and cut large ones, which are read only as far as the cuts need."""
    results: list[Scanned | Cut] = []
    for source, cost in sources:
        if needs_cutting(source, cost, target):
            try:
                size, modified = state_of(source.file)
                pieces = cut_file(source, fields, target)
            except InputError:
                if not skip:
                    raise
            else:
                results.append(Cut(source, cost, size, modified, pieces))
                continue
        results.append(scan_whole(source, cost, skip))
    return results


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


def _counted(runner: Runner, large: Sequence[Cut], *, skip: bool) -> list[Scanned]:
    """Large files with their hashes and the records of their pieces; unreadable ones are read again in one piece."""
    # hashes first: each takes as long as its whole file
    tasks: list[tuple[FilePiece, bool, bool]] = [(cut.source, True, skip) for cut in large]
    tasks += [(piece, False, skip) for cut in large for piece, _ in cut.pieces]
    figures: list[Any] = _values(runner, hash_or_count, tasks)
    hashes, counts = figures[: len(large)], iter(figures[len(large) :])
    scanned: list[Scanned | None] = []
    for cut, sha256 in zip(large, hashes, strict=True):
        pieces = tuple((piece.range(), next(counts), n_bytes) for piece, n_bytes in cut.pieces)
        if sha256 is None or any(n is None for _, n, _ in pieces):
            scanned.append(None)
            continue
        n_records = sum(n for _, n, _ in pieces)
        file = Input(cut.source.file.url, "", None, cut.size, cut.modified, sha256, n_records)
        if state_of(cut.source.file) != (cut.size, cut.modified):
            raise changed(file)
        scanned.append(Scanned(file, pieces))
    unread = [(cut.source, cut.cost, skip) for cut, file in zip(large, scanned, strict=True) if file is None]
    again = iter(_values(runner, scan_whole, unread))
    return [next(again) if file is None else file for file in scanned]


def hash_or_count(source: FilePiece, hashing: bool, skip: bool) -> str | int | None:
    """The hash of a file, or the number of records of a piece; None where it cannot be read and `skip` is True."""
    try:
        return content_sha256(source.file) if hashing else _records(source)
    except InputError:
        if not skip:
            raise
        return None


def _values(runner: Runner, function: Callable[..., T], rows: Sequence[tuple[Any, ...]]) -> list[T]:
    """Values of the function in the order of the rows."""
    values = dict(runner.stream(function, rows, n=len(rows), stage="scan"))
    return [values[i] for i in range(len(rows))]


def _records(source: FilePiece, *, skip: bool = False) -> int:
    """Number of records of a piece, wrong ones included; with `skip`, up to the place where it cannot be read."""
    n = 0
    try:
        for _ in source.raw_records():
            n += 1
    except InputError:
        if not skip:
            raise
    return n
