"""The outcome of a cross-validation: measures of every method, and the choice of the number of topics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslda.cross_validation.fold_fit import FoldFit, Problem
from dslda.evaluation.response_measures import Kind, document_losses, measures
from dslda.exceptions import InputError
from dslda.notebook_card import notebook_card
from dslda.wording import number_of, short_repr

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Choice", "Evaluation", "Pooled", "chosen_topics", "pooled"]

LABELS = {"dslda": "dslda", "tfidf": "TF-IDF + linear model", "lda": "LDA + linear model"}
HEADLINES: Mapping[Kind, tuple[str, str]] = {
    "real": ("r2", "R2"),
    "count": ("d2", "deviance explained"),
    "ordinal": ("log_loss", "log loss"),
    "binary": ("log_loss", "log loss"),
    "classes": ("log_loss", "log loss"),
}
"""The measure that belongs to the loss of a document, by kind of response, and its name."""
COLUMNS = {
    "method": "method",
    "n_topics": "topics",
    "r2": "R2",
    "d2": "D2",
    "correlation": "corre-\nlation",
    "accuracy": "accu-\nracy",
    "auc": "AUC",
    "log_loss": "log\nloss",
    "calibration_error": "calib.\nerror",
    "topics_alone": "topics\nalone",
    "difference": "loss",
    "standard_error": "±\ns.e.",
    "npmi": "coher-\nence",
    "exclusivity": "exclu-\nsivity",
    "seconds": "sec-\nonds",
}
"""Heads of the columns that readers are shown, by those of the rows; with the breaks that a terminal needs."""


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """A method with a number of topics, over the documents of all folds.

    Attributes
    ----------
    method : {"dslda", "tfidf", "lda"}
    n_topics : int or None
    rows : ndarray of int64, shape (D,)
        Ascending.
    predicted, topics_alone : ndarray of float64 or None
        As in :class:`~dslda.cross_validation.fold_fit.FoldFit`; where a fold has no words beyond the topics, topics alone are
        all. None where no fold has any.
    measured : mapping of str to float
        Means over the folds.
    """

    method: str
    n_topics: int | None
    rows: NDArray[np.int64]
    predicted: NDArray[np.float64]
    topics_alone: NDArray[np.float64] | None
    measured: Mapping[str, float]

    __repr__ = short_repr

    @property
    def label(self) -> str:
        """Its name in tables."""
        topics = "" if self.n_topics is None else f", {number_of(self.n_topics, 'topic')}"
        return LABELS[self.method] + topics


def pooled(method: str, n_topics: int | None, fits: Sequence[FoldFit]) -> Pooled:
    """Join the folds of a method, in the order of the documents."""
    rows = np.concatenate([fit.rows for fit in fits])
    order = np.argsort(rows, kind="stable")
    predicted = np.concatenate([fit.predicted for fit in fits])[order]
    alone = None
    if any(fit.topics_alone is not None for fit in fits):
        parts = [fit.predicted if fit.topics_alone is None else fit.topics_alone for fit in fits]
        alone = np.concatenate(parts)[order]
    names = dict.fromkeys(name for fit in fits for name in fit.measured)
    means = {name: _mean_of_known([fit.measured.get(name, math.nan) for fit in fits]) for name in names}
    return Pooled(method, n_topics, rows[order], predicted, alone, means)


def _mean_of_known(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


@dataclass(frozen=True, slots=True)
class Choice:
    """The number of topics to take.

    Attributes
    ----------
    n_topics : int
        The smallest that predicts within one standard error of the best.
    best : int
        The one that predicts best.
    difference, standard_error : float
        Mean loss of a document with `n_topics` less that with `best`, and its standard error; 0 where both are one.
    topics_alone : bool
        It rests on what topics alone predict: with words beyond the topics all numbers of topics predict nearly alike.
    """

    n_topics: int
    best: int
    difference: float
    standard_error: float
    topics_alone: bool


def chosen_topics(losses: Mapping[int, NDArray[np.float64]], clusters: NDArray[np.int64] | None) -> Choice:
    """The one-standard-error rule, by differences of the losses of the same documents.

    Parameters
    ----------
    losses : mapping of int to ndarray of float64, shape (D,)
        By number of topics.
    clusters : ndarray of int64, shape (D,), or None
        Groups of documents that vary together; None where each varies alone.
    """
    best = min(sorted(losses), key=lambda k: float(losses[k].mean()))
    for k in sorted(losses):
        if k >= best:
            break
        difference, error = paired_difference(losses[k], losses[best], clusters)
        if difference <= error:
            return Choice(k, best, difference, error, topics_alone=False)
    return Choice(best, best, 0.0, 0.0, topics_alone=False)


def paired_difference(
    losses: NDArray[np.float64], others: NDArray[np.float64], clusters: NDArray[np.int64] | None
) -> tuple[float, float]:
    """Mean of the differences of the losses of the same documents, and its standard error."""
    differences = losses - others
    mean, n = float(differences.mean()), len(differences)
    deviations: NDArray[np.float64] = differences - mean
    m = n
    if clusters is not None:
        m = len(np.unique(clusters))
        deviations = np.bincount(clusters, weights=deviations).astype(np.float64)
    if m < 2:
        return mean, math.nan
    return mean, float(np.sqrt(m / (m - 1) * np.sum(deviations**2)) / n)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """How well fits predict documents that they have not seen; made by :func:`dslda.evaluate`.

    Attributes
    ----------
    response : str
    kind : {"real", "count", "ordinal", "binary", "classes"}
        Decides the measures.
    splitting : str
        How the documents were cut into folds, in words.
    rows : tuple of dict
        One for each method and number of topics, dslda first: "method", "n_topics", and the measures that the kind of
        response has ("r2", "correlation", "d2", "accuracy", "auc", "log_loss", "calibration_error"). "topics_alone" is the
        first of these without words beyond the topics; "topics_alone_difference" and "topics_alone_standard_error" are what
        the choice goes by, the mean loss less that of the number of topics chosen, both by topics alone. "loss", "difference"
        and "standard_error" are the mean loss of a document, and what it is above that of the number chosen. Means over the
        folds are "npmi", "exclusivity", "distinct_share" and "seconds".
    choice : Choice
    n_documents : int
        Documents that judged.
    """

    response: str
    kind: Kind
    splitting: str
    rows: tuple[dict[str, Any], ...]
    choice: Choice
    n_documents: int
    methods: tuple[Pooled, ...]
    problem: Problem

    __repr__ = short_repr

    @property
    def headline(self) -> tuple[str, str]:
        """The measure that the choice goes by: its key in `rows`, and its name."""
        return HEADLINES[self.kind]

    def _repr_html_(self) -> str:
        heads, rows = self.in_cells()
        return notebook_card(
            f"Evaluation of {self.response}: {number_of(self.n_documents, 'document')}, {self.splitting}",
            columns=[head.replace("-\n", "").replace("\n", " ") for head in heads],
            rows=rows,
            texts=("method",),
            notes=self.in_words,
        )

    def in_cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads of the columns that have any figures, and the rows as readers are shown them."""
        names = [name for name in COLUMNS if any(row.get(name) is not None for row in self.rows)]
        return [COLUMNS[name] for name in names], [
            [_shown(name, row.get(name)) for name in names] for row in self.rows
        ]

    def table(self) -> pa.Table:
        """The rows as a table; ``to_pandas()`` makes a data frame of it."""
        import pyarrow as pa

        names = dict.fromkeys(name for row in self.rows for name in row)
        return pa.table({name: [row.get(name) for row in self.rows] for name in names})

    def to_csv(self) -> str:
        """The rows as lines of CSV, empty where a method has no such measure."""
        from dslda.scoring.tables import csv_lines

        table = self.table()
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return csv_lines([table.column_names, *(["" if v is None else v for v in row] for row in rows)])

    def out_of_fold(self, n_topics: int | None = None) -> pa.Table:
        """What fits that had not seen them predict for all documents that judged.

        Parameters
        ----------
        n_topics : int, optional
            One of the numbers of topics; that chosen by default.

        Returns
        -------
        pyarrow.Table
            "row" in the corpus, "response", and "prediction" or a column ``probability_<class>`` for each class.

        Raises
        ------
        InputError
            There was no such number of topics.
        """
        import pyarrow as pa

        wanted = self.choice.n_topics if n_topics is None else n_topics
        known = {method.n_topics: method for method in self.methods if method.method == "dslda"}
        if wanted not in known:
            raise InputError(
                f"must be one of {', '.join(map(str, known))}, got {n_topics!r}", parameter="n_topics"
            )
        method, names = known[wanted], self.problem.names
        y = self.problem.y[method.rows]
        columns: dict[str, Any] = {"row": method.rows}
        if names is None:
            columns |= {"response": y, "prediction": method.predicted}
        else:
            columns["response"] = [names[int(code)] for code in y]
            columns |= {
                f"probability_{name}": np.ascontiguousarray(column)
                for name, column in zip(names, method.predicted.T, strict=True)
            }
        return pa.table(columns)

    @property
    def in_words(self) -> tuple[str, ...]:
        """What the figures say, a sentence each."""
        key, name = self.headline
        choice, by_topics = (
            self.choice,
            {r["n_topics"]: r for r in self.rows if r["method"] == LABELS["dslda"]},
        )
        column = "topics_alone" if choice.topics_alone else key
        by = "by topics alone " if choice.topics_alone else ""
        best, taken = by_topics[choice.best][column], by_topics[choice.n_topics][column]
        if choice.n_topics == choice.best:
            choose = f"{number_of(choice.best, 'topic')} predict best {by}({name} {best:.3f}): choose {choice.best}."
            if len(by_topics) > 1 and choice.best != min(by_topics):
                choose += " Fewer predict worse by more than one standard error."
        else:
            choose = (
                f"{number_of(choice.best, 'topic')} predict best {by}({name} {best:.3f}), and "
                f"{choice.n_topics} within one standard error of that ({taken:.3f}; the difference is "
                f"{choice.difference:.3f}, s.e. {choice.standard_error:.3f}): choose {choice.n_topics}."
            )
        sentences = [choose]
        if choice.topics_alone:
            sentences.append(
                f"With single words beyond the topics, {number_of(choice.n_topics, 'topic')} have {name} "
                f"{by_topics[choice.n_topics][key]:.3f}."
            )
        for row in self.rows:
            if row["method"] == LABELS["dslda"]:
                continue
            lead, error = row["difference"], row["standard_error"]
            said = "level with it" if abs(lead) <= error else "worse" if lead > 0 else "better"
            sentences.append(
                f"{row['method']}: {name} {row[key]:.3f}, {said} "
                f"(loss of a document {lead:+.3f}, s.e. {error:.3f})."
            )
        return tuple(sentences)

    def plot(self, ax: Any = None) -> Any:
        """Draw the headline measure by the number of topics, with the choice and the rivals; returns matplotlib's axes.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; on a new figure by default.

        Raises
        ------
        InputError
            matplotlib is not installed.
        """
        from dslda.cross_validation.figure import draw

        return draw(self, ax)

    def to_json(self) -> dict[str, Any]:
        """The rows, the choice and its reason, without NaN."""
        return {
            "response": self.response,
            "kind": self.kind,
            "splitting": self.splitting,
            "documents": self.n_documents,
            "chosen_topics": self.choice.n_topics,
            "best_topics": self.choice.best,
            "by_topics_alone": self.choice.topics_alone,
            "in_words": list(self.in_words),
            "rows": [{name: _finite(value) for name, value in row.items()} for row in self.rows],
        }


def evaluation_of(
    problem: Problem, splitting: str, methods: Sequence[Pooled], clusters: NDArray[np.float64] | None
) -> tuple[Evaluation, int]:
    """Measure all methods on the documents for which each has a prediction; returns the number of the others too."""
    finite = np.ones(len(methods[0].rows), dtype=np.bool_)
    for method in methods:
        finite &= np.isfinite(method.predicted.reshape(len(finite), -1)).all(axis=1)
    rows = methods[0].rows[finite]
    y, kind = problem.y[rows], problem.kind
    own = None if clusters is None else np.unique(clusters[rows], return_inverse=True)[1]
    numbers = _numbers(problem)

    def losses(predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        return document_losses(kind, y, predicted[finite])

    ours = {m.n_topics: m for m in methods if m.method == "dslda" and m.n_topics is not None}
    # on one footing: where some fits have words beyond the topics, and others none
    by_topics = any(m.topics_alone is not None for m in ours.values())
    judged = {k: losses(m.predicted if m.topics_alone is None else m.topics_alone) for k, m in ours.items()}
    picked = chosen_topics(judged, own)
    choice = Choice(picked.n_topics, picked.best, picked.difference, picked.standard_error, by_topics)
    reference = losses(ours[choice.n_topics].predicted)
    key = HEADLINES[kind][0]
    table = []
    for method in methods:
        own_losses = losses(method.predicted)
        row: dict[str, Any] = {"method": LABELS[method.method], "n_topics": method.n_topics}
        row |= measures(kind, numbers, y, method.predicted[finite])
        if method.method == "dslda" and by_topics:
            alone = method.predicted if method.topics_alone is None else method.topics_alone
            row["topics_alone"] = measures(kind, numbers, y, alone[finite])[key]
            row["topics_alone_difference"], row["topics_alone_standard_error"] = paired_difference(
                losses(alone), judged[choice.n_topics], own
            )
        row["loss"] = float(own_losses.mean())
        row["difference"], row["standard_error"] = paired_difference(own_losses, reference, own)
        table.append(row | dict(method.measured))
    found = Evaluation(
        problem.response, kind, splitting, tuple(table), choice, len(rows), tuple(methods), problem
    )
    return found, int(np.count_nonzero(~finite))


def _numbers(problem: Problem) -> NDArray[np.float64] | None:
    """The numbers that all levels spell, if they do."""
    try:
        return np.array([float(name) for name in problem.names or ()])
    except ValueError:
        return None


def _shown(name: str, value: Any) -> str:
    """A measure as readers are shown it."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:{'+.3f' if name == 'difference' else '.1f' if name == 'seconds' else '.3f'}}"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
