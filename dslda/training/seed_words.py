"""The seed words of a fit: as the user writes them in a file, and as terms of the vocabulary."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import DataWarning, InputError, warn
from dslda.variational.topic_seeds import TopicSeeds
from dslda.wording import first_few, number_of

__all__ = ["read_seed_words", "topic_seeds"]

MOST_NAMED = 10
"""Unknown words that a warning names."""


def read_seed_words(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read a text file in UTF-8 with a line for each topic, ``fit: small, tight``.

    Empty lines, and those that begin with ``#``, are passed over. Words may hold blanks, as n-grams do, but no commas.

    Raises
    ------
    InputError
        The file cannot be read, holds no topic, or a line is no such line or repeats a name; the place is named.
    """
    path = os.fspath(path)
    try:
        with open(path, encoding="utf-8-sig") as stream:
            lines = stream.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise InputError(f"cannot be read: {reason}", parameter="seed_words", place=path) from error
    seeds: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, rest = line.partition(":")
        name, words = name.strip(), [word.strip() for word in rest.split(",") if word.strip()]
        place = f"{path}: line {number}"
        if not (colon and name and words):
            raise InputError(
                f"must be a name and its words, such as 'fit: small, tight', got {line.strip()!r:.60}",
                place=place,
                parameter="seed_words",
            )
        if name in seeds:
            raise InputError(
                f"must name each topic once, got {name!r:.60} twice", place=place, parameter="seed_words"
            )
        seeds[name] = words
    if not seeds:
        raise InputError("must have a line for a topic, got none", place=path, parameter="seed_words")
    return seeds


def topic_seeds(
    seeded_topics: Sequence[tuple[str, Sequence[str]]], vocabulary: Vocabulary | None
) -> TopicSeeds | None:
    """The seed words as terms; the first topics have them, in the order of their names.

    Words that the vocabulary lacks are left out, with one warning.

    Raises
    ------
    InputError
        There is no vocabulary, or it has no word of a topic.
    """
    if not seeded_topics:
        return None
    if vocabulary is None:
        raise InputError(
            "needs documents whose terms have names, got a matrix without them",
            parameter="seed_words",
            remedy="name its columns with {terms=}",
        )
    pairs, unknown = [], []
    for topic, (name, words) in enumerate(seeded_topics):
        known = [word for word in words if word in vocabulary.index]
        if not known:
            raise InputError(
                f"must have a word of the vocabulary for the topic {name!r}, got {', '.join(map(repr, words)):.200}",
                parameter="seed_words",
                remedy="write words as the documents have them after tokenisation, mostly in lower case",
            )
        pairs += [(vocabulary.index[word], topic) for word in known]
        unknown += [f"{word!r} ({name})" for word in words if word not in vocabulary.index]
    if unknown:
        n = number_of(len(unknown), "seed word is", "seed words are")
        warn(
            DataWarning(
                f"{n} not in the vocabulary, and left out: {first_few(unknown, MOST_NAMED)}",
                remedy="write words as the documents have them after tokenisation, mostly in lower case",
            )
        )
    terms, topics = np.array(pairs, dtype=np.int64).T
    return TopicSeeds(terms, topics)
