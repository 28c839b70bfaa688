"""Words beyond the topics: their sums, when they are kept, and what they add."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from dslda.datasets.simulate import simulate_corpus
from dslda.engine.conditional.remainder_fit import Calibration, _Factors, _WordRegression
from dslda.engine.conditional.selection import Selection
from dslda.engine.data.training_view import TrainingBlock
from dslda.evaluation.metrics import predictive_r2
from dslda.families.registry import get_family
from dslda.model import Model, load_model
from dslda.training.train import train
from dslda.variational.conditional.loss import Responses, predictors
from dslda.variational.conditional.posterior import WeightedDocuments, infer_words_of
from dslda.variational.conditional.word_regression import combination_sums, word_regression_sums
from dslda.variational.parameter_parts import ParameterParts
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.remainder import Remainder, normalised_terms
from tests.helpers.class_problems import class_parameters
from tests.helpers.problems import random_parameters

N, N_TERMS = 1500, 200
LOUD = 7
"""A term that speaks for the response whatever the topics are."""

BLOCK = simulate_corpus(N, 4, N_TERMS, mean_tokens=40, alpha=0.3, seed=9).block
COUNTS = csr_array((BLOCK.counts, BLOCK.terms, BLOCK.indptr), shape=(N, N_TERMS))
IS_LOUD = np.random.default_rng(1).random(N) < 0.3
KEPT = np.arange(N) % 4 != 0


def with_loud_term() -> csr_array:
    """The counts, with the term in documents drawn by lot and nowhere else."""
    counts = COUNTS.tolil()
    counts[:, LOUD] = IS_LOUD.astype(np.int32)[:, np.newaxis]
    return csr_array(counts).astype(np.int32)


def gaussian_response() -> np.ndarray:
    y = BLOCK.responses["y"]
    return (y - y.mean()) / y.std() + 2.0 * IS_LOUD


@pytest.fixture(scope="module")
def counts() -> csr_array:
    return with_loud_term()


@pytest.fixture(scope="module")
def model(counts: csr_array) -> Model:
    return train(counts, response=gaussian_response(), n_topics=4, documents=KEPT, seed=1)


def problem(family: str, seed: int = 3) -> tuple[WeightedDocuments, np.ndarray, Parameters, Any]:
    rng = np.random.default_rng(seed)
    parameters = random_parameters(rng, N_TERMS, 3, alpha=1.0)
    if family == "categorical":
        parameters = class_parameters(rng, N_TERMS, 3, 3, alpha=1.0)
    part = BLOCK.take(np.arange(N) < 30)
    y = {
        "gaussian": rng.normal(size=30),
        "poisson": rng.poisson(2.0, 30).astype(float),
        "categorical": rng.integers(0, 3, 30).astype(float),
    }[family]
    y[4] = np.nan
    words = 0.3 * rng.normal(size=(N_TERMS, *parameters.eta.shape[1:]))
    parameters = Parameters(
        parameters.topics,
        parameters.alpha,
        parameters.eta,
        parameters.delta,
        parameters.zeta,
        remainder=Remainder(words, np.zeros_like(parameters.eta), 0.0),
    )
    documents = WeightedDocuments.of(part.indptr, part.terms, part.counts, parameters)
    own = get_family(family, {"n_classes": 3} if family == "categorical" else {})
    return documents, y, parameters, own


@pytest.mark.parametrize("family", ["gaussian", "poisson", "categorical"])
def test_the_gradient_of_the_regression_is_that_of_finite_differences(family: str) -> None:
    documents, y, parameters, own = problem(family)
    assert parameters.remainder is not None
    judging = np.arange(30) % 5 == 0
    words = parameters.remainder.words
    intercept = np.full(words.size // N_TERMS, 0.2)

    def at(words: np.ndarray, intercept: np.ndarray) -> Any:
        remainder = Remainder(words, np.zeros_like(parameters.eta), 0.0)
        changed = Parameters(
            parameters.topics, parameters.alpha, parameters.eta, parameters.delta, remainder=remainder
        )
        return word_regression_sums(documents, y, changed, family=own, intercept=intercept, judging=judging)

    sums = at(words, intercept)
    rng = np.random.default_rng(0)
    direction, h = rng.normal(size=words.shape), 1e-5
    slope = (
        at(words + h * direction, intercept).log_likelihood
        - at(words - h * direction, intercept).log_likelihood
    )
    assert slope / (2 * h) == pytest.approx(
        float(np.sum(sums.gradient.reshape(words.shape) * direction)), rel=1e-6
    )
    step = h * rng.normal(size=intercept.shape)
    slope = at(words, intercept + step).log_likelihood - at(words, intercept - step).log_likelihood
    assert slope / 2 == pytest.approx(float(sums.intercept_gradient @ step), rel=1e-6)
    assert sums.weight + sums.judged_weight == 29.0


@pytest.mark.parametrize("family", ["gaussian", "poisson", "categorical"])
def test_sums_without_the_gradient_are_the_same(family: str) -> None:
    documents, y, parameters, own = problem(family)
    assert parameters.remainder is not None
    settings: dict[str, Any] = {
        "family": own,
        "intercept": np.full(parameters.remainder.words.size // N_TERMS, 0.2),
        "judging": np.arange(30) % 5 == 0,
    }
    whole, without = (
        word_regression_sums(documents, y, parameters, differentiated=differentiated, **settings)
        for differentiated in (True, False)
    )
    assert without.gradient.shape == (N_TERMS, 0)
    for name in ("intercept_gradient", "intercept_information"):
        assert getattr(without, name).tobytes() == getattr(whole, name).tobytes()
    assert without.log_likelihood == whole.log_likelihood
    assert without.judged_log_likelihood == whole.judged_log_likelihood


@pytest.mark.parametrize("family", ["gaussian", "poisson", "categorical"])
def test_the_gradient_of_the_factors_is_that_of_finite_differences(family: str) -> None:
    documents, y, parameters, own = problem(family)
    posterior = infer_words_of(documents, parameters, max_sweeps=50)
    center = np.full(parameters.n_classes or 1, 0.1)

    def at(factors: np.ndarray) -> Any:
        return combination_sums(
            documents,
            posterior,
            y,
            parameters,
            family=own,
            factors=factors,
            topic_center=center,
            word_center=-center,
        )

    here, h = np.array([0.7, 0.4, *np.linspace(0.1, 0.3, len(center))]), 1e-5
    for step in h * np.eye(len(here)):
        i = int(step.argmax())
        slope = (at(here + step).log_likelihood - at(here - step).log_likelihood) / (2 * h)
        assert slope == pytest.approx(float(at(here).gradient[i]), rel=1e-6)


def test_normalised_terms_have_length_1_and_know_no_neighbours() -> None:
    together = normalised_terms(BLOCK.indptr, BLOCK.terms, BLOCK.counts, N_TERMS)
    lengths = np.sqrt(np.asarray(together.multiply(together).sum(axis=1)).ravel())
    assert_allclose(lengths[np.diff(BLOCK.indptr) > 0], 1.0)
    part = BLOCK.take(np.arange(N) == 17)
    alone = normalised_terms(part.indptr, part.terms, part.counts, N_TERMS)
    assert alone.toarray().tobytes() == together[[17]].toarray().tobytes()


def test_a_word_that_no_topic_explains_is_found(model: Model, counts: csr_array) -> None:
    y = gaussian_response()
    (beyond,) = model.words_beyond(3)
    assert beyond.raising[0] == str(LOUD)
    assert 0.05 < beyond.share < 1.0
    alone = train(counts, response=y, n_topics=4, documents=KEPT, seed=1, remainder=False)
    assert alone.words_beyond() == ()
    r2 = {m: predictive_r2(y[~KEPT], m.predict(counts)[~KEPT]) for m in (model, alone)}
    assert r2[model] > r2[alone] + 0.05
    # topics keep their coefficients
    assert [row.coefficient for row in model.coefficients()] == [
        row.coefficient for row in alone.coefficients()
    ]


def test_contributions_add_up_and_show_one_line_for_words(model: Model, counts: csr_array) -> None:
    table = model.contributions(counts).to_pandas()
    parts = [name for name in table.columns if name.startswith(("average", "topic_", "words_beyond_"))]
    assert_allclose(table[parts].sum(axis=1), model.predict(counts), rtol=1e-9)
    beyond = table["words_beyond_topics"].to_numpy()
    assert beyond[IS_LOUD].mean() > beyond[~IS_LOUD].mean() + 0.5
    # what is left to the words is unrelated to what topics predict of documents not trained on
    topics = (table["linear_predictor"] - beyond).to_numpy()
    assert abs(np.corrcoef(topics[~KEPT], beyond[~KEPT])[0, 1]) < 0.25
    assert abs(beyond[~KEPT].mean()) < 0.15


def test_documents_are_scored_one_by_one_and_by_a_loaded_model(
    model: Model, counts: csr_array, tmp_path: Path
) -> None:
    together = model.predict(counts)
    loaded = load_model(model.save(tmp_path / "m"))
    assert loaded.words_beyond(5) == model.words_beyond(5)
    assert np.array_equal(np.concatenate([loaded.predict(counts[[i]]) for i in range(40)]), together[:40])
    # no known word: the base rate, without a contribution of words
    nothing = csr_array((1, N_TERMS), dtype=np.int32)
    assert float(model.predict(nothing)[0]) == pytest.approx(
        float(gaussian_response()[KEPT].mean()), abs=1e-9
    )
    assert np.isnan(model.contributions(nothing).to_pandas()["words_beyond_topics"][0])


def test_words_that_add_nothing_are_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    noise = np.random.default_rng(2).normal(size=N)
    noisy = train(COUNTS, response=noise, n_topics=4, seed=1)
    assert noisy.words_beyond() == ()
    assert "words beyond the topics: none" in caplog.text


def test_classes_have_words_of_their_own(counts: csr_array) -> None:
    names = np.where(
        IS_LOUD, "loud", np.where(BLOCK.responses["y"] > np.median(BLOCK.responses["y"]), "high", "low")
    )
    model = train(counts, response=names, family="categorical", n_topics=6, documents=KEPT, seed=1)
    beyond = {row.class_name: row for row in model.words_beyond(2)}
    assert set(beyond) == {"loud", "high", "low"}
    assert beyond["loud"].raising[0] == str(LOUD)
    probabilities = model.predict_proba(counts)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.mean(model.predict(counts)[~KEPT] == names[~KEPT]) > 0.7


def test_covariates_and_the_exposure_stay_beside_the_words(counts: csr_array) -> None:
    rng = np.random.default_rng(6)
    size, days = rng.normal(size=N), rng.uniform(1.0, 5.0, N)
    omega = 0.4 * (gaussian_response() - 0.6) + 0.7 * size
    y = rng.poisson(days * np.exp(omega)).astype(float)
    beside: dict[str, Any] = {"covariates": {"size": size}, "exposure": days}
    model = train(counts, response=y, family="poisson", n_topics=4, documents=KEPT, **beside)
    (row,) = model.covariate_coefficients()
    assert row.coefficient == pytest.approx(0.7, abs=0.1)
    assert model.words_beyond(1)[0].raising == (str(LOUD),)
    new = {"covariates": {"size": size, "exposure": days}}
    table = model.contributions(counts, **new).to_pandas()
    assert_allclose(
        table.drop(columns=["id", "linear_predictor"]).sum(axis=1), table["linear_predictor"], rtol=1e-9
    )


def regression_on(
    y: np.ndarray,
    family: str,
    parameters: Parameters,
    center: np.ndarray,
    passes: list[Any] | None = None,
    **settings: int,
) -> _WordRegression:
    block, own = TrainingBlock(BLOCK.indptr, BLOCK.terms, BLOCK.counts, y), get_family(family, settings)

    def run(given: Parameters, work: Any) -> Any:
        # the block in two, as of two partitions
        first, second = (
            work(part, ParameterParts([given]), own, FitSpec(family=family))
            for part in (block.take(np.arange(N) < 7), block.take(np.arange(N) >= 7))
        )
        if passes is not None:
            passes.append(work)
        return first.add(second).dense()

    return _WordRegression(run, parameters, center, own)


def regression_on_counts(y: np.ndarray, rng: np.random.Generator) -> _WordRegression:
    return regression_on(y, "poisson", random_parameters(rng, N_TERMS, 3, alpha=1.0), np.log([y.mean()]))


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_a_search_over_all_documents_goes_as_far_as_it_was_judged_and_no_further(share: float) -> None:
    rng = np.random.default_rng(2)
    y = rng.negative_binomial(0.3, 0.3 / (0.3 + np.exp(3.0 + 0.5 * gaussian_response())), N).astype(float)
    regression = regression_on_counts(y, rng)
    judged = regression.solve(Selection(True, 0.1))
    assert judged is not None
    documents = normalised_terms(BLOCK.indptr, BLOCK.terms, BLOCK.counts, N_TERMS)
    dispersion = ((y - y.mean()) ** 2).mean() / y.mean()

    def gained(words: np.ndarray) -> float:
        """The log-likelihood of a document beyond that of the mean, over the dispersion, with the best intercept."""
        omega = documents @ words
        omega += np.log(y.sum() / np.exp(omega).sum())
        return float((y * (omega - np.log(y.mean())) - np.exp(omega) + y.mean()).mean() / dispersion)

    wanted = replace(judged, fitted=share * judged.fitted)
    again = regression.solve(None, like=wanted)
    assert again is not None
    assert again.length <= judged.length * (1.0 + 1e-9)
    words = regression.words(again.coefficients)
    # the intercept is the best one, by which predictions have the mean of the responses
    assert np.exp(documents @ words + again.intercept).mean() == pytest.approx(y.mean(), rel=1e-3)
    # between two steps the gain is not linear
    assert gained(words) == pytest.approx(wanted.fitted, rel=0.5)


def test_a_search_that_runs_away_is_called_back() -> None:
    rng = np.random.default_rng(3)
    y = rng.poisson(2.0, N).astype(float)
    y[5] = 1e4
    regression = regression_on_counts(y, rng)
    judged = regression.solve(Selection(True, 0.1))
    assert judged is not None
    wanted = replace(judged, fitted=np.inf, coefficients=0.25 * judged.coefficients)
    again = regression.solve(None, like=wanted)
    assert again is not None
    assert again.length == pytest.approx(wanted.length, rel=1e-9)


@pytest.mark.parametrize("factor", [0.9, 0.7])
def test_a_search_over_all_documents_goes_no_farther_than_the_judged_one(factor: float) -> None:
    """Far below the length at which a search has run away, a few large counts are predicted many times as large."""
    rng = np.random.default_rng(2)
    y = rng.poisson(np.exp(1.0 + 0.5 * gaussian_response())).astype(float)
    regression = regression_on_counts(y, rng)
    judged = regression.solve(Selection(True, 0.1))
    assert judged is not None
    again = regression.solve(None, like=replace(judged, coefficients=factor * judged.coefficients))
    assert again is not None
    assert again.length <= factor * judged.length * (1.0 + 1e-9)


@pytest.mark.parametrize("start", [-5.0, 0.0, 6.0])
def test_the_level_without_words_predicts_the_mean_from_any_start(start: float) -> None:
    rng = np.random.default_rng(4)
    parameters = random_parameters(rng, N_TERMS, 3, alpha=1.0)
    y = rng.poisson(3.0, N).astype(float)
    known = np.diff(BLOCK.indptr) > 0
    level = regression_on(y, "poisson", parameters, np.array([start])).level(None)
    assert_allclose(level, np.log(y[known].mean()), rtol=1e-3)


def test_the_search_for_the_level_computes_no_gradient_of_words() -> None:
    rng, passes = np.random.default_rng(4), []
    parameters = random_parameters(rng, N_TERMS, 3, alpha=1.0)
    y = rng.poisson(3.0, N).astype(float)
    regression = regression_on(y, "poisson", parameters, np.array([0.0]), passes)
    passes.clear()
    regression.level(None)
    assert passes
    assert not any(work.differentiated for work in passes)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.03, 0.97), (0.02, 0.28, 0.7), (0.25, 0.25, 0.25, 0.25)])
def test_the_level_of_classes_predicts_their_shares(shares: tuple[float, ...]) -> None:
    rng = np.random.default_rng(5)
    n = len(shares)
    parameters = class_parameters(rng, N_TERMS, 3, n, alpha=1.0)
    y = rng.choice(n, N, p=shares).astype(float)
    known = np.diff(BLOCK.indptr) > 0
    found = regression_on(y, "categorical", parameters, np.linspace(-1.0, 1.0, n), n_classes=n).level(None)
    probabilities = np.exp(found) / np.exp(found).sum()
    assert_allclose(probabilities, np.bincount(y[known].astype(int), minlength=n) / known.sum(), rtol=0.02)


def test_the_last_step_that_the_inner_part_cannot_tell_from_the_best_is_kept() -> None:
    rng = np.random.default_rng(0)
    y = rng.poisson(np.exp(0.4 * gaussian_response())).astype(float)
    regression, inner = regression_on_counts(y, rng), Selection(True, 0.1)
    best = regression.solve(inner)
    later = regression.solve(inner, tolerance=1.0)
    assert best is not None
    assert later is not None
    assert later.number > best.number
    assert best.judged - 1.0 <= later.judged < best.judged


@pytest.mark.parametrize("family", ["poisson", "categorical"])
@pytest.mark.parametrize(("topics", "words"), [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.4, 0.5)])
def test_predictions_go_from_the_level_towards_topics_and_words_with_its_intercept(
    family: str, topics: float, words: float
) -> None:
    documents, y, parameters, _ = problem(family)
    assert parameters.remainder is not None
    shape = np.atleast_1d(parameters.eta[0]).shape
    level, intercept = np.linspace(0.5, 0.7, *shape), np.linspace(-0.3, 0.9, *shape)
    coefficients = parameters.remainder.words
    alone = _Factors(0.8, 0.0, np.zeros(shape), 0.0, 1.0)
    both = _Factors(topics, words, np.zeros(shape), 0.0, 1.0)
    bare = replace(parameters, remainder=None)
    calibrated = Calibration(alone, both, coefficients, intercept, level, 0.5, False).of(
        bare, np.full(shape, 9.0)
    )
    posterior, responses = infer_words_of(documents, bare, max_sweeps=50), Responses.of(y, None)
    own, base = (float(a[0]) if family == "poisson" else a for a in (intercept, level))
    by_topics = posterior.zbar @ parameters.eta
    by_words = documents.normalised(N_TERMS) @ coefficients + own
    assert_allclose(
        predictors(posterior.zbar, responses, calibrated, documents),
        base + topics * (by_topics - base) + words * (by_words - base),
        rtol=1e-9,
    )
    # topics keep the coefficients that they have alone
    assert_allclose(calibrated.eta, base + 0.8 * (parameters.eta - base))
