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
    different = set()
    for i, found in enumerate(state.inputs):
        if found.partition is None and not found.verified and not found.unreadable:
            try:
                same = state_of(found.file(options)) == (found.size, found.modified)
            except InputError:
                same = False
            if not same:
                different.add(i)
    for part in state.parts:
        if part.inputs & different:
            folder.remove_part(part.number)


def verified(runner: Runner, folder: RunFolder, state: RunState, options: Mapping[str, Any]) -> RunState:
    """With all inputs marked as verified: those that were scored are still what they were.

    Raises
    ------
    InputError
        One is not; nothing of it is kept.
    """
    files = [
        i
        for i, found in enumerate(state.inputs)
        if found.partition is None and not found.verified and not found.unreadable
    ]
    rows = [(state.inputs[i], options) for i in files]
    different: set[int] = set()
    for n, same in runner.stream(_is_same, rows, n=len(rows), stage="check"):
        if not same:
            different.add(files[n])
    if different:
        for part in state.parts:
            if part.inputs & different:
                folder.remove_part(part.number)
        # content alone may differ, where somebody has set the time back: they are read anew the next time
        inputs = [replace(x, modified="") if i in different else x for i, x in enumerate(state.inputs)]
        folder.write_manifest(replace(state, inputs=tuple(inputs)).to_json())
        raise changed(state.inputs[min(different)])
    return replace(
        state,
        inputs=tuple(replace(found, verified=True) for found in state.inputs),
        next_part=max([state.next_part, *(part.number + 1 for part in state.parts)]),
        next_row=max([state.next_row, *(part.first_row + part.rows for part in state.parts)]),
        complete=True,
    )


def _is_same(found: Input, options: Mapping[str, Any]) -> bool:
    file = found.file(options)
    try:
        return state_of(file) == (found.size, found.modified) and content_sha256(file) == found.sha256
    except InputError:
        return False
