"""A corpus larger than its workers' memory: read again in every iteration, in memory that does not grow with it."""

from __future__ import annotations

import logging
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest
from distributed import Client, Worker
from scipy.sparse import csr_array

from dslda.cluster.opening import LEAST_MEMORY, ClusterOptions, cluster
from dslda.corpus.block import DocumentBlock
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusWriter
from dslda.engine.dask.dask_executor import DaskExecutor
from dslda.engine.dask.placement import StreamedPartitions
from dslda.engine.dask.worker_memory import (
    WorkerMemory,
    check_parameters_fit,
    room_for_documents,
    working_memory,
)
from dslda.engine.data.fit_source import CorpusSource
from dslda.engine.passes import E_STEP
from dslda.exceptions import DataWarning, InputError
from dslda.families.base import STANDARDISED
from dslda.families.gaussian import Gaussian
from dslda.training.train import train
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, initial_parameters

N_TERMS = 500
N_DOCUMENTS = 1500
ENTRIES = 300
PARTITION_BYTES = 8 * N_DOCUMENTS * ENTRIES
SPEC = FitSpec(n_topics=2, max_sweeps=1)


def write(path: Path, n_partitions: int) -> Corpus:
    """Partitions of 3.6 MB, all with the same documents."""
    rng = np.random.default_rng(1)
    rows = [np.sort(rng.choice(N_TERMS, ENTRIES, replace=False)) for _ in range(50)]
    block = DocumentBlock(
        indptr=np.arange(N_DOCUMENTS + 1, dtype=np.int64) * ENTRIES,
        terms=np.concatenate(rows * (N_DOCUMENTS // 50)).astype(np.int32),
        counts=np.ones(N_DOCUMENTS * ENTRIES, dtype=np.int32),
        responses={"y": rng.normal(size=N_DOCUMENTS)},
    )
    writer = CorpusWriter(
        path,
        vocabulary=Vocabulary(tuple(f"t{i:03}" for i in range(N_TERMS))),
        text_settings=TextSettings(),
        n_partitions=n_partitions,
        document_capacity=N_DOCUMENTS,
        entry_capacity=N_DOCUMENTS * ENTRIES,
        responses=["y"],
    )
    writer.prepare()
    writer.finish([writer.write_partition(i, block) for i in range(n_partitions)])
    return open_corpus(path)


def source_of(corpus: Corpus) -> CorpusSource:
    return CorpusSource(corpus, design=Design("y")).standardised(Gaussian())


def state_of(dask_worker: Worker) -> tuple[int, int, int]:
    """Process, bytes ever spilled, and the most memory it ever took."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    spilled = dask_worker.data.spilled_total  # type: ignore[union-attr]
    return os.getpid(), spilled.disk, int(status["VmHWM"].split()[0]) * 1024


def iterate(client: Client, corpus: Corpus, n_iterations: int) -> None:
    source = source_of(corpus)
    parameters = initial_parameters(N_TERMS, spec=SPEC, family=Gaussian(), moments=STANDARDISED)
    with DaskExecutor(client, source, Gaussian(), SPEC) as executor:
        assert isinstance(executor._partitions, StreamedPartitions)
        for _ in range(n_iterations):
            statistics, _ = executor.run(parameters, E_STEP)
            assert statistics.n_documents == corpus.n_documents


@pytest.mark.skipif(sys.platform != "linux", reason="the peak memory of a process is Linux's")
@pytest.mark.soak
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    few, many = write(tmp_path / "few.corpus", 10), write(tmp_path / "many.corpus", 60)
    options = ClusterOptions(workers=2, threads=1, memory_limit=LEAST_MEMORY)
    # in this order: starting a cluster silences the handlers that there are
    with cluster(options=options) as client, caplog.at_level(logging.INFO, "dslda.engine"):
        # a tenth of what may be kept by default: a corpus several times that is too large for a quick test
        with dask.config.set({"dslda.engine.resident-fraction": 0.05}):
            iterate(client, few, 1)
            before = client.run(state_of)
            iterate(client, many, 2)
        after = client.run(state_of)
        changes = [
            message
            for _, events in client.get_events().items()
            for _, message in events
            if isinstance(message, dict)
            and message.get("action") in ("worker-status-change", "remove-worker", "restart-workers")
            and message.get("prev-status") not in ("init", "undefined")
        ]
    assert changes == []  # a pause is a change of status
    for worker, (process, spilled, peak) in after.items():
        assert (process, spilled) == (before[worker][0], 0)
        # what 25 partitions more for each worker add would be three times this
        assert peak - before[worker][2] < 8 * PARTITION_BYTES
    assert "the documents take 207.37 MiB, and there is room for " in caplog.text
    assert " in 2 workers of 400.00 MiB: each partition is read again in every iteration" in caplog.text


def test_room_for_documents_is_what_parameters_and_sums_leave(problem: Any) -> None:
    worker = WorkerMemory(2 * 2**30, 2)
    few = room_for_documents([worker] * 2, problem.source, FitSpec(n_topics=4), level=0, fraction=0.5)
    assert 1.4 * 2**30 < few < 2 * 2**30
    many = room_for_documents([worker] * 2, problem.source, FitSpec(n_topics=80_000), level=0, fraction=0.5)
    assert many == 0.0
    spec = FitSpec(n_topics=1000)
    small, large = (working_memory(problem.source, spec, threads=2, level=level) for level in (0, 1))
    # sums of a whole subtree beside those of a partition
    assert large - small == 2 * (8 * 1000 * problem.source.n_terms + 8 * 1000**2)
    assert room_for_documents(
        [WorkerMemory(float("inf"), 1)], problem.source, SPEC, level=0, fraction=0.5
    ) == (float("inf"))


def test_a_worker_too_small_for_the_topics_is_told(
    problem: Any, in_process: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dslda.engine"), problem.executor(in_process):
        assert caplog.text == ""
    (worker,) = in_process.scheduler_info()["workers"].values()
    # eight statistics wait to be added up, two there must be at least
    large = replace(problem.spec, n_topics=int((worker["memory_limit"] / 32) ** 0.5))
    with (
        caplog.at_level(logging.WARNING, "dslda.engine"),
        DaskExecutor(in_process, problem.source, problem.family, large),
    ):
        assert "give it more memory or fewer threads, or choose fewer topics or terms" in caplog.text


def test_more_topics_than_there_can_be_are_refused_with_the_most_there_can(
    problem: Any, in_process: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_terms = problem.source.n_terms
    (worker,) = in_process.scheduler_info()["workers"].values()
    for available in (LEAST_MEMORY, 2 * 2**30):
        with pytest.raises(InputError) as raised:
            check_parameters_fit(FitSpec(n_topics=90_000), n_terms, available, who="a worker")
        most = int(re.search("at most ([0-9,]+) with", str(raised.value))[1].replace(",", ""))
        check_parameters_fit(FitSpec(n_topics=most), n_terms, available, who="a worker")
        with pytest.raises(InputError):
            check_parameters_fit(FitSpec(n_topics=most + 1), n_terms, available, who="a worker")
    many = replace(problem.spec, n_topics=int((worker["memory_limit"] / 16) ** 0.5))
    with (
        pytest.raises(InputError, match=r"where a worker has .*, got .*; choose fewer topics"),
        DaskExecutor(in_process, problem.source, problem.family, many),
    ):
        pass
    monkeypatch.setattr("distributed.system.MEMORY_LIMIT", 2 * 2**30)
    with (
        pytest.warns(DataWarning, match="cannot be told apart"),
        pytest.raises(InputError, match=r"at most 8,\d+ with 4 terms where this machine has 2\.00 GiB"),
    ):
        train(csr_array(np.eye(4)), response=np.arange(4.0), n_topics=100_000)
