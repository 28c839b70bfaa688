"""Consecutive partitions go to the same worker."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dslda.engine.dask.placement import contiguous_owners


@settings(deadline=None, max_examples=40)
@given(
    weights=st.lists(st.integers(0, 10**9), min_size=1, max_size=60),
    threads=st.dictionaries(st.sampled_from(list("abcdefgh")), st.integers(1, 16), min_size=1),
)
def test_blocks_are_contiguous(weights: list[int], threads: dict[str, int]) -> None:
    owners = contiguous_owners(np.array(weights), threads)
    assert len(owners) == len(weights)
    blocks = [owner for owner, _ in groupby(owners)]
    assert blocks == sorted(set(blocks))


def test_shares_follow_threads_and_weights() -> None:
    owners = contiguous_owners(np.ones(40, dtype=np.int64), {"big": 6, "small": 2})
    assert (owners.count("big"), owners.count("small")) == (30, 10)
    heavy_first = contiguous_owners(np.array([30, 10, 10, 10]), {"a": 1, "b": 1})
    assert heavy_first == ["a", "b", "b", "b"]
