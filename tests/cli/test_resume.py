"""Training processes that are killed, stopped, or lose their scheduler, and go on: the bits of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import LocalCluster

from dslda.model import Model, load_model
from dslda.persistence.checkpoint_store import read_checkpoint
from tests.helpers.processes import a_cluster

Dslda = Callable[..., Any]

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "from dslda.cli import main; main()"]
SETTINGS = ["--response", "stars", "--topics", "3", "--max-iter", "25", "--tol", "0"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, write_reviews: Callable[..., Path]) -> Path:
    """Of five partitions."""
    from dslda.cli.program import run

    folder = tmp_path_factory.mktemp("resume")
    reviews = write_reviews(folder / "r.jsonl", 2000)
    arguments = ["--text", "text", "--response", "stars", "--max-df", "1.0", "--partition-tokens", "1600"]
    assert run(["ingest", str(reviews), "--out", str(folder / "r.corpus"), *arguments]) == 0
    return folder / "r.corpus"


@pytest.fixture(scope="module")
def undisturbed(corpus: Path) -> Iterator[tuple[Model, str]]:
    """The model of an undisturbed run, and the address of its scheduler."""
    from dslda.cli.program import run

    out = corpus.parent / "undisturbed.model"
    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tcp",
        dashboard_address=":0",
        silence_logs=50,
    ) as cluster:
        address = cluster.scheduler_address
        assert run(["train", str(corpus), *SETTINGS, "--out", str(out), "--scheduler", address]) == 0
        yield load_model(out), address


def start(corpus: Path, folder: Path, *more: str, every: int, **environment: str) -> subprocess.Popen[str]:
    """Train with a checkpoint after so many iterations, or only at the end if there are fewer."""
    places = ["--out", f"{folder}/m.model", "--checkpoint", f"{folder}/c", "--resume"]
    return subprocess.Popen(
        [*PROGRAM, "train", str(corpus), *SETTINGS, *places, f"--checkpoint-every={every}", "--json", *more],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def wait_for_iteration(process: subprocess.Popen[str], n: int) -> None:
    """Read the log until the n-th iteration of this run is complete."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        n -= '"event": "iteration"' in line
        if n == 0:
            return
    raise AssertionError("".join(lines))


@pytest.mark.slow
def test_a_process_that_is_killed_or_stopped_goes_on_with_the_same_bits(
    corpus: Path, undisturbed: tuple[Model, str], tmp_path: Path, dslda: Dslda, assert_same: Any
) -> None:
    draw = random.Random(0)
    done = 0
    places = ["--out", tmp_path / "m.model", "--checkpoint", tmp_path / "c"]
    # after SIGTERM the process writes its only checkpoint
    for number, every in ((signal.SIGKILL, 1), (signal.SIGTERM, 1000)):
        process = start(corpus, tmp_path, "--workers", "1", every=every)
        wait_for_iteration(process, draw.randint(2, 8))
        workers = psutil.Process(process.pid).children(recursive=True)
        assert workers
        process.send_signal(signal.SIGSTOP)  # or it might end first
        second = dslda("train", corpus, *SETTINGS, *places, "--resume")
        process.send_signal(signal.SIGCONT)
        assert second.code == 1
        assert f"{tmp_path}/c is being written by another run (process {process.pid} on " in second.error
        assert "worker" not in second.err
        time.sleep(draw.uniform(0.0, 0.1))
        process.send_signal(number)
        _, rest = process.communicate(timeout=60)
        assert "distributed" not in rest  # the last words of a worker's nanny
        assert process.returncode == (143 if number == signal.SIGTERM else -number)
        _, alive = psutil.wait_procs(workers, timeout=30)
        assert not alive
        before, done = done, read_checkpoint(tmp_path / "c").n_iterations
        assert done > before
    assert "is saved in" in rest
    assert "the same command with --resume goes on" in rest
    stopped = load_model(tmp_path / "m.model")
    assert stopped.training.interrupted
    # the last complete iteration is in the model, and nothing after it in the checkpoint
    assert stopped.training.n_iterations - done in (0, 1)
    told = dslda("info", tmp_path / "c")
    assert f"iterations:          {done} complete" in told.out
    assert "corpus" in told.out
    # on a cluster now, and over the model of the run that was stopped
    assert "give --overwrite" in dslda("train", corpus, *SETTINGS, *places).error
    ended = dslda("train", corpus, *SETTINGS, *places, "--resume", "--scheduler", undisturbed[1])
    assert ended.code == 0, ended.err
    assert f"going on after {done} iterations, from the checkpoint {tmp_path}/c" in ended.err
    assert_same(load_model(tmp_path / "m.model"), undisturbed[0])
    # a complete model is not replaced
    before = times_and_bytes(tmp_path)
    again = dslda("train", corpus, *SETTINGS, *places, "--resume")
    assert (again.code, again.out) == (
        0,
        f"{tmp_path}/m.model: complete already: 3 topics, 25 iterations (not converged)\n",
    )
    assert times_and_bytes(tmp_path) == before


def times_and_bytes(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and bytes."""
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


def test_a_fit_that_has_ended_is_left_alone_and_one_at_its_cap_goes_on_with_a_higher_one(
    write_reviews: Callable[..., Path], dslda: Dslda, tmp_path: Path, assert_same: Any
) -> None:
    """A scheduled job can always give --resume."""
    corpus, reviews = tmp_path / "r.corpus", write_reviews(tmp_path / "r.jsonl", 80)
    read = ("--text", "text", "--response", "stars", "--response", "age", "--max-df", "1.0")
    assert dslda("ingest", reviews, "--out", corpus, *read).code == 0
    fit = ("train", corpus, "--response", "stars", "--topics", 2, "--tol", 0.01)
    kept = (*fit, "--out", tmp_path / "m.model", "--checkpoint", tmp_path / "c", "--resume")
    first = dslda(*kept, "--max-iter", 3)
    assert first.out == f"{tmp_path}/m.model: 2 topics, 3 iterations (not converged)\n"
    before = times_and_bytes(tmp_path)
    again = dslda(*kept, "--max-iter", 3)
    assert again.out == f"{tmp_path}/m.model: complete already: 2 topics, 3 iterations (not converged)\n"
    assert (again.code, again.err) == (0, "")
    assert times_and_bytes(tmp_path) == before

    longer = dslda(*kept)
    assert longer.code == 0, longer.err
    assert dslda(*fit, "--out", tmp_path / "whole.model").code == 0
    assert_same(load_model(tmp_path / "m.model"), load_model(tmp_path / "whole.model"))
    assert load_model(tmp_path / "m.model").training.converged

    before = times_and_bytes(tmp_path)
    again = dslda(*kept, "--max-iter", 50)
    assert (again.code, again.err) == (0, "")
    assert re.fullmatch(r".*m\.model: complete already: 2 topics, \d+ iterations \(converged\)\n", again.out)
    # another fit is not complete, and its model is not there
    for other, message in (
        (
            ("--seed", 1, "--rho", 2),
            r"another: response_weight \(rho\) 1\.0 then, 2\.0 now; seed 0 then, 1 now; train as it says, or give ",
        ),
        (("--response", "age"), "another: response 'stars' then, 'age' now; "),
        (("--max-iter", 3), r"--max-iter must be at least \d+ to go on"),
    ):
        refused = dslda(*kept, *other)
        assert refused.code == 2
        assert re.search(message, refused.error), refused.error
    elsewhere = ("--out", tmp_path / "whole.model", "--seed", 1, "--checkpoint", tmp_path / "d")
    assert "whole.model is there already" in dslda(*kept, *elsewhere).error
    assert dslda("ingest", write_reviews(tmp_path / "more.jsonl", 30), "--out", corpus, "--append").code == 0
    grown = dslda(*kept)
    assert grown.code == 2
    assert grown.error.endswith(
        "the corpus has changed: 80 documents then, 110 now; give another one, or begin anew with --overwrite instead of "
        "--resume"
    )
    for name, content in times_and_bytes(tmp_path / "m.model").items():
        assert before[name] == content
    assert dslda(*kept[:-1], "--overwrite").code == 0


@pytest.mark.slow
@pytest.mark.soak
def test_a_fit_whose_scheduler_dies_ends_soon_and_goes_on_with_another(
    corpus: Path, undisturbed: tuple[Model, str], tmp_path: Path, dslda: Dslda, assert_same: Any
) -> None:
    quick = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}  # for how long the client looks for it
    with a_cluster(tmp_path / "log") as (address, scheduler):
        wait_until_listening(address)
        process = start(corpus, tmp_path, "--scheduler", address, every=1000, **quick)
        wait_for_iteration(process, 3)
        scheduler.kill()
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 1, rest
    done = read_checkpoint(tmp_path / "c").n_iterations
    *_, error = [json.loads(line) for line in rest.splitlines()]  # nothing that Dask says, and no traceback
    assert error["message"] == (
        f"iteration {done + 1} could not be completed: a cluster must have a scheduler that answers, got none: the "
        f"connection to the scheduler is gone; start one and run this again; the checkpoint {tmp_path}/c holds {done} "
        "iterations; train again with --resume to go on"
    )
    places = ["--out", tmp_path / "m.model", "--checkpoint", tmp_path / "c", "--resume"]
    ended = dslda("train", corpus, *SETTINGS, *places, "--scheduler", undisturbed[1])
    assert ended.code == 0, ended.err
    assert_same(load_model(tmp_path / "m.model"), undisturbed[0])


def wait_until_listening(address: str) -> None:
    host, port = address.removeprefix("tcp://").split(":")
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "--resume must come with a checkpoint, got none; give its path with --checkpoint"),
        (["--checkpoint-every", "3"], "--checkpoint-every must come with a checkpoint, got none"),
        (["--checkpoint", "{0}/m.model"], "neither inside the other"),
        (["--checkpoint", "{0}/m.model/c"], "neither inside the other"),
        (["--checkpoint", "{0}"], "neither inside the other"),
        (["--checkpoint", "{0}/file", "--out", "{0}/file"], "neither inside the other"),
        (["--checkpoint", "{0}/file"], "is not a dslda-checkpoint, so it is never replaced"),
        (["--checkpoint", "{0}/file/c"], "cannot be written: Not a directory"),
        (["--checkpoint", "{0}/c", "--checkpoint-every", "0"], "--checkpoint-every must be a whole number"),
    ],
)
def test_checkpoints_that_cannot_be_are_refused_before_work(
    dslda: Dslda, corpus: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "file").touch()
    told = [part.format(tmp_path) for part in arguments]
    done = dslda("train", corpus, *SETTINGS, "--out", tmp_path / "m.model", *told)
    assert done.code == 2
    assert message in done.error
    assert "worker" not in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
