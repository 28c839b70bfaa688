"""An analyzer of one's own on the command line, in processes: its module lies in the current directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslda.corpus.store import open_corpus
from tests.helpers.processes import without_tracker

ROOT = Path(__file__).parents[2]
WORDS = """
def lemmas(text):
    if "BOOM" in text:
        raise ValueError("too loud")
    return [word.rstrip("0123456789") for word in text.split()]

def other(text):
    return text.split()
"""
INGEST = [
    "ingest",
    "r.jsonl",
    "--text",
    "text",
    "--id",
    "key",
    "--response",
    "stars",
    "--min-df",
    "2",
    "--max-df",
    "1.0",
]
OWN = ("--analyzer", "words:lemmas")


@pytest.fixture
def folder(tmp_path: Path, write_reviews: Callable[..., Path]) -> Path:
    write_reviews(tmp_path / "r.jsonl")
    (tmp_path / "words.py").write_text(WORDS)
    return tmp_path


def program(folder: Path, *arguments: str, stdin: str = "") -> tuple[int, str]:
    """Exit code, and what the program prints, or the line of its error."""
    done = subprocess.run(
        [sys.executable, "-c", "from dslda.cli import main; main()", *arguments],
        cwd=folder,
        # installed programs do not look in the current directory by themselves
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        input=stdin,
    )
    assert "Traceback" not in without_tracker(done.stderr)
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr.splitlines()[-1]


def test_every_command_that_reads_texts_wants_the_analyzer_named_again(
    folder: Path, dslda: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)  # of the commands that import nothing, which need no process
    assert program(folder, *INGEST, *OWN, "--out", "c.corpus")[0] == 0
    corpus = open_corpus(folder / "c.corpus")
    assert "number" in corpus.vocabulary.terms
    train = ("train", "c.corpus", "--response", "stars", "--topics", "2", "--max-iter", "3")
    assert program(folder, *train, "--out", "m.model")[0] == 0
    for name in ("c.corpus", "m.model"):
        told = dslda("info", name).out
        assert "kind text, --min-df 2, --max-df 1.0, --analyzer words:lemmas\n" in told

    predict = ["predict", "m.model", "r.jsonl"]
    outputs = {}
    for command in (
        predict,
        ["score", "m.model", "r.jsonl", "--out", "scores"],
        ["ingest", "r.jsonl", "--append", "--out", "c.corpus"],
    ):
        refused = dslda(*command)
        assert refused.code == 2
        assert refused.error.endswith("dslda imports only what you name; give --analyzer words:lemmas")
        code, told = program(folder, *command, "--analyzer", "words:other")
        assert (code, "--analyzer must be that of the " in told, "got 'words:other'" in told) == (
            2,
            True,
            True,
        )
        code, told = program(folder, *command, *OWN)
        assert code == 0, told
        outputs[command[0]] = told
    code, told = program(folder, "predict", "m.model", "-", *OWN, stdin="good fine dress\n")
    assert code == 0, told
    # counted documents need none
    assert dslda("predict", "m.model", "c.corpus").out == outputs["predict"]

    scored = ("score", "m.model", "r.jsonl", *OWN, "--out")
    assert program(folder, *scored, "workers", "--workers", "2")[0] == 0
    parts = [(folder / name / "part-000000.parquet").read_bytes() for name in ("scores", "workers")]
    assert parts[0] == parts[1]

    with (folder / "r.jsonl").open("a") as stream:
        stream.write('{"key": "loud", "text": "BOOM", "stars": 1}\n')
    code, told = program(folder, *predict, *OWN)
    assert code == 2
    assert told.endswith("r.jsonl, line 81: --analyzer words:lemmas failed with ValueError: too loud")
    code, told = program(folder, *scored, "skipped", "--on-error", "skip")
    assert (code, "80 rows" in told, "1 record skipped" in told) == (0, True, True)


@pytest.mark.soak
def test_workers_of_an_ingest_know_the_analyzer(folder: Path) -> None:
    for out, *workers in (("one.corpus",), ("two.corpus", "--workers", "2")):
        assert program(folder, *INGEST, *OWN, "--out", out, *workers)[0] == 0
    one, two = (open_corpus(folder / f"{name}.corpus") for name in ("one", "two"))
    assert one.content_hash == two.content_hash


def test_an_analyzer_that_cannot_be_used_is_one_line(folder: Path) -> None:
    (folder / "broken.py").write_text("import nothing_of_that_name")
    for options, message in (
        (
            ["word:lemmas"],
            "there must be a module 'word' in the current directory or installed, got none; write",
        ),
        (
            ["broken:cut"],
            "importing broken failed with ModuleNotFoundError: No module named 'nothing_of_that_",
        ),
        (["words:cut"], "words:cut: must be a function, got nothing of that name"),
        (["words"], "--analyzer must name a module and a function in it, got 'words'"),
        (["words:other", "--no-lowercase"], "--lowercase must be left out beside an analyzer"),
    ):
        code, told = program(folder, *INGEST, "--out", "x.corpus", "--analyzer", *options)
        assert (code, message in told) == (2, True), told
    assert not (folder / "x.corpus").exists()
