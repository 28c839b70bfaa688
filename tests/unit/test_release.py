"""Whatever names the version names the same one: the citation, and the tags of releases."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import dslda

ROOT = Path(__file__).resolve().parents[2]
Git = Callable[..., None]


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == dslda.__version__


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in `tmp_path`, where version 1.2.3 is committed."""
    command = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]

    def run(*arguments: str) -> None:
        subprocess.run([*command, *arguments], check=True)

    (tmp_path / "dslda").mkdir()
    (tmp_path / "dslda" / "_version.py").write_text('__version__ = "1.2.3"\n', encoding="utf-8")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message", "one")
    return run


def check_tag(checkout: Path) -> str:
    """What the check complains about; empty if nothing."""
    script = [str(ROOT / ".ci" / "check-tag"), str(checkout)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert "1.2.3" in done.stdout + done.stderr
    assert (done.returncode != 0) == bool(done.stderr)
    return done.stderr


@pytest.mark.parametrize("tags", [[], ["v1.2.3"], ["v1.2.3", "v1.2.3rc1"], ["other"]])
def test_a_commit_is_built_that_no_tag_contradicts(tmp_path: Path, git: Git, tags: list[str]) -> None:
    for tag in tags:
        git("tag", tag)
    assert check_tag(tmp_path) == ""


def test_a_tag_of_another_version_stops_the_build(tmp_path: Path, git: Git) -> None:
    git("tag", "v1.2.4")
    assert "the tag here is v1.2.4" in check_tag(tmp_path)


def test_a_released_version_is_not_built_from_a_later_commit(tmp_path: Path, git: Git) -> None:
    git("tag", "v1.2.3")
    git("commit", "--quiet", "--allow-empty", "--message", "two")
    assert "raise the version" in check_tag(tmp_path)


def test_a_release_is_not_built_from_changed_files(tmp_path: Path, git: Git) -> None:
    git("tag", "v1.2.3")
    with open(tmp_path / "dslda" / "_version.py", "a", encoding="utf-8") as file:
        file.write("# a change\n")
    assert "files differ from the tag v1.2.3" in check_tag(tmp_path)


def test_sources_without_git_are_built(tmp_path: Path, git: Git) -> None:
    (tmp_path / ".git").rename(tmp_path / "git")
    assert check_tag(tmp_path) == ""
