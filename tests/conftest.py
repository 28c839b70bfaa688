"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real labelled corpora that live beside the repository, not in it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real corpora (../shared/data) are not beside this checkout")
    return SHARED_DATA
