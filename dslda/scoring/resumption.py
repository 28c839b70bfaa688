"""Resumption of earlier runs on a folder: inputs are compared with those scored, and parts with what was written."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import numpy as np

from dslda.cluster.runner import Runner
from dslda.exceptions import EngineError, InputError
from dslda.ingestion.counting import hashes_of
from dslda.scoring.job import Job
from dslda.scoring.run_folder import MANIFEST, Part, RunFolder, RunState
from dslda.scoring.run_plan import SHOWN, part_key
from dslda.scoring.scoring_units import (
    Input,
    ScoringUnit,
    changed,
    content_sha256,
    opens,
    sha256_of,
    state_of,
)
from dslda.scoring.tables import rows_of_ids
from dslda.storage.location import Location
from dslda.wording import first_few, number_of

__all__ = ["Comparison", "compare", "drop_changed", "forget_damaged", "known_state", "taken_up", "verified"]

logger = logging.getLogger("dslda.score")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of the current inputs with those of a manifest.

    Attributes
    ----------
    state : RunState
        State of the manifest without the inputs and parts that cannot stay.
    new : tuple of int
        Positions of the current inputs that must be planned.
    """

    state: RunState
    new: tuple[int, ...]


def known_state(
    before: Mapping[str, Any], identity: Mapping[str, Any], versions: Mapping[str, str], url: str
) -> RunState:
    """The state of a manifest, if it is of this model and these settings.

    Raises
    ------
    InputError
        It is not.
    """
    state = RunState.from_json(before, f"{url}/{MANIFEST}")
    for what in ("model", "settings"):
        theirs, ours = state.identity[what], identity[what]
        if theirs != ours:
            differences = ", ".join(
                f"{name} {before!r:.80}, not {now!r:.80}" for name, before, now in _differing(theirs, ours)
            )
            raise InputError(
                f"{url} must be a run of this model with these settings, it has the {what} with {differences}",
                remedy="choose another folder",
            )
    if dict(state.versions) != dict(versions):
        logger.warning(
            "%s was scored with other versions of its programs (%s): new rows may differ in their last digits",
            url,
            ", ".join(f"{name} {version}" for name, version in state.versions.items()),
            extra={"event": "other_versions"},
        )
    return state


def _differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Fields that differ, with both values; inner fields in place of those that hold them."""
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        before, now = theirs.get(name), ours.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from ((f"{name} {inner}", *both) for inner, *both in _differing(before, now))
        elif before != now:
            yield name, before, now


def taken_up(unfinished: RunState, complete: RunState, now: Sequence[Input]) -> RunState:
    """The state to go on from: the unfinished one if all its open inputs are there unchanged, else the complete one.

    A run that was given up then takes nothing from the complete one.
    """
    current = {one.key: one for one in now}
    planned = [one for one in unfinished.inputs if not one.verified]
    if all(one.key in current and current[one.key].looks_like(one) for one in planned):
        return unfinished
    scored = {one.key for one in complete.inputs}
    for one in planned:
        if one.key not in current and one.key not in scored:
            _log_missing(one)
    return complete


def _log_missing(missing: Input) -> None:
    logger.warning(
        "%s is not among the inputs any more, and the run was not completed: its rows are left out",
        missing.label,
        extra={"event": "missing_input", "place": missing.label},
    )


class Fate(Enum):
    """Fate of an input of an earlier run."""

    STAYS = auto()
    GONE = auto()
    """Its rows are final, and it is not among the inputs now."""
    MISSING = auto()
    """It waits to be scored, and is not among the inputs now."""
    TOUCHED = auto()
    """It has the bytes that were scored, and another time."""
    CHANGED = auto()
    """It has other bytes than those that were scored."""
    REPLANNED = auto()
    """None of its rows are final, and it may have changed: it is planned anew."""


def _fate(known: Input, current: Input | None, options: Mapping[str, Any]) -> Fate:
    """Fate of an input by its present state, which is None where it is not among the inputs."""
    if current is None:
        return Fate.GONE if known.verified else Fate.MISSING
    never_read = bool(known.unreadable) and not known.sha256
    if never_read and opens(current.file(options)):
        return Fate.REPLANNED  # new rights change neither size nor time
    if current.looks_like(known) or (never_read and known.verified):
        return Fate.STAYS
    if not known.verified or known.unreadable:
        return Fate.REPLANNED
    if known.partition is None and content_sha256(current.file(options)) == known.sha256:
        return Fate.TOUCHED
    return Fate.CHANGED


def compare(
    state: RunState,
    now: Sequence[Input],
    *,
    rescore_changed: bool,
    options: Mapping[str, Any],
    order: Sequence[Input] = (),
) -> Comparison:
    """Find new inputs, and those that cannot stay.

    Inputs of a complete run stay. With `rescore_changed`, changed ones leave with their parts and come again after all
    others; inputs that could not be opened before and can be now are new. Inputs of an open run may change: then all of
    them are planned anew, since none of their rows are final. New inputs come in the `order` in which they were planned
    before, so that finished parts keep their numbers.

    Raises
    ------
    InputError
        Inputs of a complete run were changed.
    """
    places = {current.key: i for i, current in enumerate(now)}
    current = [now[places[known.key]] if known.key in places else None for known in state.inputs]
    fates = [_fate(known, at, options) for known, at in zip(state.inputs, current, strict=True)]
    for known, fate in zip(state.inputs, fates, strict=True):
        if fate is Fate.MISSING:
            _log_missing(known)
    _log_gone(fates.count(Fate.GONE))
    reopened = {i for i, fate in enumerate(fates) if fate is Fate.REPLANNED}
    if changed := {i for i, fate in enumerate(fates) if fate is Fate.CHANGED}:
        _report_changed([state.inputs[i] for i in sorted(changed)], rescore=rescore_changed)
        reopened |= _sharing_parts(state, changed, places.keys())
    inputs = [
        replace(known, size=at.size, modified=at.modified)
        if at is not None and fate is Fate.TOUCHED
        else known
        for known, at, fate in zip(state.inputs, current, fates, strict=True)
    ]
    for i in reopened:
        inputs[i] = replace(inputs[i], verified=False)
    stays = replace(state, inputs=tuple(inputs))
    if reopened or Fate.MISSING in fates:
        stays = _without_open(stays)
    scored = {known.key for known in stays.inputs}
    planned_before = [places[known.key] for known in (*inputs, *order) if known.key in places]
    following = dict.fromkeys([*planned_before, *range(len(now))])
    return Comparison(stays, tuple(i for i in following if now[i].key not in scored))


def _log_gone(n: int) -> None:
    if n:
        logger.info(
            "%s scored before %s not among the inputs now: %s rows stay",
            number_of(n, "input"),
            "is" if n == 1 else "are",
            "its" if n == 1 else "their",
        )


def _sharing_parts(state: RunState, changed: set[int], there: Collection[tuple[str, int | None]]) -> set[int]:
    """The changed inputs, and those that have rows in a part with one of them.

    Raises
    ------
    InputError
        One of them is not there.
    """
    together = changed.union(*(part.inputs for part in state.parts if part.inputs & changed))
    if missing := [state.inputs[i].label for i in sorted(together) if state.inputs[i].key not in there]:
        raise InputError(
            "that share a part with one that changed must be there to be scored again, "
            f"{number_of(len(missing), 'of them is', 'of them are')} not: {first_few(missing, SHOWN)}",
            parameter="inputs",
            remedy=("put them back as they were and name them for this run", "score into another folder"),
        )
    return together


def _without_open(state: RunState) -> RunState:
    """Without the inputs that are not verified, and their parts."""
    staying = [i for i, known in enumerate(state.inputs) if known.verified]
    places = {old: new for new, old in enumerate(staying)}
    parts = tuple(
        Part(
            part.number,
            part.first_row,
            tuple(ScoringUnit(places[piece.input], piece.rows, piece.range) for piece in part.pieces),
        )
        for part in state.parts
        if part.inputs <= places.keys()
    )
    return replace(state, inputs=tuple(state.inputs[i] for i in staying), parts=parts, complete=False)


def _report_changed(inputs: Sequence[Input], *, rescore: bool) -> None:
    """Warn of inputs that are scored again.

    Raises
    ------
    InputError
        They may not be.
    """
    labels = [one.label for one in inputs]
    shown = first_few(labels, SHOWN)
    what = f"{number_of(len(inputs), 'input')} that {'was' if len(inputs) == 1 else 'were'} scored before"
    if not rescore:
        raise InputError(
            f"must stay as they were scored, {what} changed since: {shown}",
            parameter="inputs",
            remedy=(
                "score them again with {rescore_changed=True} (their rows then follow all others)",
                "choose another folder",
            ),
        )
    logger.warning(
        "%s changed since, and %s scored again: %s",
        what,
        "is" if len(inputs) == 1 else "are",
        shown,
        extra={"event": "changed_inputs", "count": len(inputs), "first": labels[:SHOWN]},
    )


def drop_changed(folder: RunFolder, state: RunState, options: Mapping[str, Any]) -> tuple[Input, ...]:
    """Remove the parts of files that have changed since they were scanned; the files."""
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
    """The state with all inputs verified: the files still have the content that was scored.

    `counting` is as :meth:`RunFolder.write_unfinished` takes it.

    Raises
    ------
    InputChangedError
        A file has not; its parts are removed.
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
        inputs=tuple(replace(known, verified=True) for known in state.inputs),
        next_part=number,
        next_row=row,
        complete=True,
    )


def forget_damaged(
    runner: Runner,
    folder: RunFolder,
    state: RunState,
    before: Mapping[str, Any],
    current: Sequence[Input],
    job: Job,
) -> None:
    """Read all finished parts again, and mark those as open that are not what was written.

    Parameters
    ----------
    runner : Runner
    folder : RunFolder
    state : RunState
        State with the parts that stay.
    before : mapping
        Manifest in the folder.
    current : sequence of Input
        The inputs as they are now.
    job : Job

    Raises
    ------
    InputError
        Such a part cannot be scored again, since an input of it is gone or was changed, or nothing can be written. All stays
        as it is.
    """
    hashes = {entry["part"]: entry.get("sha256") for entry in before["parts"]}  # None in an open run
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
    keys = {one.key for one in current}
    for i in sorted(needed):
        scored = state.inputs[i]
        if not (_is_same(scored, job.options) if scored.partition is None else scored.key in keys):
            raise InputError(
                f"{needed[i]} must be what was written, it is damaged, and its input {scored.label} is not there as it was "
                "scored",
                remedy=(
                    "name that among the inputs if only its time has changed",
                    "put one of the two back from a copy",
                    "score what is left into another folder",
                ),
            )
    if not damaged:
        outcome = "all are what was written" if finished else "none was finished"
        logger.info("%s read again: %s", number_of(len(finished), "part"), outcome)
        return
    subject = "1 part is" if len(damaged) == 1 else f"{len(damaged):,} parts are"
    job.check_writable(f"{subject} not what was written: {first_few(names, SHOWN)}")
    logger.warning(
        "%s not what was written, damaged or lost, and %s scored again: %s",
        subject,
        "is" if len(damaged) == 1 else "are",
        first_few(names, SHOWN),
        extra={"event": "damaged_parts", "count": len(damaged), "first": names[:SHOWN]},
    )
    for part in damaged:
        folder.forget(part.number)


def _is_whole(file: Location, ids: Location, output_format: str, sha256: str) -> bool:
    """Tell whether the rows of a part, and the hashes of their identifiers, are what was written."""
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
    except OSError:  # the disk cannot read it any more
        return False


def _open_files(state: RunState) -> list[int]:
    """Positions of the files whose content is not verified yet."""
    return [
        i
        for i, known in enumerate(state.inputs)
        if known.partition is None and not known.verified and not known.unreadable
    ]


def _remove(folder: RunFolder, state: RunState, different: set[int]) -> None:
    """Remove the parts that have rows of these inputs."""
    for part in state.parts:
        if part.inputs & different:
            folder.remove_part(part.number)


def _looks_same(scored: Input, options: Mapping[str, Any]) -> bool:
    try:
        return state_of(scored.file(options)) == (scored.size, scored.modified)
    except InputError:
        return False


def _is_same(scored: Input, options: Mapping[str, Any]) -> bool:
    if not _looks_same(scored, options):
        return False
    try:
        return content_sha256(scored.file(options)) == scored.sha256
    except InputError:
        return False
