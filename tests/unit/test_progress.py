"""What a plain script shows while it works: on a terminal, and where its output goes into a file."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT

SCRIPT = """
import sys, dslda
import dslda.cluster.stage_progress as stage_progress
stage_progress.QUICK_SECONDS = float(sys.argv[2])
texts = [{"text": text} for text in ("good coat", "bad coat", "fine red coat", "poor red coat")] * 20
corpus = dslda.ingest(texts, sys.argv[1], text="text", min_df=1, max_df=1.0, partition_tokens=20)
model = dslda.load_model(sys.argv[3])
model.predict([{"words": ["good"], "counts": [1], "x": 3.0}] * 100)
"""


def shown(tmp_path: Path, model: Path, *, seconds: float) -> str:
    """What a script writes to the terminal that is its standard error."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "a.corpus"), str(seconds), str(model)],
        stderr=terminal,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(terminal)
    parts = []
    try:
        while part := os.read(controller, 1 << 16):
            parts.append(part)
    except OSError:  # the other end is closed
        pass
    os.close(controller)
    assert process.wait(60) == 0, b"".join(parts)
    return b"".join(parts).decode()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.unpack_archive(ROOT / "tests/formats/archives/0.1.0/gaussian.model.zip", tmp_path)
    return tmp_path / "gaussian.model"


def test_a_script_shows_on_a_terminal_how_far_it_is(tmp_path, model):
    text = shown(tmp_path, model, seconds=0)
    assert "writing" in text
    assert "predicting" in text


def test_quick_work_shows_nothing(tmp_path, model):
    assert shown(tmp_path, model, seconds=600) == ""


def test_a_script_writes_no_progress_into_a_file(tmp_path, model):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "a.corpus"), "0", str(model)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert done.stderr == done.stdout == b""
