"""How many held-out responses lie in the 90% intervals of default fits, in all and by thirds of the predictions.

A default fit to the training documents of each fold predicts the held-out ones; its intervals come from the part of its
training documents that it predicted before it learned from them. Those of a penalised regression on TF-IDF stand beside
them, by the same rule: split conformal prediction on a tenth of the training documents.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.default_fits import Setting, add_fold_arguments, default_fit, print_rows
from benchmarks.labelled_responses import FOLD_SEED, RESPONSES, Documents, counted_documents, splits
from dslda.evaluation.intervals import Intervals, conformal_intervals
from dslda.evaluation.metrics import folds, held_out
from dslda.evaluation.response_measures import Kind
from dslda.evaluation.rivals import TfidfRegression

ROWS = ("movie_rating", "rating", "feedback", "ideology", "amendments", "cosponsors", "imdb_rating")
SET_ASIDE = 0.1
FEWEST, REPEATS = 10_000, 10
COLUMNS = {
    "response": ("corpus, response", ""),
    "method": ("method", ""),
    "covered": ("covered", ".3f"),
    "low": ("lowest third", ".3f"),
    "middle": ("middle third", ".3f"),
    "high": ("highest third", ".3f"),
    "width": ("mean width / s.d.", ".2f"),
    "predictions": ("predictions", "d"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_fold_arguments(parser, ROWS)


def main(arguments: argparse.Namespace) -> None:
    print_rows(arguments, "coverage", _coverage, COLUMNS)


def _coverage(setting: Setting) -> Callable[[], list[dict[str, Any]]]:
    name, n_topics, n_folds, only = setting
    response = RESPONSES[name]
    documents = counted_documents(response)
    # intervals promise nothing for documents of another kind: films that training has not seen, say
    cuts = [(response.title, replace(documents, train=None))]
    if documents.train is not None:
        cuts.append((f"{response.title}, the given split", documents))

    def work() -> list[dict[str, Any]]:
        rows = []
        for title, cut in cuts:
            methods: dict[str, list[tuple[Any, ...]]] = {
                "dslda, the defaults": [],
                "TF-IDF + linear model": [],
            }
            for train, test in islice(_repeated(cut, n_folds), only):
                ours = _of_dslda(response.kind, cut, train, test, n_topics)
                rival = _of_rival(response.kind, cut, train, test)
                for found, (predicted, intervals, lowest) in zip(
                    methods.values(), (ours, rival), strict=True
                ):
                    if intervals is not None:
                        ends = intervals.around(predicted, lowest=lowest)
                        found.append((cut.y[test], predicted, *ends))
            rows += [_row(cut, title, label, found) for label, found in methods.items() if found]
        return rows

    return work


def _repeated(documents: Documents, n_folds: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The splits; of small corpora folds are drawn again, since chance moves the share in a third by a few percent."""
    yield from splits(documents, n_folds)
    if documents.train is None and len(documents.y) < FEWEST:
        for seed in range(1, REPEATS):
            yield from folds(len(documents.y), n_folds, seed=FOLD_SEED + seed)


def _row(documents: Documents, title: str, label: str, found: list[tuple[Any, ...]]) -> dict[str, Any]:
    inside = np.concatenate([(low <= y) & (y <= high) for y, _, low, high in found])
    third = np.concatenate(
        [np.searchsorted(np.quantile(p, [1 / 3, 2 / 3]), p, side="right") for _, p, _, _ in found]
    )
    width = np.concatenate([high - low for _, _, low, high in found])
    of_thirds = {name: float(inside[third == k].mean()) for k, name in enumerate(("low", "middle", "high"))}
    return {
        "response": title,
        "method": label,
        "covered": float(inside.mean()),
        **of_thirds,
        "width": float(width.mean() / documents.y.std()),
        "predictions": len(inside),
    }


def _of_dslda(
    kind: Kind, documents: Documents, train: NDArray[np.int64], test: NDArray[np.int64], n_topics: int
) -> tuple[NDArray[np.float64], Intervals | None, float]:
    family = "poisson" if kind == "count" else "gaussian"
    model = default_fit(documents, train, family=family, n_topics=n_topics)
    reference = model.record.reference
    lowest = -np.inf if family == "gaussian" else model.response_summary.minimum
    intervals = None if reference is None else reference.intervals
    return model.predict(documents.counts[test]), intervals, lowest


def _of_rival(
    kind: Kind, documents: Documents, train: NDArray[np.int64], test: NDArray[np.int64]
) -> tuple[NDArray[np.float64], Intervals | None, float]:
    aside = held_out(len(train), SET_ASIDE)
    rival = TfidfRegression(kind, 0).fit(documents.counts[train[~aside]], documents.y[train[~aside]])
    judged = rival.predict(documents.counts[train[aside]])
    is_real = kind == "real"
    intervals = conformal_intervals(judged, documents.y[train[aside]])
    lowest = -np.inf if is_real else float(documents.y[train].min())
    return rival.predict(documents.counts[test]), intervals, lowest
