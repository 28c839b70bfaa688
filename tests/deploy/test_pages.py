"""The pages of deploy/: their links lead somewhere, and every folder has one that the first page names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.links import broken_links

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PAGES = sorted(DEPLOY.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(DEPLOY)) for page in PAGES])
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_every_place_has_a_page_and_the_first_page_names_it() -> None:
    first = (DEPLOY / "README.md").read_text(encoding="utf-8")
    folders = {path.name for path in DEPLOY.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders == {"airflow", "compose", "cron", "docker", "kubernetes", "slurm", "systemd", "tls"}
    for folder in folders:
        assert (DEPLOY / folder / "README.md").is_file()
        assert f"({folder}/README.md)" in first, folder


def test_exit_codes_of_the_first_page_are_the_programs() -> None:
    from dslda.cli.program import EPILOG

    page = (DEPLOY / "README.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    told = {
        int(code) for row in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE) for code in row.split(",")
    }
    assert told == {int(code) for code in re.findall(r"^  (\d+) ", EPILOG, re.MULTILINE)}
