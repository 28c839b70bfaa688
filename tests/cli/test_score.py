"""``dslda score`` on real files: kills, restarts, and every bad input; nothing is lost, repeated or misplaced."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import dslda
from dslda.exceptions import InputChangedError
from dslda.model import Model, load_model
from dslda.scoring.run_folder import RunFolder, RunState
from dslda.storage.location import Location
from dslda.storage.lock import only_writer
from tests.helpers.files import contents, write_records

Dslda = Callable[..., Any]

ROOT = Path(__file__).parents[2]
CODE = "from dslda.cli import main; main()"
PROGRAM = [sys.executable, "-c", CODE]
WORDS = ("good", "fine", "lovely", "great", "bad", "poor", "awful", "sad", "unheard", "of")


def write(path: Path, n: int, *, first: int = 0, repeat: int = 150) -> Path:
    """Records of about 50 bytes times `repeat`."""
    lines = []
    for i in range(first, first + n):
        text = (
            f"{WORDS[i % 10]} {WORDS[i % 7]} {WORDS[i // 10 % 10]} dress number{i % 5} word{i % 97} " * repeat
        )
        lines.append(json.dumps({"key": f"n{i}", "text": text}) + "\n")
    content = "".join(lines).encode()
    path.write_bytes(gzip.compress(content, 1, mtime=0) if path.suffix == ".gz" else content)
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files that become five parts or more."""
    folder = tmp_path_factory.mktemp("large")
    write(folder / "a.jsonl", 1200)
    write(folder / "b.jsonl.gz", 200, first=1200)
    write(folder / "c.jsonl", 3, first=1400)
    return folder


@pytest.fixture(scope="module")
def undisturbed(made: Path, large: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The output of a run over the large folder."""
    out = tmp_path_factory.mktemp("undisturbed") / "scores"
    run = dslda.score(made / "stars.model", large, out)
    assert len(run.manifest["parts"]) >= 5
    return contents(out)


def rows(folder: Path) -> list[dict[str, Any]]:
    """All rows of a run, in their order."""
    return [row for path in sorted(folder.glob("part-*.parquet")) for row in pq.read_table(path).to_pylist()]


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return found


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for_parts(process: subprocess.Popen[bytes], folder: Path, n: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(folder.glob("parts/*.json"))) < n:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("output_format", ["parquet", "csv", "jsonl"])
def test_rows_are_those_of_predict_in_every_format(
    dslda: Dslda, made: Path, tmp_path: Path, output_format: str
) -> None:
    predicted = tmp_path / "predicted.csv"
    assert (
        dslda("predict", made / "stars.model", made / "reviews.jsonl", "--topics", "--out", predicted).code
        == 0
    )
    with predicted.open(newline="") as stream:
        expected = list(csv.DictReader(stream))
    done = dslda(
        *("score", made / "stars.model", made / "reviews.jsonl", "--out", tmp_path / "s"),
        *("--output-format", output_format),
    )
    assert done.code == 0, done.err
    path = tmp_path / "s" / f"part-000000.{output_format}"
    if output_format == "parquet":
        found = pq.read_table(path).to_pylist()
    elif output_format == "csv":
        with path.open(newline="") as stream:
            found = list(csv.DictReader(stream))
    else:
        found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(found) == len(expected) == 80
    for mine, theirs in zip(found, expected, strict=True):
        assert {name: str(mine[name]) for name in theirs} == theirs
        assert int(mine["tokens"]) >= int(mine["known_tokens"])
    assert f"{tmp_path}/s: 80 rows in 1 part, 1 of them scored now, mean prediction" in done.out


def test_topics_are_all_the_largest_or_none(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    for topics in ("all", "none", "1"):
        arguments = ("--topics", topics, "--out", tmp_path / topics)
        assert dslda("score", made / "stars.model", made / "reviews.jsonl", *arguments).code == 0
    whole, largest = rows(tmp_path / "all"), rows(tmp_path / "1")
    for every, one in zip(whole, largest, strict=True):
        best = max((0, 1), key=lambda k, row=every: row[f"topic_{k}"])
        assert (one["top_topic_1"], one["top_proportion_1"]) == (best, every[f"topic_{best}"])
    assert not any("topic" in name for name in rows(tmp_path / "none")[0])
    assert (
        "all, none or a whole number"
        in dslda("score", made / "stars.model", "x", "--out", "y", "--topics", "0").error
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_run_that_is_killed_again_and_again_ends_with_the_bytes_of_an_undisturbed_one(
    made: Path, large: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "scores"
    for n in (1, 3):
        process = start("score", made / "stars.model", large, "--out", out)
        wait_for_parts(process, out, n)
        process.kill()
        process.communicate()
        assert manifest(out)["status"] == "unfinished"
        left = {path.name: path.stat().st_mtime_ns for path in out.glob("parts/*.json")}
        assert len(left) >= n
    (out / ".part-000001.parquet.0123abcd.partial").write_bytes(b"of a run that was killed while it wrote")
    done = subprocess.run(
        [*PROGRAM, "score", str(made / "stars.model"), str(large), "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    n_parts = sum(name.endswith(".parquet") for name in undisturbed)
    assert f"{len(left)} of {n_parts} parts are done already".encode() in done.stderr
    assert contents(out) == undisturbed
    assert left.items() <= {path.name: path.stat().st_mtime_ns for path in out.glob("parts/*.json")}.items()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.soak), 2])
def test_sigterm_keeps_the_finished_parts(
    dslda: Dslda, made: Path, large: Path, undisturbed: dict[str, bytes], tmp_path: Path, workers: int
) -> None:
    out = tmp_path / "scores"
    chosen = ("--workers", workers) if workers else ()
    process = start(
        "score", made / "stars.model", large, "--out", out, "--metrics", tmp_path / "m.prom", *chosen
    )
    wait_for_parts(process, out, 1)
    while not list(out.glob(".part-*.partial")):  # of a worker, or of this process, in the middle of one
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert b"parts were scored; the same command goes on" in err
    assert b"dslda_score_success" in (tmp_path / "m.prom").read_bytes()
    assert not [path for folder in (out, out / "parts") for path in folder.glob(".*")]
    assert manifest(out)["status"] == "unfinished"
    assert dslda("score", made / "stars.model", large, "--out", out).code == 0
    assert contents(out) == undisturbed


def test_run_twice_it_does_nothing_and_new_files_follow_those_there(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    write(inputs / "b.jsonl", 5, repeat=1)
    score = ("score", made / "stars.model", f"{inputs}/*.jsonl", "--out", out)
    assert dslda(*score).code == 0
    before, times = contents(out), {p: p.stat().st_mtime_ns for p in out.rglob("*")}
    again = dslda(*score)
    assert again.code == 0
    assert "complete: 5 rows of 5 records, nothing was new" in again.err
    described = dslda("info", out)
    assert described.code == 0
    assert "5 of 5 records" in described.out
    assert "against 80 documents trained on" in described.out
    assert re.search(r"out of vocabulary: +\d.*% in training; without .* and \d", described.out)
    assert "5 rows in 1 part, nothing was new" in again.out
    assert contents(out) == before
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*")} == times

    write(inputs / "a.jsonl", 4, first=5, repeat=1)
    assert dslda(*score).code == 0
    assert [row["id"] for row in rows(out)] == [f"n{i}" for i in range(9)]
    assert contents(out)["part-000000.parquet"] == before["part-000000.parquet"]
    # removed parts are scored again
    complete = contents(out)
    for name in ("part-000000.parquet", "parts/000001.json", "parts/000001.ids"):
        (out / name).unlink()
        assert "1 of them scored now" in dslda(*score).out
        assert contents(out) == complete
    # all rows stay if a scored file is moved away and another is touched
    (inputs / "b.jsonl").unlink()
    os.utime(inputs / "a.jsonl", (1, 1))
    moved = dslda(*score)
    assert moved.code == 0
    assert "1 input scored before is not among the inputs now: its rows stay" in moved.err
    assert len(rows(out)) == 9
    assert "nothing was new" in dslda(*score).out


def damage(path: Path) -> None:
    """Change a bit in the middle of a file, and leave its size and time."""
    found, raw = path.stat(), bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def test_parts_that_were_damaged_are_found_and_scored_again(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    score = ("score", made / "stars.model", inputs, "--out", out)
    for first, name in enumerate("abc"):  # a part each
        write(inputs / f"{name}.jsonl", 4, first=4 * first, repeat=1)
        assert dslda(*score).code == 0
    complete = contents(out)
    done = dslda(*score, "--verify")
    assert "3 parts read again: all are what was written" in done.err
    assert "nothing was new" in done.out
    damage(out / "part-000001.parquet")
    assert "nothing was new" in dslda(*score).out
    assert contents(out) != complete
    for names in (["part-000001.parquet"], ["part-000000.parquet", "part-000002.parquet"]):
        for name in names:
            if contents(out)[name] == complete[name]:
                damage(out / name)
        done = dslda(*score, "--verify", "--json")
        assert done.code == 0, done.err
        (event,) = [e for e in map(json.loads, done.err.splitlines()) if e.get("event") == "damaged_parts"]
        assert (event["level"], event["count"], event["first"]) == ("warning", len(names), names)
        assert f"{len(names)} of them scored now" in done.out
        assert contents(out) == complete
    # --verify also reads the parts of a stopped run, and does not count its missing parts as damage
    damage(out / "parts" / "000002.ids")
    (out / "parts" / "000000.json").unlink()
    found = manifest(out)
    state = RunState.from_json(found, "manifest")
    RunFolder(Location.of(out), "parquet").write_manifest(replace(state, complete=False).to_json())
    done = dslda(*score, "--verify")
    assert (
        "1 part is not what was written, damaged or lost, and is scored again: part-000002.parquet"
        in done.err
    )
    assert contents(out) == complete


def test_a_note_that_was_damaged_is_scored_again_and_not_summed_up(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    write(tmp_path / "a.jsonl", 3, repeat=1)
    score = ("score", made / "stars.model", tmp_path / "a.jsonl", "--out", tmp_path / "out")
    assert dslda(*score).code == 0
    complete = contents(tmp_path / "out")
    note = tmp_path / "out" / "parts" / "000000.json"
    note.write_text(note.read_text().replace('"tokens":', '"tokens": 1', 1))
    done = dslda(*score, "--verify")
    assert (done.code, "damaged or lost" in done.err) == (0, True)
    assert contents(tmp_path / "out") == complete


def test_parts_of_a_complete_run_that_are_gone_are_told_and_scored_again(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    write(tmp_path / "a.jsonl", 3, repeat=1)
    score = ("score", made / "stars.model", tmp_path / "a.jsonl", "--out", tmp_path / "out")
    assert dslda(*score).code == 0
    complete = contents(tmp_path / "out")
    (tmp_path / "out" / "part-000000.parquet").unlink()
    told = "1 part of a complete run was lost or cut, and is scored again: part-000000.parquet"
    assert told in dslda(*score).err
    assert contents(tmp_path / "out") == complete
    # no manifest counts rows while some are lost, whatever else is to be scored
    (tmp_path / "b.jsonl").write_text('{"text": "good"}\n{\n')
    for lose in (Path.unlink, damage):
        lose(tmp_path / "out" / "part-000000.parquet")
        stopped = dslda(*score, tmp_path / "b.jsonl", "--verify")
        assert "out is not complete; mend the input and run again, or leave out" in stopped.error
        assert manifest(tmp_path / "out")["status"] == "unfinished"
        assert dslda(*score).code == 0
        assert contents(tmp_path / "out") == complete


@pytest.mark.parametrize("output_format", ["csv", "jsonl"])
def test_a_damaged_part_whose_input_is_gone_is_refused_and_stays(
    dslda: Dslda, made: Path, tmp_path: Path, output_format: str
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    hostile = ["=1", "'x", "a\nb", 'q"', "\u2028"]
    write_records(inputs / "a.jsonl", ({"key": i, "text": "good"} for i in hostile))
    score = ("score", made / "stars.model", inputs, "--out", out, "--output-format", output_format)
    assert dslda(*score).code == 0
    complete = contents(out)
    assert "1 part read again: all are what was written" in dslda(*score, "--verify").err
    damage(out / f"part-000000.{output_format}")
    before = contents(out)
    (inputs / "a.jsonl").rename(tmp_path / "a.jsonl")
    refused = dslda(*score, "--verify")
    assert refused.code == 2
    assert (
        f"part-000000.{output_format} must be what was written, it is damaged, and its input {inputs}/a.jsonl"
        in refused.error
    )
    assert contents(out) == before
    (tmp_path / "a.jsonl").rename(inputs / "a.jsonl")
    assert dslda(*score, "--verify").code == 0
    assert contents(out) == complete


def test_a_week_without_a_new_file_is_no_error_where_there_is_a_run(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    inputs, other, out = tmp_path / "in", tmp_path / "other", tmp_path / "out"
    inputs.mkdir()
    other.mkdir()
    for given in ((f"{inputs}/*.jsonl",), (inputs,)):
        refused = dslda("score", made / "stars.model", *given, "--out", out)
        assert refused.code == 2
        assert "no file is there" in refused.error
    write(inputs / "a.jsonl", 3, repeat=1)
    assert dslda("score", made / "stars.model", inputs, "--out", out).code == 0
    before = contents(out)
    (inputs / "a.jsonl").rename(tmp_path / "a.jsonl")
    for given in ((f"{inputs}/*.jsonl",), (inputs,), (inputs, f"{other}/*")):
        quiet = dslda("score", made / "stars.model", *given, "--out", out)
        assert quiet.code == 0, quiet.err
        assert "3 rows in 1 part, nothing was new" in quiet.out
        assert "no file is there" in quiet.err
    assert dslda("score", made / "stars.model", inputs, "--topics", "1", "--out", out).code == 2
    # a missing file with a plain name is a mistake
    assert dslda("score", made / "stars.model", inputs / "a.jsonl", "--out", out).code == 2
    assert contents(out) == before
    write(other / "b.jsonl", 1, first=9, repeat=1)
    assert dslda("score", made / "stars.model", inputs, f"{other}/*", "--out", out).code == 0
    assert [row["id"] for row in rows(out)] == ["n0", "n1", "n2", "n9"]


def test_a_folder_of_inputs_that_is_gone_or_cannot_be_read_is_no_week_without_a_file(
    dslda: Dslda, made: Path, tmp_path: Path, without_rights: Dslda
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    (inputs / "sub").mkdir(parents=True)
    write(inputs / "a.jsonl", 3, repeat=1)
    write(inputs / "sub" / "b.jsonl", 3, first=3, repeat=1)
    score = ("score", made / "stars.model")
    assert dslda(*score, inputs, "--out", out).code == 0
    before = contents(out)
    gone = dslda(*score, f"{tmp_path}/nowhere/*.jsonl", "--out", out)
    assert (gone.code, f"the folder {tmp_path}/nowhere is not there" in gone.error) == (2, True)
    for folder in (inputs / "sub", inputs):
        rights = folder.stat().st_mode
        try:
            folder.chmod(0)
            refused = without_rights(CODE, *score, inputs, "--out", out, "--on-error", "skip")
        finally:
            folder.chmod(rights)
        assert refused.returncode == 2, refused.stderr
        assert f"{folder}: the folder cannot be read: Permission denied" in refused.stderr
    assert contents(out) == before


def test_a_changed_input_is_refused_or_scored_again_behind_all_others(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    write(inputs / "a.jsonl", 3, repeat=9000)  # files of 1 MB and more have parts of their own
    write(inputs / "b.jsonl", 2, first=3, repeat=9000)
    score = ("score", made / "stars.model", inputs, "--out", out)
    assert dslda(*score).code == 0
    before = contents(out)
    write(inputs / "a.jsonl", 4, first=10, repeat=1)
    refused = dslda(*score)
    assert refused.code == 2
    assert (
        f"1 input that was scored before changed since: {inputs}/a.jsonl; score them again with --rescore-changed"
        in refused.error
    )
    assert contents(out) == before
    done = dslda(*score, "--rescore-changed")
    assert done.code == 0, done.err
    assert [row["id"] for row in rows(out)] == ["n3", "n4", "n10", "n11", "n12", "n13"]
    assert [part["part"] for part in manifest(out)["parts"]] == [1, 2]
    assert sorted(contents(out)) == [
        "manifest.json",
        *("part-000001.parquet", "part-000002.parquet"),
        *("parts/000001.ids", "parts/000001.json", "parts/000002.ids", "parts/000002.json"),
    ]


def test_what_shares_a_part_with_a_changed_input_is_scored_again_too(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    for i, name in enumerate("abc"):
        write(inputs / f"{name}.jsonl", 2, first=2 * i, repeat=1)
    score = ("score", made / "stars.model", inputs, "--out", out)
    assert dslda(*score).code == 0
    write(inputs / "b.jsonl", 1, first=10, repeat=1)
    (inputs / "c.jsonl").rename(tmp_path / "c.jsonl")
    before = contents(out)
    refused = dslda(*score, "--rescore-changed")
    assert refused.code == 2
    assert f"1 of them is not: {inputs}/c.jsonl; put them back as they were and name them" in refused.error
    assert contents(out) == before
    (tmp_path / "c.jsonl").rename(inputs / "c.jsonl")
    assert dslda(*score, "--rescore-changed").code == 0
    assert [row["id"] for row in rows(out)] == ["n0", "n1", "n10", "n4", "n5"]


def test_a_corrupt_line_stops_before_anything_is_final_and_mended_the_run_goes_on(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    sound = write(inputs / "a.jsonl", 500).read_bytes()
    lines = sound.splitlines(keepends=True)
    (inputs / "a.jsonl").write_bytes(b"".join([*lines[:400], lines[400][:20] + b"\n", *lines[401:]]))
    score = ("score", made / "stars.model", inputs, "--out", out)
    stopped = dslda(*score)
    assert stopped.code == 2
    assert f"{inputs}/a.jsonl, line 401: not JSON" in stopped.error
    assert (
        "is not complete; mend the input and run again, or leave out what cannot be scored with --on-error skip"
        in stopped.error
    )
    assert manifest(out)["status"] == "unfinished"
    assert len(list(out.glob("parts/*.json"))) >= 1

    skipping = tmp_path / "skipping"
    shutil.copytree(out, skipping)
    done = dslda(*score[:-1], skipping, "--on-error", "skip")
    assert done.code == 0, done.err
    assert f"skipped: {inputs}/a.jsonl, line 401: not JSON" in done.err
    assert "499 rows" in done.out
    assert ", 1 record skipped" in done.out
    (first,) = manifest(skipping)["skipped"]["first"]
    assert first["place"] == f"{inputs}/a.jsonl, line 401"
    assert [row["id"] for row in rows(skipping)] == [f"n{i}" for i in range(500) if i != 400]
    assert (manifest(skipping)["rows_in"], manifest(skipping)["rows_out"]) == (500, 499)

    (inputs / "a.jsonl").write_bytes(sound)
    assert dslda(*score).code == 0
    fresh = tmp_path / "fresh"
    assert dslda(*score[:-1], fresh).code == 0
    assert contents(out) == contents(fresh)


def test_what_a_complete_run_has_written_counts_until_the_next_is_complete(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    inputs, out, fresh, metrics = (tmp_path / name for name in ("in", "out", "fresh", "m.prom"))
    inputs.mkdir()
    score = ("score", made / "stars.model", inputs, "--metrics", metrics, "--out")
    write(inputs / "a.jsonl", 5, repeat=1)
    assert dslda(*score, out).code == 0
    complete = contents(out)
    shutil.copytree(out, fresh)
    write(inputs / "b.jsonl", 3, first=5, repeat=9000)  # a part of its own
    sound = write(inputs / "c.jsonl", 3, first=8, repeat=1).read_bytes()
    (inputs / "c.jsonl").write_bytes(sound.replace(b'"n9"', b"n9"))

    def stopped() -> None:
        done = dslda(*score, out)
        assert done.code == 2
        assert f"{inputs}/c.jsonl, line 2: not JSON" in done.error
        assert (
            f"{out} stays as it was complete before; mend the input and run again, or leave out" in done.error
        )
        found = contents(out)
        assert complete.items() < found.items()
        assert "unfinished.json" in found
        told = metrics.read_text()
        assert f'dslda_score_success{{run="{out}"}} 0.0\n' in told
        assert f'dslda_score_rows{{run="{out}"}} 5.0\n' in told

    stopped()
    shown = dslda("info", out).out
    assert re.search("status: +complete\n", shown)
    assert "unfinished, of 2 more inputs: run dslda score again" in shown
    stopped()
    # the unfinished run is given up if other inputs are named, or if its parts are damaged
    for given, damaged, n_rows in ((inputs / "a.jsonl", False, 5), (inputs / "b.jsonl", True, 8)):
        other = tmp_path / f"{n_rows}"
        shutil.copytree(out, other)
        if damaged:
            damage(other / "unfinished.json")
        done = dslda(*score[:2], given, "--out", other)
        assert done.code == 0, done.err
        assert (f"{inputs}/c.jsonl is not among the inputs any more" in done.err) != damaged
        assert len(rows(other)) == manifest(other)["rows_out"] == n_rows
        assert "unfinished.json" not in contents(other)
        assert damaged or contents(other) == complete
    (inputs / "c.jsonl").write_bytes(sound)
    for folder in (out, fresh):
        assert dslda(*score, folder).code == 0
    assert contents(out) == contents(fresh)

    # the same with rows that will be replaced
    complete = contents(out)
    write(inputs / "b.jsonl", 3, first=20, repeat=9000)
    (inputs / "c.jsonl").write_bytes(sound.replace(b'"n9"', b"n9"))
    metrics.unlink()
    done = dslda(*score, out, "--rescore-changed")
    assert done.code == 2
    assert complete.items() < contents(out).items()
    assert f'dslda_score_rows{{run="{out}"}} 11.0\n' in metrics.read_text()
    for path in list(inputs.iterdir()):
        path.rename(tmp_path / path.name)
    assert dslda(*score, out).code == 0
    assert contents(out) == complete
    for name in "abc":
        (tmp_path / f"{name}.jsonl").rename(inputs / f"{name}.jsonl")
    assert dslda(*score, out, "--rescore-changed").code == 2
    (inputs / "c.jsonl").write_bytes(sound.replace(b'"n9"', b'"n7"'))
    for folder in (out, fresh):
        assert dslda(*score, folder, "--rescore-changed").code == 0
    assert contents(out) == contents(fresh)
    assert [row["id"] for row in rows(out)] == [f"n{i}" for i in (0, 1, 2, 3, 4, 20, 21, 22, 8, 7, 10)]


@pytest.mark.parametrize(
    ("name", "raw", "says", "n_skipped", "ids"),
    [
        ("x.jsonl", b'{"key":"a","text":"good"}\n{"key":"b"}\n{"key":"c","text":7}\n{"key":"d","text":"bad"}\n',
         "line 2: must have the field 'text'", 2, ["a", "d"]),
        ("x.jsonl", b'{"key":"a","text":"good"}\n\xff\xfe\n[1]\n{"key":"d","text":"bad"}\n',
         "line 2: not UTF-8: byte 0xff", 2, ["a", "d"]),
        ("x.csv", b'key,text\na,good\nb,"bad"x\nc,fine,more\nd,"x\n\xff"\ne,bad\n', "line 3: not CSV", 3, ["a", "e"]),
        ("x.jsonl.gz", gzip.compress(b"".join(b'{"text":"%d"}\n' % 7**i for i in range(900)), mtime=0)[:-9000],
         "the gzip file is cut short", 0, None),
    ],
    ids=["fields", "lines", "csv", "gzip"],
)  # fmt: skip
def test_records_that_cannot_be_scored_stop_the_run_or_are_left_out_and_counted(
    dslda: Dslda,
    made: Path,
    tmp_path: Path,
    name: str,
    raw: bytes,
    says: str,
    n_skipped: int,
    ids: list[str] | None,
) -> None:
    (tmp_path / name).write_bytes(raw)
    score = ("score", made / "stars.model", tmp_path / name, "--out", tmp_path / "out")
    stopped = dslda(*score)
    assert stopped.code == 2
    assert f"{tmp_path / name}" in stopped.error
    assert says in stopped.error
    assert "that are left" not in stopped.error
    assert not list(tmp_path.glob("out/part-*"))
    done = dslda(*score, "--on-error", "skip")
    assert done.code == 0, done.err
    told = manifest(tmp_path / "out")
    assert told["skipped"]["count"] == n_skipped
    assert len(told["skipped"]["first"]) == n_skipped
    assert told["rows_in"] == told["rows_out"] + n_skipped
    assert not any(str(tmp_path) in each["reason"] for each in told["skipped"]["first"])
    assert "text=" not in done.err + str(told["skipped"])
    assert ids is None or [row["id"] for row in rows(tmp_path / "out")] == ids
    assert "nothing was new" in dslda(*score, "--on-error", "skip").out


def test_what_is_wrong_with_all_records_is_an_error_all_the_same(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    model, reviews, out = made / "stars.model", made / "reviews.jsonl", tmp_path / "out"
    for on_error in ("stop", "skip"):
        done = dslda("score", model, reviews, "--out", out, "--text", "body", "--on-error", on_error)
        assert done.code == 2
        assert "has no field 'body' for the text; fields there are: 'key', 'text'" in done.error
        assert not out.exists()
    (tmp_path / "x.jsonl").write_text('{"text": 1}\n' * 3)
    done = dslda("score", model, tmp_path / "x.jsonl", "--out", out, "--on-error", "skip")
    assert done.code == 2
    assert "some record must be one that can be scored, all were skipped; the first: " in done.error
    assert f"the first: {tmp_path}/x.jsonl, line 1: text 'text' must be a string" in done.error
    (tmp_path / "x.parquet").write_bytes(b"no Parquet")
    done = dslda("score", model, tmp_path / "x.parquet", "--out", tmp_path / "o2", "--on-error", "skip")
    assert done.code == 2
    assert f"all were skipped; the first: {tmp_path}/x.parquet: not a Parquet file" in done.error


def test_a_damaged_file_among_others_is_named_and_skipped_on_request(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    table = pq.read_table
    import pyarrow as pa

    for name in ("a", "b", "c"):
        pq.write_table(
            pa.table({"key": [f"{name}1", f"{name}2"], "text": ["good", None]}), inputs / f"{name}.parquet"
        )
    raw = (inputs / "b.parquet").read_bytes()
    (inputs / "b.parquet").write_bytes(raw[: len(raw) // 2])
    score = ("score", made / "stars.model", inputs, "--out", out)
    assert f"{inputs}/b.parquet: not a Parquet file, or cut short" in dslda(*score).error
    assert not out.exists()
    done = dslda(*score, "--on-error", "skip")
    assert done.code == 0, done.err
    assert table(out / "part-000000.parquet")["id"].to_pylist() == ["a1", "a2", "c1", "c2"]
    (lost,) = manifest(out)["skipped"]["unreadable_inputs"]
    assert lost["path"] == f"{inputs}/b.parquet"
    assert manifest(out)["flags"]["empty"] == 2
    assert not lost["reason"].startswith(str(inputs))
    metrics = tmp_path / "m.prom"
    again = dslda(*score, "--on-error", "skip", "--json", "--metrics", metrics)
    for told in (done, again):
        assert ", 1 input unreadable" in told.out
    assert "nothing was new" in again.out
    assert f"{inputs}/b.parquet cannot be scored, or not to its end: not a Parquet file" in done.err
    (event,) = (json.loads(line) for line in again.err.splitlines() if '"event": "unreadable_inputs"' in line)
    assert (event["event"], event["count"]) == ("unreadable_inputs", 1)
    assert f'dslda_score_unreadable_inputs{{run="{out}"}} 1.0\n' in metrics.read_text()
    described = dslda("info", out).out
    assert f"1: {inputs}/b.parquet" in described
    (inputs / "b.parquet").write_bytes(raw)  # mended: it has no rows yet, so it is no change of any
    assert dslda(*score).code == 0
    assert [row["id"] for row in rows(out)] == ["a1", "a2", "c1", "c2", "b1", "b2"]


def test_a_file_that_could_not_be_opened_is_scored_as_soon_as_it_can_be(
    dslda: Dslda, made: Path, tmp_path: Path, without_rights: Dslda
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    write(inputs / "a.jsonl", 2, repeat=1)
    write(inputs / "b.jsonl", 2, first=2, repeat=1).chmod(0)
    score = ("score", made / "stars.model", inputs, "--out", out, "--on-error", "skip")
    done = without_rights(CODE, *score)
    assert "2 rows in 1 part, 1 of them scored now, 1 input unreadable" in done.stdout
    complete = contents(out)
    assert "nothing was new, 1 input unreadable" in without_rights(CODE, *score).stdout
    assert contents(out) == complete
    (inputs / "b.jsonl").chmod(0o600)  # which changes neither its size nor its time
    done = dslda(*score)
    assert "4 rows in 2 parts, 1 of them scored now, mean" in done.out
    assert [row["id"] for row in rows(out)] == ["n0", "n1", "n2", "n3"]
    assert contents(out)["part-000000.parquet"] == complete["part-000000.parquet"]
    assert "nothing was new" in dslda(*score).out


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("output_format", ["parquet", "csv"])
def test_a_file_without_the_field_is_told_once_and_its_records_are_counted(
    dslda: Dslda, made: Path, tmp_path: Path, name: str, output_format: str
) -> None:
    import pandas as pd

    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    for each in ("a", "b"):
        field = "body" if each == name else "text"
        frame = pd.DataFrame({"key": [f"{each}1", f"{each}2"], field: ["good", "bad"]})
        write_frame = frame.to_parquet if output_format == "parquet" else frame.to_csv
        write_frame(inputs / f"{each}.{output_format}", index=False)
    done = dslda("score", made / "stars.model", inputs, "--out", out, "--on-error", "skip")
    assert done.code == 0, done.err
    path = f"{inputs}/{name}.{output_format}"
    reason = "has no field 'text' for the text; fields there are: 'key', 'body'"
    assert f"{path} cannot be scored, or not to its end: {reason}" in done.err.replace("\n", " ")
    told = manifest(out)["skipped"]
    assert told == {
        "count": 2,
        "first": [],
        "unreadable_inputs": [{"path": path, "reason": reason, "records": 2}],
    }


@pytest.mark.parametrize("how", ["cut.jsonl.gz", "page.parquet", "footer.parquet"])
def test_of_a_file_cut_short_what_was_read_counts_and_the_rest_is_told(
    dslda: Dslda, made: Path, tmp_path: Path, how: str
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    sound, broken = inputs / f"a-{how}", inputs / f"b-{how}"
    if how == "cut.jsonl.gz":
        raw = write(sound, 40).read_bytes()
        broken.write_bytes(raw[: len(raw) // 2])
    else:
        _parquet(sound, 40)
        raw = sound.read_bytes()
        third = pq.read_metadata(sound).row_group(2).column(1).data_page_offset
        at = len(raw) - 1000 if how == "footer.parquet" else third
        broken.write_bytes(raw[:at] + bytes(50) + raw[at + 50 :])
    done = dslda("score", made / "stars.model", inputs, "--out", out, "--on-error", "skip", "--json")
    assert done.code == 0, done.err
    told = manifest(out)
    assert told["rows_in"] == told["rows_out"] + told["skipped"]["count"]
    assert told["rows_out"] >= 40
    # only the number of these is known
    assert told["skipped"]["count"] == (40 if how == "page.parquet" else 0)
    (lost,) = told["skipped"]["unreadable_inputs"]
    assert (lost["path"], lost["records"]) == (str(broken), told["skipped"]["count"])
    assert str(inputs) not in lost["reason"]
    logged = [json.loads(line) for line in done.err.splitlines()]
    (event,) = (each for each in logged if each.get("event") == "unreadable_input")
    assert (event["place"], event["reason"]) == (lost["path"], lost["reason"])
    assert lost["path"] in event["message"]
    (complete,) = (each for each in logged if each.get("event") == "complete")
    assert complete["unreadable_inputs"] == 1


def _parquet(path: Path, n: int) -> None:
    import pyarrow as pa

    texts = [f"good bad {7**i}" for i in range(n)]
    table = pa.table({"key": [f"p{i}" for i in range(n)], "text": texts})
    pq.write_table(table, path, row_group_size=n // 4, compression="gzip", use_dictionary=False)


def test_identifiers_that_are_there_twice_are_reported(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", 3, repeat=9000)
    write(tmp_path / "c.jsonl", 2, first=100, repeat=1)
    for output_format in ("parquet", "csv", "jsonl"):
        done = dslda(
            *("score", made / "stars.model", f"{tmp_path}/*.jsonl", "--out", tmp_path / output_format),
            *("--output-format", output_format),
        )
        assert done.code == 0
        assert "3 documents have the identifiers of another (the first: " in done.err
        found = manifest(tmp_path / output_format)["duplicate_ids"]
        assert found["count"] == 3
        assert sorted(found["first"]) == ["n0", "n1", "n2"]


def test_a_corpus_is_scored_by_partition_and_one_of_another_vocabulary_refused(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    corpus, out = tmp_path / "c.corpus", tmp_path / "out"
    assert dslda(
        *("ingest", made / "reviews.jsonl", "--text", "text", "--id", "key", "--out", corpus),
        *("--vocabulary", made / "stars.model", "--partition-tokens", "100"),
    ).code == 0  # fmt: skip
    score = ("score", made / "stars.model", corpus, "--out", out)
    assert dslda(*score).code == 0
    assert len(manifest(out)["parts"]) > 2
    assert [row["id"] for row in rows(out)] == [f"k{i}" for i in range(80)]
    write(tmp_path / "more.jsonl", 5, repeat=1)
    assert dslda("ingest", tmp_path / "more.jsonl", "--append", "--out", corpus).code == 0
    before = contents(out)
    assert dslda(*score).code == 0
    assert [row["id"] for row in rows(out)][80:] == [f"n{i}" for i in range(5)]
    assert contents(out)["part-000000.parquet"] == before["part-000000.parquet"]
    other = tmp_path / "other.corpus"
    ingest = ("ingest", made / "reviews.jsonl", "--text", "text", "--max-df", "1.0", "--min-df", "1")
    assert dslda(*ingest, "--max-features", "5", "--out", other).code == 0
    refused = dslda("score", made / "stars.model", other, "--out", tmp_path / "no")
    assert refused.code == 2
    assert "is counted over another vocabulary than the model's" in refused.error
    assert dslda("score", made / "stars.model", other, "--out", tmp_path / "yes", "--realign").code == 0


def test_an_edited_or_truncated_model_is_refused(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    for how in ("edited", "cut"):
        model = tmp_path / f"{how}.model"
        shutil.copytree(made / "stars.model", model)
        if how == "edited":
            text = (model / "zarr.json").read_text()
            (model / "zarr.json").write_text(text.replace('"center": 3', '"center": 4'))
        else:
            (chunk,) = (p for p in (model / "eta" / "c").rglob("*") if p.is_file())
            chunk.write_bytes(chunk.read_bytes()[:-4])
        done = dslda("score", model, made / "reviews.jsonl", "--out", tmp_path / "out")
        assert done.code == 2
        assert ("do not agree with their checksum" if how == "edited" else "array 'eta'") in done.error
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.soak
def test_a_full_disk_is_a_clean_stop_that_can_be_gone_on_with(
    dslda: Dslda, made: Path, large: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """Under limits of so many kB per file: nothing fits, or the manifest but no part, or all but the last manifest."""
    out = tmp_path / "scores"
    n_parts = sum(name.endswith(".parquet") for name in undisturbed)
    for limit, n_left in ((1, 0), (5, 0), (7, n_parts)):
        line = f"ulimit -f {limit}; {shlex.join(PROGRAM)} score {made}/stars.model {large} --out {out}"
        done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == 1, done.stderr
        error = done.stderr.decode().splitlines()[-1]
        assert error.startswith(f"dslda: error: {out}"), error
        assert "could not be written: File too large; make room there" in error
        assert b"Traceback" not in done.stderr
        assert len(list(out.glob("part-*"))) == len(list(out.glob("parts/*.json"))) == n_left
        assert not list(out.rglob(".*"))
        assert out.exists() == (limit > 1)
        assert limit == 1 or manifest(out)["status"] == "unfinished"
    assert dslda("score", made / "stars.model", large, "--out", out).code == 0
    assert contents(out) == undisturbed


def test_two_runs_on_one_folder_and_a_folder_of_something_else_are_refused(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    score = ("score", made / "stars.model", made / "reviews.jsonl")
    with only_writer(Location.of(out), inside=True):
        done = dslda(*score, "--out", out)
        assert done.code == 1
        assert f"{out} is being written by another run (process {os.getpid()} on " in done.error
    assert not out.exists()
    assert dslda(*score, "--out", out).code == 0
    before = contents(out)
    for arguments, says in (
        (
            ("--topics", "1"),
            "must be a run of this model with these settings, it has the settings with topics 'all', not 1",
        ),
        (("--id", "text"), "with fields id 'key', not 'text'; choose"),
        (("--output-format", "csv"), "with output_format 'parquet', not 'csv'"),
    ):
        assert says in dslda(*score, "--out", out, *arguments).error
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    assert "is no run of dslda score (notes.txt is in it" in dslda(*score, "--out", mine).error
    assert (
        "must not lie inside a corpus, model or checkpoint"
        in dslda(*score, "--out", made / "stars.model" / "x").error
    )
    assert (
        "must not lie in an input"
        in dslda("score", made / "stars.model", tmp_path, "--format", "text", "--out", tmp_path / "o").error
    )
    assert (
        "must not lie in the folder"
        in dslda("score", made / "stars.model", f"{out}/*.parquet", "--out", out).error
    )
    place = tmp_path / "file"
    place.write_text("mine")
    for path in (place, place / "x"):
        done = dslda(*score, "--out", path)
        assert done.code == 2
        assert "cannot be written: Not a directory" in done.error
    damaged = json.loads((out / "manifest.json").read_text()) | {"rows_out": 81}
    assert contents(out) == before
    (out / "manifest.json").write_text(json.dumps(damaged))
    assert "does not agree with its checksum" in dslda(*score, "--out", out).error


def test_a_complete_run_that_may_only_be_read_has_nothing_to_do(
    dslda: Dslda, made: Path, tmp_path: Path, without_rights: Dslda
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    write(inputs / "a.jsonl", 5, repeat=1)
    score = ("score", made / "stars.model", inputs, "--out", out)
    assert dslda(*score).code == 0
    before = contents(out)
    folders = (out / "parts", out)
    try:
        for folder in folders:
            folder.chmod(0o500)
        os.utime(inputs / "a.jsonl", (1, 1))  # its new time would be noted
        done = without_rights(CODE, *score, "--verify")
        assert done.returncode == 0, done.stderr
        assert "1 part read again: all are what was written" in done.stderr
        assert "complete: 5 rows of 5 records, nothing was new" in done.stderr
        damage(out / "part-000000.parquet")
        refused = without_rights(CODE, *score, "--verify")
        assert refused.returncode == 2
        assert "cannot be written: Permission denied" in refused.stderr
        assert "; 1 part is not what was written: part-000000.parquet" in refused.stderr
        write(inputs / "b.jsonl", 5, first=5, repeat=1)
        refused = without_rights(CODE, *score)
        assert refused.returncode == 2
        assert "cannot be written: Permission denied" in refused.stderr
        assert "; 1 input must be scored" in refused.stderr
        for folder in folders:
            folder.chmod(0o700)
        broken = (inputs / "b.jsonl").read_text() + "{"
        (inputs / "b.jsonl").write_text(broken)
        assert dslda(*score).code == 2
        for folder in folders:
            folder.chmod(0o500)
        refused = without_rights(CODE, *score)  # nor can what is unfinished be gone on with
        assert refused.returncode == 2
        assert "; 1 input must be scored" in refused.stderr
        (inputs / "b.jsonl").unlink()
        assert without_rights(CODE, *score).returncode == 0
    finally:
        for folder in folders:
            folder.chmod(0o700)
    damage(out / "part-000000.parquet")
    assert before.items() < contents(out).items()
    assert dslda(*score).code == 0
    assert contents(out)["part-000000.parquet"] == before["part-000000.parquet"]
    assert "unfinished.json" not in contents(out)


@pytest.mark.parametrize(("when", "later"), [("size", False), ("content", False), ("content", True)])
def test_an_input_that_changes_while_it_is_read_is_named_and_nothing_of_it_is_kept(
    made: Path, tmp_path: Path, when: str, later: bool
) -> None:
    inputs, out, fresh = tmp_path / "in", tmp_path / "out", tmp_path / "fresh"
    inputs.mkdir()
    if later:
        write(inputs / "0.jsonl", 2, first=9, repeat=1)
        for folder in (out, fresh):
            dslda.score(made / "stars.model", inputs, folder)
    complete = contents(out)
    for i, name in enumerate(("a", "b")):
        write(inputs / f"{name}.jsonl", 2, first=2 * i, repeat=12000)
    changing = inputs / "a.jsonl"
    times, raw = (changing.stat().st_atime_ns, changing.stat().st_mtime_ns), changing.read_bytes()

    def change(stage: str, done: int, total: int) -> None:
        if stage == "score" and done == 1:
            with changing.open("r+b") as stream:  # after its part was scored
                stream.write(raw.replace(b"good", b"poor"))
                if when == "size":
                    stream.write(b"\n")
            if when == "content":
                os.utime(changing, ns=times)

    with pytest.raises(InputChangedError, match=r"in/a\.jsonl must stay as it is while it is scored"):
        dslda.score(made / "stars.model", inputs, out, progress=change)
    assert later or manifest(out)["status"] == "unfinished"
    assert complete.items() <= contents(out).items()
    assert [p.name for p in out.glob("part-*") if p.name not in complete] == [
        f"part-00000{later + 1}.parquet"
    ]
    dslda.score(made / "stars.model", inputs, out)
    dslda.score(made / "stars.model", inputs, fresh)
    assert contents(out) == contents(fresh)


def test_an_input_that_changes_while_it_is_scored_is_no_reason_to_call_somebody(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    changing, ended = write(tmp_path / "a.jsonl", 9, repeat=1), threading.Event()
    score = ("score", made / "stars.model", changing, "--out", tmp_path / "out")

    def touch() -> None:
        moment = 0
        while not ended.wait(0.001):
            moment += 1
            os.utime(changing, ns=(moment, moment))

    toucher = threading.Thread(target=touch)
    toucher.start()
    try:
        done = dslda(*score)
    finally:
        ended.set()
        toucher.join()
    assert f"{changing} must stay as it is while it is scored" in done.error
    assert done.code == 1
    assert dslda(*score).code == 0


def test_no_number_of_parts_is_promised_of_an_input_that_was_changed(made: Path, tmp_path: Path) -> None:
    changing, out = write(tmp_path / "a.jsonl", 6, repeat=12000), tmp_path / "out"

    def change(stage: str, done: int, total: int) -> None:
        if stage == "score" and done == 1:
            with changing.open("ab") as stream:
                stream.write(b"\n")

    with pytest.raises(InputChangedError, match="must stay as it is while it is scored") as raised:
        dslda.score(made / "stars.model", changing, out, progress=change)
    assert len(manifest(out)["parts"]) > 1
    assert not [*out.glob("part-*"), *out.glob("parts/*")]
    (told,) = raised.value.__notes__
    assert told.endswith(f"the same command reads that again from its start: {changing}")


def test_hostile_identifiers_and_paths_make_no_file_names_and_no_formulas(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    ids = [
        "../../../etc/x",
        "=1+1",
        "+1",
        "-1",
        "@sum(a1)",
        "\tx",
        "\rx",
        "'x",
        "\uff1d1",
        "a;=1",
        "a\t'x",
        'a"b,c',
        "a\nb",
        "\ud800",
        "",
        None,
        7,
    ]
    hostile = tmp_path / "in" / "=cmd|..%2f\n'$(touch x)'.jsonl"
    hostile.parent.mkdir()
    write_records(hostile, ({"key": i, "text": "good"} for i in ids))
    for output_format in ("csv", "jsonl"):
        out = tmp_path / output_format
        assert (
            dslda(
                "score", made / "stars.model", hostile.parent, "--out", out, "--output-format", output_format
            ).code
            == 0
        )
        assert sorted(contents(out)) == [
            *("manifest.json", f"part-000000.{output_format}", "parts/000000.ids", "parts/000000.json")
        ]
    predicted = dslda("predict", made / "stars.model", hostile, "--out", tmp_path / "jsonl" / "predicted.csv")
    assert predicted.code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["csv", "in", "jsonl"]
    plain = ["?" if i == "\ud800" else str(n) if i in ("", None) else str(i) for n, i in enumerate(ids)]
    found = [json.loads(line) for line in (tmp_path / "jsonl" / "part-000000.jsonl").read_text().splitlines()]
    assert [row["id"] for row in found] == plain
    with (tmp_path / "csv" / "part-000000.csv").open(newline="") as stream:
        cells = [row["id"] for row in csv.DictReader(stream)]
    with (tmp_path / "jsonl" / "predicted.csv").open(newline="") as stream:
        assert [row["id"] for row in csv.DictReader(stream)] == cells
    assert not any(cell.startswith(("=", "+", "-", "@", "\uff1d", "\t", "\r")) for cell in cells)
    assert "a;'=1" in cells
    assert [
        re.sub(r"(?:\A|(?<=[;\t|\r\n]))'", "", cell) for cell in cells
    ] == plain  # as docs/scoring.md says
    assert manifest(tmp_path / "csv")["inputs"][0]["path"].endswith("'$(touch x)'.jsonl")


def test_metrics_and_json_logs_tell_programs_how_it_went(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    reviews = tmp_path / "x.jsonl"
    reviews.write_text(
        '{"key": "a", "text": ""}\n{"key": "b", "text": "zzz yyy"}\n{"key": "b", "text": "good"}\n{}\n'
    )
    metrics = tmp_path / "dslda.prom"
    score = (
        "score",
        made / "stars.model",
        reviews,
        "--out",
        tmp_path / "out",
        "--metrics",
        metrics,
        "--json",
    )
    assert dslda(*score).code == 2
    assert f'dslda_score_success{{run="{tmp_path}/out"}} 0.0\n' in metrics.read_text()
    assert "last_success" not in metrics.read_text()
    done = dslda(*score, "--on-error", "skip")
    assert done.code == 0
    logged = [json.loads(line) for line in done.err.splitlines()]
    assert {"flag": "empty", "count": 1}.items() <= next(
        each for each in logged if each.get("flag") == "empty"
    ).items()
    assert any(each.get("event") == "skipped" and each["place"] == f"{reviews}, line 4" for each in logged)
    run = f'run="{tmp_path}/out"'
    trained = load_model(made / "stars.model").training
    told = metrics.read_text()
    assert f"dslda_score_rows{{{run}}} 3.0\n" in told
    assert f"dslda_score_new_share{{{run}}} {1 - 1 / 3}\n" in told
    (last,) = re.findall("last_success_timestamp_seconds{.*} (.*)\n", told)
    assert abs(float(last) - time.time()) < 600
    assert dslda(*score, "--topics", "1").code == 2
    assert f"dslda_score_last_success_timestamp_seconds{{{run}}} {last}\n" in metrics.read_text()
    complete = next(each for each in logged if each.get("event") == "complete")
    assert (complete["rows"], complete["skipped"]) == (3, 1)
    assert complete["training_oov_share"] == trained.oov_share
    assert (complete["new_share"], complete["training_new_share"]) == (1 - 1 / 3, trained.new_share)
    edited = tmp_path / "edited.model"
    shutil.copytree(made / "stars.model", edited)
    (edited / "zarr.json").write_text((edited / "zarr.json").read_text().replace("gaussian", "poisson"))
    assert dslda("score", edited, *score[2:]).code == 2
    assert f"dslda_score_success{{{run}}} 0.0\n" in metrics.read_text()
    assert "--metrics must name a" in dslda(*score[:5], "--metrics", tmp_path / "out" / "m.prom").error
    words = {each["word"]: each["count"] for each in manifest(tmp_path / "out")["new_words"]["words"]}
    assert words == {"zzz": 1, "yyy": 1}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_run_that_cannot_tell_of_itself_is_not_said_to_be_complete(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    metrics, out = tmp_path / "m.prom", tmp_path / "out"
    given = ("score", made / "stars.model", made / "reviews.jsonl", "--out", out)
    score = (*given, "--metrics", metrics, "--json")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, *map(str, score)], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    *others, last = map(json.loads, done.stderr.splitlines())
    assert (last["level"], last["exit_code"]) == ("error", 1)
    assert "standard output: No space left on device" in last["message"]
    assert not [each for each in others if each.get("event") == "complete"]
    assert f'dslda_score_success{{run="{out}"}} 0.0\n' in metrics.read_text()
    again = dslda(*score)
    assert (again.code, "nothing was new" in again.out) == (0, True)
    assert json.loads(again.err.splitlines()[-1])["event"] == "complete"
    assert f'dslda_score_success{{run="{out}"}} 1.0\n' in metrics.read_text()


def test_stop_words_are_no_new_words(made: Path, tmp_path: Path) -> None:
    record = dslda.load_model(made / "stars.model").record
    assert record.text_settings is not None
    settings = replace(record.text_settings, stop_words=("the", "of"))
    model = Model(replace(record, text_settings=settings, too_frequent=("and",)))
    (tmp_path / "x.jsonl").write_text('{"text": "the good of the unheard and"}\n')
    run = dslda.score(model, tmp_path / "x.jsonl", tmp_path / "out")
    assert run.manifest["new_words"] == {"words": [{"word": "unheard", "count": 1}], "error": 0}
    assert run.manifest["oov_share"] == 1 - 1 / 3
    assert run.manifest["drift"]["new_share"] == 0.5


def test_a_url_may_be_the_folder(made: Path) -> None:
    import fsspec

    run = dslda.score(
        made / "stars.model", made / "reviews.jsonl", "memory://scored/out", output_format="csv"
    )
    assert run.manifest["rows_out"] == 80
    files = fsspec.filesystem("memory")
    assert len(files.cat_file("/scored/out/part-000000.csv").splitlines()) == 81
    assert (
        dslda.score(
            made / "stars.model", made / "reviews.jsonl", "memory://scored/out", output_format="csv"
        ).n_new_parts
        == 0
    )


def test_no_document_at_all_is_a_run_like_any_other(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    done = dslda("score", made / "stars.model", tmp_path / "empty.jsonl", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "0 rows in 0 parts" in done.out
    assert manifest(tmp_path / "out")["status"] == "complete"


def test_inputs_of_python_may_be_gone_through_only_once(made: Path, tmp_path: Path) -> None:
    """Paths as `Path.glob` yields them: checked for corpora, files and outputs that would replace them, then scored."""
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", 3, repeat=1)
    run = dslda.score(
        made / "stars.model", tmp_path.glob("*.jsonl"), tmp_path / "out", metrics=tmp_path / "m.prom"
    )
    assert (len(run.manifest["inputs"]), run.manifest["rows_out"]) == (2, 6)
