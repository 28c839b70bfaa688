"""Places that cannot be reached, of a file system that fails as those of clouds do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec import AbstractFileSystem

import dslda
from dslda.exceptions import FormatError, InputError, OutputError
from dslda.inputs.files import list_files
from dslda.inputs.streams import InputFile
from dslda.persistence.checkpoint_store import CheckpointStore, read_checkpoint
from dslda.scoring.scoring_units import content_sha256, state_of
from dslda.storage.output import writing


class CloudError(Exception):
    """Of a kind that none of Python's is."""


class Away(AbstractFileSystem):
    """A server that does not answer."""

    protocol = "away"
    error: Exception = CloudError("no credentials")

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise self.error

    ls = info = exists = isfile = isdir = glob = find = cat_file = pipe_file = _open = mkdir = _fail


fsspec.register_implementation("away", Away, clobber=True)


@pytest.fixture(params=[CloudError("no credentials"), PermissionError("no credentials")], ids=type)
def away(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Away, "error", request.param)
    return "away://bucket/x"


CALLS: dict[str, Callable[[str, Path], Any]] = {
    "corpus": lambda url, _: dslda.open_corpus(url),
    "model": lambda url, _: dslda.load_model(url),
    "checkpoint": lambda url, _: read_checkpoint(url),
    "checkpoint to be": lambda url, _: CheckpointStore(url).check(resume=True, overwrite=False),
    "input": lambda url, _: list_files(url),
    "bytes of an input": lambda url, _: InputFile(url, 1).open().__enter__(),
    "hash of an input": lambda url, _: content_sha256(InputFile(url, 1)),
    "state of an input": lambda url, _: state_of(InputFile(url, 1)),
    "output": lambda url, folder: dslda.ingest(folder / "a.txt", url, text="text"),
}


@pytest.mark.parametrize("what", CALLS)
def test_what_cannot_be_reached_is_named(away: str, tmp_path: Path, what: str) -> None:
    (tmp_path / "a.txt").write_text("some words")
    with pytest.raises(InputError, match=r"away://bucket/x.*(reached|read|opened): no credentials"):
        CALLS[what](away, tmp_path)


def test_what_fails_while_it_is_written_is_an_error_of_the_output() -> None:
    with (
        pytest.raises(OutputError, match="x could not be written: no credentials; choose another path"),
        writing("x"),
    ):
        raise CloudError("no credentials")


@pytest.mark.parametrize("error", [ValueError("ours"), FormatError("told"), KeyError("ours")])
def test_mistakes_and_what_is_told_already_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error), match=error.args[0]), writing("x"):
        raise error
