"""The kernel of each family, its compilation, and the line in the log meanwhile."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numba
import pytest

from dslda.engine.progress import logging_after
from dslda.families.registry import FAMILIES, get_family
from dslda.ingestion.ingest import ingest
from dslda.variational.compiling import kernel_of, telling_of_compilation
from dslda.variational.kernels.block_e_step import block_kernel
from dslda.variational.kernels.class_e_step import class_block
from tests.helpers.files import write_records

LINE = "compiling the kernel for this kind of response (there are three), once after installation: a minute or two"


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_has_one_kernel_for_training_and_one_for_prediction(name: str) -> None:
    family = get_family(name)
    if name == "categorical":
        assert kernel_of(family) is kernel_of(family, labelled=False) is class_block
        return
    assert kernel_of(family) is block_kernel(family.is_exact_product)
    assert kernel_of(family, labelled=False) is block_kernel(family.link == "log")


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_one_line_tells_of_a_compilation_that_takes_long(
    caplog: pytest.LogCaptureFixture, level: int
) -> None:
    """Also where INFO is hidden, as in a notebook."""
    with caplog.at_level(level, logger="dslda.engine"), telling_of_compilation(patience=0.0):
        for function in (lambda x: x + 1, lambda x: x + 2):
            numba.njit("int64(int64)")(function)
        deadline = time.monotonic() + 60
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
    assert caplog.record_tuples == [("dslda.engine", level, LINE)]
    caplog.clear()
    with telling_of_compilation(patience=3600.0):
        numba.njit("int64(int64)")(lambda x: x + 3)
    # no timer is left
    assert not any(
        isinstance(thread, threading.Timer) and not thread.finished.is_set()
        for thread in threading.enumerate()
    )
    assert caplog.messages == []


def test_nothing_is_said_where_the_cache_is_loaded(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dslda.engine"), telling_of_compilation(patience=0.0):
        time.sleep(0.1)
    assert caplog.messages == []


def test_a_line_tells_of_workers_that_take_long(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dslda.engine"):
        with logging_after(3600.0, "never"):
            pass
        with logging_after(0.0, "now"):
            deadline = time.monotonic() + 60
            while not caplog.messages and time.monotonic() < deadline:
                time.sleep(0.01)
    assert caplog.messages == ["now"]


PROGRAM = """
    import sys
    from contextlib import contextmanager
    from dslda.cluster.client import ClientLater
    from dslda.training.train import train
    from dslda.variational import compiling

    made = []
    load = compiling._kernel
    compiling._kernel = lambda kind: (made.append(kind), load(kind))[1]

    class Opened(Exception):
        pass

    @contextmanager
    def cluster():
        raise Opened(made)
        yield

    for family, here in (("poisson", True), ("poisson", False), ("categorical", True)):
        made.clear()
        try:
            train(sys.argv[1], family=family, n_topics=2, client=ClientLater(cluster, here=here))
        except Opened:
            print(family, here, *made)
"""


def test_the_client_compiles_once_before_its_own_workers_start(tmp_path: Path) -> None:
    """Our own workers would compile the same; a cluster of the user has its own processor and cache."""
    rows = [{"text": "apple pear plum " * (1 + i % 3), "y": i % 3} for i in range(30)]
    write_records(tmp_path / "a.jsonl", rows)
    ingest(tmp_path / "a.jsonl", tmp_path / "a.corpus", text="text", response="y", min_df=1, max_df=1.0)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "a.corpus")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "poisson True product",
        "poisson False",
        "categorical True classes",
    ], done.stderr
