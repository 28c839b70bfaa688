"""Cutting a corpus into partitions of equal work, at borders that only the documents decide.

A document's work is its tokens plus one: the one keeps many empty or tiny documents from gathering in one
partition. Document ``d`` with work ``c`` before it belongs to partition ``floor(c * n / total)``: a rule that
any piece of the corpus can apply by itself, given the work before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dslda.corpus.block import DocumentBlock
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

MIN_PARTITION_TOKENS = 50_000
MAX_PARTITION_TOKENS = 2_000_000
PARTITIONS_WANTED = 16


@dataclass(frozen=True, slots=True)
class PartitionSlice:
    """Documents ``start`` to ``stop`` of a block, which belong to one partition.

    Attributes
    ----------
    partition : int
        By the rule above; numbers without documents are closed up later.
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
    """The pieces of a partition, with the block each is of, in order."""

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
    """Tokens of a partition: as wanted, or a sixteenth of the corpus, from 50,000 to 2 million.

    Sixteen give the cores of one machine something to share; 2 million tokens are seconds of E-step and some
    10 MB.

    Raises
    ------
    InputError
        `wanted` is not at least 1.
    """
    if wanted is None:
        return min(max(n_tokens // PARTITIONS_WANTED, MIN_PARTITION_TOKENS), MAX_PARTITION_TOKENS)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise InputError(f"must be a whole number >= 1 or None, got {wanted!r}", parameter="partition_tokens")
    return wanted


def number_of_partitions(n_tokens: int, partition_tokens: int) -> int:
    """The number of partitions whose size comes nearest, at least 1."""
    return max((2 * n_tokens + partition_tokens) // (2 * partition_tokens), 1)


def work(block: DocumentBlock) -> int:
    """Work of all documents of a block."""
    return block.n_tokens + block.n_documents


def cut(block: DocumentBlock, before: int, total: int, n_partitions: int) -> tuple[PartitionSlice, ...]:
    """Cut a block where partitions change.

    Parameters
    ----------
    block : DocumentBlock
    before, total : int
        Work of all blocks before this one, and of all blocks.
    n_partitions : int
    """
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
    pieces = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        ids = block.doc_id[start:stop] if block.doc_id is not None else ()
        pieces.append(
            PartitionSlice(
                partition=int(partition[start]),
                start=start,
                stop=stop,
                n_entries=int(block.indptr[stop] - block.indptr[start]),
                n_id_bytes=sum(len(i.encode()) for i in ids),
            )
        )
    return tuple(pieces)


def join_pieces(pieces_of_blocks: Iterable[Sequence[PartitionSlice]]) -> list[Partition]:
    """Put the pieces of all blocks, in order, together to partitions; those without documents fall out."""
    members: dict[int, list[tuple[int, PartitionSlice]]] = {}
    for block, pieces in enumerate(pieces_of_blocks):
        for piece in pieces:
            members.setdefault(piece.partition, []).append((block, piece))
    return [
        Partition(tuple(block for block, _ in group), tuple(piece for _, piece in group))
        for group in members.values()
    ]


def assemble(pieces: Sequence[PartitionSlice], blocks: Sequence[DocumentBlock]) -> DocumentBlock:
    """Make a partition of its pieces; `blocks` holds the block of each piece.

    Returns
    -------
    DocumentBlock
        Arrays of its own, so that the blocks can be freed.
    """
    parts = [(piece, block) for piece, block in zip(pieces, blocks, strict=True)]
    entries = [slice(int(b.indptr[p.start]), int(b.indptr[p.stop])) for p, b in parts]
    lengths = np.concatenate([np.diff(b.indptr[p.start : p.stop + 1]) for p, b in parts])
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    first = blocks[0]
    doc_id = None
    if first.doc_id is not None:
        doc_id = tuple(i for p, b in parts for i in (b.doc_id or ())[p.start : p.stop])
    return DocumentBlock(
        indptr=indptr,
        terms=np.concatenate([b.terms[e] for (_, b), e in zip(parts, entries, strict=True)]),
        counts=np.concatenate([b.counts[e] for (_, b), e in zip(parts, entries, strict=True)]),
        responses={
            name: np.concatenate([b.responses[name][p.start : p.stop] for p, b in parts])
            for name in first.responses
        },
        covariates={
            name: np.concatenate([b.covariates[name][p.start : p.stop] for p, b in parts])
            for name in first.covariates
        },
        weight=None
        if first.weight is None
        else np.concatenate([b.weight[p.start : p.stop] for p, b in parts if b.weight is not None]),
        doc_id=doc_id,
    )
