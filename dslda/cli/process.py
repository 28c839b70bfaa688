"""The process that a command runs in: its signals and standard streams."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from dslda.cli.logs import log_line
from dslda.interrupts import comes_again

if TYPE_CHECKING:
    from dslda.engine.progress import FitProgress

__all__ = ["HoldWhenDone", "Interrupted", "Session", "drop", "flush_error", "nobody_reads_stdout"]

STREAMS = (("stdin", "r", "strict"), ("stdout", "w", "surrogateescape"), ("stderr", "w", "backslashreplace"))
"""Name and mode of each file descriptor, and the treatment of what UTF-8 cannot hold, such as a file name of other bytes."""

GIVE_UP_AT = 3


class Interrupted(Exception):
    """Ctrl-C or SIGTERM was handled, and everything that could be saved is saved."""


class Session:
    """A run of the program, the object of the commands' contexts.

    Attributes
    ----------
    json_logs : bool
        The run logs JSON.
    closed : frozenset of str
        Those of "stdin", "stdout" and "stderr" that the caller had closed.
    signals : list of int
        Interrupts that came, in order.
    hold : bool
        Only remember interrupts from now on, and say so, but obey the third. Otherwise each raises
        KeyboardInterrupt.
    """

    def __init__(self, *, json_logs: bool) -> None:
        self.json_logs = json_logs
        self.closed = _open_standard_streams()
        self.signals: list[int] = []
        self.hold = False

    @property
    def exit_code(self) -> int:
        """The code that shells report for a process that the signal ended: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self.signals or [signal.SIGINT])[0]

    @contextlib.contextmanager
    def handling_interrupts(self) -> Iterator[None]:
        """Treat Ctrl-C and SIGTERM alike while the block runs."""
        handlers: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # signals that the caller ignores, as nohup does, or handles stay the caller's
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    handlers[number] = signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if comes_again(number, frame):
            return
        self.signals.append(number)
        if not self.hold or len(self.signals) >= GIVE_UP_AT:
            raise KeyboardInterrupt
        line = log_line(
            logging.INFO, "saving the model; a third interrupt gives it up", json_logs=self.json_logs
        )
        with contextlib.suppress(OSError):
            # not through sys.stderr, whose lock the interrupted code may hold
            os.write(2, f"{line}\n".encode())


class HoldWhenDone:
    """The progress of a fit, which holds interrupts from the moment the fit ended or was interrupted.

    The moment is exact: the fit catches interrupts before it leaves its progress, and keeps its last complete iteration.
    """

    def __init__(self, progress: FitProgress, session: Session) -> None:
        self._progress = progress
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._progress, name)

    def __enter__(self) -> Self:
        self._session.hold = False  # another start of the fit
        self._progress.__enter__()
        return self

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        self._session.hold = False
        try:
            yield
        finally:
            self._session.hold = True

    def __exit__(self, *error: Any) -> None:
        self._session.hold = True
        self._progress.__exit__(*error)


def _open_standard_streams() -> frozenset[str]:
    """Open closed streams on the null device, and write UTF-8 in any locale; returns the names of those closed."""
    closed = frozenset(name for name, _, _ in STREAMS if getattr(sys, name) is None)
    for descriptor, (name, mode, errors) in enumerate(STREAMS):
        if name in closed:
            # otherwise the next file that is opened becomes the standard output of this process and of every child
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
    """The error of "stdout" or "stderr" when it is flushed, None if there is none."""
    try:
        getattr(sys, name).flush()
    except OSError as error:
        return error
    return None


def nobody_reads_stdout() -> bool:
    """True if standard output is a pipe whose other end is closed."""
    if isinstance(flush_error("stdout"), BrokenPipeError):
        return True
    # an empty buffer cannot fail
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no poll() on Windows
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        return any(state & (select.POLLERR | select.POLLHUP) for _, state in pipe.poll(0))
    return False


def _open_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)
    os.set_inheritable(descriptor, True)
