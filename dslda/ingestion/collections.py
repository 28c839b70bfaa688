"""Documents in Dask collections: counted by the collection's own partitions, whatever their sizes.

The counts stay on the workers. Their tasks start at the graph of the collection, so Dask computes again what
a lost worker held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dslda.cluster.runner import DaskRunner, Progress, Runner, guarded
from dslda.corpus.block import DocumentBlock
from dslda.corpus.partitioning import Partition, assemble, choose_partition_tokens
from dslda.corpus.summary import ResponseSummary, new_share, oov_share
from dslda.corpus.text import Analyzer, TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import InputError
from dslda.ingestion.corpus_plan import GivenVocabulary, plan_corpus
from dslda.ingestion.counting import CountedChunk, count_chunk
from dslda.inputs.fields import Fields
from dslda.inputs.in_memory import BagRecords, FrameRows

if TYPE_CHECKING:
    import dask.bag
    import dask.dataframe
    import pandas as pd
    from distributed import Client, Future

__all__ = [
    "BagBlocks",
    "blocks_from_bag",
    "check_fields",
    "count_collection",
    "is_dask_collection",
]

Collection: TypeAlias = "dask.bag.Bag | dask.dataframe.DataFrame"


@dataclass(frozen=True, slots=True, eq=False)
class BagBlocks:
    """The documents of a bag, counted, in balanced partitions on the workers.

    Attributes
    ----------
    vocabulary : Vocabulary
    text_settings : TextSettings
    futures : tuple of Future of DocumentBlock
        One a partition, in the order of the documents. They keep the blocks alive.
    partitions : tuple of Partition
        Sizes of each: `n_documents`, `n_entries`.
    responses, covariates : mapping of str to ResponseSummary
        Merged by partition, as in a corpus store.
    levels : mapping of str to tuple of str
        The names of each categorical column, by code, as in a corpus store.
    n_documents, n_tokens : int
    oov_share, new_share : float or None
        Shares of unknown tokens, as in a corpus store.
    too_frequent : tuple of str
        Terms that were left out as too frequent, sorted.
    """

    vocabulary: Vocabulary
    text_settings: TextSettings
    futures: tuple[Future[Any], ...]
    partitions: tuple[Partition, ...]
    responses: Mapping[str, ResponseSummary]
    covariates: Mapping[str, ResponseSummary]
    levels: Mapping[str, tuple[str, ...]]
    n_documents: int
    n_tokens: int
    oov_share: float | None
    new_share: float | None
    too_frequent: tuple[str, ...]


def blocks_from_bag(
    bag: Collection,
    client: Client,
    *,
    fields: Fields,
    settings: TextSettings,
    vocabulary: Vocabulary | None = None,
    partition_tokens: int | None = None,
    progress: Progress | None = None,
) -> BagBlocks:
    """Count the documents of a Dask bag or DataFrame into balanced partitions that stay on the workers.

    Vocabulary, partitions and documents are those of the corpus that :func:`~dslda.ingestion.ingest.ingest`
    would write, so a model trained on either has the same bits. Nothing is written.

    Parameters
    ----------
    bag : dask Bag or DataFrame
        Records are texts, pairs (text, response), or mappings.
    client : distributed.Client
    fields : Fields
        For texts and pairs only the name of the response is needed.
    settings : TextSettings
    vocabulary : Vocabulary, optional
        Terms to count, as they are; by default the filters of `settings` choose.
    partition_tokens : int, optional
        See :func:`~dslda.ingestion.ingest.ingest`.
    progress : callable, optional
        Called with stage, tasks done, tasks in all.

    Raises
    ------
    InputError
        As :func:`~dslda.ingestion.ingest.ingest`.
    """
    choose_partition_tokens(0, partition_tokens)  # refused now, not after reading everything
    check_fields(bag, fields)
    runner = DaskRunner(client, progress)
    try:
        counted = count_collection(runner, bag, fields, settings)
        given = None if vocabulary is None else GivenVocabulary(vocabulary)
        plan = plan_corpus(
            runner, counted, fields, settings=settings, given=given, partition_tokens=partition_tokens
        )
        futures = runner.map(
            assemble,
            [partition.pieces for partition in plan.partitions],
            [[plan.blocks[b] for b in partition.blocks] for partition in plan.partitions],
        )
        plan.blocks.clear()
        summaries = runner.results(runner.map(_summaries, futures), stage="write")
    except BaseException:
        runner.cancel()
        raise
    return BagBlocks(
        vocabulary=plan.vocabulary,
        text_settings=settings,
        futures=tuple(futures),
        partitions=tuple(plan.partitions),
        responses={
            name: ResponseSummary.merge_all(responses[name] for responses, _ in summaries)
            for name in fields.responses
        },
        covariates={
            name: ResponseSummary.merge_all(covariates[name] for _, covariates in summaries)
            for name in fields.covariates
        },
        levels=plan.levels,
        n_documents=plan.n_documents,
        n_tokens=plan.n_tokens,
        oov_share=oov_share(plan.n_tokens, plan.n_all_tokens),
        new_share=new_share(plan.n_tokens, plan.n_all_tokens, plan.n_too_frequent_tokens),
        too_frequent=plan.too_frequent,
    )


def is_dask_collection(value: object) -> bool:
    """True for a Dask bag or DataFrame."""
    # by the names of its modules, so that Dask need not be loaded to say no
    modules = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    return "dask" in modules and hasattr(value, "to_delayed")


def check_fields(collection: Any, fields: Fields) -> None:
    """Refuse fields that a DataFrame has no column for. The records of a bag are known to its tasks alone.

    Raises
    ------
    InputError
        A column is not there, or no field of texts is named.
    """
    columns = getattr(collection, "columns", None)
    if columns is None:
        return
    fields.check_against(list(map(str, columns)), "the DataFrame")
    for use, name in (("words", fields.words), ("counts", fields.counts)):
        # of lists in columns of objects Dask makes strings, which cannot be told from what they were made of
        if name is not None and str(collection.dtypes[name]).startswith("string"):
            raise InputError(
                f"{use} {name!r} must be a column of lists, got one of strings, which Dask makes of lists",
                remedy=(
                    "call dask.config.set({'dataframe.convert-string': False}) before the DataFrame is made",
                    "make a bag of records, which keeps lists: dask.bag.from_sequence(frame.to_dict('records'))",
                ),
            )


def count_collection(runner: Runner, collection: Any, fields: Fields, settings: TextSettings) -> list[Any]:
    """Handles of the counted partitions of a bag or DataFrame, whose fields have been checked."""
    import dask

    count = _count_bag if getattr(collection, "columns", None) is None else _count_frame
    analyzer = Analyzer(settings)
    task = dask.delayed(guarded, pure=False)
    return runner.compute(
        [task(count, part, fields, analyzer, i) for i, part in enumerate(collection.to_delayed())]
    )


def _count_bag(items: Iterable[Any], fields: Fields, analyzer: Analyzer, index: int) -> CountedChunk:
    return count_chunk([BagRecords(items, f"bag partition {index}")], fields, analyzer)


def _count_frame(frame: pd.DataFrame, fields: Fields, analyzer: Analyzer, index: int) -> CountedChunk:
    return count_chunk([FrameRows(frame, f"DataFrame partition {index}")], fields, analyzer)


def _summaries(block: DocumentBlock) -> tuple[dict[str, ResponseSummary], dict[str, ResponseSummary]]:
    """Of the responses, and of the covariates."""
    responses = {name: ResponseSummary.of(values) for name, values in block.responses.items()}
    return responses, {name: ResponseSummary.of(values) for name, values in block.covariates.items()}
