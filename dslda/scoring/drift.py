"""How far the documents scored have moved from those trained on: population stability indices, and topics by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.persistence.reference import Reference
from dslda.scoring.tally import RunTally

__all__ = ["MODERATE", "STRONG", "drift_report", "stability_index"]

MODERATE = 0.1
STRONG = 0.25
"""What is usually read from an index: below the first, little has changed; above the second, much."""


def stability_index(now: NDArray[np.int64], then: NDArray[np.int64]) -> float:
    """Population stability index: sum over the bins of (p - q) log(p / q), p and q being the shares of now and then.

    Half a document is added to every bin that has any, so that an empty one does not make it infinite.

    Parameters
    ----------
    now, then : ndarray of int64, shape (bins,)
        Documents.
    """
    used = (now > 0) | (then > 0)
    p, q = now[used] + 0.5, then[used] + 0.5
    p, q = p / p.sum(), q / q.sum()
    return float(np.sum((p - q) * np.log(p / q)))


def drift_report(tally: RunTally, reference: Reference | None) -> dict[str, Any] | None:
    """What a manifest says of drift; None where the model does not know what it was trained on, or nothing was scored."""
    if reference is None or tally.bins is None or not tally.n_words:
        return None
    means = tally.mean_topics
    assert means is not None
    topics = [
        stability_index(now, then)
        for now, then in zip(tally.bins.topics, reference.topic_counts, strict=True)
    ]
    return {
        "documents": tally.n_words,
        "reference_documents": int(reference.topic_counts[0].sum()),
        "reference": "trained on" if reference.of_training else "kept from training",
        "prediction_psi": stability_index(tally.bins.predictions, reference.prediction_counts)
        if tally.bins.predictions.any()
        else None,
        "largest_topic_psi": max(topics),
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
