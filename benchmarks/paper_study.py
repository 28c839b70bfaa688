"""The studies of Blei and McAuliffe: predictive R2 and held-out likelihood of the words, by the number of topics.

sLDA with the paper's settings (the joint model, alpha = 1/K) stands beside scikit-learn's LDA followed by a regression, the
lasso on frequencies of words, and dslda's defaults. Measures pool the held-out documents of all folds. The likelihood is
the variational bound of a held-out document's words under the topics and alpha of the fit, response left out, divided by
the number of words: by the same inference for every method.

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
from benchmarks.methods import FOLD_SEED
from benchmarks.prediction_rivals import DsldaRegression
from benchmarks.problems import movie_reviews, read_corpus
from benchmarks.report import machine, markdown, write_json
from dslda.evaluation.baselines import lasso_pipeline
from dslda.evaluation.metrics import folds, predictive_r2, predictive_r2_standard_error
from dslda.evaluation.rivals import LDARegression
from dslda.variational.estep import DocumentPosterior, infer
from dslda.variational.parameters import FitSpec, Parameters

SMALLEST_RATING = 0.05
"""Above 0. Four reviews have 0, so the logarithm is that of the rating plus this."""
STUDIES = {
    "movies": ("rating", "logarithm of the rating"),
    "senate": ("both Congresses", "109th Congress", "110th Congress"),
}
CURVES = {
    "slda": ("sLDA, the paper's model", {"color": "tab:blue", "marker": "o"}),
    "dslda": ("dslda, the defaults", {"color": "tab:purple", "marker": "s"}),
    "lda": ("LDA + regression", {"color": "tab:green", "marker": "^", "linestyle": "--"}),
    "lasso": ("lasso", {"color": "tab:orange", "linestyle": ":"}),
}
"""Methods, with their names and looks."""
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
    responses = STUDIES[arguments.study]
    if arguments.out is not None and arguments.out.exists():
        rows = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"]
    for response, method in product(responses, arguments.methods):
        for n_topics in arguments.topics if method != "lasso" else [None]:
            key = {"response": response, "method": method, "n_topics": n_topics}
            if any(key.items() <= row.items() for row in rows):
                continue
            cost = measure(_evaluation, arguments.study, response, method, n_topics, arguments.folds)
            rows.append({**key, "label": CURVES[method][0], **cost.pop("result"), **cost})
            print(markdown(rows[-1:], COLUMNS).splitlines()[-1], file=sys.stderr, flush=True)
            if arguments.out is not None:
                write_json(arguments.out, {"benchmark": "paper_study", "machine": machine(), "rows": rows})
    places = {key: place for place, key in enumerate(product(responses, CURVES))}
    shown = [row for row in rows if (row["response"], row["method"]) in places]
    shown.sort(key=lambda row: (places[row["response"], row["method"]], row["n_topics"] or 0))
    for key, title in MEASURES.items():
        print(f"\n{title}\n\n{table(shown, key)}")
    if arguments.figure is not None:
        draw(shown, arguments.figure)


def table(rows: list[dict[str, Any]], measure_name: str) -> str:
    """One measure by the number of topics, with the standard error of R2; the lasso has no topics."""
    numbers = sorted({row["n_topics"] for row in rows if row["n_topics"] is not None})
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if row[measure_name] is None:
            continue
        cell = f"{row[measure_name]:.3f}" + (f" ({row['r2_se']:.3f})" if measure_name == "r2" else "")
        line = lines.setdefault((row["response"], row["label"]), {})
        line[str(row["n_topics"] or numbers[0])] = cell
    columns = {"response": ("response", ""), "label": ("method", "")}
    columns |= {str(number): (f"K = {number}", "s") for number in numbers}
    return markdown(
        [{"response": response, "label": label, **line} for (response, label), line in lines.items()], columns
    )


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

    counts, y = documents_of(study, response)
    # the weakest penalties of a lasso's path need not converge to be judged
    warnings.simplefilter("ignore", ConvergenceWarning)

    def work() -> dict[str, float]:
        predicted, bound, n_words = np.empty_like(y), 0.0, 0
        for train, held_out in folds(len(y), n_folds, seed=FOLD_SEED):
            model = _unfitted(name, n_topics).fit(counts[train], y[train])
            predicted[held_out] = model.predict(counts[held_out])
            if n_topics is not None:
                posterior = _of_words(counts[held_out], model)
                bound += posterior.elbo.sum()
                n_words += posterior.n_known_tokens.sum()
        return {
            "r2": predictive_r2(y, predicted),
            "r2_se": predictive_r2_standard_error(y, predicted),
            "word_likelihood": float(bound / n_words) if n_words else None,
        }

    return work


def _unfitted(name: str, n_topics: int | None) -> Any:
    if n_topics is None:
        return lasso_pipeline()
    if name == "lda":
        return LDARegression("real", 0, n_topics)
    settings = {"objective": "joint", "doc_topic_prior": "1/K"} if name == "slda" else {}
    return DsldaRegression("real", np.zeros(0), {"n_topics": n_topics, **settings})


def _of_words(counts: csr_array, model: DsldaRegression | LDARegression) -> DocumentPosterior:
    """Posterior of documents under LDA with the topics and alpha of a model; its bound is that of the words."""
    topics = np.ascontiguousarray(model.topic_word.T)
    n_topics = topics.shape[1]
    if isinstance(model, DsldaRegression):
        alpha = model.model.doc_topic_prior
    else:
        alpha = np.full(n_topics, model.topics.doc_topic_prior)
    parameters = Parameters(topics, alpha, np.zeros(n_topics), np.ones(1))
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
            if method != "lasso":
                columns = zip(*((row["n_topics"], row[key], row["r2_se"]) for row in curve), strict=True)
                numbers, values, errors = columns
                errors = errors if key == "r2" else None
                ax.errorbar(numbers, values, errors, label=label, elinewidth=0.8, markersize=4, **look)
            elif key == "r2":
                ax.axhline(curve[0]["r2"], label=label, **look)
        if i == 0:
            ax.set_title(response, fontsize=9)
        else:
            ax.set_xlabel("topics")
        if j == 0:
            ax.set_ylabel(MEASURES[key])
    # a fit that predicts far worse than the mean would flatten all others; the table has it
    axes[0, 0].set_ylim(bottom=max(axes[0, 0].get_ylim()[0], LOWEST_R2))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
