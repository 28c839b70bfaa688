"""Workers as jobs of SLURM: dask-jobqueue's job script is that of the page, and gives a worker when it is run."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dslda

pytest.importorskip("dask_jobqueue", reason="it is in the extra `test`")


def as_on_the_page(script: str) -> str:
    """A job script without what is of one machine, and without the empty lines."""
    for pattern, name in (
        (r"^\S*/bin/python\S*", "python"),
        (r"tls://[\d.]+:\d+", "SCHEDULER"),
        (r"--name \S+", "--name NAME"),
        (r"--tls-ca-file \S+", "--tls-ca-file CA"),
        (r"--tls-cert \S+", "--tls-cert CERT"),
        (r"--tls-key \S+", "--tls-key KEY"),
    ):
        script = re.sub(pattern, name, script, flags=re.MULTILINE)
    return "\n".join(
        line.rstrip() for line in script.splitlines() if line.strip() and not line.startswith("#!")
    )


@pytest.fixture
def slurm(deploy: Path) -> dict[str, Any]:
    """What deploy/slurm/train.py defines."""
    return runpy.run_path(str(deploy / "slurm" / "train.py"))


class ThisProcess(LocalCluster):  # type: ignore[misc]
    """A cluster that `make_cluster` may give as well: its workers are there, none is submitted."""

    def scale(self, n: int = 0, *, jobs: int | None = None) -> None:
        if jobs is None:  # as it closes
            super().scale(n)


@pytest.mark.filterwarnings("ignore:.*have nearly the words")
def test_the_model_has_intervals_and_tells_drift_from_documents_held_out(
    slurm: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records = [
        {"text": f"w{i % 7} w{i % 11} w{i % 13} {('good', 'bad')[i % 2]}", "rating": i % 2 + i % 5 / 9}
        for i in range(2600)
    ]
    Path("r.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    dslda.ingest(
        "r.jsonl", "reviews.corpus", text="text", response="rating", token_pattern=r"\w+", max_df=1.0
    )
    monkeypatch.setitem(
        slurm["main"].__globals__,
        "make_cluster",
        lambda: ThisProcess(n_workers=1, processes=False, dashboard_address=":0", silence_logs=50),
    )
    slurm["main"]()
    model = dslda.load_model("stars.model")
    assert model.training.n_documents == 2340
    reference = model.record.reference
    assert reference.intervals is not None
    assert not reference.of_training


def test_the_job_script_is_that_of_the_page_and_gives_a_worker(
    slurm: dict[str, Any],
    deploy: Path,
    tmp_path: Path,
    certificates: Path,
    shipped_settings: dict[str, Any],
    with_settings: Callable[[dict[str, Any]], AbstractContextManager[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # of its logs
    page = (deploy / "slurm" / "README.md").read_text(encoding="utf-8")
    shown = page.partition("```\n#SBATCH")[2].partition("```")[0]
    with (
        with_settings(shipped_settings),
        slurm["make_cluster"]() as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        script = cluster.job_script()
        assert as_on_the_page(script) == f"#SBATCH{shown}".rstrip()
        assert f"--tls-cert {certificates}/worker.pem" in script
        # what a node of SLURM does with it; the 64 GiB are more than this machine has
        job = tmp_path / "job.sh"
        job.write_text(script.replace("64.00GiB", "1GiB").replace("--nthreads 16", "--nthreads 1"))
        with (tmp_path / "job.log").open("w") as log:
            running = subprocess.Popen(["bash", job], stdout=log, stderr=log)
            try:
                client.wait_for_workers(1, timeout=60)
                assert client.submit(pow, 2, 5).result(timeout=30) == 32
                (address,) = client.nthreads()
            finally:
                running.terminate()
                running.wait(30)
    assert address.startswith("tls://")
