"""The classifier in scikit-learn's hands, with names for classes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from dslda.estimators import SLDAClassifier
from dslda.exceptions import DataWarning, InputError
from dslda.model import load_model
from dslda.training.train import train

# each class has words of its own
pytestmark = pytest.mark.filterwarnings("ignore:.*all but perfectly:dslda.exceptions.DataWarning")

WORDS = {
    "sport": "match goal team score",
    "politics": "vote party law debate",
    "arts": "film stage music scene",
}


def articles(n: int = 90, classes: tuple[str, ...] = tuple(WORDS)) -> tuple[list[str], np.ndarray]:
    generator = np.random.default_rng(0)
    names = np.array([classes[i % len(classes)] for i in range(n)])
    return [" ".join([*generator.choice(WORDS[name].split(), 5), "the", "news"]) for name in names], names


@pytest.fixture(scope="module")
def counted() -> tuple[pd.DataFrame, np.ndarray]:
    texts, names = articles()
    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(texts).toarray()
    return pd.DataFrame(counts, columns=vectorizer.get_feature_names_out()), names


def test_it_works_in_a_pipeline_searches_a_clone_and_a_pickle() -> None:
    texts, names = articles()
    pipeline = make_pipeline(CountVectorizer(), SLDAClassifier(n_topics=3, tol=1e-3))
    assert cross_val_score(pipeline, texts, names, cv=3).min() > 0.8
    search = GridSearchCV(
        pipeline, {"sldaclassifier__n_topics": [2, 3]}, cv=2, scoring="neg_log_loss", error_score="raise"
    ).fit(texts, names)
    assert list(search.predict(["goal team match", "law vote party"])) == ["sport", "politics"]
    fitted = search.best_estimator_
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(texts), fitted.predict_proba(texts))
    assert_array_equal(clone(fitted).fit(texts, names).predict_proba(texts), fitted.predict_proba(texts))
    assert fitted.transform(texts).shape == (90, search.best_params_["sldaclassifier__n_topics"])


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["sport", "politics", "arts"], ("arts", "politics", "sport")),
        ([2, 1, 5], ("1", "2", "5")),
        (["sport", "politics"], ("politics", "sport")),
        ([False, True], ("False", "True")),
        ([-1, 1], ("-1", "1")),
    ],
    ids=["names", "numbers", "two names", "booleans", "plus and minus"],
)
def test_names_of_classes_outlive_save_and_load(
    counted: tuple[pd.DataFrame, np.ndarray], tmp_path: Path, labels: list[Any], names: tuple[str, ...]
) -> None:
    counts, _ = counted
    y = np.array([labels[i % len(labels)] for i in range(len(counts))])
    estimator = SLDAClassifier(n_topics=3, tol=1e-3).fit(counts, y)
    assert_array_equal(estimator.classes_, np.unique(labels))
    assert set(estimator.predict(counts)) <= set(labels)
    assert estimator.coef_.shape == (1 if len(labels) == 2 else 3, 3)
    loaded = load_model(estimator.model_.save(tmp_path / "news.model"))
    assert loaded.classes == names
    matrix = counts.to_numpy()
    assert_array_equal(loaded.predict_proba(matrix), estimator.predict_proba(counts))
    assert loaded.score(matrix, [str(label) for label in y]) == estimator.model_.score(
        matrix, [str(v) for v in y]
    )
    if y.dtype.kind == "i":
        assert loaded.score(matrix, y) == loaded.score(matrix, [str(label) for label in y])


@pytest.mark.parametrize("labels", [[1, 2, 5], [-1, 1], [False, True]])
def test_labels_are_scored_by_name_whatever_the_type(
    counted: tuple[pd.DataFrame, np.ndarray], labels: list[Any]
) -> None:
    counts, names = counted
    y = np.array([labels[sorted(set(names)).index(name) % len(labels)] for name in names])
    estimator = SLDAClassifier(n_topics=3, tol=1e-2).fit(counts, y)
    right = estimator.score(counts, y)
    matrix = counts.to_numpy()
    expected = estimator.model_.score(matrix, y.astype(str))
    proportions = estimator.model_.training_topic_proportions(matrix, y.astype(str))
    for same in (y, y.astype(str), y.astype(float), y.astype(int), y.astype(object)):
        assert estimator.score(counts, same) == right > 0.6
        assert estimator.model_.score(matrix, same) == expected > 0.0
        assert_array_equal(estimator.model_.training_topic_proportions(matrix, same), proportions)
    other = np.where(np.arange(len(y)) < 9, "other", y.astype(str))
    assert estimator.score(counts, other) == pytest.approx(
        np.mean(estimator.predict(counts)[9:] == y[9:]) * (1 - 9 / len(y))
    )


def test_it_is_train_in_other_clothes(counted: tuple[pd.DataFrame, np.ndarray]) -> None:
    counts, names = counted
    estimator = SLDAClassifier(n_topics=3, tol=1e-3).fit(counts, names)
    model = train(counts.to_numpy(), response=names, family="categorical", n_topics=3, tol=1e-3)
    assert_array_equal(estimator.predict_proba(counts), model.predict_proba(counts.to_numpy()))
    assert_array_equal(estimator.predict(counts), model.predict(counts.to_numpy()).astype(str))
    assert estimator.score(counts, names) == model.score(counts.to_numpy(), names)
    assert_array_equal(estimator.coef_, model.class_coefficients().T)
    assert estimator.feature_names_in_.tolist() == list(counts.columns)
    assert estimator.model_.topics(top=1)[0].words[0] in counts.columns
    assert estimator.get_feature_names_out().tolist() == [
        "sldaclassifier0",
        "sldaclassifier1",
        "sldaclassifier2",
    ]


@pytest.mark.filterwarnings("ignore:.*only:dslda.exceptions.DataWarning")
def test_weights_of_classes_go_by_the_users_labels(counted: tuple[pd.DataFrame, np.ndarray]) -> None:
    counts, names = counted
    y = np.where(names == "sport", 7, 3)
    y[:12] = 3
    even, heavy = (
        SLDAClassifier(n_topics=2, tol=1e-2, class_weight=weight).fit(counts, y)
        for weight in (None, {7: 20.0})
    )
    unknown = counts * 0
    share = np.mean(y == 7)
    assert_allclose(even.predict_proba(unknown)[:, 1], share)
    assert_allclose(heavy.predict_proba(unknown)[:, 1], 20 * share / (20 * share + 1 - share))
    for label in ("7", 7.0, "7.0"):
        by_name = SLDAClassifier(n_topics=2, tol=1e-2, class_weight={label: 20.0}).fit(counts, y)
        assert_array_equal(by_name.predict_proba(counts), heavy.predict_proba(counts))
    balanced = SLDAClassifier(n_topics=2, tol=1e-2, class_weight="balanced").fit(counts, y)
    assert_allclose(balanced.predict_proba(unknown), 0.5)
    for weight, message in (
        ({"8": 2}, "class_weight must name classes of the response, got '8'; they are '3', '7'"),
        ({7: -1}, "class_weight of '7' must be a number of at least 0, got -1"),
        ("even", "class_weight must be 'balanced' or a mapping"),
    ):
        with pytest.raises(InputError, match=message):
            SLDAClassifier(n_topics=2, class_weight=weight).fit(counts, y)


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        (
            {},
            pd.array(["a", "b", pd.NA] * 30, dtype="string"),
            "a class for each document, got <NA> in row 2; leave",
        ),
        ({}, ["a", None] * 45, "y must have a class for each document, got None in row 1; leave"),
        ({}, ["a", "\ud800", "?"] * 30, "classes whose names differ as UTF-8"),
        ({}, ["a"] * 90, "y must have at least 2 classes, got 1 class, 'a'"),
        (
            {"family": "poisson"},
            None,
            "family must be 'auto', 'binomial', 'categorical' or 'ordinal', got 'poisson'",
        ),
        ({"family": "binomial"}, None, "Only binary classification is supported by family 'binomial', got 3"),
        ({"n_topics": 0}, None, "n_topics must be a whole number"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    counted: tuple[pd.DataFrame, np.ndarray], settings: dict[str, Any], y: Any, message: str
) -> None:
    counts, names = counted
    with pytest.raises(InputError, match=message):
        SLDAClassifier(**settings).fit(counts, names if y is None else y)


def test_texts_are_sent_to_a_count_vectorizer() -> None:
    texts, names = articles(12)
    with pytest.raises(InputError, match=r"make_pipeline\(CountVectorizer\(\), SLDAClassifier\(\)\)"):
        SLDAClassifier().fit(texts, names)


def test_two_classes_may_be_taken_as_unordered_too(counted: tuple[pd.DataFrame, np.ndarray]) -> None:
    counts, names = counted
    y = np.where(names == "arts", "arts", "other")
    settings = {"n_topics": 3, "tol": 1e-3}
    both = [SLDAClassifier(family=f, **settings).fit(counts, y) for f in ("binomial", "categorical")]
    assert [e.coef_.shape for e in both] == [(1, 3), (2, 3)]
    assert min(e.score(counts, y) for e in both) > 0.9


def test_a_class_of_one_article_is_warned_of(counted: tuple[pd.DataFrame, np.ndarray]) -> None:
    counts, names = counted
    y = names.astype(object)
    y[4] = "weather"
    with pytest.warns(DataWarning, match="'weather'"):
        SLDAClassifier(n_topics=3, tol=1e-2).fit(counts, y)


def test_levels_are_classes_with_an_order(counted: tuple[pd.DataFrame, np.ndarray]) -> None:
    counts, names = counted
    order = ["sport", "arts", "politics"]
    fitted = SLDAClassifier(n_topics=3, family="ordinal", levels=order, tol=1e-2).fit(counts, names)
    assert fitted.classes_.tolist() == sorted(order)
    assert fitted.levels_.tolist() == order
    assert fitted.model_.classes == tuple(order)
    chances = fitted.predict_proba(counts)
    for c, name in enumerate(fitted.classes_.tolist()):
        assert_array_equal(chances[:, c], fitted.model_.predict_proba(counts)[:, order.index(name)])
    assert_array_equal(fitted.predict(counts), fitted.model_.predict(counts))
    assert fitted.score(counts, names) == fitted.model_.score(counts, names) > 0.7
    assert_array_equal(fitted.decision_function(counts).argmax(axis=1), chances.argmax(axis=1))
    assert fitted.coef_.shape == (1, 3)
    assert_allclose(-fitted.intercept_, list((fitted.model_.thresholds or {}).values()))
    categories = pd.Series(pd.Categorical(names, order, ordered=True))
    by_itself = SLDAClassifier(n_topics=3, family="ordinal", tol=1e-2).fit(counts, categories)
    assert_array_equal(by_itself.predict_proba(counts), chances)
    with pytest.raises(InputError, match="levels must list the classes of y from the lowest to the highest"):
        SLDAClassifier(family="ordinal").fit(counts, names)
    with pytest.raises(InputError, match=r"y must be one of the levels .*, got 'arts' in row"):
        SLDAClassifier(family="ordinal", levels=["sport", "politics"]).fit(counts, names)
    with pytest.raises(InputError, match="levels must be left out for family categorical"):
        SLDAClassifier(levels=order).fit(counts, names)


def test_levels_of_numbers_keep_their_numbers(counted: tuple[pd.DataFrame, np.ndarray]) -> None:
    counts, names = counted
    stars = np.select([names == "sport", names == "arts"], [1, 3], 9)
    fitted = SLDAClassifier(n_topics=3, family="ordinal", tol=1e-2).fit(counts, stars)
    assert fitted.levels_.tolist() == fitted.classes_.tolist() == [1, 3, 9]
    assert_allclose(fitted.model_.predict(counts), fitted.predict_proba(counts) @ [1.0, 3.0, 9.0])
    turned = SLDAClassifier(n_topics=3, family="ordinal", levels=[9, 3, 1], tol=1e-2).fit(counts, stars)
    assert turned.levels_.tolist() == [9, 3, 1]
    assert turned.score(counts, stars) == turned.score(counts, stars.astype(str)) > 0.7
    assert 0.3 < turned.model_.score(counts, stars) < 1.0
    # all documents of a level may weigh nothing: the level has no probability then
    with pytest.warns(DataWarning, match=r"'3'\) is left out"):
        without = SLDAClassifier(n_topics=3, family="ordinal", tol=1e-2).fit(
            counts, stars, sample_weight=stars != 3
        )
    assert_array_equal(without.predict_proba(counts)[:, 1], 0.0)
    assert_allclose(without.predict_proba(counts).sum(axis=1), 1.0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scikit_learns_tools_find_what_they_look_for(
    counted: tuple[pd.DataFrame, np.ndarray], n_classes: int
) -> None:
    counts, names = counted
    y = names if n_classes == 3 else names == "sport"
    estimator = SLDAClassifier(n_topics=3, tol=1e-2)
    fitted = clone(estimator).fit(counts, y)
    odds, chances = fitted.decision_function(counts), fitted.predict_proba(counts)
    assert_allclose(np.exp(fitted.predict_log_proba(counts)), chances)
    if n_classes == 2:
        assert fitted.coef_.shape == (1, 3)
        assert fitted.intercept_.shape == (1,)
        assert_allclose(1 / (1 + np.exp(-odds)), chances[:, 1])
    else:
        assert fitted.coef_.shape == (3, 3)
        assert fitted.intercept_.shape == (3,)
        assert_allclose(np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True), chances)
    for method in ("sigmoid", "isotonic"):
        calibrated = CalibratedClassifierCV(estimator, method=method, cv=2).fit(counts, y)
        assert calibrated.score(counts, y) > 0.7
    frozen = CalibratedClassifierCV(FrozenEstimator(fitted)).fit(counts, y)
    assert_array_equal(frozen.classes_, fitted.classes_)
    importance = permutation_importance(
        fitted, counts, y, scoring="neg_log_loss", n_repeats=2, random_state=0
    )
    assert importance.importances_mean.shape == (counts.shape[1],)
    assert importance.importances_mean.max() > 0.0
