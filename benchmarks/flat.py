"""Do memory and time of iterations and fits stay flat, and how fast are 10,000 partitions submitted?

The scheduler and one worker of two threads run in separate processes, with the settings of the clusters that dslda starts, so
that the memory of each can be measured. Documents are generated where they are read. Every document gets the same number of
sweeps, in all topics (alpha = 1 leaves none out), so that all iterations do the same work. Slopes are least squares over the
iterations and fits after the warm-up.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import dask.config
import numpy as np
import psutil
from distributed import Client, Scheduler, Worker
from distributed.deploy.subprocess import SubprocessCluster

from benchmarks.report import machine, markdown
from dslda.cluster.client import wait_for
from dslda.cluster.opening import CONFIG
from dslda.corpus.block import DocumentBlock
from dslda.engine.dask.dask_executor import DaskExecutor
from dslda.engine.data.fit_source import FitSource, FutureSource
from dslda.engine.driver import FitResult, fit
from dslda.engine.em import IterationRecord
from dslda.engine.progress import LogProgress
from dslda.families.base import STANDARDISED
from dslda.families.registry import get_family
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, Parameters, Scaling, initial_parameters

PROCESSES = ("client", "scheduler", "worker")
LEFT = ("tasks", "held", "futures", "topics", "events")
"""Tasks that the scheduler knows, results that workers hold, futures of the client, topics and events of the scheduler."""

MEMORY = {
    "what": ("", ""),
    **{f"{process}_slope": (f"{process}, KiB each", "+.1f") for process in PROCESSES},
    **{f"{process}_mib": (f"{process}, MiB at the end", ".0f") for process in PROCESSES},
}
LEFTOVERS = {"after": ("after fit", "d"), **{name: (name, "d") for name in LEFT}}
TIMES = {
    "iterations": ("iterations", ""),
    "wall": ("wall s, median", ".3f"),
    "cpu": ("CPU s of all processes, median", ".3f"),
    "e_step": ("of it E-step threads", ".3f"),
    "rest": ("all else", ".3f"),
    "sweeps": ("sweeps a document", ".1f"),
}
SUBMISSION = {
    "kind": ("partitions", ""),
    "tasks": ("tasks an iteration", "d"),
    "start": ("until the first iteration, s", ".1f"),
    "first": ("submission of iteration 1, s", ".2f"),
    "later": ("of the later ones, median s", ".2f"),
    "iteration": ("a later iteration in all, s", ".1f"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5, help="iterations and fits that slopes leave out")
    parser.add_argument("--documents", type=int, default=200, help="documents of a partition")
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument(
        "--many", type=int, default=10_000, help="partitions of two documents to submit, 0: none"
    )
    parser.add_argument("--topics", type=int, default=50)


def main(arguments: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.WARNING)
    source = Made(arguments.partitions, arguments.documents)
    spec = FitSpec(n_topics=arguments.topics, doc_topic_prior=1.0, max_sweeps=5, sweep_tol=0.0, tol=0.0)
    with _cluster() as client:
        _one_fit(client, source, spec, arguments)
    with _cluster() as client:
        _many_fits(client, source, spec, arguments)
    if arguments.many:
        rows = []
        for kind in ("in memory", "read again", "of a bag"):
            with _cluster() as client:
                rows.append(_submission(client, kind, arguments.many))
        print(f"{arguments.many:,} partitions of two documents\n\n{markdown(rows, SUBMISSION)}\n")
    facts = machine()
    print(f"{facts['processor']}, {facts['cores']} cores, {facts['date']}")


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes a partition from its number."""

    partition: int
    documents: int
    terms: int
    tokens: int

    def __call__(self) -> DocumentBlock:
        rng = np.random.default_rng(self.partition)
        draws = np.array([np.sort(rng.choice(self.terms, self.tokens, False)) for _ in range(self.documents)])
        return DocumentBlock(
            indptr=np.arange(self.documents + 1, dtype=np.int64) * self.tokens,
            terms=draws.ravel().astype(np.int32),
            counts=np.ones(draws.size, dtype=np.int32),
            responses={"y": rng.normal(size=self.documents)},
        )


class Made(FitSource):
    """Partitions that are generated where they are read."""

    def __init__(self, partitions: int, documents: int, *, terms: int = 2000, tokens: int = 100) -> None:
        super().__init__(
            n_terms=terms,
            n_documents=[documents] * partitions,
            n_entries=[documents * tokens] * partitions,
            design=Design("y", scaling=Scaling(0.0, 1.0)),
            documents=None,
        )
        self._shape = documents, terms, tokens

    def reader(self, partition: int) -> Maker:
        return Maker(partition, *self._shape)


class Timed(DaskExecutor):
    """Records how long the submission of each iteration takes, and its tasks."""

    def __init__(self, *arguments: Any) -> None:
        self.seconds: list[float] = []
        super().__init__(*arguments)

    def _submit(self, *arguments: Any) -> Any:
        began = time.perf_counter()
        submitted = super()._submit(*arguments)
        self.seconds.append(time.perf_counter() - began)
        return submitted


def _one_fit(client: Client, source: FitSource, spec: FitSpec, arguments: argparse.Namespace) -> None:
    seen: list[dict[str, float]] = []
    # a sweep takes longer once the topics have parted
    parted = _fit(client, source, spec, 10).parameters
    result = _fit(client, source, spec, arguments.iterations, parted, lambda *_: seen.append(_look(client)))
    print(f"One fit of {arguments.iterations} iterations\n")
    print(markdown([_memory("an iteration", seen, arguments.warm_up)], MEMORY) + "\n")
    trace = result.trace
    early, late = trace[1:6], trace[-5:]
    # the first look is after iteration 1
    cpu = [sum(now[f"{p}_cpu"] - then[f"{p}_cpu"] for p in PROCESSES) for then, now in pairwise(seen)]
    rest = [all_of_it - record.e_step_cpu_seconds for all_of_it, record in zip(cpu, trace[1:], strict=True)]
    rows = [
        {
            "iterations": f"{some[0].iteration} to {some[-1].iteration}",
            "wall": float(np.median([_seconds(record) for record in some])),
            "cpu": float(np.median(cpu[some[0].iteration - 2 : some[-1].iteration - 1])),
            "rest": float(np.median(rest[some[0].iteration - 2 : some[-1].iteration - 1])),
            "e_step": float(np.median([record.e_step_cpu_seconds for record in some])),
            "sweeps": some[-1].sweeps_per_document,
        }
        for some in (early, late, trace[1:2], trace[-1:])
    ]
    print(markdown(rows, TIMES) + "\n")


def _many_fits(client: Client, source: FitSource, spec: FitSpec, arguments: argparse.Namespace) -> None:
    seen = []
    for _ in range(arguments.fits):
        _fit(client, source, spec, 5)
        gc.collect()
        time.sleep(1)  # releases are on their way
        seen.append(_look(client))
    print(f"{arguments.fits} fits of 5 iterations in one client\n")
    print(markdown([_memory("a fit", seen, arguments.warm_up)], MEMORY) + "\n")
    shown = sorted({1, 2, len(seen) // 2, len(seen)} - {0})
    print(markdown([{"after": i} | seen[i - 1] for i in shown], LEFTOVERS) + "\n")


def _submission(client: Client, kind: str, n_partitions: int) -> dict[str, Any]:
    made = Made(n_partitions, 2, terms=200, tokens=5)
    source: FitSource = made
    if kind == "of a bag":
        futures = client.map(_call, [made.reader(i) for i in range(n_partitions)], pure=False)
        wait_for(client, futures, timeout=600)
        source = FutureSource(
            futures,
            n_terms=200,
            n_documents=made.n_documents,
            n_entries=[10] * n_partitions,
            design=made.design,
        )
    spec = FitSpec(n_topics=5, max_iter=5, tol=0.0)
    began = time.perf_counter()
    fraction = 1e-9 if kind == "read again" else 0.5
    with (
        dask.config.set({"dslda.engine.resident-fraction": fraction}),
        Timed(client, source, get_family("gaussian"), spec) as executor,
    ):
        start = time.perf_counter() - began
        result = _run(executor, source, spec)
        n_tasks = len(executor._groups()[1])
    return {
        "kind": kind,
        "tasks": n_tasks,
        "start": start,
        "first": executor.seconds[0],
        "later": float(np.median(executor.seconds[1:])),
        "iteration": float(np.median([_seconds(record) for record in result.trace[1:]])),
    }


def _call(maker: Maker) -> DocumentBlock:
    return maker()


@contextmanager
def _cluster() -> Iterator[Client]:
    with (
        dask.config.set(CONFIG),
        patch.dict(os.environ, DASK_INTERNAL_INHERIT_CONFIG=dask.config.serialize(dask.config.config)),
        SubprocessCluster(
            n_workers=1,
            threads_per_worker=2,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
            worker_kwargs={"memory_limit": "2GiB", "silence_logs": logging.CRITICAL},
        ) as started,
        Client(started, set_as_default=False) as client,
    ):
        yield client


def _fit(
    client: Client,
    source: FitSource,
    spec: FitSpec,
    iterations: int,
    initial: Parameters | None = None,
    on_iteration: Callable[..., None] | None = None,
) -> FitResult:
    spec = replace(spec, max_iter=iterations)
    with DaskExecutor(client, source, get_family("gaussian"), spec) as executor:
        return _run(executor, source, spec, initial, on_iteration)


def _run(
    executor: DaskExecutor,
    source: FitSource,
    spec: FitSpec,
    initial: Parameters | None = None,
    on_iteration: Callable[..., None] | None = None,
) -> FitResult:
    family = get_family("gaussian")
    if initial is None:
        initial = initial_parameters(source.n_terms, spec=spec, family=family, moments=STANDARDISED)
    return fit(executor, initial, family=family, spec=spec, progress=LogProgress(), on_iteration=on_iteration)


def _seconds(record: IterationRecord) -> float:
    return record.publish_seconds + record.e_step_seconds + record.reduce_seconds + record.m_step_seconds


def _look(client: Client) -> dict[str, float]:
    """Memory and CPU time of each process, and the objects left in it."""
    (worker,) = client.run(_of_worker).values()
    return {
        **client.run_on_scheduler(_of_scheduler),
        **worker,
        **_taken("client"),
        "futures": len(client.futures),
    }


def _of_scheduler(dask_scheduler: Scheduler) -> dict[str, float]:
    events = dask_scheduler.get_events()
    return {
        **_taken("scheduler"),
        "tasks": len(dask_scheduler.tasks),
        "topics": sum(name.startswith("dslda") for name in events),
        "events": sum(len(those) for name, those in events.items() if name.startswith("dslda")),
    }


def _of_worker(dask_worker: Worker) -> dict[str, float]:
    return {**_taken("worker"), "held": len(dask_worker.data)}


def _taken(process: str) -> dict[str, float]:
    """Resident memory of this process in KiB, and its CPU seconds so far."""
    this = psutil.Process()
    cpu = this.cpu_times()
    return {process: this.memory_info().rss / 1024, f"{process}_cpu": cpu.user + cpu.system}


def _memory(what: str, seen: list[dict[str, float]], warm_up: int) -> dict[str, Any]:
    later = seen[warm_up:]
    row: dict[str, Any] = {"what": what}
    for process in PROCESSES:
        row[f"{process}_slope"] = float(np.polyfit(np.arange(len(later)), [s[process] for s in later], 1)[0])
        row[f"{process}_mib"] = seen[-1][process] / 1024
    return row
