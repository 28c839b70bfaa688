"""Memory, spilling, pauses and restarts of a cluster's workers; Linux only."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from distributed import Client, Worker

from dslda.engine.driver import FitResult

__all__ = ["WorkerState", "cpu_of_all", "digest_of", "peak_bytes", "worker_state"]


@dataclass(frozen=True, slots=True)
class WorkerState:
    """Largest peak of a worker in MiB, bytes spilled and pauses of all, and their processes."""

    peak_mib: float
    spilled: int
    pauses: int
    processes: frozenset[int]


def worker_state(client: Client) -> WorkerState:
    """State since the workers started."""
    states = client.run(_state).values()
    pauses = sum(
        isinstance(message, dict)
        and message.get("action") == "worker-status-change"
        and message.get("status") == "paused"
        for events in client.get_events().values()
        for _, message in events
    )
    return WorkerState(
        max(peak for _, _, peak in states) / 2**20,
        sum(spilled for _, spilled, _ in states),
        pauses,
        frozenset(process for process, _, _ in states),
    )


def peak_bytes() -> int:
    """Peak memory of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def cpu_of_all() -> float:
    """CPU seconds so far, user and system, of this process and all below it."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def digest_of(result: FitResult) -> str:
    """A hash of the bits of a fit's parameters."""
    digest = hashlib.sha256(np.ascontiguousarray(result.parameters.topics).tobytes())
    digest.update(result.parameters.eta.tobytes())
    return digest.hexdigest()


def _state(dask_worker: Worker) -> tuple[int, int, int]:
    data: Any = dask_worker.data
    return os.getpid(), data.spilled_total.disk, peak_bytes()
