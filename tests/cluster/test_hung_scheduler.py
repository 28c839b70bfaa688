"""A scheduler that stands still: training, ingestion and scoring end with an error, and can continue later."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dask.config
import pytest
from distributed import Client

import dslda
from dslda.cluster.client import ClientLater
from dslda.cluster.opening import ClusterOptions, cluster
from dslda.engine.dask.plugin import register
from dslda.engine.dask.tasks import nothing
from dslda.exceptions import EngineError
from dslda.model import Model
from dslda.persistence.checkpoint_store import read_checkpoint
from tests.helpers.files import contents
from tests.helpers.processes import a_cluster
from tests.helpers.progress import AtPartition

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]

ROOT = Path(__file__).parents[2]
SILENT = r"the scheduler at tcp://127\.0\.0\.1:\d+ has answered no question for 3 seconds"


@dataclass
class Scheduler:
    """A scheduler that can be stopped, once in each test, and goes on after it."""

    address: str
    process: subprocess.Popen[bytes]
    stopped: bool = field(default=False)

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.process.send_signal(signal.SIGSTOP)

    def after_one(self, stage: str) -> Callable[[str, int, int], None]:
        """Stops it when one task of a stage is done. Given as progress."""
        return lambda now, done, total: self.stop() if now == stage else None


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    """A scheduler and a worker as processes of their own, which have imported what tasks need.

    A busy machine may take seconds for that, in which the scheduler answers nothing.
    """
    with a_cluster(tmp_path_factory.mktemp("log") / "log") as (address, process):
        with Client(address, set_as_default=False) as client:
            client.submit(nothing).result(timeout=60)
        yield Scheduler(address, process)


@pytest.fixture
def scheduler(started: Scheduler) -> Iterator[Scheduler]:
    started.stopped = False
    with dask.config.set({"dslda.engine.scheduler-timeout": "3s"}):
        yield started
    started.process.send_signal(signal.SIGCONT)  # does nothing to one that has ended


@contextmanager
def going_on(scheduler: Scheduler) -> Iterator[Client]:
    """A client of the same scheduler, which goes on."""
    scheduler.process.send_signal(signal.SIGCONT)
    with Client(scheduler.address, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that make some parts."""
    folder = tmp_path_factory.mktemp("texts")
    for name in "abc":
        with (folder / f"{name}.jsonl").open("w") as stream:
            for i in range(300):
                words = [name, *(f"t{(i * j) % 300}" for j in range(800))]
                stream.write(json.dumps({"text": " ".join(words), "y": i % 7}) + "\n")
    return folder


@pytest.fixture(scope="module")
def model(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    corpus = dslda.ingest(
        texts / "a.jsonl",
        tmp_path_factory.mktemp("model") / "t.corpus",
        text="text",
        response="y",
        max_df=1.0,
    )
    return dslda.train(corpus, response="y", n_topics=2)


@pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")
def test_training_ends_after_its_checkpoint(
    problem: Any, scheduler: Scheduler, tmp_path: Path, assert_same: Any
) -> None:
    settings: dict[str, Any] = {"response": "y", "n_topics": 2, "tol": 0.0, "max_iter": 5}
    kept = {"checkpoint": tmp_path / "c", "checkpoint_every": 1000}  # no other than that of the end

    # in the middle of the third iteration
    stopper = AtPartition(scheduler.stop, at=2 * problem.source.n_partitions + 2)

    with (
        Client(scheduler.address, set_as_default=False) as client,
        pytest.raises(
            EngineError,
            match=rf"^iteration 3 could not be completed: .* got none: {SILENT}; start one and run this again, or",
        ) as raised,
    ):
        dslda.train(
            problem.corpus,
            **settings,
            **kept,
            client=client,
            progress=stopper,  # type: ignore[arg-type]
        )
    assert f"the checkpoint {tmp_path}/c holds 2 iterations" in "".join(raised.value.__notes__)
    assert read_checkpoint(tmp_path / "c").n_iterations == 2
    with going_on(scheduler) as client:
        whole = dslda.train(problem.corpus, **settings, client=client)
        assert_same(dslda.train(problem.corpus, **settings, **kept, client=client, resume=True), whole)


def test_scoring_ends_with_its_parts_and_goes_on_to_the_same_bytes(
    model: Model, texts: Path, scheduler: Scheduler, tmp_path: Path
) -> None:
    later = ClientLater(partial(cluster, options=ClusterOptions(scheduler=scheduler.address)), here=False)
    with pytest.raises(EngineError, match=SILENT) as raised:
        dslda.score(model, texts, tmp_path / "out", client=later, progress=scheduler.after_one("score"))
    assert "the same command goes on with the" in "".join(raised.value.__notes__)
    done = len(list((tmp_path / "out" / "parts").glob("*.json")))
    assert done >= 1
    with going_on(scheduler) as client:
        run = dslda.score(model, texts, tmp_path / "out", client=client)
    assert run.n_new_parts == len(run.manifest["parts"]) - done > 0
    dslda.score(model, texts, tmp_path / "alone")
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")


def test_ingestion_ends_and_leaves_nothing(texts: Path, scheduler: Scheduler, tmp_path: Path) -> None:
    with (
        Client(scheduler.address, set_as_default=False) as client,
        pytest.raises(EngineError, match=SILENT),
    ):
        dslda.ingest(
            texts,
            tmp_path / "t.corpus",
            text="text",
            response="y",
            max_df=1.0,
            client=client,
            progress=scheduler.after_one("read"),
        )
    assert not list(tmp_path.iterdir())


def test_a_client_that_is_held_up_itself_is_not_closed(scheduler: Scheduler) -> None:
    with Client(scheduler.address, set_as_default=False) as client, cluster(client) as ours:
        ours.loop.add_callback(
            time.sleep, 4
        )  # as when this process is stopped, or something holds Python's lock
        assert len(ours.nthreads()) == 1
        assert ours.status == "running"


def test_one_that_is_killed_is_told_without_what_dask_says_of_it(
    texts: Path, scheduler: Scheduler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last one: the scheduler does not come back."""
    later = ClientLater(partial(cluster, options=ClusterOptions(scheduler=scheduler.address)), here=False)
    said: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    Client(scheduler.address, set_as_default=False).close()  # it may have been started just now
    heard = Heard()
    logging.getLogger("distributed").addHandler(heard)
    gone = (
        "^a cluster must have a scheduler that answers, got none: the connection to the scheduler is gone; start one and "
        "run this again$"
    )
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        Client(scheduler.address, set_as_default=False) as other,
    ):
        with pytest.raises(EngineError, match=gone):
            dslda.ingest(
                texts,
                tmp_path / "t.corpus",
                text="text",
                client=later,
                progress=lambda stage, done, total: scheduler.process.kill(),
            )
        logging.getLogger("distributed").removeHandler(heard)
        # one that has not given it up yet
        with pytest.raises(EngineError, match=gone), cluster(other) as theirs:
            register(theirs)
    assert said == []
    assert "a worker was lost" not in caplog.text
    assert not list(tmp_path.iterdir())
