"""Workers die, partitions are deadly, kernels raise: the same bits, or an error that says where."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from distributed import Client, Status

from dslda.cluster.opening import ClusterOptions, cluster
from dslda.engine import reduction
from dslda.engine.dask import dask_executor
from dslda.engine.dask.tasks import add_up
from dslda.engine.executor import SerialExecutor
from dslda.engine.passes import E_STEP
from dslda.engine.reduction import MOST_TASKS
from dslda.exceptions import EngineError
from dslda.families.base import STANDARDISED
from dslda.variational.parameters import initial_parameters
from dslda.variational.statistics import SufficientStatistics
from tests.helpers import faults
from tests.helpers.faults import TrappedSource
from tests.helpers.processes import sent_by_value
from tests.helpers.progress import Signaller

pytestmark = pytest.mark.slow

QUICK = {
    "dslda.engine.stall-timeout": "60s",
    "dslda.engine.iteration-budget": "60s",
    # a task that sees one worker die is given up, so that a deadly partition is found in seconds
    "distributed.scheduler.allowed-failures": 0,
    # LocalCluster gives up a worker that does not come back in 15 seconds
    "distributed.deploy.lost-worker-timeout": "5 minutes",
}


@pytest.fixture(scope="module")
def two_workers(processes: Any) -> Iterator[Client]:
    with dask.config.set(QUICK), processes(2) as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def _by_value() -> Iterator[None]:
    with sent_by_value(__name__, faults.__name__):
        yield


def worker_pids(client: Client) -> list[int]:
    """Processes of two workers that are up, and that their nannies know to be up: a nanny that still waits
    for its worker to start does not start it again."""
    deadline = time.monotonic() + 60
    while len(client.nthreads()) < 2 or {n.status for n in client.cluster.workers.values()} != {
        Status.running
    }:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return list(client.run(os.getpid).values())


@pytest.mark.parametrize(
    ("victims", "most"),
    [
        (1, MOST_TASKS),
        pytest.param(2, MOST_TASKS, marks=pytest.mark.soak),
        pytest.param(1, 4, marks=pytest.mark.soak),
    ],
)
def test_workers_killed_in_mid_iteration_change_no_bit(
    problem: Any, expected: str, two_workers: Client, victims: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduction, "MOST_TASKS", most)  # few: partitions are kept in bundles
    killer = Signaller(worker_pids(two_workers)[:victims], signal.SIGKILL, at=problem.source.n_partitions + 3)
    assert problem.fit_on(two_workers, progress=killer) == expected
    assert killer.left <= 0


def test_a_worker_killed_in_conditional_training_changes_no_bit(
    problem: Any, expected_conditional: str, digest_of: Any, two_workers: Client
) -> None:
    killer = Signaller(worker_pids(two_workers)[:1], signal.SIGKILL, at=90)
    with dask_executor.DaskExecutor(
        two_workers, problem.source, problem.family, problem.conditional_spec
    ) as executor:
        assert digest_of(problem.fit_conditionally(executor, progress=killer)) == expected_conditional
    assert killer.left <= 0


SOME = [1, 2, 4, 7, 8, 10, 11]


@pytest.mark.parametrize(
    "fraction", [0.5, pytest.param(1e-9, marks=pytest.mark.soak)], ids=["kept", "read again"]
)
def test_a_worker_killed_as_some_of_the_partitions_are_worked_on_changes_no_bit(
    problem: Any, two_workers: Client, fraction: float
) -> None:
    initial = initial_parameters(
        problem.source.n_terms, spec=problem.spec, family=problem.family, moments=STANDARDISED
    )
    with SerialExecutor(problem.source, problem.family, problem.spec) as executor:
        undisturbed, _ = executor.run(initial, E_STEP, partitions=SOME)
    killer = Signaller(worker_pids(two_workers)[:1], signal.SIGKILL, at=3)
    counted: list[int] = []

    def tell(n_documents: int) -> None:
        counted.append(n_documents)
        killer.partition(n_documents)

    with (
        dask.config.set({"dslda.engine.resident-fraction": fraction}),
        problem.executor(two_workers) as executor,
    ):
        statistics, _ = executor.run(initial, E_STEP, partitions=SOME, on_partition=tell)
    assert killer.left <= 0
    assert sum(counted) == statistics.n_documents == int(problem.source.n_documents[SOME].sum())
    assert statistics.elbo == undisturbed.elbo
    assert statistics.topic_counts.tobytes() == undisturbed.topic_counts.tobytes()


@dataclass(frozen=True)
class DieOnceInASum:
    """Adds up as any worker does, but for the first one, whose process ends."""

    mark: Path

    def __call__(self, terms: list[SufficientStatistics]) -> SufficientStatistics:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return add_up(terms)


def test_a_worker_killed_in_a_sum_changes_no_bit(
    problem: Any, expected: str, two_workers: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_pids(two_workers)
    monkeypatch.setattr(dask_executor, "add_up", DieOnceInASum(tmp_path / "died"))
    assert problem.fit_on(two_workers) == expected
    assert (tmp_path / "died").exists()


@pytest.mark.soak
def test_a_worker_killed_between_iterations_changes_no_bit(
    problem: Any, expected: str, two_workers: Client
) -> None:
    pids = worker_pids(two_workers)

    def kill(record: Any, parameters: Any) -> None:
        if record.iteration == 2:
            os.kill(pids[0], signal.SIGKILL)

    assert problem.fit_on(two_workers, on_iteration=kill) == expected


def test_a_worker_killed_while_parameters_are_sent_changes_no_bit(
    problem: Any, expected: str, two_workers: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_pids(two_workers)
    pids = two_workers.run(os.getpid)
    scatter: Callable[..., Any] = two_workers.scatter
    calls = 0

    async def scatter_and_kill(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        sent = await scatter(*arguments, **keywords)
        if calls == 2:
            # the one that holds them, before any other has fetched them
            holder = (await two_workers.who_has([sent]))[sent.key][0]
            os.kill(pids[holder], signal.SIGKILL)
        return sent

    monkeypatch.setattr(two_workers, "scatter", scatter_and_kill)
    assert problem.fit_on(two_workers) == expected
    assert calls > problem.spec.max_iter - 1


@pytest.mark.skipif(sys.platform == "win32", reason="workers with nannies in processes of their own")
def test_machines_that_vanish_and_a_worker_that_retires_change_no_bit_until_none_is_left(
    problem: Any, expected: str, tmp_path: Path
) -> None:
    with cluster(options=ClusterOptions(workers=3, threads=1)) as client:
        (_, pid), (retired, _), (last, last_pid) = client.run(os.getpid).items()
        n = problem.source.n_partitions
        machine = Signaller([psutil.Process(pid).ppid(), pid], signal.SIGKILL, at=n + 3)
        retiring = threading.Thread(target=client.retire_workers, args=([retired],))

        class Events(Signaller):
            def partition(self, n_documents: int) -> None:
                machine.partition(n_documents)
                self.left -= n_documents > 0
                if self.left == 0:  # not from here, the client's event loop
                    retiring.start()

        # the iteration that the machine leaves may begin again
        assert problem.fit_on(client, progress=Events([], signal.SIGKILL, at=2 * n + 6)) == expected
        retiring.join()
        assert list(client.nthreads()) == [last]
        machine = Signaller([psutil.Process(last_pid).ppid(), last_pid], signal.SIGKILL, at=2 * n + 3)
        with (
            dask.config.set({"dslda.engine.iteration-budget": "2s"}),
            pytest.raises(EngineError, match="the cluster must have at least one worker, got none within"),
        ):
            problem.fit_on(client, progress=machine, checkpoint=tmp_path / "c")
        assert problem.resumed(tmp_path / "c") == (2, expected)


def die() -> None:
    time.sleep(0.5)  # see worker_pids
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise ZeroDivisionError("no luck")


def file_is_missing() -> None:
    raise FileNotFoundError("chunk 7")


@pytest.mark.parametrize(
    "fraction", [pytest.param(0.5, marks=pytest.mark.soak), 1e-9], ids=["in a load", "in an E-step"]
)
def test_a_partition_that_crashes_its_workers_is_named(
    problem: Any, two_workers: Client, fraction: float
) -> None:
    worker_pids(two_workers)
    source = TrappedSource(problem, 7, die)
    with (
        dask.config.set({"dslda.engine.resident-fraction": fraction}),
        pytest.raises(EngineError, match=r"^partition 7 \(documents \d+ to \d+\) crashed every worker"),
    ):
        problem.fit_on(two_workers, source)


@pytest.mark.soak
def test_a_partition_that_crashes_its_workers_harms_no_subset_without_it(
    problem: Any, two_workers: Client
) -> None:
    initial = initial_parameters(
        problem.source.n_terms, spec=problem.spec, family=problem.family, moments=STANDARDISED
    )
    worker_pids(two_workers)
    with (
        dask.config.set({"dslda.engine.resident-fraction": 1e-9}),
        problem.executor(two_workers, TrappedSource(problem, 7, die)) as executor,
    ):
        statistics, _ = executor.run(initial, E_STEP, partitions=[6, 8])
        assert statistics.n_documents == int(problem.source.n_documents[[6, 8]].sum())
        with pytest.raises(EngineError, match=r"^partition 7 \(documents \d+ to \d+\) crashed every worker"):
            executor.run(initial, E_STEP, partitions=[6, 7, 8])


def die_once(died: Path) -> None:
    if not died.exists():
        died.touch()
        die()


def test_workers_that_die_for_reasons_of_their_own_blame_no_partition(
    problem: Any, two_workers: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    initial = initial_parameters(
        problem.source.n_terms, spec=problem.spec, family=problem.family, moments=STANDARDISED
    )
    worker_pids(two_workers)
    source = TrappedSource(problem, 7, partial(die_once, tmp_path / "died"))
    with (
        dask.config.set({"dslda.engine.resident-fraction": 1e-9}),
        problem.executor(two_workers, source) as executor,
    ):
        # the others are done by then, so that 7 is the only one that looks guilty
        assert executor._examine(initial, E_STEP, range(13)) is None
        assert (tmp_path / "died").exists()
        worker_pids(two_workers)
        monkeypatch.setattr(
            dask_executor, "publish_recomputable", lambda client, *_, **__: [client.submit(die, pure=False)]
        )
        assert executor._examine(initial, E_STEP, range(13)) is None


@pytest.mark.parametrize("harm", [fail, file_is_missing])
@pytest.mark.parametrize("fraction", [0.5, 1e-9], ids=["in a load", "in an E-step"])
def test_an_error_of_a_task_is_raised_with_its_place(
    problem: Any, two_workers: Client, harm: Callable[[], None], fraction: float
) -> None:
    worker_pids(two_workers)
    source = TrappedSource(problem, 7, harm)
    with (
        dask.config.set({"dslda.engine.resident-fraction": fraction}),
        pytest.raises((ZeroDivisionError, FileNotFoundError)) as raised,
    ):
        problem.fit_on(two_workers, source)
    (note,) = raised.value.__notes__
    assert "partition 7 (documents " in note
    assert "on worker tcp://" in note
