"""From raw documents to a corpus store."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dslda.cluster.client import ClientLater, check_client
from dslda.cluster.opening import cluster, worker_per_core
from dslda.cluster.runner import DaskRunner, Progress, Runner, SerialRunner
from dslda.corpus.appender import CorpusAppender
from dslda.corpus.partitioning import choose_partition_tokens
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.text import Analyzer, TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusWriter, check_corpus_output
from dslda.exceptions import DataWarning, InputError, warn
from dslda.ingestion.append_rules import NamedFields, grown_settings, with_fields_of
from dslda.ingestion.arguments import given_vocabulary, matrix_rows, name_fields
from dslda.ingestion.collections import check_fields, count_collection, is_dask_collection
from dslda.ingestion.corpus_plan import plan_corpus
from dslda.ingestion.counting import count_chunk
from dslda.ingestion.leftovers import clear_leftovers, has_unfinished
from dslda.ingestion.repeated import already_there
from dslda.ingestion.write_plan import write_plan
from dslda.inputs.fields import Fields
from dslda.inputs.files import (
    InputFiles,
    check_first_records,
    cut_file,
    group_sources,
    list_files,
    needs_cutting,
    target_bytes,
    whole_files,
)
from dslda.inputs.formats import Piece
from dslda.inputs.in_memory import BagRecords, columns_of_table, records_in_memory
from dslda.storage.location import Location, is_in_memory
from dslda.storage.lock import only_writer
from dslda.wording import suggesting_keywords

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
"""What the command line and scikit-learn call the keywords."""

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
        Name of a format, as ``dslda ingest --help`` lists them; "auto" goes by the files' endings.
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
        Add the documents to the corpus at `out`, behind those that are there, which are not touched. Vocabulary,
        text settings, columns and levels are those of the corpus, and so are the names of fields that are not
        given. Other settings, other columns or new levels are refused: they would change what is there.
        Killed at any moment, it leaves the corpus as it was or complete, and may be run again: where the corpus has
        identifiers and all the documents are there already, with the same words and columns, nothing is appended, and
        a warning says so. Documents whose identifiers alone are there are appended, with a warning. Who has opened
        the corpus reads on what he has opened.
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
        raise InputError("out must be the corpus to append to, got None")
    check_client(client)
    target = f"memory://dslda/{uuid.uuid4().hex}.corpus" if out is None else out
    choose_partition_tokens(0, partition_tokens)  # refused now, not after reading everything
    location = Location.of(target, storage_options)
    if append or not has_unfinished(location):  # else it is looked at when nobody can be writing it
        check_corpus_output(target, storage_options=storage_options, overwrite=overwrite, append=append)
    is_matrix = hasattr(inputs, "tocsr")
    records = None if is_matrix else records_in_memory(inputs)
    listed = not is_matrix and records is None and not is_dask_collection(inputs)
    files = list_files(inputs, format, storage_options=storage_options) if listed else None
    by_position = is_matrix or (files is not None and files.piece.by_position)
    if by_position and stop_words is not None:
        raise InputError(
            "must be None where documents hold positions in a vocabulary", parameter="stop_words"
        )
    text_settings = {
        "lowercase": lowercase,
        "token_pattern": token_pattern,
        "ngrams": ngrams,
        "stop_words": tuple(stop_words)
        if isinstance(stop_words, Iterable) and not isinstance(stop_words, str)
        else stop_words,
        "min_df": min_df,
        "max_df": max_df,
        "max_features": max_features,
    }
    named = NamedFields(text, words, counts, id, response, covariates, weight, categorical)

    with only_writer(location) as lock:
        if lock.alone:
            clear_leftovers(location)
        # one may be back in its place
        check_corpus_output(target, storage_options=storage_options, overwrite=overwrite, append=append)
        before = open_corpus(target, storage_options=storage_options) if append else None
        given = given_vocabulary(vocabulary, by_position, storage_options, before)
        if before is not None and not is_matrix and (files is None or files.piece.own_fields is None):
            named = named.completed(before)
        if is_matrix:
            fields, rows = matrix_rows(inputs, named, given)
        else:
            fields = name_fields(files, named)
        kind: Literal["text", "counts"] = "counts" if by_position or fields.words is not None else "text"
        if before is not None:
            fields = with_fields_of(before, fields, files)
            settings = grown_settings(before, kind, text_settings)
        else:
            settings = _settings(kind, text_settings, filters=given is None)
        # positions are no words
        analyzer = Analyzer(replace(settings, stop_words=None) if by_position else settings)

        if files is not None:
            check_first_records(files, fields)  # before workers start
        elif (columns := columns_of_table(inputs)) is not None:
            fields.check_against(list(map(str, columns)), "the DataFrame")
        elif records is None and not is_matrix:
            check_fields(inputs, fields)
        here = is_matrix or records is not None
        with _runner(files, client, progress, here=here) as runner:
            if is_matrix:
                counted = runner.map(count_chunk, [[rows]], [fields], [analyzer], stage="read")
            elif records is not None:
                source = BagRecords(records, type(inputs).__name__)
                counted = runner.map(count_chunk, [[source]], [fields], [analyzer], stage="read")
            elif files is None:
                counted = count_collection(runner, inputs, fields, settings)
            else:
                chunks = _chunks(runner, files, fields, 0 if given is None else len(given.vocabulary))
                n = len(chunks)
                counted = runner.map(count_chunk, chunks, [fields] * n, [analyzer] * n, stage="read")
            plan = plan_corpus(
                runner,
                counted,
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
            sizes: dict[str, Any] = {
                "n_partitions": len(plan.partitions),
                "document_capacity": max(partition.n_documents for partition in plan.partitions),
                "entry_capacity": max(partition.n_entries for partition in plan.partitions),
                "id_capacity": None if fields.id is None else max(p.n_id_bytes for p in plan.partitions),
                "provenance": _provenance(inputs, files, fields),
                "n_all_tokens": plan.n_all_tokens,
                "n_too_frequent_tokens": plan.n_too_frequent_tokens,
                "storage_options": storage_options,
            }
            if before is not None:
                write_plan(runner, CorpusAppender(before, vocabulary=plan.vocabulary, **sizes), plan, lock)
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
                    **sizes,
                )
                write_plan(runner, writer, plan, lock)
        corpus = open_corpus(target, storage_options=storage_options)
    if there is not None and there.n_known:
        warn(DataWarning(there.message(corpus.path)))
    _report_empty(corpus, plan.n_missing_text, before)
    return corpus


def _settings(kind: Literal["text", "counts"], given: Mapping[str, Any], *, filters: bool) -> TextSettings:
    """The settings given, or their defaults."""
    # a given vocabulary is not filtered, and the corpus should not say it was
    unfiltered = {} if filters else {"min_df": 1, "max_df": 1.0, "max_features": None}
    named = {name: value for name, value in given.items() if value is not None}
    return TextSettings(kind=kind, **(named | unfiltered))


@contextlib.contextmanager
def _runner(
    files: InputFiles | None, client: Client | ClientLater | None, progress: Progress | None, *, here: bool
) -> Iterator[Runner]:
    """Choose where to work, and give up what is running when anything fails."""
    with contextlib.ExitStack() as stack:
        runner: Runner
        if files is None:
            # what is in this process would take longer to be moved than to be counted
            client = None if here else client or _current_client()
        elif any(is_in_memory(file.url) for file in files.files):
            client = None
        elif client is None and files.text_bytes > IN_PROCESS_BYTES:
            client = ClientLater(worker_per_core, here=True)
        runner = (
            SerialRunner(progress)
            if client is None
            else DaskRunner(stack.enter_context(cluster(client)), progress)
        )
        try:
            yield runner
        except BaseException:
            runner.cancel()
            raise


def _current_client() -> Client | None:
    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        client: Client = default_client()
    except ValueError:
        return None
    return client


def _chunks(runner: Runner, files: InputFiles, fields: Fields, n_terms: int) -> list[tuple[Piece, ...]]:
    """Cut large files and put small ones together."""
    whole = whole_files(files, n_terms=n_terms)
    target = target_bytes(files)
    if isinstance(runner, SerialRunner):
        return group_sources(whole, target)  # one process gains nothing by entering a file in the middle
    large = [source for source, cost in whole if needs_cutting(source, cost, target)]
    n = len(large)
    cut = iter(runner.results(runner.map(cut_file, large, [fields] * n, [target] * n), stage="scan"))
    pieces: list[tuple[Piece, int]] = []
    for source, cost in whole:
        if needs_cutting(source, cost, target):
            pieces.extend(next(cut))
        else:
            pieces.append((source, cost))
    return group_sources(pieces, target)


def _provenance(inputs: Any, files: InputFiles | None, fields: Fields) -> dict[str, Any]:
    used = {name: use for name, use in fields.named().items() if not name.startswith("\0")}
    if files is None:
        return {"inputs": [f"{type(inputs).__module__}.{type(inputs).__qualname__}"], "fields": used}
    names = [file.name for file in files.files]
    return {"inputs": names[:20], "n_files": len(names), "format": files.format, "fields": used}


def _report_empty(corpus: Corpus, n_missing_text: int, before: Corpus | None) -> None:
    n_documents, n_empty = corpus.n_documents, corpus.n_empty
    if before is not None:
        n_documents, n_empty = n_documents - before.n_documents, n_empty - before.n_empty
    logger.info("%s %r", "wrote" if before is None else f"appended {n_documents:,} documents to", corpus)
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
