"""Scoring of a part on a worker. Its rows become one file, which takes its name when it is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.text import Analyzer
from dslda.exceptions import InputChangedError, InputError
from dslda.ingestion.counting import hashes_of
from dslda.inputs.fields import DocumentFields, Fields, Record
from dslda.inputs.formats import FilePiece
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.columns import columns_of_corpus, columns_of_records
from dslda.prediction.predict import Predictions, predict_block, predict_nothing
from dslda.prediction.record_counting import (
    BATCH_DOCUMENTS,
    CountedBlock,
    aligned_block,
    count_batch,
    identifier_of,
    settings_of_texts,
)
from dslda.scoring.scoring_units import Input, check_unchanged, reason_of, sha256_of
from dslda.scoring.tables import OutputFormat, Topics, score_table, table_writer
from dslda.scoring.tally import Tally
from dslda.storage.location import Location
from dslda.storage.output import replacing, writing
from dslda.wording import number_of

if TYPE_CHECKING:
    import pyarrow as pa

    from dslda.corpus.store import Corpus
    from dslda.families.base import Family

__all__ = ["CorpusPart", "FilePart", "Scorer", "score_part"]

Batch: TypeAlias = list[tuple[int, Record]]
"""Records by their positions."""


@dataclass(frozen=True, slots=True, eq=False)
class Scorer:
    """Model and output settings, sent to each worker once.

    Attributes
    ----------
    record : ModelRecord
        As documents are scored with it.
    family : type of Family
        Of the model, which may be one of the user's own.
    topics : int, "all" or "none"
    output_format : {"parquet", "csv", "jsonl"}
    skip : bool
        Leave out records that cannot be scored.
    terms : tuple of str or None
        Terms of files that hold positions of terms.
    """

    record: ModelRecord
    family: type[Family]
    topics: Topics
    output_format: OutputFormat
    skip: bool
    terms: tuple[str, ...] | None = None

    def table(self, scored: Predictions) -> pa.Table:
        """The rows of scored documents."""
        reference = self.record.reference
        residuals = None if reference is None else reference.residuals
        return score_table(scored, self.topics, residuals=residuals)


@dataclass(frozen=True, slots=True, eq=False)
class FilePart:
    """Pieces of files to be scored one after the other.

    Attributes
    ----------
    sources : tuple of FilePiece
    rows : tuple of int
        Records that each had when it was scanned.
    inputs : tuple of Input
        The files they are of.
    fields : Fields
    first_row : int
        Records before these.
    options : mapping
        Storage options.
    """

    sources: tuple[FilePiece, ...]
    rows: tuple[int, ...]
    inputs: tuple[Input, ...]
    fields: Fields
    first_row: int
    options: Mapping[str, Any]

    @property
    def label(self) -> str:
        """As messages name it."""
        more = f" and {number_of(len(self.inputs) - 1, 'file')} more" if len(self.inputs) > 1 else ""
        return (
            f"{self.inputs[0].label}{more}, {number_of(sum(self.rows), 'record')} from {self.first_row:,} on"
        )

    def check(self) -> None:
        """Refuse files that were changed since they were scanned."""
        for one in self.inputs:
            check_unchanged(one, self.options)

    def scored(self, scorer: Scorer, tally: Tally) -> Iterator[Predictions]:
        """Scores of the records, a batch at a time; the tally counts those that are skipped."""
        settings = settings_of_texts(scorer.record)
        fields = (replace(self.fields, terms=scorer.terms),)
        analyze = Analyzer(settings)
        too_frequent = frozenset(scorer.record.too_frequent)
        first = self.first_row
        for source, rows in zip(self.sources, self.rows, strict=True):
            records = _Records(source, first, rows, self.fields, tally if scorer.skip else None)
            while batch := records.batch():
                count = partial(
                    _count, record=scorer.record, analyze=analyze, fields=fields, place=records.place
                )
                try:
                    counted, words = count(batch)
                except InputError:
                    if not scorer.skip:
                        raise
                    batch = _accepted(batch, count, tally, records.place)
                    if not batch:
                        continue
                    counted, words = count(batch)
                for word, n in words.items():
                    if word in too_frequent:  # ingestion has left it out
                        tally.n_too_frequent += n
                    else:
                        tally.words.add(word, n)
                yield predict_block(scorer.record, counted, [records.ids[i] for i, _ in batch])
            first += rows


@dataclass(frozen=True, slots=True, eq=False)
class CorpusPart:
    """A partition of a corpus.

    Attributes
    ----------
    corpus : Corpus
    partition : int
    covariates : tuple of str
        Columns that the model needs.
    alignment : ndarray of int32, shape (V,), or None
        The model's terms by those of the corpus, where they are others.
    """

    corpus: Corpus
    partition: int
    covariates: tuple[str, ...]
    alignment: NDArray[np.int32] | None

    @property
    def label(self) -> str:
        """As messages name it."""
        return f"{self.corpus.path}, partition {self.partition}"

    def check(self) -> None:
        """Nothing: what is read agrees with its checksum, or is refused."""

    def scored(self, scorer: Scorer, tally: Tally) -> Iterator[Predictions]:
        """Scores of the documents, a batch at a time."""
        corpus = self.corpus
        block = corpus.read(self.partition, responses=(), covariates=self.covariates, doc_id=True)
        first = int(corpus.document_offsets[self.partition])
        columns = columns_of_corpus(
            block.covariates, scorer.record, corpus.levels, range(first, first + block.n_documents)
        )
        counted = aligned_block(block, self.alignment)
        for start in range(0, block.n_documents, BATCH_DOCUMENTS):
            rows = slice(start, min(start + BATCH_DOCUMENTS, block.n_documents))
            part = CountedBlock(
                counted.block.rows(rows.start, rows.stop),
                counted.n_unknown[rows],
                {name: values[rows] for name, values in columns.items()},
            )
            yield predict_block(scorer.record, part, (block.doc_id or ())[rows])


def score_part(
    scorer: Scorer, part: FilePart | CorpusPart, target: Location, ids: Location
) -> dict[str, Any]:
    """Score a part and write its file.

    Parameters
    ----------
    scorer : Scorer
    part : FilePart or CorpusPart
    target, ids : Location
        Where to write the rows, and the hashes of their identifiers, ascending.

    Returns
    -------
    dict
        Note of the part, as JSON: :meth:`Tally.to_json`, with the size and hash of its file.

    Raises
    ------
    InputError
        An input cannot be read, has a record that cannot be scored and may not be skipped, or was changed.
    OutputError
        The file cannot be written.
    """
    from dslda.families.registry import register

    register(scorer.family)
    record = scorer.record
    tally = Tally(record.parameters.n_topics, record.reference)
    hashes: list[NDArray[np.uint64]] = []
    part.check()
    with replacing(target) as stream:
        with writing(target.url):
            writer = table_writer(stream, scorer.output_format, scorer.table(predict_nothing(record)))
        try:
            for scored in part.scored(scorer, tally):
                tally.add(scored)
                hashes.append(hashes_of(name.encode() for name in scored.doc_id))
                with writing(target.url):
                    writer.write(scorer.table(scored))
            with writing(target.url):
                writer.close()
                size, sha256 = _measured(stream)
            part.check()
        except BaseException:
            writer.abandon()
            raise
    distinct = np.sort(np.concatenate([np.zeros(0, dtype=np.uint64), *hashes]))
    with replacing(ids) as stream, writing(ids.url):
        stream.write(distinct.astype("<u8").tobytes())
    return {"bytes": size, "sha256": sha256, **tally.to_json()}


class _Records:
    """Records of a source in batches; remembers the origin of those in the last batch."""

    def __init__(
        self, source: FilePiece, first: int, rows: int, fields: Fields, skipping: Tally | None
    ) -> None:
        self._source = source
        self._first = first
        self._expected = rows
        self._fields = fields
        self._skipping = skipping
        self._attempts = enumerate(source.attempts(fields), first)
        self._n = 0
        self._numbers: dict[int, int] = {}
        self.ids: dict[int, str] = {}

    def batch(self) -> Batch:
        """The next records, by their position in the whole input; none at the end."""
        self._numbers.clear()
        self.ids.clear()
        batch: Batch = []
        while len(batch) < BATCH_DOCUMENTS:
            try:
                attempt = next(self._attempts, None)
            except InputError as error:
                if self._skipping is None:
                    raise
                name = self._source.file.name
                self._skipping.lose(name, reason_of(error, name), max(self._expected - self._n, 0))
                self._attempts = enumerate(iter(()))
                self._expected = self._n
                continue
            if attempt is None:
                if self._n != self._expected:
                    raise InputChangedError(
                        f"must have {self._expected:,} records as when it was read first, got {self._n:,}: it was changed "
                        "meanwhile",
                        place=self._source.place(0),
                        remedy="run again when nothing writes to it any more",
                    )
                break
            position, (number, record) = attempt
            self._n += 1
            if isinstance(record, InputError):
                if self._skipping is None:
                    raise record
                place = self._source.place(number)
                self._skipping.skip(place, reason_of(record, place))
                continue
            self._numbers[position] = number
            self.ids[position] = identifier_of(record, self._fields.id, position)
            batch.append((position, record))
        return batch

    def place(self, position: int) -> str:
        return self._source.place(self._numbers[position])


def _count(
    batch: Batch,
    *,
    record: ModelRecord,
    analyze: Analyzer,
    fields: Sequence[DocumentFields],
    place: Callable[[int], str],
) -> tuple[CountedBlock, Counter[str]]:
    """Documents counted over the vocabulary of the model, with their columns, and the words that are not in it."""
    words: Counter[str] = Counter()

    def new_word(word: str, n: int) -> None:
        words[word] += n

    columns = columns_of_records(batch, record, place)
    counted = count_batch(batch, record, analyze, fields, place, new_words=new_word)
    return replace(counted, columns=columns), words


def _accepted(
    batch: Batch, count: Callable[[Batch], object], tally: Tally, place: Callable[[int], str]
) -> Batch:
    """The documents of a batch that can be counted; the tally counts the others as skipped."""
    accepted = []
    for position, record in batch:
        try:
            count([(position, record)])
        except InputError as error:
            tally.skip(place(position), reason_of(error, place(position)))
        else:
            accepted.append((position, record))
    return accepted


def _measured(stream: IO[bytes]) -> tuple[int, str]:
    """Size and SHA-256 of the file."""
    stream.flush()
    stream.seek(0)
    sha256 = sha256_of(stream)
    return stream.tell(), sha256
