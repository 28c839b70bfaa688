"""Analyzers of the user's own, out of real modules."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import uuid
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import dslda
from dslda.corpus.text import Analyzer, TextSettings, count_documents
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import FormatError, InputError
from tests.helpers.errors import refused

CODE = """
def lemmas(text):
    if "BOOM" in text:
        raise ValueError("too\\nloud")
    return (word.rstrip("s") for word in text.split())

def outer():
    def inner(text):
        return text.split()
    return inner

class Cutter:
    def cut(self, text):
        return text.split()

    __call__ = cut

anonymous = lambda text: text.split("+")
cutter = Cutter()
number = 3
renamed = outer()

def nothing(text): return None
def letters(text): return text
def numbers(text): return [1] if text else []
def counted(text): return {word: 2 for word in text.split()}
def first(text): return [text[0]]
def half(text): return ["\\ud800" + text] if text else []
"""
RECORDS = [{"text": text, "y": i} for i, text in enumerate(["Dresses fit", "dress fits BIG", "Big dress"])]
ALL = {"min_df": 1, "max_df": 1.0}


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, which no other test has named."""
    name = f"words_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(CODE)
    (tmp_path / "half_made.py").write_text("import nothing_of_that_name")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module(name)


@pytest.mark.parametrize("by_name", [True, False])
def test_terms_are_those_that_the_function_returns_of_the_raw_text(words: ModuleType, by_name: bool) -> None:
    name = f"{words.__name__}:lemmas"
    corpus = dslda.ingest(
        RECORDS, text="text", response="y", analyzer=name if by_name else words.lemmas, **ALL
    )
    assert corpus.vocabulary.terms == ("BIG", "Big", "Dresse", "dre", "fit")
    assert corpus.text_settings == TextSettings(analyzer=name, **ALL)
    assert Analyzer(corpus.text_settings)("dress dress Fits") == Counter(dre=2, Fit=1)
    assert Analyzer(corpus.text_settings)((["dress"], [2])) == Counter(dress=2)
    assert Analyzer(corpus.text_settings).impossible(["two words"]) == []


def test_filters_choose_among_the_terms_of_the_function(words: ModuleType) -> None:
    corpus = dslda.ingest(RECORDS, text="text", response="y", analyzer=words.lemmas, min_df=2, max_df=1.0)
    assert corpus.vocabulary.terms == ("dre", "fit")


def test_what_another_process_could_not_import_is_refused(words: ModuleType) -> None:
    for analyzer, got in {
        words.anonymous: "a lambda",
        words.renamed: "'inner', a function inside another",
        words.cutter: "an object of type Cutter",
        words.cutter.cut: "'Cutter.cut', which the module",
        functools.partial(words.lemmas): "an object of type partial",
        str.split: "an object of type",
        "__main__:cut": "a function of the main script",
    }.items():
        with refused("analyzer") as error:
            dslda.ingest(RECORDS, text="text", response="y", analyzer=analyzer, **ALL)
        assert f"got {got}" in error.value.reason
        assert "\n" not in str(error.value)
    # by its name in the module each can be imported
    corpus = dslda.ingest(RECORDS, text="text", response="y", analyzer=f"{words.__name__}:anonymous", **ALL)
    assert corpus.vocabulary.terms == ("Big dress", "Dresses fit", "dress fits BIG")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", "must return a list of strings, got None"),
        ("letters", "must return a list of strings, got '' of type str"),
        ("counted", "must return a list of strings, got {} of type dict"),
        ("first", "failed with IndexError: string index out of range"),
        ("number", "must be a function, got an object of type int"),
        ("lemma", "must be a function, got nothing of that name"),
    ],
)
def test_a_function_that_cannot_work_is_refused_before_any_document(
    words: ModuleType, name: str, reason: str
) -> None:
    with refused("analyzer") as error:  # and not about the field, which no record has
        dslda.ingest(RECORDS, text="no such field", analyzer=f"{words.__name__}:{name}")
    assert reason in error.value.reason


@pytest.mark.parametrize(
    "name", ["words", "words:", ":lemmas", "words:a b", "no_such_module:f", "half_made:f", 3]
)
def test_a_name_that_names_nothing_is_refused(words: ModuleType, name: object) -> None:
    with refused("analyzer"):
        dslda.ingest(RECORDS, text="text", analyzer=name)


def test_an_error_in_a_document_names_its_place_and_stays_one_line(words: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in [*RECORDS, {"text": "BOOM", "y": 1}]))
    with refused("analyzer", place=f"{path}, line 4") as error:
        dslda.ingest(path, text="text", response="y", analyzer=words.lemmas, **ALL)
    assert error.value.reason.endswith(":lemmas failed with ValueError: too loud")
    with refused("analyzer", place=f"{path}, line 1") as error:
        dslda.ingest(path, text="text", response="y", analyzer=words.numbers, **ALL)
    assert "must return strings, got 1 of type int" in error.value.reason


def test_half_a_character_becomes_a_question_mark_as_in_texts(words: ModuleType) -> None:
    corpus = dslda.ingest(RECORDS, text="text", response="y", analyzer=words.half, **ALL)
    assert corpus.vocabulary.terms == ("?Big dress", "?Dresses fit", "?dress fits BIG")


@pytest.mark.parametrize(
    "beside", [{"lowercase": True}, {"token_pattern": "a"}, {"ngrams": (1, 2)}, {"stop_words": ["a"]}]
)
def test_settings_without_a_use_beside_it_are_refused(words: ModuleType, beside: dict[str, object]) -> None:
    with refused(*beside):
        dslda.ingest(RECORDS, text="text", analyzer=words.lemmas, **beside)
    if "lowercase" not in beside:  # True is the default
        with refused(*beside):
            TextSettings(analyzer="words:lemmas", **beside)


def test_words_with_counts_have_no_analyzer(words: ModuleType) -> None:
    records = [{"words": ["a"], "counts": [2], "y": 1.0}, {"words": ["b"], "counts": [2], "y": 2.0}]
    with refused("analyzer"):
        dslda.ingest(records, words="words", counts="counts", analyzer=words.lemmas)


def test_the_name_comes_back_from_json_which_earlier_releases_refuse() -> None:
    settings = TextSettings(analyzer="words:lemmas", min_df=2)
    data = json.loads(json.dumps(settings.to_json()))
    assert data["analyzer"] == "words:lemmas"
    assert data["token_pattern"] is None  # no earlier release takes it
    assert TextSettings.from_json(data) == settings
    assert "analyzer" not in TextSettings().to_json()
    with pytest.raises(FormatError, match="analyzer must name a module and a function"):
        TextSettings.from_json(data | {"analyzer": "import os; os"})


def test_a_name_in_a_file_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"evil_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    settings = TextSettings.from_json(TextSettings(analyzer=f"{name}:cut").to_json())
    with refused("analyzer") as error:
        count_documents(["a text"], Vocabulary(["a"]), settings)
    assert "must be named again" in error.value.reason
    assert name not in sys.modules
    # words with counts need no analyzer
    block, _ = count_documents([(["a"], [2])], Vocabulary(["a"]), settings)
    assert block.counts.tolist() == [2]
    with pytest.raises(InputError, match=r"importing .* failed with SystemExit: imported"):
        dslda.ingest(RECORDS, text="text", analyzer=f"{name}:cut")


def test_an_append_names_the_analyzer_of_the_corpus(words: ModuleType, tmp_path: Path) -> None:
    path, plain = tmp_path / "a.corpus", tmp_path / "plain.corpus"
    fields = {"text": "text", "response": "y"}
    dslda.ingest(RECORDS, path, analyzer=words.lemmas, **fields, **ALL)
    dslda.ingest(RECORDS, plain, **fields, **ALL)
    for target, options, parameter in (
        (path, {"analyzer": words.outer.__module__ + ":anonymous"}, "analyzer"),
        (path, {"analyzer": words.lemmas, "lowercase": True}, "lowercase"),
        (path, {"lowercase": True}, "lowercase"),
        (plain, {"analyzer": words.lemmas}, "analyzer"),
    ):
        with refused(parameter):
            dslda.ingest(RECORDS, target, append=True, **fields, **options)
    grown = dslda.ingest(RECORDS, path, append=True, analyzer=words.lemmas, **fields)
    assert grown.n_documents == 6
