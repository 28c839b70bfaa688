"""The folder of a run: its manifest, what it holds of others, and files that runs that were killed have left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslda.exceptions import FormatError, OutputError, OutputExistsError
from dslda.scoring.run_folder import MANIFEST, UNFINISHED, Part, RunFolder, RunState
from dslda.scoring.scoring_units import Input, ScoringUnit
from dslda.storage.location import Location
from dslda.storage.typed_json import MANIFEST_CHECKSUM

NAMES = st.text(max_size=6) | st.just("bad \udcff name")
COUNTS = st.integers(0, 2**53)
INPUTS = st.builds(
    Input,
    path=NAMES,
    name=NAMES,
    partition=st.none() | COUNTS,
    size=st.none() | COUNTS,
    modified=NAMES,
    sha256=NAMES,
    rows=COUNTS,
    unreadable=NAMES,
    verified=st.booleans(),
)
RANGES = st.just({}) | st.fixed_dictionaries({"start": COUNTS, "columns": st.lists(NAMES, max_size=2)})


@st.composite
def states(draw: st.DrawFn) -> RunState:
    inputs = tuple(draw(st.lists(INPUTS, max_size=4)))
    units = st.builds(ScoringUnit, st.integers(0, max(len(inputs) - 1, 0)), COUNTS, RANGES)
    parts = st.builds(Part, COUNTS, COUNTS, st.lists(units, max_size=3).map(tuple))
    return RunState(
        identity={"model": {"family": draw(NAMES)}, "settings": {"topics": draw(st.none() | COUNTS)}},
        versions={"numpy": draw(NAMES)},
        inputs=inputs,
        parts=tuple(draw(st.lists(parts, max_size=3))) if inputs else (),
        next_part=draw(COUNTS),
        next_row=draw(COUNTS),
        complete=draw(st.booleans()),
    )


@given(states())
def test_a_state_survives_its_manifest(state: RunState) -> None:
    data = json.loads(json.dumps(state.to_json()))
    assert RunState.from_json(data, "manifest.json") == state
    assert RunState.from_json(data, "manifest.json").to_json() == data


@given(states(), st.data())
def test_a_manifest_with_a_value_of_another_type_is_refused_with_its_place(
    state: RunState, data: st.DataObject
) -> None:
    raw = json.loads(json.dumps(state.to_json()))
    name = data.draw(st.sampled_from([name for name in raw if not name.startswith("encoding")]))
    wrong = [True, 1.5, -1] + ([] if name == "latest_part" else [None])  # which may be unknown
    raw[name] = data.draw(st.sampled_from(wrong))
    with pytest.raises(FormatError) as caught:
        RunState.from_json(raw, "out/manifest.json")
    assert caught.value.place == "out/manifest.json"
    assert f"$.{name}" in caught.value.reason


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(Location.of(tmp_path), "parquet")
    run.prepare()
    return run


STATE = RunState({"model": {}, "settings": {}}, {}, (Input("a"),), (Part(0, 0, (ScoringUnit(0, 2),)),))
NOTE: dict[str, Any] = {"key": "k", "bytes": 3, "sha256": "s", "rows": 2}


def write_part(run: RunFolder, number: int) -> Part:
    part = Part(number, 0, (ScoringUnit(0, 2),))
    Path(run.part_file(number).url).write_bytes(b"abc")
    Path(run.ids_file(number).url).write_bytes(bytes(16))
    run.write_note(part, NOTE)
    return part


def test_a_part_is_done_where_its_note_and_both_files_are_what_was_written(folder: RunFolder) -> None:
    part = write_part(folder, 0)
    assert (folder.read_note(part, "k") or {}).items() >= NOTE.items()
    assert folder.read_note(part, "another") is None
    note = Path(folder.location.url, "parts", "000000.json")
    for path, damaged in (
        (Path(folder.part_file(0).url), b"ab"),
        (Path(folder.ids_file(0).url), bytes(8)),
        (note, note.read_bytes().replace(b'"rows": 2', b'"rows": 3')),
        (note, b"{"),
        (note, b""),
    ):
        sound = path.read_bytes()
        path.write_bytes(damaged)
        assert folder.read_note(part, "k") is None
        path.unlink()
        assert folder.read_note(part, "k") is None
        path.write_bytes(sound)
    assert folder.read_note(part, "k") is not None


def test_what_a_run_goes_on_from_lies_beside_the_manifest_that_counts(folder: RunFolder) -> None:
    folder.write_manifest(STATE.to_json() | {"status": "complete"})
    complete = folder.complete_manifest()
    assert complete is not None
    folder.write_unfinished(STATE, complete)
    assert folder.read_manifest() == complete
    going_on = folder.read_unfinished(complete)
    assert going_on is not None
    assert RunState.from_json(going_on, "x") == STATE
    # of another manifest, or damaged, it is nothing to go on from
    assert folder.read_unfinished(complete | {MANIFEST_CHECKSUM: "0"}) is None
    Path(folder.location.url, UNFINISHED).write_text("{")
    assert folder.read_unfinished(complete) is None
    folder.write_unfinished(STATE, None)
    assert folder.complete_manifest() is None
    assert not Path(folder.location.url, UNFINISHED).exists()


def test_only_files_of_runs_are_removed(folder: RunFolder) -> None:
    for number in (0, 1):
        write_part(folder, number)
    root = Path(folder.location.url)
    left = [".part-000007.parquet.0123abcd.partial", "parts/.000007.json.0123abcd.partial"]
    mine = ["notes.txt", "part-1.parquet", "part-000001.txt", "parts/notes.json", ".hidden"]
    for name in (*left, *mine):
        (root / name).write_text("x")
    folder.clear([1])
    assert {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} == {
        *mine,
        *("part-000001.parquet", "parts/000001.json", "parts/000001.ids"),
    }
    folder.remove_part(1)
    assert not list(root.rglob("*000001.*s*")) or [*root.rglob("*000001*")] == [root / "part-000001.txt"]


def test_what_is_complete_tidies_up_only_after_a_run_that_was_given_up(folder: RunFolder) -> None:
    for number in (0, 1):
        write_part(folder, number)
    folder.tidy([0])
    assert Path(folder.part_file(1).url).exists()
    Path(folder.location.url, UNFINISHED).touch()
    folder.tidy([0])
    assert not Path(folder.part_file(1).url).exists()
    assert not Path(folder.location.url, UNFINISHED).exists()


@pytest.mark.parametrize(
    "name", ["parts", "part-000000.parquet", "parts/000000.json", "parts/000000.ids", UNFINISHED]
)
def test_a_file_where_a_folder_must_be_and_the_reverse_is_named(folder: RunFolder, name: str) -> None:
    root = Path(folder.location.url)
    folder.write_manifest(STATE.to_json())
    folder.check_kinds()
    if name == "parts":
        (root / name).rmdir()
        (root / name).write_text("mine")
    else:
        (root / name).mkdir()
    with pytest.raises(FormatError) as caught:
        folder.check_kinds()
    assert (
        f"{root}/{name} must be a {'folder' if name == 'parts' else 'file'} of the run" in caught.value.reason
    )


def test_a_manifest_that_is_a_folder_is_refused(folder: RunFolder) -> None:
    Path(folder.location.url, MANIFEST).mkdir()
    with pytest.raises(FormatError, match="must be a file of the run, it is a folder"):
        folder.read_manifest()


def test_a_folder_of_something_else_is_no_run(tmp_path: Path) -> None:
    run = RunFolder(Location.of(tmp_path), "parquet")
    assert run.read_manifest() is None
    (tmp_path / ".hidden").touch()
    assert run.read_manifest() is None
    (tmp_path / "mine.txt").touch()
    with pytest.raises(OutputExistsError, match=r"mine\.txt"):
        run.read_manifest()
    (tmp_path / MANIFEST).write_text('{"encoding-type": "another"}')
    with pytest.raises(OutputExistsError):
        run.read_manifest()


def test_an_edited_manifest_is_refused(folder: RunFolder) -> None:
    folder.write_manifest(STATE.to_json())
    path = Path(folder.location.url, MANIFEST)
    path.write_text(path.read_text().replace('"next_row": 0', '"next_row": 1'))
    with pytest.raises(FormatError, match="checksum"):
        folder.read_manifest()
    assert folder.complete_manifest() is None


def test_folders_of_a_run_that_could_not_begin_are_removed(tmp_path: Path) -> None:
    for kept in (False, True):
        run = RunFolder(Location.of(tmp_path / "out"), "parquet")
        run.prepare()
        if kept:
            (tmp_path / "out" / "mine").touch()
        run.remove_if_empty()
        assert (tmp_path / "out").exists() is kept


def test_nothing_is_written_by_a_run_that_has_lost_its_lock(tmp_path: Path) -> None:
    class Lost:
        def check(self) -> None:
            raise OutputError("another run has the folder")

    run = RunFolder(Location.of(tmp_path), "parquet", Lost())  # type: ignore[arg-type]
    (tmp_path / "part-000000.parquet").touch()
    for write in (lambda: run.write_manifest({}), lambda: run.clear([]), lambda: run.remove_part(0)):
        with pytest.raises(OutputError):
            write()
    assert [path.name for path in tmp_path.iterdir()] == ["part-000000.parquet"]
