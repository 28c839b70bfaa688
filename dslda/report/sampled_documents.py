"""Documents of a corpus beside their predictions, and those that each topic describes best, read one partition at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.block import DocumentBlock, document_mask
from dslda.corpus.store import Corpus
from dslda.evaluation.metrics import held_out
from dslda.exceptions import InputError
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.columns import check_columns, columns_of_corpus
from dslda.prediction.predict import predict_block, topic_shares
from dslda.prediction.record_counting import CountedBlock, aligned_block, chosen_blocks, corpus_alignment
from dslda.report.representatives import BestDocuments
from dslda.wording import number_name, short_repr

__all__ = [
    "MOST_DOCUMENTS",
    "SampledDocuments",
    "counted_blocks",
    "observed_responses_of",
    "sampled_documents",
    "unseen_documents",
]

MOST_DOCUMENTS = 20_000
"""Documents of a sample: the best five of a topic among these are as good examples as among millions."""
MOST_UNSEEN = 10_000
"""Of these, documents kept from training."""
LEAST_DOCUMENTS = 1_000
TOKEN_TOPICS = 4e8
"""Documents of a sample times their tokens times topics: less than a minute of inference."""
SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class SampledDocuments:
    """A sample of a corpus, beside its predictions.

    Attributes
    ----------
    rows : ndarray of int64, shape (D,)
        Numbers of the documents in the corpus, ascending.
    observed, predicted : ndarray of float64, shape (D,), or of object for classes and levels with names
        NaN or None where missing. For a response of two classes both are numbers, 1 and the probability of the second.
    names : ndarray of object, shape (D,), or None
        Names of the observed classes or levels, where the response has names.
    certainty : ndarray of float64, shape (D,), or None
        Probability of the most probable class or level.
    known_tokens : ndarray of int64, shape (D,)
    unseen : ndarray of bool, shape (D,)
        Documents that training is known to have kept out.
    best : BestDocuments
        The documents of each topic.
    n_documents : int
        Of the corpus, or of those to choose from.
    """

    rows: NDArray[np.int64]
    observed: NDArray[Any]
    predicted: NDArray[Any]
    names: NDArray[Any] | None
    certainty: NDArray[np.float64] | None
    known_tokens: NDArray[np.int64]
    unseen: NDArray[np.bool_]
    best: BestDocuments
    n_documents: int

    __repr__ = short_repr


def unseen_documents(record: ModelRecord, corpus: Corpus) -> NDArray[np.bool_] | None:
    """Mask of the documents that training kept out; None where the model does not know which these are."""
    held = record.training.held_out
    if held is None or held.share is None or record.corpus_hash != corpus.content_hash:
        return None
    return held_out(corpus.n_documents, held.share)


def sampled_documents(
    record: ModelRecord,
    corpus: Corpus,
    *,
    n_best: int,
    documents: ArrayLike | None = None,
    realign: bool = False,
    topics: Sequence[int] | None = None,
) -> SampledDocuments:
    """Predict a sample of the documents of a corpus, and find those that topics describe best.

    The sample depends on the corpus alone: all documents of a small one, else up to 20,000, of which those kept from
    training come first.

    Parameters
    ----------
    record : ModelRecord
        See :attr:`~dslda.model.Model.scoring_record`.
    corpus : Corpus
    n_best : int
        Documents of each topic.
    documents, realign
        As :meth:`dslda.model.Model.predict` takes them.
    topics : sequence of int, optional
        All by default.

    Raises
    ------
    InputError, VocabularyMismatchError
        As :meth:`dslda.model.Model.predict`.
    """
    mask = np.ones(corpus.n_documents, dtype=np.bool_)
    if documents is not None:
        mask = document_mask(documents, corpus.n_documents)
    unseen = unseen_documents(record, corpus)
    chosen = _sample(record, mask, unseen)
    best = BestDocuments(range(record.parameters.n_topics) if topics is None else topics, n_best)
    parts: list[dict[str, Any]] = []
    for rows, block, counted in counted_blocks(record, corpus, documents=chosen, realign=realign):
        scored = predict_block(record, counted, [""] * block.n_documents)
        names, observed = observed_responses_of(record, corpus, block)
        best.add(rows, topic_shares(record, counted), scored.known_tokens, counted)
        certainty = scored.probabilities
        parts.append(
            {
                "rows": rows,
                "observed": observed,
                "predicted": scored.prediction,
                "names": names,
                "certainty": None if certainty is None else certainty.max(axis=1),
                "known_tokens": scored.known_tokens,
            }
        )

    if not parts:
        raise InputError("has no documents", place=corpus.path)

    def joined(name: str) -> Any:
        arrays = [part[name] for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    rows = joined("rows")
    return SampledDocuments(
        **{name: joined(name) for name in parts[0]},
        unseen=np.zeros(len(rows), dtype=np.bool_) if unseen is None else unseen[rows],
        best=best,
        n_documents=int(mask.sum()),
    )


def counted_blocks(
    record: ModelRecord, corpus: Corpus, *, documents: ArrayLike | None, realign: bool
) -> Iterator[tuple[NDArray[np.int64], DocumentBlock, CountedBlock]]:
    """Row numbers, stored documents with their responses, and the same counted over the model's vocabulary."""
    alignment = corpus_alignment(corpus, record, realign=realign)
    names = check_columns(corpus, record)
    responses = [record.response] if record.response in corpus.response_names else []
    for rows, block in chosen_blocks(corpus, documents, responses=responses, covariates=names, doc_id=True):
        columns = columns_of_corpus(block.covariates, record, corpus.levels, rows)
        yield rows, block, replace(aligned_block(block, alignment), columns=columns)


def _sample(
    record: ModelRecord, mask: NDArray[np.bool_], unseen: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """The documents to read, of those in the mask."""
    per_document = max(record.training.n_tokens / max(record.training.n_documents, 1), 1.0)
    affordable = int(TOKEN_TOPICS / (per_document * record.parameters.n_topics * len(record.starts)))
    most = min(max(affordable, LEAST_DOCUMENTS), MOST_DOCUMENTS)
    if mask.sum() <= most:
        return mask
    rng = np.random.default_rng(SEED)
    first = np.zeros_like(mask) if unseen is None else mask & unseen
    chosen = np.zeros_like(mask)
    for candidates, n in ((first, min(MOST_UNSEEN, most // 2)), (mask & ~first, most)):
        rows = np.flatnonzero(candidates)
        n = min(n, most - int(chosen.sum()), len(rows))
        chosen[rng.choice(rows, n, replace=False)] = True
    return chosen


def observed_responses_of(
    record: ModelRecord, corpus: Corpus, block: DocumentBlock
) -> tuple[NDArray[Any] | None, NDArray[Any]]:
    """Names of the observed classes or levels, where there are any, and the responses as predictions are."""
    n = block.n_documents
    values = block.responses.get(record.response or "", np.full(n, np.nan))
    design, classes = record.design, record.classes
    if design.auxiliary is not None and not design.trials and design.auxiliary in block.covariates:
        # a duration that was cut off is only a lower bound
        values = np.where(block.covariates[design.auxiliary] == 0.0, np.nan, values)
    if classes is None:
        return None, values
    stored = corpus.levels.get(record.response or "")
    known = set(classes)
    names = np.array(
        [
            None
            if value != value
            or (name := number_name(value) if stored is None else stored[int(value)]) not in known
            else name
            for value in values.tolist()
        ],
        dtype=object,
    )
    if record.predicts_names:
        return names, names
    numbers = record.level_numbers
    codes = {name: float(c if numbers is None else numbers[c]) for c, name in enumerate(classes)}
    return names, np.array([np.nan if name is None else codes[name] for name in names.tolist()])
