"""The scikit-learn face: an estimator like any other, and the same model as train() gives."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from dslda.datasets import simulate_corpus
from dslda.estimators import SLDAClassifier, SLDARegressor
from dslda.exceptions import ConvergenceWarning, DataWarning, InputError
from dslda.training.train import train
from tests.helpers.errors import refused

K, V, D = 3, 50, 150


@pytest.fixture(scope="module")
def simulated() -> tuple[sparse.csr_array, np.ndarray]:
    block = simulate_corpus(D, K, V, mean_tokens=40, seed=5).block
    return sparse.csr_array((block.counts, block.terms, block.indptr), shape=(D, V)), block.responses["y"]


# Two warnings are expected: the checks' data are no counts (rounded, DataWarning) and some are tiny (more
# topics than documents). Checks that are expected to fail have their reasons. One requirement is
# waived by the tag `poor_score`: R2 above 0.5 on rows of normal numbers, which are no documents.
@pytest.mark.filterwarnings("ignore::dslda.exceptions.DsldaWarning")
@parametrize_with_checks(
    [SLDARegressor(n_topics=3, max_iter=10), SLDAClassifier(n_topics=3, max_iter=10)],
    expected_failed_checks=lambda estimator: (
        dict.fromkeys(
            ["check_class_weight_classifiers", "check_decision_proba_consistency"],
            "its rows have negative numbers, whatever the tags say; counts have none",
        )
        if isinstance(estimator, SLDAClassifier)
        else {}
    ),
)
def test_scikit_learn_accepts_the_estimators(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("how", ["map", "variational"])
def test_the_estimator_is_train_in_other_clothes(
    simulated: tuple[sparse.csr_array, np.ndarray], how: str
) -> None:
    counts, y = simulated
    estimator = SLDARegressor(n_topics=K, response_weight=2.0, topic_estimation=how).fit(counts, y)
    model = train(counts, response=y, n_topics=K, response_weight=2.0, topic_estimation=how)
    assert_array_equal(estimator.predict(counts), model.predict(counts))
    assert_array_equal(estimator.transform(counts), model.transform(counts))
    assert_array_equal(estimator.topic_word_, model.topic_word)
    by_topic = {c.topic: c.coefficient for c in model.coefficients()}
    assert estimator.coef_.tolist() == [by_topic[k] for k in range(K)]
    assert estimator.dispersion_ == model.dispersion
    assert estimator.elbo_ == model.trace["elbo"][-1]
    assert estimator.n_iter_ == model.training.n_iterations
    assert estimator.score(counts, y) == pytest.approx(model.score(counts, y))
    assert_array_equal(estimator.doc_topic_, model.training_topic_proportions(counts, y))
    assert not np.allclose(estimator.doc_topic_, estimator.transform(counts))
    assert estimator.get_feature_names_out().tolist() == [
        "sldaregressor0",
        "sldaregressor1",
        "sldaregressor2",
    ]


def test_it_works_in_a_pipeline_a_grid_search_a_clone_and_a_pickle() -> None:
    texts = [
        f"{'good fine lovely' if i % 2 else 'bad poor awful'} {'shirt' if i % 3 else 'film'} number{i % 7}"
        for i in range(60)
    ]
    y = np.array([1.0 if i % 2 else -1.0 for i in range(60)])
    pipeline = make_pipeline(CountVectorizer(), SLDARegressor(n_topics=2, tol=1e-3))
    search = GridSearchCV(pipeline, {"sldaregressor__response_weight": [1.0, 4.0]}, cv=3)
    search.fit(texts, y)
    good, bad = search.predict(["good lovely film", "awful poor film"])
    assert good > 0.5 > -0.5 > bad
    fitted = search.best_estimator_
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(texts), fitted.predict(texts))
    assert_array_equal(clone(fitted).fit(texts, y).predict(texts), fitted.predict(texts))
    proportions = fitted.transform(texts)
    assert proportions.shape == (60, 2)


def test_names_of_columns_become_the_vocabulary(simulated: tuple[sparse.csr_array, np.ndarray]) -> None:
    counts, y = simulated
    frame = pd.DataFrame(counts.toarray(), columns=[f"w{t}" for t in range(V)])
    estimator = SLDARegressor(n_topics=K, tol=1e-2).fit(frame, y)
    assert estimator.model_.topics(top=1)[0].words[0].startswith("w")
    assert_array_equal(estimator.predict(frame), estimator.model_.predict(counts))


def test_weights_of_words_are_refused_and_names_of_topics_words_are_those_of_the_vectorizer() -> None:
    texts = ["good film plot plot", "bad film", "good good plot", "bad bad plot film"] * 3
    y = np.array([1.0, -1.0, 2.0, -2.0] * 3)
    for norm in ("l1", "l2"):
        pipeline = make_pipeline(TfidfVectorizer(norm=norm), SLDARegressor(n_topics=2))
        with pytest.raises(InputError, match=r"got weights: \d+ of its \d+ values .*; use CountVectorizer"):
            pipeline.fit(texts, y)
    pipeline = make_pipeline(CountVectorizer(), SLDARegressor(n_topics=2)).fit(texts, y)
    names = pipeline[0].get_feature_names_out()  # as the README has it
    words = [names[int(word)] for topic in pipeline[-1].model_.topics(top=2) for word in topic.words]
    assert set(words) <= {"good", "bad", "film", "plot"}
    with pytest.raises(InputError, match="predict with the scikit-learn pipeline"):
        pipeline[-1].model_.predict(texts)


def test_values_that_are_no_counts_are_rounded_and_said(
    simulated: tuple[sparse.csr_array, np.ndarray],
) -> None:
    counts, y = simulated
    estimator = SLDARegressor(n_topics=K, tol=1e-2)
    # one of ours, and one from the depths of training, both through scikit-learn
    with pytest.warns(DataWarning, match="were rounded; give counts") as caught:
        rounded = make_pipeline(estimator).fit(counts * 1.1, y).predict(counts)
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(ConvergenceWarning) as caught:
        make_pipeline(SLDARegressor(n_topics=K, max_iter=1)).fit(counts, y)
    assert [warning.filename for warning in caught] == [__file__]
    assert_array_equal(
        rounded, SLDARegressor(n_topics=K, tol=1e-2).fit(np.rint(counts.toarray() * 1.1), y).predict(counts)
    )
    with refused("X"), pytest.warns(DataWarning):
        estimator.fit(counts / 1000, y)
    with pytest.raises(ValueError, match="Negative values"):
        estimator.fit(counts * -1, y)


@pytest.mark.parametrize(
    "texts",
    [
        ["a good film", "a bad film"],
        np.array(["a good film", "a bad film"]),
        np.array([["a good film"], ["a bad film"]], dtype=object),
        pd.DataFrame({"text": ["a good film", "a bad film"]}),
        pd.Series(["a good film", "a bad film"]),
    ],
    ids=["list", "array", "column", "frame", "series"],
)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_texts_are_sent_to_a_count_vectorizer(
    simulated: tuple[sparse.csr_array, np.ndarray], texts: Any
) -> None:
    with pytest.raises(
        InputError, match=r"got texts.*make_pipeline\(CountVectorizer\(\), SLDARegressor\(\)\)"
    ):
        SLDARegressor(n_topics=2).fit(texts, [1.0, 2.0])
    fitted = SLDARegressor(n_topics=K, tol=1e-2).fit(*simulated)
    for use in (fitted.predict, fitted.transform):
        with pytest.raises(InputError, match="got texts"):
            use(texts)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_missing_responses_are_sent_to_train(
    simulated: tuple[sparse.csr_array, np.ndarray], missing: float | None
) -> None:
    counts, y = simulated
    with pytest.raises(InputError, match=r"^Input y contains NaN.*dslda\.train\(X, response=y\)"):
        SLDARegressor(n_topics=K).fit(counts, [missing, *y[1:]])
    assert train(counts, response=[missing, *y[1:]], n_topics=K, tol=1e-2).training.n_labelled == D - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: np.array(["good", *y[1:]], dtype=object), "must hold numbers.*'good' in row 0"),
        (lambda y: y.astype(str), "a number for each document; names of classes are for SLDAClassifier$"),
        (lambda y: np.arange(D).astype("datetime64[D]"), "must hold numbers.*in row 0"),
        (lambda y: y * 1e-300, "standard deviation"),
        (lambda y: y * 1e300, "rescale"),
    ],
)
def test_responses_that_scikit_learn_lets_through_are_checked(
    simulated: tuple[sparse.csr_array, np.ndarray], change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    counts, y = simulated
    with pytest.raises(InputError, match=message):
        SLDARegressor(n_topics=K).fit(counts, change(y))


def test_bad_parameters_are_refused_when_fitting(simulated: tuple[sparse.csr_array, np.ndarray]) -> None:
    counts, y = simulated
    with refused("n_topics"):
        SLDARegressor(n_topics=0).fit(counts, y)
    with pytest.raises(InputError, match="two distinct values"):
        SLDARegressor(n_topics=2).fit(counts, np.ones(D))


def with_covariates() -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Counts, responses that follow words, age and party, and the two covariates."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(1.0, (90, 12))
    table = pd.DataFrame({"age": rng.normal(50, 10, 90), "party": rng.choice(["D", "R"], 90)})
    y = counts[:, 0] - counts[:, 1] + 0.2 * table["age"] + 3.0 * (table["party"] == "R")
    return counts, y.to_numpy() + rng.normal(0, 0.1, 90), table


def test_covariates_and_weights_are_those_of_train() -> None:
    counts, y, table = with_covariates()
    weight = np.arange(90) % 3
    estimator = SLDARegressor(n_topics=2, tol=1e-3).fit(counts, y, sample_weight=weight, covariates=table)
    columns = {name: table[name].to_numpy() for name in table}
    model = train(counts, response=y, n_topics=2, tol=1e-3, weight=weight, covariates=columns)
    assert estimator.model_.covariate_coefficients() == model.covariate_coefficients()
    assert_array_equal(estimator.predict(counts, covariates=table), model.predict(counts, covariates=columns))
    turned = table[["party", "age"]]  # by name, whatever their order
    assert estimator.score(counts, y, covariates=turned) == estimator.score(counts, y, covariates=table) > 0.5
    assert estimator.transform(counts).shape == (90, 2)
    assert_array_equal(estimator.doc_topic_, model.training_topic_proportions(counts, y, covariates=columns))
    numbers = table[["age"]].to_numpy()
    unnamed = SLDARegressor(n_topics=2, tol=1e-2).fit(counts, y, covariates=numbers)
    assert [c.covariate for c in unnamed.model_.covariate_coefficients()] == ["x0"]
    classifier = SLDAClassifier(n_topics=2, tol=1e-2).fit(counts, y > 10, covariates=table)
    assert classifier.predict_proba(counts, covariates=table).shape == (90, 2)
    assert classifier.score(counts, y > 10, covariates=table) > 0.7


def test_covariates_survive_searches_and_pipelines_by_metadata_routing() -> None:
    counts, y, table = with_covariates()
    with config_context(enable_metadata_routing=True):
        estimator = (
            SLDARegressor(n_topics=2, tol=1e-2)
            .set_fit_request(covariates=True, sample_weight=True)
            .set_predict_request(covariates=True)
            .set_score_request(covariates=True, sample_weight=True)
        )
        search = GridSearchCV(
            make_pipeline(FunctionTransformer(accept_sparse=True), clone(estimator)),
            {"sldaregressor__response_weight": [1.0, 4.0]},
            cv=3,
        )
        search.fit(counts, y, covariates=table, sample_weight=np.ones(90))
        assert search.best_score_ > 0.5
        assert search.best_estimator_.predict(counts, covariates=table).shape == (90,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.to_dict("list"),
            "covariates must be a DataFrame or a dense two-dimensional array .*, got dict",
        ),
        (lambda t: t["age"], "covariates must be a DataFrame .*, got Series"),
        (lambda t: t[:-1], "covariates must have a row for each of 90 documents .*, got 89 rows"),
        (
            lambda t: t.replace("D", None),
            r"covariates contain NaN, which .*: 'party' in row \d+ .*use dslda.train",
        ),
        (
            lambda t: t.rename(columns={"age": "party"}),
            "columns of different names, got 90 rows of 'party', 'party'",
        ),
    ],
)
def test_covariates_that_cannot_be_used_are_refused(
    change: Callable[[pd.DataFrame], Any], message: str
) -> None:
    counts, y, table = with_covariates()
    fitted = SLDARegressor(n_topics=2, tol=1e-2).fit(counts, y, covariates=table)
    for use in (
        lambda given: fitted.predict(counts, covariates=given),
        lambda given: SLDARegressor(n_topics=2).fit(counts, y, covariates=given),
    ):
        with pytest.raises(InputError, match=message):
            use(change(table))


@pytest.mark.filterwarnings("ignore:.*have nearly the words")
def test_covariates_that_predict_does_not_know_are_refused() -> None:
    counts, y, table = with_covariates()
    fitted = SLDARegressor(n_topics=2, tol=1e-2).fit(counts, y, covariates=table)
    with refused("covariates"):
        fitted.predict(counts)
    with pytest.raises(
        InputError, match=r"levels that fit has seen, and are not in \d+ rows; row \d+: .*'Green'"
    ):
        fitted.predict(counts, covariates=table.replace("D", "Green"))
    bare = SLDARegressor(n_topics=2, tol=1e-2).fit(counts, y)
    with refused("covariates"):
        bare.predict(counts, covariates=table)


def test_each_estimator_names_the_other_for_its_families() -> None:
    counts, y, _ = with_covariates()
    with pytest.raises(InputError, match="got 'poisson'; counts and other numbers are for SLDARegressor"):
        SLDAClassifier(family="poisson").fit(counts, np.arange(90) % 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got 'categorical'; classes are for SLDAClassifier"):
        SLDARegressor(family="categorical").fit(counts, y)


@pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, bool])
def test_repeated_entries_of_a_narrow_matrix_are_added_up(
    simulated: tuple[sparse.csr_array, np.ndarray], dtype: type
) -> None:
    counts, y = simulated
    counts = counts * 50
    entries = counts.tocoo()
    once = (np.repeat(entries.row, entries.data), np.repeat(entries.col, entries.data))
    narrow = sparse.coo_array((np.ones(len(once[0]), dtype), once), shape=counts.shape)
    expected = SLDARegressor(n_topics=K, max_iter=3).fit(counts, y)
    estimator = SLDARegressor(n_topics=K, max_iter=3).fit(narrow, y)
    assert_array_equal(estimator.topic_word_, expected.topic_word_)
    assert_array_equal(estimator.predict(narrow), expected.predict(counts))
    assert_array_equal(estimator.transform(narrow), expected.transform(counts))
    with pytest.raises(InputError, match="X must hold counts, got a masked value"):
        estimator.predict(np.ma.masked_equal(counts.toarray(), 0))


def test_the_start_follows_random_state(simulated: tuple[sparse.csr_array, np.ndarray]) -> None:
    counts, y = simulated

    def start(**settings: Any) -> np.ndarray:
        return SLDARegressor(n_topics=K, max_iter=1, **settings).fit(counts, y).topic_word_

    with pytest.warns(ConvergenceWarning):
        expected = train(counts, response=y, n_topics=K, max_iter=1, seed=5).topic_word
    same: list[Any] = [5, np.int64(5)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for value in same:
            assert_array_equal(start(random_state=value), expected)
        for make in (np.random.RandomState, np.random.default_rng):
            assert_array_equal(start(random_state=make(1)), start(random_state=make(1)))
            drawn = make(1)
            assert not np.array_equal(start(random_state=drawn), start(random_state=drawn))
        np.random.seed(3)  # noqa: NPY002
        first = start(random_state=None)
        np.random.seed(3)  # noqa: NPY002
        assert_array_equal(start(random_state=None), first)
        assert not np.array_equal(start(random_state=None), first)
        with pytest.warns(FutureWarning, match="write random_state=5"):
            assert_array_equal(start(seed=5), expected)
        copied = clone(SLDARegressor(seed=5, random_state=np.random.default_rng(2)))
        assert copied.get_params()["seed"] == 5
    for value in (-1, 1.5, "a", True):
        with refused("random_state"):
            start(random_state=value)


def test_a_regressor_predicts_intervals_too() -> None:
    block = simulate_corpus(600, K, V, mean_tokens=40, seed=5).block
    counts, y = (
        sparse.csr_array((block.counts, block.terms, block.indptr), shape=(600, V)),
        block.responses["y"],
    )
    estimator = SLDARegressor(n_topics=2).fit(counts, y)
    predicted, ends = estimator.predict(counts, interval=0.8)
    assert predicted.tobytes() == estimator.predict(counts).tobytes()
    assert ends.tobytes() == estimator.model_.predict(counts, interval=0.8)[1].tobytes()
    # the model has learned from these documents
    assert 0.75 <= np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])) <= 0.95


def test_a_regressor_has_a_coefficient_a_topic_and_no_intercept(
    simulated: tuple[sparse.csr_array, np.ndarray],
) -> None:
    counts, y = simulated
    fitted = SLDARegressor(n_topics=K, tol=1e-2).fit(counts, y)
    assert fitted.coef_.shape == (K,)
    shares = fitted.model_.contributions(counts, relative=False)
    parts = np.column_stack([shares[f"topic_{k}"].to_numpy() for k in range(K)])
    assert_allclose(fitted.predict(counts), parts.sum(axis=1) + fitted.intercept_)
    stars = np.digitize(y, np.quantile(y, [0.3, 0.6])) ** 2
    by_level = SLDARegressor(n_topics=K, family="ordinal", levels=[0, 1, 4], tol=1e-2).fit(counts, stars)
    assert by_level.score(counts, stars) == pytest.approx(by_level.model_.score(counts, stars))
    assert by_level.model_.classes == ("0", "1", "4")
