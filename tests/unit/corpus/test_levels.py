from __future__ import annotations

import csv
import gzip
import json
import math
import pickle
import shutil
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_array_equal

from dslda.corpus.block import DocumentBlock
from dslda.corpus.levels import MAX_LEVELS, UNKNOWN, LevelIndex, level_name
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusWriter
from dslda.exceptions import FormatError, InputError
from dslda.ingestion.corpus_plan import blocks_from_bag
from dslda.ingestion.counting import identifier_value
from dslda.ingestion.ingest import ingest
from dslda.inputs import files
from dslda.inputs.fields import Fields
from dslda.storage.typed_json import json_sha256
from dslda.storage.zarr_arrays import checksum
from tests.helpers.errors import refused

ALL = {"min_df": 1, "max_df": 1.0}
COLUMNS = {
    "text": "text",
    "response": ["class_name", "rating"],
    "covariates": ["age", "department"],
    "categorical": ["class_name", "department"],
    "min_df": 2,
    "max_df": 0.5,
    "partition_tokens": 2500,
}


@pytest.fixture(scope="module")
def reviews(shared_data) -> list[dict]:
    """Real reviews; some classes are missing and one is of a single document."""
    with gzip.open(shared_data / "womens_clothing" / "womens_clothing.jsonl.gz", "rt") as lines:
        found = [json.loads(line) for _, line in zip(range(250), lines, strict=False)]
    for i, review in enumerate(found):
        if i % 17 == 5:
            review["class_name"] = None
    found[100]["class_name"] = "Zelte: groß\nund klein"
    return found


def json_lines(records) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def column(corpus: Corpus, name: str) -> np.ndarray:
    """Values of a response or covariate of all documents."""
    blocks = [corpus.read(i, covariates=corpus.covariate_names) for i in range(corpus.n_partitions)]
    return np.concatenate([(block.responses | block.covariates)[name] for block in blocks])


def names(corpus: Corpus, name: str) -> list[str | None]:
    """The names of all documents."""
    return [None if np.isnan(c) else corpus.levels[name][int(c)] for c in column(corpus, name)]


def ingested(tmp_path: Path, values: list, categorical="y") -> Corpus:
    """A corpus with these values of a response."""
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "word", "y": value} for value in values))
    return ingest(tmp_path / "a.jsonl", text="text", response="y", categorical=categorical, **ALL)


# one corpus from every kind of input


@pytest.fixture(scope="module")
def expected(reviews, tmp_path_factory) -> Corpus:
    folder = tmp_path_factory.mktemp("expected")
    (folder / "a.jsonl").write_bytes(json_lines(reviews))
    return ingest(folder / "a.jsonl", folder / "a.corpus", **COLUMNS)


def test_names_come_back_by_their_codes(reviews, expected):
    corpus = open_corpus(expected.path)
    for name in ("class_name", "department"):
        given = [review[name] for review in reviews]
        assert corpus.levels[name] == tuple(sorted({value for value in given if value is not None}))
        assert names(corpus, name) == given
    assert set(corpus.levels) == {"class_name", "department"}
    assert column(corpus, "rating").tolist() == [review["rating"] for review in reviews]
    assert "'class_name' (16 levels), 'rating' (whole numbers)" in repr(corpus)
    assert pickle.loads(pickle.dumps(corpus)).levels == corpus.levels


def test_covariates_are_summarised_as_responses_are(reviews, expected):
    ages = [review["age"] for review in reviews]
    summary = expected.covariate_summaries["age"]
    assert (summary.n, summary.missing, summary.kind) == (len(ages), 0, "count")
    assert (summary.minimum, summary.maximum) == (min(ages), max(ages))
    assert summary.mean == pytest.approx(np.mean(ages))
    assert summary.variance == pytest.approx(np.var(ages))
    for name in ("class_name", "department"):
        summary = (expected.response_summaries | expected.covariate_summaries)[name]
        assert summary.distinct == tuple(range(len(expected.levels[name])))
    assert list(expected.covariate_summaries) == ["age", "department"]
    parts = [expected.read(i, covariates=["age"]).covariates["age"] for i in range(expected.n_partitions)]
    assert expected.covariate_summaries["age"] == ResponseSummary.merge_all(map(ResponseSummary.of, parts))


@pytest.mark.parametrize(
    "kind", ["cut small", "csv", "parquet", "dictionary", "bag 1", "bag 2", "bag 4", "frame", "categories"]
)
def test_the_same_names_give_the_same_corpus_from(kind, reviews, expected, tmp_path, monkeypatch):
    import dask.bag
    import dask.dataframe
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr(files, "MIN_CHUNK_BYTES", 20_000)
    frame = pd.DataFrame(reviews)
    inputs = tmp_path / f"a.{kind}"
    if kind == "cut small":
        inputs = tmp_path / "folder"
        inputs.mkdir()
        for i in range(0, len(reviews), 30):
            (inputs / f"{i:05d}.jsonl").write_bytes(json_lines(reviews[i : i + 30]))
    elif kind == "csv":
        with inputs.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(reviews[0]))
            writer.writeheader()
            writer.writerows(reviews)
    elif kind == "parquet":
        frame.to_parquet(inputs, row_group_size=77)
    elif kind == "dictionary":
        table = pa.Table.from_pylist(reviews)
        for name in ("class_name", "department"):
            at = table.column_names.index(name)
            table = table.set_column(at, name, table[name].dictionary_encode())
        inputs = tmp_path / "a.parquet"
        pq.write_table(table, inputs, row_group_size=77)
    elif kind.startswith("bag"):
        inputs = dask.bag.from_sequence(reviews, npartitions=int(kind.split()[1]))
    else:
        if kind == "categories":
            frame = frame.astype({"class_name": "category", "department": "category"})
        inputs = dask.dataframe.from_pandas(frame, npartitions=3)
    corpus = ingest(inputs, tmp_path / "a.corpus", **COLUMNS)
    assert corpus.content_hash == expected.content_hash
    assert corpus.levels == expected.levels
    assert corpus.covariate_summaries == expected.covariate_summaries


@pytest.mark.parametrize("kind", ["list", "array", "objects", "series", "strings", "category"])
def test_a_matrix_takes_arrays_of_names(tmp_path, kind):
    import pandas as pd
    from scipy.sparse import csr_array

    given = (
        ["b", " a", math.nan, "nan", None, ""] if kind not in ("array",) else ["b", " a", "", "nan", "", ""]
    )
    arrays = {
        "list": lambda: given,
        "array": lambda: np.array(given),
        "objects": lambda: np.array(given, dtype=object),
        "series": lambda: pd.Series(given),
        "strings": lambda: pd.Series(given, dtype="string"),
        "category": lambda: pd.Categorical(given),
    }
    corpus = ingest(
        csr_array(np.eye(6, dtype=int)),
        vocabulary=[f"w{i}" for i in range(6)],
        response={"y": arrays[kind](), "z": pd.Series([1, None, 2, 3, 4, 5], dtype="Int64")},
        covariates={"x": [1, True, "1", 2.5, "1", 1]},
        categorical=["y", "x"],
    )
    assert names(corpus, "y") == ["b", "a", None, "nan", None, None]
    assert names(corpus, "x") == ["1", "true", "1", "2.5", "1", "1"]
    assert corpus.response_summaries["z"].missing == 1


def test_blocks_of_a_bag_have_the_levels_of_the_corpus(reviews, expected):
    import dask.bag

    fields = Fields(
        text="text",
        responses=("class_name", "rating"),
        covariates=("age", "department"),
        categorical=("class_name", "department"),
    )
    settings = TextSettings(min_df=2, max_df=0.5)
    with Client(processes=False, n_workers=1, dashboard_address=":0", set_as_default=False) as client:
        bag = dask.bag.from_sequence(reviews, npartitions=4)
        found = blocks_from_bag(bag, client, fields=fields, settings=settings, partition_tokens=2500)
        assert found.plan.levels == expected.levels
        assert found.responses == expected.response_summaries
        assert found.covariates == expected.covariate_summaries
        for i, block in enumerate(client.gather(list(found.futures))):
            stored = expected.read(i, covariates=["department"])
            assert block.responses["class_name"].tobytes() == stored.responses["class_name"].tobytes()
            assert block.covariates["department"].tobytes() == stored.covariates["department"].tobytes()


# names


HOSTILE = [
    "nan", "None", "NULL", "-1", "a\nb", "a,b;\"'", "\0", "{}", "Ä", "A\u0308", "a", "A", "\N{RED APPLE}",
    "\u202eright to left", "x" * 300_000, "<script>", "../..", "levels", "\ufeff",
]  # fmt: skip


def test_any_string_is_a_name(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "word", "y": f"\t {y}\r\n"} for y in HOSTILE))
    corpus = ingest(
        tmp_path / "a.jsonl", tmp_path / "a.corpus", text="text", response="y", categorical="y", **ALL
    )
    assert names(open_corpus(corpus.path), "y") == HOSTILE
    assert corpus.levels["y"] == tuple(sorted(HOSTILE))


def test_lone_surrogates_become_question_marks_as_in_texts(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "word", "y": "\\ud800"}\n{"text": "word", "y": "b"}\n')
    corpus = ingest(tmp_path / "a.jsonl", text="text", response="y", categorical="y", **ALL)
    assert corpus.levels["y"] == ("?", "b")


def test_numbers_and_booleans_are_named_as_json_writes_them(tmp_path):
    corpus = ingested(tmp_path, [True, False, 1, 1.0, 2.5, -0.0, 10**20, 1e300, None, "", "  ", math.nan])
    missing = [None] * 4
    assert names(corpus, "y") == [
        "true", "false", "1", "1", "2.5", "0", str(10**20), "1e+300", *missing
    ]  # fmt: skip
    assert corpus.response_summaries["y"].missing == 4


def test_columns_of_parquet_need_not_be_strings(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "text": ["word"] * 3,
        "flag": [True, None, False],
        "code": pa.array([7, 7, 12], pa.int8()),
        "price": pa.array([Decimal("1.10"), Decimal("2.00"), None]),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    corpus = ingest(
        tmp_path / "a.parquet",
        text="text",
        response=["flag", "price"],
        covariates="code",
        categorical=["code", "flag", "price"],
        **ALL,
    )
    assert names(corpus, "flag") == ["true", None, "false"]
    assert names(corpus, "price") == ["1.10", "2.00", None]
    assert names(corpus, "code") == ["7", "7", "12"]
    assert corpus.levels["code"] == ("12", "7")  # as strings are sorted


def test_a_column_can_be_response_and_covariate(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "word", "y": y} for y in "bab"))
    corpus = ingest(tmp_path / "a.jsonl", text="text", response="y", covariates="y", categorical="y", **ALL)
    block = corpus.read(0, covariates=["y"])
    assert block.responses["y"].tolist() == block.covariates["y"].tolist() == [1, 0, 1]


def test_names_that_differ_in_case_only_are_two(tmp_path):
    assert ingested(tmp_path, ["Tax", "tax"]).levels["y"] == ("Tax", "tax")


def test_the_hash_tells_what_the_codes_mean(tmp_path):
    one, same, other = (ingested(tmp_path, list(values)) for values in ("aba", "aba", "aca"))
    assert column(one, "y").tolist() == column(other, "y").tolist()
    assert one.content_hash == same.content_hash != other.content_hash


@pytest.mark.parametrize("n_partitions", [1, 4])
def test_levels_are_at_most_ten_thousand(tmp_path, n_partitions):
    import dask.bag

    records = [{"text": "word", "y": f"n{i}"} for i in range(MAX_LEVELS)]
    arguments = {"text": "text", "response": "y", "categorical": "y", **ALL}
    corpus = ingest(dask.bag.from_sequence(records, npartitions=n_partitions), **arguments)
    assert len(corpus.levels["y"]) == MAX_LEVELS
    assert corpus.response_summaries["y"].maximum == MAX_LEVELS - 1
    bag = dask.bag.from_sequence([*records, {"text": "word", "y": "more"}], npartitions=n_partitions)
    with pytest.raises(InputError, match=r"field 'y' must have at most 10,000 levels .* leave it out of"):
        ingest(bag, **arguments)


# bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1]}, r"a\.jsonl, line 3: response 'y' must be a name to be categorical .*, got \[1\]"),
        ({"y": {"a": 1}}, r"line 3: response 'y' must be a name"),
        ({"y": math.inf}, r"line 3: response 'y' must be a name .*, got inf"),
        (
            {"n": "high"},
            r"line 3: covariate 'n' must be a number, got 'high'; leave it empty .*, or if 'n' holds names of "
            r"classes, name it with categorical=$",
        ),
        (
            {"n": "-4,5"},
            r"must be a number, with a decimal point and not a comma, got '-4,5'; write -4\.5, or",
        ),
        ({"n": "1,234"}, r"got '1,234'; write 1\.234.* write 1234 if commas part thousands.* thousands=','"),
        ({"n": "1 234"}, r"got '1 234'; write 1234$"),
        ({"n": "1.234,5"}, r"got '1\.234,5'; write 1234\.5$"),
        ({"n": "1'234'567"}, r"write 1234567$"),
        ({"n": "-$ 1\N{NO-BREAK SPACE}234"}, r"line 3: covariate 'n' must be a number, got"),
        ({"n": "\N{EURO SIGN} 5"}, r"write 5$"),
        ({"n": "\N{MINUS SIGN}2 %"}, r"write -2$"),
        ({"n": "12 kg"}, r"got '12 kg'; leave it empty"),
        ({"n": "1,234,567.5"}, r"got '1,234,567\.5'; write 1234567\.5 if commas part thousands"),
    ],
)
def test_a_value_that_is_no_name_is_named_by_file_line_and_field(tmp_path, change, message):
    good = {"text": "apple", "y": "a", "x": "b", "n": 1}
    (tmp_path / "a.jsonl").write_bytes(json_lines([good, good | {"y": "b"}, good | change]))
    with pytest.raises(InputError, match=message):
        ingest(
            tmp_path / "a.jsonl",
            tmp_path / "a.corpus",
            text="text",
            response="y",
            covariates=["x", "n"],
            categorical=["y", "x"],
            **ALL,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_an_empty_cell_is_missing_for_a_response_and_a_covariate(tmp_path):
    (tmp_path / "a.csv").write_text('text,y\nword,a\nword,\nword," "\nword,b\n')
    arguments = {"text": "text", "categorical": "y", **ALL}
    corpus = ingest(tmp_path / "a.csv", response="y", **arguments)
    assert names(corpus, "y") == ["a", None, None, "b"]
    corpus = ingest(tmp_path / "a.csv", covariates="y", **arguments)
    assert corpus.covariate_summaries["y"].missing == 2
    assert corpus.read(0, covariates=["y"]).covariates["y"].tolist() == pytest.approx(
        [0, math.nan, math.nan, 1], nan_ok=True
    )


@pytest.mark.parametrize(
    ("values", "categorical", "message"),
    [
        (["a", "a", None], "y", "response 'y' is 'a' in all 2 documents that have it; it must vary"),
        ([None, None], "y", "response 'y' is missing in all 2 documents"),
        (["a", "b"], "z", "categorical must name fields among .*, got 'z'; these are: 'y'"),
        (["a", "b"], ["y", "y"], "categorical must name each field once"),
        (["a", "b"], 3, "categorical must be the name of a field or several, got 3"),
        (["a", "b"], (), r"got 'a'; .* if 'y' holds names of classes, name it with"),
    ],
)
def test_what_cannot_be_classes_is_refused(tmp_path, values, categorical, message):
    with pytest.raises(InputError, match=message):
        ingested(tmp_path, values, categorical)


def test_chunks_of_one_class_each_are_no_constant_response():
    import dask.bag

    bag = dask.bag.from_sequence([("word", "a"), ("word", "b")], npartitions=2)
    assert names(ingest(bag, response="y", categorical="y", **ALL), "y") == ["a", "b"]


def test_files_without_fields_have_none_to_be_categorical(tmp_path):
    (tmp_path / "a.txt").write_text("word")
    with refused("categorical"):
        ingest(tmp_path / "a.txt", categorical="y")


# the store


BLOCK = DocumentBlock(
    np.zeros(4, dtype=np.int64),
    np.zeros(0, dtype=np.int32),
    np.zeros(0, dtype=np.int32),
    responses={"y": np.array([1, np.nan, 0])},
    covariates={"x": np.array([0.0, 2, 0])},
)


def write(path: Path, block: DocumentBlock = BLOCK, **changes) -> Corpus:
    arguments = {"responses": ("y",), "covariates": ("x",), "levels": {"y": ["a", "b"], "x": ["c", "d", "e"]}}
    writer = CorpusWriter(
        path,
        vocabulary=Vocabulary(["word"]),
        text_settings=TextSettings(),
        n_partitions=1,
        document_capacity=3,
        entry_capacity=1,
        **(arguments | changes),
    )
    writer.prepare()
    writer.finish([pickle.loads(pickle.dumps(writer)).write_partition(0, block)])
    return open_corpus(path)


def test_a_level_that_no_document_has_is_kept(tmp_path):
    corpus = write(tmp_path / "a.corpus")
    assert corpus.levels == {"y": ("a", "b"), "x": ("c", "d", "e")}
    assert names(corpus, "x") == ["c", "e", "c"]


@pytest.mark.parametrize(
    "levels", [{"y": ["b", "a"]}, {"y": ["a", "a"]}, {"y": ["a", 1]}, {"z": ["a", "b"]}, {"x": [None]}]
)
def test_wrong_levels_are_refused_by_the_writer(tmp_path, levels):
    with refused("levels"):
        write(tmp_path / "a.corpus", levels=levels)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"responses": {"y": np.array([0, 2.0, 1])}},
            "response 'y' must be a code 0..1 of its levels, and is",
        ),
        ({"responses": {"y": np.array([0, 0.5, 1])}}, "response 'y' must be a code"),
        ({"responses": {"y": np.array([0, np.inf, 1])}}, "response 'y' must be a code"),
        ({"covariates": {"x": np.array([0, -1.0, 1])}}, "covariate 'x' must be a code 0..2"),
        ({"covariates": {"x": np.array([0, np.inf, 1])}}, "covariate 'x' must be a code"),
    ],
)
def test_a_block_with_a_code_that_has_no_level_is_refused(tmp_path, columns, message):
    kept = {"responses": BLOCK.responses, "covariates": BLOCK.covariates}
    block = DocumentBlock(BLOCK.indptr, BLOCK.terms, BLOCK.counts, **(kept | columns))
    with pytest.raises(InputError, match=f"^partition 0: {message}.* 1 documents, first in document 1"):
        write(tmp_path / "a.corpus", block)


def test_a_code_without_level_is_found_when_read(tmp_path):
    """Codes that another writer wrote wrongly, with right checksums and a summary that hides it."""
    numbers = write(tmp_path / "numbers.corpus", levels={})
    broken = Path(shutil.copytree(numbers.path, tmp_path / "broken.corpus"))
    metadata = json.loads((broken / "zarr.json").read_text())
    data = metadata["attributes"]
    data["covariates"][0] |= {"maximum": 1.0, "distinct": [0.0, 1.0], "levels": ["c", "d"]}
    del data["manifest_sha256"]
    (broken / "zarr.json").write_text(json.dumps(metadata))
    assert data["partitions"][0]["column_checksums"]["covariates/0"] == checksum(BLOCK.covariates["x"])
    corpus = open_corpus(broken)
    assert corpus.read(0).n_documents == 3
    with pytest.raises(
        FormatError, match=r"partition 0: array covariates/0 must hold codes 0\.\.1 of its lev"
    ):
        corpus.read(0, covariates=["x"])


def test_levels_that_were_changed_are_found(tmp_path):
    path = Path(write(tmp_path / "a.corpus").path)
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["attributes"]["responses"][0]["levels"] = ["a", "c"]
    (path / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(FormatError, match="does not agree with its own checksum"):
        open_corpus(path)
    data = {k: v for k, v in metadata["attributes"].items() if k != "manifest_sha256"}
    data["responses"][0]["levels"] = ["a"]
    metadata["attributes"] = data | {"manifest_sha256": json_sha256(data)}
    (path / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(FormatError, match=r"the values must be codes 0\.\.0 of the levels.*responses\[0\]"):
        open_corpus(path)


# whole numbers and types


@pytest.mark.parametrize(
    "value",
    [
        10,
        10.0,
        np.float32(10),
        np.int8(10),
        "10",
        b"10",
        np.bytes_(b"10"),
        np.array(10),
        np.array("10"),
        Decimal("10"),
        Decimal("1E1"),
    ],
)
def test_a_whole_number_has_one_name(value):
    assert level_name(value, "y") == identifier_value(value, "id") == "10"


@pytest.mark.parametrize(("value", "name"), [(-0.0, "0"), (2.5, "2.5"), (1e-7, "1e-07"), (-3.0, "-3")])
def test_names_of_other_floats_are_those_of_json(value, name):
    assert level_name(value, "y") == name


def test_integers_that_became_floats_are_the_same_levels(tmp_path):
    import pandas as pd

    whole = pd.DataFrame({"text": ["word"] * 4, "y": [1, 2, 10, 2]})
    holey = whole.assign(y=[None, 2.0, 10.0, 1.0])
    for frame, name in ((whole, "a"), (holey, "b")):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        frame.to_json(tmp_path / f"{name}.jsonl", orient="records", lines=True)
        frame.to_parquet(tmp_path / f"{name}.parquet")
    expected = ["1", "2", "10", "2", None, "2", "10", "1"]
    arguments = {"text": "text", "response": "y", "categorical": "y", **ALL}
    for kind in ("csv", "jsonl", "parquet"):
        both = [tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"]
        corpus = ingest(both, **arguments)
        assert corpus.levels["y"] == ("1", "10", "2")
        assert names(corpus, "y") == expected
        appended = ingest(both[0], tmp_path / f"{kind}.corpus", **arguments)
        appended = ingest(both[1], appended.path, append=True)
        assert names(appended, "y") == expected
    # as corpora of earlier releases have them
    (tmp_path / "old.csv").write_text("text,y\nword,1.0\nword,2.0\nword,10.0\n")
    old = ingest(tmp_path / "old.csv", tmp_path / "old.corpus", **arguments)
    assert old.levels["y"] == ("1.0", "10.0", "2.0")
    assert names(ingest(holey, old.path, append=True), "y")[3:] == [None, "2.0", "10.0", "1.0"]


def test_identifiers_that_became_floats_are_recognised(tmp_path):
    import pandas as pd

    whole = pd.DataFrame({"text": ["word", "other", "more"], "key": [7, 8, 9], "y": [0.0, 1.0, 0.5]})
    arguments = {"text": "text", "response": "y", "id": "key", **ALL}
    stored = ingest(whole, tmp_path / "a.corpus", **arguments)
    floats = whole.assign(key=whole["key"].astype(float))
    assert ingest(floats, **arguments).read(0, doc_id=True).doc_id == ("7", "8", "9")
    floats.to_csv(tmp_path / "floats.csv", index=False)
    for again in (floats, tmp_path / "floats.csv"):
        with pytest.warns(UserWarning, match="already, with the same identifiers"):
            assert ingest(again, stored.path, append=True).n_documents == 3


@pytest.mark.parametrize(
    ("levels", "value", "code"),
    [
        (["1", "10", "2"], 10.0, 1),
        (["1", "10", "2"], "10.0", 1),
        (["1.0", "10.0"], 10, 1),
        (["1.0", "10.0"], "10", 1),
        (["10", "10.0"], "10.0", 1),
        (["1.10", "2.00"], 1.1, 0),
        (["1.1"], "1.10", UNKNOWN),
        (["1.5", "2.5"], Decimal("2.50"), 1),
        (["false", "true"], "True", 1),
        (["false", "true"], "TRUE", 1),
        (["false", "true"], "1", 1),
        (["0", "1"], "True", 1),
        (["0", "1"], b"false", 0),
        (["0", "1"], "-0", 0),
        (["no", "yes"], "true", UNKNOWN),
        (["1", "2"], np.array(2), 1),
        (["1", "2"], np.ma.masked, math.nan),
        (["a", "b"], b"b", 1),
        (["False", "True"], True, 1),
        (["0", "1"], np.bool_(True), 1),
        (["false", "true"], 1, 1),
        (["007", "8"], 7, UNKNOWN),
        (["007", "8"], "007", 0),
        (["no", "yes"], 1, UNKNOWN),
        (["9007199254740992"], 9007199254740993, UNKNOWN),
    ],
)
def test_levels_are_found_by_name_whatever_the_type(levels, value, code):
    assert_array_equal(LevelIndex(levels).code(value, "y"), code)


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ([True, "true", "True", "TRUE", 1, False, 0, "0"], ("false", "true")),
        (["TRUE", "True", "FALSE"], ("FALSE", "TRUE")),
        (["0", "-0", "-0.0", 1], ("0", "1")),
        (["10.0", "10.00", "11"], ("10.0", "11")),
        ([True, False, 1, 2], ("1", "2", "false", "true")),
    ],
)
@pytest.mark.parametrize("n_files", [1, 3])
def test_spellings_of_one_value_are_one_level_however_files_cut_them(tmp_path, values, levels, n_files):
    rows = [{"text": "word", "y": value} for value in values]
    for i in range(n_files):
        (tmp_path / f"{i}.jsonl").write_bytes(json_lines(rows[i::n_files]))
    corpus = ingest(tmp_path, text="text", response="y", categorical="y", **ALL)
    assert corpus.levels["y"] == levels
    assert None not in names(corpus, "y")
