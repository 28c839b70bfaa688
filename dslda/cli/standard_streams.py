"""Standard input, output and error as every command may rely on them: there, and in UTF-8."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys

__all__ = ["drop", "flush_error", "nobody_reads", "open_standard_streams"]

STREAMS = (("stdin", "r", "strict"), ("stdout", "w", "surrogateescape"), ("stderr", "w", "backslashreplace"))
"""By file descriptor: name, mode, and what happens to what UTF-8 cannot say, such as a file name of other bytes."""


def open_standard_streams() -> frozenset[str]:
    """Open what the caller closed on the null device, and write UTF-8 whatever the locale.

    Returns
    -------
    frozenset of str
        Those that were closed, of "stdin", "stdout", "stderr".
    """
    closed = frozenset(name for name, _, _ in STREAMS if getattr(sys, name) is None)
    for descriptor, (name, mode, errors) in enumerate(STREAMS):
        if name in closed:
            # or the next file that is opened becomes the standard output of it and of every child
            with contextlib.suppress(OSError):
                _open_null(descriptor)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False))  # noqa: SIM115
        elif mode == "w" and isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    return closed


def drop(name: str) -> None:
    """Point "stdout" or "stderr" to the null device, so that Python does not fail on it again when it exits."""
    with contextlib.suppress(OSError, ValueError):
        _open_null(getattr(sys, name).fileno())


def flush_error(name: str) -> OSError | None:
    """What keeps "stdout" or "stderr" from taking what is still in the buffer; None if nothing does."""
    try:
        getattr(sys, name).flush()
    except OSError as error:
        return error
    return None


def nobody_reads(name: str) -> bool:
    """Whether "stdout" or "stderr" is a pipe whose other end is closed."""
    if isinstance(flush_error(name), BrokenPipeError):
        return True
    # without a buffer nothing is left to fail
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no poll() on Windows
        pipe = select.poll()
        pipe.register(getattr(sys, name).fileno(), 0)
        return any(state & (select.POLLERR | select.POLLHUP) for _, state in pipe.poll(0))
    return False


def _open_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)
    os.set_inheritable(descriptor, True)
