"""The helpers of tests/reference are imported by name: enumeration and random problems."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dslda.families.base import Family
from dslda.families.registry import get_family

REFERENCE = str(Path(__file__).resolve().parents[2] / "reference")
if REFERENCE not in sys.path:
    sys.path.append(REFERENCE)


@pytest.fixture(scope="session")
def gaussian() -> Family:
    return get_family("gaussian")
