"""Worker processes of the cluster that dslda starts on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import dask.config
from distributed.deploy.subprocess import SubprocessWorker

__all__ = ["WorkerProgram"]


class WorkerProgram(SubprocessWorker):
    """A worker with its nanny, started as a program of its own.

    Not through multiprocessing, which would run the user's script once more in every worker unless it is
    guarded by ``if __name__ == "__main__"``. In a session of its own, so that Ctrl-C in the terminal stops
    the client alone, which then ends its workers; and they end with it when it is killed.
    """

    async def _start(self) -> None:
        specification = {"cls": self.worker_class, "opts": self.worker_kwargs}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dslda.cluster.run_worker",
            self.scheduler,
            "--spec",
            json.dumps(specification),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=os.environ
            | {
                # the modules that this process finds, and no others that happen to lie in the current
                # directory
                "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
                "PYTHONSAFEPATH": "1",
                "DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(_quiet(dask.config.config)),
            },
        )


def _quiet(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a nanny that says nothing, also after its `silence_logs` has ended, which is when it has closed.

    Where the user has set logs up, that stays.
    """
    for place in (config, config.get("distributed", {})):
        if "logging" in place or "logging-file-config" in place:
            return dict(config)
    return {**config, "logging": {"distributed": "critical"}}
