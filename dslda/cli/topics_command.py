"""``dslda topics``: the topics of a model with their coefficients."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dslda.cli.option_wording import called, raising, scatter
from dslda.cli.own_family import load_own_model, own_family_option
from dslda.exceptions import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from dslda.model import Model

__all__ = ["class_table", "command", "covariate_table", "notes", "topic_table"]


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
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Words of each topic.")
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
    expected of it, in its units; of classes that of the class that the topic speaks for most, and a second table has
    the topics that raise each class. Its standard error takes the topics as known, a lower bound. Prevalence is the
    share of the training words in the topic. Coefficients of covariates come below; those of topics are then for
    average covariates. A table on a terminal, CSV when the output goes to a file or program (covariates on stderr, or
    alone with --covariates).
    """
    model = load_own_model(model_path, family)
    in_classes = model.record.parameters.n_classes is not None
    if by_class and not in_classes:
        raise InputError(
            f"--by-class is for a response of classes; family {model.spec.family} has one coefficient a topic: leave it out"
        )
    if covariates and by_class:
        raise InputError(
            "--covariates has a row for every covariate, --by-class one for every topic: leave one out"
        )
    if covariates and not model.record.design.covariates:
        raise InputError(f"--covariates is for a model with covariates, {model_path} has none: leave it out")
    if sys.stdout.isatty() and not (by_class or covariates):
        from rich.console import Console

        console = Console()
        console.print(topic_table(model, top=top))
        if in_classes:
            console.print(class_table(model))
        if model.covariate_coefficients():
            console.print(covariate_table(model))
        click.echo("\n".join(notes(model)))
        return
    # the CSV stays CSV
    click.echo(" ".join(notes(model, by_class=by_class)), err=True)
    for name, class_name, coefficient, error in () if covariates else _covariates(model):
        of_class = "" if class_name is None else f" for {class_name}"
        click.echo(f"Covariate {name}{of_class}: {coefficient} (s.e. {error})", err=True)
    from dslda.scoring.tables import csv_lines, safe_cell

    of_classes = ["class"] * in_classes
    if covariates:
        rows: list[list[Any]] = [
            ["covariate", "level", "against", *of_classes, "coefficient", "standard_error"]
        ]
        for each in model.covariate_coefficients():
            levels = ("", "") if each.level is None else (each.level, model.record.levels[each.covariate][0])
            named = [] if each.class_name is None else [each.class_name]
            cells = map(safe_cell, (each.covariate, *levels, *named))
            rows.append([*cells, each.coefficient, each.standard_error])
        sys.stdout.write(csv_lines(rows))
        return
    if by_class:
        words = {topic.topic: safe_cell(" ".join(topic.words)) for topic in model.topics(top=top)}
        rows = [["class", "topic", "coefficient", "standard_error", "words"]]
        for name, topics in model.class_topics(top=None).items():
            rows += ([safe_cell(name), k, value, error, words[k]] for k, value, error, _ in topics)
        sys.stdout.write(csv_lines(rows))
        return
    rows = [["topic", *of_classes, "coefficient", "standard_error", "prevalence", "words"]]
    for topic in model.topics(top=top):
        share = "" if topic.prevalence is None else topic.prevalence
        named = [] if topic.class_name is None else [safe_cell(topic.class_name)]
        words = safe_cell(" ".join(topic.words))
        rows.append([topic.topic, *named, topic.coefficient, topic.standard_error, share, words])
    sys.stdout.write(csv_lines(rows))


SCALES = {
    "log": "Coefficients are logarithms: 0.1 more is about 10% more.",
    "logit": "Coefficients are log odds.",
    "cumulative logit": "Coefficients are log odds of lying above the lowest level.",
    "softmax": "Coefficients are log odds, of the class that a topic speaks for most; --by-class has all.",
}
"""What a coefficient is by the link of the family, where it is not the response itself."""
BY_CLASS = "Coefficients are log odds, against the mean of all classes."


def notes(model: Model, *, by_class: bool = False) -> list[str]:
    """What a reader of the table must know, a sentence each."""
    name = model.response or "the response"
    scale = BY_CLASS if by_class else SCALES.get(model.family.link)
    said = [
        *([] if model.classes else [f"The mean of {name} in training is {model.response_summary.mean:.4g}."]),
        *([] if scale is None else [scale]),
        *(
            [
                "Coefficients of topics are those of documents with average covariates; of a covariate, per unit of it."
            ]
            if model.record.design.covariates
            else []
        ),
        "A standard error (s.e.) takes the topics as known: it is a lower bound.",
    ]
    if (told := scatter(model)) is not None:
        used = "; standard errors allow for it" if model.family.is_quasi else ""
        said.append(f"The Pearson dispersion (1 where {name} scatters as the family has it): {told}{used}.")
    if model.dispersion_at_floor:
        said.append(
            f"The dispersion is at its floor ({model.spec.dispersion_floor:g} of the variance of {name}): the floor, "
            "not the data, sets the standard errors."
        )
    return said


def topic_table(model: Model, *, top: int) -> Table:
    """The topics as a table for people."""
    from rich.table import Table

    table = Table(
        title=f"Topics and their coefficients for {model.response or 'the response'}", title_justify="left"
    )
    if model.record.parameters.n_classes is not None:
        table.add_column("class")
    table.add_column("coefficient", justify="right")
    table.add_column("± s.e.", justify="right")
    table.add_column("prevalence", justify="right")
    table.add_column("topic", justify="right")
    table.add_column("most probable words")
    for topic in model.topics(top=top):
        share = "" if topic.prevalence is None else f"{topic.prevalence:.1%}"
        numbers = (f"{topic.coefficient:.3f}", f"{topic.standard_error:.3f}", share, str(topic.topic))
        named = [] if topic.class_name is None else [topic.class_name]
        table.add_row(*named, *numbers, ", ".join(topic.words))
    return table


def class_table(model: Model) -> Table:
    """The topics that raise each class, a row a class."""
    from rich.table import Table

    table = Table(title="What raises each class", title_justify="left")
    table.add_column("class")
    table.add_column("topics with their coefficients ± s.e.")
    for name, raised in model.class_topics().items():
        table.add_row(name, raising(raised).removeprefix("raised by "))
    return table


def covariate_table(model: Model) -> Table:
    """The coefficients of the covariates, a row each, or one for each class."""
    from rich.table import Table

    table = Table(title="Covariates", title_justify="left")
    table.add_column("covariate")
    if model.record.parameters.n_classes is not None:
        table.add_column("class")
    table.add_column("coefficient", justify="right")
    table.add_column("± s.e.", justify="right")
    for name, class_name, *numbers in _covariates(model):
        table.add_row(name, *([] if class_name is None else [class_name]), *numbers)
    return table


def _covariates(model: Model) -> Iterator[tuple[str, str | None, str, str]]:
    """Each covariate, with the level that a level is compared with; class, coefficient and standard error."""
    for each in model.covariate_coefficients():
        against = "" if each.level is None else f" (against {model.record.levels[each.covariate][0]})"
        yield (
            f"{called(each)}{against}",
            each.class_name,
            f"{each.coefficient:.4g}",
            f"{each.standard_error:.2g}",
        )
