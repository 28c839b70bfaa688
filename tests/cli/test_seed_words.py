"""``--seed-words FILE``: topics with names and words of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dslda.model import load_model

Dslda = Callable[..., Any]


def test_topics_begin_with_the_words_of_a_file(made: Path, dslda: Dslda, tmp_path: Path) -> None:
    seeds, out = tmp_path / "seeds.txt", tmp_path / "m.model"
    seeds.write_text("praise: good, lovely\nblame: poor, horrible\n")
    train = ("train", made / "reviews.corpus", "--response", "stars", "--topics", 3, "--objective", "joint")
    done = dslda(*train, "--out", out, "--seed-words", seeds)
    assert done.code == 0, done.err
    assert "1 seed word is not in the vocabulary, and left out: 'horrible' (blame)" in done.err
    model = load_model(out)
    assert model.labels == {0: "praise", 1: "blame"}
    words = {topic.label: topic.words for topic in model.topics(top=3)}
    assert {"good", "lovely"} <= set(words["praise"])
    assert "poor" in words["blame"]
    assert "--seed-words praise: good, lovely; blame: poor, horrible" in dslda("info", out).out


def test_a_file_that_is_no_use_is_refused_before_any_work(made: Path, dslda: Dslda, tmp_path: Path) -> None:
    seeds, out = tmp_path / "seeds.txt", tmp_path / "m.model"
    train = ("train", made / "reviews.corpus", "--response", "stars", "--out", out, "--seed-words", seeds)
    for text, says in (
        ("praise good\n", f"{seeds}: line 1: --seed-words must be a name and its words"),
        ("praise: xyzzy\n", "--seed-words must have a word of the vocabulary for the topic 'praise'"),
        ("a: good\nb: bad\n", "--seed-words must name no more topics than there are"),
    ):
        seeds.write_text(text)
        refused = dslda(*train, "--topics", 1)
        assert refused.code == 2
        assert says in refused.error
    assert not out.exists()
