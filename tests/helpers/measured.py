"""Programs run to their end, with the most memory that they took."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import NamedTuple

from tests.helpers.processes import ROOT


class Run(NamedTuple):
    """Exit code, standard error, and the peak of resident memory in MiB."""

    code: int
    stderr: str
    peak: int


def measured(*arguments: str) -> Run:
    """Run Python with these arguments, in a process of its own."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return Run(process.returncode, errors.read().decode(), usage.ru_maxrss >> 10)
