"""What the sections of a report draw from: the model, a sample of its documents, and what is said of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import Note, Words
from dslda.report.drawing import average_document
from dslda.report.formatting import Digits
from dslda.report.model_notes import unstable_topics
from dslda.report.topic_figures import EACH_END, both_ends
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.coefficients import Topic
    from dslda.corpus.store import Corpus
    from dslda.model import Model
    from dslda.report.representative_documents import Representative
    from dslda.report.sampled_documents import SampledDocuments
    from dslda.report.tfidf_rival import Rival

__all__ = ["TOP_WORDS", "Findings", "topics_with_cards"]

TOP_WORDS = 12
TYPICAL_WORDS = 8
FEWEST_UNSEEN = 50
"""Documents kept from training from which on they alone are compared with their predictions."""


@dataclass(eq=False)
class Findings:
    """All that is known when the page is made.

    Attributes
    ----------
    model : Model
    corpus : Corpus or None
    sample : SampledDocuments or None
        None without a corpus.
    documents : mapping of int to sequence of Representative
        Those of the topics that have a card.
    example : Representative or None
        The document whose prediction is taken apart, with its largest topic.
    rival : Rival or None
    excerpts : {"texts", "words", "withheld"}
        What is shown of a document.
    realign : bool
    words : Words or None
        Translates references to parameters into those of an interface.
    """

    model: Model
    corpus: Corpus | None = None
    sample: SampledDocuments | None = None
    documents: Mapping[int, Sequence[Representative]] = field(default_factory=dict)
    example: Representative | None = None
    rival: Rival | None = None
    excerpts: str = "withheld"
    realign: bool = False
    words: Words | None = None

    @property
    def response(self) -> str:
        """Name of the response."""
        return self.model.response or "the response"

    @property
    def has_classes(self) -> bool:
        """True where each class has coefficients of its own."""
        return self.model.record.parameters.n_classes is not None

    @cached_property
    def topics(self) -> tuple[Topic, ...]:
        """All topics, from the lowest coefficient to the highest, or by class."""
        return self.model.topics(top=TOP_WORDS)

    @cached_property
    def typical_words(self) -> dict[int, tuple[str, ...]]:
        """The words of each topic by FREX."""
        return {topic.topic: topic.words for topic in self.model.topics(top=TYPICAL_WORDS, words="frex")}

    @property
    def has_intervals(self) -> bool:
        """True for a fit with a bootstrap."""
        return self.topics[0].low is not None

    @cached_property
    def unstable(self) -> list[int]:
        """Numbers of the unstable topics."""
        return unstable_topics(self.model)

    @cached_property
    def average(self) -> float:
        """Linear predictor of the average document."""
        return average_document(self.model)

    @cached_property
    def digits(self) -> Digits:
        """Decimals of the coefficients."""
        return Digits.of(self.topics)

    @cached_property
    def compared(self) -> NDArray[np.bool_]:
        """The documents of the sample whose responses are compared with their predictions."""
        sample = self.sample
        if sample is None:
            return np.zeros(0, dtype=np.bool_)
        known = np.ones(len(sample.rows), dtype=np.bool_)
        for values in (sample.observed, sample.predicted):
            is_name = values.dtype == object
            known &= [value is not None for value in values.tolist()] if is_name else np.isfinite(values)
        kept = known & sample.unseen
        return kept if kept.sum() >= FEWEST_UNSEEN else known

    @property
    def compared_in_words(self) -> str:
        """These documents, in a sentence."""
        assert self.sample is not None
        assert self.corpus is not None
        documents = number_of(int(self.compared.sum()), "document")
        if self.sample.unseen[self.compared].all():
            return f"These are {documents} that were kept from training."
        of_all = ""
        if len(self.sample.rows) < self.sample.n_documents:
            of_all = f", a sample of {self.sample.n_documents:,},"
        if self.model.record.corpus_hash == self.corpus.content_hash:
            return (
                f"These are {documents}{of_all} of the corpus that the model was trained on. It has seen most of their "
                "responses, so new documents are predicted less well."
            )
        return (
            f"These are {documents}{of_all} of another corpus than the one trained on. If training has seen some of them, "
            "new documents are predicted less well."
        )

    def say(self, note: Note) -> str:
        """A note in the words of the interface."""
        return str(note) if self.words is None else note.in_words(self.words)


def topics_with_cards(model: Model, topics: Sequence[Topic]) -> list[Topic]:
    """All topics, or of many those at both ends: for classes those with the largest coefficients, in their order."""
    if model.record.parameters.n_classes is None:
        return both_ends(topics)
    largest = sorted(topics, key=lambda topic: -topic.coefficient)[: 2 * EACH_END]
    chosen = {topic.topic for topic in largest}
    return [topic for topic in topics if topic.topic in chosen]
