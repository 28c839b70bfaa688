"""Closed or full streams, full disks and signals: real processes, one line of error, nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslda.cli.process import Session
from dslda.cli.train_command import _save
from dslda.exceptions import OutputError
from dslda.model import load_model
from tests.helpers.processes import PROGRAM, ROOT, shell, without_tracker

Dslda = Callable[..., Any]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="descriptors and limits of POSIX")


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("$D topics {0}/stars.model >&-", 0, b""),
        ("$D info {0}/stars.model <&- >&- 2>&-", 0, b""),
        ("$D predict {0}/stars.model {0}/reviews.jsonl >&-", 2, b"got a closed stdout; give --out FILE"),
        ("$D predict {0}/stars.model - <&-", 2, b"stdin, which is closed"),
        (
            "$D predict {0}/stars.model - 0>&2",
            2,
            b"stdin: must be lines of text, it cannot be read: Bad file",
        ),
        ("$D topics {0}/stars.model >/dev/full", 1, b"standard output: No space left on device"),
        ("$D --help >/dev/full", 1, b"standard output: No space left on device"),
        (
            "$D predict {0}/stars.model {0}/reviews.jsonl >/dev/full",
            1,
            b"standard output could not be written",
        ),
        ("$D topics nowhere 2>/dev/full", 2, b""),
        ("$D info {0}/stars.model | head -0; exit ${{PIPESTATUS[0]}}", 0, b""),
        ("export PYTHONUNBUFFERED=1; $D --help | head -0; exit ${{PIPESTATUS[0]}}", 0, b""),
    ],
)
def test_streams_that_are_closed_or_full(made: Path, line: str, code: int, says: bytes) -> None:
    done = shell(line.format(made), PYTHONUNBUFFERED="")
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_files_are_complete_with_all_streams_closed(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    done = shell(f"$D predict {made}/stars.model {made}/reviews.jsonl --out {out} <&- >&- 2>&-")
    assert done.returncode == 0
    assert len(out.read_text().splitlines()) == 81


def test_output_is_utf8_whatever_the_locale(tmp_path: Path) -> None:
    texts = tmp_path / os.fsdecode(b"caf\xe9.txt")  # a name that is no UTF-8 must come out as it is
    texts.write_text("dépêche " * 9, encoding="utf-8")
    words = tmp_path / "words"
    words.write_text("dépêche\n", encoding="utf-8")
    ascii_only = {"PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONIOENCODING": ""}
    done = shell(f"cd {tmp_path}; $D ingest caf*.txt --vocabulary words --out $'o\\xe9.corpus'", **ascii_only)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(os.fsencode(tmp_path) + b"/o\xe9.corpus: 1 document (0 empty), 1 term,")


FULL = "could not be written: File too large; make room there, or choose another path"


def test_a_disk_that_fills_is_one_line_and_leaves_nothing(made: Path, tmp_path: Path) -> None:
    """Under a limit of 1 kB per file, which passes the first check and fails the work, like a full disk."""
    reviews, corpus, model = made / "reviews.jsonl", made / "reviews.corpus", made / "stars.model"
    for arguments, more in (
        (f"ingest {reviews} --text text --max-df 1.0 --out {tmp_path}/a", ""),
        (
            f"train {corpus} --response stars --topics 2 --max-iter 2 --out {tmp_path}/a",
            "; training is complete",
        ),
        (f"predict {model} {reviews} --out {tmp_path}/a", ""),
    ):
        done = shell(f"ulimit -f 1; $D {arguments}")
        assert done.returncode == 1, done.stderr
        error = done.stderr.decode().splitlines()[-1]
        assert error.startswith(f"dslda: error: {tmp_path}/a {FULL}{more}"), error
        assert b"Traceback" not in done.stderr
        assert list(tmp_path.iterdir()) == []
    again = tmp_path.parent / "again.jsonl"  # under other identifiers
    again.write_text(reviews.read_text().replace('"key": "k', '"key": "again'))
    for arguments in (f"ingest {again} --append", f"ingest {reviews} --overwrite --text text --max-df 1.0"):
        shutil.copytree(corpus, tmp_path / "a")
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        done = shell(f"ulimit -f 1; $D {arguments} --out {tmp_path}/a")
        assert done.returncode == 1, done.stderr
        assert done.stderr.decode().splitlines()[-1].startswith(f"dslda: error: {tmp_path}/a {FULL}")
        after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert {path: text for path, text in after.items() if path.parent.name != "appended"} == before
        shutil.rmtree(tmp_path / "a")


def test_a_model_that_cannot_be_saved_in_its_place_is_saved_elsewhere(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = load_model(made / "stars.model")
    with pytest.raises(OutputError, match="could not be written: Not a directory") as raised:
        _save(model, str(tmp_path / "file" / "new.model"), overwrite=False)
    (saved,) = tmp_path.glob("dslda-saved-*/new.model")
    assert raised.value.__notes__ == [
        f"training is complete, the model is saved in {saved} instead: move it from there"
    ]
    assert load_model(saved).coefficients() == model.coefficients()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["ingest", "{made}/reviews.jsonl", "--text", "text", "--out", "{place}/new.corpus"],
            "cannot be written",
        ),
        (
            ["train", "{made}/reviews.corpus", "--response", "stars", "--out", "{place}/m"],
            "cannot be written",
        ),
        (
            ["predict", "{made}/stars.model", "no.jsonl", "--out", "{place}/p.csv"],
            "in an existing folder",
        ),
        (
            ["predict", "{made}/stars.model", "no.jsonl", "--out", "/proc/p.csv"],
            "/proc/p.csv cannot be written",
        ),
        (["predict", "{made}/stars.model", "no.jsonl", "--out", ""], "--out must name a file"),
        (["ingest", "{made}/reviews.jsonl", "--text", "text", "--out", ""], "path must be .* not empty"),
        (["train", "{made}/reviews.corpus", "--response", "stars", "--out", ""], "path must be .* not empty"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    dslda: Dslda, made: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    place = tmp_path / "file"
    place.write_text("mine")
    done = dslda(*(part.format(made=made, place=place) for part in arguments))
    assert done.code == 2
    assert message.split(" .* ")[0] in done.error
    assert "scanning" not in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_run_left_is_removed_where_no_other_run_can_be_writing_and_else_reported(
    dslda: Dslda, made: Path, tmp_path: Path
) -> None:
    for name in (".a.0123abcd.partial", ".a.89abcdef.old", ".a.01234567.probe", ".b.0123abcd.partial"):
        (tmp_path / name).mkdir()
    (tmp_path / ".a.lock").write_text("of a run that was killed")
    (tmp_path / ".a.csv.0123abcd.partial").touch()
    done = dslda(
        "ingest", made / "reviews.jsonl", "--text", "text", "--max-df", "1.0", "--out", tmp_path / "a"
    )
    assert done.code == 0
    left = [".a.csv.0123abcd.partial", ".b.0123abcd.partial", "a"]
    assert sorted(p.name for p in tmp_path.iterdir()) == left
    told = [line.split()[2] for line in done.err.splitlines() if "left by a run that was killed" in line]
    assert told == [
        f"{tmp_path}/.a.{rest}," for rest in ("01234567.probe", "0123abcd.partial", "89abcdef.old")
    ]
    done = dslda("predict", made / "stars.model", made / "reviews.jsonl", "--out", tmp_path / "a.csv")
    assert done.code == 0
    (line,) = [line for line in done.err.splitlines() if "left by a run that was killed" in line]
    assert f" {tmp_path}/.a.csv.0123abcd.partial is " in line


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_does_not_lose_the_model(made: Path, tmp_path: Path, number: int, code: int) -> None:
    process = subprocess.Popen(
        [
            *(*PROGRAM, "train", f"{made}/reviews.corpus", "--response", "stars"),
            *(
                "--out",
                f"{tmp_path}/m.model",
                "--json",
                "--max-iter",
                "1000000",
                "--tol",
                "0",
                "--topics",
                "5",
            ),
            *("--workers", "1"),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        deadline = time.monotonic() + 120
        for line in process.stderr:
            if '"iteration": 3' in line or time.monotonic() > deadline:
                break
        process.send_signal(number)
        for line in process.stderr:
            if "interrupted: keeping iteration" in line:
                process.send_signal(number)  # while workers are stopped, which takes a second
                break
        rest = without_tracker(process.communicate(timeout=60)[1])
    finally:
        process.kill()
    assert process.returncode == code
    told = [json.loads(line)["message"] for line in rest.splitlines()]
    assert "saving the model; a third interrupt gives it up" in told
    n = load_model(tmp_path / "m.model").training.n_iterations
    assert f'"message": "interrupted: iteration {n}, the last complete one, is saved in' in rest
    assert [p.name for p in tmp_path.iterdir()] == ["m.model"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param((), marks=pytest.mark.soak), ("--workers", "1")])
def test_an_interrupt_during_the_bootstrap_keeps_the_fit(
    made: Path, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    fit = ("--objective", "joint", "--max-iter", "1", "--topics", "5", "--bootstrap", "10000")
    process = subprocess.Popen(
        [
            *(*PROGRAM, "train", f"{made}/reviews.corpus", "--response", "stars", "--json", *fit, *workers),
            *("--out", f"{tmp_path}/m.model"),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "10000 resamples of the documents" in line or "10,000 resamples" in line:
                break
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        rest = without_tracker(process.communicate(timeout=60)[1])
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted: coefficients have no intervals" in rest
    assert "the complete model is saved in" in rest
    model = load_model(tmp_path / "m.model")
    assert model.record.replicates is None
    assert not model.training.interrupted


def test_the_garbage_collection_of_dask_is_nothing_for_users(capsys: pytest.CaptureFixture[str]) -> None:
    import distributed.gc

    from dslda.cli.logs import logging_to_stderr

    level = distributed.gc.logger.level
    with logging_to_stderr(json_logs=True):
        distributed.gc.logger.warning("full garbage collections took 31%% CPU time recently")
    assert not capsys.readouterr().err
    assert distributed.gc.logger.level == level


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupt_during_garbage_collection_is_not_lost() -> None:
    """Python drops what such a function raises; distributed's scheduler has one, in the process of a local cluster."""
    came = []

    class Collected:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            came.append("collected")

    session = Session(json_logs=False)
    with session.handling_interrupts():
        one = Collected()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            del one
            assert came == ["collected"]
            time.sleep(5.0)
    assert session.signals == [signal.SIGTERM]
    assert session.exit_code == 143
