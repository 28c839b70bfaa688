"""Counts of the rows of a part, and of all parts together, whatever order they are scored in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.levels import encodable
from dslda.corpus.summary import oov_share
from dslda.ingestion.counting import hashes_of
from dslda.persistence.model_record import Reference
from dslda.prediction.predict import Predictions
from dslda.scoring.tables import rows_of_ids
from dslda.storage.location import Location

__all__ = ["Duplicates", "FrequentWords", "RunTally", "Tally", "find_duplicates"]

FIRST_SKIPPED = 10
FIRST_SKIPPED_OF_RUN = 100
WORDS_OF_PART = 200
WORDS_OF_RUN = 50

CAPACITY = 20_000
"""Words that are counted at a time, up to twice as many; some MB."""

HASHES_AT_ONCE = 4_000_000
"""Hashes of identifiers held at a time, 32 MB; those of more rows are read once for each such number."""

N_NAMED = 10


class FrequentWords:
    """Counts words, and forgets rare ones when there are too many: the algorithm of Misra and Gries, in batches.

    When more than twice `capacity` words are held, the count of the one at rank `capacity` + 1 is taken off all counts, and
    words without any left are forgotten. So a count is never too high, and too low by at most :attr:`error`, which is below
    the words seen divided by `capacity`. What is counted is decided by the words and their order alone.

    Parameters
    ----------
    capacity : int

    Attributes
    ----------
    error : int
        By how much a count can be too low; 0 while nothing was forgotten.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.error = 0
        self._counts: dict[str, int] = {}

    def add(self, word: str, count: int) -> None:
        """Count a word."""
        self._counts[word] = self._counts.get(word, 0) + count
        if len(self._counts) > 2 * self.capacity:
            self._forget()

    def merge(self, words: Iterable[tuple[str, int]], error: int) -> None:
        """Count the words of another, whose counts may be too low by `error`."""
        self.error += error
        for word, count in words:
            self.add(word, count)

    def top(self, n: int) -> list[tuple[str, int]]:
        """The `n` most frequent words with their counts; of equals the first by the alphabet."""
        return sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:n]

    def rest(self, n: int) -> int:
        """The largest count of a word that is not among the `n` most frequent ones; 0 where there is none."""
        following = self.top(n + 1)[n:]
        return following[0][1] if following else 0

    def _forget(self) -> None:
        less = sorted(self._counts.values(), reverse=True)[self.capacity]
        self.error += less
        self._counts = {word: count - less for word, count in self._counts.items() if count > less}


class Tally:
    """Counts of the rows of one part.

    Parameters
    ----------
    n_topics : int
    reference : Reference or None
        The bins that predictions and topic proportions are counted in.

    Attributes
    ----------
    words : FrequentWords
        Words that the model does not know, but for those that ingestion left out as too frequent.
    n_too_frequent : int
        Tokens of the words that were too frequent.
    """

    def __init__(self, n_topics: int, reference: Reference | None) -> None:
        self._reference = reference
        self._n_rows = 0
        self._flags: Counter[str] = Counter()
        self._tokens = 0
        self._known_tokens = 0
        self._n_predictions = 0
        self._prediction_sum = 0.0
        self._classes: Counter[str] = Counter()
        self._n_words = 0
        self._topic_sums = np.zeros(n_topics)
        self._bins = None if reference is None else reference.no_counts()
        self._n_skipped = 0
        self._skipped: list[dict[str, str]] = []
        self._unreadable: list[dict[str, Any]] = []
        self.words = FrequentWords()
        self.n_too_frequent = 0

    def add(self, scored: Predictions) -> None:
        """Count documents."""
        flags = np.array(scored.flag, dtype=object)
        self._n_rows += len(flags)
        self._flags.update(scored.flag)
        self._tokens += int(scored.tokens.sum())
        self._known_tokens += int(scored.known_tokens.sum())
        if scored.prediction.dtype == object:
            self._classes.update(name for name in scored.prediction.tolist() if name is not None)
        else:
            known = scored.prediction[~np.isnan(scored.prediction)]
            self._n_predictions += len(known)
            self._prediction_sum += float(known.sum())
        # without a known word, predictions and topics are the model's and not the document's
        rests_on_words = scored.known_tokens > 0
        proportions = scored.topic_proportions[rests_on_words]
        self._n_words += len(proportions)
        self._topic_sums += proportions.sum(axis=0)
        if self._reference is not None and self._bins is not None:
            self._bins.add(self._reference, scored.prediction[rests_on_words], proportions)

    def skip(self, place: str, reason: str) -> None:
        """Count a record that was left out."""
        self._n_skipped += 1
        if len(self._skipped) < FIRST_SKIPPED:
            self._skipped.append({"place": encodable(place), "reason": encodable(reason)})

    def lose(self, path: str, reason: str, n_records: int) -> None:
        """Remember a file that cannot be scored to its end, and the number of its records that are lost."""
        self._n_skipped += n_records
        lost = {"path": encodable(path), "reason": encodable(reason), "records": n_records}
        self._unreadable.append(lost)

    @property
    def n_rows(self) -> int:
        """Rows counted."""
        return self._n_rows

    def to_json(self) -> dict[str, Any]:
        """All counts."""
        return {
            "rows": self._n_rows,
            "skipped": {"count": self._n_skipped, "first": self._skipped},
            "unreadable": self._unreadable,
            "flags": dict(sorted(self._flags.items())),
            "tokens": self._tokens,
            "known_tokens": self._known_tokens,
            "too_frequent_tokens": self.n_too_frequent,
            "predictions": {
                "count": self._n_predictions,
                "sum": self._prediction_sum,
                "classes": dict(sorted(self._classes.items())),
            },
            "topics": {"documents": self._n_words, "sums": self._topic_sums.tolist()},
            "bins": None if self._bins is None else self._bins.to_json(),
            "new_words": {
                "words": [[encodable(word), count] for word, count in self.words.top(WORDS_OF_PART)],
                "error": self.words.error + self.words.rest(WORDS_OF_PART),
            },
        }


class RunTally:
    """Counts of all parts, added up."""

    def __init__(self, n_topics: int, reference: Reference | None) -> None:
        self.n_parts = 0
        self.n_rows = 0
        self.flags: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.tokens = 0
        self.known_tokens = 0
        self.n_too_frequent = 0
        self.n_skipped = 0
        self.skipped: list[Any] = []
        self._unreadable: dict[str, dict[str, Any]] = {}
        self.n_predictions = 0
        self.words = FrequentWords()
        self.n_words = 0
        self.bins = None if reference is None else reference.no_counts()
        self._sums: list[float] = []
        self._topic_sums = np.zeros(n_topics)

    def add(self, part: Mapping[str, Any]) -> None:
        """Add the counts of a part, as :meth:`Tally.to_json` gives them."""
        self.n_parts += 1
        self.n_rows += part["rows"]
        self.flags.update(part["flags"])
        self.tokens += part["tokens"]
        self.known_tokens += part["known_tokens"]
        # notes of earlier releases lack it
        self.n_too_frequent += part.get("too_frequent_tokens", 0)
        self.n_skipped += part["skipped"]["count"]
        room = FIRST_SKIPPED_OF_RUN - len(self.skipped)
        self.skipped += part["skipped"]["first"][:room]
        for file in part["unreadable"]:
            self.lose(file["path"], file["reason"], file.get("records", 0))  # older notes lack the number
        self.n_predictions += part["predictions"]["count"]
        self._sums.append(part["predictions"]["sum"])
        self.classes.update(part["predictions"]["classes"])
        self.n_words += part["topics"]["documents"]
        self._topic_sums += np.array(part["topics"]["sums"])
        if self.bins is not None and part["bins"] is not None:
            self.bins.add_json(part["bins"])
        self.words.merge(
            ((word, count) for word, count in part["new_words"]["words"]), part["new_words"]["error"]
        )

    def lose(self, path: str, reason: str, n_records: int) -> None:
        """Add a file that cannot be scored to its end; if several parts name it, the first reason stays."""
        lost = self._unreadable.setdefault(path, {"path": path, "reason": reason, "records": 0})
        lost["records"] += n_records

    @property
    def unreadable(self) -> list[dict[str, Any]]:
        """The files that cannot be scored to their end."""
        return list(self._unreadable.values())

    @property
    def oov_share(self) -> float | None:
        """Share of the tokens that the model does not know; None where there are none."""
        return oov_share(self.known_tokens, self.tokens)

    @property
    def mean_prediction(self) -> float | None:
        """Mean of the predictions; None where no row has a number."""
        return math.fsum(self._sums) / self.n_predictions if self.n_predictions else None

    @property
    def mean_topics(self) -> NDArray[np.float64] | None:
        """Mean topic proportions of documents with a known word; None where there is none."""
        return self._topic_sums / self.n_words if self.n_words else None

    def new_words(self) -> list[dict[str, Any]]:
        """The most frequent words that the model does not know."""
        return [{"word": word, "count": count} for word, count in self.words.top(WORDS_OF_RUN)]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows with the identifier of an earlier row.

    Attributes
    ----------
    count : int
        Two different identifiers have the same hash by chance in one of 10^19 pairs: among a million rows one is counted
        too many with a probability of 3 in 10^8, among a thousand million with 3 in 100.
    first : tuple of str
        The first of the identifiers that are there more than once, by the alphabet of their hashes.
    """

    count: int
    first: tuple[str, ...]


def find_duplicates(
    files: Sequence[tuple[Location, Location]], output_format: str, n_rows: int
) -> Duplicates:
    """Find duplicates in the files of all parts: their rows, and the hashes of their identifiers."""
    n_ranges = max(-(-n_rows // HASHES_AT_ONCE), 1)
    borders = [(i << 64) // n_ranges for i in range(n_ranges + 1)]
    n = 0
    first: list[int] = []
    for low, high in pairwise(borders):
        together = np.sort(
            np.concatenate([np.zeros(0, np.uint64), *(_between(ids, low, high) for _, ids in files)])
        )
        repeated = together[1:][together[1:] == together[:-1]]
        n += len(repeated)
        if len(first) < N_NAMED:
            first += np.unique(repeated)[: N_NAMED - len(first)].tolist()
    return Duplicates(n, _named(files, output_format, first) if first else ())


def _between(place: Location, low: int, high: int) -> NDArray[np.uint64]:
    """The hashes of a part from `low` to below `high`."""
    if place.local:
        hashes = (
            np.memmap(place.url, dtype="<u8", mode="r") if _has_content(place) else np.zeros(0, np.uint64)
        )
    else:
        fs, path = place.file_system()
        hashes = np.frombuffer(fs.cat_file(path), dtype="<u8")
    a = int(np.searchsorted(hashes, np.uint64(low)))
    b = len(hashes) if high >= 1 << 64 else int(np.searchsorted(hashes, np.uint64(high)))
    return np.array(hashes[a:b], dtype=np.uint64)


def _has_content(place: Location) -> bool:
    fs, path = place.file_system()
    return int(fs.size(path)) > 0


def _named(
    files: Sequence[tuple[Location, Location]], output_format: str, wanted: Sequence[int]
) -> tuple[str, ...]:
    """Identifiers of the hashes, looked up in the parts that hold them."""
    left = dict.fromkeys(wanted, "")
    for file, ids in files:
        if all(left.values()):
            break
        fs, path = ids.file_system()
        hashes = np.frombuffer(fs.cat_file(path), dtype="<u8")
        if not np.isin(np.array(wanted, dtype=np.uint64), hashes).any():
            continue
        names = rows_of_ids(file, output_format)
        for name, hashed in zip(names, hashes_of(name.encode() for name in names).tolist(), strict=True):
            if hashed in left:
                left[hashed] = name
    return tuple(left.values())
