"""The cluster that dslda starts by itself, and the user's own."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client, Future, LocalCluster

from dslda.cluster.opening import ClusterOptions, _shape, cluster
from dslda.engine.dask import publish
from dslda.engine.dask.plugin import register
from dslda.engine.data.fit_source import CorpusSource
from dslda.engine.executor import SerialExecutor
from dslda.exceptions import EngineError, InputError
from dslda.ingestion.ingest import ingest
from dslda.training.train import train
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec

DROPPED = "Exception ignored in"
"""What Python writes of an exception that it drops."""


def test_the_users_client_is_used_and_left_open(problem: Any, expected: str, in_process: Client) -> None:
    with cluster(in_process) as client:
        assert client is in_process
        assert problem.fit_on(client) == expected
    assert in_process.status == "running"


def test_a_cluster_is_started_quietly_and_ended(
    problem: Any,
    expected: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dask.system.CPU_COUNT", 1)
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    level = logging.getLogger("distributed").level
    with caplog.at_level(logging.INFO), cluster(options=ClusterOptions(workers=1, threads=2)) as client:
        assert client.nthreads() == {next(iter(client.nthreads())): 2}
        assert Client.current() is client
        assert problem.fit_on(client) == expected
        assert (
            client.scheduler_comm.recent_message_log.maxlen == 100
        )  # or its memory grows with the iterations
        started = {p.pid for p in psutil.Process().children(recursive=True)} - before
        assert len(started) >= 2  # nanny and worker
    assert logging.getLogger("distributed").level == level
    deadline = time.monotonic() + 20
    while alive := {p for p in started if psutil.pid_exists(p)} - {os.getpid()}:
        assert time.monotonic() < deadline, alive
        time.sleep(0.1)
    assert {record.name.partition(".")[0] for record in caplog.records} <= {"dslda"}
    assert "starting 1 worker process of 2 threads" in caplog.text
    assert "more threads than this machine has cores, 1" in caplog.text
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("in_parts", [False, True])
def test_no_result_is_left_to_garbage_collection(
    problem: Any, expected: str, in_process: Client, monkeypatch: pytest.MonkeyPatch, in_parts: bool
) -> None:
    """Python drops a Ctrl-C that comes while it deletes a future which is not released."""
    if in_parts:
        monkeypatch.setattr(publish, "LARGEST_MESSAGE", 1000)
        monkeypatch.setattr(publish, "PART_BYTES", 2000)
    deleted: list[tuple[Any, bool]] = []
    delete = Future.__del__

    def noted(future: Future[Any]) -> None:
        deleted.append((future.key, future._cleared))
        delete(future)

    monkeypatch.setattr(Future, "__del__", noted)
    assert problem.fit_on(in_process) == expected
    gc.collect()
    of_iterations = [
        released
        for key, released in deleted
        if str(key).startswith(("('dslda-estep", "('dslda-part", "('dslda-sum"))
    ]
    assert len(of_iterations) > 10 * problem.spec.max_iter
    assert all(of_iterations)


def test_a_cluster_that_ends_in_the_middle_of_tasks_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def chatter(topic: str) -> None:
        import time

        from distributed import get_worker

        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            get_worker().log_event(topic, "still here")

    logger = logging.getLogger("distributed")  # which does not propagate
    logger.addHandler(caplog.handler)
    heard: list[Any] = []
    with cluster(options=ClusterOptions(workers=1, threads=4)) as client:
        client.subscribe_topic("topic", heard.append)
        tasks = [client.submit(chatter, "topic", pure=False) for _ in range(2)]
        time.sleep(0.2)
    logger.removeHandler(caplog.handler)
    assert len(heard) > len(tasks)
    assert {record.name for record in caplog.records} <= {"dslda.engine"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="process groups of POSIX")
def test_ctrl_c_in_a_script_without_main_guard_returns_the_last_iteration(
    problem: Any, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import hashlib
            import signal
            import sys
            # which the background of a shell ignores
            signal.signal(signal.SIGINT, signal.default_int_handler)
            from dslda.corpus.store import open_corpus
            from dslda.cluster.opening import ClusterOptions, cluster
            from dslda.engine.dask.dask_executor import DaskExecutor
            from dslda.engine.driver import fit
            from dslda.engine.data.fit_source import CorpusSource
            from dslda.families.base import STANDARDISED
            from dslda.families.gaussian import Gaussian
            from dslda.variational.design import Design
            from dslda.variational.parameters import initial_parameters
            from dslda.variational.parameters import FitSpec

            source = CorpusSource(open_corpus({problem.corpus.path!r}), design=Design("y"))
            spec = FitSpec(n_topics=4, max_iter=100000, tol=0.0)
            start = initial_parameters(source.n_terms, spec=spec, family=Gaussian(), moments=STANDARDISED)

            def tell(record, parameters):
                # a whole line, wherever the interrupt comes
                sys.stdout.write(str(record.iteration) + "\\n")
                sys.stdout.flush()

            with cluster(options=ClusterOptions(workers=1, threads=2)) as client:
                with DaskExecutor(client, source, Gaussian(), spec) as executor:
                    result = fit(
                        executor, start, family=Gaussian(), spec=spec,
                        on_iteration=tell,
                    )
            topics = hashlib.sha256(result.parameters.topics.tobytes()).hexdigest()
            print("interrupted", result.interrupted, len(result.trace), topics, flush=True)
            """
        )
    )
    root = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    out, err = tmp_path / "out.txt", tmp_path / "err.txt"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env=environment,
        )
    n_signals, deadline = 0, time.monotonic() + 180
    try:
        while process.poll() is None:
            assert time.monotonic() < deadline, out.read_text() + err.read_text()
            # Python drops what is raised in a `__del__`, and says so: the user presses again
            if out.read_text().startswith("1\n") and err.read_text().count(DROPPED) == n_signals:
                n_signals += 1
                # what a terminal does: to every process of the group
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.02)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said, *rest = [line.split() for line in out.read_text().splitlines() if not line.isdigit()]
    assert rest == []
    assert said[:2] == ["interrupted", "True"], err.read_text()
    n_told, n_kept = sum(line.isdigit() for line in out.read_text().splitlines()), int(said[2])
    # the interrupt may come when an iteration is complete, and before it is told
    assert n_kept - n_told in (0, 1)
    assert process.returncode == 0
    assert err.read_text().count("Traceback") == n_signals - 1, err.read_text()
    source = CorpusSource(problem.corpus, design=Design("y"))
    spec = FitSpec(n_topics=4, max_iter=n_kept, tol=0.0)
    with SerialExecutor(source, problem.family, spec) as executor:
        complete = replace(problem, source=source, spec=spec).fit(executor)
    assert hashlib.sha256(complete.parameters.topics.tobytes()).hexdigest() == said[3]


def test_workers_are_prepared(in_process: Client) -> None:
    import threadpoolctl
    import zarr

    register(in_process)
    before = zarr.config.get("async.concurrency")
    try:
        assert before == 4
        blas = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
        assert blas
        assert {p["num_threads"] for p in blas} == {1}
    finally:
        in_process.unregister_worker_plugin("dslda")


def test_a_client_that_cannot_be_asked_is_refused(problem: Any, in_process: Client, tmp_path: Path) -> None:
    address = in_process.scheduler.address
    closed = Client(address, set_as_default=False)
    closed.close()
    missing = tmp_path / "nothing.jsonl"

    def refused(client: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            train(problem.corpus, client=client)
        with pytest.raises(InputError, match=message):
            ingest(missing, tmp_path / "nothing.corpus", client=client)

    async def refused_in_a_loop() -> None:
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            refused(
                client, r"client must not be asynchronous; make it with Client\(\.\.\., asynchronous=False\)"
            )

    refused(closed, "client must be connected, got one that is closed; make a new one")
    refused(address, r"client must be a distributed\.Client, got '.*'; make one of an address with Client")
    asyncio.run(refused_in_a_loop())


def test_a_scheduler_that_does_not_answer_is_an_error() -> None:
    import dask.config

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300ms"}),
        pytest.raises(EngineError, match=r"scheduler at tcp://127\.0\.0\.1:9 must answer"),
        cluster(options=ClusterOptions(scheduler="tcp://127.0.0.1:9")),
    ):
        pass


def test_a_scheduler_is_connected_to_and_left_running() -> None:
    from distributed import LocalCluster

    with (
        LocalCluster(
            n_workers=1, processes=False, protocol="tcp", dashboard_address=":0", silence_logs=50
        ) as running,
        Client(running, set_as_default=False) as theirs,
    ):
        with cluster(options=ClusterOptions(scheduler=running.scheduler_address)) as ours:
            assert ours.nthreads() == theirs.nthreads() != {}
        assert ours.status == "closed"
        assert theirs.submit(sum, [1, 2]).result() == 3


def test_a_cluster_without_workers_is_an_error(problem: Any) -> None:
    import dask.config

    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0", silence_logs=50) as empty,
        Client(empty, set_as_default=False) as client,
        dask.config.set({"dslda.engine.stall-timeout": "100ms"}),
        pytest.raises(EngineError, match="at least one worker, got none"),
    ):
        problem.executor(client)


def test_an_adaptive_cluster_without_workers_starts_some(problem: Any, expected: str) -> None:
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
        ) as idle,
        Client(idle, set_as_default=False) as client,
    ):
        idle.adapt(minimum=0, maximum=1, interval="100ms")
        assert problem.fit_on(client) == expected


def test_the_machine_is_shared_out() -> None:
    assert _shape(ClusterOptions(), cores=2, cores_per_process=8) == (1, 2)
    assert _shape(ClusterOptions(), cores=32, cores_per_process=8) == (4, 8)
    assert _shape(ClusterOptions(), cores=12, cores_per_process=8) == (2, 6)
    assert _shape(ClusterOptions(workers=3), cores=12, cores_per_process=8) == (3, 4)
    assert _shape(ClusterOptions(threads=3), cores=12, cores_per_process=8) == (4, 3)
    assert _shape(ClusterOptions(workers=8, threads=2), cores=4, cores_per_process=8) == (8, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be from 1 to 1024, got 0"),
        ({"threads": -1}, "threads must be from 1 to 1024, got -1"),
        ({"scheduler": "tcp://a:1", "workers": 2}, "workers must be left out with a scheduler"),
        ({"tls_ca_file": "ca.pem"}, "give its address with scheduler="),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClusterOptions(**options)


def test_a_memory_limit_that_is_no_size_is_refused() -> None:
    with pytest.raises(InputError, match="memory_limit must be a size"):
        ClusterOptions(memory_limit="lots")


def test_giving_up_says_why(
    problem: Any, in_process: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import dask.config
    from distributed.comm import CommClosedError

    def scatter(*_: Any, **__: Any) -> None:
        raise CommClosedError("the line is cut")

    monkeypatch.setattr(in_process, "scatter", scatter)
    with (
        caplog.at_level(logging.WARNING, "dslda.engine"),
        dask.config.set({"dslda.engine.iteration-budget": "1s"}),
        pytest.raises(
            EngineError, match=r"iteration 1 could not be completed: it was tried 2 times, .* is cut"
        ),
    ):
        problem.fit_on(in_process)
    assert "iteration 1 is run again: workers or data were lost" in caplog.text
