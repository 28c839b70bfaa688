"""Scoring on Dask: the bytes of one process for any number of workers, and after one was killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dslda
from dslda.cluster.client import ClientLater
from dslda.exceptions import InputError
from dslda.model import Model
from tests.helpers.files import contents, write_records

Clusters = Callable[[int], AbstractContextManager[Client]]

WORDS = [f"t{i}" for i in range(300)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Trained here on some hundred short texts."""
    folder = tmp_path_factory.mktemp("model")
    with (folder / "t.jsonl").open("w") as stream:
        for i in range(200):
            text = " ".join(WORDS[i % 7 * 40 + j * i % 40] for j in range(30))
            stream.write(json.dumps({"text": text, "y": i % 7}) + "\n")
    corpus = dslda.ingest(folder / "t.jsonl", folder / "t.corpus", text="text", response="y", max_df=1.0)
    return dslda.train(corpus, response="y", n_topics=3)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of more than 2 MB, and a small one."""
    folder = tmp_path_factory.mktemp("texts")
    for name, n in (("a", 700), ("b", 300), ("c", 3)):
        with (folder / f"{name}.jsonl").open("w") as stream:
            for i in range(n):
                words = [WORDS[(i * j) % 300] if j % 9 else f"new{i * j % 501}" for j in range(800)]
                stream.write(json.dumps({"id": f"{name}{i % 290}", "text": " ".join(words)}) + "\n")
    return folder


@pytest.fixture(scope="module")
def expected(model: Model, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The output of a run in this process."""
    out = tmp_path_factory.mktemp("expected") / "out"
    run = dslda.score(model, texts, out, id="id")
    assert len(run.manifest["parts"]) > 3
    assert run.manifest["duplicate_ids"]["count"] == 410 + 10
    assert run.manifest["new_words"]["words"][0]["count"] > 100
    return contents(out)


def test_the_same_bytes_on_two_workers(
    processes: Clusters, model: Model, texts: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    seen: list[tuple[str, int, int]] = []
    with processes(2) as client:
        dslda.score(
            model, texts, tmp_path / "out", id="id", client=client, progress=lambda *a: seen.append(a)
        )
        assert contents(tmp_path / "out") == expected
        n_parts = sum(name.startswith("part-") for name in expected)
        assert ("score", n_parts, n_parts) in seen

        # of parts that are read again on workers the damaged one is scored again
        part = tmp_path / "out" / "part-000001.parquet"
        part.write_bytes(part.read_bytes()[::-1])
        run = dslda.score(
            model,
            texts,
            tmp_path / "out",
            id="id",
            client=client,
            verify=True,
            progress=lambda *a: seen.append(a),
        )
        assert run.n_new_parts == 1
        assert ("verify", n_parts, n_parts) in seen
        assert contents(tmp_path / "out") == expected

        # an error of one part keeps the others, and is that of the first
        bad = tmp_path / "bad"
        bad.mkdir()
        for path in texts.iterdir():
            lines = path.read_text().splitlines(keepends=True)
            if path.name == "b.jsonl":
                lines[290] = lines[295] = "no JSON\n"
            (bad / path.name).write_text("".join(lines))
        with pytest.raises(InputError, match=r"b\.jsonl, line 291: not JSON"):
            dslda.score(model, bad, tmp_path / "stopped", id="id", client=client)
        assert len(list((tmp_path / "stopped" / "parts").glob("*.json"))) >= 2


@pytest.mark.slow
def test_a_killed_worker_costs_no_row(
    model: Model, texts: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    killed = threading.Event()

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "score" and done == 1 and not killed.is_set():
            victim: Any = client.run(os.getpid)
            os.kill(next(iter(victim.values())), signal.SIGKILL)
            killed.set()

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        dslda.score(model, texts, tmp_path / "out", id="id", client=client, progress=progress)
        assert killed.is_set()
        deadline = time.monotonic() + 60
        while len(client.nthreads()) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)  # so that its nanny is not in the middle of a start when the cluster closes
    assert contents(tmp_path / "out") == expected


@pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")
def test_what_is_in_the_memory_of_this_process_is_worked_on_here_or_refused(
    processes: Clusters, tmp_path: Path, assert_same: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write_records(
        tmp_path / "t.jsonl", ({"text": f"{WORDS[i % 9]} {WORDS[i % 7]}", "y": i % 7} for i in range(300))
    )
    settings = {"text": "text", "response": "y", "max_df": 1.0, "min_df": 1, "partition_tokens": 100}
    kept = dslda.ingest(tmp_path / "t.jsonl", **settings)
    stored = dslda.ingest(tmp_path / "t.jsonl", tmp_path / "t.corpus", **settings)
    assert kept.n_partitions > 1
    with caplog.at_level("INFO"):
        model = dslda.train(kept, response="y", n_topics=3, max_iter=3)
    assert "the corpus is in the memory of this process" in caplog.text

    def refused() -> Any:
        return pytest.raises(
            InputError, match=r"memory://\S+ must be where workers can open it; it is in the memory of"
        )

    later = ClientLater(lambda: pytest.fail("workers were started"), here=True)
    with processes(1) as client:
        for each in (client, later):
            with refused():
                dslda.train(kept, response="y", n_topics=3, client=each)
            with refused():
                dslda.score(model, kept, tmp_path / "scores", client=each)
            with refused():
                dslda.score(model, stored, "memory://kept/scores", client=each)
        assert_same(dslda.train(stored, response="y", n_topics=3, max_iter=3, client=client), model)
    assert not (tmp_path / "scores").exists()
    dslda.score(model, kept, tmp_path / "scores")
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert_same(dslda.train(kept, response="y", n_topics=3, max_iter=3, client=client), model)
        dslda.score(model, kept, tmp_path / "scored", client=client)
    parts = [(tmp_path / name / "part-000000.parquet").read_bytes() for name in ("scores", "scored")]
    assert parts[0] == parts[1]
