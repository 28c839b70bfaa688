"""Writing a corpus: many workers at once, one chunk each, and a name only for what is complete."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda._version import __version__
from dslda.corpus.block import DocumentBlock
from dslda.corpus.format import (
    ARRAYS,
    ENCODING_TYPE,
    ENCODING_VERSION,
    MAX_CHUNK_BYTES,
    Manifest,
    PartitionInfo,
    ResponseSummary,
)
from dslda.corpus.json_fields import canonical_json
from dslda.corpus.levels import are_levels
from dslda.corpus.location import Location, check_output, move_into_place
from dslda.corpus.output import check_writable, report_leftovers, writing
from dslda.corpus.rows import BlockColumns
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import InputError

__all__ = ["CorpusWriter", "WrittenPartition", "check_corpus_output"]


def check_corpus_output(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None, overwrite: bool = False
) -> None:
    """Refuse an output path that cannot be used, before any work is done.

    Raises
    ------
    OutputExistsError
        Something is there and `overwrite` is False, or it is not a corpus: only a corpus is ever replaced.
    InputError
        Nothing can be written there.
    """
    location = Location.of(path, storage_options)
    check_output(location, encoding_type=ENCODING_TYPE, overwrite=overwrite)
    check_writable(location)


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """What a worker reports of a partition it has written.

    Attributes
    ----------
    partition : int
    info : PartitionInfo
    responses, covariates : tuple of ResponseSummary
        In the order of the writer's.
    """

    partition: int
    info: PartitionInfo
    responses: tuple[ResponseSummary, ...]
    covariates: tuple[ResponseSummary, ...]


class CorpusWriter:
    """Writes a corpus of a known number of partitions.

    The driver makes one, calls :meth:`prepare`, sends it to workers that call :meth:`write_partition`, and
    calls :meth:`finish` with what they returned, or :meth:`abort` when something failed. The corpus is built
    in a hidden folder beside its place, so that the name stands for a complete corpus or for none; on a
    remote file system, which cannot rename, it is built in its place unless it replaces another, and its
    manifest is written last.

    Parameters
    ----------
    path : str or path
        Local path or fsspec URL.
    vocabulary : Vocabulary
        Kept on the driver; a pickled writer is without.
    text_settings : TextSettings
    n_partitions : int
        At least 1.
    document_capacity, entry_capacity : int
        The most documents, and the most (document, term) entries, that any partition will have. Rows are
        padded to these, and padding compresses to nothing.
    id_capacity : int, optional
        The most bytes of UTF-8 that the identifiers of any partition take; None when documents have none.
    responses, covariates : sequence of str
        Any distinct names; every block must have them.
    levels : mapping of str to sequence of str, optional
        The names of each categorical column, by code: distinct, in the order of their code points.
    has_weight : bool
    provenance : mapping
        Where the documents come from: any JSON object. The time and the version of dslda are added.
    storage_options : mapping, optional
        For the fsspec file system.
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
        overwrite: bool = False,
    ) -> None:
        if n_partitions < 1:
            raise InputError(f"n_partitions must be at least 1, got {n_partitions}")
        if len(vocabulary) < 1:
            raise InputError(
                "a corpus must have at least one term, got an empty vocabulary; relax min_df or max_df"
            )
        for what, names in (("responses", responses), ("covariates", covariates)):
            if len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
                raise InputError(f"{what} must be distinct names that are not empty, got {list(names)!r}")
        for name, names in (levels or {}).items():
            if name not in (*responses, *covariates) or not are_levels(names):
                raise InputError(
                    f"levels must be distinct strings in the order of their code points, for names among "
                    f"responses and covariates, got {names!r:.60} for {name!r}"
                )
        for what, capacity, width in (
            ("document_capacity", document_capacity, 8),
            ("entry_capacity", entry_capacity, 4),
            ("id_capacity", id_capacity or 0, 1),
        ):
            if capacity < 0 or capacity * width > MAX_CHUNK_BYTES:
                raise InputError(
                    f"{what} must be in 0..{MAX_CHUNK_BYTES // width}, got {capacity}; use smaller partitions"
                )
        try:
            canonical_json(provenance or {})
        except (TypeError, ValueError) as error:
            raise InputError(
                f"provenance must be what JSON can hold, got {provenance!r:.80}: {error}"
            ) from error
        self._location = Location.of(path, storage_options)
        # None before prepare() and after finish(), when abort() must remove nothing
        self._target: Location | None = None
        self._vocabulary: Vocabulary | None = vocabulary
        self._vocabulary_sha256 = vocabulary.sha256
        self._has_document_frequency = vocabulary.document_frequency is not None
        self._text_settings = text_settings
        self._n_partitions = n_partitions
        self._document_capacity = document_capacity
        self._entry_capacity = entry_capacity
        self._id_capacity = id_capacity
        self._levels = {name: tuple(names) for name, names in (levels or {}).items()}
        self._columns = BlockColumns(
            n_terms=len(vocabulary),
            responses=tuple(responses),
            covariates=tuple(covariates),
            n_levels={name: len(names) for name, names in self._levels.items()},
            has_weight=has_weight,
            has_doc_id=id_capacity is not None,
        )
        self._provenance = dict(provenance or {})
        self._overwrite = overwrite

    @property
    def path(self) -> str:
        """Where the corpus will be."""
        return self._location.url

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

        # without its manifest the group says only what it is going to be
        root = zarr.create_group(
            target.store(read_only=False),
            zarr_format=3,
            attributes={"encoding-type": ENCODING_TYPE, "encoding-version": ENCODING_VERSION},
        )
        documents, entries = self._document_capacity, self._entry_capacity
        rows: dict[str, int] = {"indptr": documents + 1, "terms": entries, "counts": entries}
        names: dict[str, str] = {}
        for group, columns in (
            ("response", self._columns.responses),
            ("covariates", self._columns.covariates),
        ):
            if columns:
                root.create_group(group)
            # by number, since a name may hold what a file name may not
            for i, column in enumerate(columns):
                rows[f"{group}/{i}"] = documents
                names[f"{group}/{i}"] = column
        if self._columns.has_weight:
            rows["weight"] = documents
        if self._id_capacity is not None:
            rows |= {"doc_id": self._id_capacity, "doc_id_offsets": documents + 1}
        for name, capacity in rows.items():
            attributes = {"name": names[name]} if name in names else {}
            _create(root, name, (self._n_partitions, max(capacity, 1)), attributes)
        data, offsets = vocabulary.to_bytes()
        whole: dict[str, NDArray[Any]] = {"vocabulary": data, "vocabulary_offsets": offsets}
        if vocabulary.document_frequency is not None:
            whole["document_frequency"] = vocabulary.document_frequency
        for name, values in whole.items():
            array = _create(root, name, (max(len(values), 1),), {})
            array[: len(values)] = values

    def write_partition(self, partition: int, block: DocumentBlock) -> WrittenPartition:
        """Write one partition; safe from many threads and processes at once, and to do again.

        Parameters
        ----------
        partition : int
            0 to ``n_partitions - 1``; each is written by one call.
        block : DocumentBlock
            With the writer's responses and covariates, weights and identifiers, in any order.

        Raises
        ------
        InputError
            The block breaks a rule, does not fit, or lacks a response, covariate, weight or identifiers.
        OutputError
            It cannot be written, as when the disk is full.
        """
        import zarr

        if not 0 <= partition < self._n_partitions:
            raise InputError(f"partition must be in 0..{self._n_partitions - 1}, got {partition}")
        store = self._prepared().store(read_only=False)
        try:
            rows = self._columns.rows(block)
        except InputError as error:
            raise InputError(f"partition {partition}: {error}") from error
        for name, values in rows.arrays.items():
            with writing(self._location.url):
                array: Any = zarr.open_array(store, path=name, mode="r+", zarr_format=3)
            capacity = array.shape[1]
            if len(values) > capacity:
                raise InputError(
                    f"partition {partition}: array {name} has room for {capacity} values, got {len(values)}; "
                    "make the writer with a larger capacity"
                )
            # the whole row: a part of it would make zarr read the chunk first
            row = np.full(capacity, array.fill_value, dtype=array.dtype)
            row[: len(values)] = values
            with writing(self._location.url):
                array[partition] = row
        return WrittenPartition(partition, rows.info, rows.responses, rows.covariates)

    def finish(self, written: Iterable[WrittenPartition]) -> None:
        """Write the manifest and give the corpus its name.

        Parameters
        ----------
        written : iterable of WrittenPartition
            Of every partition once, in any order.

        Raises
        ------
        InputError
            A partition is missing or comes twice.
        OutputExistsError
            Somebody wrote the same output in the meantime.
        OutputError
            It cannot be written.
        """
        import zarr

        target = self._prepared()
        parts = sorted(written, key=lambda part: part.partition)
        numbers = [part.partition for part in parts]
        if numbers != list(range(self._n_partitions)):
            raise InputError(
                f"partitions 0..{self._n_partitions - 1} must be written once each, got {numbers}"
            )
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
            provenance={
                **self._provenance,
                "dslda_version": __version__,
                "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            },
        )
        with writing(self._location.url):
            group = zarr.open_group(target.store(read_only=False), mode="r+", zarr_format=3)
            group.attrs.put(manifest.to_json())
            if target != self._location:
                move_into_place(
                    target, self._location, encoding_type=ENCODING_TYPE, overwrite=self._overwrite
                )
        self._target = None

    def abort(self) -> None:
        """Remove what was written, and nothing else: a corpus that was to be replaced stays."""
        if self._target is not None:
            self._target.remove()
            self._target = None

    def _prepared(self) -> Location:
        if self._target is None:
            raise RuntimeError(
                "prepare() must come first, and nothing can be written after finish() or abort()"
            )
        return self._target

    def __getstate__(self) -> dict[str, Any]:
        # workers need neither vocabulary nor names of levels, and these can be large
        return self.__dict__ | {"_vocabulary": None, "_levels": {}, "_provenance": {}}


def _create(root: Any, name: str, shape: tuple[int, ...], attributes: dict[str, str]) -> Any:
    from zarr.codecs import BloscCodec, Crc32cCodec

    dtype, fill = ARRAYS[name.split("/")[0]]
    return root.create_array(
        name,
        shape=shape,
        chunks=(1, *shape[1:]) if len(shape) == 2 else shape,
        dtype=dtype,
        fill_value=fill,
        attributes=attributes,
        # crc32c: without it a flipped bit inside a chunk comes back as data
        compressors=[BloscCodec(cname="zstd", clevel=3, shuffle="shuffle"), Crc32cCodec()],
    )
