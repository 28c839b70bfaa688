"""Messages of the library in the words of the command line: options of the running command, and no Python."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslda.cli.ingest_command import command as ingest_command
from dslda.cli.logs import option_words, shown
from dslda.cli.train_command import command as train_command
from dslda.exceptions import DataWarning, InputError, Note, OutputError
from dslda.families.registry import FAMILIES

Dslda = Callable[..., Any]

PYTHON = re.compile(r"(?<![-\w])[a-z_]+=|\(\)|[{}]|\b[a-z]+_[a-z_]+\b")


def test_parameters_become_the_options_of_the_command() -> None:
    words = option_words(train_command)
    error = InputError(
        "must be at most 9",
        parameter=("n_topics", "response_weight"),
        remedy=(
            "raise {max_iter}",
            "give {overwrite=True}",
            "use {family='poisson'}",
            "leave them out with {documents=}",
            "look at it with {open_corpus()}",
        ),
    )
    assert shown(error, words) == (
        "--topics and --rho must be at most 9; raise --max-iter, or give --overwrite, or use --family poisson, or look at it "
        "with dslda info"
    )
    assert shown(DataWarning("is empty", place="{a}.csv, line 3"), words) == "{a}.csv, line 3: is empty"
    assert shown(Note("go on with {resume=True}"), words) == "go on with --resume"
    with pytest.raises(InputError, match=r"raise max_iter, or give overwrite=True, or .* with documents=,"):
        raise error


def test_an_error_keeps_its_fields_on_its_way_between_processes() -> None:
    error = OutputError("is full", parameter=("out",), place="s", remedy="choose another with {out=}")
    error.add_note(Note("go on with {resume=True}"))
    sent = pickle.loads(pickle.dumps(error))
    assert (type(sent), str(sent)) == (OutputError, str(error))
    words = option_words(train_command)
    assert [shown(e, words) for e in (sent, *sent.__notes__)] == [
        "s: --out is full; choose another with --out",
        "go on with --resume",
    ]


def test_options_with_several_values_keep_the_names_of_their_parameters() -> None:
    error = InputError(
        "must be other fields", parameter=("id", "response"), remedy="name it with {n_topics=}"
    )
    assert shown(error, option_words(ingest_command)) == "--id and --response must be other fields"


def test_errors_provoked_name_options_and_no_python(made: Path, dslda: Dslda, tmp_path: Path) -> None:
    corpus, model, out = made / "reviews.corpus", made / "stars.model", tmp_path / "out"
    (tmp_path / "r.jsonl").write_text(json.dumps({"text": "a b", "stars": 1}) + "\n")
    train = ("train", corpus, "--response", "stars", "--out", out)
    ingest = ("ingest", tmp_path / "r.jsonl", "--out", out, "--text", "text")
    for arguments, option in (
        ((*train, "--topics", 0), "--topics"),
        ((*train, "--rho", 0), "--rho"),
        ((*train, "--alpha", 0), "--alpha"),
        ((*train, "--hold-out", 2), "--hold-out"),
        ((*train, "--resume"), "--checkpoint"),
        ((*train, "--exposure", "age"), "--exposure"),
        ((*train, "--family", "no"), "--family"),
        ((*train, "--trials", "no"), "--trials"),
        (("train", corpus, "--response", "no", "--out", out), "--response"),
        (("train", corpus, "--response", "stars", "--out", model), "--overwrite"),
        ((*ingest, "--words", "w", "--counts", "c"), "--words"),
        ((*ingest, "--min-df", -1), "--min-df"),
        (("ingest", tmp_path / "r.jsonl", "--out", corpus, "--text", "text"), "--overwrite"),
    ):
        refused = dslda(*arguments)
        assert refused.code == 2
        assert option in refused.error, refused.error
        assert not PYTHON.search(
            refused.error.replace(str(tmp_path), "").replace(", ".join(sorted(FAMILIES)), "")
        ), refused.error


def test_what_the_command_line_says_of_settings_is_no_python(
    made: Path, dslda: Dslda, tmp_path: Path
) -> None:
    positions = tmp_path / "d.ldac"
    positions.write_text("1 0:1\n")
    ingest = ("ingest", positions, "--out", tmp_path / "c")
    assert dslda(*ingest, "--format", "ldac").error.endswith(
        "give a corpus or its path, or the path of a file with a term a line"
    )
    alpha = dslda(
        "train", made / "reviews.corpus", "--response", "stars", "--out", tmp_path / "m", "--alpha", -1
    ).error
    assert "--alpha must be a number from 1e-10 to 1e+06, or 'auto' or 'asymmetric' or '1/K'" in alpha
    assert "None" not in alpha
    reviews = made / "reviews.jsonl"
    written = dslda("ingest", reviews, "--out", tmp_path / "c", "--text", "text", "--max-df", 1.0)
    assert f"dslda: wrote {tmp_path}/c: 80 documents, " in written.err
