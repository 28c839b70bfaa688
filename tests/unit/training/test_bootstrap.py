"""Intervals of coefficients, from fits to documents drawn again."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import poisson

import dslda
from dslda.corpus.block import DocumentBlock
from dslda.datasets.simulate import simulate_corpus
from dslda.engine.data.fit_source import MemorySource
from dslda.engine.data.resampling import Resample
from dslda.engine.executor import SerialExecutor
from dslda.engine.passes import E_STEP
from dslda.exceptions import ConvergenceWarning, InputError
from dslda.model import Model
from dslda.training import bootstrap
from dslda.variational.topics import in_e_step

N, N_TERMS, N_TOPICS = 400, 60, 3
CORPUS = simulate_corpus(N, N_TOPICS, N_TERMS, mean_tokens=40, alpha=0.3, seed=11)
BLOCK = CORPUS.block
COUNTS = csr_array((BLOCK.counts, BLOCK.terms, BLOCK.indptr), shape=(N, N_TERMS))


def fitted(counts: Any = COUNTS, response: Any = CORPUS.y, **keywords: Any) -> Model:
    settings: dict[str, Any] = {"n_topics": N_TOPICS, "objective": "joint", "bootstrap": 12}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return dslda.train(counts, response=response, **settings | keywords)


@pytest.fixture(scope="module")
def joint() -> Model:
    return fitted()


def ends(model: Model) -> NDArray[np.float64]:
    return np.array([(row.low, row.coefficient, row.high) for row in model.coefficients()])


def test_documents_are_drawn_as_poisson_numbers_of_mean_1() -> None:
    rows = np.arange(200_000)
    times = Resample(seed=3, number=0).times(rows)
    shares = np.bincount(times.astype(int), minlength=8)[:8] / len(rows)
    assert_allclose(shares, poisson.pmf(np.arange(8), 1.0), atol=0.005)
    # of the seed, the number and the row alone
    assert_array_equal(Resample(3, 0).times(rows[100:200]), times[100:200])
    for other in (Resample(3, 1), Resample(4, 0)):
        assert abs(np.corrcoef(times, other.times(rows))[0, 1]) < 0.01


def test_a_document_drawn_twice_counts_as_two() -> None:
    model = fitted(bootstrap=0, max_iter=3)
    record, resample = model.record, Resample(seed=5, number=2)
    block = replace(BLOCK, responses={record.design.response: CORPUS.y})
    parameters = in_e_step(record.parameters)

    def statistics(block: DocumentBlock, resample: Resample | None = None) -> Any:
        source = MemorySource(block, N_TERMS, design=record.design)
        if resample is not None:
            source = source.resampled(resample)
        with SerialExecutor(source, record.family, record.spec) as executor:
            return executor.run(parameters, E_STEP)[0]

    times = resample.times(np.arange(N)).astype(int)
    repeated = statistics(block.take(np.repeat(np.arange(N), times)))
    drawn = statistics(block, resample)
    for name in ("topic_counts", "information", "elbo"):
        assert_allclose(getattr(drawn, name), getattr(repeated, name), rtol=1e-9)
    assert drawn.n_documents == np.count_nonzero(times)


def test_the_interval_of_one_topic_is_that_of_a_mean() -> None:
    """With one topic the coefficient is the mean of the response, whose standard error is known."""
    model = fitted(n_topics=1, bootstrap=200)
    (row,) = model.coefficients()
    assert row.low is not None
    assert row.high is not None
    assert (row.low + row.high) / 2.0 == pytest.approx(row.coefficient)
    assert row.coefficient == pytest.approx(CORPUS.y.mean(), abs=1e-3)
    error = CORPUS.y.std() / np.sqrt(N)
    assert (row.high - row.low) / 2.0 == pytest.approx(1.97 * error, rel=0.15)


def test_intervals_hold_the_true_coefficients() -> None:
    covered = []
    for seed in range(5):
        drawn = simulate_corpus(N, N_TOPICS, N_TERMS, mean_tokens=40, alpha=0.3, seed=seed)
        counts = csr_array((drawn.block.counts, drawn.block.terms, drawn.block.indptr), shape=(N, N_TERMS))
        found = ends(fitted(counts, drawn.y))
        assert (found[:, 0] < found[:, 1]).all()
        # coefficients and the true ones both ascend
        covered += ((found[:, 0] <= drawn.coefficients) & (drawn.coefficients <= found[:, 2])).tolist()
    assert np.mean(covered) >= 0.8


def test_topics_of_replicates_are_those_of_the_fit_though_they_come_in_another_order() -> None:
    found = ends(fitted(objective="conditional", bootstrap=10))
    # from another seed topics have other numbers: unsorted, each replicate would have any coefficient
    assert (np.diff(found[:, 1]) > 1.0).all()
    assert (found[:, 2] - found[:, 0] < 2.5).all()


def test_the_joint_model_goes_on_until_its_coefficients_have_settled(joint: Model) -> None:
    without = fitted(bootstrap=0)
    assert joint.training.n_iterations > without.training.n_iterations
    assert joint.spec.tol == pytest.approx(without.spec.tol / 10)
    elbo = without.trace["elbo"]
    assert_array_equal(joint.trace["elbo"][: len(elbo)], elbo)
    longer = fitted(tol=joint.spec.tol / 10, max_iter=300)
    errors = [row.conditional_error for row in joint.coefficients()]
    assert np.max(np.abs(ends(joint) - ends(longer))[:, 1] / errors) < 0.3


def test_a_model_keeps_its_replicates(joint: Model, tmp_path: Path) -> None:
    loaded = dslda.load_model(joint.save(tmp_path / "a.model"))
    assert_array_equal(ends(loaded), ends(joint))
    assert_array_equal(loaded.coefficient_covariance(), joint.coefficient_covariance())
    assert [*joint.topic_table()][:4] == ["topic", "coefficient", "low", "high"]
    deviations = np.sqrt(np.diag(joint.coefficient_covariance()))
    for row in joint.coefficients():
        assert row.high is not None
        error = max(deviations[row.topic], row.conditional_error)
        assert (row.high - row.coefficient) / error == pytest.approx(2.2, rel=0.01)  # t of 11 at 0.975


def test_no_model_has_intervals_without_a_bootstrap() -> None:
    model = fitted(bootstrap=0)
    assert model.record.replicates is None
    assert all(row.low is None and row.high is None for row in model.coefficients())
    assert not {"low", "high"} & {*model.coefficient_table()}


def test_classes_and_covariates_have_intervals_too() -> None:
    rng = np.random.default_rng(0)
    age = rng.normal(size=N)
    names = np.array(["low", "middle", "high"])[np.digitize(CORPUS.y, [-0.7, 0.7])]
    model = fitted(response=names, family="categorical", covariates={"age": age}, objective="joint")
    table = model.coefficient_table()
    assert (table["low"] < table["coefficient"]).all()
    assert (table["high"] > table["coefficient"]).all()
    assert model.coefficient_covariance().shape == (3, N_TOPICS + 1, N_TOPICS + 1)
    # in the units of the covariate
    response = CORPUS.y + 0.5 * age
    one = fitted(response=response, covariates={"age": age}).covariate_coefficients()[0]
    other = fitted(response=response, covariates={"age": 100.0 * age}).covariate_coefficients()[0]
    assert one.low is not None
    assert one.high is not None
    assert one.low < 0.5 < one.high
    assert_allclose([100 * (other.low or 0), 100 * (other.high or 0)], [one.low, one.high], rtol=1e-6)


def test_too_few_are_refused() -> None:
    with pytest.raises(InputError, match=r"bootstrap must be 0 or at least 10, .* got 5; 100 is usual"):
        fitted(bootstrap=5)


@pytest.mark.parametrize("keeps_an_iteration", [False, True])
def test_the_fit_outlives_replicates_that_cannot_be_fitted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, keeps_an_iteration: bool
) -> None:
    """As after an interrupt before the first iteration of a replicate, and one after it, of which fits keep the last."""
    alone = fitted(bootstrap=0, tol=1e-5, max_iter=300)
    run = bootstrap.Start.run
    n_runs = 0

    def interrupted(*arguments: Any, **keywords: Any) -> Any:
        nonlocal n_runs
        n_runs += 1
        if n_runs == 5 and not keeps_an_iteration:
            raise KeyboardInterrupt
        result = run(*arguments, **keywords)
        return replace(result, interrupted=True) if n_runs == 5 else result

    monkeypatch.setattr(bootstrap.Start, "run", interrupted)
    model = fitted()
    assert model.record.replicates is None
    assert "interrupted: coefficients have no intervals" in caplog.text
    assert_array_equal(model.topic_word, alone.topic_word)


def test_no_interval_is_narrower_than_the_conditional_error_makes_it(joint: Model) -> None:
    same = np.repeat(joint.record.replicates[:1], 12, axis=0) if joint.record.replicates is not None else None
    for row in Model(replace(joint.record, replicates=same)).coefficients():
        assert row.high is not None
        assert row.high - row.coefficient == pytest.approx(2.2 * row.conditional_error, rel=0.01)
