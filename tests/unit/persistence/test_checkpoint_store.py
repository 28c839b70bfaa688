"""Checkpoints as files: read as they were written, replaced as a whole, refused when damaged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from dslda.exceptions import FormatError, InputError, OutputError, OutputExistsError
from dslda.persistence.checkpoint_store import CheckpointRecord, CheckpointStore, read_checkpoint
from dslda.storage.typed_json import json_sha256

ROOT = Path(__file__).parents[3]
IN_MEMORY = "memory://checkpoints/fit.checkpoint"


def a_record(n: int) -> CheckpointRecord:
    """After n iterations, with numbers that tell which."""
    generator = np.random.default_rng(n)
    parameters = {
        "topics": generator.random((3, 500)),
        "alpha": np.full(3, n / 3),
        "eta": np.array([-0.0, 1e-308, n]),
    }
    trace = {"iteration": np.arange(1.0, n + 1), "relative_change": np.r_[np.nan, np.full(n - 1, 1 / 3)]}
    return CheckpointRecord(
        parameters, trace, {"settings": {"n_topics": 3, "tol": 1e-4}, "classes": ["ä", "b"]}
    )


def assert_same(one: CheckpointRecord, other: CheckpointRecord) -> None:
    for mine, theirs in ((one.parameters, other.parameters), (one.trace, other.trace)):
        assert {k: v.tobytes() for k, v in mine.items()} == {k: v.tobytes() for k, v in theirs.items()}
        assert {k: v.shape for k, v in mine.items()} == {k: v.shape for k, v in theirs.items()}
    assert one.fit == other.fit
    assert one.n_iterations == other.n_iterations


def started(path: Any, **flags: bool) -> CheckpointStore:
    store = CheckpointStore(path)
    store.check(**{"resume": False, "overwrite": False} | flags)
    return store


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "disk":
        return str(tmp_path / "new" / "fit.checkpoint")
    fs = fsspec.filesystem("memory")
    if fs.exists("/checkpoints"):
        fs.rm("/checkpoints", recursive=True)
    return IN_MEMORY


def names(place: str) -> list[str]:
    fs, root = fsspec.url_to_fs(place)
    return sorted(entry.rstrip("/").rpartition("/")[2] for entry in fs.ls(root, detail=False))


def test_the_last_one_is_there_and_nothing_else(place: str) -> None:
    store = started(place)
    assert store.read() is None
    for n in (1, 2, 7):
        store.write(a_record(n))
        assert_same(read_checkpoint(place), a_record(n))
        assert_same(started(place, resume=True).read(), a_record(n))
        state, manifest = names(place)
        assert state.startswith("state-")
        assert manifest == "zarr.json"


def test_one_that_is_there_is_used_only_when_told_so(place: str) -> None:
    started(place).write(a_record(4))
    with pytest.raises(OutputExistsError, match="holds a checkpoint; go on from it with resume=True"):
        started(place)
    anew = started(place, overwrite=True)
    assert_same(read_checkpoint(place), a_record(4))  # until there is another
    anew.write(a_record(1))
    assert_same(read_checkpoint(place), a_record(1))


def test_a_first_write_that_was_cut_short_is_no_checkpoint(place: str) -> None:
    store = started(place)
    store.write(a_record(3))
    fs, root = fsspec.url_to_fs(place)
    fs.rm(f"{root}/zarr.json")
    again = started(place, resume=True)
    assert again.read() is None
    again.write(a_record(5))
    assert_same(read_checkpoint(place), a_record(5))
    assert len(names(place)) == 2


def test_two_fits_do_not_mix(place: str) -> None:
    one, other = started(place), started(place)
    one.write(a_record(1))
    with pytest.raises(OutputError, match="was written by another fit meanwhile"):
        other.write(a_record(2))
    one.write(a_record(3))
    assert_same(read_checkpoint(place), a_record(3))
    assert len(names(place)) == 2


def test_what_dslda_did_not_write_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    for name in ("folder", "file"):
        for flags in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(OutputExistsError, match="is there and is not a dslda-checkpoint"):
                started(tmp_path / name, **flags)
    assert (tmp_path / "folder" / "thesis.tex").exists()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        started(tmp_path / "file" / "fit.checkpoint")


def test_numbers_that_are_not_finite_do_not_replace_good_ones(tmp_path: Path) -> None:
    store = started(tmp_path / "c")
    store.write(a_record(1))
    bad = a_record(2)
    bad.parameters["alpha"][0] = np.nan
    with pytest.raises(
        OutputError, match="keeps the checkpoint before: parameters must be finite, got alpha"
    ):
        store.write(bad)
    assert_same(read_checkpoint(tmp_path / "c"), a_record(1))


@pytest.mark.parametrize("after", [False, True], ids=["before the manifest is replaced", "after"])
def test_an_interrupt_leaves_the_old_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    store = started(tmp_path / "c")
    store.write(a_record(1))
    replace = os.replace

    def interrupted(source: str, target: str) -> None:
        manifest = target == str(tmp_path / "c" / "zarr.json")  # zarr renames files too
        if after or not manifest:
            replace(source, target)
        if manifest:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dslda.storage.output.os.replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.write(a_record(2))
    assert_same(read_checkpoint(tmp_path / "c"), a_record(2 if after else 1))
    store.write(a_record(2))  # as a fit does when it ends
    assert_same(read_checkpoint(tmp_path / "c"), a_record(2))
    assert len(names(str(tmp_path / "c"))) == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="fork")
def test_a_writer_that_is_killed_at_any_moment_leaves_one_whole_checkpoint(tmp_path: Path) -> None:
    """Processes that do nothing but write are killed, 15 times, each after another time."""
    script = textwrap.dedent(
        """
        import os, random, signal, sys, time
        import zarr, zarr.codecs
        from tests_checkpoint import a_record, assert_same, read_checkpoint, CheckpointStore

        def forked(work):
            pid = os.fork()
            if pid == 0:
                try:
                    work()
                    os._exit(0)
                except BaseException as error:
                    print(repr(error), file=sys.stderr, flush=True)
                    os._exit(1)
            return pid

        def write():
            store = CheckpointStore("c")
            store.check(resume=True, overwrite=False)
            found = store.read()
            n = 0 if found is None else found.n_iterations
            began = time.monotonic()
            while True:
                n += 1
                store.write(a_record(n))
                if not os.path.exists("took"):
                    with open("writing", "w") as stream:
                        stream.write(str(time.monotonic() - began))
                    os.replace("writing", "took")

        def read():
            record = read_checkpoint("c")
            assert_same(record, a_record(record.n_iterations))
            print(record.n_iterations, flush=True)

        draw = random.Random(0)
        for turn in range(15):
            pid = forked(write)
            while not os.path.exists("took"):
                time.sleep(0.001)
            time.sleep(draw.uniform(0.0, 1.5) * float(open("took").read()))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.unlink("took")
            assert os.waitpid(forked(read), 0)[1] == 0
        """
    )
    shutil.copy(__file__, tmp_path / "tests_checkpoint.py")
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = [int(line) for line in done.stdout.split()]
    assert len(seen) == 15
    assert seen == sorted(seen)
    assert seen[-1] >= 15
    store = started(tmp_path / "c", resume=True)
    assert store.read() is not None
    store.write(a_record(seen[-1] + 1))
    assert len(names(str(tmp_path / "c"))) == 2  # what was cut short is gone


def edit(path: Path, change: Any, *, right: bool) -> None:
    """Change the attributes, and make their checksum right again or leave it."""
    metadata = json.loads((path / "zarr.json").read_text())
    attributes = metadata["attributes"]
    change(attributes)
    if right:
        rest = {k: v for k, v in attributes.items() if k != "manifest_sha256"}
        attributes["manifest_sha256"] = json_sha256(rest)
    (path / "zarr.json").write_text(json.dumps(metadata))


DAMAGE = {
    "edited": (lambda a: a.update(iterations=3), False, "do not agree with their checksum"),
    "another version": (lambda a: a.update({"encoding-version": "9"}), True, "a checkpoint of version '9'"),
    "no checkpoint": (lambda a: a.update({"encoding-type": "thing"}), True, "is not a checkpoint of dslda"),
    "state elsewhere": (lambda a: a.update(state="../other"), True, r"at `\$.state`"),
    "no such state": (lambda a: a.update(state="state-" + "0" * 12), True, "array 'topics' cannot be read"),
    "other iterations": (
        lambda a: a.update(iterations=3),
        True,
        "'trace' must have a row for each iteration",
    ),
    "no trace": (lambda a: a["arrays"].pop("trace"), True, "'trace' must have a row for each iteration"),
    "no columns": (lambda a: a.update(trace=[]), True, r"at `\$.trace`"),
    "no fit": (lambda a: a.pop("fit"), True, "missing required field `fit`"),
    "fit is text": (lambda a: a.update(fit="x"), True, r"Expected `object`, got `str` - at `\$.fit`"),
    "arrays are numbers": (
        lambda a: a.update(arrays=3),
        True,
        r"Expected `object`, got `int` - at `\$.arrays`",
    ),
    "other checksum": (
        lambda a: a["arrays"]["eta"].update(checksum="0"),
        True,
        "'eta' does not agree with its check",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_refused_with_its_place(tmp_path: Path, case: str) -> None:
    change, right, message = DAMAGE[case]
    started(tmp_path / "c").write(a_record(2))
    edit(tmp_path / "c", change, right=right)
    with pytest.raises(FormatError, match=message):
        read_checkpoint(tmp_path / "c")


def test_files_that_are_cut_short_changed_or_missing_are_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    started(whole).write(a_record(2))
    files = [p.relative_to(whole) for p in sorted(whole.rglob("*")) if p.is_file()]
    assert len(files) > 8
    for file in files:
        raw = (whole / file).read_bytes()
        for harmed in (None, raw[:-3], bytes([*raw[:-1], raw[-1] ^ 1])):
            copy = tmp_path / "copy"
            shutil.copytree(whole, copy)
            (copy / file).unlink()
            if harmed is not None:
                (copy / file).write_bytes(harmed)
            if file.match("state-*/zarr.json"):  # says nothing that is not known
                assert_same(read_checkpoint(copy), a_record(2))
            else:
                with pytest.raises(FormatError, match=re.escape(str(copy))):
                    read_checkpoint(copy)
            shutil.rmtree(copy)


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_checkpoint(tmp_path / "c")
