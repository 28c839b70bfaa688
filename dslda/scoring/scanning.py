"""New files read once: for their hashes, the number of their records, and where they can be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dslda.cluster.runner import Runner
from dslda.exceptions import InputError
from dslda.inputs.fields import Fields
from dslda.inputs.files import InputFiles, cut_file, group_sources, needs_cutting, whole_files
from dslda.inputs.formats import FilePiece
from dslda.scoring.scoring_units import (
    Input,
    changed,
    content_sha256,
    reason_of,
    state_of,
)

__all__ = ["Scanned", "scan"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scanned:
    """A file that was read once: its state, and how it is cut.

    Attributes
    ----------
    input : Input
    pieces : tuple of (mapping, int, int)
        Of each its range, its records and about how many bytes of text it has.
    """

    input: Input
    pieces: tuple[tuple[Mapping[str, Any], int, int], ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A large file that is cut, and not read to its end yet.

    Attributes
    ----------
    source : FilePiece
        All of it.
    cost : int
        Bytes of text in it, about.
    size : int
    modified : str
        As :func:`state_of` gives both, before it was cut.
    pieces : tuple of (FilePiece, int)
        With the bytes of text of each.
    """

    source: FilePiece
    cost: int
    size: int
    modified: str
    pieces: tuple[tuple[FilePiece, int], ...]

    def scanned(self, sha256: str, counts: Iterable[int]) -> Scanned:
        """With the hash of the file and the records of each piece.

        Raises
        ------
        InputChangedError
            The file was changed since it was cut.
        """
        pieces = tuple(
            (piece.range(), n, n_bytes) for n, (piece, n_bytes) in zip(counts, self.pieces, strict=True)
        )
        found = Input(
            self.source.file.url, "", None, self.size, self.modified, sha256, sum(n for _, n, _ in pieces)
        )
        if state_of(self.source.file) != (self.size, self.modified):
            raise changed(found)
        return Scanned(found, pieces)


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
        A file that cannot be read to its end is left in one piece, of which is scored what can be read.

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
    found = [
        each
        for group in _values(runner, scan_group, [(group, fields, target, skip) for group in groups])
        for each in group
    ]
    large = [each for each in found if isinstance(each, Cut)]
    counted = iter(_counted(runner, large, skip=skip))
    return [next(counted) if isinstance(each, Cut) else each for each in found]


def scan_group(
    sources: Sequence[tuple[FilePiece, int]], fields: Fields, target: int, skip: bool
) -> list[Scanned | Cut]:
    """Read small files, and cut large ones, of which only as much is read as that needs."""
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
    found = Input(file.url, name, None, size, modified, sha256, n)
    if state_of(file) != (size, modified):
        raise changed(found)
    return Scanned(found, (({}, n, cost),))


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
    """The hash of each, and the records of its pieces."""
    # hashes first: each is as long as its file
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
    """Records of a piece, those that cannot be read one by one too; with `skip` those before the end of what can be read."""
    n = 0
    try:
        for _ in source.raw_records():
            n += 1
    except InputError:
        if not skip:
            raise
    return n
