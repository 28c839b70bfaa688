"""``dslda report``: one page about a model."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from dslda.cli.logs import logging_to_stderr, option_words
from dslda.cli.options import ANALYZER, OUTPUT, json_option, reading_options
from dslda.cli.own_family import load_own_model, own_family_option
from dslda.cli.terminal import echo

__all__ = ["command"]


@click.command(
    "report",
    short_help="Write one HTML page about a model.",
    epilog="""\b
Examples:
  dslda report stars.model --out report.html                             the model alone
  dslda report stars.model --corpus reviews.corpus --out report.html     with documents, by their words
  dslda report stars.model --corpus reviews.corpus --texts reviews.jsonl.gz --out report.html
  dslda report stars.model --corpus may.corpus --texts may.csv --text body --id key --out may.html

\b
The page needs neither a network nor JavaScript, and prints. Its figures take matplotlib:
pip install 'dslda[plot]'. docs/report.md describes it.""",
)
@click.argument("model_path", metavar="MODEL")
@click.option(
    "--out", type=OUTPUT, required=True, metavar="FILE", help="The page: a local file or any fsspec URL."
)
@click.option("--overwrite", is_flag=True, help="Replace a page at --out.")
@click.option("--corpus", metavar="CORPUS", help="Documents, usually those trained on.")
@click.option(
    "--texts",
    metavar="FILE",
    multiple=True,
    help="Their texts, of which the page quotes a few: files, folders, globs or URLs.",
)
@reading_options(without_id="as in training; without identifiers, the order of the texts", vocabulary=None)
@click.option("--analyzer", metavar=ANALYZER, help="Analyzer of the model's texts, if it is your own.")
@click.option(
    "--excerpts/--no-excerpts",
    default=True,
    show_default=True,
    help="Show texts, or else words, of single documents; --no-excerpts is for data that may not leave.",
)
@click.option(
    "--realign", is_flag=True, help="Match the terms of the corpus by name if its vocabulary differs."
)
@own_family_option
@json_option
def command(
    model_path: str,
    *,
    out: str,
    corpus: str | None,
    texts: tuple[str, ...],
    analyzer: str | None,
    family: str | None,
    json_logs: bool,
    **options: Any,
) -> None:
    """Write a page about MODEL: how well it predicts, its topics with documents, and how far to trust them.

    With --corpus each topic has the documents that it describes best, and predictions stand beside what was
    observed. A corpus holds counts and not texts; with --texts the page quotes from them, else it shows the words
    that carry the topic.
    """
    with logging_to_stderr(json_logs=json_logs):
        from dslda.report.page import write_report

        model = load_own_model(model_path, family, analyzer)
        words = option_words(import_module("dslda.cli.train_command").command)
        page = write_report(model, out, corpus, texts=list(texts) or None, words=words, **options)
    echo(f"{page}")
