"""``dslda score``: the response of many documents, in files, in a run that can be resumed."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from dslda.cli.logs import logging_to_stderr
from dslda.cli.options import (
    OUTPUT,
    chosen_client,
    cluster_options,
    interval_option,
    json_option,
    new_documents_options,
    vocabulary_from,
)
from dslda.cli.own_family import load_own_model, own_family_option
from dslda.cli.terminal import echo

if TYPE_CHECKING:
    from dslda.cluster.opening import ClusterOptions
    from dslda.scoring.score import ScoringRun
    from dslda.scoring.tables import Topics

__all__ = ["command"]


class _Topics(click.ParamType):
    """``all``, ``none`` or a number."""

    name = "all|none|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Topics:
        if value in ("all", "none"):
            return value  # type: ignore[no-any-return]
        try:
            return int(value)
        except ValueError:
            self.fail(f"must be all, none or a whole number of at least 1, got {value!r}", param, ctx)


@click.command(
    "score",
    short_help="Score many documents into files; resumes where it stopped.",
    epilog="""\b
Examples:
  dslda score stars.model 'incoming/*.jsonl.gz' --out scores
  dslda score stars.model year=2026/ --out scores --topics 3 --output-format csv --workers 4
  dslda score stars.model reviews.corpus --out scores --scheduler tcp://10.0.0.5:8786
  dslda score stars.model 'incoming/*.jsonl' --out scores --on-error skip --json --metrics /var/lib/node/dslda.prom

\b
Columns: id, prediction, probability_NAME for classes and levels, prediction_low and prediction_high for numbers
(if the model knows them), tokens, known_tokens, oov_share, flag (as in dslda predict), and topics.

\b
The folder of a run holds part-000000.parquet, part-000001.parquet, ... in the order of the input, and
manifest.json, which says what they contain, whether the run is complete, and how far documents and predictions
have moved from those of training. The same command, run again, resumes after a kill, scores new inputs, and does
nothing if there are none. docs/scoring.md describes all of it.

\b
Exit codes: 0 complete, 1 failed while running (run it again), 2 something must be mended first (input, model,
folder), 130 and 143 interrupted by Ctrl-C or SIGTERM. Whatever the code, finished parts stay.""",
)
@click.argument("model_path", metavar="MODEL")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--out",
    type=OUTPUT,
    required=True,
    metavar="DIR",
    help="Folder of the run: a local path or any fsspec URL.",
)
@new_documents_options
@click.option(
    "--output-format",
    type=click.Choice(["parquet", "csv", "jsonl"]),
    default="parquet",
    show_default=True,
    help="Format of the scores.",
)
@click.option(
    "--topics",
    type=_Topics(),
    default="all",
    show_default=True,
    help="Topic proportions: all, none, or the N largest of each document.",
)
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="For a record that cannot be scored: stop, or leave it out and count it in the manifest.",
)
@click.option(
    "--rescore-changed",
    is_flag=True,
    help="Score inputs again that have changed since they were scored; their rows then follow all others.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Read all finished parts again, also when nothing is new, and score damaged ones again.",
)
@click.option(
    "--realign", is_flag=True, help="Match the terms of a corpus by name if its vocabulary differs."
)
@interval_option
@click.option(
    "--metrics", metavar="FILE", help="Write metrics for Prometheus' textfile collector at the end."
)
@own_family_option
@cluster_options
@json_option
def command(
    model_path: str,
    inputs: tuple[str, ...],
    *,
    out: str,
    vocabulary: str | None,
    family: str | None,
    cluster: ClusterOptions,
    json_logs: bool,
    **settings: Any,
) -> None:
    """Score the documents in INPUT with MODEL, one row for each, in their order, into the folder DIR.

    INPUT is one or more files, folders, globs or URLs as dslda ingest reads them, or corpora. Works in this process up to
    64 MB of text and on all cores beyond, unless --workers or --scheduler says where.
    """
    with logging_to_stderr(json_logs=json_logs):
        from dslda.cluster.stage_progress import log_tenths, stage_progress
        from dslda.scoring.score import score

        model = model_path if family is None else load_own_model(model_path, family)
        with contextlib.ExitStack() as shown:
            progress = shown.enter_context(stage_progress(log_tenths if json_logs else None))

            def tell(run: ScoringRun) -> None:
                shown.close()  # a bar would swallow the line
                _print(run)

            score(
                model,
                list(inputs),
                out,
                vocabulary=vocabulary_from(vocabulary),
                client=chosen_client(cluster),
                progress=progress,
                tell=tell,
                **settings,
            )


def _print(run: ScoringRun) -> None:
    """Print what the run holds now; a standard output that is full fails here, before the run counts as complete."""
    with contextlib.suppress(BrokenPipeError):  # the reader has enough
        for line in str(run).split("\n"):
            echo(line)
        sys.stdout.flush()
