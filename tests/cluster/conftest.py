"""A small stored corpus, the result of its fit in one process, and clusters to fit it on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse

from dslda.cluster.opening import ClusterOptions, cluster
from dslda.corpus.store import Corpus
from dslda.datasets.simulate import simulate_corpus
from dslda.engine.conditional.conditional_fit import fit_conditionally
from dslda.engine.dask.dask_executor import DaskExecutor
from dslda.engine.data.fit_source import CorpusSource, FitSource
from dslda.engine.driver import FitResult, fit
from dslda.engine.em import Position
from dslda.engine.executor import Executor, SerialExecutor
from dslda.families.base import STANDARDISED, Family
from dslda.families.gaussian import Gaussian
from dslda.ingestion.ingest import ingest
from dslda.persistence.checkpoint_store import read_checkpoint
from dslda.training.checkpoint import FitCheckpoint
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from tests.helpers.processes import QUICK

N_TERMS = 300


@dataclass(frozen=True, eq=False)
class Problem:
    """One fit of a small corpus, and the digest it must give everywhere."""

    corpus: Corpus
    source: FitSource
    family: Family
    spec: FitSpec

    def fit(self, executor: Executor, *, checkpoint: Path | None = None, **keywords: Any) -> FitResult:
        """With a checkpoint: go on from the one that is there, and write one when the fit ends, never before."""
        initial = initial_parameters(
            self.source.n_terms, spec=self.spec, family=self.family, moments=STANDARDISED
        )
        if checkpoint is not None:
            kept = FitCheckpoint(checkpoint, every=1000, resume=True)
            kept.read({"settings": {"max_iter": self.spec.max_iter}})
            start = kept.start(initial)
            initial = start.parameters
            keywords |= {"done": start.trace, "checkpoints": kept.schedule(start)}
        return fit(executor, initial, family=self.family, spec=self.spec, **keywords)

    def fit_conditionally(self, executor: Executor, **keywords: Any) -> FitResult:
        """Conditional training of the same documents."""
        spec = self.conditional_spec

        def fresh() -> Parameters:
            return initial_parameters(
                self.source.n_terms, spec=spec, family=self.family, moments=STANDARDISED
            )

        return fit_conditionally(
            executor, Position(fresh()), fresh, family=self.family, spec=spec, **keywords
        )

    @property
    def conditional_spec(self) -> FitSpec:
        return FitSpec(n_topics=4, objective="conditional", max_iter=7)

    def executor(self, client: Client, source: FitSource | None = None) -> DaskExecutor:
        return DaskExecutor(client, source or self.source, self.family, self.spec)

    def fit_on(self, client: Client, source: FitSource | None = None, **keywords: Any) -> str:
        with self.executor(client, source) as executor:
            return digest(self.fit(executor, **keywords))

    def resumed(self, checkpoint: Path) -> tuple[int, str]:
        """Iterations that a checkpoint holds, and the digest of the fit that goes on from it in this process."""
        done = read_checkpoint(checkpoint).n_iterations
        with SerialExecutor(self.source, self.family, self.spec) as executor:
            return done, digest(self.fit(executor, checkpoint=checkpoint))


def digest(result: FitResult) -> str:
    parameters = result.parameters
    sha = hashlib.sha256()
    arrays = [parameters.topics, parameters.eta, parameters.delta]
    if (remainder := parameters.remainder) is not None:
        arrays += [remainder.words, remainder.expected]
    for array in arrays:
        sha.update(np.ascontiguousarray(array).tobytes())
    sha.update(repr([record.elbo for record in result.trace]).encode())
    return sha.hexdigest()


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    block = simulate_corpus(650, 4, N_TERMS, mean_tokens=60, missing=0.1, seed=5).block
    matrix = sparse.csr_array((block.counts, block.terms, block.indptr), shape=(block.n_documents, N_TERMS))
    corpus = ingest(
        matrix,
        tmp_path_factory.mktemp("cluster") / "simulated.corpus",
        vocabulary=[f"t{i}" for i in range(N_TERMS)],
        # a word that no topic explains
        response={"y": block.responses["y"] + 1.5 * (matrix[:, [3]].toarray()[:, 0] > 0)},
        partition_tokens=3000,
    )
    family = Gaussian()
    source = CorpusSource(corpus, design=Design("y"))
    source = source.standardised(family)
    assert source.n_partitions == 13
    return Problem(corpus, source, family, FitSpec(n_topics=4, max_iter=5, tol=0.0))


@pytest.fixture(scope="session")
def expected(problem: Problem) -> str:
    """The digest of the fit in this process."""
    with SerialExecutor(problem.source, problem.family, problem.spec) as executor:
        return digest(problem.fit(executor))


@pytest.fixture(scope="session")
def expected_conditional(problem: Problem) -> str:
    """The digest of conditional training in this process."""
    with SerialExecutor(problem.source, problem.family, problem.conditional_spec) as executor:
        result = problem.fit_conditionally(executor)
    assert result.parameters.remainder is not None
    return digest(result)


@pytest.fixture(scope="session")
def digest_of() -> Callable[[FitResult], str]:
    return digest


@contextmanager
def _processes(n_workers: int) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def processes() -> Callable[[int], AbstractContextManager[Client]]:
    """Clusters of worker processes of one thread."""
    return _processes


@pytest.fixture(scope="module")
def two_programs() -> Iterator[Client]:
    """Two workers, each with a nanny in a process of its own; those that hang are soon looked at."""
    with dask.config.set(QUICK), cluster(options=ClusterOptions(workers=2, threads=1)) as client:
        yield client
