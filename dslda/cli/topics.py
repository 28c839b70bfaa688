"""``dslda topics``: the topics of a model with their coefficients."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from dslda.model import Model

__all__ = ["command", "topic_table"]


@click.command(
    "topics",
    short_help="Print topics with coefficients and words.",
    epilog="""\b
Examples:
  dslda topics stars.model
  dslda topics stars.model --top 20
  dslda topics stars.model > topics.csv""",
)
@click.argument("model_path", metavar="MODEL")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Words of each topic.")
def command(model_path: str, top: int) -> None:
    """Print the topics of MODEL, from the lowest coefficient to the highest, with their most probable words.

    The coefficient is the response expected of a document that is all about the topic, in the units of the
    response; its standard error takes the topics as known. A table on a terminal, CSV when the output goes to
    a file or program.
    """
    from dslda.model import load_model

    model = load_model(model_path)
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(topic_table(model, top=top))
        return
    errors = {c.topic: c.standard_error for c in model.coefficients()}
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["topic", "coefficient", "standard_error", "words"])
    for topic in model.topics(top=top):
        writer.writerow([topic.topic, topic.coefficient, errors[topic.topic], " ".join(topic.words)])


def topic_table(model: Model, *, top: int) -> Table:
    """The topics as a table for people."""
    from rich.table import Table

    table = Table(
        title=f"Topics and their coefficients for {model.response or 'the response'}", title_justify="left"
    )
    table.add_column("coefficient", justify="right")
    table.add_column("± s.e.", justify="right")
    table.add_column("topic", justify="right")
    table.add_column("most probable words")
    errors = {c.topic: c.standard_error for c in model.coefficients()}
    for topic in model.topics(top=top):
        words = ", ".join(topic.words)
        table.add_row(f"{topic.coefficient:.3f}", f"{errors[topic.topic]:.3f}", str(topic.topic), words)
    return table
