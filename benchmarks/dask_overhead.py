"""The CPU time that Dask adds to a fit.

The same fit of a simulated corpus, in turn: in one process; in two such processes side by side, which share
nothing but the machine; and on a cluster that dslda starts on this machine. The cost on Dask is the CPU time, user and
system, of all processes: this one (client and scheduler), the workers and their nannies. Starting the cluster is
listed separately, since it is paid once, however long the fit.

With ``--speed-up`` instead: how much faster two workers of one thread are than one, beside what the machine allows. Its two
cores at once do twice the work of one only where they share nothing: two processes without Dask, each with the whole fit,
show how much they do.

Two cores at work slow each other down (caches, memory, shared execution units), so a core needs more CPU time for the same
E-step. That is no cost of Dask: compare Dask with the two processes side by side.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from scipy.sparse import csr_array

from benchmarks.report import machine, markdown
from benchmarks.workers import cpu_of_all, digest_of
from dslda.cluster.opening import ClusterOptions, cluster
from dslda.corpus.store import Corpus
from dslda.datasets.simulate import simulate_corpus
from dslda.engine.dask.dask_executor import DaskExecutor
from dslda.engine.data.fit_source import CorpusSource
from dslda.engine.driver import FitResult, fit
from dslda.engine.executor import Executor, SerialExecutor
from dslda.engine.progress import LogProgress
from dslda.families.base import STANDARDISED, Family
from dslda.families.registry import get_family
from dslda.ingestion.ingest import ingest
from dslda.variational.compiling import kernel_of
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, initial_parameters

COLUMNS = {
    "run": ("run", ""),
    "wall": ("wall s", ".1f"),
    "cpu": ("CPU s", ".1f"),
    "over": ("above one process", "+.1%"),
    "over_pair": ("above two side by side", "+.1%"),
    "e_step": ("E-step threads, CPU s", ".1f"),
    "rest": ("all else, CPU s", ".1f"),
    "sweeps": ("sweeps a document", ".0f"),
    "start": ("starting the cluster, CPU s", ".1f"),
}


SPEED_UP = {
    "round": ("round", ""),
    "alone": ("one process, wall s", ".1f"),
    "pair": ("two processes, each the whole fit, wall s", ".1f"),
    "limit": ("work done beside one", ".2f"),
    "one": ("one worker, wall s", ".1f"),
    "two": ("two workers, wall s", ".1f"),
    "times": ("times as fast", ".2f"),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Time that a fit took."""

    wall: float
    cpu: float
    e_step: float
    sweeps: float
    digest: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--documents", type=int, default=2000, help="documents of a partition")
    parser.add_argument("--tokens", type=int, default=100, help="mean tokens of a document")
    parser.add_argument("--terms", type=int, default=20_000)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2], help="processes, two threads in all"
    )
    parser.add_argument(
        "--speed-up", action="store_true", help="compare two workers of one thread with one, nothing else"
    )


def main(arguments: argparse.Namespace) -> None:
    spec = FitSpec(n_topics=arguments.topics, max_iter=arguments.iterations, tol=0.0)
    family = get_family("gaussian")
    kernel_of(family)  # compile before anything is timed
    with tempfile.TemporaryDirectory() as folder:
        corpus = _simulate(arguments, Path(folder) / "simulated.corpus")
        source = CorpusSource(corpus, design=Design("y"))
        source = source.standardised(family)
        initial = initial_parameters(source.n_terms, spec=spec, family=family, moments=STANDARDISED)

        def run(executor: Executor) -> FitResult:
            return fit(executor, initial, family=family, spec=spec, progress=LogProgress())

        if arguments.speed_up:
            rounds = _speed_up(source, family, spec, run, arguments.rounds)
            median = {key: statistics.median(row[key] for row in rounds) for key in rounds[0]}
            print(markdown([*rounds, median | {"round": "median"}], SPEED_UP))
            return
        rows = []
        for _ in range(arguments.rounds):
            with SerialExecutor(source, family, spec) as executor:
                serial = _measure(lambda executor=executor: run(executor))
            pair = _side_by_side(source, spec)
            rows.append({"run": "one process", **_row(serial, serial, pair)})
            rows.append({"run": "two processes side by side, each", **_row(pair, serial, pair)})
            for n_workers in arguments.workers:
                threads = max(2 // n_workers, 1)
                before = cpu_of_all()
                with (
                    cluster(options=ClusterOptions(workers=n_workers, threads=threads)) as client,
                    DaskExecutor(client, source, family, spec) as executor,
                ):
                    start = cpu_of_all() - before
                    cost = _measure(lambda executor=executor: run(executor))
                if cost.digest != serial.digest:
                    raise SystemExit("Dask and this process gave different bits")
                rows.append(
                    {"run": f"Dask, {n_workers} x {threads}", "start": start, **_row(cost, serial, pair)}
                )
    facts = machine()
    print(
        f"{source.n_partitions} partitions, {corpus.n_documents:,} documents, {corpus.n_tokens:,} tokens, "
        f"{corpus.n_terms:,} terms, {arguments.topics} topics, {arguments.iterations} iterations; "
        f"{facts['processor']}, {facts['cores']} cores, {facts['date']}\n"
    )
    print(markdown(rows, COLUMNS))


def _simulate(arguments: argparse.Namespace, path: Path) -> Corpus:
    n_documents = arguments.partitions * arguments.documents
    block = simulate_corpus(
        n_documents, arguments.topics, arguments.terms, mean_tokens=arguments.tokens, seed=1
    ).block
    matrix = csr_array((block.counts, block.terms, block.indptr), shape=(n_documents, arguments.terms))
    terms = [f"term{i}" for i in range(arguments.terms)]
    tokens = block.n_tokens // arguments.partitions
    return ingest(
        matrix, path, vocabulary=terms, response={"y": block.responses["y"]}, partition_tokens=tokens
    )


def _measure(run: Callable[[], FitResult]) -> Cost:
    wall, cpu = time.perf_counter(), cpu_of_all()
    result = run()
    wall, cpu = time.perf_counter() - wall, cpu_of_all() - cpu
    seconds = sum(record.e_step_cpu_seconds for record in result.trace)
    sweeps = sum(record.sweeps_per_document for record in result.trace)
    return Cost(wall, cpu, seconds, sweeps, digest_of(result))


def _speed_up(
    source: CorpusSource, family: Family, spec: FitSpec, run: Callable[[Executor], FitResult], n_rounds: int
) -> list[dict[str, float]]:
    """Run all four in turn, so that they meet the machine in the same state."""
    rounds = []
    with ExitStack() as stack:
        clients = [stack.enter_context(cluster(options=ClusterOptions(workers=n, threads=1))) for n in (1, 2)]
        for number in range(1, 1 + n_rounds):
            with SerialExecutor(source, family, spec) as executor:
                alone = _measure(lambda executor=executor: run(executor))
            pair = _side_by_side(source, spec)
            costs = []
            for client in clients:
                with DaskExecutor(client, source, family, spec) as executor:
                    costs.append(_measure(lambda executor=executor: run(executor)))
            one, two = costs
            if len({cost.digest for cost in (alone, pair, one, two)}) > 1:
                raise SystemExit("one process, two, one worker and two gave different bits")
            rounds.append(
                {
                    "round": number,
                    "alone": alone.wall,
                    "pair": pair.wall,
                    "limit": 2.0 * alone.wall / pair.wall,
                    "one": one.wall,
                    "two": two.wall,
                    "times": one.wall / two.wall,
                }
            )
    return rounds


def _side_by_side(source: CorpusSource, spec: FitSpec) -> Cost:
    """The mean cost of two fits at once, without Dask."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        pool.map(_warm_up, range(2), chunksize=1)
        costs = pool.starmap(_alone, [(source, spec)] * 2, chunksize=1)
    if len({cost.digest for cost in costs}) > 1:
        raise SystemExit("two processes gave different bits")
    return replace(
        costs[0],
        wall=max(cost.wall for cost in costs),
        cpu=sum(cost.cpu for cost in costs) / 2,
        e_step=sum(cost.e_step for cost in costs) / 2,
    )


def _warm_up(_: int) -> None:
    time.sleep(1.0)  # so that each process gets one; importing this module has loaded the kernels


def _alone(source: CorpusSource, spec: FitSpec) -> Cost:
    family = get_family(spec.family)
    with SerialExecutor(source, family, spec) as executor:
        return _measure(
            lambda: fit(
                executor,
                initial_parameters(source.n_terms, spec=spec, family=family, moments=STANDARDISED),
                family=family,
                spec=spec,
                progress=LogProgress(),
            )
        )


def _row(cost: Cost, serial: Cost, pair: Cost) -> dict[str, float]:
    return {
        "wall": cost.wall,
        "cpu": cost.cpu,
        "over": cost.cpu / serial.cpu - 1.0,
        "over_pair": cost.cpu / pair.cpu - 1.0,
        "e_step": cost.e_step,
        "rest": cost.cpu - cost.e_step,
        "sweeps": cost.sweeps,
    }
