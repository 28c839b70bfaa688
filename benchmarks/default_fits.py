"""Benchmarks of default fits to the training documents of folds: their arguments, their loop over responses, and the fit."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.labelled_responses import Documents
from benchmarks.measure import measure
from benchmarks.report import machine, markdown, write_json

__all__ = ["Setting", "add_fold_arguments", "default_fit", "print_rows"]

Setting: TypeAlias = tuple[str, int, int, int | None]
"""A response, the number of topics, the number of folds, and how many of these to run, None for all."""


def add_fold_arguments(parser: argparse.ArgumentParser, rows: Sequence[str]) -> None:
    """Add the arguments of a benchmark of these responses."""
    parser.add_argument("--rows", nargs="+", choices=rows, default=list(rows), metavar="RESPONSE")
    parser.add_argument("--topics", type=int, default=20, metavar="K")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument(
        "--only-folds", type=int, metavar="N", help="only the first N folds, for a quick look"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the results")


def print_rows(
    arguments: argparse.Namespace,
    benchmark: str,
    task: Callable[[Setting], Callable[[], list[dict[str, Any]]]],
    columns: Mapping[str, tuple[str, str]],
) -> None:
    """Run a task for each response in a process of its own, and print the rows that it returns."""
    rows: list[dict[str, Any]] = []
    for name in arguments.rows:
        setting = name, arguments.topics, arguments.folds, arguments.only_folds
        found = measure(task, setting)["result"]
        print(markdown(found, columns), file=sys.stderr, flush=True)
        rows += found
    if arguments.out is not None:
        write_json(arguments.out, {"benchmark": benchmark, "machine": machine(), "rows": rows})
    print(markdown(rows, columns))


def default_fit(documents: Documents, train: NDArray[np.int64], *, family: str, n_topics: int) -> Any:
    """The model of a default fit to some of the documents."""
    import dslda
    from dslda.engine.progress import LogProgress
    from dslda.exceptions import DsldaWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DsldaWarning)
        return dslda.train(
            documents.counts[train],
            response=documents.y[train],
            family=family,
            n_topics=n_topics,
            progress=LogProgress(),
        )
