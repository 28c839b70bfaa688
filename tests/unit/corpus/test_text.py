from __future__ import annotations

import json
import pickle
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from dslda.corpus.text import (
    ABSENT,
    DEFAULT_TOKEN_PATTERN,
    EARLIER_TOKEN_PATTERN,
    Analyzer,
    TextSettings,
    count_documents,
    expanded,
)
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import FormatError, InputError

SETTINGS = [
    TextSettings(),
    TextSettings(kind="counts", stop_words=("the", "a"), min_df=0.5, max_df=1.0, max_features=7),
    TextSettings(
        lowercase=False,
        token_pattern=r"\w+(?:'\w+)?",
        ngrams=(1, 3),
        stop_words="english",
        min_df=1,
        max_df=1,
    ),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_come_back_from_json(settings):
    copy = TextSettings.from_json(json.loads(json.dumps(settings.to_json())))
    assert copy == settings
    assert hash(copy) == hash(settings)
    assert type(copy.max_df) is type(settings.max_df)


def test_one_document_and_all_documents_are_told_apart_in_json():
    one, all_ = TextSettings(max_df=1, min_df=1), TextSettings(max_df=1.0, min_df=1)
    assert one.to_json()["max_df"] == {"documents": 1}
    assert all_.to_json()["max_df"] == {"share": 1.0}
    # a JSON library of another language may write 1.0 as 1
    assert TextSettings.from_json(all_.to_json() | {"max_df": {"share": 1}}) == all_


def test_equal_settings_are_equal_however_they_are_spelled():
    assert TextSettings(
        ngrams=[1, 2], stop_words={"b", "a"}, min_df=np.int64(3), max_df=np.float64(0.5)
    ) == TextSettings(ngrams=(1, 2), stop_words=["a", "b", "a"], min_df=3, max_df=0.5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "words"}, "kind must be 'text' or 'counts', got 'words'"),
        ({"lowercase": 1}, "lowercase must be True or False, got 1"),
        ({"token_pattern": "("}, "token_pattern must be a regular expression"),
        ({"token_pattern": None}, "token_pattern must be a regular expression"),
        ({"token_pattern": "(a)(b)"}, "at most one capturing group, got 2"),
        ({"ngrams": (2, 1)}, "ngrams must be"),
        ({"ngrams": (0, 1)}, "ngrams must be"),
        ({"ngrams": 2}, "ngrams must be"),
        ({"stop_words": "german"}, "stop_words must be None, 'english' or a list of words, got 'german'"),
        ({"stop_words": [1]}, "stop_words must be"),
        ({"min_df": 0}, "min_df must be a whole number of documents >= 1 or a share"),
        ({"min_df": -0.1}, "min_df must be"),
        ({"min_df": True}, "min_df must be"),
        ({"max_df": 1.5}, "max_df must be"),
        ({"max_df": float("nan")}, "max_df must be"),
        ({"max_df": "0.5"}, "max_df must be"),
        ({"max_features": 0}, "max_features must be a whole number >= 1 or None, got 0"),
        ({"max_features": 1.0}, "max_features must be"),
        ({"kind": "counts", "ngrams": (1, 2)}, "these documents are words with counts"),
    ],
)
def test_setting_out_of_its_domain_is_refused_by_name(wrong, message):
    with pytest.raises(InputError, match=message):
        TextSettings(**wrong)


@pytest.mark.parametrize("name", [name for name in TextSettings().to_json() if name not in ABSENT])
def test_missing_or_wrong_field_of_json_is_named(name):
    data = TextSettings().to_json()
    with pytest.raises(FormatError, match=f"here: text settings: field '{name}' is missing"):
        TextSettings.from_json({key: value for key, value in data.items() if key != name}, "here")
    with pytest.raises(FormatError, match=f"here: text settings: {name}"):
        TextSettings.from_json(data | {name: {"documents": "many"}}, "here")


def test_settings_that_are_no_object_are_refused():
    with pytest.raises(FormatError, match="must be a JSON object"):
        TextSettings.from_json([1], "here")


TEXTS = ["Apple pear, apple!", "The PEAR was a fig; don't", "", "x y z", "naïve café Straße 42 a1"]


@pytest.mark.parametrize(
    "settings",
    [
        TextSettings(),
        TextSettings(lowercase=False),
        TextSettings(ngrams=(1, 2)),
        TextSettings(stop_words="english"),
        TextSettings(stop_words=["pear", "was"]),
        TextSettings(token_pattern=r"(\w)\w*"),
    ],
)
def test_terms_are_those_of_count_vectorizer(settings):
    oracle = CountVectorizer(
        lowercase=settings.lowercase,
        ngram_range=settings.ngrams,
        token_pattern=EARLIER_TOKEN_PATTERN
        if settings.token_pattern == DEFAULT_TOKEN_PATTERN
        else settings.token_pattern,
        stop_words=list(settings.stop_words)
        if isinstance(settings.stop_words, tuple)
        else settings.stop_words,
    )
    expected = oracle.fit_transform(TEXTS)
    vocabulary = Vocabulary(oracle.get_feature_names_out().tolist())
    counted, n_unknown = count_documents(TEXTS, vocabulary, settings)
    assert counted.indptr.tolist() == expected.indptr.tolist()
    expected.sort_indices()
    assert counted.terms.tolist() == expected.indices.tolist()
    assert counted.counts.tolist() == expected.data.tolist()
    assert n_unknown.tolist() == [0] * len(TEXTS)


def test_analyzer_pickles_after_use():
    analyze = Analyzer(TextSettings(stop_words="english"))
    before = analyze("The apple")
    assert pickle.loads(pickle.dumps(analyze))("The apple") == before == Counter(apple=1)
    assert len(pickle.dumps(analyze)) < 1000


def test_words_with_counts_are_taken_as_they_are():
    analyze = Analyzer(TextSettings(kind="counts"))
    assert analyze((["Bush", "x", "Bush", "tax.cut", "none"], [2, 1.0, np.int64(3), 4, 0])) == Counter(
        {"Bush": 5, "x": 1, "tax.cut": 4}
    )


def test_stop_words_apply_to_words_with_counts():
    document = (["the", "apple"], [7, 1])
    assert Analyzer(TextSettings(kind="counts", stop_words="english"))(document) == Counter(apple=1)
    assert Analyzer(TextSettings(kind="counts", stop_words=["apple"]))(document) == Counter(the=7)


def test_words_with_counts_can_be_given_where_texts_were():
    assert Analyzer(TextSettings())((["Apple"], [2])) == Counter(Apple=2)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("a text", "words with counts, got a text"),
        (3, r"must be a text or a pair \(words, counts\), got 3"),
        (("a", "b"), "must be a text or a pair"),
        (("ab", [1, 2]), "must be two lists"),
        ((["a"], 1), "must be two lists"),
        ((["a", "b"], [1]), "got 2 words and 1 counts"),
        ((["a"], [-1]), "counts must be whole numbers >= 0, got -1 for 'a'"),
        ((["a"], [1.5]), "got 1.5 for 'a'"),
        ((["a"], [float("nan")]), "got nan for 'a'"),
        ((["a"], [float("inf")]), "got inf for 'a'"),
        ((["a"], ["2"]), "got '2' for 'a'"),
        ((["a"], [None]), "got None for 'a'"),
        ((["a"], [True]), "got True for 'a'"),
        (([1], [1]), "words must be strings, got 1"),
    ],
)
def test_wrong_document_is_refused_with_its_position(document, message):
    documents = [(["a"], [1]), document]
    with pytest.raises(InputError, match=f"document 1: .*{message}"):
        count_documents(documents, Vocabulary(["a"]), TextSettings(kind="counts"))


def test_count_beyond_int32_is_refused():
    with pytest.raises(InputError, match="document 0: a count must be at most 2147483647, got 2147483648"):
        count_documents([(["a"], [2**31])], Vocabulary(["a"]), TextSettings())


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9)), max_size=8))
def test_counting_keeps_every_token_either_known_or_unknown(documents):
    vocabulary = Vocabulary(["e", "c", "a"])
    counted, n_unknown = count_documents(
        [(list(d), list(d.values())) for d in documents], vocabulary, TextSettings(kind="counts")
    )
    assert counted.validate(len(vocabulary)).n_documents == len(documents)
    for d, document in enumerate(documents):
        row = slice(counted.indptr[d], counted.indptr[d + 1])
        known = {
            vocabulary.terms[t]: int(c) for t, c in zip(counted.terms[row], counted.counts[row], strict=True)
        }
        assert known == {term: n for term, n in document.items() if term in "eca"}
        assert n_unknown[d] == sum(n for term, n in document.items() if term not in "eca")


def test_counting_gives_the_types_of_a_block():
    for documents in ([], ["", "apple fig"]):
        counted, n_unknown = count_documents(documents, Vocabulary(["apple"]), TextSettings())
        arrays = (counted.indptr, counted.terms, counted.counts, n_unknown)
        assert [array.dtype for array in arrays] == [np.int64, np.int32, np.int32, np.int64]


@pytest.mark.parametrize(
    ("settings", "possible", "impossible"),
    [
        ({}, ["dress", "x2", "naïve"], ["Dress", "small dress", "t-shirt", "a", "", " dress"]),
        ({"lowercase": False}, ["dress", "Dress"], ["a"]),
        ({"stop_words": "english"}, ["dress"], ["the"]),
        ({"ngrams": (1, 2)}, ["dress", "small dress"], ["Small dress", "small  dress", "a very small"]),
        ({"ngrams": (2, 2)}, ["small dress"], ["dress"]),
        ({"ngrams": (1, 2), "stop_words": ["not"]}, ["small dress"], ["not", "not small"]),
        ({"token_pattern": r"[^ ]+"}, ["t-shirt", "a"], ["small dress", "A"]),
        ({"token_pattern": r"#(\w+)"}, ["sale"], ["Sale"]),
        ({"token_pattern": r"(?<=#)\w+", "stop_words": ["the"]}, ["sale"], ["Sale", "the"]),
        ({"kind": "counts", "stop_words": ["the"]}, ["A", "small dress", ""], ["the"]),
    ],
)
def test_terms_that_no_document_can_have_are_known(settings, possible, impossible):
    assert Analyzer(TextSettings(**settings)).impossible([*possible, *impossible]) == impossible


def test_masked_counts_are_no_counts():
    masked = np.ma.array([1, 2], mask=[False, True])
    with pytest.raises(InputError) as error:
        count_documents([(["a", "b"], masked)], Vocabulary(["a"]), TextSettings(kind="counts"))
    assert (error.value.parameter, error.value.place) == ("counts", "document 0")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("हिन्दी की किताब, क्षत्रिय।", ["हिन्दी", "की", "किताब", "क्षत्रिय"]),
        ("தமிழ் நீ வா", ["தமிழ்", "நீ", "வா"]),
        ("مُحَمَّدٌ كِتَاب", ["مُحَمَّدٌ", "كِتَاب"]),
        ("שָׁלוֹם", ["שָׁלוֹם"]),
        ("cafe\u0301 café CAFE\u0301 CAFÉ", ["café"] * 4),
        ("x\u0304y x\u0304", ["x\u0304y", "x\u0304"]),
        ("می\u200cخواهم کتاب\u200c \u200cما", ["می\u200cخواهم", "کتاب", "ما"]),  # noqa: RUF001
        ("क्\u200dष क्\u200cष", ["क्\u200dष", "क्\u200cष"]),
        ("İstanbul'da I\u0307stanbul i\u0307stanbul istanbul", ["istanbul", "da", *["istanbul"] * 3]),
        ("\u0301lone marks \u0301\u0301", ["lone", "marks"]),
        ("1\ufe0f\u20e3 key ❤\ufe0f heart\ufe0f", ["key", "heart"]),
        ("\U00011013\U00011038 \U0001f600 a b", ["\U00011013\U00011038"]),
        ("ΌΔΟΣ ὈΔΌΣ", ["όδος", "ὀδός"]),
    ],
)
def test_a_word_keeps_its_marks_and_joiners(text: str, terms: list[str]) -> None:
    assert Analyzer(TextSettings())(text) == Counter(terms)


@given(st.text("aéÉ\u0301\u0307iİıI\u200c\u200dकी\U00011013\U00011038\ud800 ❤\ufe0f1_'.", max_size=12))  # noqa: RUF001
def test_tokens_are_those_of_the_pattern_whatever_path_finds_them(text: str) -> None:
    analyze = Analyzer(TextSettings())
    through_the_pattern = Analyzer(TextSettings(token_pattern=f"(?:{DEFAULT_TOKEN_PATTERN})"))
    assert analyze(text) == through_the_pattern(text)
    for term in analyze(text):
        assert list(analyze(term)) == [term]


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Z", "Cc"], max_codepoint=0x2FF), max_size=30))
def test_without_marks_the_tokens_are_those_of_earlier_releases(text: str) -> None:
    earlier = TextSettings(token_pattern=EARLIER_TOKEN_PATTERN, normalize=False)
    if "İ" not in text:
        assert Analyzer(TextSettings())(text) == Analyzer(earlier)(text)


def test_capitals_keep_their_dot_where_texts_are_not_lower_cased() -> None:
    analyze = Analyzer(TextSettings(lowercase=False))
    assert list(analyze("İstanbul I\u0307stanbul")) == ["İstanbul"]


def test_stop_words_match_however_their_accents_are_written() -> None:
    assert list(Analyzer(TextSettings(stop_words=["cafe\u0301"]))("Café noir")) == ["noir"]


def test_settings_of_earlier_releases_keep_their_tokens() -> None:
    data = TextSettings().to_json() | {"token_pattern": EARLIER_TOKEN_PATTERN}
    del data["normalize"]
    settings = TextSettings.from_json(data)
    assert not settings.normalize
    assert settings.to_json() == data
    text = "İstanbul हिन्दी cafe\u0301"
    oracle = CountVectorizer().build_analyzer()
    assert Analyzer(settings)(text) == Counter(oracle(text))
    assert TextSettings(kind="counts").to_json() == data | {"kind": "counts"}


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"[\w\p{M}'-]+", "की don't x\u0304", ["की", "don't", "x\u0304"]),
        (r"\w\p{M}*", "कीa\u0304b", ["की", "a\u0304", "b"]),
        (r"[^\p{M}]+", "कa\u0304b", ["कa", "b"]),
        (r"[]\p{M}]+", "]\u0304b", ["]\u0304"]),
        (r"\[\p{M}", "[\u0304", ["[\u0304"]),
        (r"[\]\p{M}]", "]", ["]"]),
    ],
)
def test_a_pattern_may_name_marks(pattern: str, text: str, found: list[str]) -> None:
    assert re.findall(expanded(pattern), text) == found
    assert TextSettings(token_pattern=pattern).token_pattern == pattern
