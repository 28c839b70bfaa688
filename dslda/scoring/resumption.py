"""Resumption of earlier runs: inputs are compared with those that were scored, and parts with what was written."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any, NamedTuple

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
from dslda.scoring.tables import identifiers_in
from dslda.storage.location import Location
from dslda.wording import first_few, number_of

__all__ = ["Comparison", "compare", "drop_changed", "forget_damaged", "known_state", "taken_up", "verified"]

logger = logging.getLogger("dslda.score")


class Comparison(NamedTuple):
    """A state without the inputs and parts that cannot stay, and the positions of the current inputs to plan."""

    state: RunState
    new: tuple[int, ...]


def known_state(
    manifest: Mapping[str, Any], identity: Mapping[str, Any], versions: Mapping[str, str], url: str
) -> RunState:
    """The state of a manifest; refuses one of another model or with other settings."""
    state = RunState.from_json(manifest, f"{url}/{MANIFEST}")
    for name, ours in identity.items():
        if state.identity[name] != ours:
            differences = ", ".join(_differences(state.identity[name], ours))
            raise InputError(
                f"{url} must be a run of this model with these settings, it has the {name} with {differences}",
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


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """The fields that differ, also those inside nested fields, each with both values."""
    for name in dict.fromkeys([*ours, *theirs]):
        old_value, new_value = theirs.get(name), ours.get(name)
        if isinstance(old_value, Mapping) and isinstance(new_value, Mapping):
            yield from (f"{name} {difference}" for difference in _differences(old_value, new_value))
        elif old_value != new_value:
            yield f"{name} {old_value!r:.80}, not {new_value!r:.80}"


def taken_up(unfinished: RunState, complete: RunState, present_inputs: Sequence[Input]) -> RunState:
    """The state to continue from: the unfinished one if all its open inputs are there unchanged, else the complete one."""
    current = {entry.key: entry for entry in present_inputs}
    planned = [entry for entry in unfinished.inputs if not entry.verified]
    if all(entry.key in current and current[entry.key].looks_like(entry) for entry in planned):
        return unfinished
    scored = {entry.key for entry in complete.inputs}
    for entry in planned:
        if entry.key not in current and entry.key not in scored:
            _log_missing(entry)
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
    """Its rows are final, and it is no longer among the inputs."""
    MISSING = auto()
    """It waits to be scored, and is no longer among the inputs."""
    TOUCHED = auto()
    """Its time has changed, but not its bytes."""
    CHANGED = auto()
    """Its bytes have changed since they were scored."""
    REPLANNED = auto()
    """None of its rows are final, and it may have changed: it is planned again."""


def _fate(entry: Input, current: Input | None, options: Mapping[str, Any]) -> Fate:
    """Fate of an input by its present state, None if it is no longer among the inputs."""
    if current is None:
        return Fate.GONE if entry.verified else Fate.MISSING
    never_read = bool(entry.unreadable) and not entry.sha256
    if never_read and opens(current.file(options)):
        return Fate.REPLANNED  # new rights change neither size nor time
    if current.looks_like(entry) or (never_read and entry.verified):
        return Fate.STAYS
    if not entry.verified or entry.unreadable:
        return Fate.REPLANNED
    if entry.partition is None and content_sha256(current.file(options)) == entry.sha256:
        return Fate.TOUCHED
    return Fate.CHANGED


def compare(
    state: RunState,
    present_inputs: Sequence[Input],
    *,
    rescore_changed: bool,
    options: Mapping[str, Any],
    order: Sequence[Input] = (),
) -> Comparison:
    """Find new inputs, and those that cannot stay.

    Inputs of a complete run stay. With `rescore_changed`, changed inputs leave with their parts and come again after all
    others. Inputs that could not be opened before and can be opened now are new. If inputs of an open run have changed, all
    its open inputs are planned again, since none of their rows are final. New inputs come in the `order` in which they were
    planned before, so that finished parts keep their numbers.

    Raises
    ------
    InputError
        Inputs of a complete run were changed.
    """
    current = {entry.key: entry for entry in present_inputs}
    fates = {entry.key: _fate(entry, current.get(entry.key), options) for entry in state.inputs}
    inputs = []
    for entry in state.inputs:
        fate = fates[entry.key]
        if fate is Fate.MISSING:
            _log_missing(entry)
        elif fate is Fate.TOUCHED:
            entry = replace(entry, size=current[entry.key].size, modified=current[entry.key].modified)
        elif fate is Fate.REPLANNED:
            entry = replace(entry, verified=False)
        inputs.append(entry)
    if n_gone := [*fates.values()].count(Fate.GONE):
        are = "is not among the inputs now: its" if n_gone == 1 else "are not among the inputs now: their"
        logger.info("%s scored before %s rows stay", number_of(n_gone, "input"), are)
    if changed := {i for i, entry in enumerate(inputs) if fates[entry.key] is Fate.CHANGED}:
        _report_changed([inputs[i].label for i in sorted(changed)], rescore=rescore_changed)
        for i in _sharing_parts(state, changed, current):
            inputs[i] = replace(inputs[i], verified=False)
    stays = replace(state, inputs=tuple(inputs))
    if changed or not {Fate.REPLANNED, Fate.MISSING}.isdisjoint(fates.values()):
        stays = _without_open(stays)
    positions = {entry.key: i for i, entry in enumerate(present_inputs)}
    planned_before = [positions[entry.key] for entry in (*inputs, *order) if entry.key in positions]
    following = dict.fromkeys([*planned_before, *range(len(present_inputs))])
    scored = {entry.key for entry in stays.inputs}
    return Comparison(stays, tuple(i for i in following if present_inputs[i].key not in scored))


def _sharing_parts(
    state: RunState, changed: set[int], current: Mapping[tuple[str, int | None], Input]
) -> set[int]:
    """The changed inputs, and those that share a part with one of them; refuses if one of these is gone."""
    together = changed.union(*(part.inputs for part in state.parts if part.inputs & changed))
    if missing := [state.inputs[i].label for i in sorted(together) if state.inputs[i].key not in current]:
        raise InputError(
            "that share a part with one that changed must be there to be scored again, "
            f"{number_of(len(missing), 'of them is', 'of them are')} not: {first_few(missing, SHOWN)}",
            parameter="inputs",
            remedy=("put them back as they were and name them for this run", "score into another folder"),
        )
    return together


def _without_open(state: RunState) -> RunState:
    """The state without the inputs that are not verified, and without their parts."""
    staying = [i for i, entry in enumerate(state.inputs) if entry.verified]
    positions = {old: new for new, old in enumerate(staying)}
    parts = []
    for part in state.parts:
        if part.inputs <= positions.keys():
            pieces = (ScoringUnit(positions[piece.input], piece.rows, piece.range) for piece in part.pieces)
            parts.append(Part(part.number, part.first_row, tuple(pieces)))
    inputs = tuple(state.inputs[i] for i in staying)
    return replace(state, inputs=inputs, parts=tuple(parts), complete=False)


def _report_changed(labels: Sequence[str], *, rescore: bool) -> None:
    """Warn of changed inputs that are scored again, or refuse them."""
    shown = first_few(labels, SHOWN)
    subject = number_of(len(labels), "input that was scored before", "inputs that were scored before")
    if not rescore:
        raise InputError(
            f"must stay as they were scored, {subject} changed since: {shown}",
            parameter="inputs",
            remedy=(
                "score them again with {rescore_changed=True} (their rows then follow all others)",
                "choose another folder",
            ),
        )
    logger.warning(
        "%s changed since, and %s scored again: %s",
        subject,
        "is" if len(labels) == 1 else "are",
        shown,
        extra={"event": "changed_inputs", "count": len(labels), "first": labels[:SHOWN]},
    )


def drop_changed(folder: RunFolder, state: RunState, options: Mapping[str, Any]) -> tuple[Input, ...]:
    """Remove the parts of files that have changed since they were scanned, and return the files."""
    different = [i for i in _open_files(state) if not _looks_same(state.inputs[i], options)]
    _remove_parts(folder, state, set(different))
    return tuple(state.inputs[i] for i in different)


def verified(
    runner: Runner,
    folder: RunFolder,
    state: RunState,
    options: Mapping[str, Any],
    counting: Mapping[str, Any] | None,
) -> RunState:
    """Check that all files still have the content that was scored, and return the state with all inputs verified.

    `counting` is that of :meth:`RunFolder.write_unfinished`.

    Raises
    ------
    InputChangedError
        A file has changed; its parts are removed.
    """
    files = _open_files(state)
    rows = [(state.inputs[i], options) for i in files]
    checks = runner.stream(_is_same, rows, n=len(rows), stage="check")
    different = {files[n] for n, is_same in checks if not is_same}
    if different:
        _remove_parts(folder, state, different)
        # size and time may be the same if somebody has set the time back: the next run must read the files again
        inputs = [replace(x, modified="") if i in different else x for i, x in enumerate(state.inputs)]
        folder.write_unfinished(replace(state, inputs=tuple(inputs)), counting)
        raise changed(state.inputs[min(different)])
    number, row = state.following
    return replace(
        state,
        inputs=tuple(replace(entry, verified=True) for entry in state.inputs),
        next_part=number,
        next_row=row,
        # however often the run was stopped, `next_part` is still that of the complete run before it
        latest_part=state.next_part if number > state.next_part else state.latest_part,
        complete=True,
    )


def forget_damaged(
    runner: Runner,
    folder: RunFolder,
    state: RunState,
    manifest: Mapping[str, Any],
    current: Sequence[Input],
    job: Job,
) -> None:
    """Read all finished parts of a state again, and reopen those that are not what was written.

    `manifest` is that of the folder, and `current` holds the present inputs.

    Raises
    ------
    InputError
        A damaged part cannot be scored again, since one of its inputs is gone or was changed, or nothing can be written. All
        parts stay as they are.
    """
    hashes = {entry["part"]: entry.get("sha256") for entry in manifest["parts"]}  # None in an open run
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
    checks = runner.stream(_is_whole, rows, n=len(rows), stage="verify")
    damaged += [finished[i][0] for i, is_whole in checks if not is_whole]
    damaged.sort(key=lambda part: part.number)
    names = [folder.part_name(part.number) for part in damaged]
    needed = {i: name for part, name in zip(damaged, names, strict=True) for i in part.inputs}
    keys = {entry.key for entry in current}
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
    subject = number_of(len(damaged), "part is", "parts are")
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
    """True if the rows of a part, and the hashes of their identifiers, are what was written."""
    try:
        fs, path = file.file_system()
        with fs.open(path, "rb") as stream:
            if sha256_of(stream) != sha256:
                return False
        expected = np.sort(hashes_of(name.encode() for name in identifiers_in(file, output_format)))
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
        for i, entry in enumerate(state.inputs)
        if entry.partition is None and not entry.verified and not entry.unreadable
    ]


def _remove_parts(folder: RunFolder, state: RunState, different: set[int]) -> None:
    """Remove the parts with rows of these inputs."""
    for part in state.parts:
        if part.inputs & different:
            folder.remove_part(part.number)


def _looks_same(scored: Input, options: Mapping[str, Any]) -> bool:
    try:
        return state_of(scored.file(options)) == (scored.size, scored.modified)
    except InputError:
        return False


def _is_same(scored: Input, options: Mapping[str, Any]) -> bool:
    try:
        return _looks_same(scored, options) and content_sha256(scored.file(options)) == scored.sha256
    except InputError:
        return False
