"""Retries: the failures that cause them, and their end."""

from __future__ import annotations

import pytest
from distributed import CancelledError, KilledWorker
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError
from distributed.scheduler import NoValidWorkerError, NoWorkerError, WorkerState

from dslda.engine.dask.recovery import (
    Action,
    IterationFailure,
    Retries,
    WorkersHungError,
    WorkersLostError,
    classify,
)
from dslda.exceptions import EngineError, FormatError


def killed() -> KilledWorker:
    worker = WorkerState(
        address="tcp://1.2.3.4:5", status="running", pid=1, name="w", nthreads=1, memory_limit=0,
        local_directory="", nanny="", server_id="w",
    )  # fmt: skip
    return KilledWorker("key", worker, 3)


@pytest.mark.parametrize(
    "error",
    [
        FutureCancelledError("key", "lost dependencies"),
        CancelledError(),
        CommClosedError("gone"),
        TimeoutError(),
        ConnectionResetError(),
        WorkersLostError("all gone"),
        NoWorkerError("key", 1.0),
        NoValidWorkerError("key", set(), set(), {}, 1.0),
    ],
)
def test_loss_of_workers_is_retried(error: Exception) -> None:
    assert classify(error, raised_by_task=False) is IterationFailure.LOST


@pytest.mark.parametrize("by_task", [True, False])
def test_killed_workers_are_retried(by_task: bool) -> None:
    assert classify(killed(), raised_by_task=by_task) is IterationFailure.KILLED


@pytest.mark.parametrize(
    "error", [FileNotFoundError("chunk"), FormatError("damaged"), ZeroDivisionError(), MemoryError()]
)
def test_what_a_task_raises_is_not_retried(error: Exception) -> None:
    assert classify(error, raised_by_task=True) is None


def test_workers_that_hang_are_retried_and_not_examined() -> None:
    """It is known who it was; to run every partition once more would hang as well."""
    assert (
        classify(WorkersHungError("one", frozenset({"tcp://a:1"})), raised_by_task=False)
        is IterationFailure.HUNG
    )
    retries = Retries(budget=100.0)
    assert {retries.failed(IterationFailure.HUNG, now).action for now in (0.0, 1.0, 2.0, 3.0)} == {
        Action.RETRY
    }
    assert retries.failed(IterationFailure.HUNG, 101.0).action is Action.GIVE_UP


def test_our_own_errors_are_not_retried() -> None:
    assert classify(EngineError("versions"), raised_by_task=False) is None
    # KeyError is known from scatter alone, where publish() turns it into WorkersLostError
    assert classify(KeyError("worker"), raised_by_task=False) is None


def test_retries_wait_longer_each_time_and_end_with_the_budget() -> None:
    retries = Retries(budget=100.0)
    delays = []
    now = 1000.0
    while (step := retries.failed(IterationFailure.LOST, now)).action is not Action.GIVE_UP:
        delays.append(step.delay)
        now += step.delay
    assert delays[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(delays) == 30.0
    assert 100.0 <= now - 1000.0 < 131.0


def test_the_budget_counts_from_the_first_failure() -> None:
    retries = Retries(budget=10.0)
    assert retries.time_left(500.0) == 10.0
    assert retries.failed(IterationFailure.LOST, 1e6).action is Action.RETRY
    assert retries.time_left(1e6 + 4.0) == 6.0


@pytest.mark.parametrize(
    ("failures", "examined"), [("KKKK", [2, 4]), ("LLLLLL", [3, 6]), ("KLK", [3]), ("LKKL", [3])]
)
def test_failures_that_repeat_are_examined(failures: str, examined: list[int]) -> None:
    retries = Retries(budget=1e6)
    kinds = {"K": IterationFailure.KILLED, "L": IterationFailure.LOST}
    actions = [retries.failed(kinds[kind], 0.0).action for kind in failures]
    assert [i + 1 for i, action in enumerate(actions) if action is Action.EXAMINE] == examined
