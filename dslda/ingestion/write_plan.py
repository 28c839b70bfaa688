"""From a planned corpus to a written one."""

from __future__ import annotations

from collections.abc import Sequence

from dslda.cluster.runner import DaskRunner, Runner
from dslda.corpus.appender import CorpusAppender
from dslda.corpus.block import DocumentBlock
from dslda.corpus.partition_writer import PartitionWriter, WrittenPartition
from dslda.corpus.partitioning import PartitionSlice, assemble
from dslda.corpus.writer import CorpusWriter
from dslda.ingestion.corpus_plan import PlannedCorpus
from dslda.storage.location import is_in_memory
from dslda.storage.lock import Lock

__all__ = ["write_plan"]


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


def _write_partition(
    writer: PartitionWriter, partition: int, pieces: Sequence[PartitionSlice], blocks: Sequence[DocumentBlock]
) -> WrittenPartition:
    return writer.write_partition(partition, assemble(pieces, blocks))
