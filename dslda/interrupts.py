"""Interrupts that come where Python drops what their handler raises: they come again a little later."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["comes_again", "heeded_interrupts"]

DROPPING = frozenset({"__del__", "_gc_callback", "_get_wrapper_address", "_numba_unpickle", "typeof_pyval"})
"""Functions whose errors are lost: garbage collection calls the first two (`_gc_callback` of distributed's scheduler), and
numba the others when a kernel is given its arguments."""
AGAIN_AFTER = 0.01
"""Seconds until an interrupt comes again."""


def comes_again(number: int, frame: FrameType | None) -> bool:
    """True if what is raised in this frame would be lost. The signal then comes again, and its handler has nothing to do."""
    while frame is not None:
        if frame.f_code.co_name in DROPPING:
            threading.Timer(AGAIN_AFTER, _send, [number]).start()
            return True
        frame = frame.f_back
    return False


@contextmanager
def heeded_interrupts() -> Iterator[None]:
    """Lose no Ctrl-C in the block. Where the caller handles it, or in another thread, nothing changes."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _send(number: int) -> None:
    if hasattr(signal, "pthread_kill"):  # which ends a wait of the main thread, too
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)


def _raise(number: int, frame: FrameType | None) -> None:
    if not comes_again(number, frame):
        raise KeyboardInterrupt
