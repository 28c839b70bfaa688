"""What the documentation says that a test shows, a test of that name shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["failure.md", "reproducibility.md", "scoring.md"])
def test_the_tests_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 10
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (
            f"{file}::{name}"
        )


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"], ids=lambda page: page.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([\w/.-]+\.md)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), target
