"""Where outputs may lie: never inside a store of dslda, nor in the place of what is not its own, nor where nothing can be."""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import dslda
from dslda.cli.program import run
from dslda.exceptions import InputError, OutputExistsError
from tests.helpers.files import contents

IN_A_STORE = "an output must not lie inside a corpus, model or checkpoint, got"
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="links and names of POSIX")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a.jsonl, and of it c.corpus, m.model and k.checkpoint."""
    folder = tmp_path_factory.mktemp("places")
    with (folder / "a.jsonl").open("w") as stream:
        for i in range(20):
            text = ("good fine", "bad poor")[i % 2] + " dress"
            stream.write(json.dumps({"text": text, "stars": 5 - 4 * (i % 2) + i % 3 / 10}) + "\n")
    corpus = dslda.ingest(
        folder / "a.jsonl", folder / "c.corpus", text="text", response="stars", min_df=1, max_df=1.0
    )
    fit(corpus, checkpoint=folder / "k.checkpoint").save(folder / "m.model")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "here"))


def fit(data: Any, **settings: Any) -> dslda.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dslda.exceptions.ConvergenceWarning)
        return dslda.train(data, response="stars", n_topics=2, max_iter=2, **settings)


def ingest(folder: Path, out: Any, **settings: Any) -> dslda.Corpus:
    return dslda.ingest(
        folder / "a.jsonl", out, text="text", response="stars", min_df=1, max_df=1.0, **settings
    )


@pytest.mark.parametrize("store", ["c.corpus", "m.model", "k.checkpoint"])
@pytest.mark.parametrize("inside", ["x", "appended/x", "deep/er/x"])
def test_no_output_may_lie_in_a_store(here: Path, store: str, inside: str) -> None:
    (here / "link").symlink_to(here / store, target_is_directory=True)
    model, before = dslda.load_model(here / "m.model"), contents(here)
    for out in (here / store / inside, here / "link" / inside, f"file://{here}/{store}/{inside}"):
        says = f"{IN_A_STORE} {here / store / inside} in the dslda-{store[2:]} {here / store}; choose a path"
        for write in (
            lambda out: ingest(here, out, overwrite=True),
            lambda out: model.save(out, overwrite=True),
            lambda out: fit(here / "c.corpus", checkpoint=out, resume=True),
        ):
            with pytest.raises(InputError) as refused:
                write(out)
            assert str(refused.value).startswith(says)
    assert contents(here) == before


def test_nor_may_those_of_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, model, before = here / "c.corpus", here / "m.model", contents(here)
    train = ["train", str(corpus), "--response", "stars", "--topics", "2"]
    for arguments in (
        ["ingest", str(here / "a.jsonl"), "--text", "text", "--out", str(model / "x")],
        [*train, "--out", str(corpus / "appended" / "x")],
        [*train, "--out", str(here / "new.model"), "--checkpoint", str(model / "x"), "--overwrite"],
        ["predict", str(model), str(here / "a.jsonl"), "--out", str(model / "p.csv")],
    ):
        assert run(arguments) == 2
        assert f"dslda: error: {IN_A_STORE}" in capsys.readouterr().err
    assert contents(here) == before


def test_nor_may_those_of_other_file_systems(here: Path) -> None:
    model = dslda.load_model(here / "m.model")
    try:
        model.save("memory://places/m.model")
        with pytest.raises(
            InputError, match=r"got memory://places/m.model/x in the dslda-model /places/m.model;"
        ):
            model.save("memory://places/m.model/x")
        fsspec.filesystem("memory").pipe_file("/places/m.model/mine.txt", b"mine")
        with pytest.raises(
            OutputExistsError, match=r"holds /places/m.model/mine.txt, which is no part of the dslda-model"
        ):
            model.save("memory://places/m.model", overwrite=True)
        assert dslda.load_model("memory://places/m.model").predict(["good"]).shape == (1,)
    finally:
        fsspec.filesystem("memory").rm("/places", recursive=True)


def test_what_is_replaced_holds_nothing_else(here: Path) -> None:
    """Inputs, checkpoints and models that were copied there, or written there by an earlier release."""
    corpus, model = here / "c.corpus", dslda.load_model(here / "m.model")
    ingest(here, corpus, append=True)
    for other, made in (
        (corpus / "a.jsonl", lambda path: shutil.copy(here / "a.jsonl", path)),
        (corpus / "ck", lambda path: shutil.copytree(here / "k.checkpoint", path)),
        (corpus / "appended" / "m", lambda path: shutil.copytree(here / "m.model", path)),
        (corpus / "terms" / ".mine", lambda path: path.write_text("mine")),
    ):
        made(other)
        before = contents(here)
        with pytest.raises(OutputExistsError) as refused:
            ingest(here, corpus, overwrite=True)
        assert f"{corpus} holds {other}, which is no part of the dslda-corpus" in str(refused.value)
        assert contents(here) == before
        shutil.rmtree(other) if other.is_dir() else other.unlink()
    (corpus / ".DS_Store").write_text("of a system")
    ingest(here, corpus, overwrite=True)
    shutil.copytree(corpus, here / "m.model" / "x")
    with pytest.raises(OutputExistsError, match=r"m.model/x, which is no part of the dslda-model"):
        model.save(here / "m.model", overwrite=True)


def test_an_append_removes_what_killed_appends_left_and_nothing_else(here: Path) -> None:
    corpus = here / "c.corpus"
    ingest(here, corpus, append=True)
    shutil.copytree(here / "m.model", corpus / "appended" / "m")
    shutil.copytree(next((corpus / "appended").glob("1-*")), corpus / "appended" / "2-0123abcd")
    ingest(here, corpus, append=True)
    assert dslda.load_model(corpus / "appended" / "m").n_topics == 2
    assert not (corpus / "appended" / "2-0123abcd").exists()


@POSIX
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("a" * 300, "cannot be a path here: File name too long"),
        ("/".join(["d" * 200] * 25), "cannot be a path here: File name too long"),
        ("loop", "loop cannot be a path here: Too many levels of symbolic links"),
        ("loop/x", "loop/x cannot be a path here: Too many levels of symbolic links"),
        ("a\0b", r"a path must be a string without NUL characters, got 'a\x00b'"),
    ],
)
def test_paths_at_which_nothing_can_be(
    here: Path, monkeypatch: pytest.MonkeyPatch, path: str, says: str
) -> None:
    monkeypatch.chdir(here)
    os.symlink("loop", "loop")
    model = dslda.load_model("m.model")
    calls: list[Callable[[], Any]] = [
        lambda: dslda.open_corpus(path),
        lambda: dslda.load_model(path),
        lambda: model.save(path),
        lambda: ingest(here, path),
        lambda: ingest(here, path, append=True),
        lambda: fit(path),
        lambda: fit("c.corpus", checkpoint=path),
    ]
    for call in calls:
        with pytest.raises(InputError) as refused:
            call()
        assert says in str(refused.value)
        assert len(str(refused.value)) < 250
    with pytest.raises(InputError, match="cannot be opened"):
        ingest(here, "new.corpus", vocabulary=path)


@POSIX
def test_names_that_are_too_long_are_refused_before_the_work(here: Path) -> None:
    """The output fits, but not what is written beside it; or a folder that is not there yet does not."""
    for name in ("b" * 238, f"new/{'c' * 300}/m"):
        with pytest.raises(InputError, match="cannot be written: File name too long"):
            fit(here / "c.corpus", checkpoint=here / name)
        with pytest.raises(InputError, match="cannot be written: File name too long"):
            ingest(here, here / name)
    assert np.isfinite(fit(here / "c.corpus", checkpoint=here / ("b" * 230)).trace["elbo"]).all()


@POSIX
def test_predictions_do_not_replace_a_link_that_leads_nowhere(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "loop").symlink_to("loop")
    assert run(["predict", str(here / "m.model"), str(here / "a.jsonl"), "--out", str(here / "loop")]) == 2
    assert "must be a file" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("root", ["", "memory://places/"])
def test_brackets_in_a_path_are_no_pattern(here: Path, root: str) -> None:
    (here / "b[1]").mkdir(exist_ok=True)
    place = f"{root or f'{here}/'}b[1]"
    documents = [{"text": word, "y": float(i)} for i, word in enumerate(["good", "bad", "good", "fine"])]
    for overwrite in (False, True):  # in an object store the old one is removed, and the new one copied
        dslda.ingest(
            documents,
            f"{place}/c[2].corpus",
            text="text",
            response="y",
            min_df=1,
            max_df=1.0,
            overwrite=overwrite,
        )
    corpus = dslda.open_corpus(f"{place}/c[2].corpus")
    assert corpus.n_documents == 4
    model = dslda.train(corpus, n_topics=2, max_iter=2)
    for overwrite in (False, True):
        model.save(f"{place}/m[3].model", overwrite=overwrite)
    run = dslda.score(f"{place}/m[3].model", f"{place}/c[2].corpus", f"{place}/s[4]")
    assert run.manifest["rows_out"] == 4
