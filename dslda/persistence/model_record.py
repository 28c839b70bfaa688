"""All that a fitted model consists of, as plain data: what a model directory holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.persistence.training_profile import Reference
from dslda.storage.typed_json import Count, Share
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, Parameters, Scaling
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.families.base import Family

__all__ = ["HeldOut", "Measure", "ModelRecord", "TrainingSummary"]


Measure: TypeAlias = Literal["predictive_r2", "accuracy"]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well the responses of documents that were kept from training are predicted.

    Attributes
    ----------
    n_documents : int
        Those measured: with a response and a prediction.
    measure : {"predictive_r2", "accuracy"}
        Of numbers, and of classes: the share of them that is right.
    value : float
    standard_error : float or None
        None where it cannot be told.
    """

    n_documents: Count
    measure: Measure
    value: float
    standard_error: float | None = None

    @property
    def is_worse_than_mean(self) -> bool:
        """Whether the mean of the documents would have been closer to them; of classes never."""
        return self.measure == "predictive_r2" and self.value < 0.0

    @property
    def in_words(self) -> str:
        """The measure and the documents that it is of."""
        classes = self.measure == "accuracy"
        told = f"{self.value:.1%} of the classes are right" if classes else f"predictive R2 {self.value:.3f}"
        if self.standard_error is not None:
            told += f" (s.e. {self.standard_error:{'.1%' if classes else '.3f'}})"
        return f"{told}, on {number_of(self.n_documents, 'document')} kept from training"


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What the fit saw and how it ended.

    Attributes
    ----------
    n_documents, n_labelled, n_empty : int
        Documents trained on; those with a response; those without a term of the vocabulary.
    n_tokens : int
        Tokens of the vocabulary in these documents.
    n_unconverged : int
        Documents that the last E-step stopped at the sweep cap.
    n_iterations : int
        EM iterations.
    converged : bool
        EM stopped by its tolerance, as :meth:`~dslda.engine.em.EMState.has_settled` has it.
    interrupted : bool
        EM was stopped by Ctrl-C or on request; where neither holds, it stopped at its cap.
    oov_share : float or None
        Share of the tokens that the vocabulary does not have, over all documents of the corpus, those too that were kept
        from training: what the same share of documents scored later is compared with. None where it is not known: of a
        matrix, of documents that hold positions in a vocabulary, and of corpora and models from before it was kept.
    new_share : float or None
        The same, terms that were left out as too frequent being counted nowhere.
    held_out : HeldOut or None
        None where no document was kept from training, where nothing can be measured on those that were, and in models that
        were written before it was kept.
    """

    n_documents: Count
    n_labelled: Count
    n_empty: Count
    n_tokens: Count
    n_unconverged: Count
    n_iterations: Count
    converged: bool
    interrupted: bool
    oov_share: Share | None = None
    new_share: Share | None = None
    held_out: HeldOut | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ModelRecord:
    """A fitted model without behaviour.

    Attributes
    ----------
    parameters : Parameters
        On the scale of the standardised response.
    covariance : ndarray of float64, shape (K + P, K + P), or (C, K + P, K + P) for a response of classes, or None
        Of eta and zeta, on the same scale; None where the information matrix is singular.
    design : Design
        The columns trained on, and the scale of the response.
    spec : FitSpec
    response : str or None
        Name of the response; None where it was given as an array.
    response_summary : ResponseSummary
        Of the training documents' responses, in the user's units.
    training : TrainingSummary
    trace : mapping of str to ndarray of float64, shape (n_iterations,)
        Measurements of each EM iteration.
    vocabulary : Vocabulary or None
        None where the documents were given as a matrix without terms.
    text_settings : TextSettings or None
        How texts become counts; None where the documents were given as counts.
    too_frequent : tuple of str
        Terms that ingestion left out as too frequent, sorted: they are no new words in documents scored later. None are
        known of models that were written before they were kept.
    fields : mapping of str to str
        Fields of the training records by their use: "text", "words", "counts", "id"; predictions look there
        first.
    corpus_hash : str or None
        Content hash of the corpus trained on.
    versions : mapping of str to str
        Of dslda and what it computes with, when the model was made.
    classes : tuple of str or None
        Names of the classes of the response, by code.
    levels : mapping of str to tuple of str
        Names of the levels of categorical covariates.
    prevalence : ndarray of float64, shape (K,), or None
        Share of the training tokens in each topic, as the last E-step has them; None in models that were
        written before it was kept.
    base : ndarray of float64, shape (1,), or (C,) for a response of classes, or None
        Linear predictor, on the scale of the fit, of a document of which no word is known, with average covariates:
        see :mod:`dslda.training.base_rate`. None where it is not known; then it is that of the prior's mean.
    pearson : ndarray of float64, shape (2,), or None
        Pearson's X2 of the responses in the last E-step, and its degrees of freedom: the sum of the documents' weights less
        the number of coefficients. None where the family does not ask, and in models that were written before it was kept.
    reference : Reference or None
        What documents scored later are compared with; None in models that were written before it was kept.
    checksum : str or None
        Of the manifest that it was read from; None of a model that was not.
    """

    parameters: Parameters
    covariance: NDArray[np.float64] | None
    design: Design
    spec: FitSpec
    response: str | None
    response_summary: ResponseSummary
    training: TrainingSummary
    trace: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    vocabulary: Vocabulary | None = None
    text_settings: TextSettings | None = None
    too_frequent: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    corpus_hash: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prevalence: NDArray[np.float64] | None = None
    base: NDArray[np.float64] | None = None
    pearson: NDArray[np.float64] | None = None
    reference: Reference | None = None
    checksum: str | None = None

    @property
    def family(self) -> Family:
        """The response family, with its options."""
        # families load a compiler, which nobody needs who only reads a model
        from dslda.families.registry import get_family

        return get_family(self.spec.family, self.spec.family_options)

    @property
    def scaling(self) -> Scaling:
        """From the user's response to the standardised one."""
        return self.design.scaling
