"""Traces of earlier runs: corpora that a killed run left unfinished, and documents that are appended again."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.cluster.runner import DaskRunner, Runner, SerialRunner, merge_in_tree
from dslda.corpus.block import DocumentBlock
from dslda.corpus.levels import plain_name
from dslda.corpus.manifest import APPENDED, Manifest, is_unfinished
from dslda.corpus.partition_reader import PartitionReader
from dslda.corpus.store import Corpus
from dslda.exceptions import FormatError, InputError
from dslda.ingestion.counting import hashes_of
from dslda.storage.location import METADATA, Location, is_in_memory

__all__ = ["StoredDocuments", "clear_leftovers", "find_stored", "has_unfinished"]

GROUP = re.compile(r"\d+-[0-9a-f]{8}")
"""Names of the groups that appending makes."""

N_NAMED = 3

Hashes = NDArray[np.uint64]

logger = logging.getLogger("dslda.output")


def clear_leftovers(location: Location) -> None:
    """Put back a corpus that a killed run was about to replace, and remove what is unfinished. The caller holds the lock."""
    for old in location.hidden("old") if location.local else ():  # object stores have no renames
        # between its two renames, a run that replaces a corpus has nothing at its location
        if not location.holds() and _manifest(old) is not None:
            with contextlib.suppress(OSError):
                os.rmdir(location.url)  # an empty folder
            os.rename(old.url, location.url)
            logger.warning(
                "%s is back: a run that was killed while it replaced it had left it aside", location.url
            )
    unfinished = location.hidden("partial", "old", "probe")
    if has_unfinished(location):
        unfinished.append(location)
    manifest = _manifest(location)
    if manifest is not None:
        complete = {group.path for group in manifest.appended}
        folder = location.child(APPENDED)
        # other names are not ours
        groups = [f"{APPENDED}/{entry}" for entry in folder.entries() if GROUP.fullmatch(entry)]
        unfinished += [location.child(group) for group in groups if group not in complete]
        for place in (location, folder):
            unfinished += [
                place.child(entry)
                for entry in place.entries()
                # metadata that a killed run was writing, through us or zarr
                if entry.startswith((f".{METADATA}.", "zarr.")) and entry.endswith(".partial")
            ]
    for leftover in unfinished:
        logger.info("removing %s, left by a run that was killed", leftover.url)
        leftover.remove()


def has_unfinished(location: Location) -> bool:
    """True where an object store holds a corpus that a killed run never completed."""
    try:
        return not location.local and is_unfinished(location.read_attributes())
    except (InputError, FormatError):
        return False


def _manifest(location: Location) -> Manifest | None:
    try:
        return Manifest.from_json(location.read_attributes(), location.url)
    except (InputError, FormatError):
        return None


@dataclass(frozen=True, slots=True)
class StoredDocuments:
    """New documents whose identifiers a corpus has already.

    Attributes
    ----------
    n_documents : int
        New documents in all.
    n_known : int
        New documents whose identifier is in the corpus.
    n_same : int
        New documents that the corpus holds with the same counts, responses, covariates and weight.
    examples : tuple of str
        Identifiers of the first known documents.
    """

    n_documents: int
    n_known: int
    n_same: int
    examples: tuple[str, ...]

    @property
    def nothing_is_new(self) -> bool:
        """True where the corpus holds all documents unchanged."""
        return self.n_documents == self.n_same

    def message(self, path: str) -> str:
        """A message about them, if there are any."""
        examples = f"the first: {', '.join(f'{name!r:.60}' for name in self.examples)}"
        if self.nothing_is_new:
            subject = (
                "the one document is" if self.n_documents == 1 else f"all {self.n_documents:,} documents are"
            )
            return (
                f"{subject} in {path} already, with the same identifiers, words and columns ({examples}): nothing was "
                "appended"
            )
        have = "has an identifier" if self.n_known == 1 else "have identifiers"
        same = f", {self.n_same:,} of them with the same words and columns" if self.n_same else ""
        return (
            f"{self.n_known:,} of {self.n_documents:,} documents that were appended {have} that {path} had already "
            f"({examples}){same}: the corpus has both now; where they are the same documents, ingest all of them anew "
            "without the second ones"
        )


def find_stored(runner: Runner, blocks: Sequence[Any], corpus: Corpus) -> StoredDocuments:
    """Compare new documents with those of a corpus by their identifiers.

    One worker holds the hashes of the new documents, whose `blocks` are over the vocabulary of the corpus. A task reads
    the identifiers of one partition of the corpus, and the rest of the partition if one is known.
    """
    new = merge_in_tree(runner, runner.map(_new_hashes, blocks), _merge)
    readers = [
        corpus.reader(p, covariates=corpus.covariate_names, weight=True, doc_id=True)
        for p in range(corpus.n_partitions)
    ]
    # workers do not share the memory of this process
    in_process = is_in_memory(corpus.path) and isinstance(runner, DaskRunner)
    reading: Runner = SerialRunner() if in_process else runner
    if in_process:
        (new,) = runner.results([new])
    hashes = merge_in_tree(reading, reading.map(_known_of, readers, [new] * len(readers)), _merge_pairs)
    stored = runner.share(hashes) if in_process else hashes
    parts: list[StoredDocuments] = runner.results(runner.map(_compare, blocks, [stored] * len(blocks)))
    return StoredDocuments(
        sum(part.n_documents for part in parts),
        sum(part.n_known for part in parts),
        sum(part.n_same for part in parts),
        tuple(name for part in parts for name in part.examples)[:N_NAMED],
    )


def _id_hashes(ids: Iterable[str]) -> Hashes:
    return hashes_of(plain_name(name).encode() for name in ids)


def _new_hashes(block: DocumentBlock) -> Hashes:
    return np.unique(_id_hashes(block.doc_id or ()))


def _merge(*parts: Hashes) -> Hashes:
    return np.unique(np.concatenate(parts))


def _merge_pairs(*parts: tuple[Hashes, Hashes]) -> tuple[Hashes, Hashes]:
    ids, documents = zip(*parts, strict=True)
    return _merge(*ids), _merge(*documents)


def _known_of(reader: PartitionReader, new: Hashes) -> tuple[Hashes, Hashes]:
    """Sorted hashes of identifiers, and of whole documents, for the stored documents of a partition whose identifiers
    are among the new ones."""
    ids = _id_hashes(reader.identifiers())
    rows = np.flatnonzero(np.isin(ids, new))
    if not len(rows):
        return ids[:0], ids[:0]
    return np.unique(ids[rows]), np.unique(_document_hashes(reader(), rows))


def _compare(block: DocumentBlock, stored: tuple[Hashes, Hashes]) -> StoredDocuments:
    stored_ids, stored_documents = stored
    ids = block.doc_id or ()
    rows = np.flatnonzero(np.isin(_id_hashes(ids), stored_ids))
    is_same = np.isin(_document_hashes(block, rows), stored_documents)
    return StoredDocuments(
        len(ids), len(rows), int(is_same.sum()), tuple(ids[d] for d in rows[:N_NAMED].tolist())
    )


def _document_hashes(block: DocumentBlock, chosen: NDArray[np.intp]) -> Hashes:
    """Hashes of whole documents, with their columns in the order of the names."""
    columns = [*sorted(block.responses.items()), *sorted(block.covariates.items())]
    # one NaN for all: its bits may differ
    values = [np.where(np.isnan(column), np.nan, column) for _, column in columns]
    values += [] if block.weight is None else [block.weight]
    rows = np.column_stack([np.zeros((block.n_documents, 0)), *values]).astype("<f8")
    ids = block.doc_id or ()

    def content(d: int) -> bytes:
        entries = slice(block.indptr[d], block.indptr[d + 1])
        name = plain_name(ids[d]).encode()
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
