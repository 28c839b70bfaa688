"""Cost of a piece of work in a separate process: CPU seconds, wall seconds and peak memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["cpu_seconds", "measure"]

# One thread each: CPU seconds of busy-waiting threads are not work, and rivals differ in how many they start.
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMBA_NUM_THREADS",
    ),
    "1",
)
MIB = 2**20


def cpu_seconds() -> float:
    """CPU time so far, user and system, of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(task: Callable[..., Callable[[], Any]], *arguments: Any, runs: int = 1) -> dict[str, Any]:
    """Run work in a fresh process, with one thread, and return its cost.

    Parameters
    ----------
    task : callable
        A module's function. ``task(*arguments)`` prepares in the new process (loads data, imports) and
        returns the work as a function without arguments; only the work is measured.
    *arguments
        Picklable arguments of `task`.
    runs : int
        Times that the work is done, one after the other; seconds are the median.

    Returns
    -------
    dict
        "result": what the work returned last (picklable); "cpu_seconds": user and system, its children included;
        "wall_seconds"; "peak_mib": largest resident memory during the work, interpreter, libraries and data
        included (that of the largest child, if larger).

    Raises
    ------
    RuntimeError
        If the task fails, with its traceback, or its process dies.
    """
    context = multiprocessing.get_context("spawn")  # a forked process would start with our memory and threads
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, task, arguments, runs))
    with _environment(ONE_THREAD):
        process.start()
    theirs.close()
    try:
        outcome = ours.recv()
    except EOFError:
        outcome = None
    finally:
        process.join()
        ours.close()
    if outcome is None:
        raise RuntimeError(f"{task.__qualname__}{arguments} died with exit code {process.exitcode}")
    if isinstance(outcome, str):
        raise RuntimeError(f"{task.__qualname__}{arguments} failed:\n{outcome}")
    return outcome


def _child(
    pipe: Connection, task: Callable[..., Callable[[], Any]], arguments: tuple[Any, ...], runs: int
) -> None:
    try:
        work = task(*arguments)
        gc.collect()
        _forget_peak()
        seconds = []
        for _ in range(runs):
            wall, cpu = time.perf_counter(), cpu_seconds()
            result = work()
            seconds.append((cpu_seconds() - cpu, time.perf_counter() - wall))
        medians = [statistics.median(column) for column in zip(*seconds, strict=True)]
        pipe.send(
            {
                "result": result,
                "cpu_seconds": medians[0],
                "wall_seconds": medians[1],
                "peak_mib": _peak_bytes() / MIB,
            }
        )
    except BaseException:
        pipe.send(traceback.format_exc())
        raise SystemExit(1) from None


@contextmanager
def _environment(changes: dict[str, str]):
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _forget_peak() -> None:
    """Let the peak start from what is resident now (Linux; elsewhere it includes the preparation)."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def _peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    largest_child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    try:
        # Not ru_maxrss: on Linux it survives exec, so it would be the parent's where that was larger.
        with open("/proc/self/status") as file:
            own = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return max(own, largest_child)
