"""Ctrl-C that comes while Python would drop it."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import Any

import numpy as np
import pytest

from dslda.datasets.simulate import simulate_corpus
from dslda.engine.progress import LogProgress
from dslda.interrupts import heeded_interrupts
from dslda.training.train import train

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture
def pythons_own_handler() -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_it_is_not_lost_while_numba_looks_up_the_functions_of_a_family(pythons_own_handler: None) -> None:
    """numba drops what is raised in some of them."""
    block = simulate_corpus(60, 2, 40, mean_tokens=20, seed=0).block
    counts = np.zeros((60, 40), dtype=np.int32)
    counts[np.repeat(np.arange(60), np.diff(block.indptr)), block.terms] = block.counts
    calls = 0

    def interrupt(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_name == "_get_wrapper_address":
            calls += 1
            if calls == 30:
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupt)
    try:
        model = train(
            counts,
            response=block.responses["y"],
            n_topics=2,
            objective="joint",
            tol=0.0,
            max_iter=2_000,
            progress=LogProgress(),
        )
    finally:
        sys.setprofile(None)
    assert calls >= 30
    assert model.training.interrupted


def _collect_and_wait() -> None:
    collected = Collected()
    del collected
    time.sleep(60)


class Collected:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_it_is_not_lost_in_garbage_collection_and_ends_the_block_alone(pythons_own_handler: None) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), heeded_interrupts():
        _collect_and_wait()
    assert time.monotonic() - began < 30.0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_caller_stays(pythons_own_handler: None) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    with heeded_interrupts():
        signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]
