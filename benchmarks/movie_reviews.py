"""Predictive R2 on the movie reviews and its cost, by method, vocabulary and number of topics."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.measure import measure
from benchmarks.methods import METHODS, evaluation
from benchmarks.problems import VOCABULARIES
from benchmarks.report import machine, markdown, write_json

COLUMNS = {
    "vocabulary": ("vocabulary", ""),
    "label": ("method", ""),
    "n_topics": ("K", "d"),
    "r2": ("predictive R2", ".3f"),
    "correlation": ("correlation", ".3f"),
    "fit_cpu_seconds": ("fit, CPU s", ".1f"),
    "predict_cpu_seconds": ("predict, CPU s", ".1f"),
    "peak_mib": ("peak MiB", ".0f"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = f"of {', '.join(METHODS)}"
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=list(METHODS),
        metavar="METHOD",
        help=f"{known}; default: all",
    )
    parser.add_argument(
        "--topics", nargs="+", type=int, default=[10, 20, 50], metavar="K", help="default: 10 20 50"
    )
    parser.add_argument(
        "--vocabulary", nargs="+", choices=VOCABULARIES, default=VOCABULARIES, help="default: both"
    )
    parser.add_argument("--folds", type=int, default=5, help="default: 5")
    parser.add_argument(
        "--against",
        choices=METHODS,
        default="tomotopy",
        metavar="METHOD",
        help="rival of the ratios; default: tomotopy",
    )
    parser.add_argument("--out", type=Path, help="JSON file for the results, rewritten after every row")


def main(arguments: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    results = {"benchmark": "movie_reviews", "folds": arguments.folds, "machine": machine(), "rows": rows}
    for name in arguments.methods:
        method = METHODS[name]
        if not method.is_available:
            print(f"skipped: {method.label} ({method.requires} is not installed)", file=sys.stderr)
            continue
        for vocabulary in arguments.vocabulary:
            for n_topics in arguments.topics if method.uses_topics else [None]:
                cost = measure(evaluation, name, n_topics, vocabulary, arguments.folds, {})
                row = {"method": name, "label": method.label, "n_topics": n_topics, "vocabulary": vocabulary}
                rows.append({**row, **cost.pop("result"), **cost})
                print(markdown([rows[-1]], COLUMNS).splitlines()[-1], file=sys.stderr, flush=True)
                if arguments.out:
                    write_json(arguments.out, results)
    print(summary(results, arguments.against))


def summary(results: dict[str, Any], against: str) -> str:
    """The table of all rows, with CPU (fit and predict) and memory as multiples of the named rival's."""
    rivals = {
        (row["vocabulary"], row["n_topics"]): row for row in results["rows"] if row["method"] == against
    }
    rows = []
    for row in sorted(results["rows"], key=lambda row: VOCABULARIES.index(row["vocabulary"])):
        rival = rivals.get((row["vocabulary"], row["n_topics"]))
        ratios = {key: row[key] / rival[key] for key in ("cpu_seconds", "peak_mib")} if rival else {}
        rows.append({**row, **{f"{key}_ratio": value for key, value in ratios.items()}})
    columns = {
        **COLUMNS,
        "cpu_seconds_ratio": (f"CPU / {against}", ".2f"),
        "peak_mib_ratio": (f"memory / {against}", ".2f"),
    }
    on = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in on["versions"].items())
    machinery = f"{on['processor']}, {on['cores']} cores, {on['system']}, Python {on['python']}, {versions}"
    head = (
        f"Movie reviews, {results['folds']} folds pooled; CPU seconds are the mean of a fold, one thread. "
        f"{machinery}; {on['date']}."
    )
    return f"{head}\n\n{markdown(rows, columns)}"
