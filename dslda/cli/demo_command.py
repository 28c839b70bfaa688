"""``dslda demo``: a complete run on real reviews."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
import warnings
from typing import TYPE_CHECKING

import click

from dslda.cli.logs import logging_to_stderr
from dslda.cli.options import OUTPUT, chosen_client, cluster_options, json_option

if TYPE_CHECKING:
    from dslda.cluster.opening import ClusterOptions
    from dslda.demo import DemoResult

__all__ = ["command"]

PIPE_WIDTH = 110
TOP_WORDS = 8


@click.command(
    "demo",
    short_help="Run everything once on real reviews.",
    epilog="""\b
Examples:
  dslda demo
  dslda demo --out /tmp/demo --overwrite""",
)
@click.option(
    "--out",
    type=OUTPUT,
    metavar="DIR",
    default="dslda-demo",
    show_default=True,
    help="Folder for corpus and model.",
)
@click.option("--overwrite", is_flag=True, help="Replace the corpus and model of an earlier demo.")
@cluster_options
@json_option
def command(*, out: str, overwrite: bool, cluster: ClusterOptions, json_logs: bool) -> None:
    """Learn from reviews of women's clothing what makes customers give many or few stars.

    Counts a sample of the 22,641 reviews that come with dslda, trains on four fifths, prints the topics, and
    compares predictions for the other fifth with those of LDA + regression, lasso, and ridge on TF-IDF. About
    a minute, and once after installation a minute or two more.
    """
    began = time.perf_counter()
    with logging_to_stderr(json_logs=json_logs):
        from sklearn.exceptions import ConvergenceWarning

        from dslda.cli.json_progress import JsonProgress
        from dslda.demo import run_demo

        with warnings.catch_warnings():
            # of the rivals, at penalties that their cross-validation does not choose
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = run_demo(
                out,
                overwrite=overwrite,
                client=chosen_client(cluster),
                progress=JsonProgress() if json_logs else None,
                say=lambda line: click.echo(f"* {line}"),
            )
    _show(result, time.perf_counter() - began)


def _show(result: DemoResult, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from dslda.cli.topics_command import shown_topics
    from dslda.report.model_tables import notes

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    console.print()
    console.print(shown_topics(result.model, top=TOP_WORDS))
    click.echo("A coefficient is the number of stars expected of a review that is all about the topic.")
    click.echo("\n".join(notes(result.model)) + "\n")

    console.print(
        f"[bold]Predictive R2 for the {result.n_test:,} reviews held out[/] (1 is perfect, 0 is the mean)"
    )
    table = Table()
    table.add_column("method")
    table.add_column("R2", justify="right")
    table.add_column("seconds", justify="right")
    for name, score in sorted(result.scores.items(), key=lambda item: -item[1]):
        row = (f"{name}, {result.model.n_topics} topics" if name == "dslda" else name, f"{score:.3f}")
        table.add_row(*row, f"{result.seconds[name]:.1f}", style="bold" if name == "dslda" else None)
    console.print(table)
    corpus, model = (
        shlex.quote(path if "://" in path else os.path.relpath(path))
        for path in (result.corpus_path, result.model_path)
    )
    dslda = _program()
    click.echo(
        f"\nDone in {seconds:.0f} s. The model is in {model}, the corpus in {corpus}. Try next:\n"
        f"  {dslda} topics {model} --top 20\n"
        f"  {dslda} predict {model} {corpus} --out predictions.csv\n"
        f"  {dslda} train {corpus} --response age --topics 10 --out age.model\n"
        f"  {dslda} ingest --help                      to bring your own texts"
    )


def _program() -> str:
    """What a shell finds this program by: its name alone where that is on the path, else as it was started."""
    started = sys.argv[0]
    if os.path.basename(started) == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m dslda"
    found = shutil.which("dslda")
    on_path = found is not None and os.path.exists(started) and os.path.samefile(found, started)
    return "dslda" if on_path or not os.path.basename(started).startswith("dslda") else shlex.quote(started)
