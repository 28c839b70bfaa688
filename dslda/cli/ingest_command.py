"""``dslda ingest``: from files to a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dslda.cli.logs import logging_to_stderr
from dslda.cli.options import (
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
from dslda.wording import number_of

if TYPE_CHECKING:
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
  dslda ingest counted.jsonl --out counted.corpus --words words --counts counts --response score --max-df 1.0
  dslda ingest docs.dat --format ldac --vocabulary vocab.txt --out docs.corpus
  dslda ingest letters/ --format text --out letters.corpus
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
@click.option(
    "--response", "responses", multiple=True, metavar="COL", help="Field of a response; may be repeated."
)
@click.option("--covariates", multiple=True, metavar="COL,...", help="Fields of covariates.")
@click.option(
    "--categorical",
    multiple=True,
    metavar="COL,...",
    help="Those responses and covariates that hold names, not numbers.",
)
@click.option("--weight", metavar="COL", help="Field of document weights.")
@click.option("--min-df", type=FREQUENCY, help="Drop terms in fewer documents.  [default: 5]")
@click.option("--max-df", type=FREQUENCY, help="Drop terms in more documents.  [default: 0.25]")
@click.option(
    "--max-features", type=click.IntRange(min=1), metavar="N", help="Keep the N most frequent terms."
)
@click.option(
    "--stop-words", metavar="english|FILE", help="Drop scikit-learn's English list, or the words of a file."
)
@click.option(
    "--token-pattern", metavar="RE", help="Regular expression of a token.  [default: 2 or more letters]"
)
@click.option("--ngrams", type=NGRAMS, help="Lengths of n-grams, such as 1-2.  [default: 1-1]")
@click.option("--lowercase/--no-lowercase", default=None, help="Lower-case the texts.  [default: lowercase]")
@click.option(
    "--partition-tokens", type=click.IntRange(min=1), metavar="N", help="Tokens of a partition, about."
)
@click.option("--overwrite", is_flag=True, help="Replace a corpus at --out.")
@click.option(
    "--append",
    is_flag=True,
    help="Add to the corpus at --out, with its vocabulary, settings and columns; fields as then, if not given.",
)
@cluster_options
@json_option
def command(
    inputs: tuple[str, ...],
    *,
    out: str,
    format: str,
    text: str | None,
    words: str | None,
    counts: str | None,
    id_: str | None,
    responses: tuple[str, ...],
    covariates: tuple[str, ...],
    categorical: tuple[str, ...],
    weight: str | None,
    min_df: int | float | None,
    max_df: int | float | None,
    max_features: int | None,
    stop_words: str | None,
    token_pattern: str | None,
    ngrams: tuple[int, int] | None,
    lowercase: bool | None,
    vocabulary: str | None,
    partition_tokens: int | None,
    overwrite: bool,
    append: bool,
    cluster: ClusterOptions,
    json_logs: bool,
) -> None:
    """Count the words of documents and write them as a corpus.

    INPUT is one or more files, folders, globs or URLs: JSON lines, CSV (separated by commas, with a header),
    Parquet, LDA-C (each but Parquet also .gz or .zst), or folders of text files; text is UTF-8. Name the field
    of the texts with --text, or those of counted words with --words and --counts. Terms are filtered over the
    whole corpus; --min-df and --max-df take a number of documents (5) or a share of them (0.25).
    """
    with logging_to_stderr(json_logs=json_logs):
        from dslda.cli.json_progress import ingest_progress
        from dslda.corpus.store import check_corpus_output, open_corpus
        from dslda.ingestion.ingest import ingest

        check_corpus_output(out, overwrite=overwrite, append=append)
        n_before = open_corpus(out).n_documents if append else 0
        with ingest_progress(json_logs=json_logs) as progress:
            corpus = ingest(
                list(inputs),
                out,
                text=text,
                words=words,
                counts=counts,
                id=id_,
                response=responses,
                covariates=names_in(covariates),
                weight=weight,
                categorical=names_in(categorical),
                format=format,
                min_df=min_df,
                max_df=max_df,
                max_features=max_features,
                stop_words=_stop_words(stop_words),
                token_pattern=token_pattern,
                ngrams=ngrams,
                lowercase=lowercase,
                vocabulary=vocabulary_from(vocabulary),
                partition_tokens=partition_tokens,
                overwrite=overwrite,
                append=append,
                client=chosen_client(cluster),
                progress=progress,
            )
    new = (
        f"{number_of(corpus.n_documents - n_before, 'document')} appended by this run, now " if append else ""
    )
    click.echo(
        f"{corpus.path}: {new}{number_of(corpus.n_documents, 'document')} ({corpus.n_empty:,} empty), "
        f"{number_of(corpus.n_terms, 'term')}, {number_of(corpus.n_tokens, 'token')}, "
        f"{number_of(corpus.n_partitions, 'partition')}"
    )


def _stop_words(given: str | None) -> str | list[str] | None:
    """The name of a list, or the words of a file."""
    if given is None or given == "english":
        return given
    from dslda.exceptions import InputError
    from dslda.inputs.streams import InputFile, compression_of, read_text

    try:
        return read_text(InputFile(given, 0, compression_of(given))).split()
    except InputError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise InputError(
            "must be english, the only list that is known by name, or a file with a word a line, got "
            f"{given!r:.60}: no file is there",
            parameter="stop_words",
        ) from None
