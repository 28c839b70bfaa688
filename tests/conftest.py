"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "dslda"
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_configure() -> None:
    """Have the kernels compiled anew after a change in what they inline: numba looks at the file of the kernel alone."""
    for room in (PACKAGE / "families", PACKAGE / "variational"):
        newest = max(path.stat().st_mtime for path in room.rglob("*.py"))
        for index in room.rglob("*.nbi"):
            if index.stat().st_mtime < newest:
                index.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real labelled corpora that live beside the repository, not in it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real corpora (../shared/data) are not beside this checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def documented_family() -> str:
    """The code of `Exponential`, the family of one's own that docs/families.md shows."""
    page = (PACKAGE.parent / "docs" / "families.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    assert "class Exponential(Family)" in code
    return code
