"""The site builds without a warning, has every public name, and loads nothing from elsewhere (`make docs`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dslda

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(built)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return built


def test_the_reference_has_every_public_name(site: Path) -> None:
    pages = [page.read_text(encoding="utf-8") for page in sorted(site.glob("api/*.html"))]
    headings = {name for page in pages for name in re.findall(r'<h\d id="(dslda\.[\w.]+)"', page)}
    functions = {f"dslda.{name}" for name in dslda.__all__} - {"dslda.__version__", "dslda.plot"}
    figures = {f"dslda.plot.{name}" for name in dslda.plot.__all__}
    assert (functions | figures | {"dslda.testing.FamilyTests"}) - headings == set()
    assert not [page for page in pages if re.search(r":(?:meth|func|class):", page)]


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    loading = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//")
    assert [page.name for page in pages if loading.search(page.read_text(encoding="utf-8"))] == []
    styles = [style.read_text(encoding="utf-8") for style in site.rglob("*.css")]
    assert not [style for style in styles if re.search(r"url\(['\"]?(?:https?:)?//", style)]


def test_notebooks_are_pages_with_what_their_cells_show(site: Path) -> None:
    page = (site / "examples" / "reviews.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 2
    assert "<strong>Supervised topic model of rating: 6 topics</strong>" in page
    assert 'href="../coefficients.html"' in page
    home = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/examples' not in home
    assert 'href="examples/reviews.html"' in home
