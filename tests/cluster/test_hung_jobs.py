"""Ingestion and scoring with workers that stand still: the bytes of an undisturbed run, or an error that names them."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from distributed import Client

import dslda
from dslda.cluster import health
from dslda.cluster.runner import DaskRunner
from dslda.exceptions import EngineError
from dslda.inputs import files
from dslda.model import Model
from dslda.scoring import part
from tests.helpers.files import contents
from tests.helpers.processes import QUICK, STALL, both, sent_by_value

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and workers of POSIX"),
]

ARGUMENTS: dict[str, Any] = {"text": "text", "response": "y", "max_df": 1.0, "partition_tokens": 50_000}


@pytest.fixture(scope="module", autouse=True)
def _by_value() -> Iterator[None]:
    with sent_by_value(__name__):
        yield


@pytest.fixture(autouse=True)
def _settings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(health, "IDLE_SECONDS", 3.0)
    monkeypatch.setattr(health, "RESTART_SECONDS", 5.0)
    with dask.config.set(QUICK), caplog.at_level(logging.WARNING, "dslda.engine"):
        yield


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that make some parts, and some chunks."""
    folder = tmp_path_factory.mktemp("texts")
    for name in "abcdef":
        with (folder / f"{name}.jsonl").open("w") as stream:
            for i in range(150):
                words = [f"t{(i * j) % 300}" for j in range(800)]
                stream.write(json.dumps({"text": " ".join(words), "y": i % 7}) + "\n")
    return folder


@pytest.fixture(scope="module")
def model(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    corpus = dslda.ingest(texts / "a.jsonl", tmp_path_factory.mktemp("model") / "t.corpus", **ARGUMENTS)
    return dslda.train(corpus, response="y", n_topics=2)


@pytest.fixture(scope="module")
def scored(model: Model, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The output of a run in this process."""
    out = tmp_path_factory.mktemp("expected") / "out"
    dslda.score(model, texts, out)
    return contents(out)


class Stopper:
    """Stops processes once, when the first task of a stage is done. Given as progress."""

    def __init__(self, stage: str, pids: list[int]) -> None:
        self.stage, self.pids = stage, pids

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == self.stage:
            while self.pids:
                os.kill(self.pids.pop(), signal.SIGSTOP)


@pytest.mark.soak
def test_a_worker_that_is_stopped_while_it_scores_costs_no_row(
    model: Model,
    texts: Path,
    scored: dict[str, bytes],
    two_programs: Client,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (worker, pid), _ = both(two_programs).items()
    dslda.score(model, texts, tmp_path / "out", client=two_programs, progress=Stopper("score", [pid]))
    assert contents(tmp_path / "out") == scored
    assert f"worker {worker} sends no heartbeat" in caplog.text
    assert f"restarting {worker}" in caplog.text
    assert not psutil.pid_exists(pid)


@pytest.mark.soak
def test_a_worker_that_is_stopped_while_it_reads_changes_no_bit_of_the_corpus(
    texts: Path,
    two_programs: Client,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "MIN_CHUNK_BYTES", 50_000)
    alone = dslda.ingest(texts, tmp_path / "alone.corpus", **ARGUMENTS)
    (worker, pid), _ = both(two_programs).items()
    corpus = dslda.ingest(
        texts, tmp_path / "t.corpus", client=two_programs, progress=Stopper("read", [pid]), **ARGUMENTS
    )
    assert corpus.content_hash == alone.content_hash
    assert f"restarting {worker}" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.corpus", "t.corpus"]


def wait_for_ever(_: int) -> None:
    time.sleep(1e6)


def work_long(seconds: float) -> int:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))
    return 1


@pytest.mark.soak
def test_a_task_that_always_waits_is_named_in_the_end(
    two_programs: Client, caplog: pytest.LogCaptureFixture
) -> None:
    both(two_programs)
    with dask.config.set({"dslda.engine.iteration-budget": STALL}):
        runner = DaskRunner(two_programs)
    with pytest.raises(
        EngineError,
        match=r"scoring could not be completed: no task was done for \d+ seconds: worker tcp://\S+ answers but uses no "
        r"processor and has wait for ever.*see the workers' logs",
    ):
        list(runner.stream(wait_for_ever, [(0,)], n=1, stage="score"))
    assert caplog.text.count("restarting tcp://") == 2
    both(two_programs)
    assert not any(two_programs.processing().values())


@pytest.mark.soak
def test_a_task_that_takes_long_is_waited_for(two_programs: Client, caplog: pytest.LogCaptureFixture) -> None:
    workers = both(two_programs)
    with dask.config.set({"dslda.engine.iteration-budget": 0.1}):
        runner = DaskRunner(two_programs)
    assert runner.results(runner.map(work_long, [STALL + 7.0])) == [1]
    assert "is at work and has work long 1 of 1; waiting on" in caplog.text
    assert both(two_programs) == workers


def test_a_part_that_two_workers_come_to_write_is_whole(
    model: Model, texts: Path, scored: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One was taken for one that hangs, and goes on: each part is written by another in the middle of its writing."""
    under_way: list[tuple[Any, ...]] = []

    def score_part(*arguments: Any) -> Any:
        under_way.append(arguments)
        return part.score_part(*arguments)

    def measured(stream: Any, measure: Any = part._measured) -> Any:
        if under_way:
            part.score_part(*under_way.pop())
        return measure(stream)

    monkeypatch.setattr("dslda.scoring.score.score_part", score_part)
    monkeypatch.setattr(part, "_measured", measured)
    dslda.score(model, texts, tmp_path / "out")
    assert contents(tmp_path / "out") == scored


@pytest.mark.soak
def test_workers_and_nannies_that_are_stopped_end_a_run_that_goes_on_later(
    model: Model, texts: Path, scored: dict[str, bytes], two_programs: Client, tmp_path: Path
) -> None:
    pids = [p for pid in both(two_programs).values() for p in (psutil.Process(pid).ppid(), pid)]
    stopped = list(pids)
    try:
        with (
            dask.config.set({"dslda.engine.iteration-budget": STALL}),
            pytest.raises(
                EngineError,
                match=r"scoring could not be completed: .* the cluster has no worker; before, .*"
                r"worker tcp://\S+ sends no heartbeat and has score part \(.*/\w\.jsonl.*, \d+ records from [\d,]+ on\)",
            ) as raised,
        ):
            dslda.score(
                model, texts, tmp_path / "out", client=two_programs, progress=Stopper("score", stopped)
            )
    finally:  # they end as soon as they hear that they are left out: no test can come after this one
        for process in pids:
            os.kill(process, signal.SIGCONT)
    assert "the same command goes on with the" in "".join(raised.value.__notes__)
    assert len(list((tmp_path / "out" / "parts").glob("*.json"))) >= 1
    dslda.score(model, texts, tmp_path / "out")
    assert contents(tmp_path / "out") == scored
