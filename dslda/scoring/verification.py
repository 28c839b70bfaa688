"""Inputs that change while they are scored: nothing of them is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dslda.corpus.runner import Runner
from dslda.exceptions import InputError
from dslda.scoring.folder import RunFolder, RunState
from dslda.scoring.inputs import Input, changed, content_sha256, state_of

__all__ = ["drop_changed", "verified"]


def drop_changed(folder: RunFolder, state: RunState, options: Mapping[str, Any]) -> None:
    """Remove what was scored of files that were changed meanwhile."""
    _remove(folder, state, {i for i in _open_files(state) if not _looks_same(state.inputs[i], options)})


def verified(runner: Runner, folder: RunFolder, state: RunState, options: Mapping[str, Any]) -> RunState:
    """With all inputs marked as verified: those that were scored are still what they were.

    Raises
    ------
    InputError
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
        folder.write_manifest(replace(state, inputs=tuple(inputs)).to_json())
        raise changed(state.inputs[min(different)])
    number, row = state.following
    return replace(
        state,
        inputs=tuple(replace(found, verified=True) for found in state.inputs),
        next_part=number,
        next_row=row,
        complete=True,
    )


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
