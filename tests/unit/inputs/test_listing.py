"""Folders that cannot be listed are told of wherever a folder or pattern leads into them, and only there."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dslda
from dslda.exceptions import InputError
from dslda.inputs.files import list_files
from tests.helpers.errors import refused

LISTING = """
import json, sys
from dslda.inputs.files import list_files

for given in sys.argv[1:]:
    try:
        print(json.dumps(list_files(given).ids))
    except ValueError as error:
        print(json.dumps(str(error)))
"""


@pytest.mark.parametrize("rights", [0, 0o444])
def test_folders_that_cannot_be_listed_are_named_and_others_do_not_matter(
    tmp_path: Path, without_rights: Callable[..., subprocess.CompletedProcess[str]], rights: int
) -> None:
    closed, hidden = tmp_path / "a" / "closed", tmp_path / "b" / "_hidden"
    for folder in (closed, hidden):
        folder.mkdir(parents=True)
        for place in (folder, folder.parent):
            (place / "x.txt").write_text("word")
    refused = ("a", "a/**/*.txt", "a/**", "a/c*/*.txt", "a/closed/*.txt", "a*/*/*.txt")
    listed = {"b": ["x.txt"], "a/*.txt": ["x.txt"], "[ab]/*.txt": ["x.txt", "x.txt"]}
    given = [str(tmp_path / each) for each in (*refused, *listed)]
    try:
        for folder in (closed, hidden):
            folder.chmod(rights)
        done = without_rights(LISTING, *given)
    finally:
        for folder in (closed, hidden):
            folder.chmod(0o700)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for each in answers[: len(refused)]:
        assert each.startswith(f"{closed}: the folder cannot be read: Permission denied; ")
    assert answers[len(refused) :] == list(listed.values())


def test_what_stands_before_the_first_wildcard_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word")
    with pytest.raises(InputError, match=r"the folder .*/nowhere is not there"):
        list_files(tmp_path / "nowhere" / "**" / "*.txt")
    with pytest.raises(InputError, match=r"/a\.txt: the folder cannot be read: Not a directory"):
        list_files(tmp_path / "a.txt" / "*")
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(InputError, match=r"/link: is a link to nothing, which is not there"):
        list_files(tmp_path / "link")


def test_a_store_is_told_from_documents(tmp_path: Path) -> None:
    dslda.ingest([{"text": "apple pear"}], tmp_path / "a.corpus", text="text", min_df=1, max_df=1.0)
    with pytest.raises(InputError, match="holds no documents") as refused:
        dslda.ingest(tmp_path / "a.corpus", tmp_path / "b.corpus", text="text")
    assert refused.value.place == str(tmp_path / "a.corpus")


@pytest.mark.parametrize("name", ["a b.txt", "[x].txt", "ä#?.txt", "p%20q.txt"])
def test_a_file_is_found_by_its_path_and_by_its_url(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("word")
    for given in (path, str(path), f"file://{path}", f"FILE://{path}", path.as_uri()):
        assert list_files(given).ids == (name,)


@pytest.mark.parametrize(
    "inputs", [b"a.jsonl", {"text": ["a"], "y": [1]}, io.StringIO("{}\n"), io.BytesIO(b"{}\n")]
)
def test_what_only_looks_like_paths_is_refused_for_what_it_is(inputs: Any) -> None:
    with refused("inputs") as error:
        dslda.ingest(inputs, text="text", response="y")
    assert error.value.reason.endswith(("bytes", "dict", "an open file"))
