"""Processes of the workers that we start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers of POSIX")

START = """
from dslda.cluster.opening import ClusterOptions, cluster
with cluster(options=ClusterOptions(workers=1, threads=1)):
    pass
"""


def test_workers_that_are_just_starting_end_with_the_process_that_is_killed(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path)}
    client = subprocess.Popen([sys.executable, "-c", START], env=os.environ | environment)
    ours: list[psutil.Process] = []
    # the nanny, and the worker that it is just starting, which will not find its scheduler
    while len(ours) < 2:
        assert client.poll() is None
        time.sleep(0.01)
        ours = psutil.Process(client.pid).children(recursive=True)
    client.kill()
    client.wait()
    _, left = psutil.wait_procs(ours, timeout=20)
    for process in left:
        process.kill()
    assert left == []
