"""Words, levels, identifiers and paths of the data on a terminal: nothing in them controls it, and files keep their bytes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dslda as library
from dslda.model import load_model
from dslda.wording import printable
from tests.helpers.processes import PROGRAM, ROOT

RED, EVIL = "\x1b[31m", "\x9b2J"
WORDS = (f"good{RED}", "fine", "[bold]lovely", f"bad{EVIL}", "poor", ":apple:", "[/]", "awful\u202e")
STYLES = re.compile(r"\x1b\[[013]m")
CLASSES = (f"up{RED}", "down\nup")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name, words, levels and identifiers would colour or clear a terminal."""
    folder = tmp_path_factory.mktemp("terminal") / f"red{RED}"
    folder.mkdir()
    records = [
        {
            "id": f"k{i}{RED}",
            "words": [*WORDS[i % 2 * 4 :][:4], WORDS[(i + 4) % 8]],
            "counts": [1, 2, 1, 1, 1],
            "kind": CLASSES[i % 2],
            "place": CLASSES[i % 3 % 2],
        }
        for i in range(80)
    ]
    (folder / "new.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    corpus = library.ingest(
        folder / "new.jsonl",
        folder / "c",
        words="words",
        counts="counts",
        id="id",
        response="kind",
        covariates="place",
        categorical=["kind", "place"],
        min_df=1,
        max_df=1.0,
    )
    library.train(
        corpus, response="kind", family="categorical", covariates="place", n_topics=2, max_iter=200, ridge=1.0
    ).save(folder / "m")
    return folder


def on_terminal(*arguments: object) -> str:
    """What a command writes on a pseudo-terminal, as the terminal gets it."""
    terminal, end = os.openpty()
    try:
        environment = os.environ | {"COLUMNS": "200", "TERM": "xterm", "NO_COLOR": "1"}
        command = [*PROGRAM, *map(str, arguments)]
        with subprocess.Popen(command, stdout=end, stderr=end, cwd=ROOT, env=environment) as process:
            os.close(end)
            end = -1
            pieces = []
            while piece := _read(terminal):
                pieces.append(piece)
    finally:
        os.close(terminal)
        if end >= 0:
            os.close(end)
    assert process.returncode == 0
    # without the line ends of a terminal, and the bold and italic of tables
    return STYLES.sub("", b"".join(pieces).decode()).replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # at the end, on Linux
        return b""


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "m"],
        ["topics", "m", "--by-class"],
        ["topics", "m", "--covariates"],
        ["info", "m"],
        ["info", "c"],
        ["predict", "m", "new.jsonl", "--words", "words", "--counts", "counts", "--id", "id"],
    ],
    ids=" ".join,
)
def test_no_data_controls_the_terminal(folder: Path, command: list[str]) -> None:
    name, *rest = command
    paths = {"m", "c", "new.jsonl"}
    shown = on_terminal(name, *(folder / part if part in paths else part for part in rest))
    assert all(line == printable(line) for line in shown.split("\n")), shown
    assert "\\x1b[31m" in shown


def test_words_are_no_markup_of_tables(folder: Path) -> None:
    shown = on_terminal("topics", folder / "m")
    for word in WORDS:
        assert printable(word) in shown


def test_logs_and_errors_are_printable(folder: Path, dslda: Callable[..., Any]) -> None:
    told = dslda("predict", folder / "m", folder / "none.jsonl")
    assert told.code == 2
    assert "\\x1b[31m" in told.error
    assert RED not in told.err


def test_files_keep_the_bytes(folder: Path, dslda: Callable[..., Any], tmp_path: Path) -> None:
    options = ["--words", "words", "--counts", "counts", "--id", "id"]
    dslda("predict", folder / "m", folder / "new.jsonl", *options, "--out", tmp_path / "p.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text(), newline="")))
    assert rows[3]["id"] == f"k3{RED}"
    assert {row["prediction"] for row in rows} <= set(CLASSES)
    piped = dslda("topics", folder / "m").out
    words = {word for topic in load_model(folder / "m").topics() for word in topic.words}
    assert set(WORDS) == words
    assert all(word in piped for word in WORDS)
