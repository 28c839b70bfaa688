"""Scratch folders of our workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dslda.cluster.opening import ClusterOptions, cluster
from dslda.cluster.scratch_folders import scratch_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")

HOLD = """
from dslda.cluster.scratch_folders import scratch_folder
with scratch_folder() as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.communicate()


def test_the_folder_of_a_process_that_was_killed_is_removed_by_the_next_one(temporary: Path) -> None:
    killed, left_over = holder()
    alive, in_use = holder()
    try:
        (left_over / "spilled").write_text("much")
        end(killed)
        for other in ("dslda-saved-model", "dslda-of-a-program-without-locks", "another"):
            (temporary / other).mkdir()
        (temporary / "another" / "dslda.lock").touch()
        (temporary / "dslda-link").symlink_to(temporary / "another")
        kept = {path.name for path in temporary.iterdir()} - {left_over.name}
        assert left_over.is_dir()
        with scratch_folder() as folder:
            assert {path.name for path in temporary.iterdir()} == kept | {Path(folder).name}
        assert in_use.is_dir()
        assert {path.name for path in temporary.iterdir()} == kept
    finally:
        end(alive)


def test_our_cluster_removes_what_another_has_left(temporary: Path) -> None:
    killed, left_over = holder()
    end(killed)
    with cluster(options=ClusterOptions(workers=1, threads=1)) as client:
        ((_, worker),) = client.scheduler_info()["workers"].items()
        assert Path(worker["local_directory"]).is_relative_to(temporary)
        assert not left_over.exists()
    assert not list(temporary.glob("dslda-*"))
