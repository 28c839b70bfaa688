"""Texts of a few documents, found by their identifiers, and short excerpts of them with the words of a topic marked."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dslda.corpus.store import Corpus
from dslda.corpus.text import Analyzer, TextSettings, expanded
from dslda.exceptions import InputError
from dslda.ingestion.counting import identifier_value
from dslda.inputs.fields import Fields, Record
from dslda.inputs.files import InputFiles, check_first_records, list_files, whole_files
from dslda.inputs.in_memory import records_in_memory
from dslda.inputs.reading import ReadingRules
from dslda.persistence.model_record import ModelRecord
from dslda.wording import printable

__all__ = ["Excerpt", "Marker", "TextSource", "excerpt", "tidy"]

Excerpt: TypeAlias = list[tuple[str, bool]]
"""Pieces of text, and whether each is marked."""

LONGEST = 420
"""Characters up to which a text is shown whole."""
N_WINDOWS = 2
WINDOW_WORDS = 30
STEP_BACK = 10
"""Words that an excerpt goes back for the beginning of a sentence."""
WORD = re.compile(r"\S{1,40}")
SENTENCE_END = (".", "!", "?", "…")
GAP = " … "


class TextSource:
    """The texts of a corpus's documents, in files or in memory.

    Parameters
    ----------
    record : ModelRecord
        Its fields of text and identifier are those of the texts, unless `text` and `id` name others.
    corpus : Corpus
    texts : path, glob or URL, or several; DataFrame, or list of mappings
        Read as :func:`dslda.ingest` reads them.
    text, id : str, optional
        Fields. Documents of a corpus without identifiers are counted in the order of the texts.
    format, encoding, separator, escape, na_values
        As :func:`~dslda.prediction.file_predictions.predict_files` takes them.

    Raises
    ------
    InputError
        A file or field is not there, or the texts have no identifiers while the corpus has.
    """

    def __init__(
        self,
        record: ModelRecord,
        corpus: Corpus,
        texts: Any,
        *,
        text: str | None = None,
        id: str | None = None,
        format: str = "auto",
        encoding: str | None = None,
        separator: str | None = None,
        escape: str | None = None,
        na_values: str | Sequence[str] | None = None,
    ) -> None:
        uses = record.fields
        field = text or uses.get("text", "text")
        key = id or uses.get("id")
        self._by_position = not corpus.has_doc_id
        rules = ReadingRules(encoding, separator, escape, na_values)  # type: ignore[arg-type]  # which checks them
        self._files: InputFiles | None = None
        self._records = None if isinstance(texts, (str, os.PathLike)) else records_in_memory(texts)
        own = None
        if self._records is None:
            self._files = list_files(texts, format).read_by(rules)
            own = self._files.piece.own_fields
            if self._files.piece.by_position or (own is not None and own.text is None):
                raise InputError(f"must hold texts, got {self._files.piece.title}", parameter="texts")
        if own is not None and not (text is None and id is None):
            raise InputError("must be left out: text files have no fields", parameter=("text", "id"))
        if own is None and key is None and corpus.has_doc_id:
            raise InputError(
                f"must name the field that holds the identifiers of {corpus.path}, got none", parameter="id"
            )
        self._fields = own or Fields(text=field, id=None if self._by_position else key)
        if self._files is not None:
            check_first_records(self._files, self._fields)
        elif self._records and not any(self._fields.in_record(each) for each in self._records):
            raise InputError(
                f"must have the field {field!r}, got {', '.join(map(repr, self._records[0]))}",
                parameter="texts",
                remedy="name it with {text=}",
            )

    def of(self, wanted: Collection[str]) -> dict[str, str]:
        """The texts of these identifiers, those that are there; the input is read up to the last of them."""
        missing, found = set(wanted), dict[str, str]()
        for position, record in enumerate(self._all()):
            if not missing:
                break
            key = str(position)
            if not self._by_position and self._fields.id is not None:
                key = identifier_value(record.get(self._fields.id), self._fields.id) or key
            if key in missing:
                document = self._fields.document(record)
                if isinstance(document, str):
                    missing.remove(key)
                    found[key] = document
        return found

    def _all(self) -> Iterator[Record]:
        if self._files is None:
            yield from self._records or ()
            return
        for source, _ in whole_files(self._files, n_terms=0):
            for _, record in source.records(self._fields):
                yield record


class Marker:
    """Finds the terms of a model in a text as it is written.

    Parameters
    ----------
    settings : TextSettings or None
        How the model cuts texts; those of a model of counts cut none, and the defaults serve.
    """

    def __init__(self, settings: TextSettings | None) -> None:
        self._settings = TextSettings() if settings is None or settings.kind == "counts" else settings
        self._analyze = Analyzer(self._settings)

    def places(self, text: str, terms: Mapping[str, float]) -> list[tuple[int, int, float]]:
        """First and last character, and weight, of each of the terms in a text."""
        settings = self._settings
        own = settings.analyzer is not None or settings.token_pattern is None
        pattern = WORD if own else re.compile(expanded(settings.token_pattern or ""))
        group = min(pattern.groups, 1)
        # tokens are found in lower case, but marked as they are written; a letter may be longer in lower case
        spans = [match.span(group) for match in pattern.finditer(text)]
        shortest, longest = settings.ngrams
        places = []
        for size in range(1 if own else shortest, longest + 1):
            for first, last in zip(spans, spans[size - 1 :], strict=False):
                found = self._analyze(text[first[0] : last[1]])
                weight = max((terms[term] for term in found if term in terms), default=0.0)
                # a pair holds its words too
                if weight and (
                    size == 1 or any(term.count(" ") == size - 1 for term in found if term in terms)
                ):
                    places.append((first[0], last[1], weight))
        return places

    def share_found(self, text: str, terms: Collection[str]) -> float:
        """Share of the terms that a text has."""
        there = self._analyze(text)
        return sum(term in there for term in terms) / max(len(terms), 1)


def tidy(text: str) -> str:
    """Text on one line, with composed accents, and without characters that would change others."""
    return printable(unicodedata.normalize("NFC", " ".join(text.split())))


def excerpt(text: str, terms: Sequence[str], marker: Marker) -> Excerpt:
    """A short text whole, or the passages of a long one that hold most of the terms, with the terms marked.

    Parameters
    ----------
    text : str
    terms : sequence of str
        The most important first.
    marker : Marker
    """
    text = tidy(text)
    weights = {term: 1.0 / (1.0 + 0.25 * rank) for rank, term in enumerate(terms)}
    places = marker.places(text, weights)
    if len(text) <= LONGEST:
        return _pieces(text, 0, len(text), places)
    words = [match.span() for match in WORD.finditer(text)]
    starts = np.array([start for start, _ in words])
    strength = np.zeros(len(words))
    for start, _, weight in places:
        # again and again the same word says less than others do
        strength[int(np.searchsorted(starts, start, side="right")) - 1] += weight
    sums = np.convolve(strength, np.ones(min(WINDOW_WORDS, len(words))), mode="valid")
    windows: list[tuple[int, int]] = []
    for begin in np.argsort(-sums, kind="stable").tolist():
        if len(windows) == N_WINDOWS or (windows and sums[begin] <= 0.0):
            break
        begin, end = _from_sentence(text, words, begin), min(begin + WINDOW_WORDS, len(words)) - 1
        if all(end < other or begin > other_end for other, other_end in windows):
            windows.append((begin, end))
    pieces: Excerpt = []
    for begin, end in sorted(windows):
        first, last = words[begin][0], words[end][1]
        if first > 0:
            pieces.append((GAP.lstrip() if not pieces else GAP, False))
        pieces += _pieces(text, first, last, places)
    if sorted(windows)[-1][1] < len(words) - 1:
        pieces.append((GAP.rstrip(), False))
    return pieces


def _from_sentence(text: str, words: Sequence[tuple[int, int]], begin: int) -> int:
    """The first word of the sentence of a word, if that is near."""
    for back in range(min(STEP_BACK, begin)):
        before = words[begin - back - 1]
        if text[before[0] : before[1]].endswith(SENTENCE_END):
            return begin - back
    return begin


def _pieces(text: str, first: int, last: int, places: Sequence[tuple[int, int, float]]) -> Excerpt:
    """The text from `first` to `last` in pieces, those at the places marked."""
    pieces: Excerpt = []
    at = first
    for start, stop, _ in sorted(places):
        start = max(start, at)
        if stop > last or start >= stop:
            continue
        if start > at:
            pieces.append((text[at:start], False))
        pieces.append((text[start:stop], True))
        at = stop
    if at < last:
        pieces.append((text[at:last], False))
    return pieces
