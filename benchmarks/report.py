"""Results as a Markdown table for people and JSON for programs, with the machine and date they belong to."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["machine", "markdown", "write_json"]

PACKAGES = ("dslda", "numpy", "scipy", "scikit-learn", "numba", "dask", "tomotopy")


def machine() -> dict[str, Any]:
    """The machine, the versions and the date of the numbers."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def markdown(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, tuple[str, str]]) -> str:
    """A Markdown table.

    Parameters
    ----------
    rows : sequence of mapping
        Values by key; a missing key, None or NaN leaves the cell empty.
    columns : mapping of str to (str, str)
        For each key in turn the column's heading and the format of its values, such as ".3f" or "".
    """
    lines = [[heading for heading, _ in columns.values()]]
    lines.append(["---:" if spec else "---" for _, spec in columns.values()])
    for row in rows:
        lines.append([_cell(row.get(key), spec) for key, (_, spec) in columns.items()])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_json(path: Path, results: Mapping[str, Any]) -> None:
    """Write results, replacing the file in one step."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def _cell(value: Any, spec: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return format(value, spec)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
