"""Rounds of conditional training on a large cluster: how busy they keep its workers, and what fewer of them cost.

An epoch is 20 steps, each a round of the cluster. A step may take a sixtieth of the documents of every partition, or every
sixtieth partition. The work of both is measured here, on a simulated corpus: seconds to read a partition, to work on a
sixtieth of it, and on the whole. Rounds are measured on two workers. From these follow the seconds of an epoch on
``--workers`` workers, each with its share of consecutive partitions, as the product places them. Busy is the share of the
workers' time in which they would work, if a partition took no time to read.

With ``--local`` instead: the quality of a fit whose partitions each take the 20 steps of an epoch by themselves, from the
same topics, and whose logarithms of topics are then averaged. That is one round an epoch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from benchmarks.labelled_responses import RESPONSES, counted_documents, splits
from benchmarks.report import markdown
from dslda.cluster.opening import ClusterOptions, cluster
from dslda.datasets.simulate import simulate_corpus
from dslda.engine.conditional.conditional_fit import ConditionalFit
from dslda.engine.conditional.recipe import MOST_SLICES, N_STEPS, Recipe
from dslda.engine.conditional.selection import Selection
from dslda.engine.conditional.work import ConditionalPass, LengthPass
from dslda.engine.dask.dask_executor import DaskExecutor
from dslda.engine.data.fit_source import CorpusSource
from dslda.engine.em import Position
from dslda.engine.executor import Executor, SerialExecutor
from dslda.engine.reduction import number_of_nodes, task_level
from dslda.families.base import STANDARDISED
from dslda.families.registry import get_family
from dslda.ingestion.ingest import ingest
from dslda.variational.conditional.posterior import WeightedDocuments, infer_words_of
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from dslda.variational.term_weights import TermWeighting

SCHEDULE = {
    "partitions": ("partitions", ",d"),
    "layout": ("a step takes", ""),
    "step": ("work of a step, s", ".2f"),
    "round": ("its round, s", ".2f"),
    "epoch": ("epoch, s", ".0f"),
    "busy": ("busy", ".0%"),
    "epoch_read": ("epoch where every task reads, s", ".0f"),
}
QUALITY = {
    "response": ("corpus, response", ""),
    "steps": ("steps", ""),
    "r2": ("R2 of topics alone", ".3f"),
    "rounds": ("rounds an epoch", "d"),
}
N_EPOCHS = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=50, help="workers of one thread, simulated")
    parser.add_argument("--partitions", type=int, nargs="+", default=[160, 400, 640, 1280, 5000])
    parser.add_argument("--tokens", type=int, default=2_000_000, help="tokens of a partition")
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--local", action="store_true", help="measure local steps instead")
    parser.add_argument("--row", choices=RESPONSES, default="movie_rating", help="response of --local")
    parser.add_argument("--parts", type=int, default=50, help="partitions of --local")


def main(arguments: argparse.Namespace) -> None:
    if arguments.local:
        print(markdown(_local(arguments.row, arguments.parts, arguments.topics), QUALITY))
        return
    costs = _measured(arguments.tokens, arguments.topics)
    print(
        f"A partition of {arguments.tokens:,} tokens takes {costs.read:.3f} s to read, {costs.part:.3f} s of work for a "
        f"sixtieth of it, {costs.whole:.3f} s for all; a round {1e3 * costs.round:.0f} ms and {1e3 * costs.task:.1f} ms for "
        "each task\n"
    )
    rows = [
        _epoch(n, arguments.workers, costs, by_partition=by_partition)
        for n in arguments.partitions
        for by_partition in (True, False)
    ]
    print(markdown(rows, SCHEDULE))


class Costs(NamedTuple):
    """Seconds to read a partition, to work on it and on a sixtieth of it, of a round, and of each task of a round."""

    read: float
    whole: float
    part: float
    round: float
    task: float


def _epoch(n: int, n_workers: int, costs: Costs, *, by_partition: bool) -> dict[str, Any]:
    """Seconds of an epoch of `n` partitions, whose steps each end when the last worker is done."""
    owners = np.arange(n) * n_workers // n
    work = costs.whole if by_partition else costs.part
    steps, reads, rounds = [], [], []
    for number in range(N_STEPS):
        chosen = range(number, n, MOST_SLICES) if by_partition else range(n)
        most = int(np.bincount(owners[chosen]).max())
        steps.append(most * work)
        # reading goes on in another thread beside the work
        reads.append(max(most * work, most * costs.read) + costs.read)
        n_tasks = number_of_nodes(chosen, task_level(chosen, n_workers))
        rounds.append(costs.round + costs.task * n_tasks)
    epoch = sum(steps) + sum(rounds)
    return {
        "partitions": n,
        "layout": "every sixtieth partition" if by_partition else "a sixtieth of each partition",
        "step": float(np.mean(steps)),
        "round": float(np.mean(rounds)),
        "epoch": epoch,
        "busy": N_STEPS / MOST_SLICES * n * costs.whole / (n_workers * epoch),
        "epoch_read": sum(reads) + sum(rounds),
    }


def _measured(n_tokens: int, n_topics: int) -> Costs:
    family, spec = get_family("gaussian"), FitSpec(n_topics=n_topics, objective="conditional")
    with tempfile.TemporaryDirectory() as folder:
        block = simulate_corpus(3 * n_tokens // 100, n_topics, n_terms=20_000).block
        counts = csr_array((block.counts, block.terms, block.indptr), shape=(block.n_documents, 20_000))
        corpora = [
            ingest(
                counts,
                Path(folder) / f"{tokens}.corpus",
                vocabulary=[f"w{i}" for i in range(20_000)],
                response=block.responses,
                partition_tokens=tokens,
            )
            for tokens in (n_tokens, n_tokens // 40)
        ]
        large, small = (CorpusSource(corpus, design=Design("y")).standardised(family) for corpus in corpora)
        initial = initial_parameters(large.n_terms, spec=spec, family=family, moments=STANDARDISED)
        initial = replace(initial, weighting=TermWeighting("sqrt", 1.0))
        whole, part = ConditionalPass(), ConditionalPass(Selection(slice_of=(0, MOST_SLICES)))
        started = time.perf_counter()
        large.load(0)
        read = time.perf_counter() - started
        with SerialExecutor(large, family, spec) as executor:
            seconds = [_seconds(executor, initial, work, [0]) for work in (whole, part)]
        with (
            cluster(options=ClusterOptions(workers=2, threads=1)) as client,
            DaskExecutor(client, small, family, spec) as executor,
        ):
            light = LengthPass(TermWeighting("sqrt"))
            some, n = range(10), small.n_partitions
            few = _seconds(executor, initial, light, some)
            many = _seconds(executor, initial, light, range(n))
    task = max(many - few, 0.0) / (n - len(some))
    return Costs(read, *seconds, max(few - len(some) * task, 0.0), task)


def _seconds(executor: Executor, parameters: Parameters, work: Any, partitions: Sequence[int]) -> float:
    """The least of five runs, after one that reads and compiles."""
    executor.run(parameters, work, partitions=partitions)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        executor.run(parameters, work, partitions=partitions)
        times.append(time.perf_counter() - started)
    return min(times)


def _local(row: str, n_parts: int, n_topics: int) -> list[dict[str, Any]]:
    """R2 of held-out documents after the epochs of steps of the whole corpus, and of every partition by itself."""
    response = RESPONSES[row]
    documents = counted_documents(response)
    train, test = next(splits(documents, 5))
    family, spec = get_family("gaussian"), FitSpec(n_topics=n_topics, objective="conditional")
    y = documents.y[train]
    center, scale = float(y.mean()), float(y.std())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        counts = documents.counts[train]
        corpus = ingest(
            counts,
            Path(folder) / "train.corpus",
            vocabulary=documents.vocabulary.tolist(),
            response={"y": y},
            partition_tokens=int(counts.sum()) // n_parts,
        )
        source = CorpusSource(corpus, design=Design("y")).standardised(family)
        weighting = TermWeighting("sqrt", float(counts.sum() / np.sqrt(counts.data).sum()))
        recipe = Recipe.of(
            spec,
            weighting=weighting,
            has_classes=False,
            has_levels=False,
            n_labelled=len(train),
            n_documents=len(train),
            n_tokens=float(counts.sum()),
            n_partitions=source.n_partitions,
            repeated_share=0.0,
        )
        initial = initial_parameters(source.n_terms, spec=spec, family=family, moments=STANDARDISED)
        initial = replace(initial, alpha=np.full(n_topics, recipe.alpha), weighting=weighting)
        # all documents train: no partition alone has enough of an inner part
        recipe = replace(recipe, inner_share=0.0)

        def begun(executor: Executor) -> ConditionalFit:
            return ConditionalFit(
                executor, initial, family=family, spec=spec, recipe=recipe, fresh=lambda: initial
            )

        def r2(parameters: Parameters) -> float:
            held = documents.counts[test]
            words = WeightedDocuments.of(
                held.indptr.astype(np.int64), held.indices.astype(np.int32), held.data, parameters
            )
            predicted = infer_words_of(words, parameters, max_sweeps=spec.max_sweeps).zbar @ parameters.eta
            errors = documents.y[test] - (center + scale * predicted)
            return float(1.0 - np.mean(errors**2) / documents.y[test].var())

        with SerialExecutor(source, family, spec) as executor:
            for local in (False, True):
                run = begun(executor)
                while not run.has_settled_start:
                    run.advance()
                for _ in range(N_EPOCHS):
                    if local:
                        run = _averaged(run.position(), begun, executor, source)
                    else:
                        while not run.advance():
                            pass
                rows.append(
                    {
                        "response": response.title,
                        "steps": f"of each of {source.n_partitions} partitions"
                        if local
                        else "of the whole corpus",
                        "r2": r2(run.parameters),
                        "rounds": 1 if local else N_STEPS,
                    }
                )
    return rows


def _averaged(
    position: Position, begun: Callable[[Executor], ConditionalFit], executor: Executor, source: CorpusSource
) -> ConditionalFit:
    """A fit after an epoch in which every partition took its own steps, and with coefficients for the mean of topics."""
    logs, weights = 0.0, source.n_documents / source.n_documents.sum()
    for i, weight in enumerate(weights):
        alone = begun(_OnePartition(executor, i, int(source.n_documents[i])))
        alone.restore(position)
        while not alone.advance():
            pass
        logs = logs + weight * np.log(np.maximum(alone.parameters.topics, 1e-300))
    topics = np.exp(logs - np.max(logs, axis=0))
    topics /= topics.sum(axis=0)
    whole = begun(executor)
    # without the sums of coefficients the fit is at the end of its start, where it solves them
    state = {name: array for name, array in position.state.items() if not name.startswith("slices_")}
    whole.restore(replace(position, parameters=replace(position.parameters, topics=topics), state=state))
    while not whole.has_settled_start:
        whole.advance()
    return whole


class _OnePartition(Executor):
    """An executor that sees one partition of another."""

    def __init__(self, executor: Executor, partition: int, n_documents: int) -> None:
        self._executor, self._partition, self._n = executor, partition, n_documents

    @property
    def n_documents(self) -> int:
        return self._n

    @property
    def n_partitions(self) -> int:
        return 1

    def run(self, parameters: Any, work: Any, *, partitions: Any = None, **others: Any) -> Any:
        return self._executor.run(parameters, work, partitions=[self._partition])

    def close(self) -> None:
        return
