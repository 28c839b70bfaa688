"""What tests of deploy/ share: its folder, certificates made by its own script, and clusters of processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask.config
import pytest
import yaml

from dslda.cli.program import run

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

START_SECONDS = 90


@pytest.fixture(scope="session")
def deploy() -> Path:
    """The folder deploy/."""
    return DEPLOY


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of certificates for scheduler, worker and client, and `other/` of another authority, made as the page says."""
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl is not there")
    folder = tmp_path_factory.mktemp("tls")
    script = DEPLOY / "tls" / "make-certificates.sh"
    for where in (folder, folder / "other"):
        subprocess.run(["sh", script, where], check=True, env=os.environ | {"DAYS": "1"})
    return folder


@pytest.fixture(scope="session")
def shipped_settings(certificates: Path) -> dict[str, Any]:
    """deploy/dask-config.yaml with the certificates of the test, and the kernels that are compiled beside the code."""
    text = (DEPLOY / "dask-config.yaml").read_text(encoding="utf-8")
    assert "/etc/dslda/tls/" in text
    settings: dict[str, Any] = yaml.safe_load(text.replace("/etc/dslda/tls/", f"{certificates}/"))
    del settings["distributed"]["nanny"]["pre-spawn-environ"]["NUMBA_CACHE_DIR"]
    return settings


@pytest.fixture
def with_settings() -> Callable[[dict[str, Any]], AbstractContextManager[Any]]:
    """Have settings in force in this process, beside all others, as those of a file are."""
    return lambda settings: dask.config.set(dask.config.merge(dask.config.config, settings))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 90 reviews, in 3 partitions, whose words tell the stars."""
    folder = tmp_path_factory.mktemp("deploy")
    reviews = folder / "reviews.jsonl"
    words = (("good", "fine", "lovely", "great"), ("bad", "poor", "awful", "sad"))
    with reviews.open("w", encoding="utf-8") as stream:
        for i in range(90):
            said = words[i % 2]
            text = f"{said[i % 4]} {said[(i + 1) % 4]} {('dress', 'shirt', 'coat')[i % 3]} number{i % 5}"
            stream.write(
                json.dumps({"id": f"r{i}", "text": text, "rating": (5, 1)[i % 2] + i % 3 / 10}) + "\n"
            )
    path = folder / "reviews.corpus"
    arguments = ["--text", "text", "--id", "id", "--response", "rating", "--min-df", "2", "--max-df", "1.0"]
    assert run(["ingest", str(reviews), *arguments, "--partition-tokens", "120", "--out", str(path)]) == 0
    return path


def environment(settings: dict[str, Any] | None, folder: Path) -> dict[str, str]:
    """Of a process that finds these settings as its Dask configuration, and the code of this checkout."""
    folder.mkdir(exist_ok=True)
    (folder / "dask.yaml").write_text(yaml.safe_dump(settings or {}), encoding="utf-8")
    return os.environ | {"DASK_CONFIG": str(folder), "PYTHONPATH": str(ROOT)}


@contextmanager
def _dask(arguments: Sequence[str], prefix: Sequence[str], env: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "dask", *arguments],
            env=env,
            cwd=log.parent,
            stdout=stream,
            stderr=stream,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def _processes(
    folder: Path,
    settings: dict[str, Any],
    hosts: Sequence[tuple[Sequence[str], str]],
    *,
    nanny: bool = True,
) -> Iterator[str]:
    """A scheduler on the first host and a worker on each other; a host is what its commands begin with, and its IP."""
    env = environment(settings, folder / "settings")
    (prefix, address), *others = hosts
    told = folder / "scheduler.json"
    with ExitStack() as running:
        scheduler = ["scheduler", "--host", f"tls://{address}", "--port", "0", "--no-dashboard"]
        scheduler += ["--scheduler-file", str(told)]
        running.enter_context(_dask(scheduler, prefix, env, folder / "scheduler.log"))
        for number, (prefix, address) in enumerate(others):
            worker = [
                "worker",
                "--scheduler-file",
                str(told),
                "--host",
                f"tls://{address}",
                "--nthreads",
                "1",
            ]
            worker += ["--no-dashboard", "--memory-limit", "1GiB", "--local-directory", str(folder / "local")]
            worker += [] if nanny else ["--no-nanny"]
            running.enter_context(_dask(worker, prefix, env, folder / f"worker-{number}.log"))
        deadline = time.monotonic() + START_SECONDS
        while not (
            told.exists()
            and all("Registered to" in (folder / f"worker-{n}.log").read_text() for n in range(len(others)))
        ):
            assert time.monotonic() < deadline, [p.read_text()[-2000:] for p in sorted(folder.glob("*.log"))]
            time.sleep(0.1)
        yield json.loads(told.read_text(encoding="utf-8"))["address"]


@pytest.fixture(scope="session")
def cluster_of_processes() -> Callable[..., AbstractContextManager[str]]:
    """Start a scheduler and workers as processes of their own; gives the scheduler's address."""
    return _processes


@pytest.fixture(scope="session")
def tls_cluster(tmp_path_factory: pytest.TempPathFactory, shipped_settings: dict[str, Any]) -> Iterator[str]:
    """A scheduler and two workers with the settings of deploy/dask-config.yaml; its address."""
    here: tuple[tuple[str, ...], str] = ((), "127.0.0.1")
    with _processes(tmp_path_factory.mktemp("cluster"), shipped_settings, [here, here, here]) as address:
        yield address


@pytest.fixture(scope="session")
def program() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the program as a process of its own, with settings of Dask; `prefix` goes before the command."""

    def call(
        *arguments: object, folder: Path, settings: dict[str, Any] | None = None, prefix: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, sys.executable, "-c", "from dslda.cli import main; main()", *map(str, arguments)],
            env=environment(settings, folder / "client"),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return call
