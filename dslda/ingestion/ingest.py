"""From raw documents to a corpus store."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from dslda.cluster.client import ClientLater, check_client
from dslda.cluster.opening import cluster
from dslda.cluster.runner import DaskRunner, Runner, SerialRunner
from dslda.cluster.stage_progress import Progress, stage_progress
from dslda.corpus.levels import UNKNOWN, LevelIndex
from dslda.corpus.own_analyzer import AnalyzerFunction
from dslda.corpus.partitioning import choose_partition_tokens
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.text import Analyzer, chosen_settings
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusAppender, CorpusWriter, check_corpus_output
from dslda.exceptions import DataWarning, InputError, warn
from dslda.ingestion.arguments import check_appended_fields, given_vocabulary, text_settings_of
from dslda.ingestion.corpus_plan import plan_corpus, write_plan
from dslda.ingestion.document_sources import document_source, with_orders
from dslda.ingestion.earlier_runs import clear_leftovers, find_stored, has_unfinished
from dslda.inputs.reading import ReadingRules
from dslda.storage.location import Location
from dslda.storage.lock import only_writer
from dslda.wording import first_few, number_of, suggesting_keywords

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
    "sep": "separator",
    "delimiter": "separator",
    "escapechar": "escape",
}
"""Our keywords for those of the command line and scikit-learn."""

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
    encoding: str | None = None,
    separator: str | None = None,
    escape: str | None = None,
    na_values: str | Sequence[str] | None = None,
    min_df: int | float | None = None,
    max_df: int | float | None = None,
    max_features: int | None = None,
    stop_words: str | Sequence[str] | None = None,
    token_pattern: str | None = None,
    ngrams: tuple[int, int] | None = None,
    lowercase: bool | None = None,
    analyzer: str | AnalyzerFunction | None = None,
    vocabulary: str | os.PathLike[str] | Iterable[str] | Vocabulary | Corpus | None = None,
    partition_tokens: int | None = None,
    overwrite: bool = False,
    append: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | ClientLater | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Count documents and write them as a corpus, in the order of the input.

    The vocabulary is chosen over the whole corpus, and partitions are cut by tokens. So the content of the corpus (and
    its :attr:`~dslda.corpus.store.Corpus.content_hash`) depends neither on the pieces that are read nor on the cluster.

    Memory: a task holds the counts of one chunk (1 to 16 MB of text; an eighth of a compressed file), or one
    partition. The counts of all chunks, about as large as the text, stay on the workers between the two
    passes, where Dask moves them to disk when memory fills. The terms of the whole corpus, before the
    filters, must fit into one worker.

    Parameters
    ----------
    inputs : path, glob or URL, or several; DataFrame; list of mappings; scipy sparse matrix; dask Bag or DataFrame
        Files are JSON lines (.jsonl, .ndjson, .json), CSV with a header (.csv, .tsv), Parquet, LDA-C (.ldac, .dat), Matrix
        Market (.mtx), UCI bags of words (docword.*.txt), or text files (.txt), each one document whose identifier is its path
        in the folder. All but Parquet may be compressed (.gz, .zst, .bz2, .xz). Workers must be able to open the same paths.
        Records of a bag are texts, pairs (text, response), or mappings. A DataFrame (pandas, polars) or table
        (pyarrow) holds texts, not counts; this process counts it, as it does mappings and matrices.
    out : path or URL, optional
        Where to write. By default the corpus is kept in the memory of this process.
    text : str, optional
        Field of the texts.
    words, counts : str, optional
        Fields of the lists of words and of their counts, for documents that are already counted.
    id : str, optional
        Field of identifiers. By default, and where one is missing, the identifier is the document's position, from
        "0". A sequence of str for a matrix.
    response : str or sequence of str, or mapping
        Fields of numbers, which may be missing (null, no such field in a JSON record, an empty cell, NaN). For a
        matrix a mapping from names to arrays.
    covariates : str or sequence of str, or mapping
        Fields of numbers, which may be missing as responses may. A model that uses a covariate ignores the response of
        documents without it, and has no prediction for them.
    weight : str, optional
        Field of document weights, 0 or more. An array for a matrix.
    categorical : str or sequence of str
        Those of `response` and `covariates` that hold names of classes or groups, not numbers. Strings lose the white
        space around them; numbers and booleans are named as JSON writes them ("3", "true"), a whole float as the
        integer. The corpus holds codes 0, 1, ... in the order of the names, and the names as
        :attr:`~dslda.corpus.store.Corpus.levels`, at most 10,000: a field with more holds texts or numbers.
    format : str
        Name of a format, as listed by ``dslda ingest --help``; "auto" goes by the files' names.
    encoding, separator, escape, na_values : str, optional
        See :class:`~dslda.inputs.reading.ReadingRules`: for CSV; JSON lines and text files take the encoding. `na_values`
        may be several. An append to a corpus of the same format reads by its rules where you leave one out.
    min_df, max_df, max_features, stop_words, token_pattern, ngrams, lowercase
        See :class:`~dslda.corpus.text.TextSettings`, whose defaults replace None.
    analyzer : str or callable, optional
        Function of your own that takes a text as it is and returns its terms, or its name, "module:function". It replaces
        `lowercase`, `token_pattern`, `ngrams` and `stop_words`. Workers import it by its name, and whoever loads a model of
        this corpus, or appends to it, must name it again.
    vocabulary : path of a corpus or of a file with a term a line, sequence or mapping of str, Vocabulary or Corpus, optional
        Count these terms, in this order, and filter none. A mapping holds their positions, as ``vocabulary_`` of a
        CountVectorizer does. Documents that hold positions of terms need it: a matrix,
        and LDA-C, Matrix Market and UCI files.
    partition_tokens : int, optional
        Approximate number of tokens of a partition. By default a sixteenth of the corpus, from 1 to 2 million:
        work for all cores of one machine, of a few seconds at most per partition.
    overwrite : bool
        Replace a corpus at `out`.
    append : bool
        Add the documents to the corpus at `out`, after those it has, which stay untouched. Vocabulary, text settings,
        columns and levels are those of the corpus, and so are the names of fields that you leave out. Other settings,
        other columns and new levels are refused: they would change the stored documents. If the run is killed, the
        corpus is as before or complete, and you can run it again: if the corpus has identifiers and holds all the
        documents already, with the same words and columns, nothing is appended, and a warning says so. Documents
        that share only their identifiers with stored ones are appended, with a warning. Readers that have the corpus
        open keep seeing the old version.
    storage_options : mapping, optional
        For fsspec, for every URL in `inputs` and `out`.
    client : distributed.Client, optional
        Where to work. By default this process does up to 64 MB of text, or any amount inside a Dask task. More is done by
        the active Dask client of this process, if its workers can open the inputs, or else by one worker process per core,
        started and closed here. Dask bags and DataFrames use the active client if there is one, or else this process.
    progress : callable, optional
        Called with a stage ("scan", "read", "write"), tasks done and tasks in all.
        By default work of more than two seconds shows a bar on a terminal and a line in a notebook; elsewhere the log
        ``dslda.engine`` gets a line for every tenth of a stage.

    Returns
    -------
    Corpus

    Raises
    ------
    InputError
        The input cannot be used; the error names file, line or row, and field. Nothing is left behind.
    OutputExistsError
        `out` exists already.

    Warns
    -----
    DataWarning
        Documents have no term of the vocabulary; they are kept. No document can have a term of a given vocabulary, since
        the text settings change, split or drop such a word. Documents repeat the identifier of another, or, when
        they are appended, that of a stored one.

    Notes
    -----
    One run at a time writes a corpus; another one gets an :class:`~dslda.exceptions.OutputError`. The next run removes
    what a killed one has left; in an object store it first watches for 45 seconds whether that run still works.

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
    rules = ReadingRules(encoding, separator, escape, na_values)  # type: ignore[arg-type]  # which checks them
    target = f"memory://dslda/{uuid.uuid4().hex}.corpus" if out is None else out
    choose_partition_tokens(0, partition_tokens)  # refused now, not after reading everything
    location = Location.of(target, storage_options)
    check_output = partial(
        check_corpus_output, target, storage_options=storage_options, overwrite=overwrite, append=append
    )
    if append or not has_unfinished(location):  # an unfinished corpus is checked below, under the lock
        check_output()
    source = document_source(inputs, format, storage_options)
    if source.by_position and stop_words is not None:
        raise InputError(
            "must be None where documents hold positions in a vocabulary", parameter="stop_words"
        )
    if isinstance(stop_words, Iterable) and not isinstance(stop_words, str):
        stop_words = tuple(stop_words)
    text_settings = chosen_settings(
        {
            "lowercase": lowercase,
            "token_pattern": token_pattern,
            "ngrams": ngrams,
            "stop_words": stop_words,
            "min_df": min_df,
            "max_df": max_df,
            "max_features": max_features,
            "analyzer": analyzer,
        }
    )
    named: dict[str, Any] = {
        "text": text,
        "words": words,
        "counts": counts,
        "id": id,
        "response": response,
        "covariates": covariates,
        "weight": weight,
        "categorical": categorical,
    }

    with only_writer(location) as lock:
        if lock.alone:
            clear_leftovers(location)
        check_output()  # a corpus may be back at its path
        old_corpus = open_corpus(target, storage_options=storage_options) if append else None
        source.read_by(rules, old_corpus)
        preset = given_vocabulary(vocabulary, source.by_position, storage_options, old_corpus)
        n_terms = 0 if preset is None else len(preset.vocabulary)
        fields = source.fields(named, n_terms, old_corpus)
        fields, orders = with_orders(fields, source.categories(fields.responses))
        if old_corpus is not None:
            fields = check_appended_fields(old_corpus, fields, source.unnamed)
        settings = text_settings_of(
            "counts" if source.by_position or fields.words is not None else "text",
            text_settings,
            filtered=preset is None,
            old_corpus=old_corpus,
        )
        source.check(fields)  # before workers start

        # positions are not words
        analyzer = Analyzer(replace(settings, stop_words=None) if source.by_position else settings)
        client = source.client(client, in_process_bytes=IN_PROCESS_BYTES)
        with _runner(client, progress) as runner:
            plan = plan_corpus(
                runner,
                source.count(runner, fields, analyzer, n_terms),
                fields,
                settings=settings,
                preset=preset,
                partition_tokens=partition_tokens,
                old_corpus=old_corpus,
            )
            stored = None
            if old_corpus is not None and fields.id is not None:
                stored = find_stored(runner, plan.blocks, old_corpus)
                if stored.nothing_is_new:
                    warn(DataWarning(stored.message(old_corpus.path)))
                    return old_corpus
            # arrays beside a matrix have our own names
            uses = {name: use for name, use in fields.named().items() if not name.startswith("\0")}
            id_bytes = max(partition.n_id_bytes for partition in plan.partitions)
            writing: dict[str, Any] = {
                "vocabulary": plan.terms.vocabulary,
                "n_partitions": len(plan.partitions),
                "document_capacity": max(partition.n_documents for partition in plan.partitions),
                "entry_capacity": max(partition.n_entries for partition in plan.partitions),
                "id_capacity": None if fields.id is None else id_bytes,
                "n_all_tokens": plan.terms.n_all_tokens,
                "n_too_frequent_tokens": plan.terms.n_too_frequent_tokens,
                "provenance": {**source.provenance(), "fields": uses},
                "storage_options": storage_options,
            }
            writer: CorpusWriter | CorpusAppender
            if old_corpus is not None:
                writer = CorpusAppender(old_corpus, **writing)
            else:
                writer = CorpusWriter(
                    target,
                    text_settings=settings,
                    responses=fields.responses,
                    covariates=fields.covariates,
                    levels=plan.levels,
                    orders=_complete(orders, plan.levels),
                    has_weight=fields.weight is not None,
                    too_frequent=plan.terms.too_frequent,
                    overwrite=overwrite,
                    **writing,
                )
            write_plan(runner, writer, plan, lock)
        corpus = open_corpus(target, storage_options=storage_options)
    if stored is not None and stored.n_known:
        warn(DataWarning(stored.message(corpus.path)))
    _report_empty(corpus, plan.n_missing_text, old_corpus)
    return corpus


def _complete(
    orders: Mapping[str, tuple[str, ...]], levels: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The orders that hold all levels of their columns; a warning for others, as of files with different categories."""
    kept = dict(orders)
    for name, order in orders.items():
        index = LevelIndex(order)
        if new := [level for level in levels.get(name, ()) if index.code(level, name) == UNKNOWN]:
            del kept[name]
            warn(
                DataWarning(
                    f"field {name!r} has levels that are not among the ordered categories of the first file "
                    f"({first_few(list(map(repr, new)), 5)}): the order is not kept",
                    remedy="name all levels in training, with {levels=}",
                )
            )
    return kept


@contextlib.contextmanager
def _runner(client: Client | ClientLater | None, progress: Progress | None) -> Iterator[Runner]:
    """A runner in this process or on the workers of a client; its tasks are cancelled when anything fails."""
    with stage_progress(progress) as shown, contextlib.ExitStack() as stack:
        if client is None:
            yield SerialRunner(shown)
            return
        runner = DaskRunner(stack.enter_context(cluster(client)), shown)
        try:
            yield runner
        except BaseException:
            runner.cancel()
            raise


def _report_empty(corpus: Corpus, n_missing_text: int, old_corpus: Corpus | None) -> None:
    n_documents, n_empty = corpus.n_documents, corpus.n_empty
    if old_corpus is not None:
        n_documents, n_empty = n_documents - old_corpus.n_documents, n_empty - old_corpus.n_empty
    verb = "wrote" if old_corpus is None else f"appended {number_of(n_documents, 'document')} to"
    logger.info("%s %s: %s", verb, corpus.path, corpus.in_words)
    for kind, summaries, effect in (
        ("response", corpus.response_summaries, "they help to learn the topics"),
        ("covariate", corpus.covariate_summaries, "a model with this covariate leaves their response out"),
    ):
        for name, summary in summaries.items():
            if summary.missing:
                logger.info(
                    "%s of %s documents have no %s %r: %s",
                    f"{summary.missing:,}",
                    f"{corpus.n_documents:,}",
                    kind,
                    name,
                    effect,
                )
    if n_empty:
        missing = f" ({n_missing_text:,} have no text at all)" if n_missing_text else ""
        warn(
            DataWarning(
                f"{n_empty:,} of {n_documents:,} documents {'has' if n_empty == 1 else 'have'} no term of the "
                f"vocabulary{missing}; they are kept as rows without words"
            )
        )
