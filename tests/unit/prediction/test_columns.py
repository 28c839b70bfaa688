"""Covariates of documents to predict, in every form they come in: the right answer, or one clear error."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal

from dslda.cluster.opening import ClusterOptions, cluster
from dslda.corpus.store import Corpus
from dslda.exceptions import DataWarning, InputError
from dslda.ingestion.ingest import ingest
from dslda.model import Model, load_model
from dslda.prediction.file_predictions import predict_files
from dslda.training.train import train
from tests.helpers.errors import refused
from tests.helpers.files import write_records

N = 120
GOOD, BAD = "good fine lovely", "bad poor awful"


def records(n: int = N, seed: int = 0) -> list[dict[str, Any]]:
    """Bills: their texts, their sponsors' age and party, and how often they were read in how many days."""
    generator = np.random.default_rng(seed)
    found = []
    for i in range(n):
        words = generator.choice((GOOD if i % 2 else BAD).split(), 6)
        age, days, party = int(generator.integers(30, 70)), int(generator.integers(1, 9)), "DIR"[i % 3]
        rate = np.exp(1.0 * (i % 2) + 0.02 * (age - 50) + 0.5 * (party == "R"))
        reads = int(generator.poisson(days * rate))
        found.append(
            {
                "text": " ".join(words),
                "age": age,
                "party": party,
                "days": days,
                "reads": reads,
                "key": f"b{i}",
            }
        )
    return found


def write_jsonl(path: Path, given: list[dict[str, Any]]) -> Path:
    write_records(path, given)
    return path


READING: dict[str, Any] = {
    "text": "text",
    "id": "key",
    "response": "reads",
    "covariates": ["age", "party", "days"],
    "min_df": 1,
    "max_df": 1.0,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("bills")
    path = write_jsonl(folder / "bills.jsonl", records())
    return ingest(path, folder / "bills.corpus", categorical="party", partition_tokens=150, **READING)


SETTINGS: dict[str, Any] = {
    "family": "poisson",
    "covariates": ["age", "party"],
    "exposure": "days",
    "n_topics": 2,
    "tol": 1e-4,
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(options=ClusterOptions(workers=1, threads=2)) as started:
        yield started


@pytest.fixture(scope="module")
def model(corpus: Corpus, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Saved and loaded."""
    trained = train(corpus, client=client, **SETTINGS)
    return load_model(trained.save(tmp_path_factory.mktemp("bills") / "reads.model"))


def test_what_was_put_in_is_found(model: Model) -> None:
    coefficients = {c.level or c.covariate: c.coefficient for c in model.covariate_coefficients()}
    assert list(coefficients) == ["age", "I", "R"]
    assert coefficients["age"] == pytest.approx(0.02, abs=0.01)
    assert coefficients["R"] == pytest.approx(0.5, abs=0.2)
    assert coefficients["I"] == pytest.approx(0.0, abs=0.2)
    low, high = (c.coefficient for c in model.coefficients())
    assert high - low == pytest.approx(1.0, abs=0.3)


def test_a_bag_with_names_gives_the_bits_of_the_corpus(model: Model, client: Client) -> None:
    import dask.bag

    bag = dask.bag.from_sequence(records(), npartitions=3)
    reading = {"text": "text", "categorical": "party", "min_df": 1, "max_df": 1.0, "partition_tokens": 150}
    other = train(bag, response="reads", client=client, **reading, **SETTINGS)
    assert other.record.levels == model.record.levels == {"party": ("D", "I", "R")}
    for name in ("topics", "eta", "zeta", "delta"):
        one, two = (getattr(m.record.parameters, name).tobytes() for m in (model, other))
        assert one == two
    assert other.record.base.tobytes() == model.record.base.tobytes()
    classes = {"family": "categorical", "covariates": "age", "n_topics": 2, "tol": 1e-2}
    named = train(bag, response="party", client=client, **classes, **reading)
    assert named.classes == ("D", "I", "R")
    assert set(named.predict(records())) <= {"D", "I", "R"}
    with pytest.raises(InputError, match="family categorical, which has one for each class, and no sum"):
        named.contributions(records())
    with refused("covariates"):
        train(bag, response="reads", client=client, covariates={"age": [1]}, **reading)
    with refused("exposure"):
        train(bag, response="reads", client=client, family="poisson", exposure=np.ones(N), **reading)


def test_corpus_records_arrays_and_files_give_the_same_predictions(
    model: Model, corpus: Corpus, tmp_path: Path
) -> None:
    assert corpus.n_partitions > 2
    new = records()
    expected = model.predict(corpus)
    assert_array_equal(model.predict(new), expected)
    arrays = {name: [r[name] for r in new] for name in ("age", "party", "days")}
    assert_array_equal(model.predict([r["text"] for r in new], covariates=arrays), expected)
    jsonl = write_jsonl(tmp_path / "new.jsonl", new)
    assert_array_equal(
        np.concatenate([t["prediction"] for t in predict_files(model.scoring_record, jsonl)]), expected
    )
    with (tmp_path / "new.csv").open("w", newline="") as stream:
        rows = csv.DictWriter(stream, list(new[0]))
        rows.writeheader()
        rows.writerows(new)
    (table,) = predict_files(model.scoring_record, tmp_path / "new.csv")
    assert_array_equal(table["prediction"].to_numpy(), expected)
    assert table["id"].to_pylist() == [r["key"] for r in new]


def test_without_an_exposure_counts_are_those_of_one_unit(
    model: Model, corpus: Corpus, tmp_path: Path
) -> None:
    new = records()
    expected = model.predict(corpus) / [r["days"] for r in new]
    bare = [{k: v for k, v in r.items() if k != "days"} for r in new]
    assert_allclose(model.predict(bare), expected, rtol=1e-12)
    (table,) = predict_files(model.scoring_record, write_jsonl(tmp_path / "new.jsonl", bare))
    assert_allclose(table["prediction"].to_numpy(), expected, rtol=1e-12)


def test_levels_are_matched_by_name(model: Model, tmp_path: Path) -> None:
    """A corpus of other documents numbers its levels anew."""
    few = [r for r in records() if r["party"] in ("D", "R")]
    other = ingest(
        write_jsonl(tmp_path / "few.jsonl", few), tmp_path / "few.corpus", categorical="party", **READING
    )
    assert other.levels["party"] == ("D", "R")
    assert_array_equal(model.predict(other, realign=True), model.predict(few))
    few[40]["party"] = "Green"
    strange = ingest(
        write_jsonl(tmp_path / "strange.jsonl", few),
        tmp_path / "strange.corpus",
        categorical="party",
        partition_tokens=100,
        **READING,
    )
    expected = model.predict(other, realign=True)
    expected[40] = np.nan
    with pytest.warns(DataWarning, match=r"1 of \d+ documents have no prediction \(the first: 'b\d+'\)"):
        assert_array_equal(model.predict(strange, realign=True), expected)
    with pytest.warns(DataWarning, match=r"1 of \d+ documents have no prediction \(the first: 'b60'\)"):
        assert_array_equal(model.predict(few), expected)
    (table,) = predict_files(model.scoring_record, tmp_path / "strange.jsonl")
    assert table["flag"].to_pylist() == ["unknown_level" if i == 40 else "" for i in range(len(few))]
    assert table["prediction"].null_count == 1


def test_numbers_are_not_taken_for_names_nor_names_for_numbers(model: Model, tmp_path: Path) -> None:
    new = records(12)
    reading = {k: v for k, v in READING.items() if k != "id"} | {"vocabulary": model.vocabulary}
    del reading["min_df"], reading["max_df"]
    path = write_jsonl(tmp_path / "new.jsonl", new)
    aged = ingest(path, tmp_path / "aged.corpus", categorical=["party", "age"], **reading)
    with pytest.raises(InputError, match="covariate 'age' must hold numbers, as in training, got names"):
        model.predict(aged)
    numbered = write_jsonl(tmp_path / "numbered.jsonl", [r | {"party": 1} for r in new])
    with pytest.raises(InputError, match="covariate 'party' must hold names, as in training, got numbers"):
        model.predict(ingest(numbered, tmp_path / "numbered.corpus", **reading))


def test_a_corpus_without_the_covariate_says_which(model: Model, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "new.jsonl", records(12))
    bare = ingest(path, tmp_path / "bare.corpus", **READING | {"covariates": ["days"]})
    with pytest.raises(
        InputError, match=r"bare\.corpus must have the covariates of the model, 'age', 'party' are"
    ):
        model.predict(bare, realign=True)
    with refused("covariates"):
        model.predict(bare, realign=True, covariates={"age": np.ones(12)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": "old"}, "covariate 'age' must be a number, got 'old'"),
        ({"party": ["r"]}, r"covariate 'party' must be a name .*got \['r'\]"),
        ({"days": 0}, "exposure 'days' must be a number above 0, got 0"),
        ({"days": -2}, "exposure 'days' must be a number above 0, got -2"),
        ({"days": "two"}, "covariate 'days' must be a number, got 'two'"),
    ],
)
def test_a_value_that_cannot_be_used_is_said_with_its_place(
    model: Model, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    new = records(6)
    new[3] |= change
    with pytest.raises(InputError, match=f"^document 3: {message}"):
        model.predict(new)
    write_jsonl(tmp_path / "new.jsonl", [{k: v for k, v in r.items() if v == v} for r in new])
    with pytest.raises(InputError, match=f"line 4: {message}"):
        list(predict_files(model.scoring_record, tmp_path / "new.jsonl"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, r"covariates must be those of the model \('age', 'party', 'days'\), without 'age', 'party'"),
        ({"age": [50, 50]}, "without 'party'"),
        ({"age": [50, 50], "party": ["D", "R"], "height": [1, 2]}, "got 'height'"),
        ({"age": [50, 50, 50], "party": ["D", "R"]}, "covariate 'age' must have one number for each of 2"),
        (
            {"age": [50, 50], "party": ["D"]},
            "covariate 'party' must have a value for each of 2 documents, got 1",
        ),
        ({"age": [50, 50], "party": "DR"}, "covariate 'party' must be an array of names, got str"),
        (
            {"age": [50, 50], "party": ["D", "R"], "days": [1, 0]},
            "row 1: exposure 'days' must be a number above 0",
        ),
        ([50, 50], "covariates must be a mapping of name to array, got list"),
    ],
)
def test_arrays_of_covariates_are_checked(model: Model, given: Any, message: str) -> None:
    matrix = np.ones((2, model.n_terms))
    with pytest.raises(InputError, match=message):
        model.predict(matrix, covariates=given)
    if given is not None:
        with pytest.raises(InputError, match=message):
            model.predict(["good", "bad"], covariates=given)


def test_texts_alone_are_not_enough(model: Model) -> None:
    with pytest.raises(InputError, match=r"document 0: must be a mapping .*\('age', 'party'\) .* only words"):
        model.predict(["good fine"])


GAPS: list[dict[str, Any]] = [
    {"age": None},
    {"age": float("nan")},
    {"age": ""},
    {"party": None},
    {"party": "Green"},
    {"days": None},
]
FLAGS = ["", "no_covariate", "no_covariate", "no_covariate", "no_covariate", "unknown_level", "no_covariate"]


def test_a_document_that_lacks_a_covariate_has_no_prediction_and_the_others_keep_theirs(
    model: Model, corpus: Corpus, tmp_path: Path
) -> None:
    """One rule for records, arrays, JSON lines, CSV and corpora."""
    whole = records()
    new = [whole[0]] + [r | gap for r, gap in zip(whole[1:], GAPS, strict=False)] + whole[7:]
    flags = FLAGS + [""] * (N - 7)
    expected = np.where([f != "" for f in flags], np.nan, model.predict(whole))
    warned = pytest.warns(
        DataWarning, match=r"6 of 120 documents have no prediction \(the first: 'b?1', 'b?2', 'b?3'\)"
    )
    with warned:
        assert_array_equal(model.predict(new), expected)
    assert model.score_table(new)["flag"].to_pylist() == flags
    arrays = {name: [r[name] or None for r in new] for name in ("age", "party", "days")}
    with warned:
        assert_array_equal(model.predict([r["text"] for r in new], covariates=arrays), expected)
    jsonl = write_jsonl(tmp_path / "new.jsonl", [{k: v for k, v in r.items() if v == v} for r in new])
    (tables,) = predict_files(model.scoring_record, jsonl)
    assert_array_equal(tables["prediction"].to_numpy(), expected)
    with (tmp_path / "new.csv").open("w", newline="") as stream:
        rows = csv.DictWriter(stream, list(new[0]))
        rows.writeheader()
        rows.writerows([{k: v if v == v else None for k, v in r.items()} for r in new])
    (table,) = predict_files(model.scoring_record, tmp_path / "new.csv")
    assert table["flag"].to_pylist() == flags
    assert table["prediction"].to_pylist() == [None if v != v else v for v in expected]
    reading = {k: v for k, v in READING.items() if k not in ("min_df", "max_df")}
    stored = ingest(
        jsonl, tmp_path / "new.corpus", categorical="party", vocabulary=model.vocabulary, **reading
    )
    assert stored.covariate_summaries["age"].missing == 3
    assert model.score_table(stored)["flag"].to_pylist() == flags
    # documents that cannot be judged are left out
    with pytest.warns(DataWarning, match=r"6 of 120 .*\(the first: 'b1', 'b2', 'b3'\)"):
        score = model.score(stored)
    there = [i for i, flag in enumerate(flags) if not flag]
    assert score == model.score([whole[i] for i in there], [whole[i]["reads"] for i in there])


def test_contributions_add_up_to_the_linear_predictor(model: Model, corpus: Corpus) -> None:
    new = [*records(9), {**records(1)[0], "text": "xyzzy"}, {**records(1)[0], "age": None}]
    table = model.contributions(new, relative=False).to_pandas()
    names = ["topic_0", "topic_1", "covariate_age", "covariate_party", "log_exposure"]
    assert list(table) == ["id", "linear_predictor", *names]
    whole = table[:9]
    assert_allclose(whole[names].sum(axis=1), whole["linear_predictor"], rtol=1e-12)
    coefficients = {c.level or c.covariate: c.coefficient for c in model.covariate_coefficients()}
    ages, parties = ([r[name] for r in new[:9]] for name in ("age", "party"))
    assert_allclose(np.diff(whole["covariate_age"]), coefficients["age"] * np.diff(ages))
    assert_allclose(
        np.diff(whole["covariate_party"]), np.diff([coefficients.get(p, 0.0) for p in parties]), atol=1e-12
    )
    assert_allclose(whole["log_exposure"], np.log([r["days"] for r in new[:9]]))
    # the mean of an exponential lies above that of its exponent
    ratio = model.predict(new[:9]) / np.exp(whole["linear_predictor"])
    assert (ratio >= 1.0).all()
    assert (ratio < 1.05).all()
    # no known word: the base rate, of no topic; without a covariate: no sum
    unknown, lacking = table.iloc[9], table.iloc[10]
    assert unknown[["topic_0", "topic_1"]].isna().all()
    assert np.exp(unknown["linear_predictor"]) == pytest.approx(model.predict(new[9:10])[0])
    assert lacking[["linear_predictor", *names[2:]]].isna().all()
    assert lacking[names[:2]].tolist() == whole.loc[0, names[:2]].tolist()
    assert model.contributions(corpus).num_rows == N
    # beside the average document, a topic that raises the prediction has a positive number
    relative = model.contributions(new).to_pandas()
    assert list(relative) == ["id", "linear_predictor", "average", *names]
    assert_allclose(relative[:9][["average", *names]].sum(axis=1), whole["linear_predictor"], rtol=1e-12)
    eta = np.array([c.coefficient for c in sorted(model.coefficients())])
    average = eta @ model.record.prevalence
    assert_allclose(relative["average"], average)
    assert (relative[:9][names[:2]] * np.sign(eta - average) >= 0.0).all(axis=None)
    assert (relative[:9][names[:2]] != 0.0).any(axis=None)
    assert model.contributions([]).schema == model.contributions(corpus).schema


def test_each_file_says_by_itself_whether_it_has_an_exposure(model: Model, tmp_path: Path) -> None:
    """Only the first was asked: an exposure that came later was passed over in silence."""
    whole = records(6)
    bare = [{k: v for k, v in r.items() if k != "days"} for r in whole]
    expected = np.concatenate([model.predict(bare), model.predict(whole)])
    for ending in ("csv", "parquet"):
        for name, rows in (("a", bare), ("b", whole)):
            frame = pandas.DataFrame(rows)
            path = tmp_path / f"{name}.{ending}"
            frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        tables = predict_files(model.scoring_record, str(tmp_path / f"*.{ending}"))
        assert_array_equal(np.concatenate([t["prediction"] for t in tables]), expected)


def test_a_corpus_with_a_covariate_that_is_no_exposure_is_refused(model: Model, tmp_path: Path) -> None:
    new = records(12)
    new[7]["days"] = 0
    reading = {k: v for k, v in READING.items() if k not in ("min_df", "max_df")}
    other = ingest(
        write_jsonl(tmp_path / "new.jsonl", new),
        tmp_path / "zero.corpus",
        categorical="party",
        vocabulary=model.vocabulary,
        **reading,
    )
    with pytest.raises(InputError, match="document 7: exposure 'days' must be a number above 0, got 0"):
        model.predict(other)
    with pytest.raises(InputError, match="exposure 'days' must hold numbers above 0, got 0 in document 'b7'"):
        train(other, family="poisson", exposure="days", n_topics=2)


def test_training_leaves_out_the_response_where_a_covariate_is_missing_and_says_so(
    model: Model, client: Client, tmp_path: Path
) -> None:
    """As if the response were missing; the same bits from a corpus, a bag and with the response taken away."""
    import dask.bag

    gaps = {5: {"age": None}, 8: {"party": None}, 13: {"days": None}, 14: {"age": None, "reads": None}}
    new = [r | gaps.get(i, {}) for i, r in enumerate(records())]
    path = write_jsonl(tmp_path / "new.jsonl", new)
    reading = READING | {"categorical": "party", "partition_tokens": 150}
    corpus = ingest(path, tmp_path / "new.corpus", **reading)
    said = r"3 of 119 documents with response 'reads' lack a covariate \(missing: 'days' in 1, 'age' in 2, 'party' in 1\)"
    with pytest.warns(
        DataWarning, match=said + ".*the first: document 'b5', document 'b8', document 'b13'; "
    ):
        trained = train(corpus, client=client, **SETTINGS)
    assert trained.training.n_documents == N
    assert trained.training.n_labelled == trained.response_summary.n == N - 4
    bag = dask.bag.from_sequence(new, npartitions=3)
    bag_reading = {
        "text": "text",
        "categorical": "party",
        "min_df": 1,
        "max_df": 1.0,
        "partition_tokens": 150,
    }
    with pytest.warns(DataWarning, match=said + r".*document 5 \(counted from 0\)"):
        other = train(bag, response="reads", client=client, **bag_reading, **SETTINGS)
    # where no model sees the column nothing is left out, and what it explained is scatter
    with pytest.warns(DataWarning, match="'reads' scatters"):
        without = train(corpus, client=client, **SETTINGS | {"covariates": (), "exposure": None})
    assert without.training.n_labelled == N - 1
    masked = np.arange(N) > 7
    with pytest.warns(DataWarning, match=r"2 of 111 documents .*the first: document 'b8', document 'b13'"):
        assert train(corpus, client=client, documents=masked, **SETTINGS).training.n_labelled == 109
    for name in ("topics", "eta", "zeta"):
        one, two = (getattr(m.record.parameters, name).tobytes() for m in (trained, other))
        assert one == two
    with pytest.raises(
        InputError, match="response 'reads' is missing in all documents to train on that have 'days', 'age'"
    ):
        train(corpus, client=client, documents=[5, 14], **SETTINGS)


def test_what_fills_a_gap_has_no_effect(client: Client) -> None:
    """The response is left out, so no value of the covariate may count; a document without a weight counts for nothing."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(1.0, (60, 20))
    age, weight = rng.normal(size=60), rng.uniform(0.5, 2.0, 60)
    y = counts[:, 0] + age
    settings: dict[str, Any] = {"n_topics": 2, "doc_topic_prior": "1/K", "tol": 1e-6}
    gap = np.arange(60) == 7
    with pytest.warns(DataWarning, match="1 of 60 documents"):
        one = train(counts, response=y, covariates={"age": np.where(gap, np.nan, age)}, **settings)
    two = train(
        counts, response=np.where(gap, np.nan, y), covariates={"age": np.where(gap, 3.0, age)}, **settings
    )
    new = {"covariates": {"age": age[8:]}}
    assert_allclose(one.predict(counts[8:], **new), two.predict(counts[8:], **new), rtol=1e-3)
    assert one.covariate_coefficients()[0][2] == pytest.approx(two.covariate_coefficients()[0][2], rel=1e-4)
    with pytest.warns(DataWarning, match="1 of 60 documents"):
        one = train(counts, response=y, weight=np.where(gap, np.nan, weight), **settings)
    two = train(counts, response=np.where(gap, np.nan, y), weight=np.where(gap, 0.0, weight), **settings)
    assert_array_equal(one.topic_word, two.topic_word)


def test_levels_and_identifiers_of_whole_numbers_are_known_in_any_type() -> None:
    given = [record | {"party": 1 + i % 3, "key": i} for i, record in enumerate(records(60))]
    fitted = train(ingest(given, categorical="party", **READING), **SETTINGS)
    expected = fitted.predict(given)
    assert np.isfinite(expected).all()
    for kind in (float, str, np.float32, lambda value: f"{value}.0"):
        other = [record | {"party": kind(record["party"]), "key": float(record["key"])} for record in given]
        assert_array_equal(fitted.predict(other), expected)
        texts = [record["text"] for record in given]
        columns = {name: [record[name] for record in other] for name in ("age", "party", "days")}
        assert_array_equal(fitted.predict(texts, covariates=columns), expected)
        ids = [str(i) for i in range(60)]
        assert fitted.score_table(other)["id"].to_pylist() == ids
        table = fitted.score_table(other, ids=[record["key"] for record in other])
        assert table["id"].to_pylist() == ids
    stored = ingest(pandas.DataFrame(given).astype({"party": float}), categorical="party", **READING)
    assert_array_equal(fitted.predict(stored), expected)
