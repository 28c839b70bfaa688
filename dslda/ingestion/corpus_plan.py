"""The two passes over the documents, the same for every form of input.

Pass one reads and tokenises each chunk once; its counts stay where they were made. Their terms are merged to
the vocabulary of the whole corpus. Pass two turns the counts of each chunk into a block over that vocabulary,
and plans the partitions. Only the documents and settings decide the result: chunks, workers and timing play no
part.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dslda.cluster.runner import DaskRunner, Runner, merge_in_tree
from dslda.cluster.stage_progress import Progress
from dslda.corpus.block import DocumentBlock
from dslda.corpus.levels import UNKNOWN, LevelIndex, merge_levels, one_of_each_boolean
from dslda.corpus.partition_writer import PartitionWriter, WrittenPartition
from dslda.corpus.partitioning import (
    Partition,
    PartitionSlice,
    assemble,
    choose_partition_tokens,
    cut,
    join_pieces,
    number_of_partitions,
    work,
)
from dslda.corpus.store import Corpus
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import Analyzer, TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusAppender, CorpusWriter
from dslda.exceptions import DataWarning, InputError, warn
from dslda.ingestion.counting import ChunkSummary, CountedChunk, id_hashes, merge_id_hashes
from dslda.ingestion.document_sources import check_fields, count_collection
from dslda.ingestion.vocabulary_selection import (
    GivenVocabulary,
    SelectedTerms,
    merge_term_tables,
    restrict,
    select_given,
    select_terms,
    term_keys,
    term_table,
)
from dslda.inputs.fields import Fields
from dslda.storage.location import is_in_memory
from dslda.storage.lock import Lock
from dslda.wording import first_few, number_of

if TYPE_CHECKING:
    import dask.bag
    import dask.dataframe
    from distributed import Client, Future

__all__ = ["BagBlocks", "PlannedCorpus", "blocks_from_bag", "plan_corpus", "write_plan"]

logger = logging.getLogger("dslda.ingest")


@dataclass(frozen=True, slots=True)
class PlannedCorpus:
    """Blocks of counted documents, and how to cut them into partitions.

    Attributes
    ----------
    terms : SelectedTerms
    blocks : list of handles of DocumentBlock
        One per chunk, in order.
    partitions : list of Partition
    n_documents, n_missing_text : int
    levels : mapping of str to tuple of str
        The names of each categorical column, by code.
    """

    terms: SelectedTerms
    blocks: list[Any]
    partitions: list[Partition]
    n_documents: int
    n_missing_text: int
    levels: dict[str, tuple[str, ...]]

    def blocks_of_partitions(self) -> list[list[Any]]:
        """The block of each piece of each partition."""
        return [[self.blocks[b] for b in partition.blocks] for partition in self.partitions]


def plan_corpus(
    runner: Runner,
    counted: list[Any],
    fields: Fields,
    *,
    settings: TextSettings,
    preset: GivenVocabulary | None = None,
    partition_tokens: int | None = None,
    old_corpus: Corpus | None = None,
) -> PlannedCorpus:
    """Turn handles of counted chunks into a planned corpus.

    The list `counted` loses them, so that counts can be freed once the blocks are made. Without a `preset` vocabulary
    the filters of `settings` choose the terms. Documents that are appended to a corpus `old_corpus` have its levels, and
    their positions follow its last.

    Raises
    ------
    InputError
        A task finds the input wrong; there are no documents; a response is always missing or always the same; a
        categorical column has too many levels, or others than `old_corpus` has; the vocabulary has no terms.
    """
    summaries: list[ChunkSummary] = runner.results(runner.map(CountedChunk.summary, counted), stage="read")
    n_documents = sum(summary.n_documents for summary in summaries)
    if n_documents == 0:
        raise InputError("no documents: the input is empty")
    names: dict[str, pa.LargeStringArray] = {}
    if fields.categorical:
        merged = merge_in_tree(runner, runner.map(_chunk_levels, counted), merge_levels)
        # merge once more: a single chunk was merged with no other, so it is not sorted
        names = {
            name: pa.array(one_of_each_boolean(column.to_pylist()), pa.large_string())
            for name, column in merge_levels(runner.results([merged])[0]).items()
        }
    if old_corpus is not None:
        names = _known_levels(names, old_corpus.levels)
    levels = {name: tuple(column.to_pylist()) for name, column in names.items()}
    if old_corpus is None:  # a few appended documents may well be alike
        for name in fields.responses:
            summary = ResponseSummary.merge_all(chunk.responses[name] for chunk in summaries)
            # so may those that are kept out to judge a model, whose vocabulary they have
            _check_response(name, summary, levels.get(name), n_documents, may_be_constant=preset is not None)
    if fields.id is not None:
        _report_repeated_ids(runner, counted, fields.id)

    table = merge_in_tree(runner, runner.map(term_table, counted), merge_term_tables)
    # choose where the table is: it can be many times as large as the choice
    if preset is None:
        chosen = runner.submit(select_terms, table, settings, n_documents)
    else:
        vocabulary = runner.share(preset.vocabulary)
        chosen = runner.submit(select_given, table, vocabulary, preset.by_position, preset.too_frequent)
    selected: SelectedTerms = runner.results([chosen])[0]
    logger.info(
        "%s documents, %s terms of %s, %s tokens of these"
        if preset is None
        # these terms need not occur in the documents
        else "%s documents, counted over the vocabulary's %s terms (they have %s different ones), %s tokens of these",
        f"{n_documents:,}",
        f"{len(selected.vocabulary):,}",
        f"{selected.n_terms_before:,}",
        f"{selected.n_tokens:,}",
    )

    by_position = preset is not None and preset.by_position
    if preset is not None and old_corpus is None and not by_position:
        _report_impossible_terms(selected.vocabulary, settings)
    keys = runner.share(term_keys(selected.vocabulary, by_position=by_position))
    n_before, tokens_before = (0, 0) if old_corpus is None else (old_corpus.n_documents, old_corpus.n_tokens)
    first_documents = list(accumulate((chunk.n_documents for chunk in summaries), initial=n_before))[:-1]
    n = len(counted)
    shared_names = runner.share(names) if names else {}
    blocks = runner.map(restrict, counted, [keys] * n, first_documents, [shared_names] * n)
    counted.clear()
    works: list[int] = runner.results(runner.map(work, blocks))
    total = sum(works)
    if total != selected.n_tokens + n_documents:
        raise InputError(
            "the input changed while it was read", remedy="ingest again when nothing writes to it any more"
        )
    work_before = list(accumulate(works, initial=0))[:-1]
    size = choose_partition_tokens(tokens_before + selected.n_tokens, partition_tokens)
    n_partitions = number_of_partitions(selected.n_tokens, size)
    pieces = runner.results(runner.map(cut, blocks, work_before, [total] * n, [n_partitions] * n))
    return PlannedCorpus(
        terms=selected,
        blocks=blocks,
        partitions=join_pieces(pieces),
        n_documents=n_documents,
        n_missing_text=sum(chunk.n_missing_text for chunk in summaries),
        levels=levels,
    )


def write_plan(
    runner: Runner, writer: CorpusWriter | CorpusAppender, plan: PlannedCorpus, lock: Lock
) -> None:
    """Write every partition where its blocks are, then the manifest; or leave nothing.

    The plan loses its blocks, so that they can be freed once they are written.
    """
    pieces = [partition.pieces for partition in plan.partitions]
    blocks = plan.blocks_of_partitions()
    n = len(pieces)
    try:
        writer.prepare()
        if is_in_memory(writer.path) and isinstance(runner, DaskRunner):
            # workers do not share the memory of this process
            assembled = runner.map(assemble, pieces, blocks)
            written = [writer.write_partition(i, runner.results([assembled[i]])[0]) for i in range(n)]
        else:
            tasks = runner.map(_write_partition, [writer] * n, range(n), pieces, blocks, stage="write")
            plan.blocks.clear()
            blocks.clear()
            written = runner.results(tasks, stage="write")
        writer.finish(written, lock)
    except BaseException:
        # stop workers first, so that none writes into what is being removed
        runner.cancel()
        writer.abort(lock)
        raise


@dataclass(frozen=True, slots=True, eq=False)
class BagBlocks:
    """A planned corpus whose partitions are on the workers.

    Attributes
    ----------
    plan : PlannedCorpus
        Without its blocks.
    futures : tuple of Future of DocumentBlock
        One per partition, in the order of the documents. They keep the blocks alive.
    responses, covariates : mapping of str to ResponseSummary
        Merged by partition, as in a corpus store.
    """

    plan: PlannedCorpus
    futures: tuple[Future[Any], ...]
    responses: Mapping[str, ResponseSummary]
    covariates: Mapping[str, ResponseSummary]


def blocks_from_bag(
    bag: dask.bag.Bag | dask.dataframe.DataFrame,
    client: Client,
    *,
    fields: Fields,
    settings: TextSettings,
    vocabulary: Vocabulary | None = None,
    partition_tokens: int | None = None,
    progress: Progress | None = None,
) -> BagBlocks:
    """Count the documents of a Dask bag or DataFrame into balanced partitions that stay on the workers.

    Arguments and errors are those of :func:`~dslda.ingestion.ingest.ingest`. Vocabulary, partitions and documents
    are those of the corpus that it would write, so a model trained on either has the same bits. Nothing is written.
    """
    choose_partition_tokens(0, partition_tokens)  # refused now, not after reading everything
    check_fields(bag, fields)
    runner = DaskRunner(client, progress)
    try:
        counted = count_collection(runner, bag, fields, settings)
        preset = None if vocabulary is None else GivenVocabulary(vocabulary)
        plan = plan_corpus(
            runner, counted, fields, settings=settings, preset=preset, partition_tokens=partition_tokens
        )
        pieces = [partition.pieces for partition in plan.partitions]
        futures = runner.map(assemble, pieces, plan.blocks_of_partitions())
        plan.blocks.clear()
        summaries = runner.results(runner.map(_summaries, futures), stage="write")
    except BaseException:
        runner.cancel()
        raise
    responses, covariates = (
        {name: ResponseSummary.merge_all(columns[name] for columns in parts) for name in parts[0]}
        for parts in zip(*summaries, strict=True)
    )
    return BagBlocks(plan, tuple(futures), responses, covariates)


def _summaries(block: DocumentBlock) -> list[dict[str, ResponseSummary]]:
    """The summaries of the responses, and of the covariates."""
    return [
        {name: ResponseSummary.of(values) for name, values in columns.items()}
        for columns in (block.responses, block.covariates)
    ]


def _chunk_levels(chunk: CountedChunk) -> Mapping[str, pa.LargeStringArray]:
    return chunk.levels


def _known_levels(
    names: Mapping[str, pa.LargeStringArray], levels: Mapping[str, tuple[str, ...]]
) -> dict[str, pa.LargeStringArray]:
    """The levels of the corpus; refuses new ones, which would change the codes of the others."""
    for name, column in names.items():
        old_levels = LevelIndex(levels[name])
        new = [repr(level)[:60] for level in column.to_pylist() if old_levels.code(level, name) == UNKNOWN]
        if new:
            raise InputError(
                f"field {name!r} must hold one of the {len(levels[name]):,} levels that the corpus has, got "
                f"{len(new):,} new: {first_few(new, 5)}",
                remedy=("ingest all documents together", "leave these out"),
            )
    return {name: pa.array(levels[name], type=pa.large_string()) for name in names}


def _check_response(
    name: str,
    summary: ResponseSummary,
    levels: tuple[str, ...] | None,
    n_documents: int,
    *,
    may_be_constant: bool,
) -> None:
    if summary.n == 0:
        raise InputError(
            f"response {name!r} is missing in all {n_documents:,} documents; it must be known in at least two"
        )
    constant = summary.minimum == summary.maximum if levels is None else len(levels) == 1
    if constant and not may_be_constant:
        value = f"{summary.minimum:g}" if levels is None else repr(levels[0])
        raise InputError(
            f"response {name!r} is {value} in all {summary.n:,} documents that have it; "
            "it must vary, or there is nothing to learn",
            remedy=("leave it out", "name another"),
        )


def _report_impossible_terms(vocabulary: Vocabulary, settings: TextSettings) -> None:
    frequency = vocabulary.document_frequency
    assert frequency is not None
    absent = [vocabulary.terms[t] for t in np.flatnonzero(frequency == 0).tolist()]
    if impossible := Analyzer(settings).impossible(absent):
        warn(
            DataWarning(
                f"no document can have {len(impossible):,} of the {number_of(len(vocabulary), 'term')}, since the text "
                f"settings change, split or drop such words: {first_few(list(map(repr, impossible)), 5)}",
                place="vocabulary",
                remedy="write terms as the settings make them, or change {lowercase=}, {ngrams=}, {stop_words=} or "
                "{token_pattern=}",
            )
        )


def _report_repeated_ids(runner: Runner, counted: Sequence[Any], name: str) -> None:
    merged = merge_in_tree(runner, runner.map(id_hashes, counted), merge_id_hashes)
    repeated: int = runner.results([runner.submit(_second, merged)])[0]
    if repeated:
        # arrays beside a matrix have names of our own
        field = "" if name.startswith("\0") else f" (field {name!r})"
        warn(
            DataWarning(
                f"{number_of(repeated, 'document repeats', 'documents repeat')} the identifier{field} of another: each copy "
                "counts, and copies on both sides of a hold-out make its predictions look better than they are; leave them "
                "out, or name a field that tells documents apart"
            )
        )


def _second(pair: tuple[Any, int]) -> int:
    return pair[1]


def _write_partition(
    writer: PartitionWriter, partition: int, pieces: Sequence[PartitionSlice], blocks: Sequence[DocumentBlock]
) -> WrittenPartition:
    return writer.write_partition(partition, assemble(pieces, blocks))
