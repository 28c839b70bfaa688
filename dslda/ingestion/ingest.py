"""From raw documents to a corpus store."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dslda.cluster.client import ClientLater, check_client
from dslda.cluster.opening import cluster
from dslda.cluster.runner import DaskRunner, Progress, Runner, SerialRunner
from dslda.corpus.appender import CorpusAppender
from dslda.corpus.partitioning import choose_partition_tokens
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.text import Analyzer, TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusWriter, check_corpus_output
from dslda.exceptions import DataWarning, InputError, warn
from dslda.ingestion.arguments import NamedFields, given_vocabulary, grown_settings, with_fields_of
from dslda.ingestion.corpus_plan import plan_corpus, write_plan
from dslda.ingestion.document_sources import document_source
from dslda.ingestion.leftovers import clear_leftovers, has_unfinished
from dslda.ingestion.repeated import already_there
from dslda.inputs.fields import Fields
from dslda.storage.location import Location
from dslda.storage.lock import only_writer
from dslda.wording import number_of, suggesting_keywords

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import ArrayLike

__all__ = ["ingest"]

logger = logging.getLogger("dslda.ingest")

OTHER_NAMES = {
    "ngram_range": "ngrams",
    "output": "out",
    "ids": "id",
    "scheduler": "client",
    "workers": "client",
}
"""Names of keywords on the command line and in scikit-learn."""

Names: TypeAlias = str | Sequence[str]

IN_PROCESS_BYTES = 64 << 20
"""Up to this much text is ingested in this process. Starting workers takes some 4 s, tokenising 64 MB about
13 s."""


@suggesting_keywords(OTHER_NAMES)
def ingest(
    inputs: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    text: str | None = None,
    words: str | None = None,
    counts: str | None = None,
    id: str | Sequence[str] | None = None,
    response: Names | Mapping[str, ArrayLike] = (),
    covariates: Names | Mapping[str, ArrayLike] = (),
    weight: str | ArrayLike | None = None,
    categorical: Names = (),
    format: str = "auto",
    min_df: int | float | None = None,
    max_df: int | float | None = None,
    max_features: int | None = None,
    stop_words: str | Sequence[str] | None = None,
    token_pattern: str | None = None,
    ngrams: tuple[int, int] | None = None,
    lowercase: bool | None = None,
    vocabulary: str | os.PathLike[str] | Sequence[str] | Vocabulary | Corpus | None = None,
    partition_tokens: int | None = None,
    overwrite: bool = False,
    append: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | ClientLater | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Count documents and write them as a corpus, in the order of the input.

    The vocabulary is chosen over the whole corpus, and partitions are cut by tokens, so the corpus has the
    same content (and :attr:`~dslda.corpus.store.Corpus.content_hash`) in however many pieces and on whatever
    cluster it is read.

    Memory: a task holds the counts of one chunk (1 to 16 MB of text; an eighth of a compressed file), or one
    partition. The counts of all chunks, about as large as the text, stay on the workers between the two
    passes, where Dask moves them to disk when memory fills. The terms of the whole corpus, before the
    filters, must fit into one worker.

    Parameters
    ----------
    inputs : path, glob or URL, or several; DataFrame; list of mappings; scipy sparse matrix; dask Bag or DataFrame
        Files are JSON lines (.jsonl, .ndjson, .json), CSV with a header, Parquet, LDA-C (.ldac, .dat), each
        but Parquet also as .gz or .zst; or text files (.txt), each one document whose identifier is its path
        in the folder given. Records of a bag are texts, pairs (text, response), or mappings. Workers must be
        able to open the same paths. A DataFrame (pandas, polars) or table (pyarrow) holds texts, not counts; it is
        counted in this process, as mappings and matrices are.
    out : path or URL, optional
        Where to write. By default the corpus is kept in the memory of this process.
    text : str, optional
        Field of the texts.
    words, counts : str, optional
        Fields of the lists of words and of their counts, for documents counted before.
    id : str, optional
        Field of identifiers; by default, and where one is missing, a document is named by its position, from
        "0". A sequence of str for a matrix.
    response : str or sequence of str, or mapping
        Fields of numbers; missing ones (null, no such field in a JSON record, an empty cell, NaN) are
        allowed. For a matrix a mapping from names to arrays.
    covariates : str or sequence of str, or mapping
        Fields of numbers, missing as responses may be: a model that uses a covariate leaves the response of
        documents without it out, and has no prediction for them.
    weight : str, optional
        Field of document weights, 0 or more. An array for a matrix.
    categorical : str or sequence of str
        Those of the fields of `response` and `covariates` that hold names, of classes or groups, and not
        numbers. Strings are taken as they are, but for white space around them; numbers and booleans as JSON
        writes them ("3", "true"). The corpus holds codes 0, 1, ... in the order of the names, and the names as
        :attr:`~dslda.corpus.store.Corpus.levels`: at most 10,000, since beyond that it is rather a text or a
        number.
    format : str
        Name of a format, as ``dslda ingest --help`` lists them; "auto" goes by the files' names.
    min_df, max_df, max_features, stop_words, token_pattern, ngrams, lowercase
        See :class:`~dslda.corpus.text.TextSettings`, whose defaults are taken where they are None.
    vocabulary : path of a file with a term a line, sequence of str, Vocabulary or Corpus, optional
        Count these terms, in this order, and filter none. A matrix and LDA-C files need it: it names their
        columns.
    partition_tokens : int, optional
        Tokens of a partition, about. By default a sixteenth of the corpus, from 50,000 to 2 million, so that
        there is work for the cores of one machine, and a partition is some seconds of it at most.
    overwrite : bool
        Replace a corpus at `out`.
    append : bool
        Add the documents to the corpus at `out`, after those it has, which stay untouched. Vocabulary,
        text settings, columns and levels are those of the corpus, and so are the names of fields that you leave
        out. Other settings, other columns and new levels are refused: they would change the stored documents.
        If it is killed, the corpus is as before or complete, and you can run it again: if the corpus has
        identifiers and holds all the documents already, with the same words and columns, nothing is appended, and
        a warning says so. Documents of which only the identifiers are there are appended, with a warning.
        Readers that have the corpus open keep seeing the old version.
    storage_options : mapping, optional
        For fsspec, for every URL among `inputs` and `out`.
    client : distributed.Client, optional
        Where to work. By default in this process up to 64 MB of text, beyond that on one worker process per
        core, started and closed here. Bags and DataFrames use the current client where there is one, and else
        this process.
    progress : callable, optional
        Called with a stage ("scan", "read", "write"), tasks done and tasks in all.

    Returns
    -------
    Corpus

    Raises
    ------
    InputError
        The input cannot be used, naming file, line or row, and field; nothing is left behind.
    OutputExistsError
        `out` is there already.

    Warns
    -----
    DataWarning
        Documents without any term of the vocabulary; they are kept. Documents that repeat the identifier of another.
        Documents that are appended whose identifiers are there already.

    Notes
    -----
    One run at a time writes a corpus: another one gets an :class:`~dslda.exceptions.OutputError`. What a killed run has
    left is removed by the next, which in an object store first looks for 45 seconds whether that run is at work.

    Examples
    --------
    From a file of reviews, one JSON object a line::

        corpus = dslda.ingest("reviews.jsonl.gz", "reviews.corpus", text="text", response="rating")

    With classes to predict, and one numeric and one categorical covariate::

        corpus = dslda.ingest(
            "bills.parquet", "bills.corpus", text="text", response="policy_area",
            covariates=["n_cosponsors", "party"], categorical=["policy_area", "party"],
        )
        corpus.levels["party"]  # ("Democrat", "Independent", "Republican")

    With the reviews of another month::

        corpus = dslda.ingest("june.jsonl.gz", "reviews.corpus", append=True)
    """
    if append and out is None:
        raise InputError("must be the corpus to append to, got None", parameter="out")
    check_client(client)
    target = f"memory://dslda/{uuid.uuid4().hex}.corpus" if out is None else out
    choose_partition_tokens(0, partition_tokens)  # refused now, not after reading everything
    location = Location.of(target, storage_options)
    check_output = partial(
        check_corpus_output, target, storage_options=storage_options, overwrite=overwrite, append=append
    )
    if append or not has_unfinished(
        location
    ):  # an unfinished corpus is looked at when nobody can be writing it
        check_output()
    source = document_source(inputs, format, storage_options)
    if source.by_position and stop_words is not None:
        raise InputError(
            "must be None where documents hold positions in a vocabulary", parameter="stop_words"
        )
    several = isinstance(stop_words, Iterable) and not isinstance(stop_words, str)
    text_settings = {
        "lowercase": lowercase,
        "token_pattern": token_pattern,
        "ngrams": ngrams,
        "stop_words": tuple(stop_words or ()) if several else stop_words,
        "min_df": min_df,
        "max_df": max_df,
        "max_features": max_features,
    }
    named = NamedFields(text, words, counts, id, response, covariates, weight, categorical)

    with only_writer(location) as lock:
        if lock.alone:
            clear_leftovers(location)
        check_output()  # a corpus may be back in its place
        before = open_corpus(target, storage_options=storage_options) if append else None
        given = given_vocabulary(vocabulary, source.by_position, storage_options, before)
        n_terms = 0 if given is None else len(given.vocabulary)
        fields = source.fields(named, n_terms, before)
        kind: Literal["text", "counts"] = (
            "counts" if source.by_position or fields.words is not None else "text"
        )
        if before is None:
            settings = _settings(kind, text_settings, filters=given is None)
        else:
            fields = with_fields_of(before, fields, source.unnamed)
            settings = grown_settings(before, kind, text_settings)
        source.check(fields)  # before workers start

        # positions are no words
        analyzer = Analyzer(replace(settings, stop_words=None) if source.by_position else settings)
        client = source.client(client, in_process_bytes=IN_PROCESS_BYTES)
        with _runner(client, progress) as runner:
            plan = plan_corpus(
                runner,
                source.count(runner, fields, analyzer, n_terms),
                fields,
                settings=settings,
                given=given,
                partition_tokens=partition_tokens,
                before=before,
            )
            there = (
                None if before is None or fields.id is None else already_there(runner, plan.blocks, before)
            )
            if before is not None and there is not None and there.nothing_is_new:
                warn(DataWarning(there.message(before.path)))
                return before
            writing = {
                **plan.sizes(identified=fields.id is not None),
                "provenance": {**source.provenance(), "fields": _uses(fields)},
                "storage_options": storage_options,
            }
            writer: CorpusWriter | CorpusAppender
            if before is not None:
                writer = CorpusAppender(before, vocabulary=plan.vocabulary, **writing)
            else:
                writer = CorpusWriter(
                    target,
                    vocabulary=plan.vocabulary,
                    text_settings=settings,
                    responses=fields.responses,
                    covariates=fields.covariates,
                    levels=plan.levels,
                    has_weight=fields.weight is not None,
                    too_frequent=plan.too_frequent,
                    overwrite=overwrite,
                    **writing,
                )
            write_plan(runner, writer, plan, lock)
        corpus = open_corpus(target, storage_options=storage_options)
    if there is not None and there.n_known:
        warn(DataWarning(there.message(corpus.path)))
    _report_empty(corpus, plan.n_missing_text, before)
    return corpus


def _uses(fields: Fields) -> dict[str, str]:
    """The use of each field; arrays beside a matrix have names of our own."""
    return {name: use for name, use in fields.named().items() if not name.startswith("\0")}


def _settings(kind: Literal["text", "counts"], given: Mapping[str, Any], *, filters: bool) -> TextSettings:
    """The settings given, or their defaults."""
    # a given vocabulary is not filtered, and the corpus should not say it was
    unfiltered = {} if filters else {"min_df": 1, "max_df": 1.0, "max_features": None}
    named = {name: value for name, value in given.items() if value is not None}
    return TextSettings(kind=kind, **(named | unfiltered))


@contextlib.contextmanager
def _runner(client: Client | ClientLater | None, progress: Progress | None) -> Iterator[Runner]:
    """Work in this process or on the workers of a client, and cancel what is running when anything fails."""
    with contextlib.ExitStack() as stack:
        runner: Runner = (
            SerialRunner(progress)
            if client is None
            else DaskRunner(stack.enter_context(cluster(client)), progress)
        )
        try:
            yield runner
        except BaseException:
            runner.cancel()
            raise


def _report_empty(corpus: Corpus, n_missing_text: int, before: Corpus | None) -> None:
    n_documents, n_empty = corpus.n_documents, corpus.n_empty
    if before is not None:
        n_documents, n_empty = n_documents - before.n_documents, n_empty - before.n_empty
    verb = "wrote" if before is None else f"appended {number_of(n_documents, 'document')} to"
    logger.info("%s %s: %s", verb, corpus.path, corpus.in_words)
    for what, summaries, effect in (
        ("response", corpus.response_summaries, "they help to learn the topics"),
        ("covariate", corpus.covariate_summaries, "a model with this covariate leaves their response out"),
    ):
        for name, summary in summaries.items():
            if summary.missing:
                logger.info(
                    "%s of %s documents have no %s %r: %s",
                    f"{summary.missing:,}",
                    f"{corpus.n_documents:,}",
                    what,
                    name,
                    effect,
                )
    if n_empty:
        missing = f" ({n_missing_text:,} have no text at all)" if n_missing_text else ""
        message = (
            f"{n_empty:,} of {n_documents:,} documents have no term of the vocabulary{missing}"
            "; they are kept as rows, for which words tell nothing"
        )
        warn(DataWarning(message))
