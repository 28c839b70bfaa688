"""deploy/dask-config.yaml: Dask knows its settings, and they do what its comments say."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import dask.config
import distributed
import jsonschema
import pytest
import yaml
from distributed import Client, LocalCluster, Security

from tests.helpers.command_lines import manifests


def probes() -> list[str]:
    """The programs that compose and Kubernetes wait for a scheduler with."""
    (compose,) = manifests("compose/compose.yaml")
    (job,) = manifests("kubernetes/train-job.yaml")
    (wait,) = job["spec"]["job"]["spec"]["initContainers"]
    return [compose["services"]["scheduler"]["healthcheck"]["test"][-1], *wait["args"]]


def test_dask_knows_every_setting(deploy: Path) -> None:
    settings = yaml.safe_load((deploy / "dask-config.yaml").read_text(encoding="utf-8"))
    folder = Path(distributed.__file__).parent
    jsonschema.validate(
        settings, yaml.safe_load((folder / "distributed-schema.yaml").read_text(encoding="utf-8"))
    )
    defaults = yaml.safe_load((folder / "distributed.yaml").read_text(encoding="utf-8"))

    def unknown(ours: Any, theirs: Any, path: str) -> list[str]:
        if not isinstance(ours, dict) or path.endswith("pre-spawn-environ"):
            return []
        return [
            f"{path}.{name}"
            for name, value in ours.items()
            if not isinstance(theirs, dict)
            or name not in theirs
            or unknown(value, theirs[name], f"{path}.{name}")
        ]

    assert unknown(settings, defaults, "") == []


def test_a_cluster_starts_with_the_shipped_settings(
    shipped_settings: dict[str, Any], with_settings: Callable[[dict[str, Any]], AbstractContextManager[Any]]
) -> None:
    with (
        with_settings(shipped_settings),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            memory_limit="1 GiB",
            protocol="tls://",
            security=Security(),
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
            scheduler_kwargs={"dashboard": False},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert cluster.scheduler.allowed_failures == 10
        assert cluster.scheduler.no_workers_timeout == 300
        (address,) = client.nthreads()
        assert address.startswith("tls://")

        def worker(dask_worker: Any) -> dict[str, Any]:
            memory = dask_worker.memory_manager
            return {
                "spill": memory.memory_spill_fraction,
                "pause": memory.memory_pause_fraction,
                "threads": {
                    name: os.environ.get(name)
                    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
                },
            }

        (seen,) = client.run(worker).values()
        assert (seen["spill"], seen["pause"]) == (0.85, 0.9)
        # Dask's own are there beside ours
        assert seen["threads"] == dict.fromkeys(seen["threads"], "1")
        port = cluster.scheduler.http_server.port

        def status(page: str) -> int:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=10) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        assert status("/health") == 200
        for code in probes():
            asked = code.replace("127.0.0.1:8787", f"127.0.0.1:{port}")
            asked = asked.replace("dslda-train-scheduler:8787", f"127.0.0.1:{port}")
            assert str(port) in asked
            subprocess.run([sys.executable, "-c", asked], check=True, timeout=30)
        for page in ("/status", "/info/main/workers.html", "/json/index.html", "/proxy/1/a/status"):
            assert status(page) == 404, page
        with pytest.raises(RuntimeError, match="encryption required by Dask configuration"):
            Client(address.replace("tls://", "tcp://"), timeout=5)


def test_without_the_settings_dask_has_others(shipped_settings: dict[str, Any]) -> None:
    # or the file would say what is said already
    assert dask.config.get("distributed.scheduler.allowed-failures") != 10
    assert dask.config.get("distributed.comm.require-encryption") is None
    assert shipped_settings["distributed"]["comm"]["require-encryption"] is True
