"""How well the probabilities of default fits are calibrated: held-out shares of classes beside their probabilities.

Probabilities of held-out documents go into ten bins of as many documents each. The calibration error is the mean distance
between the mean probability of a bin and the share of its documents of the class; of several classes those of the most
probable one count. Few documents have an error by chance, which probabilities that are true have too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.default_fits import Setting, add_fold_arguments, default_fit, print_rows
from benchmarks.labelled_responses import RESPONSES, Documents, Response, counted_documents, splits
from dslda.evaluation.response_measures import calibration_error, measures
from dslda.evaluation.rivals import TfidfRegression

ROWS = (
    *("poliblog", "newsgroups", "reviewer", "recommended", "one_star"),
    *("policy_area", "transportation", "imdb_positive"),
)
CHANCE_DRAWS, CHANCE_SEED = 200, 0
COLUMNS = {
    "response": ("corpus, response", ""),
    "method": ("method", ""),
    "calibration_error": ("calibration error", ".3f"),
    "by_chance": ("by chance", ".3f"),
    "surplus": ("probability less share", "+.3f"),
    "log_loss": ("log loss", ".3f"),
    "share": ("rarest class", ".1%"),
    "documents": ("documents", "d"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_fold_arguments(parser, ROWS)


def main(arguments: argparse.Namespace) -> None:
    print_rows(arguments, "probabilities", _probabilities, COLUMNS)


def _probabilities(setting: Setting) -> Callable[[], list[dict[str, Any]]]:
    name, n_topics, n_folds, only = setting
    response = RESPONSES[name]
    documents = counted_documents(response)

    def work() -> list[dict[str, Any]]:
        parts = list(islice(splits(documents, n_folds), only))
        held_out = np.concatenate([test for _, test in parts])
        ours = np.concatenate([_of_dslda(response, documents, *part, n_topics) for part in parts])
        rival = np.concatenate([_of_rival(response, documents, *part) for part in parts])
        y = documents.y[held_out]
        return [
            _row(response, label, y, predicted)
            for label, predicted in (("dslda, the defaults", ours), ("TF-IDF + linear model", rival))
        ]

    return work


def _row(
    response: Response, label: str, y: NDArray[np.float64], predicted: NDArray[np.float64]
) -> dict[str, Any]:
    if response.kind == "binary":
        probability, happened = predicted[:, 1], y
    else:
        probability, happened = predicted.max(axis=1), (predicted.argmax(axis=1) == y).astype(np.float64)
    random = np.random.default_rng(CHANCE_SEED)
    true = [calibration_error(probability, random.random(len(y)) < probability) for _ in range(CHANCE_DRAWS)]
    found = measures(response.kind, None, y, predicted)
    return {
        "response": response.title,
        "method": label,
        "calibration_error": found["calibration_error"],
        "by_chance": float(np.mean(true)),
        "surplus": float(probability.mean() - happened.mean()),
        "log_loss": found["log_loss"],
        "share": float(np.bincount(y.astype(np.intp)).min() / len(y)),
        "documents": len(y),
    }


def _of_dslda(
    response: Response, documents: Documents, train: NDArray[np.int64], test: NDArray[np.int64], n_topics: int
) -> NDArray[np.float64]:
    family = "binomial" if response.kind == "binary" else "categorical"
    model = default_fit(documents, train, family=family, n_topics=n_topics)
    return model.predict_proba(documents.counts[test])


def _of_rival(
    response: Response, documents: Documents, train: NDArray[np.int64], test: NDArray[np.int64]
) -> NDArray[np.float64]:
    rival = TfidfRegression(response.kind, len(documents.levels))
    return rival.fit(documents.counts[train], documents.y[train]).predict(documents.counts[test])
