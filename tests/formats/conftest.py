"""Lets tests import make_archives.py by name, and makes archives as its command does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if str(Path(__file__).parent) not in sys.path:
    sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives of this version, made now."""
    from make_archives import make

    folder = tmp_path_factory.mktemp("archives") / "now"
    make(folder)
    return folder
