"""An ingest that ends at any of its writes, by SIGKILL or SIGTERM, leaves the old corpus or the new one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dslda.corpus.store import open_corpus
from dslda.exceptions import OutputError
from dslda.ingestion.ingest import ingest
from dslda.storage.location import Location
from dslda.storage.lock import only_writer
from tests.helpers.files import write_records

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals, forks and file locks of POSIX"),
]

fcntl = pytest.importorskip("fcntl")

REPOSITORY = Path(__file__).resolve().parents[2]
FIELDS = {"text": "text", "id": "id", "response": "y", "min_df": 1, "max_df": 1.0, "partition_tokens": 150}
N_OLD, N_NEW = 40, 30

HARNESS = '''
"""Run ingest in children that a signal ends at their n-th change of a file, and look at the files that remain."""
import json, logging, os, shutil, signal, sys, traceback
from pathlib import Path

import dslda.ingestion.ingest as module
# all that children would import, each for itself
import fsspec.implementations.local, numcodecs.blosc, pandas, pyarrow.compute, rich.progress
import sklearn.feature_extraction.text, zarr, zarr.codecs, zarr.storage
from dslda.cli.program import run
from dslda.corpus.store import open_corpus
from dslda.exceptions import InputError
from tests.helpers.dying_children import count_changes, run_in_child

job = json.loads(sys.argv[1])
folder = Path(job["folder"])
place = folder / "work" / "c.corpus"
logging.disable(logging.CRITICAL)
def reset():
    shutil.rmtree(folder / "work", ignore_errors=True)
    (folder / "work").mkdir()
    if job["mode"] != "new":
        shutil.copytree(folder / "old.corpus", place)


def work():
    if job["mode"] == "append":
        arguments = {"append": True, "partition_tokens": job["fields"]["partition_tokens"]}
    else:
        arguments = job["fields"] | {"overwrite": job["mode"] == "overwrite" or place.exists()}
    module.ingest(folder / "new.jsonl", place, **arguments)


def program():
    options = {"append": ["--append"], "overwrite": ["--overwrite"], "new": []}[job["mode"]]
    fields = ["--text", "text", "--id", "id", "--response", "y", "--min-df", "1", "--max-df", "1.0"]
    fields += ["--partition-tokens", "150"]
    return run(["ingest", str(folder / "new.jsonl"), "--out", str(place), *fields, *options])


def state():
    """Content hash of all that can be read, or None; nothing may open that cannot be read."""
    try:
        corpus = open_corpus(place)
    except InputError as error:
        assert "does not exist" in str(error), error
        left = list(place.parent.glob(".c.corpus.*.old"))
        assert ("has left it as" in str(error)) == bool(left), error
        return f"aside: {open_corpus(left[0]).content_hash}" if left else None
    len(corpus.vocabulary)
    for i in range(corpus.n_partitions):
        corpus.read(i, doc_id=True)
    return corpus.content_hash


def left():
    """Files in the folder that are not part of the corpus."""
    found = [p.name for p in place.parent.iterdir() if p != place]
    if place.exists():
        named = {"zarr.json"} | {g.path.partition("/")[2] for g in open_corpus(place).manifest.appended}
        found += [p.name for p in place.glob("appended/*") if p.name not in named] + [
            p.name for p in place.glob("*partial*")
        ]
    return found


def once(number, at, act, result):
    def killed():
        seen = count_changes(folder / "work", at=at, number=number)
        code = act()
        if at == 0:
            result.write_text(json.dumps(seen[0]))
        return code

    def look():
        first = {"state": state(), "left": left()}
        work()
        result.write_text(json.dumps(first | {"then": state(), "then_left": left()}))

    reset()
    code = run_in_child(killed)
    if at == 0:
        assert code == 0
        return json.loads(result.read_text())
    assert run_in_child(look) == 0, f"at change {at}"
    return json.loads(result.read_text()) | {"code": code, "at": at}


result = folder / "result.json"
act = program if job["signal"] == signal.SIGTERM else work
n = once(0, 0, act, result)
points = sorted({*range(1, n + 1, max(n // job["points"], 1)), *range(n - job["last"], n + 1)})
print(json.dumps([once(job["signal"], at, act, result) for at in points]), flush=True)
'''


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with old.corpus, new.jsonl to replace it or be appended to it."""
    folder = tmp_path_factory.mktemp("kills")
    for name, n, words in (("old", N_OLD, "apple pear plum"), ("new", N_NEW, "pear plum apple fig")):
        rows = [{"id": f"{name}{i}", "text": " ".join([words] * (1 + i % 5)), "y": i / 7} for i in range(n)]
        write_records(folder / f"{name}.jsonl", rows)
    ingest(folder / "old.jsonl", folder / "old.corpus", **FIELDS)
    return folder


@pytest.fixture(scope="module")
def hashes(made: Path) -> dict[str, str]:
    """Content hashes of the corpus as it was, and as each way of writing should leave it."""
    grown = Path(shutil.copytree(made / "old.corpus", made / "grown.corpus"))
    new = ingest(made / "new.jsonl", **FIELDS).content_hash
    return {
        "old": open_corpus(made / "old.corpus").content_hash,
        "new": new,
        "overwrite": new,
        "append": ingest(made / "new.jsonl", grown, append=True, partition_tokens=150).content_hash,
    }


@pytest.mark.parametrize(
    ("mode", "number"),
    [
        ("new", signal.SIGKILL),
        pytest.param("overwrite", signal.SIGKILL, marks=pytest.mark.soak),
        ("append", signal.SIGKILL),
        pytest.param("append", signal.SIGTERM, marks=pytest.mark.soak),
    ],
)
def test_a_run_that_is_ended_at_any_write_leaves_the_old_or_the_new(
    made: Path, hashes: dict[str, str], tmp_path: Path, mode: str, number: signal.Signals
) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "made"))
    before = None if mode == "new" else hashes["old"]
    job = {
        "folder": str(folder),
        "mode": mode,
        "signal": number,
        "fields": FIELDS,
        "points": 5 if number == signal.SIGKILL else 2,
        "last": 6 if number == signal.SIGKILL else 2,
    }
    done = subprocess.run(
        [sys.executable, "-c", HARNESS, json.dumps(job)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    states = {point["state"] for point in found}
    # between the two renames of a run that replaces, the old one is aside, which the error says
    assert states <= {before, hashes[mode], *([f"aside: {before}"] if mode == "overwrite" else [])}
    assert len(found) > job["points"]
    for point in found:
        # also where the manifest of an append was in its place: documents that are there are not appended again
        assert point["then"] == hashes[mode], point
        assert point["then_left"] == [], point
        if number == signal.SIGTERM:
            assert not any("partial" in name or name[0].isdigit() for name in point["left"]), point
    if number == signal.SIGKILL:
        assert before in states
        assert hashes[mode] in states
        assert any(point["left"] for point in found)


HOLDER = """
    import sys
    from dslda.storage.location import Location
    from dslda.storage.lock import only_writer
    with only_writer(Location.of(sys.argv[1])) as lock:
        print(lock.alone, flush=True)
        sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """A process that writes an output until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(path)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def test_a_second_writer_is_refused_and_a_killed_one_locks_nothing(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "made"))
    cases = [
        (folder / "old.corpus", {"append": True}),
        (folder / "old.corpus", {"overwrite": True, **FIELDS}),
        (folder / "fresh" / "new.corpus", FIELDS),
    ]
    for path, arguments in cases:
        before = sorted(p for p in folder.rglob("*"))
        process = holder(path)
        try:
            with pytest.raises(
                OutputError,
                match=rf"{path.name} is being written by another run \(process {process.pid} on .*wait",
            ):
                ingest(folder / "new.jsonl", path, **arguments)
        finally:
            process.kill()
            process.communicate()
        assert (path.parent / f".{path.name}.lock").exists()
        assert [p for p in before if not p.exists()] == []
        ingest(folder / "new.jsonl", path, **arguments)
        assert not (path.parent / f".{path.name}.lock").exists()


def test_a_second_writer_in_the_same_process_is_refused_and_the_first_ends_the_lock(tmp_path: Path) -> None:
    location = Location.of(tmp_path / "deep" / "er" / "c.corpus")
    with only_writer(location) as lock:
        assert lock.alone
        refused = pytest.raises(OutputError, match=rf"written by another run \(process {os.getpid()} on")
        with refused, only_writer(location):
            pass
    assert list(tmp_path.iterdir()) == []
    with only_writer(location) as lock:
        assert lock.alone


def test_without_locks_a_warning_asks_for_care_and_nothing_of_others_is_removed(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a file system cannot be made here, so the system call gives its answer."""

    def flock(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / ".c.corpus.0123abcd.partial").mkdir()
    assert ingest(made / "new.jsonl", tmp_path / "c.corpus", **FIELDS).n_documents == N_NEW
    assert "c.corpus is not locked (No locks available)" in caplog.text
    assert {p.name for p in tmp_path.iterdir()} == {"c.corpus", ".c.corpus.0123abcd.partial"}


def test_of_many_that_begin_at_once_one_writes(made: Path, tmp_path: Path) -> None:
    """Real programs: one ends well, the others say that it is writing, or was there before them."""
    program = [sys.executable, "-c", "from dslda.cli import main; main()", "ingest", str(made / "new.jsonl")]
    program += ["--text", "text", "--max-df", "1.0", "--out", str(tmp_path / "c.corpus")]
    processes = [
        subprocess.Popen(program, env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert sorted(process.returncode for process in processes)[0] == 0
    refused = [e for process, e in zip(processes, errors, strict=True) if process.returncode != 0]
    assert len(refused) == 2
    assert all("is being written by another run" in e or "is there already" in e for e in refused), refused
    assert open_corpus(tmp_path / "c.corpus").n_documents == N_NEW
    assert [p.name for p in tmp_path.iterdir()] == ["c.corpus"]


def test_a_driver_that_is_killed_while_its_workers_write_leaves_no_lock(made: Path, tmp_path: Path) -> None:
    """The workers of its cluster live on for a moment; they hold nothing."""
    script = textwrap.dedent(
        f"""
        import os, signal
        import dslda.ingestion.ingest as module
        module.IN_PROCESS_BYTES = 0
        def progress(stage, done, n):
            if stage == "write":
                os.kill(os.getpid(), signal.SIGKILL)
        module.ingest({str(made / "new.jsonl")!r}, {str(tmp_path / "c.corpus")!r}, progress=progress, **{FIELDS!r})
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert any(p.name.endswith(".partial") for p in tmp_path.iterdir())
    corpus = ingest(made / "new.jsonl", tmp_path / "c.corpus", **FIELDS)
    assert corpus.n_documents == N_NEW
    deadline = time.monotonic() + 30
    while [p.name for p in tmp_path.iterdir()] != ["c.corpus"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
