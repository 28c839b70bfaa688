"""Stability of the topics of several starts, measured after the fit on a sample of the documents trained on."""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError

import numpy as np
from numpy.typing import NDArray

from dslda.engine.data.fit_source import FitSource
from dslda.engine.executor import single_threaded_blas
from dslda.evaluation.topic_stability import TopicStability, topic_stability
from dslda.exceptions import DsldaError
from dslda.model import Model
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.predict import topic_shares
from dslda.prediction.record_counting import CountedBlock
from dslda.training.sampling import sampled_partitions, sampled_rows

__all__ = ["stability_of_starts"]

logger = logging.getLogger("dslda.engine")

MOST_DOCUMENTS = 2_000
"""The standard error of a correlation is then at most 0.02."""


def stability_of_starts(record: ModelRecord, source: FitSource) -> TopicStability | None:
    """Stability of the topics shown. None for one start or one topic, and where the documents cannot be read again."""
    if not record.other_starts or record.parameters.n_topics == 1:
        return None
    try:
        with single_threaded_blas():
            documents = _sample(record, source)
            shares = [_shares(start, documents) for start in Model(record).scoring_record.starts]
            known = ~np.isnan([of_start[:, 0] for of_start in shares]).any(axis=0)
            if not known.any():
                return None
            first, *others = [
                (start.parameters.topics, of_start[known])
                for start, of_start in zip(record.starts, shares, strict=True)
            ]
            stability = topic_stability(*first, others)
    # the fit may have taken days, and is complete without it
    except (DsldaError, OSError, CancelledError) as error:
        logger.warning("no stability of the topics: documents could not be read once more (%s)", error)
        return None
    logger.info("stability of the topics over %d starts: %s", len(record.starts), stability.in_words)
    return stability


def _sample(record: ModelRecord, source: FitSource) -> list[CountedBlock]:
    chosen = sampled_partitions(source.n_partitions)
    documents = []
    for partition, rows in zip(
        chosen, sampled_rows(source.n_documents[chosen], record, most=MOST_DOCUMENTS), strict=True
    ):
        block = source.reader(partition)()
        sample = block.take(source.view(partition).rows(block)[rows])
        nothing = np.zeros(sample.n_documents, dtype=np.int64)
        documents.append(CountedBlock(sample, nothing, sample.covariates))
    return documents


def _shares(start: ModelRecord, documents: list[CountedBlock]) -> NDArray[np.float64]:
    return np.concatenate([topic_shares(start, counted) for counted in documents])
