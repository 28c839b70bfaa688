"""The two passes over the documents, the same for every form of input.

Pass one reads and tokenises each chunk once; its counts stay where they were made. Their terms are merged to
the vocabulary of the whole corpus. Pass two turns the counts of each chunk into a block over that vocabulary,
and plans the partitions. The documents and settings alone decide the result: chunks, workers and timing play
no part.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

from dslda.cluster.runner import DaskRunner, Runner, merge_in_tree
from dslda.corpus.appender import CorpusAppender
from dslda.corpus.block import DocumentBlock
from dslda.corpus.levels import merge_levels
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
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusWriter
from dslda.exceptions import DataWarning, InputError, warn
from dslda.ingestion.counting import (
    ChunkSummary,
    CountedChunk,
    id_hashes,
    merge_id_hashes,
    merge_responses,
)
from dslda.ingestion.vocabulary_selection import (
    SelectedTerms,
    merge_term_tables,
    restrict,
    select_given,
    select_terms,
    term_table,
)
from dslda.inputs.fields import Fields
from dslda.storage.location import is_in_memory
from dslda.storage.lock import Lock
from dslda.wording import number_of

__all__ = ["GivenVocabulary", "PlannedCorpus", "plan_corpus", "write_plan"]

logger = logging.getLogger("dslda.ingest")


@dataclass(frozen=True, slots=True)
class GivenVocabulary:
    """A vocabulary to count over, whether documents hold positions in it (as digits) in place of its terms, and the
    terms that the corpus it is taken from left out as too frequent."""

    vocabulary: Vocabulary
    by_position: bool = False
    too_frequent: tuple[str, ...] = ()

    @property
    def keys(self) -> Sequence[str]:
        """The terms as documents write them."""
        return list(map(str, range(len(self.vocabulary)))) if self.by_position else self.vocabulary.terms


@dataclass(frozen=True, slots=True)
class PlannedCorpus:
    """Blocks of counted documents, and how to cut them into partitions.

    Attributes
    ----------
    vocabulary : Vocabulary
    blocks : list of handles of DocumentBlock
        One a chunk, in order.
    partitions : list of Partition
    n_documents, n_tokens, n_missing_text : int
    levels : mapping of str to tuple of str
        The names of each categorical column, by code.
    n_all_tokens : int or None
        Tokens of the documents, those too that the vocabulary does not have; None where documents hold positions in
        it, and what was left out when they were counted is not known.
    too_frequent : tuple of str
        Terms that were left out as too frequent, sorted.
    n_too_frequent_tokens : int or None
        Tokens of the documents that are these; None where `n_all_tokens` is.
    """

    vocabulary: Vocabulary
    blocks: list[Any]
    partitions: list[Partition]
    n_documents: int
    n_tokens: int
    n_missing_text: int
    levels: dict[str, tuple[str, ...]]
    n_all_tokens: int | None
    too_frequent: tuple[str, ...]
    n_too_frequent_tokens: int | None

    def sizes(self, *, identified: bool) -> dict[str, Any]:
        """Sizes that the writer of a corpus asks for; `identified` documents have a field of identifiers."""
        return {
            "n_partitions": len(self.partitions),
            "document_capacity": max(partition.n_documents for partition in self.partitions),
            "entry_capacity": max(partition.n_entries for partition in self.partitions),
            "id_capacity": max(partition.n_id_bytes for partition in self.partitions) if identified else None,
            "n_all_tokens": self.n_all_tokens,
            "n_too_frequent_tokens": self.n_too_frequent_tokens,
        }


def plan_corpus(
    runner: Runner,
    counted: list[Any],
    fields: Fields,
    *,
    settings: TextSettings,
    given: GivenVocabulary | None = None,
    partition_tokens: int | None = None,
    before: Corpus | None = None,
) -> PlannedCorpus:
    """From counted chunks to a planned corpus.

    Parameters
    ----------
    runner : Runner
    counted : list of handles of CountedChunk
        Emptied here, so that counts can be freed once the blocks are made.
    fields : Fields
    settings : TextSettings
    given : GivenVocabulary, optional
        Otherwise the filters of `settings` choose the terms.
    partition_tokens : int, optional
    before : Corpus, optional
        Which the documents are appended to: its levels are theirs, and positions count on from its last.

    Raises
    ------
    InputError
        What a task found in the input; no documents; a response that is always missing or always the same; a
        categorical column of too many levels, or of others than `before` has; a vocabulary without terms.
    """
    summaries: list[ChunkSummary] = runner.results(runner.map(CountedChunk.summary, counted), stage="read")
    n_documents = sum(summary.n_documents for summary in summaries)
    if n_documents == 0:
        raise InputError("no documents: the input is empty")
    names: dict[str, pa.LargeStringArray] = {}
    if fields.categorical:
        merged = merge_in_tree(runner, runner.map(_chunk_levels, counted), merge_levels)
        # once more: a single chunk was not merged with another, so is not sorted
        names = merge_levels(runner.results([merged])[0])
    if before is not None:
        names = _known_levels(names, before.levels)
    levels = {name: tuple(found.to_pylist()) for name, found in names.items()}
    if before is None:  # a few more documents may well be alike
        _check_responses(merge_responses(fields.responses, summaries), levels, n_documents)
    if fields.id is not None:
        _report_repeated_ids(runner, counted, fields.id)

    selected = _select(runner, counted, settings, given, n_documents)
    vocabulary = selected.vocabulary
    logger.info(
        "%s documents, %s terms of %s, %s tokens of these"
        if given is None
        # which need not occur in them
        else "%s documents, counted over the %s terms of the vocabulary, where they have %s; %s tokens of these",
        f"{n_documents:,}",
        f"{len(vocabulary):,}",
        f"{selected.n_terms_before:,}",
        f"{selected.n_tokens:,}",
    )

    keys = _share_keys(runner, vocabulary.terms if given is None else given.keys)
    n_before, tokens_before = (0, 0) if before is None else (before.n_documents, before.n_tokens)
    first = list(accumulate((summary.n_documents for summary in summaries), initial=n_before))[:-1]
    shared_names = runner.share(names) if names else {}
    blocks = runner.map(restrict, counted, [keys] * len(counted), first, [shared_names] * len(counted))
    counted.clear()
    works: list[int] = runner.results(runner.map(work, blocks))
    total = sum(works)
    if total != selected.n_tokens + n_documents:
        raise InputError(
            "the input changed while it was read", remedy="ingest again when nothing writes to it any more"
        )
    work_before = list(accumulate(works, initial=0))[:-1]
    wanted = choose_partition_tokens(tokens_before + selected.n_tokens, partition_tokens)
    n = number_of_partitions(selected.n_tokens, wanted)
    pieces = runner.results(runner.map(cut, blocks, work_before, [total] * len(blocks), [n] * len(blocks)))
    by_position = given is not None and given.by_position
    return PlannedCorpus(
        vocabulary=vocabulary,
        blocks=blocks,
        partitions=join_pieces(pieces),
        n_documents=n_documents,
        n_tokens=selected.n_tokens,
        n_missing_text=sum(summary.n_missing_text for summary in summaries),
        levels=levels,
        n_all_tokens=None if by_position else selected.n_all_tokens,
        too_frequent=selected.too_frequent,
        n_too_frequent_tokens=None if by_position else selected.n_too_frequent_tokens,
    )


def write_plan(
    runner: Runner, writer: CorpusWriter | CorpusAppender, plan: PlannedCorpus, lock: Lock
) -> None:
    """Write every partition where its blocks are, then the manifest; or leave nothing.

    Parameters
    ----------
    runner : Runner
    writer : CorpusWriter or CorpusAppender
    plan : PlannedCorpus
        Its blocks are given up, so that they can be freed once they are written.
    lock : Lock
        On the corpus.

    Raises
    ------
    OutputError
        It cannot be written, or the lock was lost.
    """
    pieces = [partition.pieces for partition in plan.partitions]
    blocks = [[plan.blocks[b] for b in partition.blocks] for partition in plan.partitions]
    n = len(pieces)
    try:
        writer.prepare()
        if is_in_memory(writer.path) and isinstance(runner, DaskRunner):
            # the memory of this process, which workers do not share
            made = runner.map(assemble, pieces, blocks)
            written = [writer.write_partition(i, runner.results([made[i]])[0]) for i in range(n)]
        else:
            tasks = runner.map(_write_partition, [writer] * n, range(n), pieces, blocks, stage="write")
            plan.blocks.clear()
            blocks.clear()
            written = runner.results(tasks, stage="write")
        writer.finish(written, lock)
    except BaseException:
        # workers first, so that none writes into what is being removed
        runner.cancel()
        writer.abort(lock)
        raise


def _select(
    runner: Runner,
    counted: Sequence[Any],
    settings: TextSettings,
    given: GivenVocabulary | None,
    n_documents: int,
) -> SelectedTerms:
    table = merge_in_tree(runner, runner.map(term_table, counted), merge_term_tables)
    # where the table is: it can be many times as large as what is chosen from it
    if given is None:
        chosen = runner.submit(select_terms, table, settings, n_documents)
    else:
        keys = _share_keys(runner, given.keys)
        vocabulary = runner.share(given.vocabulary)
        chosen = runner.submit(select_given, table, keys, vocabulary, given.too_frequent)
    selected: SelectedTerms = runner.results([chosen])[0]
    return selected


def _share_keys(runner: Runner, keys: Sequence[str]) -> Any:
    return runner.share(pa.array(keys, type=pa.large_string()))


def _chunk_levels(chunk: CountedChunk) -> Mapping[str, pa.LargeStringArray]:
    return chunk.levels


def _known_levels(
    found: Mapping[str, pa.LargeStringArray], levels: Mapping[str, tuple[str, ...]]
) -> dict[str, pa.LargeStringArray]:
    """The levels of the corpus; new ones are refused, since they would change the codes of the others."""
    for name, names in found.items():
        known = frozenset(levels[name])
        new = [level for level in names.to_pylist() if level not in known]
        if new:
            shown = ", ".join(f"{level!r:.60}" for level in new[:5])
            raise InputError(
                f"field {name!r} must hold one of the {len(known):,} levels that the corpus has, got "
                f"{len(new):,} new: {shown}{', ...' if len(new) > 5 else ''}",
                remedy=("ingest all documents together", "leave these out"),
            )
    return {name: pa.array(levels[name], type=pa.large_string()) for name in found}


def _check_responses(
    responses: dict[str, ResponseSummary], levels: dict[str, tuple[str, ...]], n_documents: int
) -> None:
    for name, summary in responses.items():
        if summary.n == 0:
            raise InputError(
                f"response {name!r} is missing in all {n_documents:,} documents; it must be known in at least two"
            )
        found = levels.get(name)
        constant = summary.minimum == summary.maximum if found is None else len(found) == 1
        if constant:
            value = f"{summary.minimum:g}" if found is None else repr(found[0])
            raise InputError(
                f"response {name!r} is {value} in all {summary.n:,} documents that have it; "
                "it must vary, or there is nothing to learn",
                remedy=("leave it out", "name another"),
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
