"""How many 95% intervals hold the true coefficient, over corpora drawn from the model itself.

Fits have the default settings but for the number of topics, which is the true one, and the bootstrap. The intervals that
conditional errors would give stand beside those of the bootstrap.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.measure import measure
from benchmarks.report import machine, markdown, write_json
from dslda.coefficients import Coefficient
from dslda.datasets.simulate import SimulatedCorpus, simulate_corpus
from dslda.exceptions import DataWarning

N_TOPICS, N_TERMS, QUANTILE = 5, 300, 1.96
Draw = Callable[[NDArray[np.float64], np.random.Generator], NDArray[np.float64]]
FAMILIES: dict[str, tuple[NDArray[np.float64], Draw | None]] = {
    "gaussian": (np.linspace(-2.0, 2.0, N_TOPICS), None),
    "poisson": (np.linspace(-1.0, 2.0, N_TOPICS), lambda omega, rng: rng.poisson(np.exp(omega))),
    "binomial": (np.linspace(-3.0, 3.0, N_TOPICS), lambda omega, rng: rng.random(len(omega)) < _expit(omega)),
}
"""True coefficients, and how responses are drawn."""

COLUMNS = {
    "objective": ("model", ""),
    "family": ("family", ""),
    "true_alpha": ("true alpha", ".2g"),
    "tokens": ("words a document", "d"),
    "covered": ("intervals that hold the truth", ".3f"),
    "conditional": ("with conditional errors", ".3f"),
    "slope": ("slope of estimates on truth", ".3f"),
    "error": ("root mean squared error", ".3f"),
    "width": ("half width", ".3f"),
    "corpora": ("corpora", "d"),
    "seconds": ("CPU s a corpus", ".1f"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--objective", nargs="+", choices=("joint", "conditional"), default=["joint"])
    parser.add_argument("--family", nargs="+", choices=tuple(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--true-alpha", nargs="+", type=float, default=[1.0, 0.2])
    parser.add_argument("--tokens", nargs="+", type=int, default=[60])
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--corpora", type=int, default=100, help="of each row (default: 100)")
    parser.add_argument("--bootstrap", type=int, default=25, metavar="N", help="default: 25")
    parser.add_argument("--out", type=Path, help="JSON file for the results, rewritten after every row")


def main(arguments: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    chosen = arguments.objective, arguments.family, arguments.true_alpha, arguments.tokens
    for objective, family, true_alpha, tokens in product(*chosen):
        corpora = partial(_corpus, family, true_alpha, tokens, arguments.documents)
        cost = measure(_coverage, corpora, arguments.corpora, objective, family, arguments.bootstrap)
        row = {"objective": objective, "family": family, "true_alpha": true_alpha, "tokens": tokens}
        seconds = cost["cpu_seconds"] / arguments.corpora
        rows.append({**row, **cost["result"], "corpora": arguments.corpora, "seconds": seconds})
        print(markdown(rows[-1:], COLUMNS), file=sys.stderr, flush=True)
        if arguments.out is not None:
            write_json(arguments.out, {"benchmark": "coefficients", "machine": machine(), "rows": rows})
    print(f"{arguments.documents} documents of {N_TOPICS} topics, {N_TERMS} terms\n")
    print(markdown(rows, COLUMNS))


def _corpus(family: str, alpha: float, tokens: int, n_documents: int, seed: int) -> SimulatedCorpus:
    eta, draw = FAMILIES[family]
    size = n_documents, N_TOPICS, N_TERMS
    return simulate_corpus(*size, mean_tokens=tokens, alpha=alpha, eta=eta, seed=seed, sample_response=draw)


def _coverage(
    corpora: Callable[..., SimulatedCorpus], n_corpora: int, objective: str, family: str, bootstrap: int
) -> Callable[[], dict[str, float]]:
    def work() -> dict[str, float]:
        truths, fitted = [], []
        for seed in range(n_corpora):
            corpus = corpora(seed=seed)
            truths.append(corpus.coefficients)
            fitted.append(_fitted(corpus, objective, family, bootstrap))
        truth = np.array(truths)
        rows = np.array([[(r.coefficient, r.low, r.high, r.conditional_error) for r in of] for of in fitted])
        estimate, low, high, error = np.moveaxis(rows, 2, 0)
        off = estimate - truth
        centred = truth - truth.mean()
        return {
            "covered": float(np.mean((low <= truth) & (truth <= high))),
            "conditional": float(np.mean(np.abs(off) <= QUANTILE * error)),
            "slope": float((centred * estimate).sum() / np.square(centred).sum()),
            "error": float(np.sqrt(np.square(off).mean())),
            "width": float(np.mean(high - low) / 2.0),
        }

    _fitted(corpora(seed=0), objective, family, 10)  # compiles
    return work


def _fitted(corpus: SimulatedCorpus, objective: str, family: str, bootstrap: int) -> list[Coefficient]:
    """The coefficients of a fit, each in the place of the true topic that its topic resembles."""
    import dslda
    from dslda.engine.progress import LogProgress
    from dslda.variational.topics import partners

    block = corpus.block
    counts = csr_array((block.counts, block.terms, block.indptr), shape=(block.n_documents, N_TERMS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = dslda.train(
            counts,
            response=corpus.y,
            family=family,
            n_topics=N_TOPICS,
            objective=objective,
            bootstrap=bootstrap,
            progress=LogProgress(),
        )
    rows = {row.topic: row for row in model.coefficients()}
    places = partners(corpus.topics.T, model.topic_word.T)
    return [rows[k] for k in places.tolist()]


def _expit(omega: NDArray[np.float64]) -> NDArray[np.float64]:
    expit: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-omega))
    return expit
