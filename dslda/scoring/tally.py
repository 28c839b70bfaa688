"""What is counted of the rows of a part, and of all parts together, whatever order they are scored in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.levels import encodable
from dslda.corpus.summary import oov_share
from dslda.persistence.training_profile import Reference
from dslda.prediction.results import Predictions
from dslda.scoring.new_words import FrequentWords

__all__ = ["RunTally", "Tally"]

FIRST_SKIPPED = 10
FIRST_SKIPPED_OF_RUN = 100
WORDS_OF_PART = 200
WORDS_OF_RUN = 50


class Tally:
    """Of the rows of one part.

    Parameters
    ----------
    n_topics : int
    reference : Reference or None
        The bins that predictions and topic proportions are counted in.

    Attributes
    ----------
    words : FrequentWords
        Those that the model does not know, without those that ingestion left out as too frequent.
    n_too_frequent : int
        Tokens that are the latter.
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
        # of those of whom no word is known predictions and topics are the model's, not theirs
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
        """Remember a file that cannot be scored to its end, and how many of the records that it has are lost with it."""
        self._n_skipped += n_records
        lost = {"path": encodable(path), "reason": encodable(reason), "records": n_records}
        self._unreadable.append(lost)

    @property
    def n_rows(self) -> int:
        """Rows counted."""
        return self._n_rows

    def to_json(self) -> dict[str, Any]:
        """All that was counted."""
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
    """Of all parts, added up in their order."""

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
        """Add what :meth:`Tally.to_json` says of a part."""
        self.n_parts += 1
        self.n_rows += part["rows"]
        self.flags.update(part["flags"])
        self.tokens += part["tokens"]
        self.known_tokens += part["known_tokens"]
        # parts that an earlier release has scored are without
        self.n_too_frequent += part.get("too_frequent_tokens", 0)
        self.n_skipped += part["skipped"]["count"]
        room = FIRST_SKIPPED_OF_RUN - len(self.skipped)
        self.skipped += part["skipped"]["first"][:room]
        for each in part["unreadable"]:
            self.lose(each["path"], each["reason"], each.get("records", 0))  # older notes have no number
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
        """Add a file that cannot be scored to its end; of one in several parts the first reason stays."""
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
        """None where no row has a number."""
        return math.fsum(self._sums) / self.n_predictions if self.n_predictions else None

    @property
    def mean_topics(self) -> NDArray[np.float64] | None:
        """Mean topic proportions of documents with a known word; None where there is none."""
        return self._topic_sums / self.n_words if self.n_words else None

    def new_words(self) -> list[dict[str, Any]]:
        """The most frequent words that the model does not know."""
        return [{"word": word, "count": count} for word, count in self.words.top(WORDS_OF_RUN)]
