"""Compare the cost of an E-step with C classes with that of a normal response, on the same documents (20 newsgroups)."""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from benchmarks.labelled_responses import RESPONSES, counted_documents
from benchmarks.report import machine, markdown
from dslda.families.base import STANDARDISED, Family
from dslda.families.categorical import Categorical
from dslda.families.gaussian import Gaussian
from dslda.variational.estep import e_step
from dslda.variational.mstep import m_step
from dslda.variational.parameters import FitSpec, initial_parameters

WARM_UP, MEASURED = 3, 5
COLUMNS = {
    "topics": ("K", "d"),
    "response": ("response", ""),
    "seconds": ("E-step, CPU s", ".2f"),
    "ratio": ("beside the normal response", ".2f"),
    "sweeps": ("sweeps a document", ".1f"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topics", nargs="+", type=int, default=[20, 60], metavar="K", help="default: 20 60")
    parser.add_argument("--documents", type=int, default=4000, help="default: 4000")


def main(arguments: argparse.Namespace) -> None:
    documents = counted_documents(RESPONSES["newsgroups"])
    counts = documents.counts[documents.train][: arguments.documents]
    y = documents.y[documents.train][: arguments.documents]
    responses: dict[str, tuple[Family, NDArray[np.float64]]] = {
        "normal": (Gaussian(), (y - y.mean()) / y.std()),
        "2 classes": (Categorical(n_classes=2), y % 2),
        "20 classes": (Categorical(n_classes=20), y),
        "20 classes, delta method": (Categorical(n_classes=20, form="delta"), y),
        "100 classes, 20 of them seen": (Categorical(n_classes=100), 5 * y),
    }
    arrays = counts.indptr.astype(np.int64), counts.indices.astype(np.int32), counts.data.astype(np.int32)
    rows = []
    for n_topics in arguments.topics:
        spec = FitSpec(n_topics=n_topics, doc_topic_prior="1/K")
        normal = np.nan
        for name, (family, response) in responses.items():
            parameters = initial_parameters(counts.shape[1], spec=spec, family=family, moments=STANDARDISED)
            seconds = []
            for _ in range(WARM_UP + MEASURED):
                statistics = e_step(*arrays, response, parameters, family=family, spec=spec)
                seconds.append(statistics.seconds)
                parameters = m_step(parameters, statistics, family=family, spec=spec)
            cost = float(np.median(seconds[WARM_UP:]))
            normal = cost if name == "normal" else normal
            sweeps = statistics.n_sweeps / len(y)
            rows.append(
                {
                    "topics": n_topics,
                    "response": name,
                    "seconds": cost,
                    "ratio": cost / normal,
                    "sweeps": sweeps,
                }
            )
    on = machine()
    print(f"{len(y)} documents; iterations 4 to 8; {on['processor']}, {on['cores']} cores, {on['date']}\n")
    print(markdown(rows, COLUMNS))
