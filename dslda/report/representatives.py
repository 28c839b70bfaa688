"""The documents that a topic describes best, and the words that carry it in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.persistence.model_record import ModelRecord
from dslda.prediction.record_counting import CountedBlock

__all__ = ["BestDocuments", "carrying_words", "wilson"]

NORMAL_95 = 1.959964
CARRYING = 8
"""Words that carry a topic in a document, at most."""
LEAST_SHARE = 0.05
"""Share of its words below which a document is about something else."""

Candidate: TypeAlias = tuple[float, int, int, float]
"""Lower end of the share, less its row (so that the first of equals wins), a hash of the words, the share."""


def wilson(share: ArrayLike, n: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of Wilson's 95% interval of a share in n draws; 0 and 1 for none."""
    p, size = np.asarray(share, dtype=np.float64), np.asarray(n, dtype=np.float64)
    z2 = NORMAL_95**2
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (p + z2 / (2.0 * size)) / (1.0 + z2 / size)
        half = NORMAL_95 * np.sqrt(p * (1.0 - p) / size + z2 / (4.0 * size**2)) / (1.0 + z2 / size)
    nothing = size <= 0.0
    return np.where(nothing, 0.0, middle - half), np.where(nothing, 1.0, middle + half)


class BestDocuments:
    """The documents with the largest shares of each topic, out of blocks that pass by.

    Documents are ordered by the lower end of Wilson's 95% interval of the topic's share in their known words, as if these
    words were draws. So three words of one topic (at least 44% of it) come after thirty of which 80% are of it (63%).
    Of documents with the same words the first counts; those with less than 5% of the topic do not.

    Parameters
    ----------
    topics : sequence of int
    n : int
        Documents of each topic.
    """

    def __init__(self, topics: Sequence[int], n: int) -> None:
        self.topics = [int(topic) for topic in topics]
        self._n = n
        self._candidates: dict[int, list[Candidate]] = {topic: [] for topic in self.topics}

    def add(
        self,
        rows: NDArray[np.int64],
        shares: NDArray[np.float64],
        known_tokens: NDArray[np.int64],
        counted: CountedBlock,
    ) -> None:
        """Compare the documents of a block, whose topics have these shares, shape (D, K), with those so far."""
        block = counted.block
        lowest, _ = wilson(np.clip(np.nan_to_num(shares), 0.0, 1.0), known_tokens[:, np.newaxis])
        for topic in self.topics:
            column = lowest[:, topic]
            candidates = self._candidates[topic]
            bar = candidates[-1][0] if len(candidates) == self._n else 0.0
            # a few more than wanted, since some may be copies
            for d in np.argsort(-column, kind="stable")[: 4 * self._n].tolist():
                if column[d] <= bar:
                    break
                if not shares[d, topic] >= LEAST_SHARE:
                    continue
                own = slice(block.indptr[d], block.indptr[d + 1])
                words = hash((block.terms[own].tobytes(), block.counts[own].tobytes()))
                candidates.append((float(column[d]), -int(rows[d]), words, float(shares[d, topic])))
            candidates.sort(reverse=True)
            seen: set[int] = set()
            kept = [c for c in candidates if not (c[2] in seen or seen.add(c[2]))]  # type: ignore[func-returns-value]
            self._candidates[topic] = kept[: self._n]

    def of(self, topic: int) -> list[tuple[int, float]]:
        """Rows and shares of the documents of a topic, the best first."""
        return [(-row, share) for _, row, _, share in self._candidates[topic]]


def carrying_words(
    record: ModelRecord,
    counted: CountedBlock,
    document: int,
    shares: NDArray[np.float64],
    topic: int,
) -> list[str]:
    """The words of a document that carry a topic in it, the strongest first.

    A word counts by its part in what sets the topic apart, p(w | topic) log(p(w | topic) / p(w)), by the share of its
    occurrences that is of the topic given the topics of the document, and by the square root of their number. So neither
    common words win, nor rare ones that the topic hardly knows.

    Parameters
    ----------
    record : ModelRecord
    counted : CountedBlock
    document : int
        Position in the block.
    shares : ndarray of float64, shape (K,)
        Of the topics in the document's known words.
    topic : int
    """
    assert record.vocabulary is not None
    block = counted.block
    own = slice(block.indptr[document], block.indptr[document + 1])
    terms, counts = block.terms[own], block.counts[own]
    weights = record.parameters.topics[terms]
    prevalence = record.prevalence
    overall = weights.mean(axis=1) if prevalence is None else weights @ prevalence
    mixed = weights @ np.nan_to_num(shares)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_topic = np.nan_to_num(weights[:, topic] * shares[topic] / mixed)
        lift = np.nan_to_num(np.log(weights[:, topic] / overall), neginf=0.0)
    strength = np.sqrt(counts) * of_topic * weights[:, topic] * np.maximum(lift, 0.0)
    best = np.argsort(-strength, kind="stable")[:CARRYING]
    return [record.vocabulary.terms[terms[t]] for t in best.tolist() if strength[t] > 0.0]
