"""Ordered levels: where their order comes from, their names in every answer, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dslda.corpus.store import Corpus, open_corpus
from dslda.exceptions import DataWarning, InputError
from dslda.ingestion.ingest import ingest
from dslda.model import Model, load_model
from dslda.report.model_notes import notes
from dslda.training.train import train
from tests.helpers.errors import refused

D = 300
LEVELS = ["low", "medium", "high"]
TERMS = ["bad", "dull", "fine", "good", "great", "the"]
SETTINGS: dict[str, Any] = {"family": "ordinal", "n_topics": 3, "tol": 1e-3}
FEW: dict[str, Any] = SETTINGS | {"max_iter": 8}
"""For fits that are only compared with each other."""
ALL_WORDS: dict[str, Any] = {"min_df": 1, "max_df": 1.0}


@pytest.fixture(scope="module")
def counts() -> sparse.csr_array:
    rng = np.random.default_rng(3)
    raised = rng.random((D, 1))
    rates = 3.0 * (raised * [0.1, 0.3, 1.0, 1.5, 2.0, 1.0] + (1 - raised) * [2.0, 1.5, 1.0, 0.3, 0.1, 1.0])
    return sparse.csr_array(rng.poisson(rates))


@pytest.fixture(scope="module")
def ranks(counts: sparse.csr_array) -> np.ndarray:
    tone = counts.toarray() @ [-2.0, -1.0, 0.0, 1.0, 2.0, 0.0]
    return np.digitize(tone + np.random.default_rng(4).normal(0.0, 3.0, D), [-6.0, 3.0])


@pytest.fixture(scope="module")
def grades(ranks: np.ndarray) -> np.ndarray:
    return np.array(LEVELS)[ranks]


@pytest.fixture(scope="module")
def frame(counts: sparse.csr_array, grades: np.ndarray) -> pd.DataFrame:
    texts = [" ".join(np.repeat(TERMS, row)) for row in counts.toarray()]
    return pd.DataFrame({"text": texts, "grade": pd.Categorical(grades, LEVELS, ordered=True)})


ROUNDING = 1e-6
"""Relative difference of fits to the same levels as other numbers: hundreds of steps make more of the last digit."""


@pytest.fixture(scope="module")
def corpus(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("levels") / "grades.corpus"
    return ingest(frame, path, text="text", response="grade", **ALL_WORDS)


@pytest.fixture(scope="module")
def model(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("levels") / "grades.model"
    return load_model(train(corpus, **SETTINGS).save(path))


@pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")
def test_every_source_of_the_order_gives_the_same_model(
    counts: sparse.csr_array, ranks: np.ndarray, grades: np.ndarray
) -> None:
    numbers = train(counts, response=ranks, **FEW)
    categories = pd.Series(pd.Categorical(grades, LEVELS, ordered=True))
    for response, levels in (
        (grades, LEVELS),
        (list(grades), tuple(LEVELS)),
        (pd.Categorical(grades), LEVELS),
        (categories, None),
        (categories.array, None),
    ):
        named = train(counts, response=response, levels=levels, **FEW)
        assert named.classes == tuple(LEVELS)
        assert_allclose(named.predict_proba(counts), numbers.predict_proba(counts), rtol=ROUNDING)
        assert named.score(counts, response) == np.mean(named.predict(counts) == grades)
    # the user's order goes before that of the categories
    turned = train(counts, response=categories, levels=LEVELS[::-1], **FEW)
    assert turned.classes == ("high", "medium", "low")


@pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")
def test_levels_of_numbers_are_numbers(counts: sparse.csr_array, ranks: np.ndarray) -> None:
    stars = ranks + 1.0
    whole = train(counts, response=stars, **FEW)
    assert whole.classes == ("1", "2", "3")
    assert whole.record.classes is None
    for response, levels in (
        (stars, [1, 2, 3]),
        (stars, ["1", "2.0", "3"]),
        (stars.astype(int).astype(str), [1, 2, 3]),
        (pd.Categorical(stars.astype(int), [1, 2, 3], ordered=True), None),
        (pd.Categorical(stars.astype(int).astype(str), ["1", "2", "3"], ordered=True), None),
    ):
        listed = train(counts, response=response, levels=levels, **FEW)
        assert listed.classes == ("1", "2", "3")
        assert_allclose(listed.predict(counts), whole.predict(counts), rtol=ROUNDING)
        assert listed.score(counts, stars) == pytest.approx(whole.score(counts, stars))
        if listed.record.classes is not None:
            assert listed.score(counts, stars.astype(int).astype(str)) == listed.score(counts, stars)
    apart = train(counts, response=4.0**ranks, levels=[1, 4, 16], **FEW)
    assert_allclose(apart.predict_proba(counts), whole.predict_proba(counts), rtol=ROUNDING)
    assert_allclose(apart.predict(counts), apart.predict_proba(counts) @ [1.0, 4.0, 16.0])
    assert 0.3 < apart.score(counts, 4.0**ranks) < 1.0


def test_names_are_in_every_answer(model: Model, corpus: Corpus, grades: np.ndarray) -> None:
    assert model.classes == tuple(LEVELS)
    assert list(model.thresholds or ()) == ["low|medium", "medium|high"]
    table = model.score_table(["great great good good", "bad bad bad dull", "xyzzy"])
    assert table["prediction"].to_pylist()[:2] == ["high", "low"]
    assert [name for name in table.column_names if name.startswith("probability_")] == [
        f"probability_{level}" for level in LEVELS
    ]
    shares = [np.mean(grades == level) for level in LEVELS]
    assert_allclose([table[f"probability_{level}"][2].as_py() for level in LEVELS], shares)
    assert table["prediction"][2].as_py() == LEVELS[int(np.argmax(shares))]
    assert model.score(corpus) == np.mean(model.predict(corpus) == grades)
    topics = model.topics()
    assert [topic.class_name for topic in topics][0::2] == ["low", "high"]
    assert [*model.topic_table().columns[:2]] == ["topic", "level"]
    assert [*model.coefficient_table()] == ["topic", "coefficient", "conditional_error"]
    text = " ".join(notes(model))
    assert "low|medium 0, medium|high" in text
    assert "mean of grade" not in text


def test_a_threshold_is_where_the_odds_are_even(model: Model) -> None:
    delta = model.record.parameters.delta
    for below, cutpoint in enumerate((model.thresholds or {}).values()):
        chances = model.family.probabilities(np.array([cutpoint]), np.zeros(1), delta)
        assert chances is not None
        assert chances[0, : below + 1].sum() == pytest.approx(0.5)


def _frame(frame: pd.DataFrame, folder: Path) -> Any:
    return frame


def _table(frame: pd.DataFrame, folder: Path) -> Any:
    return pa.Table.from_pandas(frame)


def _parquet(frame: pd.DataFrame, folder: Path) -> Any:
    frame.to_parquet(folder / "grades.parquet", row_group_size=70)
    return folder / "grades.parquet"


def _dask(frame: pd.DataFrame, folder: Path) -> Any:
    import dask.dataframe

    return dask.dataframe.from_pandas(frame, npartitions=3)


@pytest.mark.parametrize("form", [_frame, _table, _parquet, _dask])
def test_ordered_categories_are_ingested_with_their_order(
    form: Callable[[pd.DataFrame, Path], Any], frame: pd.DataFrame, model: Model, tmp_path: Path
) -> None:
    unused = frame.assign(grade=frame["grade"].cat.add_categories(["superb"]))
    found = ingest(form(unused, tmp_path), tmp_path / "c.corpus", text="text", response="grade", **ALL_WORDS)
    assert found.levels == {"grade": ("high", "low", "medium")}
    assert open_corpus(tmp_path / "c.corpus").orders == {"grade": (*LEVELS, "superb")}
    with pytest.warns(DataWarning, match=r"1 level of no document trained on \('superb'\) is left out"):
        again = train(found, **SETTINGS)
    assert again.classes == tuple(LEVELS)
    assert_array_equal(again.record.parameters.eta, model.record.parameters.eta)
    ingest(frame, tmp_path / "c.corpus", text="text", response="grade", append=True)
    assert open_corpus(tmp_path / "c.corpus").orders == {"grade": (*LEVELS, "superb")}


def test_ordered_numbers_stay_numbers(frame: pd.DataFrame, ranks: np.ndarray) -> None:
    for categories, order in (
        ([0, 1, 2], {}),
        (["0", "1", "2"], {}),
        ([2, 1, 0], {"grade": ("2", "1", "0")}),
    ):
        values = ranks.astype(type(categories[0]))
        stars = frame.assign(grade=pd.Categorical(values, categories, ordered=True))
        corpus = ingest(stars, text="text", response="grade", **ALL_WORDS)
        assert corpus.levels == {}
        assert corpus.orders == order
    assert train(corpus, **SETTINGS).classes == ("2", "1", "0")


def test_an_order_that_lacks_levels_is_not_kept(frame: pd.DataFrame, tmp_path: Path) -> None:
    for name, categories in (("a", ["low", "high"]), ("b", LEVELS)):
        chosen = frame[frame["grade"].isin(categories)]
        column = pd.Categorical(chosen["grade"].astype(str), categories, ordered=True)
        pq.write_table(pa.Table.from_pandas(chosen.assign(grade=column)), tmp_path / f"{name}.parquet")
    with pytest.warns(DataWarning, match=r"'grade' has levels .*\('medium'\): the order is not kept"):
        corpus = ingest(tmp_path, text="text", response="grade", **ALL_WORDS)
    assert corpus.orders == {}


def test_a_value_that_is_no_level_is_refused_with_its_document(
    counts: sparse.csr_array, ranks: np.ndarray, grades: np.ndarray, corpus: Corpus, frame: pd.DataFrame
) -> None:
    first = int(np.argmax(grades == "medium"))
    with pytest.raises(InputError) as error:
        train(counts, response=grades, levels=["low", "high"], **SETTINGS)
    assert error.value.place == f"document {first} (counted from 0)"
    assert "('low', 'high'), got 'medium'" in error.value.reason
    with pytest.raises(InputError, match="response 'grade' must be one of the levels given"):
        train(corpus, levels=["low", "high"], **SETTINGS)
    with pytest.raises(InputError, match="got '2'"):
        train(counts, response=ranks, levels=[0, 1], **SETTINGS)
    with pytest.raises(InputError, match="hundreds of different numbers"):
        train(counts, response=np.r_[0, np.linspace(0.1, 2.9, D - 2), 3], levels=[0, 3], **SETTINGS)
    frame = frame.assign(name=[f"d{i}" for i in range(D)])
    named = ingest(frame, text="text", response="grade", id="name", **ALL_WORDS)
    with pytest.raises(InputError) as error:
        train(named, levels=["low", "high"], **SETTINGS)
    assert error.value.place == f"document 'd{first}'"


@pytest.mark.parametrize(
    "levels", ["low", ["low"], [], ["low", "low"], [1, "1.0"], ["low", None], {"low", "high"}, 3, ["low", []]]
)
def test_levels_that_are_no_order_are_refused(
    counts: sparse.csr_array, grades: np.ndarray, levels: Any
) -> None:
    with pytest.raises(InputError):
        train(counts, response=grades, levels=levels, **SETTINGS)


def test_names_need_an_order_and_other_families_take_none(
    counts: sparse.csr_array, ranks: np.ndarray, grades: np.ndarray
) -> None:
    with pytest.raises(InputError, match=r"needs the order of the levels.*\{levels=\}|levels="):
        train(counts, response=grades, family="ordinal", n_topics=2)
    for family, response in (("gaussian", ranks), ("categorical", grades), ("binomial", ranks > 0)):
        with refused("levels"):
            train(counts, response=response, family=family, levels=LEVELS, n_topics=2)
    with refused("class_weight"):
        train(counts, response=ranks, class_weight="balanced", **SETTINGS)
    many = [f"level {i}" for i in range(30)]
    with pytest.raises(InputError, match="at most 21 levels, got 30"):
        train(counts, response=np.resize(many, D), levels=many, **SETTINGS)


@pytest.mark.parametrize("absent", ["lowest", "between", "highest"])
def test_a_level_of_no_document_is_left_out(
    counts: sparse.csr_array, grades: np.ndarray, absent: str
) -> None:
    place = {"lowest": 0, "between": 1, "highest": 3}[absent]
    levels = [*LEVELS[:place], absent, *LEVELS[place:]]
    with pytest.warns(DataWarning, match=f"1 level of no document trained on \\('{absent}'\\) is left out"):
        model = train(counts, response=grades, levels=levels, **SETTINGS)
    assert model.classes == tuple(LEVELS)
    without = train(counts, response=grades, levels=LEVELS, **SETTINGS)
    assert_array_equal(model.predict_proba(counts), without.predict_proba(counts))


def test_a_level_whose_documents_weigh_nothing_is_left_out(
    counts: sparse.csr_array, ranks: np.ndarray, grades: np.ndarray
) -> None:
    weight = np.where(ranks == 1, 0.0, 2.0)
    with pytest.warns(DataWarning, match="'medium'"):
        model = train(counts, response=grades, levels=LEVELS, weight=weight, **SETTINGS)
    assert model.classes == ("low", "high")
    share = np.mean(grades[ranks != 1] == "high")
    assert_allclose(model.predict_proba(counts * 0)[0], [1 - share, share])


def test_the_base_rate_of_levels_counts_the_weights_of_documents(
    counts: sparse.csr_array, ranks: np.ndarray
) -> None:
    weight = np.where(ranks == 2, 3.0, 1.0)
    model = train(counts, response=ranks + 1.0, weight=weight, **SETTINGS)
    shares = np.bincount(ranks, weight) / weight.sum()
    assert_allclose(model.predict_proba(counts * 0)[0], shares)
    assert_allclose(model.predict(counts * 0)[0], shares @ [1.0, 2.0, 3.0])


def test_covariates_move_the_base_rate_of_levels(counts: sparse.csr_array, ranks: np.ndarray) -> None:
    x = ranks + np.random.default_rng(0).normal(0.0, 1.0, D)
    model = train(counts, response=ranks, covariates={"x": x}, **SETTINGS)
    few, average, many = model.predict_proba(counts[:3] * 0, covariates={"x": [-3.0, x.mean(), 5.0]})
    assert_allclose(average, np.bincount(ranks) / D)
    assert few[0] > average[0] > many[0]
    assert few[2] < average[2] < many[2]


def test_a_model_of_before_has_the_base_rate_of_before(
    counts: sparse.csr_array, ranks: np.ndarray, tmp_path: Path
) -> None:
    model = train(counts, response=ranks + 1.0, terms=TERMS, **SETTINGS)
    base = model.record.base
    assert base is not None
    assert len(base) == 2
    old = Model(replace(model.record, base=base[:1]))
    loaded = load_model(old.save(tmp_path / "old.model"))
    assert loaded.classes == ("1", "2", "3")
    assert_array_equal(loaded.predict_proba(counts), model.predict_proba(counts))
    assert_allclose(loaded.predict_proba(counts * 0).sum(axis=1), 1.0)


@pytest.mark.filterwarnings("ignore:.*have nearly the words")
def test_documents_kept_from_training_are_judged_by_names(corpus: Corpus, caplog: Any) -> None:
    caplog.set_level("INFO")
    model = train(corpus, hold_out=0.3, **SETTINGS)
    held_out = model.training.held_out
    assert held_out is not None
    assert held_out.measure == "accuracy"
    assert held_out.n_documents == 90
    reference = model.record.reference
    assert reference is not None
    assert reference.classes == tuple(LEVELS)
    numbers = train(
        ingest(
            pd.DataFrame({"text": ["good", "bad"] * 20, "y": [1.0, 2.0, 3.0, 1.0] * 10}),
            text="text",
            response="y",
            **ALL_WORDS,
        ),
        hold_out=0.3,
        levels=[1, 2, 3],
        doc_topic_prior="1/K",
        **SETTINGS,
    )
    assert numbers.training.held_out is not None
    assert numbers.training.held_out.measure == "predictive_r2"


def test_another_order_is_another_fit(corpus: Corpus, tmp_path: Path) -> None:
    settings = SETTINGS | {"checkpoint": tmp_path / "fit.checkpoint"}
    model = train(corpus, levels=LEVELS, **settings)
    with refused("checkpoint"):
        train(corpus, levels=LEVELS[::-1], resume=True, **settings)
    again = train(corpus, resume=True, **settings)
    assert_array_equal(again.record.parameters.eta, model.record.parameters.eta)


@pytest.mark.parametrize("family", ["gaussian", "ordinal", "poisson"])
def test_the_r2_of_one_response_is_not_defined(
    counts: sparse.csr_array, ranks: np.ndarray, family: str
) -> None:
    model = train(counts, response=ranks, family=family, n_topics=2, tol=1e-2)
    rows = counts[:9]
    error = float(np.sqrt(np.mean((model.predict(rows) - 1.0) ** 2)))
    with pytest.warns(DataWarning, match=f"is not defined.*9 documents is 1 in all.* is {error:.4g}"):
        assert math.isnan(model.score(rows, np.ones(9)))
    with refused("y"):
        model.score(rows, np.full(9, np.nan))
