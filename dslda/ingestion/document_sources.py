"""Documents in every form that ingest takes: files, records in memory, Dask collections, and a matrix."""

from __future__ import annotations

import io
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from dslda.cluster.client import ClientLater
from dslda.cluster.opening import active_workers, default_workers, worker_per_core
from dslda.cluster.runner import Runner, SerialRunner, guarded
from dslda.corpus.levels import level_order, numbers_of
from dslda.corpus.store import Corpus
from dslda.corpus.text import Analyzer, TextSettings
from dslda.exceptions import InputError
from dslda.ingestion.arguments import matrix_rows, name_fields, refuse_names
from dslda.ingestion.counting import CountedChunk, count_chunk
from dslda.inputs.fields import Fields
from dslda.inputs.files import (
    InputFiles,
    check_first_records,
    cut_file,
    group_sources,
    list_files,
    needs_cutting,
    target_bytes,
    whole_files,
)
from dslda.inputs.formats import FilePiece, Piece
from dslda.inputs.in_memory import (
    BagRecords,
    FrameRows,
    categories_of_dtypes,
    categories_of_table,
    columns_of_table,
    is_dask_collection,
    records_in_memory,
)
from dslda.inputs.reading import ReadingRules
from dslda.storage.location import is_in_memory

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

__all__ = [
    "DocumentSource",
    "check_fields",
    "check_is_of_records",
    "count_collection",
    "document_source",
    "with_orders",
]

logger = logging.getLogger("dslda.ingest")

Workers: TypeAlias = "Client | ClientLater | None"

NO_RECORDS = (str, bytes, bytearray, Mapping, io.IOBase)
"""Collections and iterators that hold no records."""


class DocumentSource(ABC):
    """Documents of one form, by default in one object of Python.

    Attributes
    ----------
    by_position : bool
        Words are positions in a vocabulary.
    unnamed : str or None
        Title of files without fields that a caller could name; None where there are fields.
    """

    by_position: bool = False
    unnamed: str | None = None

    def __init__(self, inputs: Any) -> None:
        self._inputs = inputs

    def read_by(self, rules: ReadingRules, old_corpus: Corpus | None) -> None:
        """Set the rules for files, with those of the corpus to append to where one is left out; others refuse them."""
        rules.refuse_for("documents in memory")

    def fields(self, named: Mapping[str, Any], n_terms: int, old_corpus: Corpus | None) -> Fields:
        """The fields that a caller names, or those of the corpus to append to."""
        fields = name_fields(named, old_corpus)
        # a bag of texts or pairs has no names
        return fields if fields.is_named else replace(fields, text="text")

    def categories(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Categories of those of the fields that the documents hold as ordered ones, from the lowest."""
        return categories_of_table(self._inputs, names)

    @abstractmethod
    def check(self, fields: Fields) -> None:
        """Refuse absent fields, and inputs without documents, as far as that is quick."""

    def client(self, client: Workers, *, in_process_bytes: int) -> Workers:
        """The workers to count on, by default None, this process: moving documents would take longer than counting."""
        return None

    @abstractmethod
    def count(self, runner: Runner, fields: Fields, analyzer: Analyzer, n_terms: int) -> list[Any]:
        """Handles of counted chunks."""

    def provenance(self) -> dict[str, Any]:
        """Description of the documents for the manifest of a corpus."""
        return {"inputs": [f"a {type(self._inputs).__name__} in memory"]}


def document_source(inputs: Any, format: str, storage_options: Mapping[str, Any] | None) -> DocumentSource:
    """The documents of the inputs of :func:`~dslda.ingestion.ingest.ingest`."""
    if hasattr(inputs, "tocsr"):
        return _MatrixSource(inputs)
    if is_dask_collection(inputs):
        check_is_of_records(inputs)
        return _CollectionSource(inputs)
    records: Iterable[Any] | None = records_in_memory(inputs)
    if records is None and isinstance(inputs, (Iterator, Collection)) and not isinstance(inputs, NO_RECORDS):
        first = list(islice(inputs, 1))
        items = chain(first, inputs) if isinstance(inputs, Iterator) else inputs
        if first and isinstance(first[0], Mapping):
            records = items
        elif isinstance(inputs, Iterator):
            inputs = list(items)
    if records is not None:
        return _RecordSource(inputs, records)
    return _FileSource(list_files(inputs, format, storage_options=storage_options))


class _MatrixSource(DocumentSource):
    by_position = True

    def fields(self, named: Mapping[str, Any], n_terms: int, old_corpus: Corpus | None) -> Fields:
        fields, self._rows = matrix_rows(self._inputs, named, n_terms)
        self._responses = dict(named["response"] or {})
        return fields

    def categories(self, names: Sequence[str]) -> dict[str, list[Any]]:
        dtypes = {name: getattr(values, "dtype", None) for name, values in self._responses.items()}
        return categories_of_dtypes(dtypes)

    def check(self, fields: Fields) -> None:
        """Nothing: the arrays were checked with their names."""

    def count(self, runner: Runner, fields: Fields, analyzer: Analyzer, n_terms: int) -> list[Any]:
        return runner.map(count_chunk, [[self._rows]], [fields], [analyzer], stage="read")

    def provenance(self) -> dict[str, Any]:
        return {"inputs": ["a sparse matrix in memory"]}


class _RecordSource(DocumentSource):
    def __init__(self, inputs: Any, records: Iterable[Any]) -> None:
        super().__init__(inputs)
        self._records = records

    def check(self, fields: Fields) -> None:
        columns = columns_of_table(self._inputs)
        if columns is not None:
            fields.check_against(columns, "the DataFrame")

    def count(self, runner: Runner, fields: Fields, analyzer: Analyzer, n_terms: int) -> list[Any]:
        records = BagRecords(self._records, type(self._inputs).__name__)
        return runner.map(count_chunk, [[records]], [fields], [analyzer], stage="read")


class _CollectionSource(DocumentSource):
    def check(self, fields: Fields) -> None:
        check_fields(self._inputs, fields)

    def client(self, client: Workers, *, in_process_bytes: int) -> Workers:
        return client or active_workers()

    def count(self, runner: Runner, fields: Fields, analyzer: Analyzer, n_terms: int) -> list[Any]:
        return count_collection(runner, self._inputs, fields, analyzer.settings)


class _FileSource(DocumentSource):
    def __init__(self, files: InputFiles) -> None:
        self._files = files
        self.by_position = files.piece.by_position
        self.unnamed = None if files.piece.own_fields is None else files.piece.title

    def read_by(self, rules: ReadingRules, old_corpus: Corpus | None) -> None:
        provenance = {} if old_corpus is None else old_corpus.provenance
        stored = provenance.get("rules")
        if isinstance(stored, Mapping) and provenance.get("format") == self._files.format:
            given, rules = rules, ReadingRules(**{**stored, **rules.given})
            if rules != given:
                logger.info("reading by the rules of the corpus that is appended to: %s", rules.in_words)
        self._rules = rules
        self._files = self._files.read_by(rules)

    def fields(self, named: Mapping[str, Any], n_terms: int, old_corpus: Corpus | None) -> Fields:
        own = self._files.piece.own_fields
        if own is None:
            return name_fields(named, old_corpus)
        refuse_names(named, f"{self.unnamed} have no fields")
        return own

    def categories(self, names: Sequence[str]) -> dict[str, list[Any]]:
        # the files of one corpus are alike
        return self._files.piece(self._files.files[0]).categories(names)

    def check(self, fields: Fields) -> None:
        check_first_records(self._files, fields)

    def client(self, client: Workers, *, in_process_bytes: int) -> Workers:
        if any(is_in_memory(file.url) for file in self._files.files):
            return None
        if client is None and self._files.text_bytes > in_process_bytes:
            return default_workers(worker_per_core, [file.url for file in self._files.files])
        return client

    def count(self, runner: Runner, fields: Fields, analyzer: Analyzer, n_terms: int) -> list[Any]:
        chunks = self._chunks(runner, fields, n_terms)
        n = len(chunks)
        return runner.map(count_chunk, chunks, [fields] * n, [analyzer] * n, stage="read")

    def provenance(self) -> dict[str, Any]:
        names = [file.name for file in self._files.files]
        provenance = {"inputs": names[:20], "n_files": len(names), "format": self._files.format}
        return provenance | ({"rules": self._rules.to_json()} if self._rules.given else {})

    def _chunks(self, runner: Runner, fields: Fields, n_terms: int) -> list[tuple[Piece, ...]]:
        """Pieces of large files, and groups of small files."""
        whole = whole_files(self._files, n_terms=n_terms)
        target = target_bytes(self._files)
        if isinstance(runner, SerialRunner):
            return group_sources(whole, target)  # one process gains nothing by entering a file in the middle
        large = [piece for piece, cost in whole if needs_cutting(piece, cost, target)]
        n = len(large)
        cut = iter(runner.results(runner.map(cut_file, large, [fields] * n, [target] * n), stage="scan"))
        pieces: list[tuple[FilePiece, int]] = []
        for piece, cost in whole:
            pieces.extend(next(cut) if needs_cutting(piece, cost, target) else [(piece, cost)])
        return group_sources(pieces, target)


def with_orders(
    fields: Fields, categories: Mapping[str, Sequence[Any]]
) -> tuple[Fields, dict[str, tuple[str, ...]]]:
    """The fields and the order of their levels, where responses hold ordered `categories`: names need no other declaration.

    Categories that are spelt as numbers stay numbers, and if they rise, they say their order themselves.
    """
    orders: dict[str, tuple[str, ...]] = {}
    names = list(fields.categorical)
    for name, values in categories.items():
        try:
            order = level_order(values) or ()
        except InputError:  # one category, or two of one name
            continue
        numbers = numbers_of(order)
        if numbers is None and name not in names:
            names.append(name)
        if name in names or numbers is None or list(numbers) != sorted(numbers):
            orders[name] = order
    return replace(fields, categorical=tuple(names)), orders


def check_fields(collection: Any, fields: Fields) -> None:
    """Refuse fields that a Dask DataFrame has no column for, Series and arrays. Only the tasks of a bag see its records."""
    check_is_of_records(collection)
    if _is_bag(collection):
        return
    columns = list(map(str, collection.columns))
    fields.check_against(columns, "the DataFrame")
    dtypes = dict(zip(columns, map(str, collection.dtypes), strict=True))
    for use, name in (("words", fields.words), ("counts", fields.counts)):
        # Dask turns lists in columns of objects into strings, which look like real strings
        if name is not None and dtypes[name].startswith("string"):
            raise InputError(
                f"{use} {name!r} must be a column of lists, got one of strings, which Dask makes of lists",
                remedy=(
                    "call dask.config.set({'dataframe.convert-string': False}) before the DataFrame is made",
                    "make a bag of records, which keeps lists: dask.bag.from_sequence(frame.to_dict('records'))",
                ),
            )


def check_is_of_records(collection: Any) -> None:
    """Refuse a collection of Dask that is neither a bag nor a DataFrame."""
    if not _is_bag(collection) and (collection.ndim != 2 or not hasattr(collection, "columns")):
        raise InputError(
            f"documents of Dask must be a bag or a DataFrame, got a Dask {type(collection).__name__}",
            remedy=(
                "make a DataFrame of a Series, with to_frame('text'), and join the response to it",
                "compute() an array of counts",
            ),
        )


def count_collection(runner: Runner, collection: Any, fields: Fields, settings: TextSettings) -> list[Any]:
    """Handles of the counted partitions of a bag or DataFrame, whatever their sizes; the caller has checked its fields.

    The counts stay on the workers. Their tasks start at the graph of the collection, so Dask computes again what a
    lost worker held.
    """
    import dask

    count = _count_bag if _is_bag(collection) else _count_frame
    analyzer = Analyzer(settings)
    task = dask.delayed(guarded, pure=False)
    return runner.compute(
        [task(count, part, fields, analyzer, i) for i, part in enumerate(collection.to_delayed())]
    )


def _is_bag(collection: Any) -> bool:
    return getattr(collection, "ndim", None) is None


def _count_bag(items: Iterable[Any], fields: Fields, analyzer: Analyzer, index: int) -> CountedChunk:
    return count_chunk([BagRecords(items, f"bag partition {index}")], fields, analyzer)


def _count_frame(frame: pd.DataFrame, fields: Fields, analyzer: Analyzer, index: int) -> CountedChunk:
    return count_chunk([FrameRows(frame, f"DataFrame partition {index}")], fields, analyzer)
