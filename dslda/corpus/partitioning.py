"""Cutting a corpus into partitions of equal work, at borders that only the documents decide.

A document's work is its tokens plus one, so that many empty or tiny documents do not gather in one partition. Document ``d``
with work ``c`` before it belongs to partition ``floor(c * n / total)``; any piece of the corpus can apply that by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dslda.corpus.block import DocumentBlock, borders
from dslda.exceptions import InputError

__all__ = [
    "Partition",
    "PartitionSlice",
    "assemble",
    "choose_partition_tokens",
    "cut",
    "join_pieces",
    "number_of_partitions",
    "work",
]

MIN_PARTITION_TOKENS = 1_000_000
MAX_PARTITION_TOKENS = 2_000_000
PARTITIONS_WANTED = 16


@dataclass(frozen=True, slots=True)
class PartitionSlice:
    """Documents ``start`` to ``stop`` of a block, which belong to one partition.

    Attributes
    ----------
    partition : int
        Number by the rule above; :func:`join_pieces` leaves out numbers without documents.
    start, stop : int
    n_entries, n_id_bytes : int
        (document, term) entries, and bytes of the identifiers as UTF-8.
    """

    partition: int
    start: int
    stop: int
    n_entries: int
    n_id_bytes: int


@dataclass(frozen=True, slots=True)
class Partition:
    """The pieces of a partition in order, and the number of the block of each."""

    blocks: tuple[int, ...]
    pieces: tuple[PartitionSlice, ...]

    @property
    def n_documents(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)

    @property
    def n_entries(self) -> int:
        return sum(piece.n_entries for piece in self.pieces)

    @property
    def n_id_bytes(self) -> int:
        return sum(piece.n_id_bytes for piece in self.pieces)


def choose_partition_tokens(n_tokens: int, wanted: int | None) -> int:
    """Tokens of a partition: `wanted`, or by default a sixteenth of the corpus, from 1 to 2 million.

    Sixteen partitions keep the cores of one machine busy; 2 million tokens take seconds of E-step and about 10 MB. A step
    of conditional training works on a part of each, and with smaller ones would spend more on starting than on documents.
    """
    if wanted is None:
        return min(max(n_tokens // PARTITIONS_WANTED, MIN_PARTITION_TOKENS), MAX_PARTITION_TOKENS)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise InputError(f"must be a whole number >= 1 or None, got {wanted!r}", parameter="partition_tokens")
    return wanted


def number_of_partitions(n_tokens: int, partition_tokens: int) -> int:
    """The number of partitions, at least 1, whose size comes nearest to `partition_tokens`."""
    return max((2 * n_tokens + partition_tokens) // (2 * partition_tokens), 1)


def work(block: DocumentBlock) -> int:
    """Work of all documents of a block."""
    return block.n_tokens + block.n_documents


def cut(block: DocumentBlock, before: int, total: int, n_partitions: int) -> tuple[PartitionSlice, ...]:
    """Cut a block where partitions change; `before` is the work of all blocks before this one, `total` of all blocks."""
    n = block.n_documents
    if n == 0:
        return ()
    tokens_before = np.concatenate([[0], np.cumsum(block.counts, dtype=np.int64)])[block.indptr]
    work_before = before + tokens_before[:-1] + np.arange(n)
    # integers: no rounding that could differ between machines; Python's own where int64 would overflow
    if total * n_partitions < 2**62:
        partition = work_before * n_partitions // total
    else:
        partition = np.array([int(c) * n_partitions // total for c in work_before], dtype=np.int64)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(partition)) + 1])
    stops = np.concatenate([starts[1:], [n]])
    return tuple(
        PartitionSlice(
            partition=int(partition[start]),
            start=start,
            stop=stop,
            n_entries=int(block.indptr[stop] - block.indptr[start]),
            n_id_bytes=sum(len(name.encode()) for name in (block.doc_id or ())[start:stop]),
        )
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    )


def join_pieces(pieces_of_blocks: Iterable[Sequence[PartitionSlice]]) -> list[Partition]:
    """Join the pieces of all blocks, in order, into partitions; leave out partitions without documents."""
    members: dict[int, list[tuple[int, PartitionSlice]]] = {}
    for block, pieces in enumerate(pieces_of_blocks):
        for piece in pieces:
            members.setdefault(piece.partition, []).append((block, piece))
    return [
        Partition(tuple(block for block, _ in group), tuple(piece for _, piece in group))
        for group in members.values()
    ]


def assemble(pieces: Sequence[PartitionSlice], blocks: Sequence[DocumentBlock]) -> DocumentBlock:
    """Make a partition from its pieces; `blocks` holds the block of each. The arrays are copies, so blocks can be freed."""
    parts = [block.rows(piece.start, piece.stop) for piece, block in zip(pieces, blocks, strict=True)]
    first = parts[0]
    return DocumentBlock(
        indptr=borders(np.concatenate([np.diff(part.indptr) for part in parts])),
        terms=np.concatenate([part.terms for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        responses={
            name: np.concatenate([part.responses[name] for part in parts]) for name in first.responses
        },
        covariates={
            name: np.concatenate([part.covariates[name] for part in parts]) for name in first.covariates
        },
        weight=None
        if first.weight is None
        else np.concatenate([part.weight for part in parts if part.weight is not None]),
        doc_id=None
        if first.doc_id is None
        else tuple(name for part in parts if part.doc_id is not None for name in part.doc_id),
    )
