"""What is to be done: inputs compared with those of earlier runs on a folder, and parts cut out of new ones."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from dslda.cluster.runner import Runner
from dslda.exceptions import InputError
from dslda.inputs.fields import Fields
from dslda.inputs.files import OPENING_BYTES, InputFiles, group_sources, target_bytes
from dslda.inputs.streams import InputFile
from dslda.scoring.run_folder import MANIFEST, Part, RunState
from dslda.scoring.scanning import scan
from dslda.scoring.scoring_units import Input, ScoringUnit, content_sha256, opens, state_of
from dslda.storage.typed_json import json_sha256
from dslda.wording import first_few, number_of

__all__ = [
    "Comparison",
    "compare",
    "known_state",
    "log_unreadable",
    "part_key",
    "plan_files",
    "plan_partitions",
    "taken_up",
]

logger = logging.getLogger("dslda.score")

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    """Inputs of now against those of a manifest.

    Attributes
    ----------
    state : RunState
        With what stays of it.
    new : tuple of int
        Positions of the inputs of now that are to be planned.
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
            told = ", ".join(
                f"{name} {before!r:.80}, not {now!r:.80}" for name, before, now in _differing(theirs, ours)
            )
            raise InputError(
                f"{url} must be a run of this model with these settings, it has the {what} with {told}",
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
    """What differs, with both values; of a field that has fields these alone."""
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        before, now = theirs.get(name), ours.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from ((f"{name} {inner}", *both) for inner, *both in _differing(before, now))
        elif before != now:
            yield name, before, now


def taken_up(unfinished: RunState, complete: RunState, now: Sequence[Input]) -> RunState:
    """The state to go on from: the unfinished one, if all that it was to score is there as it was, else the complete one.

    So nothing is left out of what is complete for a run that was given up.
    """
    found = {each.key: each for each in now}
    planned = [each for each in unfinished.inputs if not each.verified]
    if all(each.key in found and found[each.key].looks_like(each) for each in planned):
        return unfinished
    scored = {each.key for each in complete.inputs}
    for each in planned:
        if each.key not in found and each.key not in scored:
            _log_missing(each)
    return complete


def _log_missing(found: Input) -> None:
    logger.warning(
        "%s is not among the inputs any more, and the run was not completed: its rows are left out",
        found.label,
        extra={"event": "missing_input", "place": found.label},
    )


class Fate(Enum):
    """What becomes of an input of an earlier run."""

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
    """What becomes of an input, by how it is now; None where it is not among the inputs."""
    if current is None:
        return Fate.GONE if known.verified else Fate.MISSING
    never_read = bool(known.unreadable) and not known.sha256
    if never_read and opens(current.file(options)):
        return Fate.REPLANNED  # rights that were given later change neither size nor time
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
    """Find what is new, and what cannot stay.

    Inputs of a run that was completed stay as they are; with `rescore_changed` those that were changed are taken out with
    their parts, and come again after all others. Those that could not be opened then, and can be now, are new. Inputs of a
    run that was not completed may change: then they are all planned anew, since nothing of them was final. New inputs come
    in the `order` in which they were planned before, so that parts that are done already keep their numbers.

    Raises
    ------
    InputError
        Inputs of a completed run were changed.
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
    kept = [i for i, found in enumerate(state.inputs) if found.verified]
    places = {old: new for new, old in enumerate(kept)}
    parts = tuple(
        Part(
            part.number,
            part.first_row,
            tuple(ScoringUnit(places[piece.input], piece.rows, piece.range) for piece in part.pieces),
        )
        for part in state.parts
        if part.inputs <= places.keys()
    )
    return replace(state, inputs=tuple(state.inputs[i] for i in kept), parts=parts, complete=False)


def _report_changed(found: Sequence[Input], *, rescore: bool) -> None:
    named = first_few([each.label for each in found], SHOWN)
    what = f"{number_of(len(found), 'input')} that {'was' if len(found) == 1 else 'were'} scored before"
    if not rescore:
        raise InputError(
            f"must stay as they were scored, {what} changed since: {named}",
            parameter="inputs",
            remedy=(
                "score them again with {rescore_changed=True} (their rows then follow all others)",
                "choose another folder",
            ),
        )
    logger.warning(
        "%s changed since, and %s scored again: %s",
        what,
        "is" if len(found) == 1 else "are",
        named,
        extra={
            "event": "changed_inputs",
            "count": len(found),
            "first": [each.label for each in found[:SHOWN]],
        },
    )


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

    Large files are cut and small ones put together, at about the same bytes of text: how is decided by the files alone.

    Raises
    ------
    InputError
        A file cannot be read, and may not be skipped.
    """
    target = 1 << (target_bytes(files).bit_length() - 1)  # the same for inputs of about the same size
    inputs: list[Input] = list(state.inputs)
    pieces: list[tuple[ScoringUnit, int]] = []
    for each in scan(runner, files, fields, target=target, skip=skip, n_terms=n_terms):
        if each.input.unreadable:
            log_unreadable(each.input.label, each.input.unreadable)
        pieces += [
            (ScoringUnit(len(inputs), n_rows, dict(where)), cost + OPENING_BYTES)
            for where, n_rows, cost in each.pieces
            if n_rows
        ]
        inputs.append(each.input)
    if not files.piece.one_document:  # two documents may well be the same
        _report_same(inputs, len(state.inputs))
    return _with_parts(replace(state, inputs=tuple(inputs)), group_sources(pieces, target))


def _report_same(inputs: Sequence[Input], n_known: int) -> None:
    """Warn of new files that hold the bytes of another one, as one that was renamed does: its rows are there twice."""
    first: dict[str, str] = {}
    same: list[tuple[str, str]] = []
    for i, found in enumerate(inputs):
        if not found.rows:
            continue
        other = first.setdefault(found.sha256, found.label)
        if i >= n_known and other != found.label:
            same.append((found.label, other))
    if same:
        logger.warning(
            "%s the content of another, so the rows are there twice: %s",
            "1 input has" if len(same) == 1 else f"{len(same):,} inputs have",
            first_few([f"{path} that of {other}" for path, other in same], SHOWN),
            extra={"event": "same_content", "count": len(same)},
        )


def log_unreadable(path: str, reason: str) -> None:
    """Tell of a file that is left out, all of it or from somewhere on."""
    logger.warning(
        "%s cannot be scored, or not to its end: %s",
        path,
        reason,
        extra={"event": "unreadable_input", "place": path, "reason": reason},
    )


def plan_partitions(state: RunState, found: Sequence[Input]) -> RunState:
    """Make a part of each partition that has documents."""
    first = len(state.inputs)
    groups = [(ScoringUnit(first + i, each.rows, {}),) for i, each in enumerate(found) if each.rows]
    return _with_parts(replace(state, inputs=(*state.inputs, *found)), groups)


def _with_parts(state: RunState, groups: Sequence[tuple[ScoringUnit, ...]]) -> RunState:
    number, row = state.following
    parts = list(state.parts)
    for group in groups:
        part = Part(number, row, group)
        parts.append(part)
        number, row = number + 1, row + part.rows
    return replace(state, parts=tuple(parts), complete=False)


def part_key(part: Part, inputs: Sequence[Input], identity: Mapping[str, Any]) -> str:
    """What a part is made of: two with the same key have the same rows."""
    pieces = [
        [inputs[p.input].sha256, inputs[p.input].name, inputs[p.input].partition, p.rows, dict(p.range)]
        for p in part.pieces
    ]
    return json_sha256([part.first_row, pieces, identity])


def state_now(file: InputFile, name: str, *, skip: bool) -> Input:
    """A file as it is now, unread."""
    try:
        size, modified = state_of(file)
    except InputError:
        if not skip:
            raise
        return Input(file.url, name)
    return Input(file.url, name, None, size, modified)
