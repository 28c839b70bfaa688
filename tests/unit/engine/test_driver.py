"""The EM loop in one process: its result, its end, its progress."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dslda.corpus.block import DocumentBlock
from dslda.datasets.simulate import simulate_corpus
from dslda.engine.data.fit_source import CorpusSource, MemorySource
from dslda.engine.driver import EStep, FitResult, fit, iterate
from dslda.engine.em import IterationRecord, Position
from dslda.engine.executor import IterationTimes, SerialExecutor, single_threaded_blas
from dslda.engine.passes import E_STEP
from dslda.engine.progress import LogProgress, TerminalProgress, default_progress
from dslda.exceptions import EngineError, InputError
from dslda.families.base import STANDARDISED
from dslda.families.gaussian import Gaussian
from dslda.ingestion.ingest import ingest
from dslda.variational.design import Design
from dslda.variational.mstep import objective
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.topics import in_e_step
from tests.helpers.progress import interrupt

N_TERMS = 80
FAMILY = Gaussian()
SPEC = FitSpec(n_topics=3, max_iter=6, tol=0.0)


class Interrupting(SerialExecutor):
    """Something happens at the start of its n-th iteration."""

    def __init__(self, source: MemorySource, *, at: int, what: Callable[[], None]) -> None:
        super().__init__(source, FAMILY, SPEC)
        self.left, self.what = at, what

    def run(self, parameters: Parameters, work: Any, **keywords: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.what()
        return super().run(parameters, work, **keywords)


@pytest.fixture(scope="module")
def source() -> MemorySource:
    block = simulate_corpus(1200, 3, N_TERMS, mean_tokens=450, missing=0.1, seed=2).block
    with pytest.MonkeyPatch.context() as patched:
        # a few partitions
        patched.setattr("dslda.corpus.partitioning.MIN_PARTITION_TOKENS", 200_000)
        unscaled = MemorySource(block, N_TERMS, design=Design("y"))
    return unscaled.standardised(FAMILY)


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> CorpusSource:
    """The same documents in many partitions."""
    block = simulate_corpus(1200, 3, N_TERMS, mean_tokens=450, missing=0.1, seed=2).block
    corpus = ingest(
        sparse.csr_array((block.counts, block.terms, block.indptr), shape=(block.n_documents, N_TERMS)),
        tmp_path_factory.mktemp("driver") / "partitioned.corpus",
        vocabulary=[f"t{i}" for i in range(N_TERMS)],
        response={"y": block.responses["y"]},
        partition_tokens=10_000,
    )
    source = CorpusSource(corpus, design=Design("y")).standardised(FAMILY)
    assert source.n_partitions > 8
    return source


@pytest.fixture(scope="module")
def fitted(partitioned: CorpusSource) -> FitResult:
    with SerialExecutor(partitioned, FAMILY, SPEC) as executor:
        return run(executor)


def run(executor: SerialExecutor, **keywords: Any) -> FitResult:
    initial = initial_parameters(N_TERMS, spec=SPEC, family=FAMILY, moments=STANDARDISED)
    return fit(executor, initial, family=FAMILY, spec=SPEC, **keywords)


@pytest.fixture(scope="module")
def whole(source: MemorySource) -> FitResult:
    with SerialExecutor(source, FAMILY, SPEC) as executor:
        return run(executor)


def same_parameters(left: Parameters, right: Parameters) -> bool:
    return (
        np.array_equal(left.topics, right.topics)
        and np.array_equal(left.eta, right.eta)
        and left.delta == right.delta
    )


def test_last_elbo_of_the_trace_is_that_of_the_parameters(source: MemorySource, whole: FitResult) -> None:
    with SerialExecutor(source, FAMILY, SPEC) as executor:
        statistics, _ = executor.run(whole.parameters, E_STEP)
    assert objective(statistics, whole.parameters, family=FAMILY, spec=SPEC) == whole.trace[-1].elbo
    np.testing.assert_array_equal(statistics.topic_counts, whole.statistics.topic_counts)


def test_a_subset_of_partitions_is_what_a_source_of_its_documents_gives(
    partitioned: CorpusSource, fitted: FitResult
) -> None:
    first = np.concatenate([[0], np.cumsum(partitioned.n_documents)])
    chosen = [4, 1, 5]
    rows = np.concatenate([np.arange(first[i], first[i + 1]) for i in chosen])
    counted: list[int] = []
    with SerialExecutor(partitioned, FAMILY, SPEC) as executor:
        total, _ = executor.run(fitted.parameters, E_STEP, partitions=chosen, on_partition=counted.append)
        again, _ = executor.run(fitted.parameters, E_STEP, partitions=sorted(chosen))
        everything, _ = executor.run(fitted.parameters, E_STEP)
    assert counted == partitioned.n_documents[sorted(chosen)].tolist()
    assert total.n_documents == len(rows)
    np.testing.assert_array_equal(total.topic_counts, again.topic_counts)
    np.testing.assert_array_equal(everything.topic_counts, fitted.statistics.topic_counts)
    block = simulate_corpus(1200, 3, N_TERMS, mean_tokens=450, missing=0.1, seed=2).block
    alone = MemorySource(block, N_TERMS, design=partitioned.design, documents=rows)
    with SerialExecutor(alone, FAMILY, SPEC) as executor:
        same, _ = executor.run(fitted.parameters, E_STEP)
    np.testing.assert_allclose(total.topic_counts, same.topic_counts, rtol=1e-12)
    np.testing.assert_allclose(total.elbo, same.elbo, rtol=1e-12)


def online(executor: SerialExecutor, *, batch: int, decay: float) -> EStep:
    """An E-step over some partitions at random; older iterations count less and less."""
    generator = np.random.default_rng(7)
    running: SufficientStatistics | None = None

    def e_step(parameters: Parameters, iteration: int) -> tuple[SufficientStatistics, IterationTimes]:
        nonlocal running
        chosen = generator.choice(executor.n_partitions, batch, replace=False)
        statistics, times = executor.run(parameters, E_STEP, partitions=chosen.tolist())
        if running is None:
            running = replace(statistics, n_documents=executor.n_documents)
        running = running.copy().blend(statistics, iteration**-decay)
        return running, times

    return e_step


def test_a_stochastic_e_step_takes_the_place_of_the_full_pass(
    partitioned: CorpusSource, fitted: FitResult
) -> None:
    initial = initial_parameters(N_TERMS, spec=SPEC, family=FAMILY, moments=STANDARDISED)
    with SerialExecutor(partitioned, FAMILY, SPEC) as executor, single_threaded_blas():
        positions: list[Position] = []
        iterations = iterate(
            online(executor, batch=3, decay=0.6),
            Position(initial),
            family=FAMILY,
            spec=SPEC,
            after_m_step=positions.append,
        )
        # as many documents as the fit of six iterations saw
        last, state = list(islice(iterations, 6 * executor.n_partitions // 3))[-1]
        assert state.iteration == len(last.trace) == len(positions) + 1
        statistics, _ = executor.run(in_e_step(last.parameters), E_STEP)
    elbo = objective(statistics, last.parameters, family=FAMILY, spec=SPEC)
    # more M-steps for the same work: further than batch EM
    assert elbo > fitted.trace[-1].elbo
    assert last.trace[-1].elbo == pytest.approx(elbo, rel=0.05)


def test_a_batch_of_all_partitions_is_the_full_pass(partitioned: CorpusSource, fitted: FitResult) -> None:
    initial = initial_parameters(N_TERMS, spec=SPEC, family=FAMILY, moments=STANDARDISED)
    with SerialExecutor(partitioned, FAMILY, SPEC) as executor, single_threaded_blas():
        e_step = online(executor, batch=executor.n_partitions, decay=0.0)
        last, _ = list(islice(iterate(e_step, Position(initial), family=FAMILY, spec=SPEC), 6))[-1]
    assert [record.elbo for record in last.trace] == [record.elbo for record in fitted.trace]
    assert same_parameters(last.parameters, fitted.parameters)


@pytest.mark.parametrize("partitions", [[], [0, 0], [-1], [999]])
def test_partitions_that_cannot_be_gone_over_are_refused(
    source: MemorySource, whole: FitResult, partitions: list[int]
) -> None:
    with SerialExecutor(source, FAMILY, SPEC) as executor, pytest.raises(InputError) as caught:
        executor.run(whole.parameters, E_STEP, partitions=partitions)
    assert caught.value.parameter == "partitions"


def test_trace_has_a_record_of_every_iteration(source: MemorySource, whole: FitResult) -> None:
    assert [record.iteration for record in whole.trace] == [1, 2, 3, 4, 5, 6]
    assert not whole.converged
    assert not whole.interrupted
    assert whole.trace[-1].delta == whole.parameters.delta
    assert whole.trace[0].m_step_seconds == 0.0
    n = int(source.n_documents.sum())
    for record in whole.trace:
        assert record.sweeps_per_document >= 1.0
        assert record.documents_per_second > 0.0
        assert record.e_step_seconds > 0.0
    assert whole.statistics.n_documents == n


def test_convergence_is_reported(source: MemorySource) -> None:
    spec = replace(SPEC, tol=1e-2, max_iter=100)
    with SerialExecutor(source, FAMILY, spec) as executor:
        result = fit(
            executor,
            initial_parameters(N_TERMS, spec=spec, family=FAMILY, moments=STANDARDISED),
            family=FAMILY,
            spec=spec,
        )
    assert result.converged
    assert len(result.trace) < spec.max_iter


def test_ctrl_c_returns_the_last_complete_iteration(source: MemorySource) -> None:
    seen: dict[int, Parameters] = {}
    with Interrupting(source, at=4, what=interrupt) as executor:
        result = run(executor, on_iteration=lambda record, p: seen.update({record.iteration: p}))
    assert result.interrupted
    assert not result.converged
    assert len(result.trace) == 3
    assert result.parameters is seen[3]


def test_ctrl_c_in_the_m_step_returns_the_last_complete_iteration(
    source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dslda.engine.driver as driver

    def m_step(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "m_step", m_step)
    with SerialExecutor(source, FAMILY, SPEC) as executor:
        result = run(executor)
    assert result.interrupted
    assert len(result.trace) == 1


def test_ctrl_c_before_the_first_iteration_is_complete_is_raised(source: MemorySource) -> None:
    with Interrupting(source, at=1, what=interrupt) as executor, pytest.raises(KeyboardInterrupt):
        run(executor)


def test_stop_requested_ends_after_the_iteration(source: MemorySource, whole: FitResult) -> None:
    count = iter(range(10))
    with SerialExecutor(source, FAMILY, SPEC) as executor:
        result = run(executor, stop_requested=lambda: next(count) == 1)
    assert result.interrupted
    assert [r.elbo for r in result.trace] == [r.elbo for r in whole.trace[:2]]


def test_an_elbo_that_is_not_finite_is_an_error(
    source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dslda.engine.driver as driver

    monkeypatch.setattr(driver, "objective", lambda *_, **__: float("nan"))
    with (
        SerialExecutor(source, FAMILY, SPEC) as executor,
        pytest.raises(EngineError, match="ELBO must be finite, got nan in iteration 1"),
    ):
        run(executor)


def test_an_error_in_a_partition_says_which(source: MemorySource, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = source.reader

    def failing(partition: int) -> Callable[[], DocumentBlock]:
        if partition == 1:
            raise ZeroDivisionError
        return reader(partition)

    monkeypatch.setattr(source, "reader", failing)
    with SerialExecutor(source, FAMILY, SPEC) as executor, pytest.raises(ZeroDivisionError) as raised:
        run(executor)
    (note,) = raised.value.__notes__
    assert "partition 1 (documents " in note


def test_a_subset_of_documents_is_counted(source: MemorySource) -> None:
    block = simulate_corpus(300, 2, N_TERMS, seed=4).block
    half = MemorySource(block, N_TERMS, design=Design("y"), documents=np.arange(0, 300, 2))
    with SerialExecutor(half, FAMILY, SPEC) as executor:
        statistics, _ = executor.run(
            initial_parameters(N_TERMS, spec=SPEC, family=FAMILY, moments=STANDARDISED), E_STEP
        )
        assert statistics.n_documents == executor.n_documents == 150


class Recording:
    """A FitProgress that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def started(self, n_documents: int, n_partitions: int, spec: FitSpec) -> None:
        self.calls.append(("started", (n_documents, n_partitions)))

    def partition(self, n_documents: int) -> None:
        self.calls.append(("partition", n_documents))

    def iteration(self, record: IterationRecord) -> None:
        self.calls.append(("iteration", record.iteration))

    def __enter__(self) -> Recording:
        self.calls.append(("enter", None))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.calls.append(("exit", kind))


def test_progress_is_told_of_everything_and_left_after_ctrl_c(source: MemorySource) -> None:
    progress = Recording()
    with Interrupting(source, at=3, what=interrupt) as executor:
        run(executor, progress=progress)
    n = source.n_partitions
    documents = [("partition", int(d)) for d in source.n_documents]
    assert progress.calls[:2] == [("enter", None), ("started", (int(source.n_documents.sum()), n))]
    assert progress.calls[2:-1] == [*documents, ("iteration", 1), *documents, ("iteration", 2)]
    assert progress.calls[-1] == ("exit", KeyboardInterrupt)


def test_progress_is_logged_where_there_is_no_terminal(
    source: MemorySource, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(default_progress(), LogProgress)
    with caplog.at_level(logging.INFO, "dslda.engine"), SerialExecutor(source, FAMILY, SPEC) as executor:
        run(executor)
    lines = [record.getMessage() for record in caplog.records]
    assert "3 topics, at most 6 iterations" in lines[0]
    assert lines[1].startswith("iteration 1: ELBO ")
    assert "documents/s" in lines[1]
    assert lines[-1] == "EM ended after iteration 6: iteration cap"
    assert capsys.readouterr().out == ""


def test_long_iterations_are_logged_meanwhile(
    source: MemorySource, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogProgress, "EVERY_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, "dslda.engine"), SerialExecutor(source, FAMILY, SPEC) as executor:
        run(executor)
    n = int(source.n_documents.sum())
    assert any(f"iteration 1: {n:,} of {n:,} documents" in r.getMessage() for r in caplog.records)


def test_a_terminal_shows_a_bar_with_rate_and_time_to_go(
    source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    progress = default_progress()
    assert isinstance(progress, TerminalProgress)
    with SerialExecutor(source, FAMILY, SPEC) as executor:
        run(executor, progress=progress)
    shown = terminal.getvalue()
    for piece in ("iteration 6", "documents/s", "ELBO", "to go"):
        assert piece in shown


def test_a_fit_that_goes_on_ends_alike_and_goes_on_counting(
    source: MemorySource, whole: FitResult, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(LogProgress, "EVERY_SECONDS", 0.0)
    for progress in (LogProgress(), TerminalProgress()):
        with caplog.at_level(logging.INFO, "dslda.engine"), SerialExecutor(source, FAMILY, SPEC) as executor:
            # the parameters of the sixth and last iteration
            result = fit(
                executor, whole.parameters, family=FAMILY, spec=SPEC, done=whole.trace[:5], progress=progress
            )
        assert [r.elbo for r in result.trace] == [r.elbo for r in whole.trace]
        assert result.trace[-1].relative_change == whole.trace[-1].relative_change
        assert result.trace[:5] == whole.trace[:5]
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("iteration 6: ELBO") and "about 0 s to go" in line for line in lines)
    assert not any(line.startswith("iteration 1: ") for line in lines)
    assert any(line.startswith("iteration 6: 1,200 of 1,200 documents") for line in lines)
