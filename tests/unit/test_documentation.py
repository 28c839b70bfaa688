"""Pages name what is there: tests, files, targets, and the floors of the rooms. tests/cli/test_pages.py runs their code."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.links import broken_links, leads_somewhere

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*.md"))]


@pytest.mark.parametrize("page", ["failure.md", "reproducibility.md", "scoring.md"])
def test_the_tests_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    references = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(references) > 10
    for file, name in references:
        assert name in _functions(file), f"{file}::{name}"


@cache
def _functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_pages_that_the_code_refers_to_are_there() -> None:
    files = [
        *sorted(ROOT.glob("dslda/**/*.py")),
        *sorted(ROOT.glob("benchmarks/**/*.py")),
        ROOT / "CHANGELOG.md",
    ]
    references = {
        reference
        for file in files
        for reference in re.findall(
            r"\bdocs/\w+\.(?:md|py)(?:#[\w-]+)?", file.read_text(encoding="utf-8"), re.ASCII
        )
    }
    assert len(references) > 5
    assert [reference for reference in sorted(references) if not leads_somewhere(ROOT, reference)] == []


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
IN_CODE = re.compile(r"`([^`\s]+)`")


def _rows() -> list[tuple[int, Path, str]]:
    """Floor, room and description of each row of the map."""
    rows = re.findall(r"^\| (\d+) \| `([\w/.]+)` \| (.*) \|$", CONTRIBUTING, re.MULTILINE)
    return [(int(floor), ROOT / room, holds) for floor, room, holds in rows]


def test_the_map_has_each_room_on_its_floor() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(c["layers"] for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    floors = {
        room.strip().removeprefix("dslda."): floor
        for floor, layer in enumerate(reversed(layers))
        for room in layer.split("|")
    }
    assert {room.stem: floor for floor, room, _ in _rows()} == floors


def test_the_map_names_files_that_are_in_the_rooms() -> None:
    for _, room, holds in _rows():
        assert room.exists(), room
        for name in IN_CODE.findall(holds):
            assert not name.endswith((".py", "/")) or (room / name).exists(), f"{room}: {name}"


def test_files_and_targets_that_contributors_are_sent_to_are_there() -> None:
    roots = {path.name for path in ROOT.iterdir()}
    paths = [
        name for name in IN_CODE.findall(CONTRIBUTING) if name.split("/")[0] in roots and "NAME" not in name
    ]
    assert len(paths) > 30
    assert [name for name in paths if not (ROOT / name).exists()] == []
    targets = re.findall(r"`make ([\w-]+)`", CONTRIBUTING)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"quick", "test"} <= set(targets)
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_the_list_of_modules_has_every_module_in_its_room() -> None:
    section = CONTRIBUTING.partition("## Modules")[2].partition("## ")[0]
    listed = {}
    for room, modules in re.findall(r"^- `([\w/]+)`: (.*(?:\n  .*)*)", section, re.MULTILINE):
        names = (re.match(r"\s*((?:`\w+`(?:,\s*)?)+)", part) for part in modules.split("·"))
        listed[room] = {name for match in names if match for name in re.findall(r"\w+", match[1])}
    package = ROOT / "dslda"
    there: dict[str, set[str]] = {}
    for path in package.glob("*/**/*.py"):
        if path.stem != "__init__":
            there.setdefault(str(path.parent.relative_to(package)), set()).add(path.stem)
    assert listed == there
