"""The fitted model: what it says of its topics and of documents."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dslda.array_inputs import matrix_block
from dslda.corpus.store import Corpus, open_corpus
from dslda.datasets import load_clothing
from dslda.exceptions import DataWarning, InputError, VocabularyMismatchError
from dslda.families.registry import get_family
from dslda.ingestion.ingest import ingest
from dslda.model import Model, load_model
from dslda.prediction.file_predictions import predict_files
from dslda.training.train import train
from dslda.variational.estep import e_step
from tests.helpers.errors import refused
from tests.helpers.files import write_records

N = 400
TERMS = [word for word in load_clothing().vocabulary if word.isalpha()]


@pytest.fixture(scope="module")
def reviews() -> tuple[sparse.csr_array, np.ndarray, list[str]]:
    """Counts, ratings and terms of 400 clothing reviews."""
    clothing = load_clothing()
    counts = clothing.counts[:N]
    kept = np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]) >= 5)
    return counts[:, kept], clothing.responses["rating"][:N], [clothing.vocabulary[t] for t in kept]


@pytest.fixture(scope="module")
def model(reviews: tuple[sparse.csr_array, np.ndarray, list[str]]) -> Model:
    counts, y, terms = reviews
    return train(counts, response=y, terms=terms, n_topics=4, tol=1e-3)


@pytest.fixture(scope="module")
def corpus(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Corpus:
    """The same reviews with the terms in another order, one unknown term, and several partitions."""
    counts, y, terms = reviews
    order = np.random.default_rng(0).permutation(len(terms))
    extra = sparse.csr_array(np.full((N, 1), 2, dtype=np.int32))
    shuffled = sparse.hstack([counts[:, order], extra]).tocsr()
    return ingest(
        shuffled,
        tmp_path_factory.mktemp("model") / "other.corpus",
        vocabulary=[*(terms[t] for t in order), "xyzzy"],
        response={"rating": y},
        id=[f"r{i}" for i in range(N)],
        partition_tokens=3000,
    )


def texts_of(counts: sparse.csr_array, terms: list[str]) -> list[str]:
    return [
        " ".join(np.repeat([terms[t] for t in row.indices], row.data))
        for row in (counts[[i]] for i in range(counts.shape[0]))
    ]


def test_coefficients_are_sorted_and_in_the_units_of_the_response(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], model: Model
) -> None:
    counts, y, terms = reviews
    values = [c.coefficient for c in model.coefficients()]
    assert values == sorted(values)
    assert 0 < values[0] < y.mean() < values[-1] < 7
    other = train(counts, response=1000 * y + 50, terms=terms, n_topics=4, tol=1e-3)
    for ours, theirs in zip(model.coefficients(), other.coefficients(), strict=True):
        assert theirs.topic == ours.topic
        assert theirs.coefficient == pytest.approx(1000 * ours.coefficient + 50, rel=1e-9)
        assert theirs.conditional_error == pytest.approx(1000 * ours.conditional_error, rel=1e-6)
    assert other.dispersion == pytest.approx(1e6 * model.dispersion, rel=1e-6)
    assert_allclose(other.predict(counts), 1000 * model.predict(counts) + 50, rtol=1e-7)


def test_conditional_errors_are_those_of_the_regression_with_known_topics(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], model: Model
) -> None:
    counts, y, _ = reviews
    record, block = model.record, matrix_block(counts)
    statistics = e_step(
        block.indptr,
        block.terms,
        block.counts,
        record.scaling.to_model(y),
        record.parameters,
        family=get_family("gaussian"),
        spec=model.spec,
    )
    expected = record.scaling.scale * np.sqrt(np.diagonal(np.linalg.inv(statistics.information)))
    for row in model.coefficients():
        assert row.conditional_error == pytest.approx(expected[row.topic], rel=1e-9)


def test_a_coefficient_shows_the_fields_that_say_something(model: Model) -> None:
    coefficient = model.coefficients()[0]
    assert repr(coefficient) == (
        f"Coefficient(topic={coefficient.topic}, coefficient={coefficient.coefficient!r}, "
        f"conditional_error={coefficient.conditional_error!r})"
    )
    assert repr(coefficient._replace(class_name="Health")).endswith(", class_name='Health')")
    assert "class_name" not in repr(model.topics(top=2)[0])


def test_records_are_scored_by_their_own_responses(tmp_path: Path) -> None:
    """As predict takes their covariates from them; numbers and classes, some of them missing."""
    rows = [
        {
            "body": ("apple pear" if i % 2 else "plum fig") + " kiwi" * (i % 3),
            "size": i % 2 + i / 100,
            "kind": "ab"[(i % 2) ^ (i % 10 == 3)],
        }
        for i in range(40)
    ]
    write_records(tmp_path / "a.jsonl", rows)
    fruit = ingest(
        tmp_path / "a.jsonl",
        text="body",
        response=["size", "kind"],
        categorical="kind",
        min_df=1,
        max_df=1.0,
    )
    some = [*rows[:20], {"body": "fig"}, rows[21] | {"size": None, "kind": None}]
    for response, family, missing in (("size", "gaussian", np.nan), ("kind", "binomial", None)):
        model = train(fruit, response=response, family=family, n_topics=2)
        assert model.score(rows) == model.score(fruit) > 0.5
        known = [row[response] for row in rows[:20]]
        assert model.score(iter(some)) == model.score(some, [*known, missing, missing])
        for documents in ([{"body": "plum"}], ["plum"], [], rows[0]):
            with pytest.raises(
                InputError, match=f"y must be given where documents are neither .*'{response}'"
            ):
                model.score(documents)


def test_topics_list_their_most_probable_words_first(model: Model) -> None:
    for topic, coefficient in zip(model.topics(top=7), model.coefficients(), strict=True):
        assert (topic.topic, topic.coefficient, topic.conditional_error) == coefficient[:3]
        assert topic.prevalence == model.topic_prevalence[topic.topic]
        assert topic.coherence == model.quality.npmi[topic.topic]
        assert topic.exclusivity == model.quality.exclusivity[topic.topic]
        row = model.topic_word[topic.topic]
        assert row.sum() == pytest.approx(1)
        assert list(topic.probabilities) == sorted(row, reverse=True)[:7]
        assert [model.vocabulary.index[w] for w in topic.words] == np.argsort(-row, kind="stable")[
            :7
        ].tolist()
    with refused("top"):
        model.topics(top=0)


def test_texts_words_mappings_and_rows_of_a_matrix_are_the_same_documents(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], model: Model
) -> None:
    counts, _, terms = reviews
    few = counts[:20]
    pairs = [([terms[t] for t in row.indices], row.data.tolist()) for row in (few[[i]] for i in range(20))]
    records = [{"words": words, "counts": numbers} for words, numbers in pairs]
    named = [{"w": words, "n": numbers} for words, numbers in pairs]
    expected = model.predict(few)
    assert_array_equal(model.predict(pairs), expected)
    assert_array_equal(model.predict(records), expected)
    assert_array_equal(model.predict(iter(named), words="w", counts="n"), expected)
    assert_array_equal(model.predict(few.toarray().astype(float)), expected)
    assert_array_equal(model.predict(sparse.csc_matrix(few)), expected)


def test_columns_of_a_matrix_are_matched_by_name(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], model: Model
) -> None:
    counts, _, terms = reviews
    order = np.random.default_rng(1).permutation(len(terms))
    shuffled = counts[:, order]
    names = [terms[t] for t in order]
    assert_array_equal(model.predict(shuffled, terms=names), model.predict(counts))
    positions = {term: position for position, term in sorted(enumerate(names), key=lambda pair: pair[1])}
    assert_array_equal(model.predict(shuffled, terms=positions), model.predict(counts))
    narrow = model.score_table(shuffled[:, :10], terms=names[:10])
    assert narrow.num_rows == N
    with pytest.raises(VocabularyMismatchError, match=r"10 columns.*terms="):
        model.predict(shuffled[:, :10])
    with refused("terms"):
        model.predict(shuffled[:, :10], terms=names)


def test_a_corpus_with_another_vocabulary_is_refused_unless_realigned(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], model: Model, corpus: Corpus
) -> None:
    assert corpus.n_partitions > 2
    with pytest.raises(VocabularyMismatchError, match="realign=True"):
        model.predict(corpus)
    counts, y, _ = reviews
    table = model.score_table(corpus, realign=True)
    assert_array_equal(table["prediction"].to_numpy(), model.predict(counts))
    assert table["id"].to_pylist() == [f"r{i}" for i in range(N)]
    assert_allclose(table["oov_share"].to_numpy(), 2 / (counts.sum(axis=1) + 2))
    assert model.score(corpus, y, realign=True) == model.score(counts, y)


@pytest.mark.parametrize("method", ["predict_proba", "transform", "score_table", "contributions"])
def test_a_keyword_that_no_prediction_has_is_refused(model: Model, method: str) -> None:
    with pytest.raises(TypeError, match=r"has no keyword 'realigned' \(write realign=\)"):
        getattr(model, method)(["good"], realigned=True)


def test_a_corpus_is_read_one_partition_at_a_time(model: Model, corpus: Corpus) -> None:
    tables = model.score_tables(corpus, realign=True)
    assert [t.num_rows for t in tables] == [p.n_documents for p in corpus.partitions]


def test_a_document_without_a_known_word_gets_the_base_rate_and_a_flag(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], model: Model
) -> None:
    table = model.score_table([(["xyzzy"], [3]), ([], []), (["dress", "xyzzy"], [1, 1])], ids=["a", "b", "c"])
    expected = reviews[1].mean()
    predictions = table["prediction"].to_pylist()
    assert predictions[:2] == [pytest.approx(expected)] * 2
    assert predictions[2] != pytest.approx(expected)
    assert table["flag"].to_pylist() == ["no_known_word", "empty", ""]
    assert table["known_tokens"].to_pylist() == [0, 0, 1]
    assert table["oov_share"].to_pylist() == [1.0, None, 0.5]
    assert table["id"].to_pylist() == ["a", "b", "c"]
    for k in range(4):
        assert table[f"topic_{k}"].to_pylist()[:2] == [0.25, 0.25]


@given(
    documents=st.lists(
        st.lists(
            st.tuples(st.sampled_from([*TERMS[::37], "xyzzy"]), st.integers(1, 9)),
            max_size=12,
            unique_by=lambda p: p[0],
        ),
        min_size=1,
        max_size=8,
    ),
    data=st.data(),
)
def test_a_document_alone_gets_the_bits_it_gets_in_a_batch(
    model: Model, documents: list[list[tuple[str, int]]], data: st.DataObject
) -> None:
    pairs = [([w for w, _ in d], [n for _, n in d]) for d in documents]
    together = model.score_table(pairs)
    assert together.num_rows == len(documents)
    i = data.draw(st.integers(0, len(documents) - 1))
    alone = model.score_table([pairs[i]])
    for name in together.column_names[1:]:
        assert alone[name].to_pylist() == together[name].to_pylist()[i : i + 1]
    assert model.predict([pairs[i]]).tobytes() == model.predict(pairs)[i : i + 1].tobytes()
    assert model.transform([pairs[i]]).tobytes() == model.transform(pairs)[i : i + 1].tobytes()


def test_batches_have_no_effect(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], model: Model
) -> None:
    counts, _, terms = reviews
    many = texts_of(counts, terms) * 3  # more than a batch
    pairs = [(t.split(), [1] * len(t.split())) for t in many]
    assert_array_equal(model.predict(pairs), np.tile(model.predict(counts), 3))


def test_no_documents_give_no_predictions(model: Model) -> None:
    assert model.predict([]).shape == (0,)
    assert model.transform([]).shape == (0, 4)
    assert model.score_table([]).num_rows == 0


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("one text", r"must be a list of texts, got one str; write \[it\]"),
        ({"words": ["a"], "counts": [1]}, "got one dict"),
        ([(["dress"], [1]), (["dress"], [0.5])], r"document 1: .*0\.5"),
        ([(["dress"], [1])] * 2000 + [3], "document 2000: "),
        ([{"body": "a"}], r"document 0: must have the field 'text'.*'body'"),
        (
            ["a text"],
            r"document 0: the model was trained on words with counts .*got a text; .*\(words, counts\)",
        ),
        ([(["dress"], [1]), {"text": "a text"}], r"document 1: the model was trained on words with counts"),
        (np.array([[0.5]]), "columns"),
        (None, "data must be a list .*, got NoneType"),
        (5, "data must be a list .*, got int"),
        (np.array(5), "data must be a list .*, got ndarray"),
        ([3.5], r"document 0: a document must be .*, got 3\.5"),
    ],
)
def test_what_is_not_a_document_is_named(model: Model, documents: object, message: str) -> None:
    with pytest.raises(InputError if "columns" not in message else VocabularyMismatchError, match=message):
        model.predict(documents)
    with pytest.raises(InputError if "columns" not in message else VocabularyMismatchError, match=message):
        model.score_table(documents)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": 5}, "terms must be a list of terms, or .*, got 5"),
        ({"ids": 5}, "ids must be a list of identifiers, got 5"),
        ({"ids": "a"}, "ids must be a list of identifiers, got 'a'"),
    ],
)
def test_options_of_predictions_are_checked(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]],
    model: Model,
    options: dict[str, object],
    message: str,
) -> None:
    with pytest.raises(InputError, match=message):
        model.score_table(reviews[0][:3], **options)
    with refused("words"):
        model.predict([{"words": ["a"], "counts": [1]}], words=5)


@pytest.mark.parametrize("y", ["a", 5, None, ["a"] * 3, [1.0], {"a": 1}, [1j] * 3])
def test_responses_of_other_documents_are_checked_as_in_training(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], model: Model, y: object
) -> None:
    few = reviews[0][:3]
    with refused("y"):
        model.score(few, y)
    with refused("y"):
        model.training_topic_proportions(few, y)


@pytest.mark.parametrize("path", [None, 5, "", ["a"]])
def test_a_path_is_a_string_or_path(model: Model, path: object) -> None:
    for use in (load_model, open_corpus, model.save):
        with pytest.raises(InputError, match="a path must be a string or path that is not empty, got "):
            use(path)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, bool])
@pytest.mark.parametrize("columns", ["the model's", "named"])
def test_repeated_entries_of_a_narrow_matrix_are_added_up(model: Model, dtype: type, columns: str) -> None:
    entries = (np.zeros(300, dtype=int), np.arange(300) % 2)
    narrow = sparse.coo_array((np.ones(300, dtype), entries), shape=(1, model.n_terms))
    counts = np.zeros((1, model.n_terms), dtype=int)
    counts[0, :2] = 150
    terms = None if columns == "the model's" else model.vocabulary
    expected = model.score_table(counts)
    assert model.score_table(narrow, terms=terms).equals(expected)
    assert_array_equal(model.predict(narrow, terms=terms), expected["prediction"].to_numpy())


def test_a_matrix_of_anything_but_counts_is_refused(model: Model) -> None:
    matrix = np.zeros((2, model.n_terms))
    matrix[1, 3] = 0.25
    with pytest.raises(InputError, match=r"got 0\.25 in row 1, column 3"):
        model.predict(matrix)
    with pytest.raises(InputError, match=r"masked value at \(1, 3\)"):
        model.predict(np.ma.masked_equal(matrix, 0.25))
    matrix[1, 3] = -1
    with pytest.raises(InputError, match=r"got -1\.0 in row 1, column 3"):
        model.predict(matrix)


def test_training_topic_proportions_have_seen_the_response_and_predictions_have_not(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], model: Model
) -> None:
    counts, y, _ = reviews
    seen = model.training_topic_proportions(counts, y)
    unseen = model.transform(counts)
    assert_allclose(seen.sum(axis=1), 1)
    coefficients = np.array([c.coefficient for c in sorted(model.coefficients())])
    assert np.corrcoef(seen @ coefficients, y)[0, 1] > np.corrcoef(unseen @ coefficients, y)[0, 1] + 0.05
    without = model.training_topic_proportions(counts, np.full(N, np.nan))
    assert_array_equal(without, unseen)


@pytest.mark.parametrize("form", ["pandas", "pyarrow", "records"])
def test_tables_and_records_in_memory_are_ingested_and_predicted_with_their_identifiers(
    tmp_path: Path, form: str
) -> None:
    frame = pd.DataFrame(
        {
            "key": [f"k{i}" for i in range(8)],
            "text": ["lovely dress", "poor fit"] * 3 + [None, "lovely fit"],
            "y": [5.0, 1.0, None, 2.0] + [4.0, 1.0] * 2,
        }
    )
    records = [{k: None if v != v else v for k, v in row.items()} for row in frame.to_dict("records")]
    documents = {"pandas": frame, "pyarrow": pa.Table.from_pandas(frame), "records": records}[form]
    settings = {"text": "text", "id": "key", "response": "y", "min_df": 1, "max_df": 1.0}
    written = tmp_path / "r.jsonl"
    write_records(written, records)
    with pytest.warns(DataWarning, match="1 of 8 documents has no term"):
        corpus = ingest(documents, tmp_path / "c", **settings)
    with pytest.warns(DataWarning):
        assert corpus.content_hash == ingest(written, tmp_path / "f", **settings).content_hash
    model = train(corpus, n_topics=2, tol=1.0)
    table = model.score_table(documents)
    assert table["id"].to_pylist() == [f"k{i}" for i in range(8)]
    assert table.equals(model.score_table(corpus))
    assert model.predict(documents).tobytes() == model.predict(corpus).tobytes()
    assert model.score(documents) == model.score(corpus)


def test_what_is_no_table_of_texts_is_told_what_to_give() -> None:
    frame = pd.DataFrame({"text": ["lovely dress", "poor fit"] * 4, "y": [5.0, 1.0, 4.0, 2.0] * 2})
    for call, message in (
        (
            lambda: ingest(frame, text="txt"),
            "the DataFrame: has no field 'txt' for the text; .* are: 'text', 'y'",
        ),
        (lambda: ingest(frame, text="y"), "DataFrame, record 0: text 'y' must be a string, got 5"),
        (lambda: ingest(frame[["y"]], text="y"), "got a DataFrame in memory; .* with a column of texts"),
        (
            lambda: train(frame, text="text", response="y"),
            r"got DataFrame; make a corpus .* by dslda\.ingest, .* text=",
        ),
        (lambda: ingest(pd.concat([frame, frame[["y"]]], axis=1), text="text"), "names the column 'y' twice"),
        (
            lambda: ingest(pa.table([["one"], ["two"]], ["text", "text"]), text="text"),
            "names the column 'text' twice",
        ),
        (
            lambda: ingest(["a text " * 50, "another"], text="text"),
            "got a string of 350 characters; give texts as mapp",
        ),
        (lambda: train(frame.text, response=frame.y), r"got Series; make a corpus .* by dslda\.ingest"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_columns_of_a_frame_of_counts_are_matched_by_their_names(
    model: Model, reviews: tuple[sparse.csr_array, np.ndarray, list[str]]
) -> None:
    counts, _, terms = reviews
    frame = pd.DataFrame(counts[:9].toarray(), columns=terms)
    expected = model.predict(counts[:9])
    assert_array_equal(model.predict(frame), expected)
    assert_array_equal(model.predict(frame[terms[::-1]]), expected)


def test_a_model_without_terms_says_what_it_cannot_do(
    reviews: tuple[sparse.csr_array, np.ndarray, list[str]], corpus: Corpus
) -> None:
    counts, y, _ = reviews
    nameless = train(counts, response=y, n_topics=2, tol=1e-2)
    assert nameless.predict(counts).shape == (N,)
    assert nameless.topics(top=1)[0].words[0].isdecimal()
    with pytest.raises(InputError, match="trained on a matrix without terms"):
        nameless.predict(["a text"])
    with pytest.raises(VocabularyMismatchError, match="train with terms="):
        nameless.predict(corpus)


def test_files_are_predicted_as_their_records_are(model: Model, tmp_path: Path) -> None:

    records = [
        {"words": ["dress", "too"], "counts": [1, 2], "key": "a"},
        {"words": [], "counts": [], "key": ""},
        {"words": None, "counts": None, "key": "c"},
    ]
    path = tmp_path / "new.jsonl"
    write_records(path, records)
    (table,) = predict_files(model.scoring_record, path, words="words", counts="counts", id="key")
    assert table["id"].to_pylist() == ["a", "1", "c"]
    expected = model.predict([(["dress", "too"], [1, 2]), ([], []), ([], [])])
    assert_array_equal(table["prediction"].to_numpy(), expected)
    path.write_text(path.read_text() + '{"words": ["dress"], "counts": [-1], "key": "d"}\n')
    with pytest.raises(InputError, match=r"new\.jsonl, line 4: .*-1"):
        list(predict_files(model.scoring_record, path, words="words", counts="counts"))


def test_a_model_of_texts_tokenises_as_in_training(tmp_path: Path) -> None:
    path = tmp_path / "fruit.csv"
    with path.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["key", "body", "stars"])
        for i in range(30):
            rows.writerow(
                [f"k{i}", ["Good apple, good pear: fruit!", "BAD plum & bad fig fruit"][i % 2], [5, 1][i % 2]]
            )
    fruit = ingest(
        path, tmp_path / "fruit.corpus", text="body", id="key", response="stars", max_df=0.5, min_df=1
    )
    model = train(fruit, n_topics=2)
    good, bad = model.predict(["GOOD apple", "bad FIG"])
    assert good > 4 > 2 > bad
    # fields of the training records are where predictions look first
    assert_array_equal(model.predict([{"body": "GOOD apple"}]), [good])
    (table,) = predict_files(model.scoring_record, path)
    assert table["id"].to_pylist()[:2] == ["k0", "k1"]
    assert_array_equal(table["prediction"].to_numpy(), model.predict(fruit))
    # "fruit" is in all documents and was filtered out: it is in the texts, and no more in the corpus
    assert_array_equal(table["oov_share"].to_numpy(), np.full(30, 0.2))
    assert_array_equal(model.score_table(fruit)["oov_share"].to_numpy(), np.zeros(30))
    shares = model.score_table(["fruit", "", "GOOD apple", (["fruit", "good"], [1, 1])])["oov_share"]
    assert shares.to_pylist() == [1.0, None, 0.0, 0.5]
    assert model.score(fruit) > 0.9
    assert repr(model).startswith("Model(gaussian of 'stars': 2 topics")
