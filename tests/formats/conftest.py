"""Archives of this version, made as the command of make_archives.py makes them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives of this version, made now."""
    from tests.formats.make_archives import make

    folder = tmp_path_factory.mktemp("archives") / "now"
    make(folder)
    return folder
