"""Held-out prediction of counts, classes, ratings and real responses beside the usual alternatives, on the same folds."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.measure import cpu_seconds
from benchmarks.problems import read_corpus
from benchmarks.report import machine, markdown, write_json
from dslda.evaluation.metrics import folds, predictive_r2

FOLD_SEED = 0
SMALLEST_CLASS = 20
COLUMNS = {
    "task": ("corpus, response", ""),
    "method": ("method", ""),
    "r2": ("R2", ".3f"),
    "d2": ("Poisson D2", ".3f"),
    "accuracy": ("accuracy", ".3f"),
    "auc": ("AUC", ".3f"),
    "log_loss": ("log loss", ".3f"),
    "fit_cpu_seconds": ("fit, CPU s", ".1f"),
    "predict_cpu_seconds": ("predict, CPU s", ".1f"),
}

Prediction = NDArray[np.float64]
"""Expected responses, shape (D,), or probabilities of the classes, shape (D, C)."""


@dataclass(frozen=True, slots=True)
class Task:
    """A response to predict.

    Attributes
    ----------
    corpus, response : str
    kind : {"real", "count", "classes", "rating"}
        Decides the measures and the rival.
    families : mapping of str to mapping
        Our families with their settings for :func:`dslda.train`.
    split : bool
        The corpus has a split into training and test documents; else folds are drawn.
    """

    corpus: str
    response: str
    kind: str
    families: Mapping[str, Mapping[str, Any]]
    split: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Counted documents with a response."""

    counts: csr_array
    y: NDArray[Any]
    train: NDArray[np.bool_] | None = field(default=None)


# Our settings were chosen on these same data; those of the rivals by cross-validation on the training part. Small corpora
# and short documents need a flat Dirichlet (alpha = 1 or 2), many classes need many topics, and counts that words hardly
# explain need a light response. Cosponsors scatter 50 times as much as a Poisson: a weight of 0.02, its inverse, makes up
# for that. With a weight of 3 a Poisson predicts worse than the mean, at ten times the cost.
_TOPICS = {"n_topics": 20, "response_weight": 3.0, "doc_topic_prior": "1/K", "max_iter": 40, "tol": 3e-4}
_SMALL = {"n_topics": 30, "doc_topic_prior": 2.0, "max_iter": 40, "tol": 3e-4}
_SHORT = {"n_topics": 5, "response_weight": 3.0, "doc_topic_prior": 2.0, "max_iter": 40, "tol": 3e-4}
_FEW_WORDS = {"n_topics": 20, "doc_topic_prior": 1.0, "max_iter": 40, "tol": 3e-4}
_NOISY = {"n_topics": 5, "doc_topic_prior": 1.0, "response_weight": 0.3, "max_iter": 40, "tol": 3e-4}
_MANY = {"n_topics": 60, "response_weight": 3.0, "doc_topic_prior": 0.1, "max_iter": 30, "tol": 3e-4}
TASKS = {
    "cosponsors": Task(
        "house_bills",
        "cosponsors",
        "count",
        {"poisson": _FEW_WORDS | {"response_weight": 0.02}, "negative_binomial": _FEW_WORDS},
    ),
    "policy_area": Task("house_bills", "policy_area", "classes", {"categorical": _MANY}),
    "recommended": Task(
        "womens_clothing", "recommended", "classes", {"binomial": _FEW_WORDS | {"response_weight": 3.0}}
    ),
    "rating": Task("womens_clothing", "rating", "rating", {"ordinal": _FEW_WORDS, "gaussian": _FEW_WORDS}),
    "feedback": Task(
        "womens_clothing", "positive_feedback", "count", {"poisson": _NOISY, "negative_binomial": _NOISY}
    ),
    "poliblog": Task("poliblog", "conservative", "classes", {"binomial": _SMALL}),
    "newsgroups": Task("newsgroups20", "newsgroup", "classes", {"categorical": _MANY}, split=True),
    "amendments": Task("senate_amendments", "discrimination", "real", {"gaussian": _SHORT}),
    "ideology": Task("congress109", "ideology", "real", {"gaussian": _TOPICS}),
    "imdb_positive": Task("imdb50k", "positive", "classes", {"binomial": _TOPICS}, split=True),
    "imdb_rating": Task("imdb50k", "rating", "real", {"gaussian": _TOPICS}, split=True),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=TASKS,
        default=list(TASKS),
        metavar="TASK",
        help=f"of {', '.join(TASKS)}; default: all",
    )
    parser.add_argument("--folds", type=int, default=5, help="default: 5")
    parser.add_argument(
        "--documents", type=int, help="only so many documents of a corpus without a split, for a quick look"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the results, rewritten after every row")


def main(arguments: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for name in arguments.tasks:
        task = TASKS[name]
        documents = counted_documents(task, arguments.documents)
        methods: dict[str, Callable[..., Prediction]] = {_rival_name(task): _rival}
        methods |= {
            f"dslda, {family}, K = {settings['n_topics']}": _ours
            for family, settings in task.families.items()
        }
        for label, method in methods.items():
            family = label.split(", ")[1] if method is _ours else ""
            row = {"task": f"{task.corpus}, {task.response}", "method": label}
            rows.append(row | _evaluate(task, documents, method, family, arguments.folds))
            print(markdown([rows[-1]], COLUMNS).splitlines()[-1], file=sys.stderr, flush=True)
            if arguments.out:
                write_json(arguments.out, {"benchmark": "responses", "machine": machine(), "rows": rows})
    on = machine()
    print(
        f"{arguments.folds} folds pooled, or the given split; {on['processor']}, {on['cores']} cores, {on['date']}\n"
    )
    print(markdown(rows, COLUMNS))


def counted_documents(task: Task, limit: int | None) -> Documents:
    """Terms in at least 5 and at most a quarter of the documents, English stop words left out."""
    from sklearn.feature_extraction.text import CountVectorizer

    records = [r for r in read_corpus(task.corpus) if r[task.response] is not None]
    if task.kind == "classes":
        # a class must be in every training part
        sizes = Counter(r[task.response] for r in records)
        records = [r for r in records if sizes[r[task.response]] >= SMALLEST_CLASS]
    if limit is not None and not task.split:
        chosen = np.random.default_rng(FOLD_SEED).permutation(len(records))[:limit]
        records = [records[i] for i in np.sort(chosen)]
    if "text" in records[0]:
        given: list[Any] = [r["text"] for r in records]
        vectorizer = CountVectorizer(min_df=5, max_df=0.25, stop_words="english")
    else:
        given = [[w for w, c in zip(r["words"], r["counts"], strict=True) for _ in range(c)] for r in records]
        # poliblog and congress109 come with a vocabulary of a thousand chosen terms
        filters = {"min_df": 5, "max_df": 0.25} if task.corpus == "newsgroups20" else {}
        vectorizer = CountVectorizer(analyzer=_content_words, **filters)
    counts = csr_array(vectorizer.fit_transform(given)).astype(np.int32)
    counts.sort_indices()
    y = np.array([r[task.response] for r in records])
    train = np.array([r["split"] == "train" for r in records]) if task.split else None
    return Documents(counts, y, train)


def _content_words(words: list[str]) -> list[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return [word for word in words if word not in ENGLISH_STOP_WORDS]


def _evaluate(
    task: Task, documents: Documents, method: Callable[..., Prediction], family: str, n_folds: int
) -> dict[str, float]:
    classes, y = _coded(task, documents.y)
    shape = (len(y), len(classes)) if task.kind == "classes" else (len(y),)
    predicted = np.full(shape, np.nan)
    fit = predict = 0.0
    n = 0
    for train, held_out in _splits(documents, n_folds):
        start = cpu_seconds()
        model = method(task, family, documents.counts[train], documents.y[train])
        fitted = cpu_seconds()
        predicted[held_out] = model(documents.counts[held_out])
        fit, predict, n = fit + fitted - start, predict + cpu_seconds() - fitted, n + 1
    seen = ~np.isnan(predicted if predicted.ndim == 1 else predicted[:, 0])
    costs = {"fit_cpu_seconds": fit / n, "predict_cpu_seconds": predict / n}
    return _measures(task, y[seen], predicted[seen]) | costs


def _splits(documents: Documents, n_folds: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    if documents.train is None:
        yield from folds(len(documents.y), n_folds, seed=FOLD_SEED)
    else:
        yield np.flatnonzero(documents.train), np.flatnonzero(~documents.train)


def _coded(task: Task, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    if task.kind != "classes":
        return np.zeros(0), y.astype(np.float64)
    classes, codes = np.unique(y, return_inverse=True)
    return classes, codes.astype(np.float64)


def _measures(task: Task, y: NDArray[np.float64], predicted: Prediction) -> dict[str, float]:
    from sklearn.metrics import d2_tweedie_score, log_loss, roc_auc_score

    if task.kind == "classes":
        found = {
            "accuracy": float((predicted.argmax(axis=1) == y).mean()),
            "log_loss": float(log_loss(y, predicted, labels=range(predicted.shape[1]))),
        }
        return found | ({"auc": float(roc_auc_score(y, predicted[:, 1]))} if predicted.shape[1] == 2 else {})
    found = {"r2": predictive_r2(y, predicted)}
    if task.kind == "count":
        found["d2"] = float(d2_tweedie_score(y, np.maximum(predicted, 1e-6), power=1))
    if task.kind == "rating":
        found["accuracy"] = float((np.clip(np.rint(predicted), y.min(), y.max()) == y).mean())
    return found


def _ours(task: Task, family: str, counts: csr_array, y: NDArray[Any]) -> Callable[[csr_array], Prediction]:
    from dslda import train
    from dslda.engine.progress import LogProgress

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the caps on iterations are chosen
        response = y.tolist() if y.dtype.kind in "US" else y.astype(np.float64)
        model = train(
            counts, response=response, family=family, progress=LogProgress(), **task.families[family]
        )
    return model.predict_proba if task.kind == "classes" else model.predict


def _rival_name(task: Task) -> str:
    return {
        "real": "TF-IDF + ridge",
        "rating": "TF-IDF + ridge",
        "count": "TF-IDF + PoissonRegressor",
        "classes": "TF-IDF + logistic regression",
    }[task.kind]


def _rival(task: Task, _: str, counts: csr_array, y: NDArray[Any]) -> Callable[[csr_array], Prediction]:
    """The rival, with its penalty chosen by cross-validation on the training documents."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegressionCV, PoissonRegressor
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.pipeline import make_pipeline

    from dslda.evaluation.baselines import tfidf_ridge_pipeline

    inner = KFold(3, shuffle=True, random_state=0)
    if task.kind in ("real", "rating"):
        return tfidf_ridge_pipeline().fit(counts, y.astype(np.float64)).predict
    if task.kind == "count":
        regression = GridSearchCV(
            PoissonRegressor(max_iter=2000), {"alpha": [1e-5, 1e-4, 1e-3, 1e-2]}, cv=inner
        )
        return make_pipeline(TfidfTransformer(sublinear_tf=True), regression).fit(counts, y).predict
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        regression = LogisticRegressionCV(
            Cs=[1.0, 10.0, 100.0],
            cv=inner,
            scoring="neg_log_loss",
            max_iter=200,
            use_legacy_attributes=False,
            l1_ratios=(0,),
        )
        pipeline = make_pipeline(TfidfTransformer(sublinear_tf=True), regression).fit(counts, y)
    return pipeline.predict_proba
