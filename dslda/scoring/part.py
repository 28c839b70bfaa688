"""Scoring of a part on a worker; its rows become one file, which takes its name when it is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.levels import encodable
from dslda.corpus.text import Analyzer
from dslda.exceptions import InputChangedError, InputError
from dslda.ingestion.counting import hashes_of
from dslda.inputs.fields import Fields, Record
from dslda.inputs.formats import FilePiece
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.columns import columns_of_corpus, columns_of_records
from dslda.prediction.predict import Predictions, predict_block, predict_nothing
from dslda.prediction.record_counting import (
    BATCH_DOCUMENTS,
    CountedBlock,
    aligned_block,
    count_batch,
    settings_of_texts,
)
from dslda.scoring.scoring_units import Input, check_unchanged, reason_of, sha256_of
from dslda.scoring.tables import OUTPUT_FORMATS, OutputFormat, Topics, score_table
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
"""Records with their positions in the whole input."""


@dataclass(frozen=True, slots=True, eq=False)
class Scorer:
    """Model and output settings, sent to each worker once."""

    record: ModelRecord
    """See :attr:`~dslda.model.Model.scoring_record`."""
    family: type[Family]
    """Workers do not know a family of the user's own."""
    topics: Topics
    output_format: OutputFormat
    skip: bool
    """Leave out records that cannot be scored."""
    terms: tuple[str, ...] | None
    """Terms of files that hold positions of terms."""

    def table(self, scored: Predictions) -> pa.Table:
        """The rows of scored documents."""
        return score_table(scored, self.topics)


@dataclass(frozen=True, slots=True, eq=False)
class FilePart:
    """Pieces of files to score one after the other, with the records that each piece had when it was scanned."""

    sources: tuple[FilePiece, ...]
    rows: tuple[int, ...]
    inputs: tuple[Input, ...]
    fields: Fields
    first_row: int
    options: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Name of the part in messages."""
        more = f" and {number_of(len(self.inputs) - 1, 'file')} more" if len(self.inputs) > 1 else ""
        return (
            f"{self.inputs[0].label}{more}, {number_of(sum(self.rows), 'record')} from {self.first_row:,} on"
        )

    def check(self) -> None:
        """Refuse files that have changed since they were scanned."""
        for file in self.inputs:
            check_unchanged(file, self.options)

    def scored(self, scorer: Scorer, tally: Tally) -> Iterator[Predictions]:
        """Score the records, a batch at a time; the tally counts those that are skipped."""
        record = scorer.record
        analyze = Analyzer(settings_of_texts(record))
        if self.fields.text is not None:
            analyze.ready()
        fields = (replace(self.fields, terms=scorer.terms),)
        too_frequent = frozenset(record.too_frequent)

        def counted(batch: Batch, place: Callable[[int], str]) -> tuple[CountedBlock, Counter[str]]:
            """Count documents, and the words outside the vocabulary of the model."""
            words: Counter[str] = Counter()

            def new_word(word: str, n: int) -> None:
                words[word] += n

            columns = columns_of_records(batch, record, place)
            block = count_batch(batch, record, analyze, fields, place, id=self.fields.id, new_words=new_word)
            return replace(block, columns=columns), words

        for batch, place in self._batches(tally if scorer.skip else None):
            try:
                block, words = counted(batch, place)
            except InputError:
                if not scorer.skip:
                    raise
                accepted = []
                for position, document in batch:
                    try:
                        counted([(position, document)], place)
                    except InputError as error:
                        tally.skip(place(position), reason_of(error, place(position)))
                    else:
                        accepted.append((position, document))
                if not accepted:
                    continue
                batch = accepted
                block, words = counted(batch, place)
            for word, n in words.items():
                if word in too_frequent:  # ingestion left it out
                    tally.n_too_frequent += n
                else:
                    tally.words.add(word, n)
            yield predict_block(record, block, block.block.doc_id or ())

    def _batches(self, skipping: Tally | None) -> Iterator[tuple[Batch, Callable[[int], str]]]:
        """Yield batches of records, with a function that names the place of one.

        The tally `skipping` counts records that cannot be read; without it they are errors.
        """
        first = self.first_row
        for source, n_expected in zip(self.sources, self.rows, strict=True):
            batch: Batch = []
            numbers: dict[int, int] = {}

            def place(position: int, source: FilePiece = source, numbers: Mapping[int, int] = numbers) -> str:
                return source.place(numbers[position])

            n = 0
            try:
                for number, document in source.attempts(self.fields):
                    n += 1
                    if not isinstance(document, InputError):
                        batch.append((first + n - 1, document))
                        numbers[first + n - 1] = number
                    elif skipping is None:
                        raise document
                    else:
                        skipping.skip(source.place(number), reason_of(document, source.place(number)))
                    if len(batch) == BATCH_DOCUMENTS:
                        yield batch, place
                        batch = []
                        numbers.clear()
            except InputError as error:
                if skipping is None:
                    raise
                name = source.file.name
                lost = max(n_expected - n, 0)
                skipping.lose(encodable(name), encodable(reason_of(error, name)), lost)
            else:
                if n != n_expected:
                    raise InputChangedError(
                        f"must have {n_expected:,} records as when it was read first, got {n:,}: it was changed meanwhile",
                        place=source.place(0),
                        remedy="run again when nothing writes to it any more",
                    )
            if batch:
                yield batch, place
            first += n_expected


@dataclass(frozen=True, slots=True, eq=False)
class CorpusPart:
    """A partition of a corpus to score, with the columns that the model needs, and the model's ids of its terms."""

    corpus: Corpus
    partition: int
    covariates: tuple[str, ...]
    alignment: NDArray[np.int32] | None

    @property
    def label(self) -> str:
        """Name of the part in messages."""
        return f"{self.corpus.path}, partition {self.partition}"

    def check(self) -> None:
        """Do nothing: reading compares checksums."""

    def scored(self, scorer: Scorer, tally: Tally) -> Iterator[Predictions]:
        """Score the documents, a batch at a time."""
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
    """Write the rows of a part to `target`, and the sorted hashes of their identifiers to `ids`.

    Returns the note of the part: the size and hash of its file, and :meth:`Tally.to_json`.

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
            writer = OUTPUT_FORMATS[scorer.output_format](stream, scorer.table(predict_nothing(record)))
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
    in_order = np.sort(np.concatenate([np.zeros(0, dtype=np.uint64), *hashes]))
    with replacing(ids) as stream, writing(ids.url):
        stream.write(in_order.astype("<u8").tobytes())
    return {"bytes": size, "sha256": sha256, **tally.to_json()}


def _measured(stream: IO[bytes]) -> tuple[int, str]:
    """Size and SHA-256 of a file."""
    stream.flush()
    stream.seek(0)
    sha256 = sha256_of(stream)
    return stream.tell(), sha256
