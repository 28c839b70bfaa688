"""Do fits end with the same bits while workers are killed at random?

Fits of a generated corpus, one after the other in one client, on worker processes that dslda starts with their nannies on
this machine, while a thread kills workers (SIGKILL) at random moments: mostly one, one time in ten all at once. The moments
and the victims are drawn with a seed, but chance decides what they hit. Fits keep their partitions in the workers' memory
and read them in every iteration in turn. The bits of each fit are compared with those of a fit in this process.

A worker is killed when it has been there for a second or more: a nanny that still waits for its worker to start does not
start it again (a fault of distributed).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import psutil
from distributed import Client

from benchmarks.generated import Shape, generate
from benchmarks.report import machine, markdown
from benchmarks.workers import digest_of
from dslda.cluster.opening import ClusterOptions, cluster
from dslda.engine.dask.dask_executor import DaskExecutor
from dslda.engine.data.fit_source import CorpusSource
from dslda.engine.driver import FitResult, fit
from dslda.engine.executor import Executor, SerialExecutor
from dslda.engine.progress import LogProgress
from dslda.families.base import STANDARDISED
from dslda.families.registry import get_family
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, initial_parameters

COLUMNS = {
    "fit": ("fit", ""),
    "where": ("partitions", ""),
    "kills": ("workers killed", "d"),
    "at_once": ("of them all at once", "d"),
    "again": ("iterations run again", "d"),
    "wall": ("wall s", ".0f"),
    "outcome": ("outcome", ""),
}

ALL_AT_ONCE = 0.1
SETTLED = 1.0
"""Seconds that a worker has been there before it may be killed."""
LOOKS = 0.25
"""Seconds between two looks at who is there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--every", type=float, default=4.0, help="mean seconds between two moments of killing"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=3, help="processes of one thread")
    parser.add_argument("--documents", type=int, default=6000)
    parser.add_argument("--partition-documents", type=int, default=200)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=20)


def main(arguments: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    counter = _Counter()
    logging.getLogger("dslda.engine").addHandler(counter)
    family = get_family("gaussian")
    spec = FitSpec(n_topics=arguments.topics, max_iter=arguments.iterations, tol=0.0)
    options = ClusterOptions(workers=arguments.workers, threads=1)
    with tempfile.TemporaryDirectory() as folder:
        shape = Shape(arguments.documents, arguments.partition_documents, tokens=60, terms=2000, topics=10)
        source = CorpusSource(generate(shape, Path(folder) / "soak.corpus"), design=Design("y"))
        source = source.standardised(family)
        initial = initial_parameters(source.n_terms, spec=spec, family=family, moments=STANDARDISED)

        def run(executor: Executor) -> FitResult:
            return fit(executor, initial, family=family, spec=spec, progress=LogProgress())

        with SerialExecutor(source, family, spec) as executor:
            expected = digest_of(run(executor))
        rows: list[dict[str, Any]] = []
        with cluster(options=options) as client, Killer(client, arguments) as killer:
            while not rows or killer.left > 0:
                kills, at_once, again = killer.kills, killer.at_once, counter.again
                keeps = len(rows) % 2 == 0
                began = time.perf_counter()
                try:
                    with (
                        dask.config.set({"dslda.engine.resident-fraction": 0.5 if keeps else 1e-9}),
                        killer.at_work(),
                        DaskExecutor(client, source, family, spec) as executor,
                    ):
                        outcome = "same bits" if digest_of(run(executor)) == expected else "OTHER BITS"
                except Exception as error:
                    logging.exception("a fit failed")
                    outcome = f"FAILED: {type(error).__name__}"
                rows.append(
                    {
                        "fit": f"{len(rows) + 1}",
                        "where": "in memory" if keeps else "read again",
                        "kills": killer.kills - kills,
                        "at_once": killer.at_once - at_once,
                        "again": counter.again - again,
                        "wall": time.perf_counter() - began,
                        "outcome": outcome,
                    }
                )
    same = sum(row["outcome"] == "same bits" for row in rows)
    totals = {name: sum(row[name] for row in rows) for name in ("kills", "at_once", "again", "wall")}
    total = {"fit": "all", **totals, "outcome": f"same bits {same} of {len(rows)}"}
    facts = machine()
    print(
        f"{arguments.workers} workers, a kill every {arguments.every:g} s in the mean, {source.n_partitions} partitions, "
        f"{shape.documents:,} documents, K = {spec.n_topics}, {spec.max_iter} iterations a fit, seed {arguments.seed}; "
        f"{facts['processor']}, {facts['cores']} cores, {facts['date']}\n"
    )
    print(markdown([*rows, total], COLUMNS))
    if same < len(rows):
        raise SystemExit(1)


class Killer:
    """A thread that kills workers until it has reached the wanted number."""

    def __init__(self, client: Client, arguments: argparse.Namespace) -> None:
        self._client = client
        self._random = np.random.default_rng(arguments.seed)
        self._every = arguments.every
        self._working = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen: dict[int, float] = {}
        self.left = arguments.kills
        self.kills = 0
        self.at_once = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._working.set()
        try:
            yield
        finally:
            self._working.clear()

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        next_kill = time.monotonic() + self._random.exponential(self._every)
        while self.left > 0 and not self._over.wait(LOOKS):
            self._look()
            now = time.monotonic()
            settled = sorted(pid for pid, since in self._seen.items() if now - since >= SETTLED)
            if now < next_kill or not self._working.is_set() or not settled:
                continue
            everyone = len(settled) > 1 and self._random.random() < ALL_AT_ONCE
            victims = settled if everyone else [int(self._random.choice(settled))]
            # not only just after a look: at any moment
            time.sleep(self._random.uniform(0, LOOKS))
            for pid in victims[: self.left]:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
                self.at_once += everyone
                self.left -= 1
            next_kill = time.monotonic() + self._random.exponential(self._every)

    def _look(self) -> None:
        """Record the scheduler's worker processes, without asking the workers."""
        ports = {int(address.rpartition(":")[2]) for address in self._client.nthreads()}
        there = set()
        for process in psutil.Process().children(recursive=True):
            try:
                listens = {
                    c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN
                }
            except psutil.Error:  # it has ended
                continue
            if listens & ports:
                there.add(process.pid)
        now = time.monotonic()
        self._seen = {pid: self._seen.get(pid, now) for pid in there}


class _Counter(logging.Handler):
    """Counts the iterations that the engine says it runs again."""

    def __init__(self) -> None:
        super().__init__()
        self.again = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.again += "is run again" in record.getMessage()
