"""Does a corpus larger than the workers' memory train as fast as one that fits?

Generates a corpus (once, where a folder is named) and trains on it with every number of topics and of workers asked for: wall
and CPU time of an iteration, peak memory of the workers, bytes they spilled, pauses, restarts. Beside it the same on a
corpus that stays in memory, to compare documents a second. Iterations after the first are compared: the first one of
a corpus that stays in memory reads it.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.generated import Shape, generate
from benchmarks.report import machine, markdown
from benchmarks.workers import cpu_of_all, worker_state
from dslda.cluster.opening import ClusterOptions, cluster
from dslda.corpus.store import Corpus
from dslda.engine.dask.dask_executor import DaskExecutor
from dslda.engine.dask.placement import ResidentPartitions
from dslda.engine.data.fit_source import CorpusSource
from dslda.engine.driver import fit
from dslda.engine.progress import LogProgress
from dslda.families.base import STANDARDISED
from dslda.families.registry import get_family
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, initial_parameters

COLUMNS = {
    "documents": ("documents", ",d"),
    "gib": ("GiB in memory", ".2f"),
    "topics": ("K", "d"),
    "workers": ("workers", "d"),
    "where": ("partitions", ""),
    "wall": ("wall s/iteration", ".1f"),
    "cpu": ("CPU s/iteration", ".1f"),
    "rate": ("documents/s", ",.0f"),
    "ratio": ("wall a document, beside in memory", ".2f"),
    "cpu_ratio": ("CPU a document, beside in memory", ".2f"),
    "total": ("all iterations, s", ".0f"),
    "peak": ("peak MiB of a worker", ".0f"),
    "spilled": ("spilled bytes", "d"),
    "pauses": ("pauses", "d"),
    "restarts": ("restarts", "d"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=5_000_000)
    parser.add_argument(
        "--in-memory", type=int, default=500_000, help="documents of the corpus that fits, 0: none"
    )
    parser.add_argument("--partition-documents", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=100, help="tokens of a document")
    parser.add_argument("--terms", type=int, default=20_000)
    parser.add_argument("--topics", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--iterations", type=int, default=3, help="at least 2")
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="processes of one thread")
    parser.add_argument("--memory", default="1GiB", help="memory limit of a worker")
    parser.add_argument("--folder", type=Path, help="for the corpora, kept; a temporary one by default")


def main(arguments: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("dslda").setLevel(logging.INFO)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        rows: list[dict[str, Any]] = []
        for n_topics in arguments.topics:
            for n_workers in arguments.workers:
                inside = None
                for n_documents in (arguments.in_memory, arguments.documents):
                    if n_documents == 0:
                        continue
                    row = _run(_corpus(arguments, folder, n_documents), n_topics, n_workers, arguments)
                    if inside is not None:
                        row["ratio"] = inside["rate"] / row["rate"]
                        row["cpu_ratio"] = (row["cpu"] / row["documents"]) / (
                            inside["cpu"] / inside["documents"]
                        )
                    inside = row
                    rows.append(row)
    facts = machine()
    print(
        f"{arguments.tokens} tokens a document, {arguments.terms:,} terms, {arguments.partition_documents:,} documents a "
        f"partition, {arguments.iterations} iterations, workers of {arguments.memory}; {facts['processor']}, "
        f"{facts['cores']} cores, {facts['date']}\n"
    )
    print(markdown(rows, COLUMNS))


def _corpus(arguments: argparse.Namespace, folder: Path, n_documents: int) -> Corpus:
    shape = Shape(n_documents, arguments.partition_documents, arguments.tokens, arguments.terms, topics=50)
    name = f"{n_documents}-{shape.partition_documents}-{shape.tokens}-{shape.terms}.corpus"
    return generate(shape, folder / name)


def _run(corpus: Corpus, n_topics: int, n_workers: int, arguments: argparse.Namespace) -> dict[str, Any]:
    spec = FitSpec(n_topics=n_topics, max_iter=arguments.iterations, tol=0.0)
    family = get_family("gaussian")
    source = CorpusSource(corpus, design=Design("y")).standardised(family)
    initial = initial_parameters(source.n_terms, spec=spec, family=family, moments=STANDARDISED)
    cpu: list[float] = []
    options = ClusterOptions(workers=n_workers, threads=1, memory_limit=arguments.memory)
    with cluster(options=options) as client, DaskExecutor(client, source, family, spec) as executor:
        before = worker_state(client)
        resident = isinstance(executor._partitions, ResidentPartitions)
        result = fit(
            executor,
            initial,
            family=family,
            spec=spec,
            progress=LogProgress(),
            on_iteration=lambda *_: cpu.append(cpu_of_all()),
        )
        after = worker_state(client)
    seconds = [corpus.n_documents / record.documents_per_second for record in result.trace]
    wall = sum(seconds[1:]) / (len(seconds) - 1)
    return {
        "documents": corpus.n_documents,
        "gib": source.nbytes.sum() / 2**30,
        "topics": n_topics,
        "workers": n_workers,
        "where": "in memory" if resident else "read again",
        "wall": wall,
        "cpu": (cpu[-1] - cpu[0]) / (len(cpu) - 1),
        "rate": corpus.n_documents / wall,
        "total": sum(seconds),
        "peak": after.peak_mib,
        "spilled": after.spilled,
        "pauses": after.pauses,
        "restarts": len(before.processes - after.processes),
    }
