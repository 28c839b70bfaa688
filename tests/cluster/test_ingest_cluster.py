from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import dask.bag
import pytest
from distributed import Client, LocalCluster

from dslda.cluster.runner import DaskRunner, merge_in_tree
from dslda.corpus.text import TextSettings
from dslda.exceptions import DataWarning, InputError
from dslda.ingestion.corpus_plan import blocks_from_bag
from dslda.ingestion.ingest import ingest
from dslda.inputs import files
from dslda.inputs.fields import Fields
from tests.helpers.processes import without_tracker

REPOSITORY = Path(__file__).resolve().parents[2]
ARGUMENTS = {
    "text": "text",
    "id": "id",
    "response": ["rating", "class_name"],
    "covariates": ["age", "division"],
    "categorical": ["class_name", "division"],
    "partition_tokens": 10_000,
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two real worker processes."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def lines(shared_data) -> list[bytes]:
    with gzip.open(shared_data / "womens_clothing" / "womens_clothing.jsonl.gz", "rb") as file:
        return [line for _, line in zip(range(1500), file, strict=False)]


@pytest.fixture(scope="module")
def in_process(lines, tmp_path_factory) -> str:
    """Hash of the corpus made without Dask."""
    path = tmp_path_factory.mktemp("in_process") / "a.jsonl"
    path.write_bytes(b"".join(lines))
    return ingest(path, **ARGUMENTS).content_hash


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "csv", "parquet", "many files"])
def test_two_processes_write_the_bits_of_one(client, lines, in_process, tmp_path, monkeypatch, kind):
    import pandas as pd

    monkeypatch.setattr(files, "MIN_CHUNK_BYTES", 50_000)
    path = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        path.write_bytes(b"".join(lines))
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress(b"".join(lines)))
    elif kind == "many files":
        path = tmp_path / "folder"
        path.mkdir()
        for i in range(0, len(lines), 40):
            (path / f"{i:05d}.jsonl").write_bytes(b"".join(lines[i : i + 40]))
    else:
        frame = pd.DataFrame(map(json.loads, lines))
        if kind == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path)
    told = []
    corpus = ingest(
        path, tmp_path / "a.corpus", client=client, progress=lambda *a: told.append(a), **ARGUMENTS
    )
    assert corpus.content_hash == in_process
    assert len(corpus.levels["class_name"]) == 18
    assert corpus.covariate_summaries["division"].distinct == (0, 1, 2)
    n_chunks = max(total for stage, _, total in told if stage == "read")
    assert n_chunks >= 6
    assert ("write", corpus.n_partitions, corpus.n_partitions) in told


def test_two_processes_append_the_bits_of_one(client, lines, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MIN_CHUNK_BYTES", 50_000)
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:1000]))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines[1000:]))
    grown = []
    for name, chosen in (("one", None), ("two", client)):
        ingest(tmp_path / "a.jsonl", tmp_path / f"{name}.corpus", **ARGUMENTS)
        path = tmp_path / f"{name}.corpus"
        grown.append(ingest(tmp_path / "b.jsonl", path, append=True, partition_tokens=3_000, client=chosen))
    one, two = grown
    with pytest.warns(DataWarning, match=r"all 500 documents are in .*two.corpus already"):
        again = ingest(tmp_path / "b.jsonl", path, append=True, client=client)
    assert again.content_hash == two.content_hash
    assert one.content_hash == two.content_hash
    assert one.n_documents == 1500
    assert one.manifest.appended[0].n_partitions > 1
    assert one.vocabulary.document_frequency.tolist() == two.vocabulary.document_frequency.tolist()
    assert [two.read(p).n_documents for p in range(two.n_partitions)] == [
        p.n_documents for p in one.partitions
    ]


def test_a_corpus_in_memory_is_kept_by_this_process_and_not_by_a_worker(client, lines, in_process, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    corpus = ingest(tmp_path / "a.jsonl", client=client, **ARGUMENTS)
    assert corpus.content_hash == in_process
    assert corpus.read(0).n_documents > 0
    with pytest.warns(DataWarning, match="all 1,500 documents are in memory://"):
        ingest(tmp_path / "a.jsonl", corpus.path, append=True, client=client)


def test_an_error_in_a_task_comes_as_itself_and_leaves_nothing(client, lines, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(files, "MIN_CHUNK_BYTES", 50_000)
    bad = [*lines[:1234], b'{"text": "fine", "rating": "five"}\n', *lines[1234:]]
    (tmp_path / "a.jsonl").write_bytes(b"".join(bad))
    with pytest.raises(
        InputError, match=r"a\.jsonl, line 1235: response 'rating' must be a number, got 'five'"
    ):
        ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", client=client, **ARGUMENTS)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    assert "Traceback" not in caplog.text


def test_names_of_many_chunks_are_merged_on_the_workers(client, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MIN_CHUNK_BYTES", 20_000)
    lines = [json.dumps({"text": "word", "y": f"class {i % 10_000:05d}"}) for i in range(12_000)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    arguments = {"text": "text", "response": "y", "categorical": "y", "min_df": 1, "max_df": 1.0}
    corpus = ingest(tmp_path / "a.jsonl", client=client, **arguments)
    assert corpus.levels["y"] == tuple(f"class {i:05d}" for i in range(10_000))
    codes = [c for i in range(corpus.n_partitions) for c in corpus.read(i).responses["y"]]
    assert codes == [i % 10_000 for i in range(12_000)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"text": "word", "y": "one more"}']))
    with pytest.raises(InputError, match="field 'y' must have at most 10,000 levels to be categorical"):
        ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", client=client, **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.slow
def test_blocks_of_a_bag_survive_the_death_of_a_worker(client, lines):
    bag = dask.bag.from_sequence(lines[:500], npartitions=5).map(json.loads)
    found = blocks_from_bag(
        bag,
        client,
        fields=Fields(text="text", responses=("rating",)),
        settings=TextSettings(),
        partition_tokens=2000,
    )
    futures = list(found.futures)
    before = client.gather(futures)
    holder = next(iter(client.who_has(futures).values()))[0]
    os.kill(client.run(os.getpid)[holder], signal.SIGKILL)
    after = client.gather([client.submit(lambda block: block, future, pure=False) for future in futures])
    for a, b in zip(before, after, strict=True):
        assert a.terms.tobytes() == b.terms.tobytes()
        assert a.counts.tobytes() == b.counts.tobytes()
        assert a.responses["rating"].tobytes() == b.responses["rating"].tobytes()


def test_what_tasks_share_is_on_every_worker_before_the_first(client):
    client.wait_for_workers(2)
    shared = DaskRunner(client).share(b"words")
    assert set(client.who_has([shared])[shared.key]) == set(client.nthreads())


def test_workers_of_ones_own_without_the_certificates_that_are_required_are_refused(
    lines, tmp_path, monkeypatch
):
    monkeypatch.setattr("dslda.ingestion.ingest.IN_PROCESS_BYTES", 0)
    # no client of another test is active
    monkeypatch.setattr("distributed.client._global_clients", {})
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:100]))
    with (
        dask.config.set({"distributed.comm.require-encryption": True}),
        pytest.raises(InputError, match=r"workers on this machine, where .* got no certificate"),
    ):
        ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", **ARGUMENTS)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.slow
def test_a_script_without_guard_and_client_gets_workers_of_its_own(lines, in_process, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    script = tmp_path / "script.py"
    script.write_text(
        "import dslda.ingestion.ingest as module\n"
        "module.IN_PROCESS_BYTES = 0\n"
        f"corpus = module.ingest('a.jsonl', 'a.corpus', **{ARGUMENTS!r})\n"
        "print(corpus.content_hash)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert without_tracker(done.stderr) == ""
    assert done.stdout.split() == [in_process]
    assert not list((tmp_path / "tmp").glob("dslda-*"))
    shutil.rmtree(tmp_path / "tmp")


def _slowly(value: int) -> int:
    time.sleep(0.2)
    return value


def _sum(*values: int) -> int:
    return sum(values)


def test_what_is_given_up_costs_the_client_neither_its_connection_nor_its_results(client):
    kept = client.submit(int, 7)
    assert kept.result() == 7
    runner = DaskRunner(client)
    leaves = runner.map(_slowly, range(40))
    # of a tree of sums only the last future is kept: those between are wanted by nobody
    total = merge_in_tree(runner, leaves, _sum)
    gc.collect()
    runner.cancel()
    assert client.submit(int, 8).result(timeout=30) == 8
    assert client.status == "running"
    assert kept.status == "finished"
    del leaves, total
