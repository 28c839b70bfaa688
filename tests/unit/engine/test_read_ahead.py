"""The next partition, and only that, is read while the current one is worked on."""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from dslda.engine.executor import read_ahead


def test_the_next_is_read_while_the_current_one_is_worked_on() -> None:
    read: list[tuple[int, bool]] = []
    begun = [threading.Event() for _ in range(3)]

    def reader(i: int) -> Any:
        read.append((i, threading.current_thread() is threading.main_thread()))
        begun[i].set()
        return i

    with closing(read_ahead([partial(reader, i) for i in range(3)])) as blocks:
        for i in range(3):
            assert next(blocks) == i
            # without a further call
            assert all(event.wait(10) for event in begun[: i + 2])
            assert len(read) <= i + 2
    assert read == [(0, True), (1, False), (2, False)]


def test_an_error_is_that_of_the_partition_that_has_it() -> None:
    def broken() -> Any:
        raise OSError("no such partition")

    with closing(read_ahead([lambda: 0, broken])) as blocks:  # type: ignore[list-item]
        assert next(blocks) == 0
        with pytest.raises(OSError, match="no such partition"):
            next(blocks)
