"""The structure of the package: imports run one way, and importing it is light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_imports_run_one_way() -> None:
    """The contracts are in pyproject.toml under [tool.importlinter]."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("numba", "dask", "distributed", "zarr", "sklearn", "pandas", "pyarrow", "scipy", "numpy")
    code = f"import dslda, sys; print([m for m in {heavy!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_reading_a_model_waits_for_no_compiler() -> None:
    heavy = ("numba", "distributed", "sklearn", "pandas")
    code = f"import dslda.model, dslda.persistence.model_store, sys; print([m for m in {heavy!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_scoring_in_one_process_waits_for_no_cluster() -> None:
    code = (
        "import dslda.scoring.score, dslda.scoring.part, sys; "
        "print([m for m in ('distributed', 'dask', 'sklearn', 'pandas', 'numba') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_public_name_can_be_had() -> None:
    import dslda

    assert all(getattr(dslda, name) is not None for name in dslda.__all__)
