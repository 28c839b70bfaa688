"""Fixtures of the mathematics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits

from dslda.families.base import Family
from dslda.families.registry import get_family


@pytest.fixture(scope="session")
def gaussian() -> Family:
    return get_family("gaussian")


@pytest.fixture(scope="module", autouse=True)
def _one_blas_thread() -> Iterator[None]:
    """Products this small are slower on several threads, by a factor of six where others use the cores too."""
    with threadpool_limits(1, user_api="blas"):
        yield
