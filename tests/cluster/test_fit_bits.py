"""The same bits, whatever runs the fit; and nothing of it stays on the cluster."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest
from distributed import Client, LocalCluster

from dslda.datasets.simulate import simulate_corpus
from dslda.engine import reduction
from dslda.engine.conditional import conditional_fit, recipe
from dslda.engine.dask import publish
from dslda.engine.dask.dask_executor import DaskExecutor
from dslda.engine.dask.events import EventHub
from dslda.engine.dask.placement import ResidentPartitions, StreamedPartitions
from dslda.engine.data.fit_source import FutureSource, MemorySource
from dslda.engine.executor import Executor, SerialExecutor
from dslda.engine.passes import E_STEP, CoOccurrencePass
from dslda.engine.word_coefficients import suited_to_words
from dslda.evaluation.topic_quality import N_TOP
from dslda.exceptions import ConvergenceWarning, InputError
from dslda.families.base import STANDARDISED
from dslda.families.poisson import Poisson
from dslda.ingestion.ingest import ingest
from dslda.model import load_model
from dslda.training import bootstrap, starts
from dslda.training.train import train
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, initial_parameters
from dslda.variational.statistics import SufficientStatistics
from tests.helpers.files import write_records

# fixtures of this folder: problem, expected, processes, in_process


def wait_until_forgotten(client: Client) -> list[Any]:
    """Tasks the scheduler still knows once releases have arrived."""
    for _ in range(100):
        tasks = list(client.cluster.scheduler.tasks)
        if not tasks:
            break
        time.sleep(0.05)
    return tasks


def test_two_threads_give_the_bits_of_one_process_and_leave_no_task(
    problem: Any, expected: str, in_process: Client
) -> None:
    # a warning about a large graph would be an error here
    assert problem.fit_on(in_process) == expected
    assert wait_until_forgotten(in_process) == []


@pytest.mark.parametrize(
    "fraction", [0.5, pytest.param(1e-9, marks=pytest.mark.soak)], ids=["kept", "read again"]
)
def test_conditional_training_has_the_bits_of_one_process(
    problem: Any, expected_conditional: str, digest_of: Any, in_process: Client, fraction: float
) -> None:
    with (
        dask.config.set({"dslda.engine.resident-fraction": fraction}),
        DaskExecutor(in_process, problem.source, problem.family, problem.conditional_spec) as executor,
    ):
        assert digest_of(problem.fit_conditionally(executor)) == expected_conditional
    assert wait_until_forgotten(in_process) == []


def test_coefficients_that_suit_words_have_the_bits_of_one_process(
    problem: Any, digest_of: Any, in_process: Client
) -> None:
    heavy = replace(problem, spec=FitSpec(n_topics=4, max_iter=5, tol=0.0, response_weight=10.0))
    digests, of_em = set(), set()
    for executor in (
        SerialExecutor(heavy.source, heavy.family, heavy.spec),
        heavy.executor(in_process),
    ):
        with executor:
            result = heavy.fit(executor)
            of_em.add(digest_of(result))
            digests.add(digest_of(suited_to_words(executor, result, family=heavy.family, spec=heavy.spec)))
    assert len(digests) == len(of_em) == 1
    assert digests != of_em
    assert wait_until_forgotten(in_process) == []


def test_slices_of_whole_partitions_have_the_bits_of_one_process(
    problem: Any, digest_of: Any, in_process: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "WHOLE_PARTITIONS", 10)
    for module in (recipe, conditional_fit):
        monkeypatch.setattr(module, "N_STEPS", 4)
    # as of many documents, where the last epochs follow the best one
    monkeypatch.setattr(recipe, "INNER_DOCUMENTS", 1)
    digests = set()
    for executor in (
        SerialExecutor(problem.source, problem.family, problem.conditional_spec),
        DaskExecutor(in_process, problem.source, problem.family, problem.conditional_spec),
    ):
        with executor:
            digests.add(digest_of(problem.fit_conditionally(executor)))
    assert len(digests) == 1


def test_nothing_of_an_iteration_stays_on_the_cluster(problem: Any, in_process: Client) -> None:
    scheduler = in_process.cluster.scheduler
    n = problem.source.n_partitions
    with problem.executor(in_process) as executor:
        parameters = initial_parameters(
            problem.source.n_terms, spec=problem.spec, family=problem.family, moments=STANDARDISED
        )
        for _ in range(2):
            executor.run(parameters, E_STEP)
            for _ in range(100):
                if len(scheduler.tasks) == n:
                    break
                time.sleep(0.05)
            assert {key[0].rsplit("-", 1)[0] for key in scheduler.tasks} == {"dslda-load"}
            assert len(scheduler.tasks) == n
    assert wait_until_forgotten(in_process) == []


def test_words_of_topics_are_counted_together_alike_on_any_executor(
    problem: Any, in_process: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    n_topics, n_terms = problem.spec.n_topics, problem.source.n_terms
    top = np.stack([generator.permutation(n_terms)[:N_TOP] for _ in range(n_topics)]).astype(np.int32)
    parameters = initial_parameters(n_terms, spec=problem.spec, family=problem.family, moments=STANDARDISED)
    work = CoOccurrencePass(top)
    with SerialExecutor(problem.source, problem.family, problem.spec) as executor:
        here, _ = executor.run(parameters, work)
    assert here.weight == here.n_documents == problem.source.n_documents.sum()
    assert np.count_nonzero(here.documents) > top.size  # pairs too, not only words
    for largest in (publish.LARGEST_MESSAGE, 1000):  # in one piece, and in parts of the vocabulary
        monkeypatch.setattr(publish, "LARGEST_MESSAGE", largest)
        monkeypatch.setattr(publish, "PART_BYTES", largest)
        with problem.executor(in_process) as executor:
            there, _ = executor.run(parameters, work)
        assert there.documents.tobytes() == here.documents.tobytes()
        assert (there.weight, there.n_documents) == (here.weight, here.n_documents)


def test_fits_leave_nothing_in_client_scheduler_and_worker_but_what_one_fit_leaves(
    problem: Any, in_process: Client
) -> None:
    scheduler = in_process.cluster.scheduler
    (worker,) = in_process.cluster.workers.values()
    hub = EventHub.of(in_process)
    left: list[dict[str, int]] = []
    for fraction in (0.5, 1e-9, 0.5, 1e-9):
        with dask.config.set({"dslda.engine.resident-fraction": fraction}):
            problem.fit_on(in_process)
        assert wait_until_forgotten(in_process) == []
        for _ in range(100):  # the worker hears of it last
            if not worker.state.tasks:
                break
            time.sleep(0.05)
        assert (in_process.futures, dict(worker.data), worker.state.tasks, hub.watches) == ({}, {}, {}, {})
        left.append(
            {
                "topics": sum("dslda" in topic for topic in scheduler.get_events()),
                "groups": len(scheduler.task_groups),
                "plugins": len(worker.plugins) + len(scheduler.worker_plugins) + len(scheduler.plugins),
                "threads": sum("dslda" in thread.name for thread in threading.enumerate()),
                "extra": len(scheduler.unrunnable) + len(scheduler.queued),
            }
        )
    assert left[0] == left[-1]
    assert left[0]["topics"] == 1
    assert left[0]["threads"] == 0


def test_partitions_read_in_every_iteration_give_the_same_bits(
    problem: Any, expected: str, in_process: Client
) -> None:
    with dask.config.set({"dslda.engine.resident-fraction": 1e-9}), problem.executor(in_process) as executor:
        assert isinstance(executor._partitions, StreamedPartitions)
    with problem.executor(in_process) as executor:
        assert isinstance(executor._partitions, ResidentPartitions)
    with dask.config.set({"dslda.engine.resident-fraction": 1e-9}):
        assert problem.fit_on(in_process) == expected


def test_parameters_are_sent_to_all_workers_and_are_gone_when_released(problem: Any) -> None:
    from dslda.cluster.client import release

    parameters = initial_parameters(
        problem.source.n_terms, spec=problem.spec, family=problem.family, moments=STANDARDISED
    )
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
        ) as running,
        Client(running, set_as_default=False) as client,
    ):
        for everywhere in (True, False):
            (sent,) = publish.publish(
                client, parameters, n_parts=1, float32=False, timeout=30, everywhere=everywhere
            )
            holders = set(client.who_has([sent])[sent.key])
            assert holders == client.nthreads().keys() or (not everywhere and len(holders) == 1)
            release([sent])
        assert wait_until_forgotten(client) == []


def test_partitions_kept_in_bundles_give_the_same_bits(
    problem: Any, expected: str, in_process: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduction, "MOST_TASKS", 4)
    with problem.executor(in_process) as executor:
        assert [len(bundle) for bundle in executor._partitions._bundles] == [4, 4, 4, 1]
        assert len(executor._partitions._futures) == 4
    assert problem.fit_on(in_process) == expected
    assert wait_until_forgotten(in_process) == []


def test_matrices_sent_in_parts_give_the_same_bits_and_leave_no_task(
    problem: Any, expected: str, in_process: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a fit that is large enough by itself takes minutes
    monkeypatch.setattr(publish, "LARGEST_MESSAGE", 1000)
    monkeypatch.setattr(publish, "PART_BYTES", 2000)
    with problem.executor(in_process) as executor:
        assert executor._n_parts == 5
    sizes: list[int] = []
    scatter = in_process.scatter

    def watched(part: Any, **keywords: Any) -> Any:
        sizes.append(sys.getsizeof(part))
        return scatter(part, **keywords)

    monkeypatch.setattr(in_process, "scatter", watched)
    assert problem.fit_on(in_process) == expected
    assert len(sizes) == 5 * problem.spec.max_iter
    assert max(sizes) < 2300
    assert wait_until_forgotten(in_process) == []


def test_parameters_sent_as_float32_give_the_same_bits_with_workers_and_without(
    problem: Any, expected: str, digest_of: Any, in_process: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SerialExecutor(problem.source, problem.family, problem.spec) as executor:
        exact = problem.fit(executor)
    with dask.config.set({"dslda.engine.float32-parameters": True}):
        with SerialExecutor(problem.source, problem.family, problem.spec) as executor:
            rounded = problem.fit(executor)
        assert problem.fit_on(in_process) == digest_of(rounded) != expected
        monkeypatch.setattr(publish, "LARGEST_MESSAGE", 1000)
        monkeypatch.setattr(publish, "PART_BYTES", 2000)
        assert problem.fit_on(in_process) == digest_of(rounded)
    assert rounded.trace[-1].elbo == pytest.approx(exact.trace[-1].elbo, rel=1e-6)
    with (
        dask.config.set({"dslda.engine.float32-parameters": "perhaps"}),
        pytest.raises(InputError, match="float32-parameters must be true or false, got 'perhaps'"),
    ):
        problem.executor(in_process)


def test_blocks_of_a_bag_give_the_same_bits(
    problem: Any, expected: str, of_partitions_here: list[str], in_process: Client
) -> None:
    corpus = problem.corpus
    futures = [in_process.submit(corpus.read, i, pure=False) for i in range(corpus.n_partitions)]
    source = FutureSource(
        futures,
        n_terms=corpus.n_terms,
        n_documents=[p.n_documents for p in corpus.partitions],
        n_entries=[p.nnz for p in corpus.partitions],
        design=Design("y"),
    )
    assert source.response_summary() == problem.source.response_summary()
    assert problem.fit_on(in_process, source.with_design(problem.source.design)) == expected
    with problem.executor(in_process, source.with_design(problem.source.design)) as executor:
        assert of_partitions(executor, problem) == of_partitions_here
    assert {future.status for future in futures} == {"finished"}


def test_a_subset_gives_the_bits_of_one_process(problem: Any, digest_of: Any, in_process: Client) -> None:
    from dslda.engine.data.fit_source import CorpusSource

    subset = CorpusSource(
        problem.corpus, design=Design("y"), documents=np.arange(0, problem.corpus.n_documents, 3)
    )
    with SerialExecutor(subset, problem.family, problem.spec) as executor:
        serial = problem.fit(executor)
    assert serial.statistics.n_documents == int(subset.n_documents.sum())
    assert problem.fit_on(in_process, subset) == digest_of(serial)


SUBSETS = [[2, 3, 5, 9, 12], [11], [6, 4, 7, 5], list(range(13))]


def statistics_digest(statistics: SufficientStatistics) -> str:
    sha = hashlib.sha256()
    for array in (statistics.topic_counts, statistics.score, statistics.information, statistics.log_theta):
        sha.update(np.ascontiguousarray(array).tobytes())
    return f"{sha.hexdigest()} {statistics.elbo!r} {statistics.n_documents}"


def of_partitions(executor: Executor, problem: Any) -> list[str]:
    """Digests of the statistics of some subsets of the partitions."""
    initial = initial_parameters(
        problem.source.n_terms, spec=problem.spec, family=problem.family, moments=STANDARDISED
    )
    return [
        statistics_digest(executor.run(initial, E_STEP, partitions=partitions)[0])
        for partitions in (*SUBSETS, None)
    ]


@pytest.fixture(scope="module")
def of_partitions_here(problem: Any) -> list[str]:
    with SerialExecutor(problem.source, problem.family, problem.spec) as executor:
        digests = of_partitions(executor, problem)
    assert digests[-1] == digests[-2]
    assert len(set(digests)) == len(SUBSETS)
    return digests


@pytest.mark.parametrize(
    ("fraction", "most_tasks", "per_thread", "largest"),
    [(0.5, 1024, 6, 1 << 30), (1e-9, 1024, 1, 1 << 30), (0.5, 4, 1, 1 << 30), (0.5, 1024, 6, 1000)],
    ids=["kept", "read again", "in bundles", "sent in parts"],
)
def test_some_of_the_partitions_give_the_bits_of_one_process(
    problem: Any,
    of_partitions_here: list[str],
    in_process: Client,
    monkeypatch: pytest.MonkeyPatch,
    fraction: float,
    most_tasks: int,
    per_thread: int,
    largest: int,
) -> None:
    monkeypatch.setattr(reduction, "MOST_TASKS", most_tasks)
    monkeypatch.setattr(reduction, "GROUPS_PER_THREAD", per_thread)
    monkeypatch.setattr(publish, "LARGEST_MESSAGE", largest)
    monkeypatch.setattr(publish, "PART_BYTES", 2 * largest)
    with (
        dask.config.set({"dslda.engine.resident-fraction": fraction}),
        problem.executor(in_process) as executor,
    ):
        assert of_partitions(executor, problem) == of_partitions_here
    assert wait_until_forgotten(in_process) == []


def test_only_the_tasks_of_the_chosen_partitions_run(problem: Any, in_process: Client) -> None:
    initial = initial_parameters(
        problem.source.n_terms, spec=problem.spec, family=problem.family, moments=STANDARDISED
    )
    seen: list[int] = []
    submitted: list[Any] = []
    submit = in_process.submit

    def watched(function: Any, *arguments: Any, **keywords: Any) -> Any:
        submitted.append(keywords["key"])
        return submit(function, *arguments, **keywords)

    with problem.executor(in_process) as executor, pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_process, "submit", watched)
        executor.run(initial, E_STEP, partitions=[12, 3], on_partition=seen.append)
    assert sorted(seen) == sorted(problem.source.n_documents[[3, 12]])
    assert [key[1:] for key in submitted if key[0].startswith("dslda-estep")] == [(3, 4), (12, 13)]


def test_documents_in_memory_are_not_sent_to_a_cluster(problem: Any, in_process: Client) -> None:
    block = problem.corpus.read(0)
    source = MemorySource(block, problem.corpus.n_terms, design=Design("y"))
    with pytest.raises(InputError, match="ingest them"):
        problem.executor(in_process, source)


def test_progress_counts_every_document_once(problem: Any, in_process: Client) -> None:
    seen: list[int] = []
    with problem.executor(in_process) as executor:
        statistics, times = executor.run(
            initial_parameters(
                problem.source.n_terms, spec=problem.spec, family=problem.family, moments=STANDARDISED
            ),
            E_STEP,
            on_partition=seen.append,
        )
        assert len(seen) == problem.source.n_partitions
        assert sum(seen) == executor.n_documents == statistics.n_documents
        assert min(times.publish, times.e_step, times.reduce) >= 0.0


@pytest.mark.soak
def test_worker_processes_that_leave_and_join_change_no_bit(
    problem: Any, expected: str, processes: Any
) -> None:
    with processes(2) as client:
        assert problem.fit_on(client) == expected

        def leave(record: Any, parameters: Any) -> None:
            if record.iteration == 2:
                client.cluster.scale(1)  # retires the worker: its partitions move to the other one

        assert problem.fit_on(client, on_iteration=leave) == expected
        assert len(client.nthreads()) == 1

        def join(record: Any, parameters: Any) -> None:
            if record.iteration == 2:
                client.cluster.scale(2)
                client.wait_for_workers(2, timeout=60)

        # distributed may keep parameters that were on their way to a worker that retires
        assert problem.fit_on(client, on_iteration=join) == expected


REGISTER = """
from dslda.families.registry import register
register(Exponential)
"""


@pytest.mark.slow
def test_train_gives_the_same_bits_on_worker_processes_for_counts_classes_and_a_family_of_ones_own(
    processes: Any,
    in_process: Client,
    documented_family: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "waiting_families.py").write_text(documented_family + REGISTER)
    monkeypatch.syspath_prepend(tmp_path)
    from waiting_families import Exponential

    n = 300
    generator = np.random.default_rng(0)
    days, age = generator.integers(1, 9, n), generator.normal(40, 10, n)
    drawn = simulate_corpus(n, 3, 50, mean_tokens=40, seed=2)
    omega = drawn.topic_shares @ drawn.coefficients
    block = drawn.block
    records = [
        {
            "words": [f"t{t}" for t in block.terms[block.indptr[d] : block.indptr[d + 1]]],
            "counts": block.counts[block.indptr[d] : block.indptr[d + 1]].tolist(),
            "reads": int(generator.poisson(days[d] * np.exp(omega[d] + 0.03 * (age[d] - 40)))),
            "area": ["Health", "Law", "Taxes"][int(np.digitize(omega[d], [-1, 1]))],
            "wait": float(generator.exponential(np.exp(omega[d]))),
            "days": int(days[d]),
            "age": age[d],
            "party": "DIR"[d % 3],
        }
        for d in range(n)
    ]
    path = tmp_path / "bills.jsonl"
    write_records(path, records)
    corpus = ingest(
        path,
        tmp_path / "bills.corpus",
        words="words",
        counts="counts",
        response=["reads", "area", "wait"],
        covariates=["days", "age", "party"],
        categorical=["area", "party"],
        min_df=1,
        max_df=1.0,
        partition_tokens=2000,
    )
    assert corpus.n_partitions > 3
    fits: list[dict[str, Any]] = [
        {
            "response": "reads",
            "family": Poisson(dispersion="pearson"),
            "exposure": "days",
            "covariates": ["age", "party"],
        },
        {
            "response": "area",
            "family": "categorical",
            "covariates": ["age"],
            "class_weight": "balanced",
            "topic_estimation": "variational",
        },
        {"response": "wait", "family": Exponential(), "doc_topic_prior": "asymmetric"},
    ]
    settings: dict[str, Any] = {"n_topics": 3, "max_iter": 4, "tol": 0.0}
    with processes(2) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for given in fits:
            fitted, here = (train(corpus, client=c, **settings, **given) for c in (client, in_process))
            for name in ("topics", "alpha", "eta", "zeta", "delta", "concentration"):
                one, other = (np.array(getattr(m.record.parameters, name)) for m in (fitted, here))
                assert one.tolist() == other.tolist(), (given, name)
            assert fitted.trace["elbo"].tobytes() == here.trace["elbo"].tobytes()
            assert fitted.pearson_dispersion == here.pearson_dispersion
            assert fitted.quality.npmi.tobytes() == here.quality.npmi.tobytes()
            assert (fitted.pearson_dispersion is None) == (given["response"] != "reads")
            loaded = load_model(fitted.save(tmp_path / "m.model", overwrite=True))
            assert loaded.predict(corpus).tolist() == fitted.predict(corpus).tolist()
        with pytest.raises(
            InputError, match=r"'reads' must not exceed its trials 'days', got .* in document"
        ):
            train(corpus, client=client, response="reads", family="binomial", trials="days", **settings)


def test_starts_beside_each_other_have_the_bits_of_starts_in_turn(
    problem: Any, in_process: Client, assert_same: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(**keywords: Any) -> Any:
        with pytest.warns(ConvergenceWarning, match="stopped at its cap"):
            return train(problem.corpus, n_topics=4, hold_out=0.1, client=in_process, **keywords)

    for settings in (
        {"objective": "joint", "max_iter": 3, "n_starts": 3},
        {"objective": "conditional", "max_iter": 2, "n_starts": 2, "remainder": False},
    ):
        monkeypatch.undo()
        beside = fitted(**settings)
        assert wait_until_forgotten(in_process) == []
        monkeypatch.setattr(starts, "SMALL_BYTES", 0)
        assert_same(beside, fitted(**settings))
        assert len({start.parameters.topics.tobytes() for start in beside.record.starts}) > 1
        assert beside.stability is not None


def test_replicates_beside_each_other_have_the_bits_of_replicates_in_turn(
    problem: Any, in_process: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replicates() -> Any:
        settings: dict[str, Any] = {"n_topics": 3, "objective": "joint", "max_iter": 1, "bootstrap": 10}
        with pytest.warns(ConvergenceWarning, match="stopped at its cap"):
            return train(problem.corpus, client=in_process, **settings).record.replicates

    beside = replicates()
    assert wait_until_forgotten(in_process) == []
    monkeypatch.setattr(bootstrap, "is_small", lambda source: False)
    assert beside.tobytes() == replicates().tobytes()
    assert len({row.tobytes() for row in beside}) == 10


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["joint", pytest.param("conditional", marks=pytest.mark.soak)])
def test_topics_with_seed_words_have_the_same_bits_on_any_number_of_workers(
    problem: Any, processes: Any, in_process: Client, assert_same: Any, objective: Any
) -> None:
    terms = problem.corpus.vocabulary.terms
    settings: dict[str, Any] = {"n_topics": 4, "objective": objective, "max_iter": 3}
    if objective == "conditional":
        settings["remainder"] = False  # for the time that it takes
    settings["seed_words"] = {"one": terms[:3], "two": [terms[2], terms[7]]}
    with processes(2) as client, pytest.warns(ConvergenceWarning):
        fits = [train(problem.corpus, client=each, **settings) for each in (client, in_process)]
    assert_same(*fits)
    assert fits[0].labels == fits[1].labels == {0: "one", 1: "two"}
