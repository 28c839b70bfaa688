"""Coefficients of a heavy response: those of EM predict new documents badly, those that suit words alone do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dslda.corpus.block import DocumentBlock
from dslda.datasets.simulate import simulate_corpus
from dslda.engine.data.fit_source import MemorySource
from dslda.engine.driver import FitResult, fit
from dslda.engine.executor import SerialExecutor
from dslda.engine.word_coefficients import suited_to_words
from dslda.evaluation.metrics import predictive_r2
from dslda.families.base import STANDARDISED, Family, ResponseMoments
from dslda.families.categorical import Categorical
from dslda.families.gaussian import Gaussian
from dslda.families.registry import get_family
from dslda.variational.design import Design
from dslda.variational.estep import infer
from dslda.variational.mstep import prior_precision
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from tests.helpers.problems import moments_of
from tests.helpers.progress import interrupt

N_TERMS, N_DOCUMENTS = 80, 500
SPEC = FitSpec(n_topics=8, response_weight=10.0, max_iter=40, tol=0.0)


def taken(block: DocumentBlock, documents: slice) -> DocumentBlock:
    start, stop = block.indptr[documents.start], block.indptr[documents.stop]
    return DocumentBlock(
        block.indptr[documents.start : documents.stop + 1] - start,
        block.terms[start:stop],
        block.counts[start:stop],
        responses={"y": block.responses["y"][documents]},
    )


@pytest.fixture(scope="module")
def halves() -> tuple[DocumentBlock, DocumentBlock]:
    """Documents whose words say little of their responses: to train on, and others."""
    block = simulate_corpus(2 * N_DOCUMENTS, 3, N_TERMS, mean_tokens=40, delta=4.0, seed=1).block
    return taken(block, slice(0, N_DOCUMENTS)), taken(block, slice(N_DOCUMENTS, 2 * N_DOCUMENTS))


def executor_of(block: DocumentBlock, family: Family, kind: type[SerialExecutor] = SerialExecutor) -> Any:
    source = MemorySource(block, N_TERMS, design=Design("y"))
    return kind(source.standardised(family) if family.name == "gaussian" else source, family, SPEC)


def em(
    executor: SerialExecutor, family: Family, spec: FitSpec = SPEC, moments: ResponseMoments = STANDARDISED
) -> FitResult:
    initial = initial_parameters(N_TERMS, spec=spec, family=family, moments=moments)
    return fit(executor, initial, family=family, spec=spec)


@pytest.fixture(scope="module")
def fitted(halves: tuple[DocumentBlock, DocumentBlock]) -> tuple[FitResult, FitResult]:
    """The result of EM, and the same with coefficients that suit words."""
    with executor_of(halves[0], Gaussian()) as executor:
        result = em(executor, Gaussian())
        return result, suited_to_words(executor, result, family=Gaussian(), spec=SPEC)


def test_new_documents_are_no_longer_predicted_far_worse_than_by_the_mean(
    halves: tuple[DocumentBlock, DocumentBlock], fitted: tuple[FitResult, FitResult]
) -> None:
    trained, new = halves
    y = trained.responses["y"]
    scaled = (new.responses["y"] - y.mean()) / y.std()

    def r2(parameters: Parameters) -> float:
        posterior = infer(new.indptr, new.terms, new.counts, parameters, spec=SPEC)
        return predictive_r2(scaled, posterior.mean)

    before, after = (r2(result.parameters) for result in fitted)
    assert before < -0.15
    assert after > 0.1


def test_a_warning_says_that_topics_have_followed_the_responses(caplog: pytest.LogCaptureFixture) -> None:
    said = {}
    for delta in (0.05, 4.0):  # words say much, or little
        block = simulate_corpus(N_DOCUMENTS, 3, N_TERMS, mean_tokens=40, delta=delta, seed=1).block
        caplog.clear()
        with executor_of(block, Gaussian()) as executor:
            result = em(executor, Gaussian(), replace(SPEC, max_iter=25))
            suited_to_words(executor, result, family=Gaussian(), spec=SPEC)
        said[delta] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert said[0.05] == []
    (warning,) = said[4.0]
    assert warning.endswith("which have followed them: compare with a lower rho")


def test_they_are_the_regression_on_what_words_alone_infer(
    halves: tuple[DocumentBlock, DocumentBlock], fitted: tuple[FitResult, FitResult]
) -> None:
    before, after = (result.parameters for result in fitted)
    for name in ("topics", "alpha"):
        assert_array_equal(getattr(after, name), getattr(before, name))
    block = halves[0]
    y = (block.responses["y"] - block.responses["y"].mean()) / block.responses["y"].std()
    posterior = infer(block.indptr, block.terms, block.counts, after, spec=SPEC)
    zbar = (posterior.gamma - after.alpha) / posterior.length[:, np.newaxis]
    score = zbar.T @ (y - posterior.mean)
    # the variance of zbar, which the normal equations hold too, pulls coefficients together
    variance = posterior.variance
    assert_allclose(after.eta @ score, variance.sum(), rtol=1e-6)
    assert_allclose(after.delta, np.mean((y - posterior.mean) ** 2 + variance), rtol=1e-6)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "ordinal", "categorical"])
def test_no_step_is_left_for_any_family(halves: tuple[DocumentBlock, DocumentBlock], name: str) -> None:
    block = halves[0]
    generator = np.random.default_rng(0)
    omega = block.responses["y"] / 3.0
    if name in ("ordinal", "categorical"):
        y = np.digitize(omega, [-0.5, 0.5]).astype(np.float64)
        family: Family = Categorical(3) if name == "categorical" else get_family(name)
    else:
        y, family = generator.poisson(np.exp(np.clip(omega, -2.0, 2.0))).astype(np.float64), get_family(name)
    with executor_of(replace(block, responses={"y": y}), family) as executor:
        before = em(executor, family, replace(SPEC, max_iter=15), moments_of(y))
        after = suited_to_words(executor, before, family=family, spec=SPEC)
    parameters, statistics = after.parameters, after.statistics
    prior = prior_precision(parameters, family, SPEC)
    score = statistics.score - prior @ parameters.eta
    information = statistics.information + prior
    steps = (
        [np.linalg.lstsq(information, score)[0]]
        if parameters.n_classes is None
        else [np.linalg.lstsq(h, g)[0] for h, g in zip(information, score.T, strict=True)]
    )
    assert np.abs(steps).max() < 0.05
    assert np.abs(parameters.eta - before.parameters.eta).max() > 0.5


def test_ctrl_c_keeps_the_coefficients_of_em(halves: tuple[DocumentBlock, DocumentBlock]) -> None:
    class Interrupting(SerialExecutor):
        def run(self, *arguments: Any, **keywords: Any) -> Any:
            interrupt()

    with executor_of(halves[0], Gaussian()) as executor:
        result = em(executor, Gaussian(), replace(SPEC, max_iter=1))
    with executor_of(halves[0], Gaussian(), Interrupting) as executor:
        kept = suited_to_words(executor, result, family=Gaussian(), spec=SPEC)
    assert kept.interrupted
    assert kept.parameters is result.parameters
    assert kept.statistics is result.statistics
