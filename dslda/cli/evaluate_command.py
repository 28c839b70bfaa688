"""``dslda evaluate``: cross-validation over numbers of topics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dslda.cli.fit_options import named_levels, response_options, settings_options
from dslda.cli.logs import logging_to_stderr
from dslda.cli.options import OUTPUT, chosen_client, cluster_options, json_option, names_in
from dslda.cli.own_family import named_family
from dslda.cli.terminal import echo
from dslda.wording import printable

if TYPE_CHECKING:
    from rich.table import Table

    from dslda.cluster.opening import ClusterOptions
    from dslda.cross_validation.evaluation import Evaluation

__all__ = ["command"]


class _Numbers(click.ParamType):
    """Whole numbers with commas between them."""

    name = "K,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        try:
            return [int(number) for number in str(value).split(",")]
        except ValueError:
            self.fail(f"must be whole numbers with commas between them, got {value!r}", param, ctx)


@click.command(
    "evaluate",
    short_help="Cross-validate numbers of topics, beside linear models.",
    epilog="""\b
Examples:
  dslda evaluate reviews.corpus --response rating
  dslda evaluate reviews.corpus --response rating --topics 10,20,40 --out evaluation
  dslda evaluate bills.corpus --response cosponsors --family poisson --groups sponsor
  dslda evaluate prices.corpus --response price --time year --folds 3

\b
With --out the folder has table.csv, evaluation.json, topics.svg (if matplotlib is installed) and a file for each
fit. The same command goes on where it was stopped, and adds other numbers of topics.""",
)
@click.argument("corpus_path", metavar="C.corpus")
@click.option("--response", required=True, metavar="COL", help="Response to predict.")
@click.option(
    "--topics",
    "n_topics",
    type=_Numbers(),
    default="5,10,20,50",
    show_default=True,
    help="Numbers of topics to compare.",
)
@click.option(
    "--folds", type=int, default=5, show_default=True, metavar="N", help="Folds to cut documents into."
)
@click.option(
    "--groups", metavar="COL", help="Covariate whose values each stay in one fold, such as the author."
)
@click.option(
    "--time",
    metavar="COL",
    help="Covariate of numbers, such as the year: each fold is judged by a fit to what came before it.",
)
@click.option(
    "--rivals/--no-rivals",
    default=True,
    show_default=True,
    help="Fit linear models on TF-IDF and on the topics of LDA in the same folds.",
)
@click.option(
    "--out",
    type=OUTPUT,
    metavar="DIR",
    help="Folder for the results: a local path or any fsspec URL.  [default: none]",
)
@click.option("--overwrite", is_flag=True, help="Replace another evaluation at --out.")
@response_options
@settings_options(without=["n_topics", "bootstrap"])
@cluster_options
@json_option
def command(
    corpus_path: str,
    *,
    family: str,
    covariates: tuple[str, ...],
    levels: str | None,
    cluster: ClusterOptions,
    json_logs: bool,
    **settings: Any,
) -> None:
    """Predict every document of C.corpus by fits that have not seen it, and choose a number of topics.

    The choice is the smallest number that predicts within one standard error of the best, by what topics alone
    predict: with single words beside them all numbers predict nearly alike. A loss is that of a document, less that
    of the number of topics chosen, with its standard error; below 0 is better. Seconds are those of one core, the
    mean of a fit. Prints a table on a terminal, and CSV if the output goes to a file or program.
    """
    with logging_to_stderr(json_logs=json_logs):
        from dslda.cross_validation.evaluate import evaluate

        found = evaluate(
            corpus_path,
            family=named_family(family),
            covariates=names_in(covariates),
            levels=named_levels(levels),
            client=chosen_client(cluster),
            **settings,
        )
    is_terminal = sys.stdout.isatty()
    if is_terminal:
        from rich.console import Console

        Console().print(shown_evaluation(found))
    else:
        sys.stdout.write(found.to_csv())
    # the CSV stays CSV
    for sentence in found.in_words:
        echo(sentence, err=not is_terminal)


def shown_evaluation(found: Evaluation) -> Table:
    """The rows as a table for a terminal, whose figures are complete in 80 columns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = f"{found.response}: {found.n_documents:,} documents, {found.splitting}"
    table = Table(title=Text(printable(title), style="table.title"), title_justify="left")
    table.box, table.show_edge, table.padding, table.pad_edge = SIMPLE_HEAD, False, 0, False
    heads, rows = found.in_cells()
    for head in heads:
        is_figure = head != "method"
        table.add_column(head, justify="right" if is_figure else "left", no_wrap=is_figure)
    for row in rows:
        table.add_row(*row)
    return table
