"""Everything in a bucket of a server that speaks S3, in a process of its own; and who may write there, when processes are
killed and stopped."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dslda
from dslda.exceptions import ConvergenceWarning, DataWarning, InputError, OutputError
from dslda.storage import lease
from dslda.storage.location import Location
from dslda.storage.lock import only_writer
from tests.helpers.progress import SilentProgress

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
    # s3fs leaves the session of a file system that is collected in another thread to its finaliser
    pytest.mark.filterwarnings("ignore:Exception ignored in. <function ClientSession"),
    pytest.mark.filterwarnings("ignore:Unclosed client session:ResourceWarning"),
]

ROOT = Path(__file__).parents[2]
FIELDS: dict[str, Any] = {"text": "text", "id": "id", "response": "stars", "min_df": 1, "max_df": 1.0}
SERVER = """
    import logging, sys
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    from moto.server import ThreadedMotoServer
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
"""
HOLDER = """
    import sys
    from dslda.storage import lease
    from dslda.storage.location import Location
    from dslda.storage.lock import only_writer
    from dslda.exceptions import OutputError
    lease.RENEWAL_SECONDS = 0.2
    try:
        with only_writer(Location.of(sys.argv[1])) as lock:
            print("held", lock.alone, flush=True)
            sys.stdin.readline()
            lock.check()
            print("kept", flush=True)
    except OutputError as error:
        print(error, flush=True)
"""


def python(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of one with a bucket, which programs that are started from here find by themselves."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()  # of a server before this one, which these tests had in between others
    process = python(SERVER)
    address = f"http://127.0.0.1:{line(process)}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": address,
        }.items():
            patch.setenv(name, value)
        bucket().mkdir("bucket")
        yield address
    end(process)


@pytest.fixture
def place(server: str) -> str:
    return f"s3://bucket/{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files a.jsonl, b.jsonl and c.jsonl."""
    folder = tmp_path_factory.mktemp("records")
    for name, n in (("a", 300), ("b", 60), ("c", 40)):
        with (folder / f"{name}.jsonl").open("w") as stream:
            for i in range(n):
                words = ("good fine lovely", "bad poor awful")[i % 2] + f" dress word{i % 7}"
                record = {"id": f"{name}{i}", "text": words, "stars": 5 - 4 * (i % 2) + i % 5 / 10}
                stream.write(json.dumps(record) + "\n")
    return folder


def bucket() -> Any:
    import fsspec

    return fsspec.filesystem("s3")


def objects(place: str) -> dict[str, bytes]:
    """All that is in a place, by its name there."""
    fs = bucket()
    fs.invalidate_cache()
    root = place.removeprefix("s3://")
    return {name.removeprefix(f"{root}/"): fs.cat_file(name) for name in fs.find(root)}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def fit(corpus: str, **settings: Any) -> dslda.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return dslda.train(corpus, response="stars", n_topics=2, tol=0.0, **settings)


def test_all_of_it_has_the_bits_of_a_local_disk(
    place: str, records: Path, tmp_path: Path, assert_same: Any
) -> None:
    def put(name: str) -> None:
        raw = (records / f"{name}.jsonl").read_bytes()
        bucket().pipe_file(f"{place}/in/{name}.jsonl", raw)
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.jsonl").write_bytes(raw)

    put("a")
    put("b")
    hashes, models = [], []
    for where in (place, str(tmp_path)):
        corpus = f"{where}/a.corpus"
        dslda.ingest(f"{where}/in/b.jsonl", corpus, **FIELDS)
        dslda.ingest(f"{where}/in/a.jsonl", corpus, **FIELDS, overwrite=True)
        fit(corpus, max_iter=2).save(f"{where}/m.model")
        models.append(dslda.load_model(f"{where}/m.model"))
        dslda.ingest(f"{where}/in/b.jsonl", corpus, append=True)
        with pytest.warns(DataWarning, match="nothing was appended"):
            dslda.ingest(f"{where}/in/b.jsonl", corpus, append=True)
        hashes.append(dslda.open_corpus(corpus).content_hash)
    assert hashes[0] == hashes[1]
    assert_same(*models)
    # of a run that was killed when it looked whether it could write
    bucket().pipe_file(f"{place}/scores/.manifest.json.0123abcd.probe", b"")
    for new_parts in (1, 1, 0):
        for where in (place, str(tmp_path)):
            run = dslda.score(models[1], f"{where}/in/*.jsonl", f"{where}/scores", verify=new_parts == 0)
            assert run.n_new_parts == new_parts
        put("c")
    remote, local = objects(f"{place}/scores"), files(tmp_path / "scores")
    assert remote.keys() == local.keys()
    of_rows = [name for name in local if name.endswith((".parquet", ".ids"))]
    assert len(of_rows) == 4
    assert [name for name in of_rows if remote[name] != local[name]] == []
    # nothing is left of locks, nor of looks whether something could be written
    assert [name for name in objects(place) if name.startswith(".") or "/." in name] == []


def test_a_run_that_would_score_itself_is_refused(place: str, records: Path, tmp_path: Path) -> None:
    bucket().put_file(records / "a.jsonl", f"{place}/in/a.jsonl")
    model = fit(str(dslda.ingest(records / "a.jsonl", tmp_path / "a.corpus", **FIELDS).path), max_iter=2)
    with pytest.raises(InputError, match="must not lie in an input"):
        dslda.score(model, f"{place}/in", f"{place}/in/scores")
    with pytest.raises(InputError, match="must not lie in the folder of the run"):
        dslda.score(model, f"{place}/in/a.jsonl", f"{place}/in")
    assert dslda.score(model, f"{place}/in", f"{place}/in-scores").n_new_parts == 1


def test_the_lock_of_a_killed_process_is_given_to_the_next(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.2)
    holder = python(HOLDER, place)
    try:
        assert line(holder) == "held True"
        says = rf"{place} is being written by another run \(process {holder.pid} on .*; wait for it to end"
        with pytest.raises(OutputError, match=says), only_writer(Location.of(place)):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        monkeypatch.setattr(lease, "LOOKS", 3)
        with only_writer(Location.of(place)) as lock:
            assert lock.alone
            lock.check()
    finally:
        end(holder)
    parent, name = place.rsplit("/", 1)
    assert objects(f"{parent}/.{name}.lock") == {}


def test_a_process_that_was_stopped_and_superseded_may_not_complete(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(lease, "LOOKS", 3)
    holder = python(HOLDER, place)
    try:
        assert line(holder) == "held True"
        os.kill(holder.pid, signal.SIGSTOP)
        with only_writer(Location.of(place)) as lock:
            os.kill(holder.pid, signal.SIGCONT)
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()
            assert line(holder).startswith(f"{place} was given to another run: this one stood still")
            assert holder.wait(30) == 0
            lock.check()
    finally:
        end(holder)


def test_of_two_that_begin_at_once_one_holds_it(place: str) -> None:
    holders = [python(HOLDER, place) for _ in range(2)]
    try:
        said = [line(holder) for holder in holders]
    finally:
        for holder in holders:
            end(holder)
    assert sorted(text.partition(" ")[0] for text in said) == ["held", place]
    assert all("is being written by another run (process " in text for text in said if text[:4] != "held")


class Thief(SilentProgress):
    """Takes a run's lock away in the middle, as another run does after the first has stood still."""

    def __init__(self, folder: str, stage: str = "") -> None:
        self.folder, self.stage = folder, stage

    def steal(self) -> None:
        said = {"process": 1, "host": "elsewhere", "token": "f" * 32}
        bucket().pipe_file(f"{self.folder}/99", json.dumps(said).encode())

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == self.stage:
            self.steal()

    def iteration(self, record: Any) -> None:
        if record.iteration == 2:
            self.steal()


LOST = "was given to another run: this one stood still for so long"


@pytest.mark.parametrize("how", ["new", "overwrite", "append"])
def test_a_corpus_whose_lock_was_lost_is_not_completed(place: str, records: Path, how: str) -> None:
    out = f"{place}/a.corpus"
    settings: dict[str, Any] = {} if how == "new" else {how: True}
    if how != "new":
        dslda.ingest(records / "a.jsonl", out, **FIELDS)
    before = objects(out)
    with pytest.raises(OutputError, match=LOST):
        dslda.ingest(
            records / "b.jsonl",
            out,
            **({} if how == "append" else FIELDS),
            **settings,
            progress=Thief(f"{place}/.a.corpus.lock", "write"),
        )
    after = objects(out)
    if how == "new":
        with pytest.raises(dslda.exceptions.FormatError, match="is unfinished"):
            dslda.open_corpus(out)
        # it may be what the other one writes
        assert after
        bucket().rm(f"{place}/.a.corpus.lock".removeprefix("s3://"), recursive=True)
        # once that has ended, a folder without a manifest is replaced
        assert dslda.ingest(records / "b.jsonl", out, **FIELDS).n_documents > 0
        assert not [name for name in objects(place) if ".lock/" in name]
    else:
        assert {name: raw for name, raw in after.items() if name in before} == before
        assert dslda.open_corpus(out).n_documents == 300


def test_scores_whose_lock_was_lost_are_not_completed(place: str, records: Path, tmp_path: Path) -> None:
    model = fit(str(dslda.ingest(records / "a.jsonl", tmp_path / "a.corpus", **FIELDS).path), max_iter=2)
    out = f"{place}/scores"
    dslda.score(model, records / "a.jsonl", out)
    before = objects(out)
    with pytest.raises(OutputError, match=LOST):
        dslda.score(
            model, [records / "a.jsonl", records / "b.jsonl"], out, progress=Thief(f"{out}/.lock", "score")
        )
    after = objects(out)
    assert after["manifest.json"] == before["manifest.json"]
    # the other one, which is gone too, is not waited for here
    bucket().rm(f"{out}/.lock", recursive=True)
    run = dslda.score(model, [records / "a.jsonl", records / "b.jsonl"], out)
    assert run.n_new_parts == 0
    assert run.manifest["status"] == "complete"


def test_a_fit_whose_lock_was_lost_keeps_off_the_checkpoint(
    place: str, records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dslda.ingest(records / "a.jsonl", tmp_path / "a.corpus", **FIELDS)
    kept = {"checkpoint": f"{place}/c", "checkpoint_every": 1, "max_iter": 5}
    fit(str(tmp_path / "a.corpus"), **kept, progress=Thief(f"{place}/c/.lock"))
    assert f"no checkpoint after iteration 2: {place}/c {LOST}" in caplog.text
    from dslda.persistence.checkpoint_store import read_checkpoint

    assert read_checkpoint(f"{place}/c").n_iterations == 1


def test_what_killed_runs_have_left_is_removed_by_the_next(place: str, records: Path) -> None:
    out = f"{place}/a.corpus"
    dslda.ingest(records / "a.jsonl", out, **FIELDS)
    whole = objects(out)
    for name in (
        ".a.corpus.0123abcd.partial/x",
        ".a.corpus.0123abcd.probe",
        "a.corpus/appended/1-0123abcd/x",
    ):
        bucket().pipe_file(f"{place}/{name}", b"left")
    bucket().pipe_file(f"{place}/.b.corpus.0123abcd.partial/x", b"of another")
    dslda.ingest(records / "b.jsonl", out, append=True)
    names = objects(place)
    assert [name for name in names if "0123abcd" in name] == [".b.corpus.0123abcd.partial/x"]
    assert whole.items() - objects(out).items() == {("zarr.json", whole["zarr.json"])}
    assert dslda.open_corpus(out).n_documents == 360


@pytest.mark.soak
def test_a_fit_that_is_killed_goes_on_to_the_same_bits(
    place: str,
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    assert_same: Any,
) -> None:
    out = f"{place}/a.corpus"
    dslda.ingest(records / "a.jsonl", out, **FIELDS)
    arguments = ["--response", "stars", "--topics", "2", "--tol", "0", "--max-iter", "12"]
    arguments += ["--checkpoint", f"{place}/c", "--checkpoint-every", "1", "--out", f"{place}/m.model"]
    killed = subprocess.Popen(
        [sys.executable, "-m", "dslda", "train", out, *arguments], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        iterations = 0
        while iterations < 2:
            assert killed.poll() is None
            assert time.monotonic() < deadline
            with suppress(FileNotFoundError):
                manifest = json.loads(bucket().cat_file(f"{place}/c/zarr.json"))
                iterations = manifest["attributes"]["iterations"]
    finally:
        killed.kill()
        killed.wait()
    assert "c/.lock/1" in objects(place)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(lease, "LOOKS", 3)
    caplog.set_level(logging.INFO, "dslda")
    model = fit(out, max_iter=12, checkpoint=f"{place}/c", resume=True)
    assert f"process {killed.pid} on " in caplog.text
    assert "is gone: going on with" in caplog.text
    assert "going on after" in caplog.text
    assert_same(model, fit(out, max_iter=12))
    assert [name for name in objects(place) if "/.lock" in name] == []


def test_credentials_that_are_missing_are_one_line(server: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-m", "dslda", "info", "s3://bucket/a.corpus"],
        cwd=ROOT,
        env=environment
        | {"AWS_ENDPOINT_URL": server, "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "dslda: error: s3://bucket/a.corpus cannot be reached: Unable to locate credentials"
    )
    assert done.stderr.count("\n") == 1
