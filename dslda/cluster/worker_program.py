"""Worker processes of the cluster that dslda starts on this machine.

``python -m dslda.cluster.worker_program`` runs a worker with its nanny, and ends with the process that started it. A
nanny by itself would look for its scheduler for ever, if that ends while the worker starts. Standard input is a pipe
that nobody writes to: it closes when the other process ends, for whatever reason.
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

    multiprocessing would run the user's script once more in every worker, unless it is guarded by
    ``if __name__ == "__main__"``. The program has its own session, so that Ctrl-C in the terminal stops the client alone,
    which then ends its workers; they also end when the client is killed.
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
                # the modules of this process, and none that happen to lie in the current directory
                "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
                "PYTHONSAFEPATH": "1",
                "DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(_quiet(dask.config.config)),
            },
        )


def _quiet(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration in which a nanny logs nothing, even after closing, when its `silence_logs` has ended.

    A user's own configuration of logs stays.
    """
    for place in (config, config.get("distributed", {})):
        if "logging" in place or "logging-file-config" in place:
            return dict(config)
    return {**config, "logging": {"distributed": "critical"}}


def main() -> None:
    """Run ``dask spec`` with the arguments given."""
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
