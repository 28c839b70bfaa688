"""The version is that of git's tags, and whatever is built without them claims no earlier one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
FALLBACK = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools_scm"][
    "fallback_version"
]
Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in `tmp_path / "checkout"`, whose one commit has what this repository says about versions."""
    if importlib.util.find_spec("setuptools_scm") is None:
        pytest.skip("setuptools-scm is not installed: pip install -e '.[test]'")
    checkout = tmp_path / "checkout"
    command = ["git", "-C", str(checkout), "-c", "user.name=A", "-c", "user.email=a@example.org"]

    def run(*arguments: str) -> str:
        return subprocess.run(
            [*command, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    checkout.mkdir()
    for name in ("pyproject.toml", ".gitattributes", ".git_archival.txt"):
        shutil.copy(ROOT / name, checkout)
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message", "one")
    return run


def version_of(sources: Path, **environment: str) -> str:
    """The version with which these sources are built."""
    ran = subprocess.run(
        [sys.executable, "-m", "setuptools_scm"],
        cwd=sources,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def archived(git: Git, tmp_path: Path) -> Path:
    git("archive", "--prefix=archive/", "--output", str(tmp_path / "archive.tar"), "HEAD")
    shutil.unpack_archive(tmp_path / "archive.tar", tmp_path, filter="data")
    return tmp_path / "archive"


def test_a_tagged_commit_has_the_version_of_its_tag_and_later_ones_their_names(
    tmp_path: Path, git: Git
) -> None:
    git("tag", "v9.5.0")
    assert version_of(tmp_path / "checkout") == "9.5.0"
    assert version_of(archived(git, tmp_path)) == "9.5.0"
    git("commit", "--quiet", "--allow-empty", "--message", "two")
    for other in ("demo-2024", "paper1"):
        git("tag", other)
    later = version_of(tmp_path / "checkout")
    assert Version("9.5.0") < Version(later) < Version("9.5.1")
    assert later.endswith(git("rev-parse", "--short=9", "HEAD"))


def test_without_tags_or_git_the_version_is_no_earlier_than_the_last_release(
    tmp_path: Path, git: Git
) -> None:
    without_tags = version_of(tmp_path / "checkout")
    assert Version(without_tags) > Version(FALLBACK)
    assert without_tags.endswith(git("rev-parse", "--short=9", "HEAD"))
    assert version_of(tmp_path / "checkout", PATH=str(tmp_path)) == FALLBACK  # git is not installed
    assert version_of(archived(git, tmp_path)) == FALLBACK


def test_the_image_says_its_version(tmp_path: Path, git: Git) -> None:
    git("tag", "v9.5.0")
    checkout = tmp_path / "checkout"
    shutil.rmtree(checkout / ".git")  # as Dockerfile.dockerignore does
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert 'SETUPTOOLS_SCM_PRETEND_VERSION_FOR_DSLDA="${VERSION}"' in dockerfile
    assert version_of(checkout, SETUPTOOLS_SCM_PRETEND_VERSION_FOR_DSLDA="9.5.0") == "9.5.0"
    assert version_of(checkout, SETUPTOOLS_SCM_PRETEND_VERSION_FOR_DSLDA="") == FALLBACK


def test_the_fallback_is_no_earlier_than_the_last_tag() -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "tag", "--merged", "HEAD", "--list", "v[0-9]*"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert all(Version(tag) <= Version(FALLBACK) for tag in listed.stdout.split())


def test_sources_that_were_never_built_have_the_fallback(tmp_path: Path) -> None:
    (tmp_path / "dslda").mkdir()
    for name in ("__init__.py", "versions.py"):
        shutil.copy(ROOT / "dslda" / name, tmp_path / "dslda")
    # without site: an editable install would lend the sources its own version
    command = [sys.executable, "-S", "-c", "import dslda; print(dslda.__version__)"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == FALLBACK
