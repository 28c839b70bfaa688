"""The structure of the package: one name for each module and class, imports that run one way and are light."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dslda"
MODULES = sorted(PACKAGE.rglob("*.py"))

SHARED_STEMS = frozenset({"__init__", "base"})


def _repeated(names: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for name, path in names:
        places[name].append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def _floors() -> list[str]:
    """The rooms of the layers contract in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(c["layers"] for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return [room.strip().removeprefix("dslda.") for layer in layers for room in layer.split("|")]


def test_no_two_modules_share_a_name() -> None:
    """Tabs of an editor and lines of a traceback show the basename alone."""
    names = [(path.stem, path) for path in MODULES if path.stem not in SHARED_STEMS]
    assert len(names) > 100
    assert _repeated(names) == {}


def test_no_two_classes_share_a_name() -> None:
    names = [
        (node.name, path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert len(names) > 100
    assert _repeated(names) == {}


def test_every_room_and_module_at_the_top_has_its_floor() -> None:
    """The layers contract ignores what it does not name."""
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    doors = {"__init__", "__main__", "_version"}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - doors
    assert sorted(_floors()) == sorted(rooms | modules)


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
