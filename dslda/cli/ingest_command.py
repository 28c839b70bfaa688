"""``dslda ingest``: from files to a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dslda.cli.logs import logging_to_stderr
from dslda.cli.options import (
    ANALYZER,
    COUNT,
    FREQUENCY,
    NGRAMS,
    OUTPUT,
    chosen_client,
    cluster_options,
    json_option,
    names_in,
    reading_options,
    vocabulary_from,
)
from dslda.cli.terminal import echo
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.cli.process import Session
    from dslda.cluster.opening import ClusterOptions

__all__ = ["command"]


@click.command(
    "ingest",
    short_help="Count the words of documents and write them as a corpus.",
    epilog="""\b
Examples:
  dslda ingest reviews.jsonl.gz --out reviews.corpus --text text --response rating
  dslda ingest 'year=*/part-*.parquet' --out all.corpus --text body --id key --response price --response views
  dslda ingest bills.csv --out bills.corpus --text summary --response policy_area --categorical policy_area
  dslda ingest export.csv --out export.corpus --text comment --separator ';' --encoding cp1252
  dslda ingest artikel.jsonl --out artikel.corpus --text text --analyzer words:lemmas
  dslda ingest counted.jsonl --out counted.corpus --words words --counts counts --response score --max-df 1.0
  dslda ingest docs.dat --format ldac --vocabulary vocab.txt --out docs.corpus
  dslda ingest letters/ --format text --out letters.corpus
  export_reviews | dslda ingest - --out reviews.corpus --text text
  dslda ingest june.jsonl.gz --out reviews.corpus --append""",
)
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--out",
    type=OUTPUT,
    required=True,
    metavar="C.corpus",
    help="Corpus to write: a local path or any fsspec URL.",
)
@reading_options(
    without_id="documents are numbered",
    vocabulary="Count the terms of this corpus, model or file (a term a line), unfiltered.",
)
@click.option("--response", multiple=True, metavar="COL", help="Field of a response; may be repeated.")
@click.option("--covariates", multiple=True, metavar="COL,...", help="Fields of covariates.")
@click.option(
    "--categorical",
    multiple=True,
    metavar="COL,...",
    help="Responses and covariates that hold names, not numbers.",
)
@click.option("--weight", metavar="COL", help="Field of document weights.")
@click.option("--min-df", type=FREQUENCY, help="Drop terms in fewer documents.  [default: 5]")
@click.option("--max-df", type=FREQUENCY, help="Drop terms in more documents.  [default: 0.25]")
@click.option("--max-features", type=COUNT, metavar="N", help="Keep the N most frequent terms.")
@click.option(
    "--stop-words",
    metavar="english|FILE",
    help="Drop scikit-learn's English list, or the words of a file. "
    "Topics are easier to read; predictions may be a little worse.",
)
@click.option(
    "--token-pattern", metavar="RE", help="Regular expression of a token.  [default: 2 or more letters]"
)
@click.option("--ngrams", type=NGRAMS, help="Lengths of n-grams, such as 1-2.  [default: 1-1]")
@click.option("--lowercase/--no-lowercase", default=None, help="Lower-case the texts.  [default: lowercase]")
@click.option(
    "--analyzer",
    metavar=ANALYZER,
    help="Function of your own that makes terms of a text as it is; workers must be able to import it.",
)
@click.option("--partition-tokens", type=COUNT, metavar="N", help="Approximate tokens of a partition.")
@click.option("--overwrite", is_flag=True, help="Replace a corpus at --out.")
@click.option(
    "--append",
    is_flag=True,
    help="Add to the corpus at --out, with its vocabulary, settings and columns, and its fields unless named.",
)
@cluster_options
@json_option
@click.pass_obj
def command(
    session: Session,
    /,
    inputs: tuple[str, ...],
    *,
    out: str,
    covariates: tuple[str, ...],
    categorical: tuple[str, ...],
    stop_words: str | None,
    vocabulary: str | None,
    overwrite: bool,
    append: bool,
    cluster: ClusterOptions,
    json_logs: bool,
    **settings: Any,
) -> None:
    """Count the words of documents and write them as a corpus.

    INPUT is one or more files, folders, globs, URLs or pipes, or - for stdin: JSON lines, CSV (with a header; .tsv
    with tabs), Parquet, LDA-C (each but Parquet also .gz, .zst, .bz2 or .xz), or folders of text files. Name the field
    of the texts with --text, or those of counted words with --words and --counts. Terms are filtered over the
    whole corpus; --min-df and --max-df take a number of documents (5) or a share of them (0.25). A pipe is copied to
    a temporary file first; CSV in a pipe without an ending needs --format csv.
    """
    with logging_to_stderr(json_logs=json_logs):
        from dslda.cli.standard_input import STDIN, check_open
        from dslda.cluster.stage_progress import log_tenths
        from dslda.corpus.store import open_corpus
        from dslda.corpus.writer import check_corpus_output
        from dslda.ingestion.ingest import ingest

        if "-" in inputs:
            check_open(session)
        check_corpus_output(out, overwrite=overwrite, append=append)
        n_before = open_corpus(out).n_documents if append else 0
        corpus = ingest(
            [STDIN if path == "-" else path for path in inputs],
            out,
            covariates=names_in(covariates),
            categorical=names_in(categorical),
            stop_words=_stop_words(stop_words),
            vocabulary=vocabulary_from(vocabulary),
            overwrite=overwrite,
            append=append,
            client=chosen_client(cluster),
            progress=log_tenths if json_logs else None,
            **settings,
        )
    new = (
        f"{number_of(corpus.n_documents - n_before, 'document')} appended by this run, now " if append else ""
    )
    echo(
        f"{corpus.path}: {new}{number_of(corpus.n_documents, 'document')} ({corpus.n_empty:,} empty), "
        f"{number_of(corpus.n_terms, 'term')}, {number_of(corpus.n_tokens, 'token')}, "
        f"{number_of(corpus.n_partitions, 'partition')}"
    )


def _stop_words(name: str | None) -> str | list[str] | None:
    """The name of a list, or the words of a file."""
    if name is None or name == "english":
        return name
    from dslda.exceptions import InputError
    from dslda.inputs.streams import InputFile, read_text

    try:
        return read_text(InputFile(name, 0)).split()
    except InputError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise InputError(
            f"must be english, the only list with a name, or a file with a word a line, got {name!r:.60}: no file is there",
            parameter="stop_words",
        ) from None
