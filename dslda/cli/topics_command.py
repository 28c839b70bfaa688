"""``dslda topics``: the topics of a model with their coefficients."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dslda.cli.logs import option_words, shown
from dslda.cli.options import COUNT
from dslda.cli.own_family import load_own_model, own_family_option
from dslda.cli.terminal import echo
from dslda.exceptions import InputError
from dslda.wording import printable

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.table import Table

    from dslda.evaluation.word_rankings import WordRanking
    from dslda.model import Model

__all__ = ["command", "shown_classes", "shown_covariates", "shown_topics"]

HEADINGS = {
    "low": "95%\nfrom",
    "high": "\nto",
    "conditional_error": "condi-\ntional\nerror",
    "prevalence": "preva-\nlence",
    "coherence": "coher-\nence",
    "exclusivity": "exclu-\nsivity",
    "stability": "stabi-\nlity",
}
"""Headings of a terminal's tables; in two lines, they leave room for the words."""
WORDS_HEADINGS = {"probability": "most probable words", "frex": "words by FREX", "lift": "words by lift"}
FORMATS = {"prevalence": ".1%", "coherence": ".2f", "exclusivity": ".2f", "stability": ".2f"}


@click.command(
    "topics",
    short_help="Print topics with coefficients and words.",
    epilog="""\b
Examples:
  dslda topics stars.model
  dslda topics stars.model --top 20 --words frex
  dslda topics stars.model > topics.csv
  dslda topics area.model --by-class > classes.csv
  dslda topics popular.model --covariates > covariates.csv""",
)
@click.argument("model_path", metavar="MODEL")
@click.option("--top", type=COUNT, default=10, show_default=True, help="Words of each topic.")
@click.option(
    "--words",
    type=click.Choice(tuple(WORDS_HEADINGS)),
    default="probability",
    show_default=True,
    help="Order of a topic's words: by probability, by frequency and exclusivity (FREX), or by lift.",
)
@click.option(
    "--by-class",
    is_flag=True,
    help="A row for every class and topic instead, from what raises the class to what lowers it.",
)
@click.option("--covariates", is_flag=True, help="The coefficients of the covariates instead.")
@own_family_option
def command(
    model_path: str,
    *,
    top: int,
    words: WordRanking,
    by_class: bool,
    covariates: bool,
    family: str | None,
) -> None:
    """Print the topics of MODEL, from the lowest coefficient to the highest, with their words.

    The coefficient is the linear predictor of a document that is all about the topic: for a Gaussian the response
    expected of it, in its units; for classes the predictor of the class that the topic favours most, and a second
    table has the topics that raise each class. A fit with a bootstrap has 95% intervals. The conditional error, in
    CSV, takes the topics as known, so it is a lower bound. Prevalence is the share of the training words in the
    topic. Coherence says how much more often than by chance its ten most probable words are in one training document
    (NPMI: 0 by chance, 1 always together), and
    exclusivity how much of the probability of its eight most probable words is its own (1 if no other topic has
    them). Of a fit of several starts there is stability too: how much of a topic the others find, by words and by
    documents, from 0 to 1. A star marks topics that they do not find. Coefficients of covariates come below; those
    of topics are then for average covariates. Prints a table on a terminal, and CSV if the output goes to a file or
    program (covariates then go to stderr; with --covariates they are the only output).

    Common words of the corpus lead many lists of the most probable words. --words frex lists those that are both
    frequent in the topic and exclusive to it, --words lift those that are most times as probable in it as in the
    corpus, which are rare. Names of topics come from dslda label.
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
    from dslda.report.model_notes import notes

    options = option_words(click.get_current_context().command)
    sentences = [shown(note, options) for note in notes(model, by_class=by_class)]
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        if by_class:
            console.print(_shown_class_table(model, top=top, words=words))
        elif not covariates:
            console.print(shown_topics(model, top=top, words=words))
            if in_classes:
                console.print(shown_classes(model))
        if model.covariate_coefficients() and not by_class:
            console.print(shown_covariates(model))
        for sentence in sentences:
            echo(sentence)
        return
    # the CSV stays CSV
    echo(" ".join(sentences), err=True)
    for line in () if covariates else _covariate_lines(model):
        echo(line, err=True)
    if covariates:
        table = _covariates(model)
    elif by_class:
        table = model.class_table(top, words)
    else:
        table = model.topic_table(top, words)
    sys.stdout.write(_csv(table))


def shown_topics(model: Model, *, top: int, words: WordRanking = "probability") -> Table:
    """The topics as a table for a terminal."""
    title = f"Topics and their coefficients for {model.response or 'the response'}"
    return _shown(_of_topics(model.topic_table(top, words), model), title, words=words)


def shown_classes(model: Model) -> Table:
    """The topics that raise each class, one row each."""
    from pandas import DataFrame

    from dslda.report.model_notes import raising_words, unstable_topics

    unstable = unstable_topics(model)
    rows = [(name, raising_words(topics, unstable)) for name, topics in model.class_topics().items()]
    table = DataFrame(rows, columns=["class", "topics with their coefficients"])
    return _shown(table, "What raises each class")


def shown_covariates(model: Model) -> Table:
    """The coefficients of the covariates, one row each, or one for each class."""
    # in the units of the covariates, which may be of any size
    return _shown(_covariates(model), "Covariates", number=".4g")


def _shown_class_table(model: Model, *, top: int, words: WordRanking) -> Table:
    title = "Coefficients of all topics for each class"
    return _shown(_of_topics(model.class_table(top, words), model), title, words=words)


def _covariates(model: Model) -> DataFrame:
    """The rows of the covariates in the table of coefficients."""
    table = model.coefficient_table()
    return table[table["topic"].isna()].drop(columns=["topic", "label"], errors="ignore")


def _covariate_lines(model: Model) -> Iterator[str]:
    from dslda.report.model_notes import covariate_name, uncertainty

    for row in model.covariate_coefficients():
        against = "" if row.level is None else f" (against {model.record.levels[row.covariate][0]})"
        of_class = "" if row.class_name is None else f" for {row.class_name}"
        yield f"Covariate {covariate_name(row)}{against}{of_class}: {row.coefficient:.4g} ({uncertainty(row)})"


def _of_topics(table: DataFrame, model: Model) -> DataFrame:
    """The table with stars at topics that other starts do not find, and without errors that take topics as known.

    Intervals take the place of what is not about the response: with all columns, none is left for the words.
    """
    from dslda.report.model_notes import topic_name, unstable_topics

    unstable = unstable_topics(model)
    table = table.assign(topic=[topic_name(topic, unstable) for topic in table["topic"]])
    in_csv_only = ["conditional_error", *(["coherence", "exclusivity"] if "low" in table else [])]
    table = table.drop(columns=in_csv_only, errors="ignore")
    beside = [name for name in ("topic", "label", "words") if name in table]
    return table[[*table.columns.difference(beside, sort=False), *beside]]


def _shown(table: DataFrame, title: str, *, number: str = ".3f", words: str = "probability") -> Table:
    """A data frame as a table for a terminal; numbers without a format of their own get the one given."""
    from pandas.api.types import is_float_dtype
    from rich.table import Table
    from rich.text import Text

    # as texts, in which brackets and colons of words are no markup
    shown_table = Table(title=Text(printable(title), style="table.title"), title_justify="left")
    columns = []
    for name, values in table.items():
        is_number = is_float_dtype(values)
        heading = WORDS_HEADINGS[words] if name == "words" else HEADINGS.get(name, name)
        shown_table.add_column(heading, justify="right" if is_number or name == "topic" else "left")
        style = FORMATS.get(name, number) if is_number else ""
        # a standard error that is not known is nan, and a name that is not there nothing
        columns.append(["" if v is None or (v != v and not is_number) else format(v, style) for v in values])
    for row in zip(*columns, strict=True):
        shown_table.add_row(*(Text(printable(cell)) for cell in row))
    return shown_table


def _csv(table: DataFrame) -> str:
    from dslda.scoring.tables import csv_lines, safe_cell

    def cell(value: Any) -> Any:
        return safe_cell(value) if isinstance(value, str) else "" if value != value else value

    rows = table.astype(object).itertuples(index=False, name=None)
    return csv_lines([[*table.columns], *([*map(cell, row)] for row in rows)])
