"""Stores that this and earlier versions have written are read, and say what they said then."""

from __future__ import annotations

import csv
import json
import runpy
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

import dslda
from dslda.cli.program import run
from tests.formats import make_archives
from tests.formats.make_archives import ARCHIVES, COVARIATES, DOCUMENTS

READER = Path(__file__).resolve().parents[2] / "docs" / "read_model.py"
FOUND = [path.relative_to(ARCHIVES) for path in sorted(ARCHIVES.glob("*/*.zip"))]

# A model's answers are where its E-step comes to rest, which later versions may reach by other ways.
NEAR = 1e-6


def archives(ending: str) -> list[Any]:
    found = [path for path in FOUND if path.name.endswith(f"{ending}.zip")]
    assert found
    return [pytest.param(path, id=str(path.with_suffix(""))) for path in found]


def unpacked(archive: Path, folder: Path) -> tuple[Path, str]:
    """The store of an archive, and its name there."""
    with zipfile.ZipFile(ARCHIVES / archive) as source:
        source.extractall(folder)
    (store,) = folder.iterdir()
    return store, store.stem


def expected(archive: Path, kind: str, name: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(
        (ARCHIVES / archive).with_name("expected.json").read_text(encoding="utf-8")
    )
    what: dict[str, Any] = said[kind][name]
    return what


@pytest.mark.parametrize("archive", archives(".model"))
def test_a_model_of_an_archive_says_what_it_said(archive: Path, tmp_path: Path) -> None:
    store, name = unpacked(archive, tmp_path)
    then = expected(archive, "models", name)
    now = make_archives.answers(dslda.load_model(store))
    assert now.keys() == then.keys()
    for what, values in then.items():
        for mine, theirs in zip(now[what], values, strict=True):
            assert mine == (theirs if isinstance(theirs, str) else pytest.approx(theirs, rel=NEAR, abs=NEAR))


@pytest.mark.parametrize("archive", archives(".model"))
def test_a_model_of_an_archive_is_read_without_dslda(archive: Path, tmp_path: Path) -> None:
    store, name = unpacked(archive, tmp_path)
    predict = runpy.run_path(str(READER))["predict"]
    if name == "categorical":
        with pytest.raises(ValueError, match=r"this program knows gaussian, .* got categorical"):
            predict(store, DOCUMENTS[0], COVARIATES)
        return
    then = expected(archive, "models", name)
    for document, prediction in zip(DOCUMENTS, then["predictions"], strict=True):
        assert predict(store, document, COVARIATES)["prediction"] == pytest.approx(prediction, rel=NEAR)


def test_topics_that_an_earlier_release_did_not_measure_are_shown_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = unpacked(Path("0.1.0", "gaussian.model.zip"), tmp_path)
    assert dslda.load_model(store).quality is None
    assert run(["topics", str(store)]) == 0
    for row in csv.DictReader(capsys.readouterr().out.splitlines()):
        assert (row["coherence"], row["exclusivity"]) == ("", "")
        assert row["words"]


@pytest.mark.parametrize("archive", archives(".corpus"))
def test_a_corpus_of_an_archive_has_all_its_documents(archive: Path, tmp_path: Path) -> None:
    store, name = unpacked(archive, tmp_path)
    assert make_archives.contents(dslda.open_corpus(store)) == expected(archive, "corpora", name)


@pytest.mark.parametrize("archive", archives(".checkpoint"))
def test_a_checkpoint_of_an_archive_is_where_it_was(archive: Path, tmp_path: Path) -> None:
    store, name = unpacked(archive, tmp_path)
    assert make_archives.progress_of(store) == expected(archive, "checkpoints", name)


@pytest.mark.parametrize("archive", FOUND, ids=lambda path: str(path.with_suffix("")))
def test_info_shows_an_archive(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, _ = unpacked(archive, tmp_path)
    assert run(["info", str(store)]) == 0
    assert store.name in capsys.readouterr().out


def test_the_newest_version_has_the_archives_that_are_made_now(fresh: Path) -> None:
    kept = max(ARCHIVES.iterdir(), key=lambda folder: Version(folder.name))
    assert sorted(path.name for path in kept.iterdir()) == sorted(path.name for path in fresh.iterdir())
    assert {path.suffix for path in kept.iterdir()} == {".zip", ".json"}
    assert all(path.stat().st_size < 40_000 for path in kept.iterdir())


def test_archives_of_a_released_version_are_not_made_again(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "--quiet", repository], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "one"], check=True)
    subprocess.run([*git, "tag", "v9.8.7"], check=True)
    kept = tmp_path / "archives" / "9.8.7"
    kept.mkdir(parents=True)
    (kept / "expected.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"version 9\.8\.7 is released"):
        make_archives.main("9.8.7", repository=repository, archives=tmp_path / "archives")
    assert [path.name for path in kept.iterdir()] == ["expected.json"]
    assert not make_archives.is_released("9.8.8", repository)
