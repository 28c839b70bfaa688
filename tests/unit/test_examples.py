"""The notebooks of docs/examples run, and hold what they show when they run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.notebooks import EXAMPLES, SHARED_FILES, run_notebook

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
MOST_BYTES = 300_000


def _code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _shown(cell: Any) -> set[str]:
    """What a cell shows: text of one line, or the kind of something larger. Quick work shows no lines of progress."""
    shown = set()
    for output in cell["outputs"]:
        data = output.get("data", {})
        shown |= {*data} - {"text/plain"}
        if output["output_type"] == "execute_result" and "text/html" not in data:
            shown.add("".join(data["text/plain"]))
        if output["output_type"] == "stream":
            shown.add("".join(output["text"]))
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_holds(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if path.stem in SHARED_FILES:
        request.getfixturevalue("shared_data")
    stored = json.loads(path.read_text(encoding="utf-8"))
    ran = run_notebook(path, tmp_path)
    for before, after in zip(_code_cells(stored), _code_cells(ran), strict=True):
        assert _shown(before) - _shown(after) == set(), "".join(before["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_the_outputs_of_one_run_and_no_folder_of_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    cells = _code_cells(json.loads(text))
    assert len(text) < MOST_BYTES
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert all(_shown(cell) for cell in cells[-2:])
    assert not [output for cell in cells for output in cell["outputs"] if output.get("name") == "stderr"]
    assert not re.search(r"/(?:tmp|home|root|Users|work)/|tcp://127", text)


def test_there_are_three_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"reviews", "bills", "cluster"}
