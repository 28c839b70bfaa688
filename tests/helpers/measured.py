"""Programs run to their end, with the most memory that they took."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

from tests.helpers.processes import ROOT

# a process begins with the memory of the one that starts it in its count, so a small one stands between
LAUNCHER = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""


class Run(NamedTuple):
    """Exit code, standard error, and the peak of resident memory in MiB."""

    code: int
    stderr: str
    peak: int


def measured(*arguments: str) -> Run:
    """Run Python with these arguments, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    code, peak = done.stdout.split()[-2:]
    return Run(int(code), done.stderr, int(peak))
