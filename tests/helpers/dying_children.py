"""Children of a process that a signal ends at their n-th change of a file."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["count_changes", "run_in_child"]

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def count_changes(folder: Path, *, at: int = 0, number: int = 0) -> list[int]:
    """Count from now on what this process changes beneath a folder; send it a signal just before change `at`, if not 0."""
    seen = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" and event not in CHANGES:
            return
        paths = [str(a) for a in arguments[:2] if isinstance(a, (str, os.PathLike))]
        if not any(path.startswith(str(folder)) for path in paths):
            return
        if event == "open" and not arguments[2] & WRITING:
            return
        seen[0] += 1
        if seen[0] == at:
            os.kill(os.getpid(), number)

    sys.addaudithook(hook)
    return seen


def run_in_child(function: Callable[[], int | None]) -> int:
    """The exit code of a function in a child, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            code = function() or 0
        except BaseException:
            traceback.print_exc()
            code = 99
        sys.stderr.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
