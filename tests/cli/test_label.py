"""``dslda label``: a topic gets a name, and everything goes on as before."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dslda.cli.topics_command import shown_topics
from dslda.model import load_model

Dslda = Callable[..., Any]


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "stars.model", tmp_path / "stars.model"))


def test_a_topic_is_named_renamed_and_loses_its_name(model: Path, dslda: Dslda) -> None:
    done = dslda("label", model, 1, "it does not fit")
    assert (done.code, done.out) == (0, f"{model}: topic 1 (it does not fit)\n")
    assert dslda("label", model, "1", " size ").code == 0
    assert "\nlabels:              1 (size)\n" in dslda("info", model).out
    assert dslda("label", model, 1, "--remove").out == f"{model}: topic 1\n"
    assert load_model(model).labels == {}


def test_names_stand_beside_numbers_and_columns_keep_theirs(made: Path, model: Path, dslda: Dslda) -> None:
    assert dslda("label", model, 1, "=size[b]").code == 0
    rows = list(csv.DictReader(io.StringIO(dslda("topics", model).out)))
    assert {row["topic"]: row["label"] for row in rows} == {"0": "", "1": "'=size[b]"}
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(shown_topics(load_model(model), top=3, words="frex"))
    shown = console.export_text()
    assert re.search(r"│ +1 │ =size\[b\] │ \w+, \w+", shown)
    assert re.search(r"│ +0 │ +│ \w+, \w+", shown)
    assert "words by FREX" in shown
    predicted = dslda("predict", model, made / "reviews.jsonl", "--topics").out
    assert "topic_1" in predicted.splitlines()[0]
    assert "size" not in predicted


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((2, "fit"), "must be a topic, 0 to 1, got 2"),
        ((1, ""), "must have 1 to 80 characters"),
        ((1, "a\x1b[2Jb"), "without control characters"),
        ((1,), "give either this or a name"),
        ((1, "fit", "--remove"), "give either this or a name"),
        (("fit", 1), "'fit' is not a valid integer"),
    ],
)
def test_what_cannot_be_done_is_refused(
    model: Path, dslda: Dslda, arguments: tuple[object, ...], says: str
) -> None:
    done = dslda("label", model, *arguments)
    assert done.code == 2
    assert says in done.error
    assert "\x1b" not in done.error
    assert load_model(model).labels == {}


def test_what_is_no_model_is_refused(made: Path, dslda: Dslda) -> None:
    assert "is a corpus, not a model" in dslda("label", made / "reviews.corpus", 0, "fit").error


def test_a_folder_of_scores_goes_on_with_a_model_whose_topics_got_names(
    made: Path, model: Path, dslda: Dslda, write_reviews: Callable[..., Path], tmp_path: Path
) -> None:
    inputs, out = tmp_path / "in", tmp_path / "scores"
    inputs.mkdir()
    write_reviews(inputs / "a.jsonl", 20)
    assert dslda("score", model, inputs, "--out", out).code == 0
    assert dslda("label", model, 0, "quality").code == 0
    write_reviews(inputs / "b.jsonl", 30)
    again = dslda("score", model, inputs, "--out", out)
    assert again.code == 0, again.err
    assert "50 rows in 2 parts, 1 of them scored now" in again.out
