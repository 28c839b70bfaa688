"""Inputs for the command line, and a way to run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dslda.cli.program import run

WORDS = ("good fine lovely great", "bad poor awful sad")


def _write(path: Path, n: int = 80) -> Path:
    """Write reviews whose words tell the stars, with a key, a second number and a missing response."""
    with path.open("w") as stream:
        for i in range(n):
            words = WORDS[i % 2].split()
            text = f"{words[i % 4]} {words[(i + 1) % 4]} {('dress', 'shirt', 'coat')[i % 3]} number{i % 5}"
            record = {
                "key": f"k{i}",
                "text": text,
                "stars": None if i == 7 else (5, 1)[i % 2] + i % 3 / 10,
                "age": i,
            }
            stream.write(json.dumps(record) + "\n")
    return path


@dataclass
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The line of the error, the only one."""
        lines = [line for line in self.err.splitlines() if line.startswith("dslda: error: ")]
        assert len(lines) == 1, self.err
        assert self.err.splitlines()[-1] == lines[0]
        assert "Traceback" not in self.err
        return lines[0].removeprefix("dslda: error: ")


@pytest.fixture(scope="session")
def write_reviews() -> Callable[..., Path]:
    """Write reviews to a path."""
    return _write


@pytest.fixture
def dslda(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the program in this process."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reviews.jsonl, reviews.corpus and stars.model, made by the program."""
    folder = tmp_path_factory.mktemp("cli")
    reviews = _write(folder / "reviews.jsonl")
    ingest = [
        "ingest",
        str(reviews),
        "--out",
        str(folder / "reviews.corpus"),
        "--text",
        "text",
        "--id",
        "key",
    ]
    assert run([*ingest, "--response", "stars", "--response", "age", "--min-df", "2", "--max-df", "1.0"]) == 0
    train = [
        "train",
        str(folder / "reviews.corpus"),
        "--response",
        "stars",
        "--out",
        str(folder / "stars.model"),
    ]
    assert run([*train, "--topics", "2", "--rho", "2", "--alpha", "1/K"]) == 0
    return folder
