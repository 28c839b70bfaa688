"""What would be used instead of the model: a linear model on TF-IDF, trained and judged on the same documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.store import Corpus
from dslda.evaluation.metrics import predictive_r2
from dslda.evaluation.response_measures import Kind
from dslda.evaluation.rivals import TfidfRegression
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.record_counting import counts_of_corpus
from dslda.report.sampled_documents import (
    SampledDocuments,
    counted_blocks,
    observed_responses_of,
    unseen_documents,
)

__all__ = ["Rival", "tfidf_rival"]

MOST_ENTRIES = 4_000_000
"""(document, term) entries of the corpus, times classes, up to which the rival takes some seconds."""
FEWEST = 100


@dataclass(frozen=True, slots=True)
class Rival:
    """The same measure of the model and of its rival, on documents that neither was trained on.

    Attributes
    ----------
    name : str
    n_documents : int
    measure : {"predictive_r2", "accuracy"}
    ours, theirs : float
    """

    name: str
    n_documents: int
    measure: str
    ours: float
    theirs: float


def tfidf_rival(record: ModelRecord, corpus: Corpus, sample: SampledDocuments) -> Rival | None:
    """Fit the rival to the documents trained on; None where it would not be fair, or would take long.

    It is fair where the model remembers which documents were kept from training, and used nothing but words.
    """
    unseen, design, family = unseen_documents(record, corpus), record.design, record.family
    has_names = record.classes is not None and record.level_numbers is None
    classes = record.classes if has_names and record.classes is not None else ()
    beside_words = design.covariates or design.exposure or design.auxiliary or design.weight
    if unseen is None or beside_words or corpus.nnz * max(len(classes), 1) > MOST_ENTRIES:
        return None
    # levels that spell numbers are numbers here, as they are in the predictions
    is_count = family.domain.integer and family.domain.low == 0.0 and not family.has_levels
    kind: Kind = "classes" if classes else "count" if is_count else "real"
    y = np.full(corpus.n_documents, np.nan)
    for rows, block, _ in counted_blocks(record, corpus, documents=None, realign=False):
        y[rows] = _numbers(classes, *observed_responses_of(record, corpus, block))
    training = np.flatnonzero(~unseen & np.isfinite(y))
    place = np.flatnonzero(sample.unseen & np.isfinite(y[sample.rows]))
    judging = sample.rows[place]
    if len(judging) < FEWEST or len(set(y[judging].tolist())) < 2:
        return None
    rival = TfidfRegression(kind, len(classes)).fit(counts_of_corpus(corpus, training), y[training])
    theirs, ours, truth = (
        rival.predict(counts_of_corpus(corpus, judging)),
        sample.predicted[place],
        y[judging],
    )
    if not classes:
        name = "Poisson regression on TF-IDF" if is_count else "ridge regression on TF-IDF"
        ours = ours.astype(np.float64)
        return Rival(
            name, len(truth), "predictive_r2", predictive_r2(truth, ours), predictive_r2(truth, theirs)
        )
    # a number is the probability of the second of two classes
    said = _numbers(classes, ours, ours) if ours.dtype == object else (ours > 0.5).astype(np.float64)
    right = (float(np.mean(said == truth)), float(np.mean(theirs.argmax(axis=1) == truth)))
    return Rival("logistic regression on TF-IDF", len(truth), "accuracy", *right)


def _numbers(
    classes: tuple[str, ...], names: NDArray[Any] | None, observed: NDArray[Any]
) -> NDArray[np.float64]:
    """Responses as numbers: of classes their positions, NaN where missing."""
    if not classes or names is None:
        return observed.astype(np.float64)
    codes = {name: float(code) for code, name in enumerate(classes)}
    return np.array([codes.get(name, np.nan) for name in names.tolist()])
