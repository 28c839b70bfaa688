"""Threads of workers are those that Dask gives tasks to: kernels and BLAS start none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dslda.cluster.opening import ClusterOptions, cluster

pytestmark = pytest.mark.slow

ROOT = str(Path(__file__).resolve().parents[2])
OPTIONS = ("--no-nanny", "--nthreads", "2", "--no-dashboard")
LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@contextmanager
def ours() -> Iterator[Client]:
    with cluster(options=ClusterOptions(workers=2, threads=2)) as client:
        yield client


@contextmanager
def without_nanny() -> Iterator[Client]:
    """A worker started by hand without what a nanny sets in the environment of its worker."""
    with (
        LocalCluster(
            n_workers=0, processes=False, protocol="tcp", dashboard_address=":0", silence_logs=50
        ) as running,
        Client(running, set_as_default=False) as client,
    ):
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", "worker", client.scheduler.address, *OPTIONS],
            env={k: v for k, v in os.environ.items() if k not in LIMITS} | {"PYTHONPATH": ROOT},
            stderr=subprocess.DEVNULL,
        )
        try:
            client.wait_for_workers(1, timeout=60)
            yield client
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("start", [ours, without_nanny])
def test_no_library_of_a_worker_has_threads_of_its_own(problem: Any, expected: str, start: Any) -> None:
    def threads() -> tuple[list[dict[str, Any]], bool]:
        import numba
        import threadpoolctl

        try:
            numba.threading_layer()
        except ValueError:  # no parallel kernel was run
            return threadpoolctl.threadpool_info(), False
        return threadpoolctl.threadpool_info(), True

    with start() as client:
        assert problem.fit_on(client) == expected
        assert set(client.nthreads().values()) == {2}
        for libraries, numba_has_threads in client.run(threads).values():
            assert not numba_has_threads
            assert any(library["user_api"] == "blas" for library in libraries)
            assert [library for library in libraries if library["num_threads"] != 1] == []
