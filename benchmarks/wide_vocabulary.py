"""Does one iteration of very many topics and terms run on this machine, and in what memory?

Generates a corpus with a wide vocabulary and iterates over it. The matrix of K x V doubles is larger than a message may
be, so it is sent, and summed, in parts. Peak memory is that of this process, which is client and scheduler, and of the
largest worker.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import dask.config

from benchmarks.generated import Shape, generate
from benchmarks.report import machine, markdown
from benchmarks.workers import peak_bytes, worker_state
from dslda.cluster.opening import ClusterOptions, cluster
from dslda.corpus.store import Corpus
from dslda.engine.dask.dask_executor import DaskExecutor
from dslda.engine.data.fit_source import CorpusSource
from dslda.engine.driver import fit
from dslda.engine.em import IterationRecord
from dslda.engine.progress import LogProgress
from dslda.families.base import STANDARDISED
from dslda.families.registry import get_family
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, initial_parameters

COLUMNS = {
    "topics": ("K", "d"),
    "terms": ("V", ",d"),
    "matrix": ("K x V, GiB", ".2f"),
    "own_terms": ("terms of a partition", ",.0f"),
    "wire": ("sent as", ""),
    "first": ("first line after, s", ".1f"),
    "start": ("iteration 1 begins after, s", ".1f"),
    "publish": ("publish, s", ".1f"),
    "e_step": ("E-step, s", ".1f"),
    "reduce": ("rest of the sums, s", ".1f"),
    "m_step": ("M-step, s", ".1f"),
    "client": ("client and scheduler, peak GiB", ".2f"),
    "worker": ("worker, peak GiB", ".2f"),
    "spilled": ("spilled bytes", "d"),
    "pauses": ("pauses", "d"),
}


class _FirstLine(logging.Handler):
    """Records the time of the first line."""

    def __init__(self) -> None:
        super().__init__()
        self.came: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.came is None:
            self.came = time.perf_counter()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--terms", type=int, default=200_000)
    parser.add_argument("--documents", type=int, default=8_000)
    parser.add_argument("--partition-documents", type=int, default=1_000)
    parser.add_argument("--tokens", type=int, default=100, help="tokens of a document")
    parser.add_argument("--workers", type=int, default=1, help="processes of one thread")
    parser.add_argument("--memory", default="12GiB", help="memory limit of a worker")
    parser.add_argument(
        "--iterations", type=int, default=2, help="the M-step shown is the one before the last"
    )
    parser.add_argument("--float32", action="store_true", help="send topics as float32")
    parser.add_argument("--folder", type=Path, help="for the corpus, kept; a temporary one by default")


def main(arguments: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("dslda").setLevel(logging.INFO)
    shape = Shape(
        arguments.documents, arguments.partition_documents, arguments.tokens, arguments.terms, topics=50
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        name = f"{shape.documents}-{shape.partition_documents}-{shape.tokens}-{shape.terms}.corpus"
        corpus = generate(shape, folder / name)
        with dask.config.set({"dslda.engine.float32-parameters": arguments.float32}):
            row = _run(corpus, arguments)
    facts = machine()
    print(
        f"{corpus.n_documents:,} documents of {arguments.tokens} tokens in {corpus.n_partitions} partitions, "
        f"{arguments.workers} workers of {arguments.memory}; {facts['processor']}, {facts['cores']} cores, "
        f"{facts['date']}\n"
    )
    print(markdown([row], COLUMNS))


def _run(corpus: Corpus, arguments: argparse.Namespace) -> dict[str, Any]:
    spec = FitSpec(n_topics=arguments.topics, max_iter=arguments.iterations, tol=0.0)
    family = get_family("gaussian")
    own_terms = len(set(corpus.read(0).terms.tolist()))
    options = ClusterOptions(workers=arguments.workers, threads=1, memory_limit=arguments.memory)
    with cluster(options=options) as client:
        first_line = _FirstLine()
        logging.getLogger("dslda.engine").addHandler(first_line)
        began = time.perf_counter()
        source = CorpusSource(corpus, design=Design("y")).standardised(family)
        with DaskExecutor(client, source, family, spec) as executor:
            initial = initial_parameters(source.n_terms, spec=spec, family=family, moments=STANDARDISED)
            started = time.perf_counter()
            result = fit(executor, initial, family=family, spec=spec, progress=LogProgress())
        state = worker_state(client)
    last: IterationRecord = result.trace[-1]
    assert first_line.came is not None
    return {
        "topics": arguments.topics,
        "terms": arguments.terms,
        "matrix": 8 * arguments.topics * arguments.terms / 2**30,
        "own_terms": own_terms,
        "wire": "float32" if arguments.float32 else "float64",
        "first": first_line.came - began,
        "start": started - began,
        "publish": last.publish_seconds,
        "e_step": last.e_step_seconds,
        "reduce": last.reduce_seconds,
        "m_step": last.m_step_seconds,
        "client": peak_bytes() / 2**30,
        "worker": state.peak_mib / 1024,
        "spilled": state.spilled,
        "pauses": state.pauses,
    }
