"""What stays of an earlier run when inputs are gone, changed or new, and when parts are damaged."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslda.cluster.runner import SerialRunner
from dslda.exceptions import InputChangedError, InputError
from dslda.ingestion.counting import hashes_of
from dslda.inputs.fields import Fields
from dslda.inputs.files import list_files
from dslda.scoring.resumption import (
    compare,
    drop_changed,
    forget_damaged,
    known_state,
    taken_up,
    verified,
)
from dslda.scoring.run_folder import Part, RunFolder, RunState
from dslda.scoring.run_plan import part_key, plan_files
from dslda.scoring.scoring_units import Input, ScoringUnit
from dslda.storage.location import Location

IDENTITY = {"model": {"family": "gaussian"}, "settings": {"output_format": "jsonl", "topics": "all"}}
VERSIONS = {"numpy": "2"}


def partition(i: int, sha256: str = "x", **fields: Any) -> Input:
    """An input without a file."""
    return Input("/a.corpus", partition=i, sha256=sha256, rows=2, **fields)


def state_of_parts(inputs: list[Input], parts: list[list[int]], *, complete: bool) -> RunState:
    """A part for each list of positions of inputs."""
    made = tuple(Part(n, 10 * n, tuple(ScoringUnit(i, 2) for i in part)) for n, part in enumerate(parts))
    return RunState(IDENTITY, VERSIONS, tuple(inputs), made, complete=complete)


def labels(found: tuple[Input, ...]) -> list[int | None]:
    return [each.partition for each in found]


def test_a_complete_run_stays_and_what_is_new_comes_in_its_order() -> None:
    scored = [partition(i, verified=True) for i in (3, 1)]
    state = state_of_parts(scored, [[0], [1]], complete=True)
    now = [partition(i) for i in (0, 1, 2, 3)]
    found = compare(state, now, rescore_changed=False, options={})
    assert (found.state, found.new) == (state, (0, 2))


def test_rows_of_scored_inputs_that_are_gone_stay(caplog: pytest.LogCaptureFixture) -> None:
    state = state_of_parts([partition(i, verified=True) for i in range(3)], [[0, 1], [2]], complete=True)
    with caplog.at_level(logging.INFO, logger="dslda.score"):
        found = compare(state, [partition(1)], rescore_changed=False, options={})
    assert (found.state, found.new) == (state, ())
    assert "2 inputs scored before are not among the inputs now" in caplog.text


def test_inputs_that_wait_and_are_gone_are_left_out_with_their_parts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inputs = [partition(0, verified=True), partition(1), partition(2)]
    state = state_of_parts(inputs, [[0], [1], [2]], complete=False)
    found = compare(state, [partition(0), partition(2)], rescore_changed=False, options={})
    # none of the rows of an open run are final, so all that waits is planned anew
    assert labels(found.state.inputs) == [0]
    assert [part.number for part in found.state.parts] == [0]
    assert found.new == (1,)
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "missing_input"]
    assert "partition 1" in record.getMessage()


def test_a_changed_input_is_refused_or_comes_again_with_all_that_share_its_parts() -> None:
    state = state_of_parts([partition(i, verified=True) for i in range(4)], [[0, 1], [2], [3]], complete=True)
    now = [partition(0), partition(1, "y"), partition(2), partition(3)]
    with pytest.raises(InputError) as caught:
        compare(state, now, rescore_changed=False, options={})
    assert caught.value.parameter == "inputs"
    assert "{rescore_changed=True}" in caught.value.remedy[0]
    found = compare(state, now, rescore_changed=True, options={})
    assert labels(found.state.inputs) == [2, 3]
    assert [(part.number, part.inputs) for part in found.state.parts] == [(1, {0}), (2, {1})]
    assert found.new == (0, 1)
    assert not found.state.complete
    assert found.state.following == (3, 22)
    with pytest.raises(InputError) as caught:
        compare(state, now[1:], rescore_changed=True, options={})
    assert "partition 0" in caught.value.reason


def test_a_file_of_the_same_bytes_and_another_time_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n')
    state = plan_files(
        SerialRunner(), RunState(IDENTITY, VERSIONS), list_files(path), Fields(text="text"), skip=False
    )
    (scored,) = state.inputs
    state = replace(state, inputs=(replace(scored, verified=True),), complete=True)
    later = replace(scored, modified="later", sha256="")
    found = compare(state, [later], rescore_changed=False, options={})
    assert found.new == ()
    assert found.state.inputs == (replace(scored, modified="later", verified=True),)
    path.write_text('{"text": "poor"}\n')
    with pytest.raises(InputError):
        compare(state, [later], rescore_changed=False, options={})


def test_a_file_that_could_not_be_opened_is_planned_as_soon_as_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    known = Input(f"file://{path}", size=17, modified="1", unreadable="no right to read it", verified=True)
    state = RunState(IDENTITY, VERSIONS, (known,), complete=True)
    now = [replace(known, unreadable="", verified=False)]
    assert compare(state, now, rescore_changed=False, options={}).new == ()
    path.write_text('{"text": "good"}\n')
    assert compare(state, now, rescore_changed=False, options={}).new == (0,)


inputs_of_a_run = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["stays", "gone", "changed"])), min_size=1, max_size=8
)


@given(inputs_of_a_run, st.integers(0, 3), st.integers(1, 3), st.booleans())
def test_every_input_is_scored_or_planned_once_and_parts_hold_scored_ones_alone(
    known: list[tuple[bool, str]], n_new: int, width: int, complete: bool
) -> None:
    inputs = [partition(i, verified=complete or is_verified) for i, (is_verified, _) in enumerate(known)]
    groups = [list(range(a, min(a + width, len(inputs)))) for a in range(0, len(inputs), width)]
    state = state_of_parts(inputs, groups, complete=complete)
    now = [
        partition(i, "y" if fate == "changed" else "x") for i, (_, fate) in enumerate(known) if fate != "gone"
    ] + [partition(100 + i) for i in range(n_new)]
    try:
        found = compare(state, now, rescore_changed=True, options={})
    except InputError:
        # only where an input is gone that shares a part with one that changed
        fates = [{known[i][1] for i in group} for group in groups]
        assert any({"gone", "changed"} <= kinds for kinds in fates)
        return
    planned = [now[i].key for i in found.new]
    scored = [each.key for each in found.state.inputs]
    assert len({*planned, *scored}) == len(planned) + len(scored)
    assert {each.key for each in now} <= {*planned, *scored}
    assert all(i < len(scored) for part in found.state.parts for i in part.inputs)
    numbers = [part.number for part in found.state.parts]
    assert numbers == sorted(set(numbers))
    for part in found.state.parts:
        # a part keeps its number, its first row and its inputs, or goes
        before = state.parts[part.number]
        assert part.first_row == before.first_row
        old = [state.inputs[unit.input].key for unit in before.pieces]
        assert [found.state.inputs[unit.input].key for unit in part.pieces] == old


@given(st.lists(st.sampled_from(["same", "changed", "gone"]), min_size=1, max_size=5))
def test_a_run_goes_on_only_where_all_that_it_planned_is_there_as_it_was(kinds: list[str]) -> None:
    complete = RunState(IDENTITY, VERSIONS, (partition(0, verified=True),), complete=True)
    planned = tuple(partition(i + 1) for i in range(len(kinds)))
    unfinished = replace(complete, inputs=(*complete.inputs, *planned), complete=False)
    now = [
        partition(i + 1, "y" if kind == "changed" else "x") for i, kind in enumerate(kinds) if kind != "gone"
    ]
    expected = unfinished if set(kinds) == {"same"} else complete
    assert taken_up(unfinished, complete, now) is expected


def test_a_run_of_another_model_or_of_other_settings_is_refused_by_what_differs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = RunState(IDENTITY, VERSIONS).to_json()
    assert known_state(before, IDENTITY, VERSIONS, "/out") == RunState(IDENTITY, VERSIONS)
    assert not caplog.records
    for what, fields in (
        ("model", {"family": "poisson"}),
        ("settings", {"output_format": "csv", "topics": "all"}),
    ):
        with pytest.raises(InputError) as caught:
            known_state(before, IDENTITY | {what: fields}, VERSIONS, "/out")
        assert what in caught.value.reason
        assert ("topics" in caught.value.reason) is False
    known_state(before, IDENTITY, {"numpy": "3"}, "/out")
    assert [getattr(each, "event", "") for each in caplog.records] == ["other_versions"]


class Finished:
    """A run over files whose parts hold the keys of their records, without a model."""

    def __init__(self, folder: Path) -> None:
        self.inputs, out = folder / "in", folder / "out"
        self.inputs.mkdir()
        for name in "ab":
            text = "word " * 110_000  # so much that each file has a part of its own
            lines = [json.dumps({"id": f"{name}{i}", "text": text}) + "\n" for i in range(2)]
            (self.inputs / f"{name}.jsonl").write_text("".join(lines))
        out.mkdir()
        self.folder = RunFolder(Location.of(out), "jsonl")
        self.folder.prepare()
        files = list_files(self.inputs)
        empty = RunState(IDENTITY, VERSIONS)
        self.state = plan_files(SerialRunner(), empty, files, Fields(text="text", id="id"), skip=False)
        assert len(self.state.parts) == 2
        self.notes = {part.number: self.write(part) for part in self.state.parts}

    def write(self, part: Part) -> dict[str, Any]:
        from dslda.scoring.scoring_units import sha256_of

        names = [f"{'ab'[part.number]}{i}" for i in range(part.rows)]
        path = Path(self.folder.part_file(part.number).url)
        path.write_text("".join(json.dumps({"id": name}) + "\n" for name in names))
        hashes = np.sort(hashes_of(name.encode() for name in names)).astype("<u8")
        Path(self.folder.ids_file(part.number).url).write_bytes(hashes.tobytes())
        with path.open("rb") as stream:
            sha256 = sha256_of(stream)
        note = {
            "key": part_key(part, self.state.inputs, IDENTITY),
            "bytes": path.stat().st_size,
            "sha256": sha256,
            "rows": part.rows,
        }
        self.folder.write_note(part, note)
        return note

    def done(self) -> list[int]:
        """Numbers of the parts that are done."""
        return [
            part.number
            for part in self.state.parts
            if self.folder.read_note(part, part_key(part, self.state.inputs, IDENTITY)) is not None
        ]

    def manifest(self) -> dict[str, Any]:
        parts = [part.to_json() | {"sha256": self.notes[part.number]["sha256"]} for part in self.state.parts]
        return self.state.to_json() | {"parts": parts}


@pytest.fixture
def run(tmp_path: Path) -> Finished:
    return Finished(tmp_path)


def test_inputs_that_are_as_they_were_are_verified(run: Finished) -> None:
    state = verified(SerialRunner(), run.folder, run.state, {}, None)
    assert state.complete
    assert all(each.verified for each in state.inputs)
    assert (state.next_part, state.next_row) == (2, 4)
    assert run.done() == [0, 1]


@pytest.mark.parametrize("set_back", [False, True])
def test_of_an_input_that_was_changed_while_it_was_scored_nothing_stays(
    run: Finished, set_back: bool
) -> None:
    path = run.inputs / "a.jsonl"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    with path.open("r+b") as stream:
        stream.write(b'{"id": "A')
    os.utime(path, ns=times if set_back else (1, 1))
    with pytest.raises(InputChangedError, match=r"a\.jsonl"):
        verified(SerialRunner(), run.folder, run.state, {}, None)
    assert run.done() == [1]
    left = run.folder.read_manifest()
    assert left is not None
    assert left["status"] == "unfinished"
    # read anew the next time, though size and time may be what they were
    assert [each["modified"] == "" for each in left["inputs"]] == [True, False]


def test_after_a_failure_only_parts_of_changed_files_are_dropped(run: Finished) -> None:
    assert drop_changed(run.folder, run.state, {}) == ()
    (run.inputs / "b.jsonl").write_text("{}\n")
    (dropped,) = drop_changed(run.folder, run.state, {})
    assert dropped.label.endswith("b.jsonl")
    assert run.done() == [0]


class Job:
    """As much of a job as damage asks for."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def check_writable(self, reason: str) -> None:
        self.reason = reason


def cut(run: Finished) -> None:
    Path(run.folder.part_file(1).url).write_text("")


def edit(run: Finished) -> None:
    path = Path(run.folder.part_file(1).url)
    path.write_text(path.read_text().replace("b0", "x0"))


def swap_hashes(run: Finished) -> None:
    path = Path(run.folder.ids_file(1).url)
    path.write_bytes(path.read_bytes()[::-1])


def lose_note(run: Finished) -> None:
    run.folder.forget(1)


@pytest.mark.parametrize("damage", [cut, edit, swap_hashes, lose_note])
def test_a_damaged_part_is_forgotten_and_the_others_stay(
    run: Finished, damage: Callable[[Finished], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(run)
    forget_damaged(SerialRunner(), run.folder, run.state, run.manifest(), run.state.inputs, Job())  # type: ignore[arg-type]
    assert run.done() == [0]
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "damaged_parts"]
    assert record.__dict__["first"] == ["part-000001.jsonl"]


def test_a_damaged_part_whose_input_is_gone_is_refused_and_all_stays(run: Finished) -> None:
    edit(run)
    (run.inputs / "b.jsonl").unlink()
    with pytest.raises(InputError) as caught:
        forget_damaged(SerialRunner(), run.folder, run.state, run.manifest(), run.state.inputs, Job())  # type: ignore[arg-type]
    assert "part-000001.jsonl" in caught.value.reason
    assert len(caught.value.remedy) == 3
    assert run.done() == [0, 1]


def test_sound_parts_are_read_and_stay(run: Finished, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dslda.score"):
        forget_damaged(SerialRunner(), run.folder, run.state, run.manifest(), run.state.inputs, Job())  # type: ignore[arg-type]
    assert "2 parts read again: all are what was written" in caplog.text
    assert run.done() == [0, 1]
