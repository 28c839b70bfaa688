"""Writing of a corpus, or of more documents into one, by many workers at once, with a manifest only when it is complete."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dslda.corpus.levels import are_levels
from dslda.corpus.manifest import (
    APPENDED,
    ENCODING_TYPE,
    ENCODING_VERSION,
    AppendedGroup,
    Manifest,
    ResponseSummary,
)
from dslda.corpus.partition_writer import PartitionWriter, WrittenPartition
from dslda.corpus.store import Corpus
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import InputError, OutputError
from dslda.storage.location import Location
from dslda.storage.lock import UNLOCKED, Lock
from dslda.storage.output import (
    check_output,
    check_writable,
    move_into_place,
    replace_attributes,
    report_leftovers,
    writing,
)

__all__ = ["CorpusAppender", "CorpusWriter", "check_corpus_output"]


def check_corpus_output(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    append: bool = False,
) -> None:
    """Refuse an output path that cannot be used, before any work is done.

    Parameters
    ----------
    path : path or URL
    storage_options : mapping, optional
    overwrite, append : bool
        Allow an existing corpus to be replaced; require one to append to.

    Raises
    ------
    OutputExistsError
        Something is there and `overwrite` is False, or it is not a corpus: only a corpus is ever replaced.
    InputError
        Nothing can be written there, or there is nothing to append to.
    FormatError
        It is not a corpus that can be appended to, or it is damaged.
    """
    location = Location.of(path, storage_options)
    if append and overwrite:
        raise InputError("exclude each other", parameter=("append", "overwrite"), remedy="give one of them")
    if append:
        Manifest.from_json(location.read_attributes(), location.url)
    else:
        check_output(location, encoding_type=ENCODING_TYPE, overwrite=overwrite)
    check_writable(location)


class CorpusWriter(PartitionWriter):
    """Writes a corpus with a known number of partitions.

    The driver makes one, calls :meth:`prepare`, and sends it to workers that call :meth:`write_partition`. Then it calls
    :meth:`finish` with their reports, or :meth:`abort` if something failed. A local corpus is built in a hidden folder
    beside its place, so that the name stands for a complete corpus or for none. A remote file system cannot rename; there the
    corpus is built in its place unless it replaces another, and its manifest is written last.

    Parameters
    ----------
    path : str or path
        Local path or fsspec URL.
    vocabulary : Vocabulary
        It stays on the driver: a pickled writer has none.
    text_settings : TextSettings
    n_partitions, document_capacity, entry_capacity, id_capacity, provenance
        See :class:`~dslda.corpus.partition_writer.PartitionWriter`.
    responses, covariates : sequence of str
        Any distinct names; every block must have them.
    levels : mapping of str to sequence of str, optional
        The names of each categorical column, by code: distinct, in the order of their code points.
    orders : mapping of str to sequence of str, optional
        The levels of ordered responses, from the lowest to the highest.
    has_weight : bool
    storage_options : mapping, optional
        For the fsspec file system.
    n_all_tokens, too_frequent, n_too_frequent_tokens
        See :class:`~dslda.corpus.manifest.Manifest`.
    overwrite : bool
        Replace a corpus at `path`, once the new one is complete. Nothing but a corpus is replaced.

    Raises
    ------
    InputError
        A parameter is out of its domain.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        vocabulary: Vocabulary,
        text_settings: TextSettings,
        n_partitions: int,
        document_capacity: int,
        entry_capacity: int,
        id_capacity: int | None = None,
        responses: Sequence[str] = (),
        covariates: Sequence[str] = (),
        levels: Mapping[str, Sequence[str]] | None = None,
        orders: Mapping[str, Sequence[str]] | None = None,
        has_weight: bool = False,
        provenance: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        n_all_tokens: int | None = None,
        too_frequent: Sequence[str] = (),
        n_too_frequent_tokens: int | None = None,
        overwrite: bool = False,
    ) -> None:
        if len(vocabulary) < 1:
            raise InputError(
                "a corpus must have at least one term, got an empty vocabulary",
                remedy=("relax {min_df}", "relax {max_df}"),
            )
        for parameter, names in (("responses", responses), ("covariates", covariates)):
            if len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
                raise InputError(
                    f"must be distinct names that are not empty, got {list(names)!r}", parameter=parameter
                )
        for name, names in (levels or {}).items():
            if name not in (*responses, *covariates) or not are_levels(names):
                raise InputError(
                    "must be distinct strings in the order of their code points, for names among responses and "
                    f"covariates, got {names!r:.60} for {name!r}",
                    parameter="levels",
                )
        self._vocabulary: Vocabulary | None = vocabulary
        self._overwrite = overwrite
        super().__init__(
            Location.of(path, storage_options),
            Manifest(
                n_terms=len(vocabulary),
                vocabulary_sha256=vocabulary.sha256,
                has_document_frequency=vocabulary.document_frequency is not None,
                has_weight=has_weight,
                has_doc_id=id_capacity is not None,
                text_settings=text_settings,
                responses=dict.fromkeys(responses, ResponseSummary()),
                covariates=dict.fromkeys(covariates, ResponseSummary()),
                levels={name: tuple(names) for name, names in (levels or {}).items()},
                orders={name: tuple(names) for name, names in (orders or {}).items()},
                partitions=(),
                provenance={},
                n_all_tokens=n_all_tokens,
                too_frequent=tuple(too_frequent),
                n_too_frequent_tokens=n_too_frequent_tokens,
            ),
            n_partitions=n_partitions,
            document_capacity=document_capacity,
            entry_capacity=entry_capacity,
            id_capacity=id_capacity,
            provenance=provenance or {},
        )

    def prepare(self) -> None:
        """Make the empty arrays and write the vocabulary.

        Raises
        ------
        OutputExistsError
            See :func:`check_corpus_output`.
        OutputError
            It cannot be written.
        """
        import zarr

        assert self._vocabulary is not None
        replaces = check_output(self._location, encoding_type=ENCODING_TYPE, overwrite=self._overwrite)
        in_place = not self._location.local and not replaces
        self._target = self._location if in_place else self._location.sibling("partial")
        if self._location.local:
            report_leftovers(self._location.url)
        with writing(self._location.url):
            # without its manifest the group says only what it will be
            group = zarr.create_group(
                self._target.store(read_only=False),
                zarr_format=3,
                attributes={"encoding-type": ENCODING_TYPE, "encoding-version": ENCODING_VERSION},
            )
            self._create_rows(group)
            data, offsets = self._vocabulary.to_bytes()
            self._create_whole(group, "vocabulary", data)
            self._create_whole(group, "vocabulary_offsets", offsets)
            if self._vocabulary.document_frequency is not None:
                self._create_whole(group, "document_frequency", self._vocabulary.document_frequency)

    def finish(self, written: Iterable[WrittenPartition], lock: Lock = UNLOCKED) -> None:
        """Write the manifest, with a report on every partition in any order, and give the corpus its name.

        Raises
        ------
        InputError
            A partition is missing or comes twice.
        OutputExistsError
            Somebody wrote the same output in the meantime.
        OutputError
            It cannot be written, or the lock was lost.
        """
        target = self._prepared()
        manifest = self._grown_manifest(written, self._signed_provenance())
        lock.check()
        replace_attributes(target, manifest.to_json(), self._location.url)
        with writing(self._location.url):
            if target != self._location:
                move_into_place(
                    target,
                    self._location,
                    encoding_type=ENCODING_TYPE,
                    overwrite=self._overwrite,
                    before_manifest=lock.check,
                )
        self._target = None

    def abort(self, lock: Lock = UNLOCKED) -> None:
        """Remove what was written, and nothing else: the corpus that it would have replaced stays.

        Where the `lock` on the place was lost, another run writes there, and nothing is removed from it.
        """
        if self._target is not None and not (self._target == self._location and lock.is_lost()):
            self._target.remove()
        self._target = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_vocabulary": None}


class CorpusAppender(PartitionWriter):
    """Adds partitions after those of a corpus; used like a :class:`CorpusWriter`.

    The arrays go into a group of their own. The manifest names the groups that belong to the corpus, and is replaced as a
    whole at the end. So a reader finds the old corpus or the new one, and an open corpus does not change.

    Parameters
    ----------
    corpus : Corpus
        Its current state.
    vocabulary : Vocabulary
        The corpus's terms, with the numbers of new documents that hold each.
    n_partitions, document_capacity, entry_capacity, id_capacity, provenance, n_all_tokens, n_too_frequent_tokens
        Those of the new partitions, as in :class:`CorpusWriter`.
    storage_options : mapping, optional
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
            corpus.manifest,
            n_partitions=n_partitions,
            document_capacity=document_capacity,
            entry_capacity=entry_capacity,
            id_capacity=id_capacity,
            provenance=provenance,
        )
        self._n_all_tokens = n_all_tokens
        self._n_too_frequent_tokens = n_too_frequent_tokens
        before, new = corpus.vocabulary.document_frequency, vocabulary.document_frequency
        self._document_frequency = None if before is None or new is None else before + new
        # random, so that a killed run that still writes never writes where this one does
        number = len(corpus.manifest.appended) + 1
        self._group = f"{APPENDED}/{number}-{uuid.uuid4().hex[:8]}"

    def prepare(self) -> None:
        """Make the empty arrays; raise an OutputError if they cannot be written."""
        import zarr

        self._check_unchanged()
        self._target = self._location.child(self._group)
        with writing(self._location.url):
            root = zarr.open_group(self._location.store(read_only=False), mode="r+", zarr_format=3)
            group = root.require_group(APPENDED).create_group(self._group.partition("/")[2])
            self._create_rows(group)
            if self._document_frequency is not None:
                self._create_whole(group, "document_frequency", self._document_frequency)

    def finish(self, written: Iterable[WrittenPartition], lock: Lock = UNLOCKED) -> None:
        """Replace the manifest with one that names the new partitions, like :meth:`CorpusWriter.finish`.

        Raises
        ------
        OutputError
            It cannot be written, or the corpus has changed since it was opened, or the lock was lost.
        """
        self._prepared()
        old = self._check_unchanged()
        history = old.provenance.get(APPENDED, [])
        parts = list(written)
        entry = {"n_documents": sum(part.info.n_documents for part in parts), **self._signed_provenance()}
        # another program may have written something else under the name
        appends = [*(history if isinstance(history, list) else [history]), entry]
        manifest = replace(
            self._grown_manifest(parts, {**old.provenance, APPENDED: appends}),
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
        # Ctrl-C can come when the manifest is in place: the new partitions are then part of the corpus
        if self._group not in [group.path for group in self._on_disk().appended]:
            self._target.remove()
        self._target = None

    def _check_unchanged(self) -> Manifest:
        """Return the manifest of the corpus; raise an OutputError if the one in the store differs."""
        assert self._manifest is not None
        if self._on_disk().to_json() != self._manifest.to_json():
            raise OutputError(
                f"{self._location.url} was changed by another run since it was opened to append to it",
                remedy="append again",
            )
        return self._manifest

    def _on_disk(self) -> Manifest:
        return Manifest.from_json(self._location.read_attributes(), self._location.url)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_document_frequency": None}


def _sum(before: int | None, new: int | None) -> int | None:
    """The sum; None if either is unknown, since the count of a part is not that of the whole."""
    return None if before is None or new is None else before + new
