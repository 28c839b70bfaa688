from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import math
import re
import uuid
from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import dask.array
import fsspec
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array
from sklearn.feature_extraction.text import CountVectorizer

import dslda
from dslda.cluster.client import ClientLater
from dslda.cluster.runner import SerialRunner
from dslda.corpus.block import DocumentBlock
from dslda.corpus.partitioning import assemble
from dslda.corpus.store import Corpus
from dslda.corpus.text import Analyzer, TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import DataWarning, InputError, OutputExistsError
from dslda.ingestion import vocabulary_selection
from dslda.ingestion.corpus_plan import plan_corpus
from dslda.ingestion.counting import count_chunk
from dslda.ingestion.ingest import ingest
from dslda.inputs import files
from dslda.inputs.fields import Fields
from dslda.inputs.in_memory import BagRecords
from tests.helpers.errors import refused

ALL = {"min_df": 1, "max_df": 1.0}
TINY = ["apple pear", "apple plum", "fig kiwi", "pear fig"]


def json_lines(records) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@pytest.fixture(scope="module")
def reviews(shared_data) -> list[dict]:
    """Real reviews, with quotes, missing titles and, made missing here, ratings."""
    with gzip.open(shared_data / "womens_clothing" / "womens_clothing.jsonl.gz", "rt") as lines:
        found = [json.loads(line) for _, line in zip(range(250), lines, strict=False)]
    for i, review in enumerate(found):
        review["text"] = review["text"].replace(". ", ".\n")  # line ends inside a document
        if i % 17 == 5:
            review["rating"] = None
    return found


def blocks(corpus: Corpus) -> Iterator[DocumentBlock]:
    for i in range(corpus.n_partitions):
        yield corpus.read(i, covariates=corpus.covariate_names, weight=True, doc_id=True)


def dense(corpus: Corpus) -> np.ndarray:
    """Counts of all documents, shape (D, V)."""
    rows = []
    for block in blocks(corpus):
        for a, b in pairwise(block.indptr):
            row = np.zeros(corpus.n_terms, dtype=int)
            row[block.terms[a:b]] = block.counts[a:b]
            rows.append(row)
    return np.array(rows)


def values(corpus: Corpus, name: str) -> np.ndarray:
    return np.concatenate([block.responses[name] for block in blocks(corpus)])


def ids(corpus: Corpus) -> list[str]:
    return [i for block in blocks(corpus) for i in block.doc_id or ()]


# the vocabulary


@pytest.mark.parametrize("n_partitions", [1, 2, 4])
def test_document_frequency_is_counted_over_all_partitions(tmp_path, n_partitions):
    import dask.bag

    bag = dask.bag.from_sequence(TINY, npartitions=n_partitions)
    corpus = ingest(bag, tmp_path / "a.corpus", min_df=2, max_df=1.0)
    assert corpus.vocabulary.terms == ("apple", "fig", "pear")
    assert corpus.vocabulary.document_frequency.tolist() == [2, 2, 2]
    assert dense(corpus).tolist() == [[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 1]]


def chunked(
    documents: list[str], borders: list[int], text_settings: TextSettings, partition_tokens: int | None
):
    """Vocabulary and partitions of documents that are read in chunks with these borders."""
    fields, runner = Fields(text="text"), SerialRunner()
    cuts = [0, *sorted(border % (len(documents) + 1) for border in borders), len(documents)]
    counted = [
        count_chunk([BagRecords(documents[a:b], "chunk")], fields, Analyzer(text_settings))
        for a, b in pairwise(cuts)
    ]
    plan = plan_corpus(runner, counted, fields, settings=text_settings, partition_tokens=partition_tokens)
    parts = [assemble(p.pieces, [plan.blocks[b] for b in p.blocks]) for p in plan.partitions]
    terms = plan.terms
    return terms.vocabulary, parts, (terms.n_all_tokens, terms.n_too_frequent_tokens, terms.too_frequent)


@settings(max_examples=80, deadline=None)
@given(
    documents=st.lists(
        st.lists(st.sampled_from(["aa", "bb", "cc", "Dd", "éé", "苹果", "zz"]), max_size=6).map(" ".join),
        min_size=1,
        max_size=12,
    ),
    borders=st.lists(st.integers(0, 12), max_size=4),
    min_df=st.one_of(st.integers(1, 3), st.floats(0.0, 0.5)),
    max_df=st.floats(0.5, 1.0),
    max_features=st.one_of(st.none(), st.integers(1, 5)),
    partition_tokens=st.one_of(st.none(), st.integers(1, 10)),
)
def test_how_the_input_is_cut_never_changes_anything(
    documents, borders, min_df, max_df, max_features, partition_tokens
):
    text_settings = TextSettings(min_df=min_df, max_df=max_df, max_features=max_features)
    try:
        vocabulary, partitions, left_out = chunked(documents, [], text_settings, partition_tokens)
    except InputError as error:
        with pytest.raises(InputError, match=re.escape(str(error))):
            chunked(documents, borders, text_settings, partition_tokens)
        return
    same, parts, same_left_out = chunked(documents, borders, text_settings, partition_tokens)
    assert same == vocabulary
    assert same_left_out == left_out
    assert left_out[0] == sum(len(document.split()) for document in documents)
    assert same.document_frequency.tolist() == vocabulary.document_frequency.tolist()
    assert len(parts) == len(partitions)
    for part, partition in zip(parts, partitions, strict=True):
        part.validate(len(vocabulary))
        for name in ("indptr", "terms", "counts"):
            assert getattr(part, name).tolist() == getattr(partition, name).tolist()
            assert getattr(part, name).dtype == getattr(partition, name).dtype


@pytest.mark.parametrize(
    "chosen",
    [
        {"min_df": 5, "max_df": 0.25},
        {"min_df": 0.01, "max_df": 100},
        {"min_df": 2, "max_df": 0.9, "stop_words": "english"},
        {"min_df": 3, "max_df": 0.5, "ngrams": (1, 2), "lowercase": False},
        {"min_df": 1, "max_df": 1.0, "token_pattern": r"[a-z]+'?[a-z]*", "stop_words": ["the", "and"]},
    ],
)
@pytest.mark.parametrize("name", ["movie_reviews", "womens_clothing"])
@pytest.mark.filterwarnings("ignore::dslda.exceptions.DataWarning")
def test_counts_are_those_of_countvectorizer_on_real_data(shared_data, tmp_path, name, chosen):
    with gzip.open(shared_data / name / f"{name}.jsonl.gz", "rb") as lines:
        data = [line for _, line in zip(range(150 if name == "movie_reviews" else 700), lines, strict=False)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(data))
    corpus = ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", text="text", **chosen)
    keywords = {"ngram_range" if key == "ngrams" else key: value for key, value in chosen.items()}
    vectorizer = CountVectorizer(**keywords)
    expected = vectorizer.fit_transform([json.loads(line)["text"] for line in data])
    assert corpus.vocabulary.terms == tuple(vectorizer.get_feature_names_out())
    assert corpus.vocabulary.document_frequency.tolist() == np.bincount(expected.indices).tolist()
    assert corpus.n_tokens == expected.sum()
    # all tokens once more, before any filter
    counted = [Counter(vectorizer.build_analyzer()(json.loads(line)["text"])) for line in data]
    documents = Counter(term for counts in counted for term in counts)
    most = chosen["max_df"] if isinstance(chosen["max_df"], int) else chosen["max_df"] * len(data)
    assert corpus.n_all_tokens == sum(counts.total() for counts in counted)
    assert corpus.oov_share == 1 - corpus.n_tokens / corpus.n_all_tokens
    assert corpus.too_frequent == tuple(sorted(term for term, n in documents.items() if n > most))
    n_too_frequent = sum(counts[term] for counts in counted for term in corpus.too_frequent)
    assert corpus.manifest.n_too_frequent_tokens == n_too_frequent
    assert corpus.new_share == 1 - corpus.n_tokens / (corpus.n_all_tokens - n_too_frequent)
    for block, first in zip(
        blocks(corpus), np.cumsum([0, *(p.n_documents for p in corpus.partitions)]), strict=False
    ):
        rows = expected[first : first + block.n_documents].sorted_indices()
        assert block.indptr.tolist() == rows.indptr.tolist()
        assert block.terms.tolist() == rows.indices.tolist()
        assert block.counts.tolist() == rows.data.tolist()


@pytest.mark.filterwarnings("ignore::dslda.exceptions.DataWarning")
def test_terms_that_are_too_frequent_are_remembered_up_to_a_limit(tmp_path, monkeypatch):
    texts = ["aa bb", "aa bb dd", "cc aa dd", "cc yy", "aa zz"]
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": text} for text in texts))
    for limit, expected in ((4, ("aa", "bb", "cc", "dd")), (3, ("aa", "bb", "cc"))):
        monkeypatch.setattr(vocabulary_selection, "MOST_TOO_FREQUENT", limit)
        kept = ingest(tmp_path / "a.jsonl", text="text", min_df=1, max_df=1)
        assert kept.too_frequent == expected
        assert kept.manifest.n_too_frequent_tokens == {4: 10, 3: 8}[limit]


@pytest.mark.filterwarnings("ignore::dslda.exceptions.DataWarning")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_max_features_keeps_the_most_frequent_and_of_equals_the_first(tmp_path, n):
    texts = ["dd dd cc bb", "cc bb aa aa", "ee"]  # aa, bb, cc and dd come twice
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": text} for text in texts))
    corpus = ingest(tmp_path / "a.jsonl", text="text", max_features=n, **ALL)
    assert corpus.vocabulary.terms == ("aa", "bb", "cc", "dd", "ee")[:n]
    assert (corpus.n_tokens, corpus.n_all_tokens, corpus.too_frequent) == (2 * min(n, 4) + n // 5, 9, ())


def test_shares_are_of_all_documents_empty_ones_too(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": t} for t in ["aa bb", "aa", "", ""]))
    with pytest.warns(DataWarning):
        corpus = ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", text="text", min_df=1, max_df=0.5)
    assert corpus.vocabulary.terms == ("aa", "bb")  # "aa" is in half of the four


@pytest.mark.parametrize("kind", ["list", "file", "mapping", "vocabulary", "corpus", "path of a corpus"])
def test_a_given_vocabulary_is_taken_as_it_is(tmp_path, kind):
    terms = ["pear", "unknown", "apple"]
    (tmp_path / "terms.txt").write_text("\n".join(terms) + "\n")
    (tmp_path / "b.jsonl").write_bytes(json_lines([{"text": "pear"}]))
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": t} for t in TINY))
    vocabulary = {
        "list": lambda: terms,
        "file": lambda: tmp_path / "terms.txt",
        "mapping": lambda: {"apple": 2, "pear": 0, "unknown": 1},
        "vocabulary": lambda: Vocabulary(terms),
        "corpus": lambda: ingest(tmp_path / "b.jsonl", text="text", vocabulary=terms),
        "path of a corpus": lambda: (
            ingest(tmp_path / "b.jsonl", tmp_path / "b.corpus", text="text", vocabulary=terms).path
        ),
    }[kind]()
    with pytest.warns(DataWarning, match="1 of 4 documents has no term"):
        corpus = ingest(tmp_path / "a.jsonl", text="text", vocabulary=vocabulary)
    assert corpus.vocabulary.terms == tuple(terms)
    assert corpus.vocabulary.document_frequency.tolist() == [2, 0, 2]
    assert dense(corpus).tolist() == [[1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert (corpus.n_all_tokens, corpus.oov_share, corpus.new_share) == (8, 0.5, 0.5)


def test_terms_that_no_document_can_have_are_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": t} for t in ["apple pear", "pear fig"]))
    terms = ["pear", "Apple", "apple pear", "unknown"]
    with pytest.warns(DataWarning) as caught:
        corpus = ingest(tmp_path / "a.jsonl", tmp_path / "c.corpus", text="text", vocabulary=terms)
    (warning,) = (w.message for w in caught)
    assert warning.place == "vocabulary"
    assert "'Apple', 'apple pear'" in warning.reason
    assert "unknown" not in warning.reason
    # the corpus keeps them, and who appends to it need not hear of them again
    assert corpus.vocabulary.terms == tuple(terms)
    ingest(tmp_path / "a.jsonl", tmp_path / "c.corpus", append=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint64, np.float32, bool])
@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_repeated_entries_of_a_narrow_matrix_are_added_up(dtype, form):
    indices, pointers = np.zeros(303, np.int32), [0, 300, 303]
    matrix = {
        "coo": lambda: coo_array((np.ones(303, dtype), ([0] * 300 + [1] * 3, [0] * 303)), shape=(2, 1)),
        "csr": lambda: csr_array((np.ones(303, dtype), indices, pointers), shape=(2, 1)),
        "csc": lambda: csr_array((np.ones(303, dtype), indices, pointers), shape=(2, 1)).tocsc(),
    }[form]()
    corpus = ingest(matrix, vocabulary=["a"], response={"y": [0, 1]})
    assert corpus.read(0).counts.tolist() == [300, 3]


def test_masked_values_beside_a_matrix_are_missing():
    columns = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
    matrix = csr_array(np.ones((3, 1), dtype=bool))
    corpus = ingest(matrix, vocabulary=["a"], response={"y": columns}, covariates={"x": columns})
    for summaries in (corpus.response_summaries, corpus.covariate_summaries):
        assert [summary.missing for summary in summaries.values()] == [1]
    with pytest.raises(InputError, match="weight"):
        ingest(matrix, vocabulary=["a"], weight=columns)


# one corpus from every kind of input


@pytest.fixture(scope="module")
def expected(reviews, tmp_path_factory) -> Corpus:
    folder = tmp_path_factory.mktemp("expected")
    (folder / "a.jsonl").write_bytes(json_lines(reviews))
    return ingest(folder / "a.jsonl", folder / "a.corpus", **RECORDS)


RECORDS = {
    "text": "text",
    "id": "id",
    "response": ["rating", "recommended"],
    "covariates": "age",
    "weight": "positive_feedback",
    "min_df": 2,
    "max_df": 0.5,
    "partition_tokens": 2500,
}


@pytest.mark.parametrize(
    "kind",
    [
        "jsonl.gz",
        "jsonl.zst",
        "csv",
        "csv.gz",
        "parquet",
        "many files",
        "memory",
        "bag",
        "dataframe",
        "cut small",
    ],
)
def test_the_same_records_give_the_same_corpus_from(kind, reviews, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MIN_CHUNK_BYTES", 20_000)
    inputs = tmp_path / f"a.{kind}"
    if kind == "jsonl.gz":
        inputs.write_bytes(gzip.compress(json_lines(reviews)))
    elif kind == "jsonl.zst":
        inputs.write_bytes(zstandard.compress(json_lines(reviews)))
    elif kind.startswith("csv"):
        buffer = io.StringIO(newline="")
        writer = csv.DictWriter(buffer, fieldnames=list(reviews[0]))
        writer.writeheader()
        writer.writerows(reviews)
        data = buffer.getvalue().encode()
        inputs.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    elif kind == "parquet":
        pd = pytest.importorskip("pandas")
        pd.DataFrame(reviews).to_parquet(inputs, row_group_size=77)
    elif kind == "many files":
        inputs = tmp_path / "folder"
        inputs.mkdir()
        for i in range(0, len(reviews), 3):
            (inputs / f"part-{i:05d}.jsonl").write_bytes(json_lines(reviews[i : i + 3]))
        (inputs / "part-99999.jsonl").write_bytes(b"")
    elif kind == "memory":
        inputs = "memory://ingest-test/a.jsonl"
        fsspec.filesystem("memory").pipe(inputs, json_lines(reviews))
        out = "memory://ingest-test/a.corpus"
        corpus = ingest(inputs, out, overwrite=True, **RECORDS)
        assert corpus.content_hash == expected.content_hash
        assert corpus.path == out
        return
    elif kind == "bag":
        import dask.bag

        inputs = dask.bag.from_sequence(reviews, npartitions=7)
    elif kind == "dataframe":
        import dask.dataframe
        import pandas as pd

        inputs = dask.dataframe.from_pandas(pd.DataFrame(reviews), npartitions=5)
    else:
        inputs = tmp_path / "a.jsonl"
        inputs.write_bytes(json_lines(reviews))
    corpus = ingest(inputs, tmp_path / "a.corpus", **RECORDS)
    assert corpus.content_hash == expected.content_hash


def test_rows_stay_in_order_with_all_that_belongs_to_them(reviews, expected):
    assert ids(expected) == [review["id"] for review in reviews]
    ratings = [math.nan if review["rating"] is None else review["rating"] for review in reviews]
    assert np.array_equal(values(expected, "rating"), ratings, equal_nan=True)
    assert values(expected, "recommended").tolist() == [review["recommended"] for review in reviews]
    parts = list(blocks(expected))
    assert [a for p in parts for a in p.covariates["age"]] == [review["age"] for review in reviews]
    assert [w for p in parts for w in p.weight] == [review["positive_feedback"] for review in reviews]
    assert expected.response_summaries["rating"].missing == sum(map(math.isnan, ratings))


def test_partitions_are_balanced_by_tokens(expected):
    tokens = [partition.n_tokens for partition in expected.partitions]
    assert expected.n_partitions == round(expected.n_tokens / 2500)
    longest = max(int(np.diff(block.indptr).max()) for block in blocks(expected)) * 3
    assert max(tokens) - min(tokens) < longest


def test_counted_words_lda_c_and_a_matrix_give_the_same_corpus(reviews, tmp_path):
    documents = [review["text"] for review in reviews]
    vectorizer = CountVectorizer(min_df=2, max_df=0.5)
    matrix = vectorizer.fit_transform(documents)
    terms = vectorizer.get_feature_names_out()
    (tmp_path / "terms.txt").write_text("".join(f"{term}\n" for term in terms))
    rows = [(row.indices.tolist(), row.data.tolist()) for row in matrix]
    counted = [
        {"words": [str(terms[i]) for i in indices], "counts": data, "rating": review["rating"]}
        for (indices, data), review in zip(rows, reviews, strict=True)
    ]
    (tmp_path / "a.jsonl").write_bytes(json_lines(counted))
    (tmp_path / "a.ldac").write_text(
        "".join(
            " ".join([str(len(i)), *(f"{t}:{c}" for t, c in zip(i, d, strict=True))]) + "\n" for i, d in rows
        )
    )
    import pandas as pd

    pd.DataFrame(counted).to_parquet(tmp_path / "a.parquet")
    fields = {"words": "words", "counts": "counts"}
    ratings = [math.nan if review["rating"] is None else review["rating"] for review in reviews]
    filtered = [
        ingest(tmp_path / name, response="rating", min_df=2, max_df=0.5, **fields)
        for name in ("a.jsonl", "a.parquet")
    ]
    assert filtered[0].content_hash == filtered[1].content_hash
    assert filtered[0].vocabulary.terms == tuple(terms)
    assert (dense(filtered[0]) == matrix.toarray()).all()

    with_responses = [
        ingest(tmp_path / "a.jsonl", response="rating", vocabulary=terms, **fields),
        ingest(matrix, response={"rating": ratings}, vocabulary=terms),
        ingest(matrix.tocoo(), response={"rating": np.array(ratings)}, vocabulary=tmp_path / "terms.txt"),
    ]
    assert len({corpus.content_hash for corpus in with_responses}) == 1
    without = [
        ingest(tmp_path / "a.jsonl", vocabulary=terms, **fields),
        ingest(tmp_path / "a.ldac", vocabulary=tmp_path / "terms.txt"),
        ingest(matrix, vocabulary=list(terms)),
    ]
    assert len({corpus.content_hash for corpus in without}) == 1
    # what was left out before documents held positions in a vocabulary nobody knows
    for counted_here, *by_position in (with_responses, without):
        assert (counted_here.oov_share, counted_here.new_share) == (0.0, 0.0)
        assert [corpus.n_all_tokens for corpus in by_position] == [None, None]
        assert [corpus.new_share for corpus in by_position] == [None, None]
    assert (dense(without[0]) == matrix.toarray()).all()


def test_a_folder_of_text_files_gives_the_corpus_of_its_texts(reviews, tmp_path):
    order = sorted(range(100), key=lambda i: f"{i % 7}/{i}.txt")
    for i in range(100):
        path = tmp_path / "texts" / str(i % 7) / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(reviews[i]["text"])
    records = [{"text": reviews[i]["text"], "path": f"{i % 7}/{i}.txt"} for i in order]
    (tmp_path / "a.jsonl").write_bytes(json_lines(records))
    corpus = ingest(tmp_path / "texts", min_df=2)
    assert corpus.content_hash == ingest(tmp_path / "a.jsonl", text="text", id="path", min_df=2).content_hash
    assert ids(corpus)[:2] == ["0/0.txt", "0/14.txt"]


def test_a_matrix_takes_identifiers_covariates_and_weights(tmp_path):
    from scipy.sparse import csr_array

    matrix = csr_array(np.array([[1, 0, 2], [0, 3, 0], [0, 0, 1]]))
    corpus = ingest(
        matrix,
        vocabulary=["a", "b", "c"],
        response={"y": [1.5, 2, None]},
        covariates={"x": [1, 2, 3]},
        weight=np.array([1.0, 0.5, 2.0]),
        id=["d", "e", "f"],
    )
    assert dense(corpus).tolist() == matrix.toarray().tolist()
    (block,) = blocks(corpus)
    assert block.doc_id == ("d", "e", "f")
    assert block.covariates["x"].tolist() == [1, 2, 3]
    assert block.weight.tolist() == [1.0, 0.5, 2.0]
    assert corpus.response_summaries["y"].missing == 1


# values


def test_numbers_are_taken_as_files_write_them(tmp_path):
    written = [1, 2.5, "3", " 4e0 ", True, False, None, "", "nan", math.nan]
    records = [{"text": "word", "y": y} for y in written] + [{"text": "word"}]
    (tmp_path / "a.jsonl").write_bytes(json_lines(records))
    corpus = ingest(tmp_path / "a.jsonl", text="text", response="y", **ALL)
    missing = [math.nan] * 5
    assert np.array_equal(values(corpus, "y"), [1, 2.5, 3, 4, 1, 0, *missing], equal_nan=True)


def test_documents_without_identifier_are_named_by_their_row(tmp_path):
    doc_ids = ["x", None, 7, "", "z"]
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "word", "id": i} for i in doc_ids))
    assert ids(ingest(tmp_path / "a.jsonl", text="text", id="id", **ALL)) == ["x", "1", "7", "3", "z"]
    assert ids(ingest(tmp_path / "a.jsonl", text="text", **ALL)) == ["0", "1", "2", "3", "4"]


def test_repeated_identifiers_are_counted_over_all_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MIN_CHUNK_BYTES", 1)
    for name, doc_ids in (("a", ["x", "y", "x"]), ("b", ["x", "z", "z"])):
        (tmp_path / f"{name}.jsonl").write_bytes(json_lines({"text": "word", "id": i} for i in doc_ids))
    told = r"3 documents repeat the identifier \(field 'id'\) of another.*both sides of a hold-out"
    with pytest.warns(DataWarning, match=told) as caught:
        corpus = ingest(tmp_path, text="text", id="id", format="jsonl", **ALL)
    assert corpus.n_documents == 6
    assert caught[0].filename == __file__
    with pytest.warns(DataWarning, match="1 document repeats the identifier of another"):
        ingest(csr_array(np.ones((3, 1), dtype=int)), vocabulary=["word"], id=["x", "y", "x"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stopwords": "english"}, r"ingest\(\) has no keyword 'stopwords' \(write stop_words=\)$"),
        ({"ngram_range": (1, 2)}, r"\(write ngrams=\)$"),
        ({"colour": 1}, "'colour'$"),
    ],
)
def test_keywords_by_another_name_are_told_the_right_one(given, message):
    with pytest.raises(TypeError, match=message):
        ingest("nowhere.jsonl", text="text", **given)


def test_empty_documents_stay_as_rows_and_are_reported(tmp_path, caplog):
    texts = ["word", None, "", "!?", "word"]
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": t, "y": i} for i, t in enumerate(texts)))
    with (
        caplog.at_level(logging.INFO, "dslda"),
        pytest.warns(
            DataWarning, match=r"3 of 5 documents have no term of the vocabulary \(1 have no text at all\)"
        ),
    ):
        corpus = ingest(tmp_path / "a.jsonl", text="text", response="y", **ALL)
    assert dense(corpus).tolist() == [[1], [0], [0], [0], [1]]
    assert values(corpus, "y").tolist() == [0, 1, 2, 3, 4]
    assert corpus.n_empty == 3
    assert "3 of 5 documents" not in caplog.text  # the command line shows warnings and log: once is enough


def test_lone_surrogates_in_json_do_not_stop_it(tmp_path):
    line = b'{"text": "fine \\ud800 word\\udfff", "id": "\\ud800"}\n'
    (tmp_path / "a.jsonl").write_bytes(line)
    corpus = ingest(tmp_path / "a.jsonl", text="text", id="id", token_pattern=r"\S+", **ALL)
    assert corpus.vocabulary.terms == ("?", "fine", "word?")


def test_without_out_the_corpus_is_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_bytes(json_lines({"text": t} for t in TINY))
    corpus = dslda.ingest("a.jsonl", text="text", **ALL)
    assert corpus.path.startswith("memory://")
    assert corpus.n_documents == 4
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("form", ["memory://{}", "simplecache::memory://folder/{}"])
def test_what_is_in_memory_is_for_this_process_alone_however_it_is_named(tmp_path, form):
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": t, "y": i} for i, t in enumerate(TINY)))
    out = form.format(f"dslda-{uuid.uuid4().hex}.corpus")
    corpus = dslda.ingest(tmp_path / "a.jsonl", out, text="text", response="y", partition_tokens=4, **ALL)
    assert corpus.path == out
    assert corpus.n_partitions > 1
    later = ClientLater(lambda: pytest.fail("workers were started"), here=True)
    refused = "must be where workers can open it; it is in the memory of this process"
    with pytest.raises(InputError, match=refused):
        dslda.train(corpus, n_topics=2, client=later)
    model = dslda.train(corpus, n_topics=2, doc_topic_prior="1/K", max_iter=5, tol=1.0)
    with pytest.raises(InputError, match=refused):
        dslda.score(model, corpus, tmp_path / "scores", client=later)


def test_progress_is_told_by_stage(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": t} for t in TINY))
    seen = []
    ingest(tmp_path / "a.jsonl", text="text", progress=lambda *told: seen.append(told), **ALL)
    assert seen == [("read", 1, 1), ("write", 1, 1)]


# bad input


GOOD = {"text": "apple pear", "y": 1.0, "x": 1.0, "w": 1.0, "words": ["a"], "counts": [1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": "high"}, r"a\.jsonl, line 3: response 'y' must be a number, got 'high'"),
        ({"y": [1]}, r"line 3: response 'y' must be a number, got \[1\]"),
        ({"y": math.inf}, r"line 3: response 'y' must be finite, with a finite square, got inf"),
        ({"y": -1e300}, r"line 3: response 'y' must be finite, with a finite square, got -1e\+300"),
        ({"y": "1_0"}, r"line 3: response 'y' must be a number, got '1_0'"),
        ({"y": 10**400}, r"line 3: response 'y' must be finite"),
        ({"x": "old"}, r"line 3: covariate 'x' must be a number, got 'old'"),
        ({"w": -1}, r"line 3: weight 'w' must not be negative, got -1"),
        ({"w": None}, r"line 3: weight 'w' must be a number for every document"),
        ({"text": 17}, r"line 3: text 'text' must be a string, got 17"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_by_file_line_and_field(tmp_path, change, message):
    (tmp_path / "a.jsonl").write_bytes(json_lines([GOOD, {**GOOD, "y": 2}, {**GOOD, **change}]))
    with pytest.raises(InputError, match=message):
        ingest(
            tmp_path / "a.jsonl",
            tmp_path / "a.corpus",
            text="text",
            response="y",
            covariates="x",
            weight="w",
            **ALL,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": [-1]}, r"a\.jsonl, line 2: .*counts must be whole numbers"),
        ({"counts": [1.5]}, r"line 2: .*counts must be whole numbers"),
        ({"counts": [True]}, r"line 2: .*counts must be whole numbers"),
        ({"counts": ["1"]}, r"line 2: .*counts must be whole numbers"),
        ({"counts": [2**31]}, r"line 2: a count must be at most 2147483647, got 2147483648"),
        (
            {"counts": [1, 2]},
            r"line 2: words 'words' and counts 'counts' must be lists of the same length, got 1 and 2",
        ),
        ({"counts": None}, r"line 2: words .* must be lists of the same length, got 1 and 0"),
        ({"words": "a"}, r"line 2: words 'words' must be a list, got 'a'"),
        ({"words": [7]}, r"line 2: words must be strings, got 7"),
    ],
)
def test_counted_words_that_cannot_be_used_are_named(tmp_path, change, message):
    (tmp_path / "a.jsonl").write_bytes(json_lines([GOOD, {**GOOD, **change}]))
    with pytest.raises(InputError, match=message):
        ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", words="words", counts="counts", **ALL)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("records", "arguments", "message"),
    [
        ([GOOD], {"text": "body"}, r"no field 'body' for the text; fields there are: 'text', 'y'"),
        ([GOOD], {"text": "text", "response": "z"}, "no field 'z' for the response; fields there are"),
        ([GOOD], {"text": "text", "id": "z"}, "no field 'z' for the id"),
        (
            [GOOD, {"y": 1}],
            {"text": "text"},
            r"line 2: has no field 'text' for the text; fields there are: 'y'",
        ),
        (
            [GOOD],
            {},
            "the field of the documents must be named; fields there are: 'text', .*; name that of the texts with text=",
        ),
        ([], {"text": "text"}, r"no documents: .*a\.jsonl is empty"),
        ([GOOD, GOOD], {"text": "text", "response": "y"}, "response 'y' is 1 in all 2 documents"),
        (
            [{**GOOD, "y": None}],
            {"text": "text", "response": "y"},
            "response 'y' is missing in all 1 documents",
        ),
        (
            [GOOD] * 3,
            {"text": "text", "min_df": 4},
            "^min_df and max_df leave none of the 2 terms in 3 documents: 2 are in fewer than 4 of them, 0 in",
        ),
        (
            [GOOD] * 3,
            {"text": "text", "max_df": 0.5},
            "2 in more than 1.5; lower min_df, or raise max_df",
        ),
        (
            [{"text": "!"}],
            {"text": "text"},
            "none of 1 document has any; look at token_pattern and stop_words",
        ),
        ([GOOD], {"text": "text", "words": "words"}, "text and words must not both be named"),
        ([GOOD], {"words": "words"}, "words and counts must both be named"),
        ([GOOD], {"text": "text", "response": ["y", "y"]}, "response must name each field once"),
        ([GOOD], {"text": "text", "response": {"y": [1]}}, "response must be the name of a field or several"),
        ([GOOD], {"text": 3}, "text must be the name of a field, got 3"),
        (
            [GOOD],
            {"text": "text", "partition_tokens": 0},
            "partition_tokens must be a whole number >= 1 or None",
        ),
        ([GOOD], {"text": "text", "min_df": -1}, "min_df must be"),
        ([GOOD], {"text": "text", "vocabulary": []}, "vocabulary must have at least one term"),
        ([GOOD], {"text": "text", "vocabulary": ["a", "a"]}, "terms must be distinct"),
        ([GOOD], {"text": "text", "vocabulary": "nowhere.txt"}, r"nowhere\.txt: cannot be opened"),
    ],
)
def test_an_input_that_cannot_be_used_is_refused_and_leaves_nothing(tmp_path, records, arguments, message):
    (tmp_path / "a.jsonl").write_bytes(json_lines(records))
    with pytest.raises(InputError, match=message):
        ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", **(ALL | arguments))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "a.jsonl.gz",
            gzip.compress(b'{"text": "word"}\n' * 50, mtime=0)[:-9],
            r"a\.jsonl\.gz: the gzip file is cut short",
        ),
        ("a.jsonl", b'{"text": "word"}\n{"text": "w\xe9"}\n', r"a\.jsonl, line 2: not UTF-8"),
        ("a.jsonl", b'{"text": "word"}\ntext\n', r"a\.jsonl, line 2: not JSON: Expecting value at column 1"),
        (
            "a.jsonl",
            b'{"text": "go',
            r"a\.jsonl, line 1: not JSON: Unterminated string starting at column 10",
        ),
        ("a.csv", b"text\n", "no documents: the input is empty"),
        ("a.csv", b"", r"no documents: .*a\.csv is empty"),
        ("a.csv", b"title\nx\n", r"a\.csv: has no field 'text' for the text; fields there are: 'title'$"),
        ("a.csv", b"text;title\nx;y\n", r"fields there are: 'text;title'; if ';' is .*separator=';'$"),
        ("a.csv", b"text\tt\nx\ty\n", r"fields there are: 'text\\tt'; if '\\t' is .*separator='\\t'$"),
        ("a.csv", b"text\nw\xe9\n", r"a\.csv, line 2: not UTF-8.*encoding='cp1252' if it is cp1252$"),
        (
            "a.csv",
            "text\nword\n".encode("utf-16"),
            r"a\.csv, line 1: not UTF-8.*encoding='utf-16' if it is utf-16$",
        ),
        ("a.parquet", b"PAR1", r"a\.parquet: not a Parquet file"),
        ("a.parquet", b"", r"no documents: .*a\.parquet is empty"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_and_leaves_nothing(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        ingest(tmp_path / name, tmp_path / "a.corpus", text="text", **ALL)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_text_files_and_lda_c_have_no_fields(tmp_path):
    (tmp_path / "a.txt").write_text("word")
    with refused("text", "response"):
        ingest(tmp_path / "a.txt", text="text", response="y")
    (tmp_path / "a.ldac").write_text("1 0:1\n")
    with refused("response"):
        ingest(tmp_path / "a.ldac", response="y", vocabulary=["a"])
    with refused("vocabulary"):
        ingest(tmp_path / "a.ldac")
    with refused("stop_words"):
        ingest(tmp_path / "a.ldac", vocabulary=["a"], stop_words="english")


def test_a_matrix_that_does_not_fit_is_refused():
    matrix = csr_array(np.array([[1, 0], [0, 2]]))
    with pytest.raises(InputError, match="a column for each of the 3 terms of the vocabulary, got 2"):
        ingest(matrix, vocabulary=["a", "b", "c"])
    with pytest.raises(InputError, match="'y' must have a value for each of 2 rows, got 3"):
        ingest(matrix, vocabulary=["a", "b"], response={"y": [1, 2, 3]})
    with refused("response"):
        ingest(matrix, vocabulary=["a", "b"], response="y")
    with refused("response", "covariates"):
        ingest(matrix, vocabulary=["a", "b"], response={"y": [1, 2]}, covariates={"y": [3, 4]})
    with refused("counts", place="matrix, row 1"):
        ingest(matrix * 0.75 + csr_array(np.array([[0.25, 0], [0, 0]])), vocabulary=["a", "b"])


def test_an_output_that_is_there_is_kept_unless_overwritten(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": t} for t in TINY))
    first = ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", text="text", **ALL)
    with pytest.raises(OutputExistsError, match=r"a\.corpus is there already"):
        ingest("not even looked at", tmp_path / "a.corpus", text="text")
    # a failure leaves the old one
    with refused("min_df", "max_df"):
        ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", text="text", min_df=4, overwrite=True)
    assert dslda.open_corpus(tmp_path / "a.corpus").content_hash == first.content_hash
    second = ingest(
        tmp_path / "a.jsonl", tmp_path / "a.corpus", text="text", min_df=2, max_df=1.0, overwrite=True
    )
    assert second.n_terms == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.corpus", "a.jsonl"]


def test_a_failure_while_writing_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": t} for t in TINY))

    def full_disk(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dslda.corpus.writer.CorpusWriter.write_partition", full_disk)
    with pytest.raises(OSError, match="No space left"):
        ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", text="text", **ALL)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_the_corpus_tells_where_it_came_from(expected):
    assert expected.provenance["format"] == "jsonl"
    assert expected.provenance["n_files"] == 1
    assert expected.provenance["fields"]["rating"] == "response"
    assert expected.text_settings == TextSettings(min_df=2, max_df=0.5)


@pytest.mark.parametrize("collect", [list, tuple, deque, lambda rows: dict(enumerate(rows)).values(), iter])
def test_mappings_are_read_from_any_collection(collect):
    rows = [{"text": text, "y": float(i)} for i, text in enumerate(TINY)]
    assert ingest(collect(rows), text="text", response="y", **ALL).content_hash == (
        ingest(rows, text="text", response="y", **ALL).content_hash
    )


def test_a_vocabulary_file_of_carriage_returns_is_refused(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"apple\rpear\r")
    rows = [{"text": text, "y": float(i)} for i, text in enumerate(TINY)]
    with pytest.raises(InputError) as error:
        ingest(rows, text="text", response="y", vocabulary=tmp_path / "v.txt")
    assert error.value.place == f"{tmp_path}/v.txt, line 1"


@pytest.mark.parametrize("dimensions", [1, 2])
def test_matrices_of_other_kinds_are_refused_as_what_they_are(dimensions):
    matrix = coo_array(np.ones(3)) if dimensions == 1 else dask.array.ones((3, 3))
    with pytest.raises(InputError) as error:
        ingest(matrix, vocabulary=list("abc"), response={"y": [0, 1, 2]})
    assert "two-dimensional" in error.value.reason or "compute() an array of counts" in error.value.remedy
