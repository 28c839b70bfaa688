"""Counts of the rows of a part and of a run, duplicate identifiers, and the drift of documents from those trained on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.levels import encodable
from dslda.corpus.summary import new_share, oov_share
from dslda.ingestion.counting import hashes_of
from dslda.persistence.model_record import BinCounts, ModelRecord, Reference
from dslda.prediction.predict import Predictions
from dslda.scoring.tables import identifiers_in
from dslda.storage.location import Location

__all__ = [
    "FrequentWords",
    "Tally",
    "drift_figures",
    "drift_report",
    "exceeded",
    "find_duplicates",
    "stability_index",
    "warned_above",
]

FIRST_SKIPPED = 10
FIRST_SKIPPED_OF_RUN = 100
WORDS_OF_PART = 200
WORDS_OF_RUN = 50

CAPACITY = 20_000
"""Half of the words that are counted at a time; some MB."""

HASHES_AT_ONCE = 4_000_000
"""Hashes of identifiers in memory at a time, 32 MB; with more rows all hashes are read once for each such number."""

N_NAMED = 10

STRONG = 0.25
"""Index above which a change is usually read as large, with many documents."""
FALSE_ALARMS = 0.01
"""Share of runs without any change that may warn of predictions, and share that may warn of any topic."""

NEW_STRONG = 0.1
"""Rise of the share of new tokens, with many documents. Among like texts it was 0.01 to 0.04, among others 0.15 to 0.7."""
NEW_SCATTER = 0.1
"""Standard deviation of the share among like documents: it was 0.05 to 0.11."""
NEW_FEW = 1.0
"""Share of new tokens in like texts that a vocabulary of n documents leaves, times sqrt(n). With all words of 200 documents
the share was 0.08 to 0.11, of 1,500 documents 0.02 to 0.04."""

FEWEST_EARLIER = 250
"""Fewest rows of earlier runs that later ones are compared with in place of documents trained on."""


class FrequentWords:
    """Counts words, and forgets rare ones when there are too many: the algorithm of Misra and Gries, in batches.

    With more than twice `capacity` words, the count of the word at rank `capacity` + 1 is subtracted from all counts, and
    words whose count is used up are forgotten. So a count is never too high, and too low by at most :attr:`error`, which is
    below the number of words counted divided by `capacity`. The counts depend only on the words and their order.

    Attributes
    ----------
    error : int
        The most by which a count can be too low; 0 while nothing was forgotten.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.error = 0
        self._capacity = capacity
        self._counts: dict[str, int] = {}

    def add(self, word: str, count: int) -> None:
        """Count a word."""
        self._counts[word] = self._counts.get(word, 0) + count
        if len(self._counts) > 2 * self._capacity:
            less = sorted(self._counts.values(), reverse=True)[self._capacity]
            self.error += less
            self._counts = {word: count - less for word, count in self._counts.items() if count > less}

    def merge(self, words: Iterable[tuple[str, int]], error: int) -> None:
        """Add the words of another tally, whose counts may be too low by `error`."""
        self.error += error
        for word, count in words:
            self.add(word, count)

    def top(self, n: int) -> list[tuple[str, int]]:
        """The `n` most frequent words with their counts; equals in alphabetical order."""
        return sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:n]

    def rest(self, n: int) -> int:
        """The largest count of a word outside the `n` most frequent ones; 0 if there is none."""
        following = self.top(n + 1)[n:]
        return following[0][1] if following else 0


class Tally:
    """Counts of the rows of a part, or of all parts of a run.

    `n_words` counts the documents with a known word. `words` are those that the model does not know, except those that
    ingestion left out as too frequent, whose tokens are `n_too_frequent`. The bins for predictions and topic proportions are
    those of the `reference`.
    """

    def __init__(self, n_topics: int, reference: Reference | None) -> None:
        self._reference = reference
        self.n_rows = 0
        self.flags: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.tokens = 0
        self.known_tokens = 0
        self.n_too_frequent = 0
        self.n_skipped = 0
        self.skipped: list[dict[str, str]] = []
        self._unreadable: dict[str, dict[str, Any]] = {}
        self.n_predictions = 0
        self.words = FrequentWords()
        self.n_words = 0
        self.bins = None if reference is None else reference.no_counts()
        # one item for the rows counted here, and one for each note added
        self._prediction_sums = [0.0]
        self._topic_sums = np.zeros(n_topics)

    def add(self, scored: Predictions) -> None:
        """Count documents."""
        self.n_rows += len(scored.flag)
        self.flags.update(scored.flag)
        self.tokens += int(scored.tokens.sum())
        self.known_tokens += int(scored.known_tokens.sum())
        if scored.prediction.dtype == object:
            self.classes.update(name for name in scored.prediction.tolist() if name is not None)
        else:
            numbers = scored.prediction[~np.isnan(scored.prediction)]
            self.n_predictions += len(numbers)
            self._prediction_sums[0] += float(numbers.sum())
        # without a known word, predictions and topics are the model's and not the document's
        rests_on_words = scored.known_tokens > 0
        proportions = scored.topic_proportions[rests_on_words]
        self.n_words += len(proportions)
        self._topic_sums += proportions.sum(axis=0)
        if self._reference is not None and self.bins is not None:
            self.bins.add(self._reference, scored.prediction[rests_on_words], proportions)

    def skip(self, place: str, reason: str) -> None:
        """Count a record that was left out."""
        self.n_skipped += 1
        if len(self.skipped) < FIRST_SKIPPED:
            self.skipped.append({"place": encodable(place), "reason": encodable(reason)})

    def lose(self, path: str, reason: str, n_records: int) -> None:
        """Count a file that cannot be scored to its end, with the number of its records that are lost."""
        self.n_skipped += n_records
        self._add_unreadable(path, reason, n_records)

    def _add_unreadable(self, path: str, reason: str, n_records: int) -> None:
        # the first reason stays for a file in several parts
        lost = self._unreadable.setdefault(path, {"path": path, "reason": reason, "records": 0})
        lost["records"] += n_records

    def to_json(self) -> dict[str, Any]:
        """Counts of a part, as its note holds them."""
        return {
            "rows": self.n_rows,
            "skipped": {"count": self.n_skipped, "first": self.skipped},
            "unreadable": self.unreadable,
            "flags": dict(sorted(self.flags.items())),
            "tokens": self.tokens,
            "known_tokens": self.known_tokens,
            "too_frequent_tokens": self.n_too_frequent,
            "predictions": {
                "count": self.n_predictions,
                "sum": self._prediction_sums[0],
                "classes": dict(sorted(self.classes.items())),
            },
            "topics": {"documents": self.n_words, "sums": self._topic_sums.tolist()},
            "bins": None if self.bins is None else self.bins.to_json(),
            "new_words": {
                "words": [[encodable(word), count] for word, count in self.words.top(WORDS_OF_PART)],
                "error": self.words.error + self.words.rest(WORDS_OF_PART),
            },
        }

    def add_note(self, note: Mapping[str, Any]) -> None:
        """Add the counts of a part from :meth:`to_json`."""
        self.n_rows += note["rows"]
        self.flags.update(note["flags"])
        self.tokens += note["tokens"]
        self.known_tokens += note["known_tokens"]
        self.n_too_frequent += note.get("too_frequent_tokens", 0)  # notes of earlier releases lack it
        self.n_skipped += note["skipped"]["count"]
        self.skipped += note["skipped"]["first"][: FIRST_SKIPPED_OF_RUN - len(self.skipped)]
        for file in note["unreadable"]:
            self._add_unreadable(file["path"], file["reason"], file.get("records", 0))  # as above
        self.n_predictions += note["predictions"]["count"]
        self._prediction_sums.append(note["predictions"]["sum"])
        self.classes.update(note["predictions"]["classes"])
        self.n_words += note["topics"]["documents"]
        self._topic_sums += np.array(note["topics"]["sums"])
        if self.bins is not None and note["bins"] is not None:
            self.bins.add_json(note["bins"])
        self.words.merge(note["new_words"]["words"], note["new_words"]["error"])

    @property
    def unreadable(self) -> list[dict[str, Any]]:
        """The files that cannot be scored to their end."""
        return list(self._unreadable.values())

    @property
    def oov_share(self) -> float | None:
        """Share of the tokens that the model does not know; None without tokens."""
        return oov_share(self.known_tokens, self.tokens)

    @property
    def mean_prediction(self) -> float | None:
        """Mean of the predictions; None where no row has a number."""
        return math.fsum(self._prediction_sums) / self.n_predictions if self.n_predictions else None

    @property
    def mean_topics(self) -> NDArray[np.float64] | None:
        """Mean topic proportions of the documents with a known word; None where there is none."""
        return self._topic_sums / self.n_words if self.n_words else None

    def new_words(self) -> list[dict[str, Any]]:
        """The most frequent words that the model does not know."""
        return [{"word": word, "count": count} for word, count in self.words.top(WORDS_OF_RUN)]


def find_duplicates(
    files: Sequence[tuple[Location, Location]], output_format: str, n_rows: int
) -> dict[str, Any]:
    """Count the rows with the identifier of an earlier row, and name the first of these identifiers by their hashes.

    Each part has a file with its rows, and one with the hashes of their identifiers. Two different identifiers have the same
    hash by chance in one of 10^19 pairs: among a million rows one row is counted too many with a probability of 3 in 10^8,
    among a thousand million with 3 in 100.
    """
    n_ranges = max(-(-n_rows // HASHES_AT_ONCE), 1)
    borders = [(i << 64) // n_ranges for i in range(n_ranges + 1)]
    count = 0
    first: list[int] = []
    for low, high in pairwise(borders):
        ranges = [_between(ids, low, high) for _, ids in files]
        hashes = np.sort(np.concatenate([np.zeros(0, np.uint64), *ranges]))
        repeated = hashes[1:][hashes[1:] == hashes[:-1]]
        count += len(repeated)
        if len(first) < N_NAMED:
            first += np.unique(repeated)[: N_NAMED - len(first)].tolist()
    return {"count": count, "first": _identifiers_of(first, files, output_format)}


def _between(ids: Location, low: int, high: int) -> NDArray[np.uint64]:
    """The hashes of a part from `low` to below `high`."""
    fs, path = ids.file_system()
    if ids.local and fs.size(path):  # an empty file cannot be mapped
        hashes: NDArray[np.uint64] = np.memmap(ids.url, dtype="<u8", mode="r")
    else:
        hashes = np.frombuffer(fs.cat_file(path), dtype="<u8")
    a = int(np.searchsorted(hashes, np.uint64(low)))
    b = len(hashes) if high >= 1 << 64 else int(np.searchsorted(hashes, np.uint64(high)))
    return np.array(hashes[a:b], dtype=np.uint64)


def _identifiers_of(
    wanted: Sequence[int], files: Sequence[tuple[Location, Location]], output_format: str
) -> list[str]:
    """Identifiers with these hashes, looked up in the parts that hold them."""
    identifiers = dict.fromkeys(wanted, "")
    for file, ids in files:
        if all(identifiers.values()):
            break
        fs, path = ids.file_system()
        hashes = np.frombuffer(fs.cat_file(path), dtype="<u8")
        if not np.isin(np.array(wanted, dtype=np.uint64), hashes).any():
            continue
        names = identifiers_in(file, output_format)
        for name, hashed in zip(names, hashes_of(name.encode() for name in names).tolist(), strict=True):
            if hashed in identifiers:
                identifiers[hashed] = name
    return list(identifiers.values())


def stability_index(now: NDArray[np.int64], then: NDArray[np.int64]) -> float:
    """Population stability index: sum over the bins of (p - q) log(p / q), where p and q are the shares of now and then.

    Half a document is added to every bin that holds any, so that the index stays finite.
    """
    used = (now > 0) | (then > 0)
    p, q = now[used] + 0.5, then[used] + 0.5
    p, q = p / p.sum(), q / q.sum()
    return float(np.sum((p - q) * np.log(p / q)))


def warned_above(n_bins: int, now: int, then: int, n_looks: int = 1) -> float:
    """Index above which a change is large, and more than chance among `now` and `then` documents.

    Without any change the index is about chi-square with `n_bins` - 1 degrees of freedom times 1 / `now` + 1 / `then`. So the
    usual limit is raised by the mean of that. With few documents chance alone goes beyond; then the limit is what the largest
    of `n_looks` indices exceeds in a share :data:`FALSE_ALARMS` of runs.
    """
    from scipy.special import chdtri

    degrees, scale = n_bins - 1, 1.0 / now + 1.0 / then
    return max(STRONG + degrees * scale, float(chdtri(degrees, FALSE_ALARMS / n_looks)) * scale)


def drift_report(
    tally: Tally, record: ModelRecord, *, of_texts: bool, earlier: Tally | None = None
) -> dict[str, Any] | None:
    """Drift as a manifest reports it; None where the model keeps no reference, or nothing was scored.

    The share of unknown tokens is compared only `of_texts`: documents of a corpus have lost the words outside its vocabulary.
    Documents trained on are no measure of new ones; where enough were scored `earlier`, these are compared in their place.
    """
    reference, training = record.reference, record.training
    means = tally.mean_topics
    if reference is None or tally.bins is None or means is None:
        return None
    then = BinCounts(reference.prediction_counts, reference.topic_counts)
    in_words, reference_means, of_training = reference.in_words, reference.topic_means, reference.of_training
    if of_training and earlier is not None and earlier.n_words >= FEWEST_EARLIER:
        assert earlier.bins is not None
        assert earlier.mean_topics is not None
        then, in_words, reference_means, of_training = (
            earlier.bins,
            "scored before",
            earlier.mean_topics,
            False,
        )
    n, n_reference = tally.n_words, int(then.topics[0].sum())
    share = limit = None
    training_share = training.new_share if of_texts else None
    if training_share is not None:
        share = new_share(tally.known_tokens, tally.tokens, tally.n_too_frequent)
        # only a rise counts: fewer new words than in training harm no prediction
        few = NEW_FEW / math.sqrt(max(training.n_documents, 1))
        limit = training_share + NEW_STRONG + 3.0 * NEW_SCATTER / math.sqrt(n) + few
    prediction_psi = None
    # fewer than documents where covariates are missing
    n_predictions, n_before = int(tally.bins.predictions.sum()), int(then.predictions.sum())
    if n_predictions and n_before:
        prediction_psi = stability_index(tally.bins.predictions, then.predictions)
    topics: list[dict[str, Any]] = [
        {
            "topic": k,
            **({} if (label := record.label(k)) is None else {"label": label}),
            "psi": stability_index(now, before),
            "mean": float(means[k]),
            "reference_mean": float(reference_means[k]),
        }
        for k, (now, before) in enumerate(zip(tally.bins.topics, then.topics, strict=True))
    ]
    n_topics, n_topic_bins = then.topics.shape
    report = {
        "documents": n,
        "reference_documents": n_reference,
        "reference": in_words,
        "prediction_psi": prediction_psi,
        "prediction_warned_above": warned_above(
            len(then.predictions), n_predictions or n, n_before or n_reference
        ),
        "largest_topic_psi": max(topic["psi"] for topic in topics),
        "topics_warned_above": warned_above(n_topic_bins, n, n_reference, n_topics),
        "oov_share": tally.oov_share,
        "training_oov_share": training.oov_share if of_texts else None,
        "new_share": share,
        "training_new_share": training_share,
        "new_share_warned_above": limit,
        "topics": topics,
    }
    warned = exceeded(report)
    if of_training:
        # everything new is far from the documents trained on, and nobody heeds an alarm that always rings
        warned = [name for name in warned if name == "words"]
    return report | {"warned_of": warned}


def exceeded(drift: Mapping[str, Any]) -> list[str]:
    """What has moved beyond its limit: "words", "predictions", "topics"."""
    figures = {
        "words": ("new_share", "new_share_warned_above"),
        "predictions": ("prediction_psi", "prediction_warned_above"),
        "topics": ("largest_topic_psi", "topics_warned_above"),
    }
    known = {name: (drift[figure], drift[limit]) for name, (figure, limit) in figures.items()}
    return [name for name, pair in known.items() if None not in pair and pair[0] > pair[1]]


def drift_figures(manifest: Mapping[str, Any]) -> dict[str, float | None]:
    """Figures of a complete run to compare from one run to the next; None where one is unknown."""
    drift = manifest["drift"] or {}
    latest = manifest.get("latest")  # folders of earlier releases lack it
    return {
        **_figures_of(manifest),
        **{name: drift.get(name) for name in ("training_oov_share", "training_new_share")},
        "latest_rows": None if latest is None else latest["rows_out"],
        **{f"latest_{name}": value for name, value in _figures_of(latest).items()},
    }


def _figures_of(counts: Mapping[str, Any] | None) -> dict[str, float | None]:
    """Figures of all rows, or of the latest."""
    counts = counts or {}
    drift = counts.get("drift") or {}
    warned_of = drift.get("warned_of")
    return {
        "oov_share": counts.get("oov_share"),
        "prediction_mean": counts.get("predictions", {}).get("mean"),
        **{name: drift.get(name) for name in ("new_share", "prediction_psi", "largest_topic_psi")},
        "drift_warnings": None if warned_of is None else len(warned_of),
    }
