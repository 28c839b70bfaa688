"""A corpus on disk or in an object store: opened lazily, read one partition at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.corpus.manifest import REMEDY, Manifest, PartitionInfo, Place, ResponseSummary
from dslda.corpus.partition_reader import PartitionReader, StoredArrays
from dslda.corpus.summary import new_share, oov_share
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import FormatError, InputError
from dslda.notebook_card import notebook_card
from dslda.storage.location import Location
from dslda.wording import first_few, number_of

__all__ = ["Corpus", "open_corpus"]

LEVELS_SHOWN = 4


def open_corpus(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Corpus:
    """Open a corpus; only its manifest is read.

    Parameters
    ----------
    path : str or path
        A local directory or any fsspec URL, such as ``s3://bucket/reviews.corpus``.
    storage_options : mapping, optional
        For the fsspec file system.

    Raises
    ------
    InputError
        There is nothing at `path`.
    FormatError
        It is not a corpus, or unfinished, damaged, or of a version this release cannot read.
    """
    location = Location.of(path, storage_options)
    return Corpus(location, Manifest.from_json(location.read_attributes(), location.url))


class Corpus:
    """Documents as term counts in a store, with their responses and covariates; made by :func:`open_corpus`.

    It holds the manifest and, once asked for, the vocabulary. A pickle holds only the manifest, which grows with the number
    of partitions; if one partition is enough, send its :meth:`reader`.
    """

    def __init__(self, location: Location, manifest: Manifest) -> None:
        self._location = location
        self._manifest = manifest
        self._places = manifest.places()
        sizes = [partition.n_documents for partition in manifest.partitions]
        self._document_offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))

    @property
    def manifest(self) -> Manifest:
        """Description of the store."""
        return self._manifest

    @property
    def path(self) -> str:
        """Absolute path, or URL."""
        return self._location.url

    @property
    def n_documents(self) -> int:
        """Number of documents, empty ones included."""
        return int(self._document_offsets[-1])

    @property
    def n_empty(self) -> int:
        """Number of documents without a token of the vocabulary."""
        return sum(partition.n_empty for partition in self.partitions)

    @property
    def n_terms(self) -> int:
        """Size of the vocabulary."""
        return self._manifest.n_terms

    @property
    def n_tokens(self) -> int:
        """Sum of all counts."""
        return self._manifest.n_tokens

    @property
    def n_all_tokens(self) -> int | None:
        """Tokens of the documents before the vocabulary was chosen, without stop words; None if unknown."""
        return self._manifest.n_all_tokens

    @property
    def oov_share(self) -> float | None:
        """Share of the tokens that the vocabulary lacks; None if unknown."""
        return oov_share(self.n_tokens, self.n_all_tokens)

    @property
    def new_share(self) -> float | None:
        """:attr:`oov_share` without terms that `max_df` left out: those are not new, but left out on purpose."""
        return new_share(self.n_tokens, self.n_all_tokens, self._manifest.n_too_frequent_tokens)

    @property
    def too_frequent(self) -> tuple[str, ...]:
        """Terms that `max_df` left out, sorted; empty in corpora of releases that did not keep them."""
        return self._manifest.too_frequent

    @property
    def nnz(self) -> int:
        """Number of (document, term) entries."""
        return self._manifest.nnz

    @property
    def n_partitions(self) -> int:
        """Number of partitions, the units of work."""
        return len(self._manifest.partitions)

    @property
    def partitions(self) -> tuple[PartitionInfo, ...]:
        """Size and checksums of each partition."""
        return self._manifest.partitions

    @property
    def document_offsets(self) -> NDArray[np.int64]:
        """Position in the corpus of each partition's first document, and the end, shape (n_partitions + 1,)."""
        return self._document_offsets

    @property
    def text_settings(self) -> TextSettings:
        """Settings that turned documents into terms."""
        return self._manifest.text_settings

    @property
    def response_names(self) -> tuple[str, ...]:
        """Names of the responses."""
        return tuple(self._manifest.responses)

    @property
    def response_summaries(self) -> Mapping[str, ResponseSummary]:
        """Number, moments and range of each response's values, over the whole corpus; of its codes if it is categorical."""
        return self._manifest.responses

    @property
    def covariate_names(self) -> tuple[str, ...]:
        """Names of the covariates."""
        return tuple(self._manifest.covariates)

    @property
    def covariate_summaries(self) -> Mapping[str, ResponseSummary]:
        """Summary of each covariate's values, as for responses."""
        return self._manifest.covariates

    @property
    def levels(self) -> Mapping[str, tuple[str, ...]]:
        """Levels of each categorical response or covariate: code ``i`` stands for ``levels[name][i]``.

        Columns of numbers are left out.
        """
        return self._manifest.levels

    @property
    def orders(self) -> Mapping[str, tuple[str, ...]]:
        """Levels of each response that is known to be ordered, such as an ordered pandas Categorical, from the lowest."""
        return self._manifest.orders

    @property
    def has_weight(self) -> bool:
        """True if documents have weights."""
        return self._manifest.has_weight

    @property
    def has_doc_id(self) -> bool:
        """True if documents have identifiers of their own."""
        return self._manifest.has_doc_id

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Origin of the corpus, the version of dslda that wrote it, and the time."""
        return self._manifest.provenance

    @property
    def vocabulary_sha256(self) -> str:
        """Hash of the vocabulary, without reading it."""
        return self._manifest.vocabulary_sha256

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the content, the same for every copy, wherever and whenever it was written."""
        return self._manifest.content_hash

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The terms, read on first use.

        Raises
        ------
        FormatError
            The arrays are damaged or do not agree with the manifest.
        """
        arrays = StoredArrays(self._location)
        offsets = arrays.whole("vocabulary_offsets", self.n_terms + 1)
        data = arrays.whole("vocabulary", max(int(offsets[-1]), 0))
        frequency = None
        if self._manifest.has_document_frequency:
            latest = StoredArrays(self._location, place=Place(self._manifest.latest_group, 0, 1))
            frequency = latest.whole("document_frequency", self.n_terms)
        try:
            vocabulary = Vocabulary.from_bytes(data, offsets, frequency)
        except ValueError:
            vocabulary = None
        # a missing chunk reads as -1
        unknown = frequency is not None and frequency.min(initial=0) < 0
        if vocabulary is None or vocabulary.sha256 != self.vocabulary_sha256 or unknown:
            names = ["vocabulary", "vocabulary_offsets"]
            if unknown:
                names.append(f"{self._manifest.latest_group}/document_frequency".lstrip("/"))
            missing = arrays.missing_chunk([f"{name}/c/0" for name in names])
            problem = "it and its hash in the manifest do not agree"
            if missing is not None:
                problem = f"its chunk {missing} is missing"
            raise FormatError(f"the vocabulary is damaged, {problem}", place=self.path, remedy=REMEDY)
        return vocabulary

    def read(
        self,
        partition: int,
        *,
        responses: Sequence[str] | None = None,
        covariates: Sequence[str] = (),
        weight: bool = False,
        doc_id: bool = False,
    ) -> DocumentBlock:
        """Read one partition and check it against the manifest.

        Parameters
        ----------
        partition : int
            0 to ``n_partitions - 1``.
        responses : sequence of str, optional
            Names to read; all by default.
        covariates : sequence of str
            Names to read; none by default.
        weight : bool
            Read document weights; the block has none where the corpus has none.
        doc_id : bool
            Read identifiers; where the corpus has none, a document's position in the corpus, from "0".

        Raises
        ------
        InputError
            There is no such partition, response or covariate.
        FormatError
            A chunk is missing or damaged, or the data do not agree with the manifest.
        """
        return self.reader(
            partition, responses=responses, covariates=covariates, weight=weight, doc_id=doc_id
        )()

    def reader(
        self,
        partition: int,
        *,
        responses: Sequence[str] | None = None,
        covariates: Sequence[str] = (),
        weight: bool = False,
        doc_id: bool = False,
    ) -> PartitionReader:
        r"""A function without arguments that :meth:`read`\ s a partition, small enough to travel with every task."""
        if not 0 <= partition < self.n_partitions:
            raise InputError(f"must be in 0..{self.n_partitions - 1}, got {partition}", parameter="partition")
        wanted = self.response_names if responses is None else responses
        response_arrays = _arrays(wanted, self.response_names, "responses", "response")
        covariate_arrays = _arrays(covariates, self.covariate_names, "covariates", "covariates")
        return PartitionReader(
            location=self._location,
            partition=partition,
            place=self._places[partition],
            n_terms=self.n_terms,
            info=self.partitions[partition],
            responses=response_arrays,
            covariates=covariate_arrays,
            weight=weight and self.has_weight,
            doc_id=None if not doc_id else "stored" if self.has_doc_id else "position",
            first_document=int(self._document_offsets[partition]),
            n_levels={
                array: len(self.levels[name])
                for name, array in (*response_arrays.items(), *covariate_arrays.items())
                if name in self.levels
            },
        )

    def __repr__(self) -> str:
        return f"Corpus({self.path!r}: {self.in_words})"

    def _repr_html_(self) -> str:
        columns = [("response", *each) for each in self.response_summaries.items()]
        columns += [("covariate", *each) for each in self.covariate_summaries.items()]
        rows = [self._row(role, name, summary) for role, name, summary in columns]
        shown = "" if self.oov_share is None else f"; {self.oov_share:.1%} of all words are left out"
        empty = f" ({self.n_empty:,} without a word)" if self.n_empty else ""
        # the name alone: notebooks travel, and folders are nobody's business
        name = self.path.rstrip("/").rpartition("/")[2]
        return notebook_card(
            f"Corpus {'in memory' if self.path.startswith('memory://') else name}: "
            f"{number_of(self.n_documents, 'document')}{empty}",
            facts=[
                ("Vocabulary", number_of(self.n_terms, "term")),
                ("Words", f"{self.n_tokens:,}{shown}"),
                ("Stored in", number_of(self.n_partitions, "partition")),
            ],
            columns=("column", "role", "values", "documents", "missing", "mean", "lowest", "highest"),
            rows=rows,
            texts=("column", "role", "values"),
        )

    def _row(self, role: str, name: str, summary: ResponseSummary) -> list[str]:
        """A response or covariate in the table of a notebook."""
        levels = self.levels.get(name)
        values = summary.looks
        numbers = (
            [f"{x:.4g}" for x in (summary.mean, summary.minimum, summary.maximum)] if summary.n else [""] * 3
        )
        if levels is not None:
            values = f"{number_of(len(levels), 'level')}: {first_few(levels, LEVELS_SHOWN)}"
            numbers = [""] * 3
        return [name, role, values, f"{summary.n:,}", f"{summary.missing:,}", *numbers]

    @property
    def in_words(self) -> str:
        """Size and responses of the corpus, for messages."""
        responses = ", ".join(
            f"{name!r} ({f'{len(self.levels[name]):,} levels' if name in self.levels else summary.looks})"
            for name, summary in self.response_summaries.items()
        )
        return (
            f"{number_of(self.n_documents, 'document')}, {number_of(self.n_terms, 'term')}, "
            f"{number_of(self.n_tokens, 'token')}, {number_of(self.n_partitions, 'partition')}, "
            f"responses: {responses or 'none'}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Corpus, (self._location, self._manifest)


def _arrays(wanted: Sequence[str], stored: Sequence[str], parameter: str, group: str) -> dict[str, str]:
    """The array of each wanted column, by its name."""
    # a string is a sequence of its letters
    if isinstance(wanted, str):
        raise InputError(
            f"must be a list of names, got the string {wanted!r}",
            parameter=parameter,
            remedy=f"write [{wanted!r}]",
        )
    arrays = {}
    for name in wanted:
        if name not in stored:
            others = ", ".join(map(repr, stored)) or "none"
            kind = parameter.removesuffix("s")
            raise InputError(f"{kind} {name!r} is not in the corpus, which has: {others}")
        arrays[name] = f"{group}/{stored.index(name)}"
    return arrays
