"""Appending to a corpus: new arrays beside the old ones, which stay as they are, and then one new manifest."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.manifest import APPENDED, AppendedGroup, Manifest, ResponseSummary
from dslda.corpus.partition_writer import BlockColumns, PartitionWriter, WrittenPartition
from dslda.corpus.store import Corpus
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import OutputError
from dslda.storage.location import Location
from dslda.storage.lock import UNLOCKED, Lock
from dslda.storage.output import replace_attributes, writing

__all__ = ["CorpusAppender"]


class CorpusAppender(PartitionWriter):
    """Adds partitions behind those of a corpus; used as a :class:`~dslda.corpus.writer.CorpusWriter` is.

    The arrays go into a group of their own. The manifest, which alone says that they belong to the corpus, is replaced as a
    whole at the end. So a reader finds the corpus as it was or as it will be, and whoever has it open keeps it as it was.

    Parameters
    ----------
    corpus : Corpus
        As it is now.
    vocabulary : Vocabulary
        That of the corpus, with the numbers of new documents that hold each term.
    n_partitions, document_capacity, entry_capacity, id_capacity, provenance
        Of the new partitions; see :class:`~dslda.corpus.partition_writer.PartitionWriter`.
    n_all_tokens, n_too_frequent_tokens : int, optional
        Tokens of the new documents, with those that the vocabulary lacks; and tokens of terms that it left out as too
        frequent. Where known.
    storage_options : mapping, optional
        For the fsspec file system.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        vocabulary: Vocabulary,
        n_partitions: int,
        document_capacity: int,
        entry_capacity: int,
        id_capacity: int | None,
        provenance: Mapping[str, Any],
        n_all_tokens: int | None = None,
        n_too_frequent_tokens: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            Location.of(corpus.path, storage_options),
            columns=BlockColumns(
                n_terms=corpus.n_terms,
                responses=corpus.response_names,
                covariates=corpus.covariate_names,
                n_levels={name: len(names) for name, names in corpus.levels.items()},
                has_weight=corpus.has_weight,
                has_doc_id=corpus.has_doc_id,
            ),
            n_partitions=n_partitions,
            document_capacity=document_capacity,
            entry_capacity=entry_capacity,
            id_capacity=id_capacity,
            provenance=provenance,
        )
        self._corpus: Corpus | None = corpus
        self._n_all_tokens = n_all_tokens
        self._n_too_frequent_tokens = n_too_frequent_tokens
        self._document_frequency: NDArray[np.int64] | None = None
        before, new = corpus.vocabulary.document_frequency, vocabulary.document_frequency
        if before is not None and new is not None:
            self._document_frequency = before + new
        # random, so that what a killed run still writes is never where this one writes
        number = len(corpus.manifest.appended) + 1
        self._group = f"{APPENDED}/{number}-{uuid.uuid4().hex[:8]}"

    def prepare(self) -> None:
        """Make the empty arrays.

        Raises
        ------
        OutputError
            They cannot be written.
        """
        import zarr

        if self._corpus is None or self._target is not None:
            raise RuntimeError("prepare() must be called once, on the appender that was not sent to a worker")
        self._check_unchanged()
        self._target = self._location.child(self._group)
        with writing(self._location.url):
            root = zarr.open_group(self._location.store(read_only=False), mode="r+", zarr_format=3)
            group = root.require_group(APPENDED).create_group(self._group.partition("/")[2])
            self._create_rows(group)
            if self._document_frequency is not None:
                array = self._create(group, "document_frequency", self._document_frequency.shape)
                array[:] = self._document_frequency

    def finish(self, written: Iterable[WrittenPartition], lock: Lock = UNLOCKED) -> None:
        """Replace the manifest by one that names the new partitions.

        Parameters
        ----------
        written : iterable of WrittenPartition
            Reports on every new partition, in any order.
        lock : Lock
            On the corpus.

        Raises
        ------
        InputError
            A partition is missing or comes twice.
        OutputError
            It cannot be written, or the corpus has changed since it was opened, or the lock was lost.
        """
        self._prepared()
        parts = self._in_order(written)
        old = self._check_unchanged()
        manifest = replace(
            old,
            responses={
                name: ResponseSummary.merge_all([old.responses[name], *(part.responses[i] for part in parts)])
                for i, name in enumerate(self._columns.responses)
            },
            covariates={
                name: ResponseSummary.merge_all(
                    [old.covariates[name], *(part.covariates[i] for part in parts)]
                )
                for i, name in enumerate(self._columns.covariates)
            },
            partitions=(*old.partitions, *(part.info for part in parts)),
            provenance=self._grown_provenance(old, sum(part.info.n_documents for part in parts)),
            appended=(*old.appended, AppendedGroup(self._group, self._n_partitions)),
            n_all_tokens=_sum(old.n_all_tokens, self._n_all_tokens),
            n_too_frequent_tokens=_sum(old.n_too_frequent_tokens, self._n_too_frequent_tokens),
        )
        lock.check()
        replace_attributes(self._location, manifest.to_json(), self._location.url)
        self._target = None

    def abort(self, lock: Lock = UNLOCKED) -> None:
        """Remove what was written, and nothing else; its name is unique, so that no `lock` is needed."""
        if self._target is None:
            return
        # Ctrl-C can come when the manifest is in its place: then the new partitions are part of the corpus
        if self._group not in [group.path for group in self._on_disk().appended]:
            self._target.remove()
        self._target = None

    def _check_unchanged(self) -> Manifest:
        """The manifest in the store; an error where it is not the one that was opened."""
        assert self._corpus is not None
        manifest = self._on_disk()
        if manifest.to_json() != self._corpus.manifest.to_json():
            raise OutputError(
                f"{self._location.url} was changed by another run since it was opened to append to it",
                remedy="append again",
            )
        return manifest

    def _on_disk(self) -> Manifest:
        return Manifest.from_json(self._location.read_attributes(), self._location.url)

    def _grown_provenance(self, old: Manifest, n_documents: int) -> dict[str, Any]:
        before = old.provenance.get(APPENDED, [])
        entry = {"n_documents": n_documents, **self._signed_provenance()}
        # another program may have written something else under the name
        return {**old.provenance, APPENDED: [*(before if isinstance(before, list) else [before]), entry]}

    def __getstate__(self) -> dict[str, Any]:
        # workers need neither the manifest nor what is as long as the vocabulary
        return self.__dict__ | {"_corpus": None, "_document_frequency": None, "_provenance": {}}


def _sum(before: int | None, new: int | None) -> int | None:
    """The sum, None where one is not known: the count of a part is no count of the whole."""
    return None if before is None or new is None else before + new
