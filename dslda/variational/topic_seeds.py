"""Seed words: an asymmetric Dirichlet prior that holds topics at words that the user chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dslda.exceptions import InputError
from dslda.families.base import Array
from dslda.topic_labels import checked_label

__all__ = ["TopicSeeds", "checked_seed_words"]


@dataclass(frozen=True, slots=True, eq=False)
class TopicSeeds:
    """Pairs of a word and a topic whose prior holds the word.

    The pseudo-count of a pair is the count of its word in all documents. It is the least that gives no other topic more of
    the word: with expected counts n_kv, which add up to n_v over the topics, n_kv + n_v >= n_v >= n_jv for every topic j.
    So a topic keeps its seeds whatever the words around them, and whatever the size of the corpus; other words come to it
    by the documents.

    Attributes
    ----------
    terms, topics : ndarray of int64, shape (n_pairs,)
        All pairs are different.
    """

    terms: NDArray[np.int64]
    topics: NDArray[np.int64]

    def pseudo_counts(self, topic_counts: Array) -> Array:
        """Of each pair, from the expected counts of all documents, shape (V, K)."""
        counts: Array = topic_counts[self.terms].sum(axis=1)
        return counts

    def add_to(self, topic_counts: Array, pseudo_counts: Array) -> None:
        """Add the pseudo-counts to expected counts, in place."""
        topic_counts[self.terms, self.topics] += pseudo_counts

    def favour_in(self, topics: Array) -> None:
        """Raise the seeds in starting topics, in place: as if every topic had 1 / K of the words beside the prior."""
        topics[self.terms, self.topics] *= 1.0 + topics.shape[1]

    def log_prior(self, topics: Array, pseudo_counts: Array) -> float:
        """Sum of pseudo-count times log beta, what seeds add to the log density of topics that are points."""
        held = pseudo_counts > 0.0
        return float(pseudo_counts[held] @ np.log(topics[self.terms, self.topics][held]))

    def divergence(
        self, topics: Array, concentration: Array, pseudo_counts: Array, *, topic_prior: float, n_known: int
    ) -> float:
        """What seeds add to the divergence of topics that are distributions from their prior; `topics` are the means."""
        held = pseudo_counts > 0.0
        counts, k = pseudo_counts[held], self.topics[held]
        parameters = concentration[k] * topics[self.terms[held], k]
        expected_logs = special.digamma(parameters) - special.digamma(concentration[k])
        total = n_known * topic_prior
        of_topics = np.bincount(k, weights=counts, minlength=len(concentration))
        return float(
            np.sum(special.gammaln(topic_prior + counts) - special.gammaln(topic_prior))
            - np.sum(special.gammaln(total + of_topics) - special.gammaln(total))
            - counts @ expected_logs
        )


def checked_seed_words(given: Any, n_topics: int) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    """Names of topics with their words, as settings keep them: pairs, since their order numbers the topics.

    Parameters
    ----------
    given : mapping of str to iterable of str, sequence of pairs, or None
    n_topics : int

    Raises
    ------
    InputError
        It is something else, or empty; there are more names than topics; a name comes twice or cannot be a label; or a topic
        has no words.
    """
    if given is None:
        return None
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if (
        not isinstance(pairs, (list, tuple))
        or not pairs
        or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs)
    ):
        raise InputError(
            "must map names of topics to lists of words, such as {'fit': ['small', 'tight']}, got "
            f"{given!r:.60}",
            parameter="seed_words",
        )
    checked = tuple(
        (checked_label(name, parameter="seed_words"), _words(name, words)) for name, words in pairs
    )
    names = [name for name, _ in checked]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"must name each topic once, got {twice!r} twice", parameter="seed_words")
    if len(names) > n_topics:
        raise InputError(
            f"must name no more topics than there are, got {len(names)} names for n_topics={n_topics}",
            parameter="seed_words",
            remedy="raise {n_topics}",
        )
    return checked


def _words(name: str, given: Any) -> tuple[str, ...]:
    words = () if isinstance(given, (str, bytes, Mapping)) or not hasattr(given, "__iter__") else tuple(given)
    if not words or not all(isinstance(word, str) and word for word in words):
        raise InputError(
            f"must have a list of words for the topic {name!r:.60}, got {given!r:.60}", parameter="seed_words"
        )
    return tuple(dict.fromkeys(str(word) for word in words))
