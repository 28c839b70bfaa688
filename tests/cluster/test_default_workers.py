"""Calls without a client: on the active client, or else on new workers; and calls inside a task of Dask."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.bag
import pytest
from distributed import Client, LocalCluster, get_client

import dslda
from dslda.cluster import opening
from dslda.corpus.store import Corpus
from dslda.model import Model
from tests.helpers.files import contents, write_records

TEXTS = ["good fine nice", "dull slow weak"]
RECORDS = [{"text": f"{TEXTS[i % 2]} film film{i % 3}", "y": float(i % 2)} for i in range(400)]
INGESTED: dict[str, Any] = {
    "text": "text",
    "response": "y",
    "min_df": 1,
    "max_df": 1.0,
    "partition_tokens": 500,
}
FIT: dict[str, Any] = {"n_topics": 2, "max_iter": 3}


pytestmark = pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """One worker process with one thread, which a task can fill."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    corpus = dslda.ingest(RECORDS, tmp_path_factory.mktemp("corpus") / "films.corpus", **INGESTED)
    assert corpus.n_partitions > 1
    return corpus


@pytest.fixture(scope="module")
def model(client, corpus) -> Model:
    return dslda.train(corpus, client=client, **FIT)


@pytest.fixture
def no_new_workers(monkeypatch) -> None:
    def start(*_: object) -> None:
        raise AssertionError("workers start although there are some")

    monkeypatch.setattr(opening, "_start", start)


def predictions(data: Any, *, on_its_cluster: bool) -> list[float]:
    """Predictions of a fit inside a task."""
    keywords = {"client": get_client()} if on_its_cluster else {}
    if isinstance(data, list):
        data, keywords = dask.bag.from_sequence(data, npartitions=3), {**keywords, **INGESTED}
    predicted: list[float] = dslda.train(data, **FIT, **keywords).predict(TEXTS).tolist()
    return predicted


@pytest.mark.parametrize("kind", ["corpus", "bag"])
@pytest.mark.parametrize("on_its_cluster", [False, True])
def test_a_fit_inside_a_task_ends_with_the_same_bits(client, corpus, model, kind, on_its_cluster):
    data = corpus.path if kind == "corpus" else RECORDS
    task = client.submit(predictions, data, on_its_cluster=on_its_cluster, pure=False)
    assert task.result(120) == model.predict(TEXTS).tolist()


def predictions_of_a_thread(data: str) -> list[float]:
    """Predictions of a fit in a thread that a task waits for."""
    get_client()  # the process of the worker then has a client
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(predictions, data, on_its_cluster=False).result()


def test_a_fit_in_a_thread_of_a_task_ends_with_the_same_bits(client, corpus, model):
    task = client.submit(predictions_of_a_thread, corpus.path, pure=False)
    assert task.result(120) == model.predict(TEXTS).tolist()


def ingest_and_score(records: str, model: Model, out: str) -> str:
    """Hash of a corpus that is made inside a task, on the cluster of the task, as the scores are."""
    client = get_client()
    corpus = dslda.ingest(records, f"{out}/a.corpus", client=client, **INGESTED)
    dslda.score(model, records, f"{out}/scores", client=client)
    return corpus.content_hash


BEGAN, END = threading.Event(), threading.Event()


def wait_for_the_end() -> None:
    BEGAN.set()
    END.wait(60)


def test_a_worker_that_was_closed_in_the_middle_of_a_task_holds_no_work():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        (worker,) = cluster.workers.values()
        waiting = client.submit(wait_for_the_end)
        assert BEGAN.wait(60)
        assert opening._is_held_by_task()
        client.sync(worker.close, executor_wait=False)
        assert worker.state.executing
        assert not opening._is_held_by_task()
        END.set()
        waiting.release()


def test_ingestion_and_scoring_inside_a_task_end_with_the_same_bytes(client, corpus, model, tmp_path):
    records = write_records(tmp_path / "films.jsonl", RECORDS)
    task = client.submit(ingest_and_score, str(records), model, str(tmp_path))
    assert task.result(120) == corpus.content_hash
    dslda.score(model, records, tmp_path / "here")
    assert contents(tmp_path / "scores" / "parts") == contents(tmp_path / "here" / "parts")


@pytest.mark.usefixtures("no_new_workers")
@pytest.mark.parametrize("work", ["train", "train on a bag", "ingest", "score"])
def test_the_active_client_does_the_work_and_the_log_says_so(
    client, corpus, model, tmp_path, monkeypatch, caplog, work
):
    for module in ("dslda.ingestion.ingest", "dslda.scoring.score"):
        monkeypatch.setattr(f"{module}.IN_PROCESS_BYTES", 0)
    path = tmp_path / "films.jsonl"
    write_records(path, RECORDS)
    with client.as_current(), caplog.at_level(logging.INFO):
        if work == "ingest":
            assert dslda.ingest(path, tmp_path / "a", **INGESTED).content_hash == corpus.content_hash
        elif work == "score":
            assert dslda.score(model, path, tmp_path / "out").n_new_parts == 1
        else:
            bag = dask.bag.from_sequence(RECORDS, npartitions=3)
            again = dslda.train(corpus, **FIT) if work == "train" else dslda.train(bag, **INGESTED, **FIT)
            assert again.predict(TEXTS).tolist() == model.predict(TEXTS).tolist()
    assert [m for m in caplog.messages if "active Dask client" in m and client.scheduler.address in m]
    assert client.status == "running"


def test_an_active_client_whose_workers_cannot_open_the_inputs_is_left_alone(client, corpus, caplog):
    def blind() -> None:
        from dslda.cluster import opening

        opening._have = lambda paths: False

    def seeing() -> None:
        import importlib

        from dslda.cluster import opening

        importlib.reload(opening)

    with client.as_current(), caplog.at_level(logging.INFO):
        assert opening.active_workers([corpus.path]) is not None
        client.run(blind)
        try:
            assert opening.active_workers([corpus.path]) is None
        finally:
            client.run(seeing)
    assert corpus.path in caplog.text


def test_no_client_is_active_where_none_is_the_default_or_current_one(client):
    assert opening.active_workers() is None


def test_a_client_that_is_closed_is_not_active(client):
    with Client(client.scheduler.address, set_as_default=False) as other:
        pass
    with other.as_current():
        assert opening.active_workers() is None
