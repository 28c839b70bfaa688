"""Records as they come: prediction and scoring read them by the rules of ingestion."""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

import dslda
from dslda.cli.options import names_in
from dslda.corpus.store import Corpus
from dslda.exceptions import DataWarning, InputError
from dslda.model import Model
from dslda.prediction.file_predictions import predict_files

# fits of few iterations say that they are not done
pytestmark = pytest.mark.filterwarnings("ignore::dslda.exceptions.DsldaWarning")

ROWS: list[dict[str, Any]] = [
    {
        "text": ("good fine" if i % 2 else "dull slow") + " film" * (i % 3),
        "size": 1 + i % 4,
        "y": float(i % 2),
        "id": f"k{i}",
    }
    for i in range(40)
]
FIELDS: dict[str, Any] = {"text": "text", "response": "y", "min_df": 1, "max_df": 1.0}
MISSING = [
    None,
    "",
    " ",
    "nan",
    float("nan"),
    np.float32("nan"),
    Decimal("NaN"),
    pd.NA,
    pd.NaT,
    np.datetime64("NaT"),
    np.ma.masked,
    Decimal("sNaN"),
]
NO_NUMBERS = ["1_000", b"2", "two", [2], {"n": 2}, datetime.date(2020, 1, 1), float("inf"), "1e200"]
NO_NUMBERS += [np.complex64(2 + 1j), np.timedelta64(2, "s"), 1e200]
NUMBERS = [
    ("2", 2),
    (" 2.5 ", 2.5),
    (True, 1),
    (np.bool_(True), 1),
    (np.float16(2), 2),
    (Decimal("2.5"), 2.5),
    (np.int8(3), 3),
    (np.array(2), 2),
]


@contextmanager
def refused_at(place: str | None = None) -> Iterator[None]:
    """Assert that the block raises an `InputError`, at this place if one is named."""
    with pytest.raises(InputError) as error:
        yield
    assert place in (None, error.value.place), str(error.value)


def ingested(inputs: Any = ROWS, **arguments: Any) -> Corpus:
    return dslda.ingest(inputs, **{**FIELDS, **arguments})


@pytest.fixture(scope="module")
def model() -> Model:
    corpus = ingested(covariates="size", id="id")
    return dslda.train(corpus, covariates="size", n_topics=2, max_iter=3)


def identifiers(corpus: Corpus) -> list[str | None]:
    return list(corpus.read(0, doc_id=True).doc_id or ())


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_what_is_missing_for_ingestion_is_missing_for_prediction_and_score(model: Model, value: Any) -> None:
    changed = [ROWS[0] | {"size": value}, *ROWS[1:]]
    assert ingested(changed, covariates="size").covariate_summaries["size"].missing == 1
    table = model.score_table(changed)
    assert table["flag"].to_pylist() == ["no_covariate"] + [""] * 39
    assert model.score([*ROWS, ROWS[0] | {"y": value}]) == model.score(ROWS)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_number_for_ingestion_is_none_for_prediction_and_score(model: Model, value: Any) -> None:
    with refused_at("list, record 0"):
        ingested([ROWS[0] | {"size": value}, *ROWS[1:]], covariates="size")
    with refused_at("document 1"):
        model.predict([ROWS[0], ROWS[1] | {"size": value}])
    with refused_at():
        model.score([ROWS[0], ROWS[1] | {"y": value}])


@pytest.mark.parametrize(("value", "number"), NUMBERS, ids=repr)
def test_numbers_are_the_same_for_ingestion_prediction_and_score(
    model: Model, value: Any, number: float
) -> None:
    rows = [ROWS[0] | {"size": value, "w": value}, *(row | {"w": 1} for row in ROWS[1:])]
    block = ingested(rows, covariates="size", weight="w").read(0, covariates=["size"], weight=True)
    assert block.covariates["size"][0] == block.weight[0] == number
    assert model.predict(rows[:1]) == model.predict([ROWS[0] | {"size": number}])
    assert model.score([ROWS[0] | {"y": value}, *ROWS[1:]]) == model.score(
        [ROWS[0] | {"y": number}, *ROWS[1:]]
    )


def beside(model: Model, value: Any) -> Any:
    """The first prediction with a covariate in an array beside the texts, and the score with a response in one."""
    texts = [row["text"] for row in ROWS]
    sizes: list[Any] = [value, *(row["size"] for row in ROWS[1:])]
    responses: list[Any] = [*(row["y"] for row in ROWS[1:]), value]
    predicted = model.predict(texts, covariates={"size": sizes})[0]
    return predicted, model.score([*ROWS[1:], ROWS[0]], responses)


@pytest.mark.filterwarnings("ignore:1 of 40 documents have no prediction")
@pytest.mark.parametrize(
    ("value", "number"),
    [*NUMBERS, *((value, float("nan")) for value in MISSING if value is not np.ma.masked)],
    ids=repr,
)
def test_arrays_beside_texts_are_read_as_records_are(model: Model, value: Any, number: float) -> None:
    np.testing.assert_array_equal(beside(model, value), beside(model, number))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_number_in_an_array_is_named_itself(model: Model, value: Any) -> None:
    texts = [row["text"] for row in ROWS]
    with pytest.raises(InputError) as error:
        model.score(ROWS, [*(row["y"] for row in ROWS[1:]), value])
    assert "row 39" in str(error.value) or "got lists" in str(error.value)
    with pytest.raises(InputError):
        model.predict(texts, covariates={"size": [*(row["size"] for row in ROWS[1:]), value]})


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.array("k0"), "k0"), (np.ma.masked, "0"),
        (b"k0", "k0"), ({"$oid": "5f"}, "5f"), (True, "true"), (np.bool_(False), "false"), (7, "7"), (2.5, "2.5"),
        (datetime.date(2020, 1, 2), "2020-01-02"), (pd.NA, "0"), (pd.NaT, "0"), ("", "0"), (None, "0"), (float("nan"), "0"),
    ],
    ids=repr,
)  # fmt: skip
def test_identifiers_have_one_name_in_ingestion_and_prediction(model: Model, value: Any, name: str) -> None:
    rows = [ROWS[0] | {"id": value}, *ROWS[1:]]
    assert identifiers(ingested(rows, id="id"))[0] == name
    assert model.score_table(rows)["id"][0].as_py() == name


@pytest.mark.parametrize("value", [b"\xff\xfe", ["a"], {"a": 1}, {"$oid": ["a"]}, np.array([1])], ids=repr)
def test_what_is_no_identifier_is_refused_with_its_place(model: Model, tmp_path: Path, value: Any) -> None:
    rows = [ROWS[0], ROWS[1] | {"id": value}, *ROWS[2:]]
    with refused_at("list, record 1"):
        ingested(rows, id="id")
    with refused_at("document 1"):
        model.score_table(rows)


def test_a_record_whose_identifier_is_none_is_skipped_on_request(model: Model, tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.jsonl", [ROWS[0], ROWS[1] | {"id": [1]}, ROWS[2] | {"size": "1_000"}, ROWS[3]]
    )
    with refused_at(f"{path}, line 2"):
        list(predict_files(model.scoring_record, path))
    with pytest.raises(InputError):
        dslda.score(model, path, tmp_path / "stopped")
    done = dslda.score(model, path, tmp_path / "out", on_error="skip")
    assert done.manifest["skipped"]["count"] == 2


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


BARE = [{"text": row["text"]} for row in ROWS]


@pytest.mark.parametrize("name", ["y", "size", "id"])
@pytest.mark.parametrize("files", [[BARE * 30 + ROWS], [BARE, ROWS], [ROWS, BARE], [BARE * 30, BARE, ROWS]])
def test_json_records_may_lack_a_field_for_long(model: Model, tmp_path: Path, name: str, files: Any) -> None:
    files = [[row | {k: v for k, v in ROWS[0].items() if k != name} | row for row in rows] for rows in files]
    for i, rows in enumerate(files):
        written(tmp_path / f"{i}.jsonl", rows)
    n = sum(map(len, files))
    corpus = ingested(tmp_path, covariates="size", id="id")
    assert corpus.n_documents == n
    tables = pa.concat_tables(predict_files(model.scoring_record, tmp_path))
    flags = tables["flag"].to_pylist()
    assert flags.count("no_covariate") == (n - 40 if name == "size" else 0)
    done = dslda.score(model, tmp_path, tmp_path.parent / f"{tmp_path.name}.scores")
    assert done.manifest["rows_out"] == n


def test_a_field_that_no_json_record_has_is_an_error(model: Model, tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", BARE * 30)
    written(tmp_path / "b.jsonl", BARE)
    for arguments in ({}, {"response": (), "covariates": "size"}, {"response": (), "id": "id"}):
        with refused_at(f"{tmp_path}/a.jsonl"):
            ingested(tmp_path, **arguments)
    with refused_at(f"{tmp_path}/a.jsonl"):
        predict_files(model.scoring_record, tmp_path)
    for on_error in ("stop", "skip"):
        with refused_at(f"{tmp_path}/a.jsonl"):
            dslda.score(model, tmp_path, tmp_path.parent / "no.scores", on_error=on_error)


def table_with(column: pa.Array) -> pa.Table:
    return pa.table(
        {"text": [r["text"] for r in ROWS], "y": [r["y"] for r in ROWS], "size": [1] * 40, "id": column}
    )


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0] * 7 + [253402300800] + [0] * 32, pa.timestamp("s")),
        pa.array([b"a"] * 7 + [b"\xff"] + [b"a"] * 32).view(pa.string()),
    ],
    ids=["date", "text"],
)
def test_a_value_that_python_cannot_hold_is_an_error_that_names_its_row(
    model: Model, tmp_path: Path, column: pa.Array
) -> None:
    table = table_with(column)
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    with refused_at(f"{path}, row 7"):
        ingested(path, id="id")
    with refused_at(f"{path}, row 7"):
        list(predict_files(model.scoring_record, path))
    done = dslda.score(model, path, tmp_path / "out", on_error="skip")
    assert done.manifest["skipped"]["count"] == 1
    with refused_at("the Table, row 7"):
        ingested(table, id="id")


def test_generators_of_mappings_are_read_as_lists_are() -> None:
    corpus, same = ingested(row for row in ROWS), ingested()
    assert corpus.n_documents == 40
    np.testing.assert_array_equal(corpus.read(0).counts, same.read(0).counts)
    with refused_at("list_iterator, record 1"):
        ingested(iter([ROWS[0], 3]))
    with pytest.raises(InputError):
        ingested(iter([]))


def test_generators_of_paths_are_read(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{name}.jsonl", ROWS) for name in "ab"]
    assert ingested(path for path in paths).n_documents == 80


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA], ids=repr)
def test_a_missing_text_flags_its_document_only(model: Model, missing: Any) -> None:
    plain = dslda.train(ingested(), n_topics=2, max_iter=2)
    for texts in (
        ["good film", missing],
        pd.Series(["good film", missing], dtype=object),
        iter(["good film", missing]),
    ):
        assert plain.score_table(texts)["flag"].to_pylist() == ["", "empty"]


def test_a_missing_text_in_a_bag_is_a_document_without_words() -> None:
    pairs = [("good film", 1.0), (None, 0.0), ("dull film", 0.0)]
    with pytest.warns(DataWarning):
        corpus = ingested(dask.bag.from_sequence(pairs, npartitions=1))
    assert (corpus.n_documents, corpus.n_empty) == (3, 1)


@pytest.mark.parametrize("dtype", ["float16", "Int64", "UInt8", "boolean", "Float32", "int64[pyarrow]"])
def test_matrices_of_half_precision_and_nullable_frames_are_read(dtype: str) -> None:
    counts = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    y = np.array([1.0, 0.0, 1.0, 0.5])
    frame = pd.DataFrame(counts, columns=list("abc")).astype("boolean" if dtype == "boolean" else dtype)
    same = dslda.train(counts, response=y, terms=list("abc"), n_topics=2, max_iter=2)
    fitted = dslda.train(frame, response=y, terms=list("abc"), n_topics=2, max_iter=2)
    expected = same.predict(counts)
    np.testing.assert_array_equal(fitted.predict(frame), expected)
    np.testing.assert_array_equal(same.predict(frame), expected)
    dslda.SLDARegressor(n_topics=2, max_iter=2).fit(frame, y).predict(frame)
    if dtype == "Int64":
        with refused_at():
            same.predict(frame.mask(frame == 0))


@pytest.mark.parametrize("categorical", [(), "y"])
def test_a_constant_response_may_be_kept_out_but_not_trained_on(categorical: Any) -> None:
    everything = ingested(categorical=categorical)
    constant = [row | {"y": 1.0} for row in ROWS]
    with refused_at():
        ingested(constant, categorical=categorical)
    corpus = ingested(constant, categorical=categorical, vocabulary=everything)
    family = "categorical" if categorical else "gaussian"
    model = dslda.train(everything, family=family, n_topics=2, max_iter=3)
    assert len(model.predict(corpus)) == 40
    if categorical:
        assert 0 <= model.score(corpus) <= 1
    with pytest.raises(InputError):
        dslda.train(corpus, family=family, n_topics=2, max_iter=3)


@pytest.mark.parametrize("name", ["height, cm", "a b", " a", 'say "a"'])
def test_covariates_may_have_blanks_and_commas_in_their_names(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    assert names_in([f"x, {quoted},z", "u ,v"]) == ["x", name, "z", "u", "v"]
    rows = [row | {name: row["size"]} for row in ROWS]
    corpus = ingested(rows, covariates=name)
    model = dslda.train(corpus, covariates=name, n_topics=2, max_iter=2)
    np.testing.assert_array_equal(model.predict(rows), model.predict(corpus))


def test_collections_of_dask_are_predicted_as_what_they_hold() -> None:
    frame = pd.DataFrame(
        {
            "text": ["good fine nice"] * 20 + ["bad poor ugly"] * 20,
            "y": np.repeat([1.0, 0.0], 20),
            "age": np.arange(40),
        }
    )
    corpus = dslda.ingest(frame, text="text", response="y", covariates="age", min_df=1, max_df=1.0)
    model = dslda.train(corpus, n_topics=2, covariates="age", doc_topic_prior="1/K")
    expected = model.predict(frame)
    lazy = dd.from_pandas(frame, npartitions=3)
    with dask.config.set(scheduler="synchronous"):
        assert_array_equal(model.predict(lazy), expected)
        assert_array_equal(model.predict(lazy["text"], covariates={"age": frame["age"]}), expected)
        assert_array_equal(model.predict(dask.delayed(frame)), expected)
        assert_array_equal(
            model.predict(dask.bag.from_sequence(frame.to_dict("records"), npartitions=2)), expected
        )
        assert model.score(lazy) == model.score(frame)
        with pytest.raises(InputError, match=r"must have the field 'text'.*got '0', 'y', 'age'"):
            model.predict(lazy.rename(columns={"text": 0}))
