"""Schedulers and workers as processes of their own, to be killed and stopped."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import cloudpickle
from distributed import Client

ROOT = Path(__file__).parents[2]

PROGRAM = [sys.executable, "-c", "from dslda.cli import main; main()"]

STALL = 4.0  # a live worker of a busy machine must send a heartbeat within this
QUICK = {"dslda.engine.stall-timeout": STALL, "dslda.engine.iteration-budget": "100s"}


TRACKER = re.compile(
    r"^\S*resource_tracker\.py:\d+: UserWarning: .*\n(?:  .*\n)?"
    r'|^Traceback .*\n  File "\S*resource_tracker\.py".*\n(?:    .*\n)*KeyError: .*\n?',
    re.MULTILINE,
)
"""What Python says when its own process that tracks semaphores has died, which costs no result."""


def without_tracker(stderr: str) -> str:
    """Standard error of a process with workers. In three of ten runs of the suite one died; why is not known."""
    return TRACKER.sub("", stderr)


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which $D is the program."""
    done = subprocess.run(
        ["bash", "-c", command.replace("$D", shlex.join(PROGRAM))],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )
    done.stderr = without_tracker(done.stderr.decode()).encode()
    return done


@contextmanager
def a_cluster(log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a scheduler with a worker, and its process; what they say goes into a file."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    programs = (
        ["scheduler", "--host", address, "--no-dashboard"],
        ["worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"],
    )
    with ExitStack() as stack, log.open("wb") as output:
        started = []
        for program in programs:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *program],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            stack.callback(process.wait, 30)
            stack.callback(process.kill)
            started.append(process)
        yield address, started[0]


def both(client: Client) -> dict[str, int]:
    """Addresses and processes of two workers that are up."""
    client.wait_for_workers(2, timeout=60)
    pids: dict[str, int] = client.run(os.getpid)
    return pids


@contextmanager
def sent_by_value(*names: str) -> Iterator[None]:
    """Workers cannot import modules of tests: send what these define as a whole."""
    modules = [sys.modules[name] for name in names]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)
