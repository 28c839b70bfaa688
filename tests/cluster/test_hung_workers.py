"""Workers that stand still: the same bits without them, or an error that names them; workers that take long do not."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import dask.config
import psutil
import pytest
from distributed import Client, Future, Worker
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol.pickle import dumps

from dslda.cluster import health
from dslda.cluster.health import WorkerWatch
from dslda.exceptions import EngineError
from tests.helpers import faults
from tests.helpers.faults import TrappedSource
from tests.helpers.processes import QUICK, STALL, both, sent_by_value
from tests.helpers.progress import AtPartition, Signaller

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and workers of POSIX"),
]


# a worker that hangs, or has no thread free, does not take parameters either
SENDING = {"dslda.engine.publish-timeout": STALL}
READ_AGAIN = {"dslda.engine.resident-fraction": 1e-9}


@pytest.fixture(scope="module", autouse=True)
def _by_value() -> Iterator[None]:
    with sent_by_value(__name__, faults.__name__):
        yield


@pytest.fixture(autouse=True)
def _settings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with dask.config.set(QUICK), caplog.at_level(logging.WARNING, "dslda.engine"):
        yield


def wait_for_ever() -> None:
    time.sleep(1e6)


@dataclass(frozen=True)
class WaitFromNowOn:
    """Waits for ever, once there is a mark."""

    mark: Path

    def __call__(self) -> None:
        if self.mark.exists():
            wait_for_ever()


def use_the_processor(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


@dataclass(frozen=True)
class WaitOnce:
    """Waits for ever, the first time."""

    mark: Path

    def __call__(self) -> None:
        if not self.mark.exists():
            self.mark.touch()
            wait_for_ever()


@dataclass(frozen=True)
class WorkOnce:
    """Uses the processor for longer than a stall takes, the first time."""

    mark: Path

    def __call__(self) -> None:
        if not self.mark.exists():
            self.mark.touch()
            use_the_processor(10.0)


class Preparation(WorkerPlugin):
    """Takes longer than a worker may be silent, and Dask sends no heartbeat before it is done."""

    name = "preparation"

    def __init__(self, until: Path) -> None:
        self.until = until

    async def setup(self, worker: Worker) -> None:
        while not self.until.exists():
            await asyncio.sleep(0.1)


def test_a_worker_that_is_being_prepared_is_not_taken_for_one_that_hangs(
    in_process: Client, tmp_path: Path
) -> None:
    watch = WorkerWatch(in_process, 1.0)
    in_process.cluster.scheduler.worker_plugins["preparation"] = dumps(Preparation(tmp_path / "end"))
    old = set(in_process.nthreads())
    in_process.cluster.scale(2)
    while len(in_process.nthreads()) < 2:
        time.sleep(0.05)
    (new,) = set(in_process.nthreads()) - old
    assert watch.look().silent == frozenset()
    # one that had been there before
    assert WorkerWatch(in_process, 1.0).look().silent == {new}
    (tmp_path / "end").touch()


def test_a_worker_that_is_stopped_is_restarted_and_changes_no_bit(
    problem: Any, expected: str, two_programs: Client, caplog: pytest.LogCaptureFixture
) -> None:
    (worker, pid), _ = both(two_programs).items()
    stopper = Signaller([pid], signal.SIGSTOP, at=problem.source.n_partitions + 3)
    assert problem.fit_on(two_programs, progress=stopper) == expected
    assert stopper.left <= 0
    assert f"worker {worker} sends no heartbeat" in caplog.text
    assert f"restarting {worker}" in caplog.text
    assert not psutil.pid_exists(pid)


@pytest.mark.soak
def test_a_worker_that_is_stopped_between_iterations_changes_no_bit(
    problem: Any, expected: str, two_programs: Client, caplog: pytest.LogCaptureFixture
) -> None:
    (worker, pid), _ = both(two_programs).items()

    def stop(record: Any, parameters: Any) -> None:
        if record.iteration == 2:
            os.kill(pid, signal.SIGSTOP)

    with dask.config.set(SENDING):
        assert problem.fit_on(two_programs, on_iteration=stop) == expected
    assert f"restarting {worker}" in caplog.text


@pytest.mark.soak
def test_a_worker_that_is_stopped_before_the_fit_changes_no_bit(
    problem: Any,
    expected: str,
    two_programs: Client,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dslda.engine.dask import plugin

    (worker, pid), _ = both(two_programs).items()
    monkeypatch.setattr(plugin, "PREPARATION_SECONDS", 8.0)
    monkeypatch.setattr(health, "SILENCE_SECONDS", STALL)
    os.kill(pid, signal.SIGSTOP)
    assert problem.fit_on(two_programs) == expected
    assert f"restarting {worker}" in caplog.text


@pytest.mark.soak
def test_a_task_that_waits_for_ever_is_run_elsewhere(
    problem: Any, expected: str, two_programs: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both(two_programs)
    source = TrappedSource(problem, 7, WaitOnce(tmp_path / "mark")).standardised(problem.family)
    (tmp_path / "mark").unlink(missing_ok=True)
    with dask.config.set(SENDING):
        assert problem.fit_on(two_programs, source) == expected
    assert "answers but uses no processor and has partition 7 (documents" in caplog.text


@pytest.mark.soak
def test_workers_that_are_at_work_for_somebody_else_are_waited_for_and_not_restarted(
    problem: Any, expected: str, two_programs: Client, caplog: pytest.LogCaptureFixture
) -> None:
    workers = both(two_programs)
    others: list[Future[None]] = []

    def occupy() -> None:
        others.extend(two_programs.map(use_the_processor, [8.0] * 2, pure=False, priority=1))

    # not in `partition`, which runs in the thread in which the client hears from its cluster
    busy = AtPartition(Thread(target=occupy).start, at=problem.source.n_partitions + 1)
    with dask.config.set({"dslda.engine.stall-timeout": 1.5, "dslda.engine.iteration-budget": 3.0}):
        assert problem.fit_on(two_programs, progress=busy) == expected
    assert "is at work on something else and has" in caplog.text
    # in case that it is Dask that has lost sight of its tasks
    assert "iteration 2 is run again" in caplog.text
    assert all(other.done() for other in others)
    assert both(two_programs) == workers


@pytest.mark.soak
def test_a_partition_that_always_hangs_is_named_in_the_end(
    problem: Any, expected: str, two_programs: Client, tmp_path: Path
) -> None:
    both(two_programs)
    source = TrappedSource(problem, 7, WaitFromNowOn(tmp_path / "mark")).standardised(problem.family)

    def hang(record: Any, parameters: Any) -> None:
        if record.iteration == 2:
            (tmp_path / "mark").touch()

    with (
        dask.config.set({"dslda.engine.iteration-budget": 1.5 * STALL} | SENDING | READ_AGAIN),
        pytest.raises(
            EngineError,
            match=r"iteration 3 could not be completed: it was tried 2 times, last with: .*"
            r"worker tcp://\S+ answers but uses no processor and has partition 7 \(documents",
        ) as raised,
    ):
        problem.fit_on(two_programs, source, on_iteration=hang, checkpoint=tmp_path / "c")
    assert f"the checkpoint {tmp_path}/c holds 2 iterations" in "".join(raised.value.__notes__)
    assert problem.resumed(tmp_path / "c") == (2, expected)


@pytest.mark.soak
def test_a_partition_that_takes_long_is_waited_for(
    problem: Any, expected: str, two_programs: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workers = both(two_programs)
    source = TrappedSource(problem, 7, WorkOnce(tmp_path / "mark")).standardised(problem.family)
    (tmp_path / "mark").unlink(missing_ok=True)
    with dask.config.set(READ_AGAIN | {"dslda.engine.stall-timeout": 1.5}):
        assert problem.fit_on(two_programs, source) == expected
    assert "is at work and has partition 7 (documents" in caplog.text
    assert "run again" not in caplog.text
    assert both(two_programs) == workers


@pytest.mark.soak
def test_workers_and_nannies_that_are_stopped_are_left_out_and_named_when_none_is_left(
    problem: Any,
    expected: str,
    two_programs: Client,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "RESTART_SECONDS", 5.0)
    (worker, pid), (other, other_pid) = both(two_programs).items()
    pids, other_pids = ([psutil.Process(p).ppid(), p] for p in (pid, other_pid))
    at = problem.source.n_partitions + 3
    try:
        stopper = Signaller(pids, signal.SIGSTOP, at=at)
        assert problem.fit_on(two_programs, progress=stopper) == expected
        assert stopper.left <= 0
        assert f"worker {worker} sends no heartbeat" in caplog.text
        assert list(two_programs.nthreads()) == [other]
        last = Signaller(other_pids, signal.SIGSTOP, at=at)
        with (
            dask.config.set({"dslda.engine.iteration-budget": STALL}),
            pytest.raises(
                EngineError,
                match=r"at least one worker, got none within \d seconds; .*"
                rf"no partition was done for .* worker {other} sends no heartbeat and has partition \d+ \(documents",
            ),
        ):
            problem.fit_on(two_programs, progress=last, checkpoint=tmp_path / "c")
        assert problem.resumed(tmp_path / "c") == (1, expected)
    finally:  # they end as soon as they hear that they are left out: no test can come after this one
        for process in pids + other_pids:
            os.kill(process, signal.SIGCONT)
