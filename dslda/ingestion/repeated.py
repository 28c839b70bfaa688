"""Find the appended documents that a corpus already holds, as when a run is repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.cluster.runner import DaskRunner, Runner, SerialRunner, merge_in_tree
from dslda.corpus.block import DocumentBlock
from dslda.corpus.partition_reader import PartitionReader
from dslda.corpus.store import Corpus
from dslda.ingestion.counting import hashes_of
from dslda.storage.location import is_in_memory

__all__ = ["AlreadyThere", "already_there"]

N_NAMED = 3

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """New documents whose identifiers a corpus has already.

    Attributes
    ----------
    n_documents : int
        New documents in all.
    n_known : int
        Those whose identifier is in the corpus.
    n_same : int
        Those that are there with the same counts, responses, covariates and weight.
    first : tuple of str
        Identifiers of the first of the known ones.
    """

    n_documents: int
    n_known: int
    n_same: int
    first: tuple[str, ...]

    @property
    def nothing_is_new(self) -> bool:
        """True where the corpus holds all documents unchanged."""
        return self.n_documents == self.n_same

    def message(self, path: str) -> str:
        """A message about them, where there are any."""
        named = f"the first: {', '.join(f'{name!r:.60}' for name in self.first)}"
        if self.nothing_is_new:
            which = (
                "the one document is" if self.n_documents == 1 else f"all {self.n_documents:,} documents are"
            )
            return (
                f"{which} in {path} already, with the same identifiers, words and columns ({named}): nothing was "
                "appended"
            )
        have = "has an identifier" if self.n_known == 1 else "have identifiers"
        same = f", {self.n_same:,} of them with the same words and columns" if self.n_same else ""
        return (
            f"{self.n_known:,} of {self.n_documents:,} documents that were appended {have} that {path} had already "
            f"({named}){same}: the corpus has both now; where they are the same documents, ingest all of them anew "
            "without the second ones"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    """Of stored documents: hashes of identifiers, and of identifiers with all that belongs to the document; sorted."""

    ids: Hashes
    documents: Hashes


def already_there(runner: Runner, blocks: Sequence[Any], corpus: Corpus) -> AlreadyThere:
    """Compare documents with those of a corpus, by their identifiers.

    Hashes of the new documents are what is held, on one worker. Of the corpus the identifiers are read, a partition at a
    time, and the rest of a partition where one is known.

    Parameters
    ----------
    runner : Runner
    blocks : sequence of handles of DocumentBlock
        The new documents, with identifiers, over the vocabulary of the corpus.
    corpus : Corpus
        With identifiers.

    Raises
    ------
    FormatError
        A partition of the corpus is damaged.
    """
    new = merge_in_tree(runner, runner.map(_new_hashes, blocks), _merge)
    readers = [
        corpus.reader(p, covariates=corpus.covariate_names, weight=True, doc_id=True)
        for p in range(corpus.n_partitions)
    ]
    if is_in_memory(corpus.path) and isinstance(runner, DaskRunner):
        # the memory of this process, which workers do not share
        here, new = SerialRunner(), runner.results([new])[0]
        known = merge_in_tree(here, here.map(_known_of, readers, [new] * len(readers)), _merge_stored)
        stored = runner.share(known)
    else:
        stored = merge_in_tree(runner, runner.map(_known_of, readers, [new] * len(readers)), _merge_stored)
    found: list[AlreadyThere] = runner.results(runner.map(_compare, blocks, [stored] * len(blocks)))
    first = [name for part in found for name in part.first][:N_NAMED]
    return AlreadyThere(
        sum(part.n_documents for part in found),
        sum(part.n_known for part in found),
        sum(part.n_same for part in found),
        tuple(first),
    )


def _id_hashes(ids: Iterable[str]) -> Hashes:
    return hashes_of(name.encode() for name in ids)


def _new_hashes(block: DocumentBlock) -> Hashes:
    return np.unique(_id_hashes(block.doc_id or ()))


def _merge(*parts: Hashes) -> Hashes:
    return np.unique(np.concatenate(parts))


def _merge_stored(*parts: _Stored) -> _Stored:
    return _Stored(_merge(*(part.ids for part in parts)), _merge(*(part.documents for part in parts)))


def _known_of(reader: PartitionReader, new: Hashes) -> _Stored:
    """The stored documents of a partition whose identifiers are among the new ones."""
    ids = _id_hashes(reader.identifiers())
    known = np.flatnonzero(np.isin(ids, new))
    if not len(known):
        return _Stored(ids[:0], ids[:0])
    return _Stored(np.unique(ids[known]), np.unique(_document_hashes(reader(), known)))


def _compare(block: DocumentBlock, stored: _Stored) -> AlreadyThere:
    ids = block.doc_id or ()
    known = np.flatnonzero(np.isin(_id_hashes(ids), stored.ids))
    same = np.isin(_document_hashes(block, known), stored.documents)
    return AlreadyThere(
        len(ids), len(known), int(same.sum()), tuple(ids[d] for d in known[:N_NAMED].tolist())
    )


def _document_hashes(block: DocumentBlock, chosen: NDArray[np.intp]) -> Hashes:
    """Hashes of documents with all that belongs to them: columns by their names, so that their order is no part of it."""
    columns = [*sorted(block.responses.items()), *sorted(block.covariates.items())]
    # one NaN for all: its bits may differ
    values = [np.where(np.isnan(column), np.nan, column) for _, column in columns]
    values += [] if block.weight is None else [block.weight]
    rows = np.column_stack([np.zeros((block.n_documents, 0)), *values]).astype("<f8")
    ids = block.doc_id or ()

    def content(d: int) -> bytes:
        entries = slice(block.indptr[d], block.indptr[d + 1])
        name = ids[d].encode()
        return b"".join(
            (
                len(name).to_bytes(8, "little"),
                name,
                rows[d].tobytes(),
                block.terms[entries].astype("<i4").tobytes(),
                block.counts[entries].astype("<i4").tobytes(),
            )
        )

    return hashes_of(map(content, chosen.tolist()))
