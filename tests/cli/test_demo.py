"""The demonstration, on a tenth of its reviews."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslda.cli.demo_command import _program
from dslda.corpus.store import open_corpus
from dslda.corpus.text import TextSettings
from dslda.model import load_model
from dslda.settings import SETTINGS
from tests.helpers.pages import read_page

Dslda = Callable[..., Any]


@pytest.mark.slow
def test_demo_trains_compares_and_leaves_a_model_to_go_on_with(
    dslda: Dslda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dslda.cli.demo_command.N_REVIEWS", 600)
    monkeypatch.setattr("dslda.cli.demo_command.LDA_PASSES", 1)
    monkeypatch.setattr("dslda.cli.demo_command.RESAMPLES", 10)
    done = dslda("demo", "--out", tmp_path / "demo", "--json")
    assert done.code == 0, done.err
    for line in done.err.splitlines():
        json.loads(line)
    for name in (
        "dslda, 20 topics",
        "LDA, then ridge",
        "lasso on frequencies of all words",
        "ridge on TF-IDF of all words",
    ):
        assert name in done.out
    model = load_model(tmp_path / "demo" / "clothing.model")
    corpus = open_corpus(tmp_path / "demo" / "clothing.corpus")
    assert model.record.corpus_hash == corpus.content_hash
    assert model.training.n_documents == 480
    # its settings are the defaults of dslda train and dslda ingest
    defaults = {name: setting.default for name, setting in SETTINGS.items()}
    defaults |= {"objective": model.spec.objective, "bootstrap": 10}
    assert {name: getattr(model.spec, name) for name in defaults} == defaults
    assert TextSettings().min_df <= corpus.vocabulary.document_frequency.min()
    assert corpus.vocabulary.document_frequency.max() <= TextSettings().max_df * 600
    for topic in model.topics(top=3):
        assert ", ".join(topic.words) in done.out
    assert f"The mean of rating in training is {model.response_summary.mean:.4g}." in done.out
    assert "95% interval" in done.out
    assert "report.html in a browser" in done.out
    page = read_page(tmp_path / "demo" / "report.html")
    assert "120 documents that were kept from training" in page.text
    assert len(page.all("mark")) > 20
    predicted = dslda("predict", tmp_path / "demo" / "clothing.model", tmp_path / "demo" / "clothing.corpus")
    assert len(predicted.out.splitlines()) == 601

    again = dslda("demo", "--out", tmp_path / "demo")
    assert again.code == 2
    assert "clothing.corpus is there already" in again.error


def test_what_to_try_next_is_called_as_the_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("on path", "off path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dslda").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "on path"))
    for started, called in (
        (tmp_path / "on path" / "dslda", "dslda"),
        (tmp_path / "off path" / "dslda", f"'{tmp_path}/off path/dslda'"),
        (tmp_path / "dslda" / "__main__.py", f"{sys.executable} -m dslda"),
    ):
        monkeypatch.setattr(sys, "argv", [str(started), "demo"])
        assert _program() == called


def test_demo_does_not_write_into_a_file(dslda: Dslda, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    done = dslda("demo", "--out", tmp_path / "taken", "--overwrite")
    assert done.code == 2
    assert (tmp_path / "taken").read_text() == "mine"
