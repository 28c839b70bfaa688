"""The documents that topics describe best, with what is known of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dslda.corpus.store import Corpus
from dslda.exceptions import DataWarning, InputError, warn
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.predict import topic_shares
from dslda.report.excerpts import Excerpt, Marker, TextSource, excerpt
from dslda.report.representatives import carrying_words
from dslda.report.sampled_documents import SampledDocuments, counted_blocks, sampled_documents
from dslda.wording import number_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Representative", "described", "representatives", "representatives_table", "with_excerpts"]

logger = logging.getLogger("dslda.report")

SAME_TEXT = 0.5
"""Share of a document's words that its text must have: less is another document's text."""


@dataclass(frozen=True, slots=True)
class Representative:
    """A document that a topic describes well.

    Attributes
    ----------
    topic : int
    id : str
        Its identifier; its position where the corpus has none.
    row : int
        Its position in the corpus.
    share : float
        Share of the topic in its known words.
    known_tokens : int
    observed, predicted : float, str or None
        None where missing.
    words : tuple of str
        Words that carry the topic in it, the strongest first.
    excerpt : list of (str, bool), or None
        Its text or parts of it, in pieces that are marked or not.
    """

    topic: int
    id: str
    row: int
    share: float
    known_tokens: int
    observed: Any
    predicted: Any
    words: tuple[str, ...]
    excerpt: Excerpt | None = None


def representatives(
    record: ModelRecord, corpus: Corpus, sample: SampledDocuments, *, realign: bool = False
) -> dict[int, list[Representative]]:
    """The documents of each topic of a sample, the best first."""
    best = sample.best
    wanted = [(topic, row, share) for topic in best.topics for row, share in best.of(topic)]
    found: dict[int, list[Representative]] = {topic: [] for topic in best.topics}
    for each in described(record, corpus, sample, wanted, realign=realign):
        found[each.topic].append(each)
    return found


def described(
    record: ModelRecord,
    corpus: Corpus,
    sample: SampledDocuments,
    wanted: Sequence[tuple[int, int, float]],
    *,
    realign: bool = False,
) -> list[Representative]:
    """What is known of documents of a sample, each by its topic, row and share; their partitions are read once more."""
    rows_wanted = sorted({row for _, row, _ in wanted})
    observed = sample.observed if sample.names is None else sample.names
    found: dict[tuple[int, int], Representative] = {}
    blocks = counted_blocks(record, corpus, documents=rows_wanted, realign=realign) if wanted else ()
    for rows, block, counted in blocks:
        shares = topic_shares(record, counted)
        places = {row: d for d, row in enumerate(rows.tolist())}
        for topic, row, share in wanted:
            if (d := places.get(row)) is None:
                continue
            at = int(np.searchsorted(sample.rows, row))
            y, expected = (None if v != v else v for v in (observed[at], sample.predicted[at]))
            found[topic, row] = Representative(
                topic=topic,
                id=str(row) if block.doc_id is None else block.doc_id[d],
                row=row,
                share=share,
                known_tokens=int(sample.known_tokens[at]),
                observed=y,
                predicted=expected,
                words=tuple(carrying_words(record, counted, d, shares[d], topic)),
            )
    return [found[topic, row] for topic, row, _ in wanted]


def representatives_table(
    record: ModelRecord,
    corpus: Any,
    *,
    topic: int | None,
    n: int,
    documents: ArrayLike | None,
    realign: bool,
) -> pd.DataFrame:
    """See :meth:`dslda.model.Model.representative_documents`."""
    import pandas as pd

    n_topics = record.parameters.n_topics
    if not isinstance(corpus, Corpus):
        raise InputError(
            f"must be a corpus, got {type(corpus).__name__}",
            parameter="corpus",
            remedy="open one with {open_corpus()}",
        )
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise InputError(f"must be a whole number of at least 1, got {n!r:.60}", parameter="n")
    is_number = isinstance(topic, (int, np.integer)) and not isinstance(topic, bool)
    if topic is not None and not (is_number and 0 <= topic < n_topics):
        raise InputError(f"must be in 0..{n_topics - 1}, got {topic!r:.60}", parameter="topic")
    sample = sampled_documents(
        record,
        corpus,
        n_best=int(n),
        documents=documents,
        realign=realign,
        topics=None if topic is None else [int(topic)],
    )
    if len(sample.rows) < sample.n_documents:
        logger.info("a sample of %s of %s documents", f"{len(sample.rows):,}", f"{sample.n_documents:,}")
    rows = [
        (r.topic, r.id, r.row, r.share, r.known_tokens, r.observed, r.predicted, " ".join(r.words))
        for of_topic in representatives(record, corpus, sample, realign=realign).values()
        for r in of_topic
    ]
    columns = ["topic", "id", "row", "share", "known_tokens", "observed", "predicted", "words"]
    return pd.DataFrame(rows, columns=columns)


def with_excerpts(
    chosen: Sequence[Representative], source: TextSource, marker: Marker
) -> list[Representative]:
    """The same documents with excerpts of their texts, where these are found."""
    ids = {each.id for each in chosen}
    texts = source.of(ids)
    others = {
        each.id
        for each in chosen
        if each.id in texts and each.words and marker.share_found(texts[each.id], each.words) < SAME_TEXT
    }
    if missing := sorted(ids - texts.keys()):
        warn(
            DataWarning(
                f"{len(missing)} of {number_of(len(ids), 'document')} have no text (the first: "
                f"{', '.join(map(repr, missing[:3]))}): the page shows their words",
                remedy="give all files of the corpus, and the field of its identifiers with {id=}",
            )
        )
    if others:
        warn(
            DataWarning(
                f"{number_of(len(others), 'text')} lack the words of their documents (the first: {min(others)!r}): the page "
                "shows the words",
                remedy="give the texts that the corpus was made from, in their order if it has no identifiers",
            )
        )
    found = texts.keys() - others
    return [
        replace(each, excerpt=excerpt(texts[each.id], each.words, marker)) if each.id in found else each
        for each in chosen
    ]
