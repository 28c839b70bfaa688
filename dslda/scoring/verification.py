"""Inputs that change while they are scored, of which nothing is kept; and parts that were damaged after they were."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dslda.cluster.runner import Runner
from dslda.exceptions import EngineError, InputError
from dslda.ingestion.counting import hashes_of
from dslda.scoring.job import Job
from dslda.scoring.run_folder import RunFolder, RunState
from dslda.scoring.run_plan import part_key
from dslda.scoring.scoring_units import Input, changed, content_sha256, sha256_of, state_of
from dslda.scoring.tables import rows_of_ids
from dslda.storage.location import Location
from dslda.wording import first_few, number_of

__all__ = ["drop_changed", "forget_damaged", "verified"]

logger = logging.getLogger("dslda.score")

SHOWN = 5


def drop_changed(folder: RunFolder, state: RunState, options: Mapping[str, Any]) -> tuple[Input, ...]:
    """Remove what was scored of files that were changed meanwhile, and say which they are."""
    different = [i for i in _open_files(state) if not _looks_same(state.inputs[i], options)]
    _remove(folder, state, set(different))
    return tuple(state.inputs[i] for i in different)


def verified(
    runner: Runner,
    folder: RunFolder,
    state: RunState,
    options: Mapping[str, Any],
    counting: Mapping[str, Any] | None,
) -> RunState:
    """With all inputs marked as verified: those that were scored are still what they were.

    `counting` is as :meth:`RunFolder.write_unfinished` takes it.

    Raises
    ------
    InputChangedError
        One is not; nothing of it is kept.
    """
    files = _open_files(state)
    rows = [(state.inputs[i], options) for i in files]
    different: set[int] = set()
    for n, same in runner.stream(_is_same, rows, n=len(rows), stage="check"):
        if not same:
            different.add(files[n])
    if different:
        _remove(folder, state, different)
        # content alone may differ, where somebody has set the time back: they are read anew the next time
        inputs = [replace(x, modified="") if i in different else x for i, x in enumerate(state.inputs)]
        folder.write_unfinished(replace(state, inputs=tuple(inputs)), counting)
        raise changed(state.inputs[min(different)])
    number, row = state.following
    return replace(
        state,
        inputs=tuple(replace(found, verified=True) for found in state.inputs),
        next_part=number,
        next_row=row,
        complete=True,
    )


def forget_damaged(
    runner: Runner,
    folder: RunFolder,
    state: RunState,
    before: Mapping[str, Any],
    now: Sequence[Input],
    job: Job,
) -> None:
    """Read all parts that are done again, and take those for not done that are not what was written.

    Parameters
    ----------
    runner : Runner
    folder : RunFolder
    state : RunState
        With the parts that stay.
    before : mapping
        The manifest that is there.
    now : sequence of Input
        The inputs of now.
    job : Job

    Raises
    ------
    InputError
        Such a part cannot be scored again, as an input of it is not there or was changed, or nothing can be written. All
        stays as it is.
    """
    hashes = {each["part"]: each.get("sha256") for each in before["parts"]}  # of a run that is complete
    finished, damaged = [], []
    for part in state.parts:
        note = folder.read_note(part, part_key(part, state.inputs, state.identity))
        sha256 = hashes.get(part.number)
        if note is not None and sha256 in (None, note.get("sha256")):
            finished.append((part, note["sha256"]))
        elif sha256 is not None:
            damaged.append(part)
    output_format = state.identity["settings"]["output_format"]
    rows = [
        (folder.part_file(part.number), folder.ids_file(part.number), output_format, sha256)
        for part, sha256 in finished
    ]
    for i, whole in runner.stream(_is_whole, rows, n=len(rows), stage="verify"):
        if not whole:
            damaged.append(finished[i][0])
    damaged.sort(key=lambda part: part.number)
    names = [folder.part_name(part.number) for part in damaged]
    needed = {i: name for part, name in zip(damaged, names, strict=True) for i in part.inputs}
    here = {found.key for found in now}
    for i in sorted(needed):
        found = state.inputs[i]
        if not (_is_same(found, job.options) if found.partition is None else found.key in here):
            raise InputError(
                f"{needed[i]} must be what was written, it is damaged, and its input {found.label} is not there as it was "
                "scored",
                remedy=(
                    "name that among the inputs if only its time has changed",
                    "put one of the two back from a copy",
                    "score what is left into another folder",
                ),
            )
    if not damaged:
        told = "all are what was written" if finished else "none was finished"
        logger.info("%s read again: %s", number_of(len(finished), "part"), told)
        return
    told = "1 part is" if len(damaged) == 1 else f"{len(damaged):,} parts are"
    job.check_writable(f"{told} not what was written: {first_few(names, SHOWN)}")
    logger.warning(
        "%s not what was written, damaged or lost, and %s scored again: %s",
        told,
        "is" if len(damaged) == 1 else "are",
        first_few(names, SHOWN),
        extra={"event": "damaged_parts", "count": len(damaged), "first": names[:SHOWN]},
    )
    for part in damaged:
        folder.forget(part.number)


def _is_whole(file: Location, ids: Location, output_format: str, sha256: str) -> bool:
    """Whether the rows of a part are those that were written, and the hashes of their identifiers too."""
    try:
        fs, path = file.file_system()
        with fs.open(path, "rb") as stream:
            if sha256_of(stream) != sha256:
                return False
        expected = np.sort(hashes_of(name.encode() for name in rows_of_ids(file, output_format)))
        fs, path = ids.file_system()
        return bytes(fs.cat_file(path)) == expected.astype("<u8").tobytes()
    except FileNotFoundError:
        raise EngineError(
            f"all workers must see the files that this process sees, got no {file.url} there",
            remedy="give a folder that all machines share, or a URL",
        ) from None
    except OSError:  # of a disk that cannot read it any more
        return False


def _open_files(state: RunState) -> list[int]:
    """Positions of the files that are not known yet to be what was scored."""
    return [
        i
        for i, found in enumerate(state.inputs)
        if found.partition is None and not found.verified and not found.unreadable
    ]


def _remove(folder: RunFolder, state: RunState, different: set[int]) -> None:
    """Remove the parts that have rows of these inputs."""
    for part in state.parts:
        if part.inputs & different:
            folder.remove_part(part.number)


def _looks_same(found: Input, options: Mapping[str, Any]) -> bool:
    try:
        return state_of(found.file(options)) == (found.size, found.modified)
    except InputError:
        return False


def _is_same(found: Input, options: Mapping[str, Any]) -> bool:
    if not _looks_same(found, options):
        return False
    try:
        return content_sha256(found.file(options)) == found.sha256
    except InputError:
        return False
