"""Every response from end to end through train(): families, roles of columns, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.linear_model import PoissonRegressor

from dslda.datasets import simulate_corpus
from dslda.evaluation.metrics import held_out
from dslda.exceptions import ConvergenceWarning, DataWarning, InputError
from dslda.families.base import Family
from dslda.families.poisson import Poisson
from dslda.families.registry import FAMILIES
from dslda.ingestion.ingest import ingest
from dslda.model import Model, load_model
from dslda.report.model_notes import notes
from dslda.training.train import train
from tests.helpers.errors import refused

K, V, D = 3, 40, 240
TERMS = [f"w{t:02d}" for t in range(V)]
EXACT = {"tol": 1e-14, "max_iter": 300}
"""Until nothing moves: for comparison with other programs."""

Sampler = Callable[[np.ndarray, np.random.Generator], np.ndarray]
SAMPLERS: dict[str, Sampler] = {
    "gaussian": lambda omega, g: g.normal(omega, 0.5),
    "student_t": lambda omega, g: omega + 0.5 * g.standard_t(3, len(omega)),
    "poisson": lambda omega, g: g.poisson(np.exp(omega)),
    "negative_binomial": lambda omega, g: g.negative_binomial(2, 2 / (2 + np.exp(omega))),
    "binomial": lambda omega, g: g.random(len(omega)) < 1 / (1 + np.exp(-2 * omega)),
    "categorical": lambda omega, g: np.digitize(omega + 0.3 * g.normal(size=len(omega)), [-1, 1]),
    "ordinal": lambda omega, g: np.clip(np.round(omega + 3 + 0.4 * g.logistic(size=len(omega))), 1, 5),
    "gamma": lambda omega, g: g.gamma(3, np.exp(omega) / 3),
    "inverse_gaussian": lambda omega, g: g.wald(np.exp(omega), 5 * np.exp(omega)),
    "weibull": lambda omega, g: np.exp(omega) * g.weibull(2, len(omega)),
    "beta": lambda omega, g: g.beta(9 / (1 + np.exp(-omega)), 9 / (1 + np.exp(omega))),
}


def drawn(sampler: Sampler, n: int = D, seed: int = 1) -> tuple[sparse.csr_array, np.ndarray]:
    """Counts and responses of documents drawn from the model."""
    block = simulate_corpus(n, K, V, mean_tokens=40, seed=seed, sample_response=sampler).block
    return sparse.csr_array((block.counts, block.terms, block.indptr), shape=(n, V)), block.responses["y"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Model, np.ndarray, np.ndarray, str]]:
    """For each family a model with half of its responses missing, the complete ones, counts, and where it is saved."""
    folder, found = tmp_path_factory.mktemp("families"), {}
    for family, sampler in SAMPLERS.items():
        counts, y = drawn(sampler)
        seen = np.where(np.arange(D) % 4 == 0, np.nan, y)
        model = train(counts, response=seen, family=family, n_topics=K, terms=TERMS, tol=1e-3)
        found[family] = (model, counts, y, model.save(folder / f"{family}.model"))
    return found


def test_every_family_that_can_be_named_is_here() -> None:
    assert set(SAMPLERS) == {
        name for name in FAMILIES if FAMILIES[name].__module__ == f"dslda.families.{name}"
    }


@pytest.mark.parametrize("family", SAMPLERS)
def test_every_family_predicts_documents_whose_response_was_missing(fitted: Any, family: str) -> None:
    model, counts, y, _ = fitted[family]
    assert model.training.n_labelled == D * 3 // 4
    hidden = np.arange(D) % 4 == 0
    predicted = model.predict(counts)
    if family == "categorical":
        assert np.mean(predicted[hidden] == y[hidden].astype(int).astype(str)) > 0.7
        assert model.score(counts, y) == np.mean(predicted == y.astype(int).astype(str))
    else:
        assert np.corrcoef(np.log1p(predicted - predicted.min())[hidden], y[hidden])[0, 1] > 0.4
        assert np.isfinite(model.score(counts, y))
    assert np.isfinite([c[1:3] for c in model.coefficients()]).all()


@pytest.mark.parametrize("family", SAMPLERS)
def test_a_document_of_unknown_words_scores_the_base_rate(fitted: Any, family: str) -> None:
    model, counts, y, _ = fitted[family]
    seen = y[np.arange(D) % 4 > 0]
    frequent = TERMS[int(counts.sum(axis=0).argmax())]
    table = model.score_table([(["xyzzy"], [3]), ([], []), ([frequent, "xyzzy"], [5, 1])])
    assert table["flag"].to_pylist() == ["no_known_word", "empty", ""]
    probabilities = [name for name in table.column_names if name.startswith("probability_")]
    if family == "categorical":
        shares = np.bincount(seen.astype(int)) / len(seen)
        assert_allclose([table[name][0].as_py() for name in probabilities], shares)
        assert table["prediction"][0].as_py() == str(shares.argmax())
    else:
        assert_allclose(table["prediction"].to_numpy()[:2], seen.mean(), rtol=1e-9)
        assert table["prediction"][2].as_py() != pytest.approx(seen.mean(), rel=1e-3)
    assert [name.removeprefix("probability_") for name in probabilities] == {
        "categorical": ["0", "1", "2"],
        "binomial": ["0", "1"],
        "ordinal": ["1", "2", "3", "4", "5"],
    }.get(family, [])
    if probabilities:
        assert_allclose(
            model.predict_proba([([frequent], [5])])[0], [table[name][2].as_py() for name in probabilities]
        )
    else:
        with pytest.raises(InputError, match="has no classes or levels; use predict"):
            model.predict_proba([([frequent], [5])])
    if family in ("binomial", "ordinal"):
        shares = np.bincount((seen - seen.min()).astype(int)) / len(seen)
        for row in (0, 1):
            assert_allclose([table[name][row].as_py() for name in probabilities], shares, rtol=1e-9)
    assert_allclose([table[f"topic_{k}"][0].as_py() for k in range(K)], 1 / K)
    assert model.score_table([]).schema == table.schema


def test_another_process_loads_and_predicts_the_same_bits(fitted: Any) -> None:
    code = (
        "import sys, hashlib, dslda, numpy as np\n"
        f"counts = np.random.default_rng(0).poisson(0.3, (30, {V}))\n"
        "for path in sys.argv[1:]:\n"
        "    table = dslda.load_model(path).score_table(counts)\n"
        "    print(hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest())\n"
    )
    paths = [path for *_, path in fitted.values()]
    arguments = [sys.executable, "-c", code, *paths]
    other = subprocess.run(
        arguments, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    counts = np.random.default_rng(0).poisson(0.3, (30, V))
    import hashlib

    own = [
        hashlib.sha256(repr(model.score_table(counts).to_pydict()).encode()).hexdigest()
        for model, *_ in fitted.values()
    ]
    assert other.stdout.split() == own


# ---------------------------------------------------------------- covariates, exposure, weights


def with_covariates(seed: int = 0) -> tuple[sparse.csr_array, np.ndarray, np.ndarray, np.ndarray]:
    counts, _ = drawn(SAMPLERS["gaussian"], seed=seed)
    generator = np.random.default_rng(seed)
    age = generator.normal(40.0, 10.0, D)
    party = generator.choice(["D", "I", "R"], D, p=[0.5, 0.1, 0.4])
    return counts, age, party, generator


def dummies(party: np.ndarray) -> np.ndarray:
    return np.column_stack([party == "I", party == "R"]).astype(float)


def by_name(model: Model) -> dict[str, float]:
    return {
        c.covariate if c.level is None else f"{c.covariate}={c.level}": c.coefficient
        for c in model.covariate_coefficients()
    }


def test_only_for_numbers_are_responses_of_0_and_1_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    counts, y = drawn(SAMPLERS["binomial"])
    for family, told in (("gaussian", True), ("binomial", False)):
        caplog.clear()
        with caplog.at_level("INFO", "dslda"):
            train(counts, response=y.astype(float), family=family, n_topics=2, tol=0.1)
        assert ("family binomial predicts the probability of 1" in caplog.text) == told


def test_with_one_topic_covariates_are_a_weighted_regression_in_the_users_units() -> None:
    """One topic explains nothing: what is left is least squares, which numpy does."""
    counts, age, party, generator = with_covariates()
    y = 3.0 + 0.2 * age + 5.0 * (party == "R") + generator.normal(0, 2, D)
    weight = generator.integers(0, 4, D)
    given = {"age": age, "party": party}
    model = train(counts, response=y, covariates=given, weight=weight, n_topics=1, **EXACT)
    X = np.column_stack([np.ones(D), age, dummies(party)])
    root = np.sqrt(weight)
    expected = np.linalg.lstsq(X * root[:, np.newaxis], y * root, rcond=None)[0]
    assert_allclose(list(by_name(model).values()), expected[1:], rtol=1e-7)
    assert list(by_name(model)) == ["age", "party=I", "party=R"]
    assert_allclose(model.predict(counts, covariates=given), X @ expected, rtol=1e-7)
    errors = [c.conditional_error for c in model.covariate_coefficients()]
    residual = weight @ (y - X @ expected) ** 2 / weight.sum()
    classical = np.sqrt(residual * np.diagonal(np.linalg.inv(X.T @ (X * weight[:, np.newaxis]))))
    assert_allclose(errors, classical[1:], rtol=1e-6)
    # the topic's coefficient is that of a document with average covariates
    (topic,) = model.coefficients()
    average = np.average(X, axis=0, weights=weight)
    assert topic.coefficient == pytest.approx(average @ expected, rel=1e-7)
    # of unknown words: the covariates count all the same, around the mean of training
    unknown = model.predict(counts[:2] * 0, covariates={"age": age[:2], "party": party[:2]})
    mean = np.average(y, weights=weight)
    assert_allclose(unknown, mean + (X[:2] - average) @ expected, rtol=1e-7)


def test_an_exposure_multiplies_the_expected_count_as_in_a_poisson_regression() -> None:
    counts, age, _, generator = with_covariates()
    exposure = generator.uniform(0.5, 8.0, D)
    y = generator.poisson(exposure * np.exp(0.03 * (age - 40)))
    settings = {"family": "poisson", "ridge": 0.0, "n_topics": 1}
    model = train(counts, response=y, covariates={"age": age}, exposure=exposure, **settings, **EXACT)
    other = PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000, solver="newton-cholesky")
    other.fit((age - 40)[:, np.newaxis], y / exposure, sample_weight=exposure)
    assert by_name(model)["age"] == pytest.approx(other.coef_[0], rel=1e-6)
    few = {"age": age[:5], "exposure": exposure[:5]}
    once = model.predict(counts[:5], covariates=few)
    assert_allclose(once, exposure[:5] * other.predict((age[:5] - 40)[:, np.newaxis]), rtol=1e-6)
    twice = model.predict(counts[:5], covariates=few | {"exposure": 2 * exposure[:5]})
    assert_allclose(twice, 2 * once, rtol=1e-12)
    # left out it is 1, and a document of unknown words has the rate of training
    assert_allclose(model.predict(counts[:5], covariates={"age": age[:5]}) * exposure[:5], once, rtol=1e-12)
    nothing = model.predict(counts[:1] * 0, covariates={"age": [age.mean()], "exposure": [3.0]})
    assert nothing[0] == pytest.approx(3.0 * y.sum() / exposure.sum(), rel=1e-9)


def test_units_of_a_covariate_change_its_coefficient_and_nothing_else() -> None:
    counts, age, party, generator = with_covariates()
    y = generator.poisson(np.exp(0.02 * (age - 40) + (party == "R")))
    one, other = (
        train(
            counts, response=y, family="poisson", covariates={"age": x, "party": party}, n_topics=K, tol=1e-3
        )
        for x in (age, 1000 * age - 7)
    )
    assert by_name(other)["age"] * 1000 == pytest.approx(by_name(one)["age"], rel=1e-8)
    for name in ("party=I", "party=R"):
        assert by_name(other)[name] == pytest.approx(by_name(one)[name], rel=1e-8)
    assert_allclose(
        other.predict(counts, covariates={"age": 1000 * age - 7, "party": party}),
        one.predict(counts, covariates={"age": age, "party": party}),
        rtol=1e-8,
    )
    assert [c.topic for c in one.coefficients()] == [c.topic for c in other.coefficients()]


def test_a_document_of_weight_two_is_two_documents() -> None:
    counts, y = drawn(SAMPLERS["poisson"])
    weight = 1.0 + np.arange(D) % 2
    twice = np.repeat(np.arange(D), weight.astype(int))
    settings = {"family": Poisson(dispersion="pearson"), "n_topics": 1, "topic_prior": 0.0}
    weighted = train(counts, response=y, weight=weight, **settings, **EXACT)
    repeated = train(counts[twice], response=y[twice], **settings, **EXACT)
    assert_allclose(weighted.predict(counts), repeated.predict(counts), rtol=1e-9)
    assert_allclose(weighted.topic_word, repeated.topic_word, rtol=1e-9)
    (one,), (other,) = weighted.coefficients(), repeated.coefficients()
    assert one.conditional_error == pytest.approx(other.conditional_error, rel=1e-7)


@pytest.mark.parametrize("family", SAMPLERS)
def test_documents_of_weight_two_start_a_fit_as_two_documents_do(family: str) -> None:
    counts, y = drawn(SAMPLERS[family], n=120)
    weight = 1.0 + np.arange(120) % 2
    age = np.random.default_rng(0).normal(size=120)
    twice = np.repeat(np.arange(120), weight.astype(int))
    settings = {"family": family, "n_topics": K, "max_iter": 3, "tol": 0.0}
    if family in ("binomial", "categorical"):
        settings["class_weight"] = "balanced"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        weighted = train(counts, response=y, weight=weight, covariates={"age": age}, **settings)
        repeated = train(counts[twice], response=y[twice], covariates={"age": age[twice]}, **settings)
    one, other = weighted.record, repeated.record
    for name in ("topics", "eta", "zeta", "delta"):
        assert_allclose(getattr(one.parameters, name), getattr(other.parameters, name), rtol=1e-4, atol=1e-9)
    assert_allclose(one.base, other.base, rtol=1e-6)
    assert_allclose(one.prevalence, other.prevalence, rtol=1e-4)
    assert one.prevalence.sum() == pytest.approx(1.0, rel=1e-12)


def test_what_documents_left_out_hold_does_not_matter() -> None:
    counts, y = drawn(SAMPLERS["binomial"])
    trials = np.full(D, 2.0)
    y[7], trials[9], y[11] = 3.0, 0.5, -1.0
    settings = {"family": "binomial", "trials": trials, "n_topics": 2, "tol": 1e-2}
    good = np.setdiff1d(np.arange(D), [7, 9, 11])
    train(counts, response=y, documents=good, **settings)
    for row, message in (
        (7, "the response must not exceed its trials 'trials', got 3 of 2 in document 7 "),
        (9, "trials 'trials' must hold whole numbers of at least 1, got 0.5 in document 9 "),
        (11, r"the response must be whole numbers in \[0, inf\) for family binomial, got -1 in document 11 "),
    ):
        with pytest.raises(InputError, match=message):
            train(counts, response=y, documents=[*good, row], **settings)


def test_with_trials_the_prediction_is_the_expected_number_of_successes() -> None:
    generator = np.random.default_rng(3)
    trials = generator.integers(1, 9, D)
    counts, y = drawn(lambda omega, g: g.binomial(trials, 1 / (1 + np.exp(-omega))))
    model = train(counts, response=y, family="binomial", trials=trials, n_topics=K, tol=1e-3)
    expected = model.predict(counts, covariates={"trials": trials})
    assert (expected < trials).all()
    assert np.corrcoef(expected, y)[0, 1] > 0.6
    share = model.predict(counts)
    assert_allclose(share * trials, expected, rtol=1e-12)
    assert model.predict(counts[:1] * 0)[0] == pytest.approx(y.sum() / trials.sum(), rel=1e-9)
    assert model.classes is None
    too_many = y.copy()
    too_many[7] = trials[7] + 1
    message = rf"must not exceed its trials 'trials', got {too_many[7]:g} of {trials[7]} in document 7"
    with pytest.raises(InputError, match=message):
        train(counts, response=too_many, family="binomial", trials=trials, n_topics=K)
    with pytest.raises(
        InputError, match=rf"y must be one that family binomial takes, got {too_many[7]:g} in row 7"
    ):
        model.training_topic_proportions(counts, too_many, covariates={"trials": trials})


def test_censored_durations_recover_what_ignoring_the_censoring_does_not() -> None:
    counts, y = drawn(SAMPLERS["weibull"], n=400)
    end = np.random.default_rng(0).exponential(np.median(y), len(y))
    seen, event = np.minimum(y, end), (y <= end).astype(int)
    settings = {"family": "weibull", "n_topics": K, "tol": 1e-3}
    honest = train(counts, response=seen, event=event, **settings)
    naive = train(counts, response=seen, **settings)
    assert 0.3 < event.mean() < 0.7
    named = train(counts, response=seen, event=np.where(event == 1, "ended", "cut off"), **settings)
    assert_array_equal(named.record.parameters.eta, honest.record.parameters.eta)
    errors = [np.abs(np.log(m.predict(counts) / y)).mean() for m in (honest, naive)]
    assert errors[0] < 0.85 * errors[1]
    assert honest.predict(counts).mean() == pytest.approx(y.mean(), rel=0.25)
    # what training has inferred of a document knows whether it ended
    proportions = [
        honest.training_topic_proportions(counts, seen, covariates={"event": flag})
        for flag in (event, 1 - event)
    ]
    assert not np.allclose(*proportions)
    with pytest.raises(InputError, match="row 1: event 'event' must be 0 or 1, got 2"):
        honest.training_topic_proportions(counts[:2], seen[:2], covariates={"event": [1, 2]})


def test_balanced_classes_find_a_rare_one() -> None:
    counts, y = drawn(
        lambda omega, g: g.random(len(omega)) < 1 / (1 + np.exp(7 - 2.5 * omega)), n=1200, seed=4
    )
    assert 0.01 < y.mean() < 0.03
    names = np.where(y == 1, "spam", "fine")
    settings = {"family": "binomial", "n_topics": K, "tol": 1e-3}
    with pytest.warns(
        DataWarning, match=r"only \d\.\d% of the documents are 'spam'.*class_weight \('balanced'\)"
    ):
        plain = train(counts, response=names, **settings)
    with pytest.warns(DataWarning, match="only"):
        balanced = train(counts, response=names, class_weight="balanced", **settings)
    assert plain.classes == balanced.classes == ("fine", "spam")

    def recall(model: Model) -> float:
        return float(np.mean(model.predict(counts)[names == "spam"] > 0.5))

    assert recall(balanced) > recall(plain) + 0.2
    nothing = counts[:1] * 0
    assert plain.predict(nothing)[0] == pytest.approx(y.mean(), rel=1e-9)
    # as the classes were weighed, like all its other predictions
    assert balanced.predict(nothing)[0] == pytest.approx(0.5, rel=1e-9)
    with pytest.warns(DataWarning, match="only"):
        mapped = train(counts, response=names, class_weight={"spam": (1 - y.mean()) / y.mean()}, **settings)
    assert_allclose(mapped.predict(nothing), 0.5, rtol=1e-9)


@pytest.mark.parametrize("family", ["binomial", "categorical"])
def test_weights_of_classes_shift_the_log_odds_and_leave_the_fit(family: str) -> None:
    """In the E-step they pulled the topics of training documents after rare responses, and coefficients to the ridge."""
    counts, y = drawn(lambda omega, g: g.random(len(omega)) < 1 / (1 + np.exp(3 - 2.5 * omega)))
    assert 0.05 < y.mean() < 0.3
    settings = {"response": y, "family": family, "n_topics": K, "tol": 1e-3}
    plain, weighed = train(counts, **settings), train(counts, class_weight={1: 6.0, 0: 0.5}, **settings)
    assert weighed.topic_word.tobytes() == plain.topic_word.tobytes()
    assert weighed.record.covariance.tobytes() == plain.record.covariance.tobytes()
    assert weighed.trace["elbo"].tobytes() == plain.trace["elbo"].tobytes()
    eta, shifted = plain.record.parameters.eta, weighed.record.parameters.eta
    odds = np.log(12.0) if family == "binomial" else np.log(12.0) * np.array([-0.5, 0.5])
    assert_allclose(shifted, eta + odds, rtol=1e-12)
    p, q = plain.predict_proba(counts), weighed.predict_proba(counts)
    wanted = p * [0.5, 6.0] / (p @ [0.5, 6.0])[:, np.newaxis]
    # of a binomial the probability is a mean over log-odds, which the shift moves
    assert_allclose(q, wanted, rtol=1e-9) if family == "categorical" else assert_allclose(
        q, wanted, atol=0.05
    )
    assert_allclose(
        weighed.training_topic_proportions(counts, y), plain.training_topic_proportions(counts, y), rtol=1e-6
    )


def test_a_class_of_weight_zero_is_left_out() -> None:
    counts, y = drawn(SAMPLERS["categorical"])
    settings = {"family": "categorical", "n_topics": K, "tol": 1e-3}
    without = train(counts, response=y, class_weight={2: 0.0}, **settings)
    assert without.training.n_labelled == D
    # its responses are as if they were missing
    missing = train(counts, response=np.where(y == 2, np.nan, y), **settings)
    assert_allclose(without.topic_word, missing.topic_word, atol=0.05)
    assert without.predict_proba(counts)[:, 2].mean() < 0.5 * np.mean(y == 2)


# ---------------------------------------------------------------- classes


def test_classes_are_named_as_they_were_given(tmp_path: Path) -> None:
    counts, codes = drawn(SAMPLERS["categorical"])
    codes = codes.astype(int)
    names = np.array(["left", "middle", "right"])[codes]
    model = train(counts, response=names, family="categorical", n_topics=K, tol=1e-3)
    numbered = train(counts, response=np.array([1, 2, 5])[codes], family="categorical", n_topics=K, tol=1e-3)
    many = 1_000_000 + np.array([1, 2, 5])
    large = train(counts, response=many[codes], family="categorical", n_topics=K, tol=1e-3)
    assert model.classes == ("left", "middle", "right")
    assert numbered.classes == ("1", "2", "5")
    assert large.classes == ("1000001", "1000002", "1000005")
    for other in (numbered, large):
        assert other.record.parameters.eta.tobytes() == model.record.parameters.eta.tobytes()
    loaded = load_model(model.save(tmp_path / "named.model"))
    assert loaded.classes == model.classes
    assert_array_equal(loaded.predict(counts), model.predict(counts))
    assert_array_equal(loaded.predict_proba(counts), model.predict_proba(counts))
    assert_array_equal(
        np.array(model.classes)[model.predict_proba(counts).argmax(axis=1)], model.predict(counts)
    )
    assert_allclose(model.predict_proba(counts).sum(axis=1), 1.0)
    assert_allclose(model.class_coefficients().sum(axis=1), 0.0, atol=1e-12)
    assert model.score(counts, names) == numbered.score(counts, np.array([1, 2, 5])[codes]) > 0.7
    assert_array_equal(
        model.training_topic_proportions(counts, names),
        numbered.training_topic_proportions(counts, np.array([1, 2, 5])[codes]),
    )
    assert {c.class_name for c in model.coefficients()} <= set(model.classes)
    with refused("y"):
        model.score(counts, [*names[:3], "up", *names[4:]])
    with refused("y"):
        numbered.score(counts, np.full(D, 3))


def test_classes_are_matched_by_name_whatever_the_type_of_labels() -> None:
    counts, y = drawn(SAMPLERS["categorical"])
    stars = y.astype(int) + 1
    settings: dict[str, Any] = {"family": "categorical", "n_topics": K, "tol": 1e-2}
    missing = stars.astype(float)
    missing[0] = np.nan
    same = (
        stars,
        stars.astype(np.uint8),
        stars.astype(np.float32),
        stars.astype(str),
        stars.astype(float).astype(str),
        stars.tolist(),
        pd.Series(stars, dtype="Int64"),
        pd.Categorical(stars),
        pd.Series(stars.astype(str), dtype="string"),
    )
    named = train(counts, response=stars.astype(str), **settings)
    of_categories = train(counts, response=pd.Categorical(stars.astype(float)), **settings)
    numbered = train(counts, response=stars, **settings)
    right = np.mean(named.predict(counts) == stars.astype(str))
    proportions = named.training_topic_proportions(counts, stars.astype(str))
    for model in (named, of_categories, numbered):
        assert model.classes == ("1", "2", "3")
        for labels in same:
            assert model.score(counts, labels) == right > 0.7
            assert_array_equal(model.training_topic_proportions(counts, labels), proportions)
        rest = np.mean(named.predict(counts)[1:] == stars.astype(str)[1:])
        for labels in (
            missing,
            [None, *stars[1:]],
            [pd.NA, *stars.astype(str)[1:]],
            np.ma.masked_array(stars, mask=np.arange(D) == 0),
        ):
            assert model.score(counts, labels) == rest
        for wrong in (0, 4, 1.5, "one", [1], np.inf, "01"):
            with refused("y"):
                model.score(counts, [*stars[1:], wrong])


def test_numbers_are_codes_of_classes_only_where_no_name_is_a_number() -> None:
    counts, y = drawn(SAMPLERS["binomial"])
    settings: dict[str, Any] = {"family": "binomial", "n_topics": K, "tol": 1e-2}
    for names in (("no", "yes"), ("False", "True"), ("false", "true"), ("0", "1"), ("1", "2")):
        model = train(counts, response=np.array(names)[y.astype(int)], **settings)
        expected = model.score(counts, np.array(names)[y.astype(int)])
        numbers = y + 1 if names == ("1", "2") else y
        assert model.score(counts, numbers) == model.score(counts, numbers.tolist()) == expected
        if names != ("1", "2"):
            assert model.score(counts, y == 1) == model.score(counts, (y == 1).tolist()) == expected
        with refused("y"):
            model.score(counts, np.where(np.arange(D) == 3, numbers.max() + 1, numbers))
    with refused("y"):
        model.score(counts, y)


def test_weights_of_classes_go_by_name_whatever_the_type() -> None:
    counts, y = drawn(SAMPLERS["binomial"])
    settings: dict[str, Any] = {"family": "binomial", "n_topics": K, "tol": 1e-2}
    bases = [
        train(counts, response=response, class_weight={label: 3.0}, **settings).record.base
        for response, labels in ((y, (1, 1.0, "1", "1.0", True)), (y.astype(int).astype(str), (1, 1.0, "1")))
        for label in labels
    ]
    weights: list[Any] = [
        {b"1": 3},
        {1: np.float32(3)},
        {1: np.int64(3)},
        {1: Decimal(3)},
        pd.Series({1: 3.0}),
    ]
    bases += [train(counts, response=y, class_weight=given, **settings).record.base for given in weights]
    assert len({base.tobytes() for base in bases if base is not None}) == 1
    wrong: list[Any] = [{2: 3.0}, {1: 3.0, "1": 2.0}, {1: "3"}, {1: np.nan}, {1: True}, [1.0, 3.0]]
    for given in wrong:
        with refused("class_weight"):
            train(counts, response=y, class_weight=given, **settings)


def test_two_names_are_a_binomial_response() -> None:
    counts, y = drawn(SAMPLERS["binomial"])
    answers = np.where(y == 1, "yes", "no").astype(object)
    answers[:5] = None
    model = train(counts, response=answers, family="binomial", n_topics=K, tol=1e-3)
    assert model.classes == ("no", "yes")
    assert model.training.n_labelled == D - 5
    plain = train(
        counts, response=np.where(np.arange(D) < 5, np.nan, y), family="binomial", n_topics=K, tol=1e-3
    )
    assert plain.classes == ("0", "1")
    assert_array_equal(model.predict(counts), plain.predict(counts))
    assert_array_equal(model.predict_proba(counts)[:, 1], model.predict(counts))
    assert model.score(counts, answers) == plain.score(counts, np.where(np.arange(D) < 5, np.nan, y)) > 0.3
    assert "Coefficients are log odds of class 'yes'." in map(str, notes(model))
    with pytest.raises(InputError, match="one coefficient a topic; use coefficients"):
        model.class_coefficients()


def test_of_two_classes_held_out_documents_tell_the_share_that_is_right() -> None:
    counts, y = drawn(SAMPLERS["binomial"])
    answers = np.where(y == 1, "yes", "no")
    model = train(counts, response=answers, family="binomial", n_topics=K, tol=1e-3, hold_out=0.25)
    kept = held_out(D, 0.25)
    right = np.mean((model.predict(counts)[kept] > 0.5) == (y[kept] == 1))
    assert model.training.held_out.measure == "accuracy"
    assert model.training.held_out.value == pytest.approx(right, abs=1e-12)


@pytest.mark.parametrize(("names", "family"), [("ab", "binomial"), ("abc", "categorical")])
def test_a_family_of_numbers_advises_the_family_of_so_many_names(
    names: str, family: str, tmp_path: Path
) -> None:
    records = [
        {"text": f"apple pear {names[i % len(names)]}", "kind": names[i % len(names)]} for i in range(30)
    ]
    corpus = ingest(
        records, tmp_path / "c.corpus", text="text", response="kind", categorical="kind", max_df=1.0
    )
    with pytest.raises(InputError) as caught:
        train(corpus, response="kind", n_topics=2)
    assert f"{{family='{family}'}}" in str(caught.value.remedy)


def test_doubtful_classes_are_warned_of() -> None:
    counts, y = drawn(SAMPLERS["gaussian"])
    few = counts[:60]
    settings = {"family": "categorical", "n_topics": 2, "tol": 0.05}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(few, response=np.round(y[:60], 3), **settings)
    messages = [str(w.message) for w in caught]
    assert any("different numbers, which are taken for classes without order" in m for m in messages), (
        messages
    )
    names = np.where(y[:60] > 0, "up", "down").astype(object)
    names[3] = "lost"
    with pytest.warns(
        DataWarning, match=r"1 class of a single document \('lost'; .*document 3 .*\) cannot be learned"
    ):
        train(few, response=names, **settings)
    with pytest.warns(DataWarning, match=r"1 class of no document trained on \('lost'\) cannot be learned"):
        model = train(few, response=names, documents=names != "lost", class_weight="balanced", **settings)
    # it has not been made as frequent as the others
    assert model.predict_proba(few)[:, model.classes.index("lost")].max() < 0.1


# ---------------------------------------------------------------- what is refused or warned of


@pytest.mark.parametrize(
    ("family", "value", "message"),
    [
        ("poisson", -1.0, r"whole numbers in \[0, inf\) for family poisson, got -1 in document 7 .*gaussian"),
        ("negative_binomial", 2.5, r"for family negative_binomial, got 2\.5 in document 7"),
        ("gamma", 0.0, r"numbers in \(0, inf\) for family gamma, got 0 in document 7"),
        ("weibull", -3.0, "for family weibull, got -3 in document 7"),
        ("binomial", 1.5, r"for family binomial, got 1\.5 in document 7"),
        ("binomial", 2.0, "0 or 1 for family binomial without trials, got 2 in document 7 .*trials="),
        ("ordinal", 1.5, r"for family ordinal, got 1\.5 in document 7"),
        ("ordinal", 90.0, "an ordinal response must have at most 21 levels"),
    ],
)
def test_responses_outside_the_domain_are_named(family: str, value: float, message: str) -> None:
    counts, y = drawn(SAMPLERS["binomial"])
    y = y if family in ("binomial", "ordinal", "poisson", "negative_binomial") else y + 1.0
    y[7] = value
    with pytest.raises(InputError, match=message):
        train(counts, response=y, family=family, n_topics=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"family": "probit"}, "family must be one of .*, got 'probit'"),
        ({"family": 5}, "family must be one of .*, got 5"),
        ({"family": ["poisson"]}, "family must be one of .*, got "),
        (
            {"exposure": np.ones(D)},
            "exposure must be left out for family gaussian; families .*: negative_binomial, pois",
        ),
        ({"trials": np.ones(D)}, "trials must be left out for family gaussian; it belongs to binomial"),
        ({"event": np.ones(D)}, "event must be left out for family gaussian; it belongs to weibull"),
        (
            {"family": "weibull", "event": np.zeros(D)},
            "event 'event' must be 1 for some document, got 0 for all",
        ),
        (
            {"family": "weibull", "event": np.full(D, 0.5)},
            "event 'event' must hold 1 where.*got 0.5 in document 0",
        ),
        ({"family": "poisson", "exposure": np.zeros(D)}, "exposure 'exposure' must hold numbers above 0"),
        (
            {"family": "poisson", "exposure": ["a"] * D},
            "exposure 'exposure' must hold numbers above 0, got names",
        ),
        (
            {"weight": np.zeros(D)},
            "weight 'weight' must be above 0 for some document with the response, got 0 for all",
        ),
        ({"weight": -np.ones(D)}, "weight 'weight' must hold numbers of at least 0, got -1 in document 0"),
        ({"weight": ["a"] * D}, "weight 'weight' must hold numbers of at least 0, got names"),
        (
            {"weight": np.arange(D) < 1},
            "the response must have at least two distinct values or classes in documents with a weight above 0, got one",
        ),
        (
            {"family": "categorical", "response": pd.Categorical(["1", "1 "] * (D // 2))},
            r"categories whose names differ in more than the white space around them, got \['1', '1 '\]",
        ),
        (
            {"family": "categorical", "response": pd.Categorical([" ", "b"] * (D // 2))},
            "categories with names, got one that is empty or only white space",
        ),
        (
            {"covariates": {"age": np.full(D, np.datetime64("2020"))}},
            r"age must hold numbers, .* where it is missing$",
        ),
        (
            {"client": "tcp://127.0.0.1:8786"},
            r"client must be a distributed\.Client, got 'tcp:.*Client\('tcp:",
        ),
        ({"weight": np.ones(3)}, "weight must have one number for each of 240 rows"),
        (
            {"covariates": {"age": np.full(D, 3.0)}},
            "covariate 'age' must differ between documents with a response by more than rounding, got 3 in all",
        ),
        (
            {"covariates": {"age": [None] * D}},
            "the response is missing in all documents to train on that have 'age'; it must be known in at least two",
        ),
        ({"covariates": {"response": np.arange(D)}}, "other columns than the response, got 'response'"),
        ({"covariates": ["age"]}, r"a mapping of name to array for a matrix.*covariates=\{'age'"),
        ({"covariates": {"weight": np.ones(D)}}, "covariates must have other names than weight"),
        ({"class_weight": "balanced"}, "class_weight must be left out: the response has no classes"),
        (
            {"family": "binomial", "class_weight": {"yes": 2}},
            "class_weight must name classes .*'yes'; they are '0', '1'",
        ),
        (
            {"family": "binomial", "class_weight": {1: -2}},
            "class_weight of '1' must be a number of at least 0, got -2",
        ),
        ({"family": "binomial", "class_weight": "even"}, "class_weight must be 'balanced' or a mapping"),
        ({"ridge": -1}, "ridge must be a number from 0"),
        ({"doc_topic_prior": "automatic"}, "'auto' or 'asymmetric' .*, got 'automatic'"),
        ({"family": "categorical", "response": ["a"] * D}, "two distinct values .*got 'a' in all 240"),
        ({"response": ["a", "b"] * (D // 2)}, "must hold numbers, got 'a' in row 0; .*family categorical"),
        (
            {"family": "binomial", "response": ["a", "b", "c"] * (D // 3)},
            "has 3 names .*use family='categorical'",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments: dict[str, Any], message: str) -> None:
    counts, y = drawn(SAMPLERS["binomial"])
    given = {"response": y + (arguments.get("family") == "weibull")} | arguments
    with pytest.raises(InputError, match=message):
        train(counts, n_topics=2, **given)


@pytest.mark.parametrize("family", ["binomial", "categorical"])
def test_classes_that_topics_tell_apart_without_error_are_warned_of(family: str) -> None:
    # each class has words of its own
    y = np.arange(60) % 2
    counts = np.zeros((60, 4), dtype=int)
    counts[np.arange(60), 2 * y] = 30
    counts[np.arange(60), 2 * y + 1] = 20
    with pytest.warns(
        DataWarning, match=r"the response: topics .* all but perfectly .* probability of 0\.9.* larger ridge"
    ):
        model = train(counts, response=y, family=family, n_topics=2)
    assert all(np.isfinite(c.coefficient) and abs(c.coefficient) < 20 for c in model.coefficients())
    mixed = y.copy()
    mixed[:12] = 1 - mixed[:12]
    train(counts, response=mixed, family=family, n_topics=2)


@pytest.mark.parametrize("family", ["binomial", "categorical"])
def test_documents_kept_aside_choose_the_size_of_coefficients(family: str) -> None:
    """No ridge has to, so that topics which tell classes apart without error are no reason to distrust it."""
    y = np.arange(300) % 2
    counts = np.zeros((300, 40), dtype=int)
    rng = np.random.default_rng(0)
    for d, own in enumerate(y):
        counts[d, 20 * own + rng.choice(20, 10, replace=False)] = 3
    # a warning would be an error here
    model = train(counts, response=y, family=family, n_topics=2)
    assert model.spec.objective == "conditional"
    assert np.asarray(model.predict_proba(counts)).max() > 0.99


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("family", ["binomial", "categorical"])
def test_a_class_that_is_very_rare_is_not_told_apart_by_its_base_rate(family: str, class_weight: Any) -> None:
    """0.998 for the common class is nothing that topics have done."""
    counts, _ = drawn(SAMPLERS["gaussian"], n=1500)
    y = np.zeros(1500)
    y[[100, 700, 1300]] = 1.0
    with pytest.warns(DataWarning, match="only") as caught:
        train(counts, response=y, family=family, n_topics=2, tol=1e-2, class_weight=class_weight)
    assert not [str(w.message) for w in caught if "perfectly" in str(w.message)]


@pytest.mark.filterwarnings("ignore:.*have nearly the words")
@pytest.mark.parametrize("family", ["gaussian", Poisson(dispersion="pearson"), "categorical"])
def test_covariates_that_cannot_be_told_apart_are_warned_of(family: str | Family) -> None:
    counts, age, party, _ = with_covariates()
    _, y = drawn(SAMPLERS[family if isinstance(family, str) else family.name])
    tangled = {"age": age, "months": 12 * age + 3, "party": party}
    with pytest.warns(DataWarning, match="covariates 'age', 'months' cannot be told apart"):
        model = train(counts, response=y, family=family, covariates=tangled, n_topics=2, tol=1e-2)
    assert np.isfinite([c.coefficient for c in model.covariate_coefficients()]).all()


def test_alpha_is_learned_as_one_number_or_one_for_each_topic() -> None:
    counts, y = drawn(SAMPLERS["gaussian"])
    one = train(counts, response=y, n_topics=K, doc_topic_prior="auto", tol=1e-3).doc_topic_prior
    each = train(counts, response=y, n_topics=K, doc_topic_prior="asymmetric", tol=1e-3).doc_topic_prior
    assert len(set(one.tolist())) == 1
    assert one[0] != 1 / K
    assert len(set(each.tolist())) == K
