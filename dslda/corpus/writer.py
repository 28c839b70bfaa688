"""Writing a corpus: many workers at once, one chunk each, and a name only for what is complete."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dslda.corpus.levels import are_levels
from dslda.corpus.manifest import ENCODING_TYPE, ENCODING_VERSION, Manifest, ResponseSummary
from dslda.corpus.partition_writer import BlockColumns, PartitionWriter, WrittenPartition
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import InputError
from dslda.storage.location import Location, check_output, move_into_place
from dslda.storage.lock import UNLOCKED, Lock
from dslda.storage.output import check_writable, replace_attributes, report_leftovers, writing

__all__ = ["CorpusWriter", "WrittenPartition", "check_corpus_output"]


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
        Whether a corpus that is there may be replaced, and whether one must be there to append to.

    Raises
    ------
    OutputExistsError
        Something is there and `overwrite` is False, or it is not a corpus: only a corpus is ever replaced.
    InputError
        Nothing can be written there, or there is nothing to append to.
    FormatError
        It is no corpus that can be appended to, or a damaged one.
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
    """Writes a corpus of a known number of partitions.

    The driver makes one, calls :meth:`prepare`, and sends it to workers that call :meth:`write_partition`. Then it calls
    :meth:`finish` with what they returned, or :meth:`abort` when something failed. A local corpus is built in a hidden folder
    beside its place, so that the name stands for a complete corpus or for none. A remote file system cannot rename; there the
    corpus is built in its place unless it replaces another, and its manifest is written last.

    Parameters
    ----------
    path : str or path
        Local path or fsspec URL.
    vocabulary : Vocabulary
        Stays on the driver: a pickled writer is without.
    text_settings : TextSettings
    n_partitions, document_capacity, entry_capacity, id_capacity : int
        See :class:`~dslda.corpus.partition_writer.PartitionWriter`.
    responses, covariates : sequence of str
        Any distinct names; every block must have them.
    levels : mapping of str to sequence of str, optional
        The names of each categorical column, by code: distinct, in the order of their code points.
    has_weight : bool
    provenance : mapping
        Origin of the documents, any JSON object. The time and the version of dslda are added.
    storage_options : mapping, optional
        For the fsspec file system.
    n_all_tokens : int, optional
        Tokens of the documents, with those that the vocabulary lacks, where known.
    too_frequent : sequence of str
        Terms that were left out as too frequent, sorted.
    n_too_frequent_tokens : int, optional
        Tokens of these terms, where known.
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
        self._vocabulary_sha256 = vocabulary.sha256
        self._has_document_frequency = vocabulary.document_frequency is not None
        self._text_settings = text_settings
        self._levels = {name: tuple(names) for name, names in (levels or {}).items()}
        self._n_all_tokens = n_all_tokens
        self._too_frequent = tuple(too_frequent)
        self._n_too_frequent_tokens = n_too_frequent_tokens
        self._overwrite = overwrite
        super().__init__(
            Location.of(path, storage_options),
            columns=BlockColumns(
                n_terms=len(vocabulary),
                responses=tuple(responses),
                covariates=tuple(covariates),
                n_levels={name: len(names) for name, names in self._levels.items()},
                has_weight=has_weight,
                has_doc_id=id_capacity is not None,
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
        vocabulary = self._vocabulary
        if vocabulary is None or self._target is not None:
            raise RuntimeError("prepare() must be called once, on the writer that was not sent to a worker")
        replaces = check_output(self._location, encoding_type=ENCODING_TYPE, overwrite=self._overwrite)
        in_place = not self._location.local and not replaces
        self._target = self._location if in_place else self._location.sibling("partial")
        if self._location.local:
            report_leftovers(self._location.url)
        with writing(self._location.url):
            self._create_arrays(self._target, vocabulary)

    def _create_arrays(self, target: Location, vocabulary: Vocabulary) -> None:
        import zarr

        # without its manifest the group says only what it will be
        root = zarr.create_group(
            target.store(read_only=False),
            zarr_format=3,
            attributes={"encoding-type": ENCODING_TYPE, "encoding-version": ENCODING_VERSION},
        )
        self._create_rows(root)
        data, offsets = vocabulary.to_bytes()
        whole: dict[str, NDArray[Any]] = {"vocabulary": data, "vocabulary_offsets": offsets}
        if vocabulary.document_frequency is not None:
            whole["document_frequency"] = vocabulary.document_frequency
        for name, values in whole.items():
            array = self._create(root, name, (max(len(values), 1),))
            array[: len(values)] = values

    def finish(self, written: Iterable[WrittenPartition], lock: Lock = UNLOCKED) -> None:
        """Write the manifest and give the corpus its name.

        Parameters
        ----------
        written : iterable of WrittenPartition
            Reports on every partition, in any order.
        lock : Lock
            On the corpus.

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
        parts = self._in_order(written)
        manifest = Manifest(
            n_terms=self._columns.n_terms,
            vocabulary_sha256=self._vocabulary_sha256,
            has_document_frequency=self._has_document_frequency,
            has_weight=self._columns.has_weight,
            has_doc_id=self._columns.has_doc_id,
            text_settings=self._text_settings,
            responses={
                name: ResponseSummary.merge_all(part.responses[i] for part in parts)
                for i, name in enumerate(self._columns.responses)
            },
            covariates={
                name: ResponseSummary.merge_all(part.covariates[i] for part in parts)
                for i, name in enumerate(self._columns.covariates)
            },
            levels=self._levels,
            partitions=tuple(part.info for part in parts),
            provenance=self._signed_provenance(),
            n_all_tokens=self._n_all_tokens,
            too_frequent=self._too_frequent,
            n_too_frequent_tokens=self._n_too_frequent_tokens,
        )
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
        # workers need neither vocabulary nor names of levels, and these can be large
        return self.__dict__ | {"_vocabulary": None, "_levels": {}, "_too_frequent": (), "_provenance": {}}
