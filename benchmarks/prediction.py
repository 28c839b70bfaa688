"""Held-out prediction of real responses, counts, levels and classes by dslda and its rivals, on the same folds.

Rivals choose their penalties inside the training documents of a fold; the settings of topic models are as given. Measures
pool the held-out documents of all folds. The difference of a method to the linear model on words is a mean over documents,
with the standard error of their paired losses: of squared errors in units of R2, of deviances in units of D2, else of log
losses. Below 0 the method is better. Topics are measured on the training documents of each fold, and averaged. CPU seconds
are the mean of a fold, in one thread; counting the words is no part of them. Vocabularies are those of
`benchmarks.labelled_responses`. Rows that the file of results has already are not computed again, so a file belongs to one
version of the code.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.labelled_responses import CORPORA, RESPONSES, counted_documents, splits
from benchmarks.measure import cpu_seconds, measure
from benchmarks.prediction_rivals import FAMILIES, LINEAR, METHODS, PredictionMethod, with_settings
from benchmarks.report import machine, markdown, write_json
from dslda.evaluation.response_measures import document_losses, measures
from dslda.evaluation.topic_quality import co_occurrence, top_terms, topic_quality

WARM_UP = 600
"""Documents of a fit that compiles the kernels before the clock runs: enough for the objective that all of them have."""
COLUMNS = {
    "response": ("corpus, response", ""),
    "label": ("method", ""),
    "n_topics": ("K", "d"),
    "r2": ("R2", ".3f"),
    "d2": ("D2", ".3f"),
    "accuracy": ("accuracy", ".3f"),
    "auc": ("AUC", ".3f"),
    "log_loss": ("log loss", ".3f"),
    "calibration_error": ("calibration error", ".3f"),
    "difference": ("loss less linear", "+.3f"),
    "difference_se": ("s.e.", ".3f"),
    "fit_cpu_seconds": ("fit, CPU s", ".1f"),
    "predict_cpu_seconds": ("predict, CPU s", ".2f"),
    "cpu_ratio": ("CPU / linear", ".1f"),
    "peak_mib": ("peak MiB", ".0f"),
    "coherence": ("NPMI", ".3f"),
    "exclusivity": ("exclusivity", ".2f"),
    "distinct": ("distinct words", ".2f"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """What one row of the table measures.

    Attributes
    ----------
    response : str
        Key of `RESPONSES`.
    method : str
        Key of `METHODS`, or the settings of dslda as the command line has them.
    family : str or None
        Family of dslda; None for a rival.
    n_topics : int or None
        None where the method has none.
    folds : int
    only_folds : int or None
        The first folds alone.
    sample : int or None
        Number of documents drawn from the corpus; None for all.
    """

    response: str
    method: str
    family: str | None
    n_topics: int | None
    folds: int
    only_folds: int | None
    sample: int | None

    @property
    def key(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def linear(self) -> Cell:
        """The cell of the linear model for the same documents and folds."""
        return replace(self, method=LINEAR, family=None, n_topics=None)


class Results:
    """Rows and losses of documents, those of earlier runs included.

    Losses are in a folder beside the file, one array for each row. One process at a time may write a file.

    Parameters
    ----------
    path : Path or None
        JSON file; None keeps the results in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self.losses: dict[Cell, NDArray[np.float32]] = {}
        if path is not None and path.exists():
            self.rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
            self.losses = {_cell_of(row): np.load(self._file(_cell_of(row))) for row in self.rows}

    def add(self, cell: Cell, row: dict[str, Any], losses: NDArray[np.float64]) -> dict[str, Any]:
        """Store a row with its losses, and return it with its comparison."""
        self.losses[cell] = losses.astype(np.float32)
        self.rows.append({**cell.key, **row})
        if self.path is not None:
            file = self._file(cell)
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, self.losses[cell])
            write_json(
                self.path, {"benchmark": "prediction", "machine": machine(), "rows": list(self.compared())}
            )
        return list(self.compared())[-1]

    def compared(self) -> Iterator[dict[str, Any]]:
        """The rows, with their differences to the linear model where its row is there."""
        seconds = {_cell_of(row): row["fit_cpu_seconds"] + row["predict_cpu_seconds"] for row in self.rows}
        for row in self.rows:
            cell = _cell_of(row)
            comparison = {}
            if cell.linear in seconds and cell != cell.linear:
                differences = self.losses[cell].astype(np.float64) - self.losses[cell.linear]
                comparison = {
                    "difference": float(differences.mean()),
                    "difference_se": float(differences.std(ddof=1) / np.sqrt(len(differences))),
                    "cpu_ratio": seconds[cell] / seconds[cell.linear],
                }
            yield {**row, **comparison}

    def _file(self, cell: Cell) -> Path:
        assert self.path is not None
        named = "-".join(str(value) for value in cell.key.values())
        return self.path.with_suffix(".losses") / (re.sub(r"[^\w.=,-]", "_", named) + ".npy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    def some(option: str, choices: Iterable[str], what: str, metavar: str, *, nargs: str = "+") -> None:
        known = f"{what}, of {', '.join(choices)}; default: all"
        parser.add_argument(
            option, nargs=nargs, choices=list(choices), default=list(choices), metavar=metavar, help=known
        )

    some("--corpora", CORPORA, "corpora", "CORPUS")
    some("--rows", RESPONSES, "responses", "RESPONSE")
    some("--methods", METHODS, "methods, or none", "METHOD", nargs="*")
    parser.add_argument(
        "--dslda",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="another row of dslda with these keywords of dslda.train; may be repeated",
    )
    parser.add_argument("--topics", nargs="+", type=int, default=[20], metavar="K", help="default: 20")
    parser.add_argument("--folds", type=int, default=5, help="where the corpus has no split; default: 5")
    parser.add_argument(
        "--only-folds", type=int, metavar="N", help="only the first N folds, for a quick look"
    )
    parser.add_argument(
        "--documents", type=int, metavar="N", help="only N documents of a corpus, for a quick look"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the results, rewritten after every row")


def main(arguments: argparse.Namespace) -> None:
    results = Results(arguments.out)
    failures = []
    for cell in _cells(arguments):
        if cell in results.losses:
            continue
        try:
            cost = measure(_evaluation, cell)
        except RuntimeError as error:
            # the other rows of a night's run are worth having
            failures.append(cell)
            print(error, file=sys.stderr, flush=True)
            continue
        row = cost.pop("result")
        losses = row.pop("losses")
        added = results.add(cell, {"label": _label(cell), **row, **cost}, losses)
        print(markdown([_shown(added)], COLUMNS).splitlines()[-1], file=sys.stderr, flush=True)
    print(summary(results))
    if failures:
        raise SystemExit("these rows failed: " + "; ".join(str(cell) for cell in failures))


def summary(results: Results) -> str:
    """The table of all rows, responses in the order of `RESPONSES`."""
    responses = list(RESPONSES)
    rows = sorted(results.compared(), key=lambda row: responses.index(row["response"]))
    on = machine()
    head = f"Folds pooled, or the given split; {on['processor']}, {on['cores']} cores, {on['date']}"
    return f"{head}\n\n{markdown([_shown(row) for row in rows], COLUMNS)}"


def method_of(name: str) -> PredictionMethod:
    """The method of this name, or dslda with settings as the command line has them.

    Values of settings are Python's None, True, False and numbers, else strings.
    """
    if name in METHODS:
        return METHODS[name]
    settings = {}
    for pair in name.split(","):
        keyword, equals, value = pair.partition("=")
        if not equals:
            raise SystemExit(f"--dslda takes NAME=VALUE,..., got {name!r}")
        settings[keyword.strip()] = _value(value.strip())
    return with_settings(f"dslda, {', '.join(f'{k} {v}' for k, v in settings.items())}", settings)


def _value(text: str) -> Any:
    constants = {"None": None, "True": True, "False": False}
    if text in constants:
        return constants[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """The rows to measure, response by response; without those that a method cannot have."""
    for name in arguments.rows:
        response = RESPONSES[name]
        if response.corpus not in arguments.corpora:
            continue
        for method_name in [*arguments.methods, *arguments.dslda]:
            method = method_of(method_name)
            if not method.is_available:
                print(f"skipped: {method.label} ({method.requires} is not installed)", file=sys.stderr)
                continue
            has_texts = bool(CORPORA[response.corpus].fields)
            if response.kind not in method.kinds or (method.longest > 1 and not has_texts):
                continue
            families: tuple[str | None, ...] = (None,)
            settings = method.settings
            if settings is not None:
                families = (settings["family"],) if "family" in settings else FAMILIES[response.kind]
            topics = arguments.topics if method.uses_topics else [None]
            if settings is not None and "n_topics" in settings:
                topics = [settings["n_topics"]]
            for family in families:
                for n_topics in topics:
                    yield Cell(
                        name,
                        method_name,
                        family,
                        n_topics,
                        arguments.folds,
                        arguments.only_folds,
                        arguments.documents,
                    )


def _evaluation(cell: Cell) -> Callable[[], dict[str, Any]]:
    """Prepare the cross-validation of a row, for `benchmarks.measure.measure`."""
    response, method = RESPONSES[cell.response], method_of(cell.method)
    documents = counted_documents(response, longest=method.longest, sample=cell.sample)
    prepared = method.prepare(documents)
    settings = dict(method.settings or {})
    if cell.family is not None:
        settings["family"] = cell.family

    def build(**changed: Any) -> Any:
        return method.build(response.kind, documents, cell.n_topics or 0, settings | changed)

    # imports and just-in-time compilation, which a user pays once, are not part of the work
    some = np.random.default_rng(0).permutation(len(documents.y))[:WARM_UP]
    model = build(**({} if cell.family is None else {"max_iter": 2}))
    model.fit(prepared[some], documents.y[some]).predict(prepared[some])

    def work() -> dict[str, Any]:
        held_out, predicted, penalties, topics = [], [], [], []
        fit = predict = 0.0
        for train, test in islice(splits(documents, cell.folds), cell.only_folds):
            start = cpu_seconds()
            model = build().fit(prepared[train], documents.y[train])
            fitted = cpu_seconds()
            predicted.append(model.predict(prepared[test]))
            fit, predict = fit + fitted - start, predict + cpu_seconds() - fitted
            held_out.append(test)
            if hasattr(model, "penalty"):
                penalties.append(model.penalty)
            if method.uses_topics:
                topics.append(_topic_measures(model.topic_word, documents.counts[train]))
        y, pooled = documents.y[np.concatenate(held_out)], np.concatenate(predicted)
        row: dict[str, Any] = {
            "n_documents": len(documents.y),
            "n_held_out": len(y),
            "n_terms": documents.counts.shape[1],
            "fit_cpu_seconds": fit / len(held_out),
            "predict_cpu_seconds": predict / len(held_out),
            "losses": document_losses(response.kind, y, pooled),
            **measures(response.kind, documents.levels, y, pooled),
        }
        if penalties:
            row["penalties"] = penalties
        if topics:
            row |= {name: float(np.mean([measured[name] for measured in topics])) for name in topics[0]}
        return row

    return work


def _topic_measures(topic_word: NDArray[np.float64], counts: csr_array) -> dict[str, float]:
    """Means of the product's own measures, so that all methods are measured alike."""
    topics, top = topic_word.T, top_terms(topic_word.T)
    together = co_occurrence(
        counts.indptr, counts.indices, np.ones(counts.shape[0]), top=top, n_terms=counts.shape[1]
    )
    quality = topic_quality(topics, top, together)
    return {
        "coherence": float(np.nanmean(quality.npmi)),
        "exclusivity": float(quality.exclusivity.mean()),
        "distinct": quality.distinct_share,
    }


def _label(cell: Cell) -> str:
    label = method_of(cell.method).label
    return label if cell.family is None else f"{label} ({cell.family})"


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    response = RESPONSES[row["response"]]
    levels = ", levels" if response.kind == "ordinal" else ""
    return {**row, "response": f"{response.corpus}, {response.field}{levels}"}


def _cell_of(row: Mapping[str, Any]) -> Cell:
    return Cell(**{name: row[name] for name in Cell.__slots__})
