"""``dslda topics``: the topics of a model with their coefficients."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dslda.cli.logs import option_words, shown
from dslda.cli.options import COUNT
from dslda.cli.own_family import load_own_model, own_family_option
from dslda.cli.terminal import echo, printable_cells
from dslda.exceptions import InputError
from dslda.wording import printable

if TYPE_CHECKING:
    from rich.table import Table

    from dslda.model import Model

__all__ = ["command", "shown_classes", "shown_covariates", "shown_topics"]

STABILITY = "stabi-\nlity"
NUMBERS = ("coefficient", "± s.e.", "preva-\nlence", "coher-\nence", "exclu-\nsivity", STABILITY, "topic")
"""Columns of a terminal's tables that are set to the right; in two lines, they leave room for the words."""


@click.command(
    "topics",
    short_help="Print topics with coefficients and words.",
    epilog="""\b
Examples:
  dslda topics stars.model
  dslda topics stars.model --top 20
  dslda topics stars.model > topics.csv
  dslda topics area.model --by-class > classes.csv
  dslda topics popular.model --covariates > covariates.csv""",
)
@click.argument("model_path", metavar="MODEL")
@click.option("--top", type=COUNT, default=10, show_default=True, help="Words of each topic.")
@click.option(
    "--by-class",
    is_flag=True,
    help="A row for every class and topic instead, from what raises the class to what lowers it.",
)
@click.option("--covariates", is_flag=True, help="The coefficients of the covariates instead, as CSV.")
@own_family_option
def command(model_path: str, *, top: int, by_class: bool, covariates: bool, family: str | None) -> None:
    """Print the topics of MODEL, from the lowest coefficient to the highest, with their most probable words.

    The coefficient is the linear predictor of a document that is all about the topic: for a Gaussian the response
    expected of it, in its units; for classes the predictor of the class that the topic favours most, and a second
    table has the topics that raise each class. Its standard error takes the topics as known, so it is a lower
    bound. Prevalence is the share of the training words in the topic. Coherence says how much more often than by
    chance its ten most probable words are in one training document (NPMI: 0 by chance, 1 always together), and
    exclusivity how much of the probability of its eight most probable words is its own (1 if no other topic has
    them). Of a fit of several starts there is stability too: how much of a topic the others find, by words and by
    documents, from 0 to 1. A star marks topics that they do not find. Coefficients of covariates come below; those
    of topics are then for average covariates. Prints a table on a terminal, and CSV if the output goes to a file or
    program (covariates then go to stderr; with --covariates they are the only output). In CSV, commas part the
    words of a model whose terms hold blanks, as n-grams do, and blanks part others.
    """
    model = load_own_model(model_path, family)
    in_classes = model.record.parameters.n_classes is not None
    if by_class and not in_classes:
        raise InputError(
            f"is for a response of classes, and family {model.spec.family} has one coefficient a topic",
            parameter="by_class",
            remedy="leave it out",
        )
    if covariates and by_class:
        raise InputError(
            "exclude each other: one has a row for every topic, the other for every covariate",
            parameter=("by_class", "covariates"),
            remedy="leave one out",
        )
    if covariates and not model.record.design.covariates:
        raise InputError(
            f"is for a model with covariates, {model_path} has none",
            parameter="covariates",
            remedy="leave it out",
        )
    from dslda.report import model_notes

    words = option_words(click.get_current_context().command)
    notes = [shown(note, words) for note in model_notes.notes(model, by_class=by_class)]
    if sys.stdout.isatty() and not (by_class or covariates):
        from rich.console import Console

        console = Console()
        console.print(shown_topics(model, top=top))
        if in_classes:
            console.print(shown_classes(model))
        if model.covariate_coefficients():
            console.print(shown_covariates(model))
        for note in notes:
            echo(note)
        return
    # the CSV stays CSV
    echo(" ".join(notes), err=True)
    for name, class_name, coefficient, error in () if covariates else _covariates(model):
        of_class = "" if class_name is None else f" for {class_name}"
        echo(f"Covariate {name}{of_class}: {coefficient} (s.e. {error})", err=True)
    from dslda.scoring.tables import csv_lines, safe_cell

    if covariates:
        table = model_notes.covariate_table(model)
    elif by_class:
        table = model_notes.class_table(model, top=top)
    else:
        table = model_notes.topic_table(model, top=top)
    cells = (
        [safe_cell(v) if isinstance(v, str) else "" if v is None else v for v in row] for row in table.rows
    )
    rows: Iterable[Sequence[Any]] = [table.columns, *cells]
    sys.stdout.write(csv_lines(printable_cells(rows) if sys.stdout.isatty() else rows))


def shown_topics(model: Model, *, top: int) -> Table:
    """The topics as a table for a terminal."""
    from dslda.report.model_notes import topic_label, topic_name, unstable_topics

    unstable = unstable_topics(model)
    rows = [
        (
            *([] if topic.class_name is None else [topic.class_name]),
            f"{topic.coefficient:.3f}",
            f"{topic.standard_error:.3f}",
            "" if topic.prevalence is None else f"{topic.prevalence:.1%}",
            "" if topic.coherence is None else f"{topic.coherence:.2f}",
            "" if topic.exclusivity is None else f"{topic.exclusivity:.2f}",
            *([] if topic.stability is None else [f"{topic.stability:.2f}"]),
            topic_name(topic.topic, unstable),
            ", ".join(topic.words),
        )
        for topic in model.topics(top=top)
    ]
    numbers = [name for name in NUMBERS if model.stability is not None or name != STABILITY]
    columns = (*topic_label(model), *numbers, "most probable words")
    return _table(f"Topics and their coefficients for {model.response or 'the response'}", columns, rows)


def shown_classes(model: Model) -> Table:
    """The topics that raise each class, one row each."""
    from dslda.report.model_notes import raising_words, unstable_topics

    unstable = unstable_topics(model)
    rows = [(name, raising_words(topics, unstable)) for name, topics in model.class_topics().items()]
    return _table("What raises each class", ("class", "topics with their coefficients ± s.e."), rows)


def shown_covariates(model: Model) -> Table:
    """The coefficients of the covariates, one row each, or one for each class."""
    rows = [
        (name, *([] if class_name is None else [class_name]), *numbers)
        for name, class_name, *numbers in _covariates(model)
    ]
    return _table("Covariates", ("covariate", *_class_column(model), "coefficient", "± s.e."), rows)


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    # as texts, in which brackets and colons of words are no markup
    table = Table(title=Text(printable(title), style="table.title"), title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in NUMBERS else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _class_column(model: Model) -> list[str]:
    return [] if model.record.parameters.n_classes is None else ["class"]


def _covariates(model: Model) -> Iterator[tuple[str, str | None, str, str]]:
    """Name (for a level, with its reference level), class, coefficient and standard error of each covariate."""
    from dslda.report.model_notes import covariate_name

    for row in model.covariate_coefficients():
        against = "" if row.level is None else f" (against {model.record.levels[row.covariate][0]})"
        yield (
            f"{covariate_name(row)}{against}",
            row.class_name,
            f"{row.coefficient:.4g}",
            f"{row.standard_error:.2g}",
        )
