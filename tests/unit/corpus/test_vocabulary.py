from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslda.corpus.vocabulary import Vocabulary, vocabulary_of
from dslda.exceptions import InputError
from tests.helpers.errors import refused

TERMS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True, max_size=30)


def test_terms_have_their_position_as_id():
    vocabulary = Vocabulary(["pear", "apple", "naïve"], [3, 2, 1])
    assert vocabulary.terms == ("pear", "apple", "naïve")
    assert vocabulary.index == {"pear": 0, "apple": 1, "naïve": 2}
    assert vocabulary.document_frequency.tolist() == [3, 2, 1]
    assert len(vocabulary) == 3


def test_document_frequency_cannot_be_changed():
    given_ = np.array([3, 2], dtype=np.int64)
    vocabulary = Vocabulary(["a", "b"], given_)
    given_[0] = 7
    assert vocabulary.document_frequency.tolist() == [3, 2]
    with pytest.raises(ValueError, match="read-only"):
        vocabulary.document_frequency[0] = 7


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab", "c"], ["a", "bc"]),
        (["a", ""], ["", "a"]),
        (["a", ""], ["a"]),
        (["a", "b"], ["b", "a"]),
        (["é"], ["e"]),
    ],
)
def test_hash_tells_vocabularies_of_the_same_letters_apart(one, other):
    assert Vocabulary(one).sha256 != Vocabulary(other).sha256
    assert Vocabulary(one) != Vocabulary(other)


def test_hash_is_the_one_of_the_format_specification():
    raw = "pearnaïve".encode()
    expected = hashlib.sha256(np.array([2, 0, 4, 10], dtype="<i8").tobytes() + raw).hexdigest()
    assert Vocabulary(["pear", "naïve"]).sha256 == expected


def test_document_frequencies_play_no_part_in_equality():
    assert Vocabulary(["a", "b"], [1, 2]) == Vocabulary(["a", "b"])
    assert hash(Vocabulary(["a", "b"], [1, 2])) == hash(Vocabulary(["a", "b"]))
    assert Vocabulary(["a"]) != ("a",)


@given(TERMS)
def test_bytes_and_pickle_give_the_same_vocabulary_back(terms):
    vocabulary = Vocabulary(terms, range(len(terms)))
    for copy in (
        Vocabulary.from_bytes(*vocabulary.to_bytes(), vocabulary.document_frequency),
        pickle.loads(pickle.dumps(vocabulary)),
    ):
        assert copy == vocabulary
        assert copy.terms == tuple(terms)
        assert copy.index == vocabulary.index
        assert np.array_equal(copy.document_frequency, vocabulary.document_frequency)


@given(TERMS, TERMS)
def test_alignment_finds_each_term_of_the_other_vocabulary(ours, theirs):
    alignment = Vocabulary(ours).alignment(Vocabulary(theirs))
    assert alignment.dtype == np.int32
    assert alignment.tolist() == [ours.index(term) if term in ours else -1 for term in theirs]


def test_pickle_leaves_the_index_behind():
    vocabulary = Vocabulary(f"term{i}" for i in range(1000))
    before = len(pickle.dumps(vocabulary))
    assert vocabulary.index["term7"] == 7
    assert len(pickle.dumps(vocabulary)) <= before + 100


@pytest.mark.parametrize(
    ("terms", "frequency", "message"),
    [
        (["a", "b", "a"], None, "'a' comes again at position 2"),
        (["a", 3], None, "must be strings, got 3 at position 1"),
        (["a", "b"], [1], r"one number for each of the 2 terms, got an array of shape \(1,\)"),
    ],
)
def test_wrong_vocabulary_is_refused(terms, frequency, message):
    with pytest.raises(InputError, match=message):
        Vocabulary(terms, frequency)


def test_term_that_utf8_cannot_hold_is_refused_by_name():
    with pytest.raises(InputError, match=r"term 1 must be text that UTF-8 can hold, got '\\ud800'"):
        Vocabulary(["a", "\ud800"]).to_bytes()


def test_size_counts_the_terms():
    assert Vocabulary("x" * 50 + str(i) for i in range(1000)).__sizeof__() > 50_000


@pytest.mark.parametrize("whole", [int, np.int64, np.int32])
def test_a_mapping_holds_positions(whole):
    vocabulary = Vocabulary({"zebra": whole(2), "apple": whole(0), "mango": whole(1)})
    assert vocabulary == Vocabulary(["apple", "mango", "zebra"])


def test_a_vocabulary_iterates_over_its_terms():
    vocabulary = Vocabulary(["pear", "apple"])
    assert list(vocabulary) == ["pear", "apple"]
    assert Vocabulary(vocabulary) == vocabulary
    assert "apple" in vocabulary


@pytest.mark.parametrize(
    "terms",
    [
        {"a", "b"},
        frozenset("ab"),
        {"a": 0, "b": 2},
        {"a": 1, "b": 2},
        {"a": 0, "b": 0},
        {"a": -1, "b": 0},
        {"a": 0, "b": 1.0},
        {"a": False, "b": True},
        {"a": "0", "b": "1"},
        {0: "a", 1: "b"},
        {1: 0},
        {"a": 1, "b": 0}.keys(),
    ],
)
def test_terms_without_an_order_are_refused(terms):
    with pytest.raises(InputError) as error:
        Vocabulary(terms)
    assert error.value.place == "vocabulary"


@pytest.mark.parametrize(
    "terms",
    [
        {"a": 0, "b": 1}.keys(),
        dict.fromkeys("ab").keys(),
        {"a": 7, "b": 3}.keys(),
        {0: "a", 1: "b"}.values(),
        pa.array(["a", "b"]),
        pa.chunked_array([["a"], ["b"]]),
    ],
)
def test_terms_come_in_the_order_of_any_list(terms):
    assert Vocabulary(terms).terms == ("a", "b")


def test_one_string_is_no_list_of_terms():
    with refused("terms"):
        vocabulary_of(np.array("apple"))
