"""``dslda report``: a page from the command line, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pages import read_page

Dslda = Callable[..., Any]


def test_report_writes_a_page_with_excerpts(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = dslda(
        "report",
        made / "stars.model",
        "--corpus",
        made / "reviews.corpus",
        "--texts",
        made / "reviews.jsonl",
        "--out",
        out,
    )
    assert done.code == 0, done.err
    assert done.out.strip() == str(out)
    page = read_page(out)
    assert any("number" in e.text and e.text.count(" ") == 3 for e in page.all("p"))
    assert "--starts 3" in page.text  # in the words of the command line
    assert "n_starts=3" not in page.text
    again = dslda("report", made / "stars.model", "--out", out)
    assert again.code == 2
    assert "--overwrite" in again.error
    assert dslda("report", made / "stars.model", "--out", out, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--texts", "reviews.jsonl"], "--texts"),
        (["--text", "body"], "--text"),
        (["--corpus", "reviews.corpus", "--text", "body"], "--texts"),
        (["--corpus", "reviews.corpus", "--texts", "reviews.jsonl", "--no-excerpts"], "--texts"),
        (["--corpus", "reviews.corpus", "--texts", "reviews.jsonl", "--text", "nowhere"], "nowhere"),
        (["--corpus", "missing.corpus"], "missing.corpus"),
        (["--corpus", "reviews.corpus", "--texts", "missing.jsonl"], "missing.jsonl"),
    ],
)
def test_report_refuses_what_it_cannot_use(
    dslda: Dslda,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    named: str,
) -> None:
    monkeypatch.chdir(made)
    refused = dslda("report", "stars.model", "--out", tmp_path / "r.html", *arguments)
    assert refused.code == 2
    assert named in refused.error
    assert list(tmp_path.iterdir()) == []
