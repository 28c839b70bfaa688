"""Worker processes of the cluster that dslda starts on this machine.

``python -m dslda.cluster.worker_program`` runs a worker with its nanny, and ends with the process that started it: standard
input is a pipe that nobody writes to, and that closes when the other process ends, for whatever reason. A nanny by itself
would look for ever for a scheduler that ends while the worker starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from threading import Thread
from typing import Any

import dask.config
from distributed.deploy.subprocess import SubprocessWorker

__all__ = ["WorkerProgram"]


class WorkerProgram(SubprocessWorker):
    """A worker with its nanny, started as a program of its own.

    multiprocessing would run the user's script again in every worker, unless ``if __name__ == "__main__"`` guards it. The
    program has its own session, so that Ctrl-C in the terminal stops only the client, which then ends its workers.
    """

    async def _start(self) -> None:
        specification = {"cls": self.worker_class, "opts": self.worker_kwargs}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dslda.cluster.worker_program",
            self.scheduler,
            "--spec",
            json.dumps(specification),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=os.environ
            | {
                # the modules of this process, and none from the current directory
                "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
                "PYTHONSAFEPATH": "1",
                "DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(_quiet(dask.config.config)),
            },
        )


def _quiet(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration in which a nanny logs nothing, even after its `silence_logs` has ended.

    A user's own configuration of logs stays.
    """
    for section in (config, config.get("distributed", {})):
        if "logging" in section or "logging-file-config" in section:
            return dict(config)
    return {**config, "logging": {"distributed": "critical"}}


def main() -> None:
    """Run ``dask spec`` with the arguments of this program."""
    from distributed.cli.dask_spec import main as spec

    Thread(target=_end_with_parent, daemon=True).start()
    spec(prog_name="dask spec")


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    # the worker ends with its nanny by a pipe of Dask's own
    os._exit(1)


if __name__ == "__main__":
    main()
