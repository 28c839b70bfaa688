"""What would be used instead of the model: a linear model on TF-IDF, trained and judged on the same documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from dslda.corpus.store import Corpus
from dslda.evaluation.metrics import predictive_r2
from dslda.evaluation.rivals import TfidfRegression
from dslda.persistence.model_record import ModelRecord
from dslda.report.sampled_documents import SampledDocuments, counted_blocks, observed_responses_of, unseen_documents

__all__ = ["Rival", "tfidf_rival"]

MOST_ENTRIES = 4_000_000
"""(document, term) entries of the training documents up to which the rival takes some seconds."""
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
    unseen, design = unseen_documents(record, corpus), record.design
    beside_words = design.covariates or design.exposure or design.auxiliary or design.weight
    if unseen is None or beside_words or corpus.nnz > MOST_ENTRIES or sample.unseen.sum() < FEWEST:
        return None
    has_names = record.classes is not None and record.level_numbers is None
    classes = list(record.classes or ()) if has_names else []
    is_count = record.family.domain.integer and record.family.domain.low == 0.0 and not record.class_names
    kind = "classes" if has_names else "count" if is_count else "real"
    codes = {name: float(code) for code, name in enumerate(classes)}
    parts = {True: [], False: []}  # type: ignore[var-annotated]
    predicted = dict(zip(sample.rows[sample.unseen].tolist(), sample.predicted[sample.unseen].tolist(), strict=True))
    ours: list[object] = []
    for rows, block, counted in counted_blocks(record, corpus, documents=None, realign=False):
        names, observed = observed_responses_of(record, corpus, block)
        y = observed
        if has_names and names is not None:
            y = np.array([codes.get(name, np.nan) for name in names.tolist()])
        words = csr_array(
            (counted.block.counts, counted.block.terms, counted.block.indptr), shape=(len(rows), corpus.n_terms)
        )
        judged = unseen[rows] & np.array([row in predicted for row in rows.tolist()])
        for is_judged, chosen in ((True, judged), (False, ~unseen[rows])):
            chosen &= np.isfinite(y)
            parts[is_judged].append((words[chosen], y[chosen]))
        ours += [predicted[row] for row in rows[judged & np.isfinite(y)].tolist()]
    (documents, y), (judging, truth) = (
        (vstack([words for words, _ in parts[which]], format="csr"), np.concatenate([v for _, v in parts[which]]))
        for which in (False, True)
    )
    if len(truth) < FEWEST or len(set(truth.tolist())) < 2:
        return None
    fitted = TfidfRegression(kind, len(classes)).fit(documents, y).predict(judging)  # type: ignore[arg-type]
    if has_names:
        said = np.array([codes.get(name, -1.0) for name in ours]) if record.predicts_names else None
        if said is None:
            said = (np.array(ours, dtype=np.float64) > 0.5).astype(np.float64)
        right = float(np.mean(said == truth)), float(np.mean(fitted.argmax(axis=1) == truth))
        return Rival("logistic regression on TF-IDF", len(truth), "accuracy", *right)
    scores = (predictive_r2(truth, each) for each in (np.array(ours, dtype=np.float64), fitted))
    name = "Poisson regression on TF-IDF" if is_count else "ridge regression on TF-IDF"
    return Rival(name, len(truth), "predictive_r2", *scores)
