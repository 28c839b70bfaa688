"""The fewest CPU seconds in which each topic model reaches a predictive R2 on the movie reviews."""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.measure import measure
from benchmarks.methods import METHODS, evaluation
from benchmarks.problems import VOCABULARIES
from benchmarks.report import machine, markdown, write_json

# Settings that each method may try.
GRIDS: dict[str, list[dict[str, Any]]] = {
    "tomotopy": [{"variance": v, "sweeps": s} for v, s in product((0.5, 0.1), (25, 50, 100, 200, 400))],
    "dslda": [{"response_weight": float(r), "max_iter": m} for r, m in product((2, 3), (6, 8, 10, 20))],
}
BASE = {"tomotopy": "tomotopy", "dslda": "dslda"}
COLUMNS = {
    "label": ("method", ""),
    "n_topics": ("K", "d"),
    "settings": ("settings", ""),
    "r2": ("predictive R2", ".3f"),
    "fit_cpu_seconds": ("fit, CPU s", ".2f"),
    "predict_cpu_seconds": ("predict, CPU s", ".2f"),
    "fold_cpu_seconds": ("both, CPU s", ".2f"),
    "peak_mib": ("peak MiB", ".0f"),
    "reached": ("reached", ""),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", type=float, default=0.43, help="predictive R2 to reach (default: 0.43)")
    parser.add_argument("--methods", nargs="+", choices=GRIDS, default=list(GRIDS), help="default: all")
    parser.add_argument("--topics", nargs="+", type=int, default=[10, 20], help="default: 10 20")
    parser.add_argument("--vocabulary", choices=VOCABULARIES, default="2180", help="default: 2180")
    parser.add_argument("--folds", type=int, default=5, help="default: 5")
    parser.add_argument("--out", type=Path, help="JSON file for the results, rewritten after every row")


def main(arguments: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    results = {
        "benchmark": "time_to_r2",
        "target": arguments.target,
        "vocabulary": arguments.vocabulary,
        "folds": arguments.folds,
        "machine": machine(),
        "rows": rows,
    }
    for name in arguments.methods:
        method = METHODS[BASE[name]]
        if not method.is_available:
            print(f"skipped: {name} ({method.requires} is not installed)", file=sys.stderr)
            continue
        for n_topics, options in product(arguments.topics, GRIDS[name]):
            cost = measure(evaluation, BASE[name], n_topics, arguments.vocabulary, arguments.folds, options)
            result = cost.pop("result")
            rows.append(
                {
                    "label": name,
                    "n_topics": n_topics,
                    "settings": ", ".join(f"{key} {value:g}" for key, value in options.items()),
                    **result,
                    **cost,
                    "fold_cpu_seconds": result["fit_cpu_seconds"] + result["predict_cpu_seconds"],
                    "reached": "yes" if result["r2"] >= arguments.target else "no",
                }
            )
            print(markdown([rows[-1]], COLUMNS).splitlines()[-1], file=sys.stderr, flush=True)
            if arguments.out:
                write_json(arguments.out, results)
    print(f"{markdown(rows, COLUMNS)}\n\n{summary(rows, arguments.target)}")


def summary(rows: list[dict[str, Any]], target: float) -> str:
    """The cheapest setting of each method that reaches the target, by fit alone and with prediction."""
    lines = []
    for name in dict.fromkeys(row["label"] for row in rows):
        reached = [row for row in rows if row["label"] == name and row["r2"] >= target]
        if not reached:
            best = max(row["r2"] for row in rows if row["label"] == name)
            lines.append(f"{name}: does not reach {target} (best {best:.3f})")
            continue
        parts = []
        for what, key in (("fit", "fit_cpu_seconds"), ("fit and predict", "fold_cpu_seconds")):
            row = min(reached, key=lambda row: row[key])
            setting = f"K {row['n_topics']}, {row['settings']}, R2 {row['r2']:.3f}"
            parts.append(f"{what} {row[key]:.2f} CPU s ({setting})")
        lines.append(f"{name}: {'; '.join(parts)}")
    return "\n".join(lines)
