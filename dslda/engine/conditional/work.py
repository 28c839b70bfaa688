"""The passes of conditional training."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dslda.engine.conditional.selection import ALL, Selection
from dslda.engine.data.hashes import document_hashes, mixed
from dslda.engine.data.training_view import TrainingBlock
from dslda.families.base import Array, Family
from dslda.variational.conditional.gradient import (
    ConditionalStatistics,
    class_statistics,
    conditional_statistics,
    pulled_statistics,
)
from dslda.variational.conditional.loss import Responses, predictors
from dslda.variational.conditional.posterior import WeightedDocuments, infer_words_of
from dslda.variational.parameter_parts import ParameterParts, on_own_rows
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.sums import ARRAY, NUMBER, Sums
from dslda.variational.term_weights import TermWeighting

__all__ = [
    "ClassPass",
    "ConditionalPass",
    "InnerPass",
    "InnerSums",
    "LengthPass",
    "LengthSums",
    "PulledPass",
    "on_predictors",
    "on_rows",
]


S = TypeVar("S", bound=Sums)


@dataclass(frozen=True, slots=True)
class PulledPass:
    """The E-step of the start, in which the responses pull at the assignments; see `pulled_statistics`."""

    selection: Selection
    pull: float

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> ConditionalStatistics:
        chosen = self.selection.of(block)
        return on_rows(
            chosen,
            parameters,
            lambda documents, own: pulled_statistics(
                documents,
                chosen.y,
                own,
                family=family,
                pull=self.pull,
                extras=chosen.extras,
            ),
        )


@dataclass(frozen=True, slots=True)
class ClassPass:
    """The words of every class, in the topics that its coefficients start with; see `class_statistics`."""

    selection: Selection

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> ConditionalStatistics:
        chosen = self.selection.of(block)
        return on_rows(
            chosen,
            parameters,
            lambda documents, own: class_statistics(
                documents, chosen.y, own, family=family, extras=chosen.extras
            ),
        )


@dataclass(frozen=True, slots=True)
class ConditionalPass:
    """Inference from words alone, and the gradient of the loss through it; see `conditional_statistics`."""

    selection: Selection = ALL
    loss_weight: float = 1.0
    differentiated: bool = True
    joint: bool = False

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> ConditionalStatistics:
        chosen = self.selection.of(block)
        return on_rows(
            chosen,
            parameters,
            lambda documents, own: conditional_statistics(
                documents,
                chosen.y,
                own,
                family=family,
                max_sweeps=spec.max_sweeps,
                extras=chosen.extras,
                loss_weight=self.loss_weight,
                differentiated=self.differentiated,
                joint=self.joint,
            ),
        )


@dataclass(slots=True, eq=False)
class InnerSums(Sums):
    """Sums over the inner part.

    Attributes
    ----------
    log_likelihood : ndarray of float64, shape (n_slopes,)
        Weighted sum of log p(y | omega) with omega stretched by each slope.
    weight : float
        Sum of the weights of the responses.
    """

    log_likelihood: Array = field(default_factory=lambda: np.zeros(0), metadata=ARRAY)
    weight: float = field(default=0.0, metadata=NUMBER)


@dataclass(frozen=True, slots=True, eq=False)
class InnerPass:
    """Log-likelihood of the inner part, with omega moved away from `center` by each factor of `slopes`; offsets stay."""

    selection: Selection
    center: Array
    slopes: Array

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> InnerSums:
        def measured(
            responses: Responses, omega: Array, known: NDArray[np.bool_], own: Parameters
        ) -> InnerSums:
            one = omega.ndim == 1
            offset = responses.offset if one else responses.offset[:, np.newaxis]
            center = (float(self.center[0]) if one else self.center) + offset
            counted = responses.labelled & known
            weight = responses.weight[counted]
            sums = InnerSums(log_likelihood=np.zeros(len(self.slopes)), weight=float(weight.sum()))
            stretched = np.multiply.outer(self.slopes, omega - center) + center
            deltas = np.tile(own.delta, (len(self.slopes), 1))
            values = responses.log_likelihoods(stretched, family, deltas)
            sums.log_likelihood += values[:, counted] @ weight
            return sums

        return on_predictors(self.selection.of(block), parameters, spec, measured)


SAMPLED_TEXTS, N_BUCKETS = 1_000, 8_192
"""About how many different documents say how many are stored more than once, and counts of these by their hash."""


@dataclass(slots=True, eq=False)
class LengthSums(Sums):
    """What a fit must know before it starts: documents with a response, tokens, and the mass that a weighting gives these.

    `stored` says how often the words of some documents are stored, by their hash.
    """

    labelled: float = field(default=0.0, metadata=NUMBER)
    tokens: float = field(default=0.0, metadata=NUMBER)
    mass: float = field(default=0.0, metadata=NUMBER)
    stored: Array = field(default_factory=lambda: np.zeros(N_BUCKETS), metadata=ARRAY)

    @property
    def repeated_share(self) -> float:
        """Share of different documents that are stored more than once; a few percent of them are chance."""
        return int(np.count_nonzero(self.stored > 1.0)) / max(int(np.count_nonzero(self.stored)), 1)


@dataclass(frozen=True, slots=True)
class LengthPass:
    """See `LengthSums`; of all the documents of a fit, a sample counts as stored, each with all of its copies."""

    weighting: TermWeighting
    n_documents: int

    def __call__(
        self, block: TrainingBlock, parameters: ParameterParts, family: Family, spec: FitSpec
    ) -> LengthSums:
        responses = Responses.of(block.y, block.extras)
        texts = mixed(document_hashes(block.indptr, block.terms, block.counts)[np.diff(block.indptr) > 0])
        one_in = np.uint64(max(self.n_documents // SAMPLED_TEXTS, 1))
        buckets = texts[texts % one_in == 0] // one_in % np.uint64(N_BUCKETS)
        return LengthSums(
            stored=np.bincount(buckets.astype(np.int64), minlength=N_BUCKETS).astype(np.float64),
            labelled=float(np.count_nonzero(responses.labelled & (responses.weight > 0.0))),
            tokens=float(block.counts.sum(dtype=np.int64)),
            mass=float(self.weighting.of(block.counts).sum()),
            n_documents=block.n_documents,
        )


def on_rows(
    block: TrainingBlock, parameters: ParameterParts, work: Callable[[WeightedDocuments, Parameters], S]
) -> S:
    """The sums of a block from `work` on its documents and the rows of their terms."""

    def of_rows(terms: NDArray[np.int32], own: Parameters) -> S:
        return work(WeightedDocuments.of(block.indptr, terms, block.counts, own), own)

    return on_own_rows(block.terms, parameters, of_rows).placed(block.row)


def on_predictors(
    block: TrainingBlock,
    parameters: ParameterParts,
    spec: FitSpec,
    work: Callable[[Responses, Array, NDArray[np.bool_], Parameters], S],
) -> S:
    """The sums of a block from `work` on its responses, their linear predictors, which documents have a known word, and the
    parameters."""
    started = time.thread_time()
    responses = Responses.of(block.y, block.extras)

    def of_documents(documents: WeightedDocuments, own: Parameters) -> S:
        posterior = infer_words_of(documents, own, max_sweeps=spec.max_sweeps)
        omega = predictors(posterior.zbar, responses, own, documents)
        return work(responses, omega, posterior.length > 0.0, own)

    sums = on_rows(block, parameters, of_documents)
    sums.n_documents, sums.seconds = block.n_documents, time.thread_time() - started
    return sums
