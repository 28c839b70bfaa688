"""Workers of other versions are refused with all differences, and never used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster

from dslda.exceptions import EngineError

ROOT = str(Path(__file__).resolve().parents[2])

OTHER = """
import importlib, sys
for name, version in (change.split("=") for change in sys.argv[2].split()):
    importlib.import_module(name).__version__ = version
if len(sys.argv) > 3:
    sys.modules[sys.argv[3]] = None
from distributed.cli.dask_worker import main
main([sys.argv[1], "--no-nanny", "--nthreads", "1", "--no-dashboard"])
"""


@contextmanager
def worker(client: Client, *arguments: str) -> Iterator[None]:
    """A worker process that says it has other versions."""
    n_before = len(client.nthreads())
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, client.scheduler.address, *arguments],
        env=os.environ | {"PYTHONPATH": ROOT},
        stderr=subprocess.DEVNULL,
    )
    try:
        client.wait_for_workers(n_before + 1, timeout=60)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def open_cluster() -> Iterator[Client]:
    """One good worker in this process, and an address for others."""
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            dashboard_address=":0",
            silence_logs=50,
        ) as running,
        Client(running, set_as_default=False) as client,
    ):
        yield client


def test_all_differences_of_all_workers_are_in_one_error(problem: Any, open_cluster: Client) -> None:
    with (
        worker(open_cluster, "scipy=1.99.1 dask=0.0.2"),
        worker(open_cluster, "numba=0.0.3"),
        worker(open_cluster, "numba=0.0.3"),
        worker(open_cluster, "dask=0.0.2", "dslda"),
        pytest.raises(EngineError, match=r"^all workers must have dslda and the same versions") as raised,
    ):
        problem.executor(open_cluster)
    text = str(raised.value)
    address = r"tcp://127\.0\.0\.1:\d+"
    for pattern in (
        rf"scipy 1\.99\.1 \(client: \S+\), dask 0\.0\.2 \(client: \S+\) on {address};",
        rf"numba 0\.0\.3 \(client: \S+\) on {address}, {address};",
        rf"No module named 'dslda.*\"\) on {address};",
    ):
        assert re.search(pattern, text), text


def test_a_worker_of_other_versions_that_joins_later_computes_nothing(
    problem: Any, expected: str, open_cluster: Client, tmp_path: Path
) -> None:
    with ExitStack() as running:

        def join(record: Any, parameters: Any) -> None:
            if record.iteration == 2:
                running.enter_context(worker(open_cluster, "scipy=1.99.1"))

        with (
            dask.config.set({"dslda.engine.resident-fraction": 1e-9}),  # no pins: it gets tasks for certain
            pytest.raises(EngineError, match=r"which joined later, .* got scipy 1\.99\.1 \(client: \d"),
        ):
            problem.fit_on(open_cluster, on_iteration=join, checkpoint=tmp_path / "c")
    done, bits = problem.resumed(tmp_path / "c")
    assert done >= 2
    assert bits == expected
