"""Drift of the documents scored from those trained on: population stability indices, and the share of new tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.summary import new_share
from dslda.persistence.model_record import ModelRecord
from dslda.scoring.tally import RunTally

__all__ = ["drift_figures", "drift_report", "new_share_warned_above", "stability_index", "warned_above"]

STRONG = 0.25
"""With many documents, an index above it is usually read as a large change."""

NEW_STRONG = 0.1
"""Rise of the share of new tokens, with many documents. Among like texts it was 0.01 to 0.04, among others 0.15 to 0.7."""
NEW_SCATTER = 0.1
"""Standard deviation of the share among like documents: it was 0.05 to 0.11."""
NEW_FEW = 1.0
"""Share of new tokens in like texts that a vocabulary of n documents leaves, times sqrt(n). With all words of 200 documents
the share was 0.08 to 0.11, of 1,500 documents 0.02 to 0.04."""


def stability_index(now: NDArray[np.int64], then: NDArray[np.int64]) -> float:
    """Population stability index: sum over the bins of (p - q) log(p / q), p and q being the shares of now and then.

    Half a document is added to every bin that holds any, so that the index stays finite.

    Parameters
    ----------
    now, then : ndarray of int64, shape (bins,)
        Documents.
    """
    used = (now > 0) | (then > 0)
    p, q = now[used] + 0.5, then[used] + 0.5
    p, q = p / p.sum(), q / q.sum()
    return float(np.sum((p - q) * np.log(p / q)))


def warned_above(n_bins: int, now: int, then: int) -> float:
    """Index above which a change is more than chance among few documents.

    Without any change the index is about chi-square with `n_bins` - 1 degrees of freedom times 1 / `now` + 1 / `then`. The
    usual limit is raised by the mean of that, and by three standard deviations.

    Parameters
    ----------
    n_bins : int
    now, then : int
        Documents, at least 1.
    """
    degrees = n_bins - 1
    return STRONG + (degrees + 3.0 * math.sqrt(2.0 * degrees)) * (1.0 / now + 1.0 / then)


def new_share_warned_above(training: float, now: int, then: int) -> float:
    """Share of new tokens above which a rise is more than chance among few documents.

    Only a rise counts: fewer new tokens than in training take nothing from a prediction.

    Parameters
    ----------
    training : float
        Share of the corpus trained on.
    now, then : int
        Documents scored and trained on, at least 1.
    """
    return training + NEW_STRONG + 3.0 * NEW_SCATTER / math.sqrt(now) + NEW_FEW / math.sqrt(then)


def drift_report(tally: RunTally, record: ModelRecord, *, of_texts: bool) -> dict[str, Any] | None:
    """Drift as a manifest reports it; None where the model keeps no reference, or nothing was scored.

    Parameters
    ----------
    tally : RunTally
    record : ModelRecord
        Of the model.
    of_texts : bool
        The documents have all their words, as those of files have. Documents of a corpus have lost the words that its
        vocabulary lacks, so their share of unknown tokens is compared with nothing.
    """
    reference, training = record.reference, record.training
    if reference is None or tally.bins is None or not tally.n_words:
        return None
    means = tally.mean_topics
    assert means is not None
    n_reference = int(reference.topic_counts[0].sum())
    training_share = training.new_share if of_texts else None
    limit = None
    if training_share is not None:
        limit = new_share_warned_above(training_share, tally.n_words, max(training.n_documents, 1))
    topics = [
        stability_index(now, then)
        for now, then in zip(tally.bins.topics, reference.topic_counts, strict=True)
    ]
    return {
        "documents": tally.n_words,
        "reference_documents": n_reference,
        "reference": reference.of_which,
        "prediction_psi": stability_index(tally.bins.predictions, reference.prediction_counts)
        if tally.bins.predictions.any()
        else None,
        "prediction_warned_above": warned_above(len(reference.prediction_counts), tally.n_words, n_reference),
        "largest_topic_psi": max(topics),
        "topics_warned_above": warned_above(reference.topic_counts.shape[1], tally.n_words, n_reference),
        "oov_share": tally.oov_share,
        "training_oov_share": training.oov_share if of_texts else None,
        "new_share": None
        if training_share is None
        else new_share(tally.known_tokens, tally.tokens, tally.n_too_frequent),
        "training_new_share": training_share,
        "new_share_warned_above": limit,
        "topics": [
            {
                "topic": k,
                "psi": index,
                "mean": float(means[k]),
                "reference_mean": float(reference.topic_means[k]),
            }
            for k, index in enumerate(topics)
        ],
    }


def drift_figures(manifest: Mapping[str, Any]) -> dict[str, float | None]:
    """Figures of a complete run to watch from one run to the next; None where one is not training_share."""
    drift = manifest["drift"] or {}
    return {
        "oov_share": manifest["oov_share"],
        "training_oov_share": drift.get("training_oov_share"),
        "new_share": drift.get("new_share"),
        "training_new_share": drift.get("training_new_share"),
        "prediction_mean": manifest["predictions"]["mean"],
        "prediction_psi": drift.get("prediction_psi"),
        "largest_topic_psi": drift.get("largest_topic_psi"),
    }
