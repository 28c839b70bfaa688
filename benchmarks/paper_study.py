"""The studies of Blei and McAuliffe: predictive R2 and held-out likelihood of the words, by the number of topics.

sLDA with the paper's settings (the joint model, alpha = 1/K) stands beside LDA followed by a regression, which is the same
program with a response that weighs nothing, the lasso on frequencies of words, and dslda's defaults. Measures pool the
held-out documents of all folds. The likelihood is the variational bound of a held-out document's words under the topics
and alpha of the fit, response left out, divided by the number of words: by the same inference for every method.

movies: the paper's documents, and as many terms. senate: amendments of the same Congresses as in the paper, with
discrimination parameters estimated for this corpus, but not the paper's texts.

Rows that the file of results has already are not computed again, so a file belongs to one version of the code.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.labelled_responses import RESPONSES, counted_documents
from benchmarks.measure import measure
from benchmarks.methods import FOLD_SEED, METHODS
from benchmarks.problems import movie_reviews, read_corpus
from benchmarks.report import machine, markdown, write_json
from dslda.evaluation.metrics import folds, predictive_r2, predictive_r2_standard_error
from dslda.variational.estep import DocumentPosterior, infer
from dslda.variational.parameters import FitSpec, Parameters

SMALLEST_RATING = 0.05
"""Above 0. Four reviews have 0, so the logarithm is that of the rating plus this."""
STUDIES = {
    "movies": ("rating", "logarithm of the rating"),
    "senate": ("both Congresses", "109th Congress", "110th Congress"),
}
CURVES = {
    "dslda": ("sLDA, the paper's model", {"color": "tab:blue", "marker": "o"}),
    "dslda_defaults": ("dslda, the defaults", {"color": "tab:purple", "marker": "s"}),
    "dslda_lda": ("LDA + regression", {"color": "tab:green", "marker": "^", "linestyle": "--"}),
    "lasso": ("lasso", {"color": "tab:orange", "linestyle": ":"}),
}
"""Methods of `benchmarks.methods`, with their names and looks here."""
LOWEST_R2 = -0.15
"""The bottom of the figure."""
MEASURES = {"r2": "predictive R2", "word_likelihood": "held-out log-likelihood of a word"}
COLUMNS = {
    "response": ("response", ""),
    "label": ("method", ""),
    "n_topics": ("K", "d"),
    "r2": ("predictive R2", ".3f"),
    "r2_se": ("s.e.", ".3f"),
    "word_likelihood": ("log-likelihood of a word", ".3f"),
    "cpu_seconds": ("CPU s, all folds", ".0f"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--study", choices=STUDIES, default="movies", help="default: movies")
    parser.add_argument("--topics", nargs="+", type=int, default=[5, 10, 20, 30, 40, 50], metavar="K")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=CURVES, default=list(CURVES), metavar="METHOD")
    parser.add_argument("--out", type=Path, help="JSON file for the results, rewritten after every row")
    parser.add_argument("--figure", type=Path, help="file for the figure, such as study.svg")


def main(arguments: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    if arguments.out is not None and arguments.out.exists():
        rows = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"]
    for response, method in product(STUDIES[arguments.study], arguments.methods):
        for n_topics in arguments.topics if METHODS[method].uses_topics else [None]:
            key = {"response": response, "method": method, "n_topics": n_topics}
            if any(key.items() <= row.items() for row in rows):
                continue
            cost = measure(_evaluation, arguments.study, response, method, n_topics, arguments.folds)
            rows.append({**key, "label": CURVES[method][0], **cost.pop("result"), **cost})
            print(markdown(rows[-1:], COLUMNS).splitlines()[-1], file=sys.stderr, flush=True)
            if arguments.out is not None:
                write_json(arguments.out, {"benchmark": "paper_study", "machine": machine(), "rows": rows})
    print(markdown(rows, COLUMNS))
    if arguments.figure is not None:
        draw(rows, arguments.figure)


def documents_of(study: str, response: str) -> tuple[csr_array, NDArray[np.float64]]:
    """Counts and responses of a study."""
    if study == "movies":
        reviews = movie_reviews("2180")
        return reviews.counts, reviews.y if response == "rating" else np.log(reviews.y + SMALLEST_RATING)
    amendments = counted_documents(RESPONSES["amendments"])
    congress = np.array([f"{record['congress']}th Congress" for record in read_corpus("senate_amendments")])
    kept = (congress == response) | (response == "both Congresses")
    return amendments.counts[kept], amendments.y[kept]


def _evaluation(
    study: str, response: str, name: str, n_topics: int | None, n_folds: int
) -> Callable[[], dict[str, float]]:
    from sklearn.exceptions import ConvergenceWarning

    method, (counts, y) = METHODS[name], documents_of(study, response)
    # the weakest penalties of a lasso's path need not converge to be judged
    warnings.simplefilter("ignore", ConvergenceWarning)

    def work() -> dict[str, float]:
        predicted, bound, n_words = np.empty_like(y), 0.0, 0
        for train, held_out in folds(len(y), n_folds, seed=FOLD_SEED):
            model = method.build(n_topics, **method.options).fit(counts[train], y[train])
            predicted[held_out] = model.predict(counts[held_out])
            if method.uses_topics:
                posterior = _of_words(counts[held_out], model.topic_word_, model.doc_topic_prior_)
                bound += posterior.elbo.sum()
                n_words += posterior.n_known_tokens.sum()
        return {
            "r2": predictive_r2(y, predicted),
            "r2_se": predictive_r2_standard_error(y, predicted),
            "word_likelihood": float(bound / n_words) if n_words else None,
        }

    return work


def _of_words(
    counts: csr_array, topic_word: NDArray[np.float64], alpha: NDArray[np.float64]
) -> DocumentPosterior:
    """Posterior of documents under LDA with these topics; its bound is the likelihood's."""
    n_topics = len(alpha)
    parameters = Parameters(np.ascontiguousarray(topic_word.T), alpha, np.zeros(n_topics), np.ones(1))
    documents = counts.indptr.astype(np.int64), counts.indices.astype(np.int32), counts.data.astype(np.int32)
    return infer(*documents, parameters, spec=FitSpec(n_topics=n_topics, objective="joint"))


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """The figure of a study: a row for each measure, a column for each response."""
    import matplotlib

    matplotlib.use("Agg")
    # text stays text, and the same results give the same file
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dslda", "font.size": 9})
    from matplotlib import pyplot

    responses = list(dict.fromkeys(row["response"] for row in rows))
    shape, size = (len(MEASURES), len(responses)), (1 + 3.0 * len(responses), 5.6)
    figure, axes = pyplot.subplots(
        *shape, figsize=size, sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    for (i, key), (j, response) in product(enumerate(MEASURES), enumerate(responses)):
        ax = axes[i, j]
        for method, (label, look) in CURVES.items():
            curve = [row for row in rows if (row["response"], row["method"]) == (response, method)]
            if METHODS[method].uses_topics:
                columns = zip(*((row["n_topics"], row[key], row["r2_se"]) for row in curve), strict=True)
                numbers, values, errors = columns
                errors = errors if key == "r2" else None
                ax.errorbar(numbers, values, errors, label=label, elinewidth=0.8, markersize=4, **look)
            elif key == "r2":
                ax.axhline(curve[0]["r2"], label=label, **look)
        if i == 0:
            ax.set_title(response, fontsize=9)
            # a fit that predicts far worse than the mean would flatten all others; the table has it
            ax.set_ylim(bottom=max(ax.get_ylim()[0], LOWEST_R2))
        else:
            ax.set_xlabel("topics")
        if j == 0:
            ax.set_ylabel(MEASURES[key])
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
