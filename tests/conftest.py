"""Fixtures shared by all tests."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from distributed import Client

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "dslda"
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

QUICK = (
    *("corpus", "datasets", "engine", "evaluation", "ingestion", "inputs", "storage"),
    *("families/test_errata.py", "families/test_families.py", "families/test_glm.py"),
    "persistence/test_checkpoint_store.py",
    *(f"variational/test_{name}.py" for name in ("derivatives", "parameters", "special", "statistics")),
    *("test_documentation.py", "test_imports.py"),
)
"""Folders and files of tests/unit whose tests compile no kernel and start no cluster: `make quick` runs them."""
NOT_QUICK = frozenset(
    {"test_driver.py", "test_notebook.py", "test_sparse_statistics.py", "test_word_coefficients.py"}
)
"""Files of these folders that do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the quick tests."""
    quick = [TESTS / "unit" / path for path in QUICK]
    for item in items:
        is_quick = item.path.name not in NOT_QUICK and any(item.path.is_relative_to(path) for path in quick)
        if is_quick and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.quick)


def pytest_configure(config: pytest.Config) -> None:
    """Have the kernels compiled anew after a change in what they inline: numba looks at the file of the kernel alone.

    Before processes that run tests side by side (pytest-xdist) start: once, and none writes a cache that another reads.
    """
    if hasattr(config, "workerinput"):
        return
    # hundreds of processes of tests import the package: it need not be parsed in each
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # they share the cores, on which threads of BLAS and OpenMP would only wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for room in (PACKAGE / "families", PACKAGE / "variational"):
        newest = max(path.stat().st_mtime for path in room.rglob("*.py"))
        for index in room.rglob("*.nbi"):
            if index.stat().st_mtime < newest:
                index.unlink(missing_ok=True)
    if getattr(config.option, "numprocesses", None) and config.option.markexpr != "quick":
        block = "from dslda.variational.kernels.block_e_step import block_kernel; block_kernel"
        kernels = "import dslda.variational.kernels"
        # of about the same time
        shares = (
            f"{block}(False); {kernels}.word_inference; {kernels}.word_derivative; {kernels}.family_values",
            f"{block}(True); {kernels}.class_e_step; from dslda.families.registry import FAMILIES; [*FAMILIES.values()]",
        )
        compilers = [subprocess.Popen([sys.executable, "-c", share], cwd=PACKAGE.parent) for share in shares]
        codes = [compiler.wait() for compiler in compilers]
        if any(codes):
            pytest.exit("the kernels do not compile", returncode=1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real labelled corpora that live beside the repository, not in it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real corpora (../shared/data) are not beside this checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def without_rights() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python as a user whom the rights of files bind, as they do not bind the system's own."""
    if sys.platform == "win32":
        pytest.skip("rights of POSIX")
    bound: list[str] = []
    if os.geteuid() == 0:
        bound = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        if shutil.which("setpriv") is None or subprocess.run([*bound, "true"], check=False).returncode:
            pytest.skip("no way here to be bound by the rights of files")

    def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*bound, sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def documented_family() -> str:
    """The code of `Exponential`, the family of one's own that docs/families.md shows."""
    page = (PACKAGE.parent / "docs" / "families.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    assert "class Exponential(Family)" in code
    return code


@pytest.fixture(scope="session")
def assert_same() -> Callable[[Any, Any], None]:
    """Compare all arrays of two models, but for wall-clock times."""

    def compare(one: Any, other: Any) -> None:
        mine, theirs = one.record, other.record
        assert len(mine.starts) == len(theirs.starts)
        for my_start, their_start in zip(mine.starts, theirs.starts, strict=True):
            ours, others = (dataclasses.asdict(start.parameters) for start in (my_start, their_start))
            for parameters in (ours, others):
                parameters |= parameters.pop("remainder") or {}
            assert ours.keys() == others.keys()
            for name, value in ours.items():
                is_array = isinstance(value, np.ndarray)
                same = value.tobytes() == others[name].tobytes() if is_array else value == others[name]
                assert same, name
            assert my_start.base.tobytes() == their_start.base.tobytes()
        for name in ("covariance", "prevalence"):
            assert getattr(mine, name).tobytes() == getattr(theirs, name).tobytes(), name
        for field in dataclasses.fields(mine.reference):
            values = [getattr(record.reference, field.name) for record in (mine, theirs)]
            if field.name == "intervals" and values[0] is not None:
                values = [
                    np.concatenate([each.bounds.ravel(), each.predictions, each.residuals]) for each in values
                ]
            values = [np.asarray(value) for value in values]
            assert values[0].dtype == object or values[0].tobytes() == values[1].tobytes(), field.name
        assert (mine.pearson is None) == (theirs.pearson is None)
        assert mine.pearson is None or mine.pearson.tobytes() == theirs.pearson.tobytes()
        for name in ("npmi", "exclusivity", "distinct_share"):
            values = [np.asarray(getattr(record.quality, name)) for record in (mine, theirs)]
            assert values[0].tobytes() == values[1].tobytes(), name
        assert (mine.stability is None) == (theirs.stability is None)
        if mine.stability is not None:
            for name in ("words", "shares"):
                values = [getattr(record.stability, name) for record in (mine, theirs)]
                assert values[0].tobytes() == values[1].tobytes(), f"stability, {name}"
        assert mine.training == theirs.training
        assert list(mine.trace) == list(theirs.trace)
        for name, values in mine.trace.items():
            assert "second" in name or values.tobytes() == theirs.trace[name].tobytes(), name

    return compare


@pytest.fixture
def in_process() -> Iterator[Client]:
    """One worker of two threads in this process: quick to start, and its scheduler can be looked into."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
