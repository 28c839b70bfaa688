"""Speed of the E-step, in token*topic/s, beside the bare kernel of unsupervised LDA.

Both run in this process, in turn, over the same documents with the same topics; each in CPU seconds of one thread. A
"token" is an entry with its own variational distribution: a distinct term of a document (granularity
"term") or an occurrence (granularity "token"), for both kernels alike. The bare kernel is mean-field LDA in its usual
numba form: a dot product and a scaled addition per entry, our own vectorised digamma and exp, no ELBO, no
response. Ours does everything that an EM iteration of sLDA needs: ELBO and convergence test of every document, second
moments, statistics.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from benchmarks import problems
from benchmarks.report import machine, markdown
from dslda.families.base import STANDARDISED
from dslda.families.registry import get_family
from dslda.variational.estep import e_step
from dslda.variational.mstep import m_step
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from dslda.variational.special import FASTMATH, exp_shifted, log_gamma_sum_and_digamma


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def bare_lda(indptr, terms, counts, topics, alpha, sweeps, topic_counts):  # pragma: no cover - compiled
    """Mean-field E-step of LDA, `sweeps` over every document; expected counts are added to `topic_counts`."""
    n_topics = topics.shape[1]
    gamma = np.empty(n_topics)
    elog = np.empty(n_topics)
    weights = np.empty(n_topics)
    sums = np.empty(n_topics)
    work = np.empty((2, n_topics))
    bits = np.empty(n_topics, dtype=np.uint64)
    for d in range(indptr.shape[0] - 1):
        length = 0.0
        for i in range(indptr[d], indptr[d + 1]):
            length += counts[i]
        for k in range(n_topics):
            gamma[k] = alpha[k] + length / n_topics
        for _ in range(sweeps[d]):
            log_gamma_sum_and_digamma(gamma, elog, work, bits)
            top = -math.inf
            for k in range(n_topics):
                top = max(top, elog[k])
            exp_shifted(elog, top, weights, bits)
            for k in range(n_topics):
                sums[k] = 0.0
            for i in range(indptr[d], indptr[d + 1]):
                w = terms[i]
                z = 0.0
                for k in range(n_topics):
                    z += topics[w, k] * weights[k]
                share = counts[i] / z
                for k in range(n_topics):
                    sums[k] += share * topics[w, k]
            for k in range(n_topics):
                gamma[k] = alpha[k] + weights[k] * sums[k]
        for i in range(indptr[d], indptr[d + 1]):
            w = terms[i]
            z = 0.0
            for k in range(n_topics):
                z += topics[w, k] * weights[k]
            share = counts[i] / z
            for k in range(n_topics):
                topic_counts[w, k] += share * topics[w, k] * weights[k]


COLUMNS = {
    "topics": ("K", "d"),
    "granularity": ("granularity", ""),
    "sweeps": ("sweeps", ".1f"),
    "ours": ("sLDA, G token*topic/s", ".2f"),
    "bare": ("bare LDA, G token*topic/s", ".2f"),
    "ratio": ("ratio, median", ".2f"),
    "low": ("lowest", ".2f"),
    "high": ("highest", ".2f"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topics", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=9)


def main(arguments: argparse.Namespace) -> None:
    problem = problems.movie_reviews()
    chosen = np.random.default_rng(0).permutation(len(problem.y))[: arguments.documents]
    counts, y = problem.counts[chosen], problem.y[chosen]
    y = (y - y.mean()) / y.std()
    rows = []
    for n_topics in arguments.topics:
        for granularity in ("term", "token"):
            rows.append(_measure(counts, y, n_topics, granularity, arguments.repeats))
    facts = machine()
    print(f"{arguments.documents} movie reviews; {facts['processor']}, {facts['date']}\n")
    print(markdown(rows, COLUMNS))


def _measure(
    counts: csr_array, y: np.ndarray, n_topics: int, granularity: str, repeats: int
) -> dict[str, object]:
    family = get_family("gaussian")
    spec = FitSpec(n_topics=n_topics, doc_topic_prior="1/K", granularity=granularity)
    indptr, terms, data = (
        counts.indptr.astype(np.int64),
        counts.indices.astype(np.int32),
        counts.data.astype(np.int32),
    )
    parameters = _trained(indptr, terms, data, y, counts.shape[1], spec)
    # the bare kernel sees the same entries and makes as many sweeps as ours did
    if granularity == "token":
        entries = np.repeat(terms, data)
        starts = np.concatenate(([0], np.cumsum(data)))[indptr].astype(np.int64)
        copies = np.ones(len(entries), dtype=np.int32)
    else:
        entries, starts, copies = terms, indptr, data
    ours = e_step(indptr, terms, data, y, parameters, family=family, spec=spec)
    sweeps = np.full(len(y), round(ours.n_sweeps / len(y)), dtype=np.int64)
    topic_counts = np.zeros_like(parameters.topics)
    size = len(entries) * n_topics

    def run_ours() -> float:
        seconds = _cpu(lambda: e_step(indptr, terms, data, y, parameters, family=family, spec=spec))
        return size * ours.n_sweeps / len(y) / seconds

    def run_bare() -> float:
        seconds = _cpu(
            lambda: bare_lda(
                starts, entries, copies, parameters.topics, parameters.alpha, sweeps, topic_counts
            )
        )
        return size * sweeps[0] / seconds

    run_bare()
    pairs = [(run_ours(), run_bare()) for _ in range(repeats)]
    ratios = [a / b for a, b in pairs]
    return {
        "topics": n_topics,
        "granularity": granularity,
        "sweeps": ours.n_sweeps / len(y),
        "ours": statistics.median(a for a, _ in pairs) / 1e9,
        "bare": statistics.median(b for _, b in pairs) / 1e9,
        "ratio": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
    }


def _trained(
    indptr: np.ndarray, terms: np.ndarray, data: np.ndarray, y: np.ndarray, n_terms: int, spec: FitSpec
) -> Parameters:
    """Parameters after ten EM iterations, with topics like those of most of a fit."""
    family = get_family("gaussian")
    parameters = initial_parameters(n_terms, spec=spec, family=family, moments=STANDARDISED)
    for _ in range(10):
        sums = e_step(indptr, terms, data, y, parameters, family=family, spec=spec)
        parameters = m_step(parameters, sums, family=family, spec=spec)
    return parameters


def _cpu(run: Callable[[], object]) -> float:
    started = time.thread_time()
    run()
    return time.thread_time() - started
