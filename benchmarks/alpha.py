"""Coefficients, topics, predictions and time under each way to set alpha, on simulated and on real documents.

Simulated corpora have known coefficients, so that the table shows how many of the nominal 95% intervals cover them, and how
far the estimates are drawn towards each other. On real documents it shows predictive R2 on a fifth kept from training, and
how much the topics have in common.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from benchmarks.labelled_responses import RESPONSES, counted_documents
from benchmarks.measure import cpu_seconds, measure
from benchmarks.problems import movie_reviews
from benchmarks.report import machine, markdown, write_json
from dslda.exceptions import DataWarning

N_TOPICS, N_TERMS, N_DOCUMENTS = 5, 500, 1500
TRUE = "true"
SETTINGS = ("1/K", "auto", "asymmetric", "1.0")
CORPORA = ("movie_reviews", "rating", "cosponsors", "imdb_rating")
MOST_DOCUMENTS = 5000
QUANTILE = 1.96

SIMULATED = {
    "true_alpha": ("true alpha", ".2f"),
    "tokens": ("words a document", "d"),
    "alpha": ("alpha", ""),
    "covered": ("95% intervals that cover", ".2f"),
    "slope": ("slope of estimates on truth", ".3f"),
    "farthest": ("largest error", ".2f"),
    "error": ("median s.e.", ".3f"),
    "estimate": ("mean alpha", ".2f"),
    "iterations": ("iterations", ".0f"),
    "seconds": ("CPU s", ".2f"),
}
REAL = {
    "corpus": ("documents", ""),
    "topics": ("K", "d"),
    "alpha": ("alpha", ""),
    "r2": ("predictive R2", ".3f"),
    "shared": ("words that two topics share", ".2f"),
    "alike": ("near-equal topics", ""),
    "estimate": ("mean alpha", ".3f"),
    "iterations": ("iterations", ".0f"),
    "seconds": ("CPU s", ".1f"),
    "ratio": ("CPU / 1/K", ".2f"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpora", type=int, default=40, help="simulated corpora a row (default: 40)")
    parser.add_argument(
        "--true-alpha", nargs="+", type=float, default=[1.0, 0.2, 0.05], help="default: 1 0.2 0.05"
    )
    parser.add_argument("--tokens", nargs="+", type=int, default=[60, 15], help="default: 60 15")
    parser.add_argument(
        "--concentration", type=float, default=0.05, help="of topics: larger, more alike (default: 0.05)"
    )
    parser.add_argument("--real", nargs="*", choices=CORPORA, default=CORPORA, help="default: all")
    parser.add_argument("--topics", nargs="+", type=int, default=[20], metavar="K", help="default: 20")
    parser.add_argument("--seeds", type=int, default=2, help="fits of real documents a row (default: 2)")
    parser.add_argument("--alpha", nargs="+", default=SETTINGS, help=f"default: {' '.join(SETTINGS)}")
    parser.add_argument("--out", type=Path, help="JSON file for the results, rewritten after every row")


def main(arguments: argparse.Namespace) -> None:
    on = machine()
    results: dict[str, Any] = {"benchmark": "alpha", "machine": on, "simulated": [], "real": []}

    def add(kind: str, row: dict[str, Any]) -> None:
        print({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()}, file=sys.stderr)
        results[kind].append(row)
        if arguments.out:
            write_json(arguments.out, results)

    for true_alpha, tokens in product(arguments.true_alpha, arguments.tokens) if arguments.corpora else ():
        for alpha in (TRUE, *arguments.alpha):
            given = true_alpha if alpha == TRUE else _setting(alpha)
            cost = measure(_simulated, true_alpha, tokens, arguments.concentration, given, arguments.corpora)
            add("simulated", {"true_alpha": true_alpha, "tokens": tokens, "alpha": alpha, **cost["result"]})
    for corpus, n_topics in product(arguments.real, arguments.topics):
        seconds_of_paper = np.nan
        for alpha in arguments.alpha:
            row = measure(_real, corpus, n_topics, _setting(alpha), arguments.seeds)["result"]
            seconds_of_paper = row["seconds"] if alpha == "1/K" else seconds_of_paper
            ratio = row["seconds"] / seconds_of_paper
            add("real", {"corpus": corpus, "topics": n_topics, "alpha": alpha, **row, "ratio": ratio})
    print(f"{on['processor']}, one thread, {on['date']}\n")
    print(
        f"{arguments.corpora} simulated corpora a row: {N_DOCUMENTS} documents, {N_TOPICS} topics, {N_TERMS} terms "
        f"(concentration {arguments.concentration:g}), coefficients from -2 to 2\n"
    )
    print(markdown(results["simulated"], SIMULATED))
    print(
        f"\nReal documents, at most {MOST_DOCUMENTS}: a fifth kept from training, {arguments.seeds} seeds\n"
    )
    print(markdown(results["real"], REAL))


def _setting(alpha: str) -> float | str:
    return alpha if alpha in ("auto", "asymmetric", "1/K") else float(alpha)


def _simulated(
    true_alpha: float, tokens: int, concentration: float, alpha: float | str, n_corpora: int
) -> Callable[[], dict[str, float]]:
    from dslda.datasets.simulate import simulate_corpus

    drawn = [
        simulate_corpus(
            N_DOCUMENTS,
            N_TOPICS,
            N_TERMS,
            mean_tokens=tokens,
            alpha=true_alpha,
            topic_concentration=concentration,
            seed=seed,
        )
        for seed in range(n_corpora)
    ]
    blocks = [corpus.block for corpus in drawn]
    counts = [csr_array((b.counts, b.terms, b.indptr), shape=(N_DOCUMENTS, N_TERMS)) for b in blocks]

    def work() -> dict[str, float]:
        rows = []
        start = cpu_seconds()
        for corpus, matrix in zip(drawn, counts, strict=True):
            model = _fit(matrix, corpus.y, N_TOPICS, alpha)
            topics = {row.topic: row for row in model.coefficients()}
            # the assignment of fitted topics to true ones with the least distance in all
            distances = np.abs(corpus.topics[:, None, : model.n_terms] - model.topic_word[None]).sum(axis=2)
            fitted = [topics[k] for k in linear_sum_assignment(distances)[1]]
            estimate = np.array([topic.coefficient for topic in fitted])
            error = np.array([topic.conditional_error for topic in fitted])
            off = np.abs(estimate - corpus.coefficients)
            rows.append(
                {
                    "covered": np.mean(off <= QUANTILE * error),
                    "slope": estimate @ corpus.coefficients / (corpus.coefficients @ corpus.coefficients),
                    "farthest": off.max(),
                    "error": np.median(error),
                    "estimate": model.doc_topic_prior.mean(),
                    "iterations": model.training.n_iterations,
                }
            )
        means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
        farthest = float(max(row["farthest"] for row in rows))
        return means | {"farthest": farthest, "seconds": (cpu_seconds() - start) / n_corpora}

    _fit(counts[0][:50], drawn[0].y[:50], 2, alpha)  # compiles
    return work


def _real(corpus: str, n_topics: int, alpha: float | str, n_seeds: int) -> Callable[[], dict[str, Any]]:
    from dslda.evaluation.metrics import predictive_r2

    if corpus == "movie_reviews":
        problem = movie_reviews()
        counts, y = problem.counts, problem.y
    else:
        documents = counted_documents(RESPONSES[corpus])
        counts, y = documents.counts, documents.y
        if RESPONSES[corpus].kind == "count":
            y = np.log1p(y)
    chosen = np.random.default_rng(0).permutation(len(y))[:MOST_DOCUMENTS]
    test, train = np.split(chosen, [len(chosen) // 5])

    def work() -> dict[str, Any]:
        rows = []
        for seed in range(n_seeds):
            start = cpu_seconds()
            model = _fit(counts[train], y[train], n_topics, alpha, seed=seed)
            seconds = cpu_seconds() - start
            r2 = predictive_r2(y[test], model.predict(counts[test]))
            rows.append(
                (r2, seconds, model.training.n_iterations, model.doc_topic_prior.mean(), *_alike(model))
            )
        means = np.mean([row[:5] for row in rows], axis=0).tolist()
        keys = ("r2", "seconds", "iterations", "estimate", "shared")
        return {**dict(zip(keys, means, strict=True)), "alike": ", ".join(str(row[5]) for row in rows)}

    _fit(counts[train[:50]], y[train[:50]], 2, alpha)  # compiles
    return work


def _fit(counts: Any, y: Any, n_topics: int, alpha: float | str, seed: int = 0) -> Any:
    import dslda

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return dslda.train(counts, response=y, n_topics=n_topics, doc_topic_prior=alpha, seed=seed)


def _alike(model: Any) -> tuple[float, int]:
    """Mean share of words that two topics have in common, and the number of topics that nearly equal another one."""
    from dslda.variational.topics import near_equal_topics

    topics = model.topic_word
    shared = [np.minimum(a, b).sum() for k, a in enumerate(topics) for b in topics[:k]]
    return float(np.mean(shared)), len(near_equal_topics(topics.T, model.record.prevalence))
