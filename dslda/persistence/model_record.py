"""Content of a fitted model as plain data, as a model directory holds it."""

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
    """Quality of the predictions for documents that were kept from training.

    Attributes
    ----------
    n_documents : int
        Documents with a response and a prediction.
    measure : {"predictive_r2", "accuracy"}
        R2 of numbers, or share of the classes that are right.
    value : float
    standard_error : float or None
        None where it is not known.
    """

    n_documents: Count
    measure: Measure
    value: float
    standard_error: float | None = None

    @property
    def is_worse_than_mean(self) -> bool:
        """Whether the mean of the documents would have been closer to them; False for classes."""
        return self.measure == "predictive_r2" and self.value < 0.0

    @property
    def in_words(self) -> str:
        """The measure and its documents."""
        classes = self.measure == "accuracy"
        words = f"{self.value:.1%} of the classes are right" if classes else f"predictive R2 {self.value:.3f}"
        if self.standard_error is not None:
            words += f" (s.e. {self.standard_error:{'.1%' if classes else '.3f'}})"
        return f"{words}, on {number_of(self.n_documents, 'document')} kept from training"


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """Documents of a fit, and how it ended.

    Attributes
    ----------
    n_documents, n_labelled, n_empty : int
        Documents trained on, those with a response, and those without a term of the vocabulary.
    n_tokens : int
        Tokens of the vocabulary in these documents.
    n_unconverged : int
        Documents that the last E-step stopped at the sweep cap.
    n_iterations : int
        EM iterations.
    converged : bool
        EM stopped by its tolerance; see :meth:`~dslda.engine.em.EMState.has_settled`.
    interrupted : bool
        EM was stopped by Ctrl-C or on request. Where neither holds, it stopped at its cap.
    oov_share : float or None
        Share of the tokens that the vocabulary lacks, over all documents of the corpus, with those that were kept from
        training. The share of documents scored later is compared with it. None for a matrix, for documents of positions in
        a vocabulary, and in corpora and models of releases that did not keep it.
    new_share : float or None
        The same without terms that were left out as too frequent.
    held_out : HeldOut or None
        None where no document was kept from training or nothing can be measured on those that were, and in models of
        releases that did not keep it.
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
        Covariance of eta and zeta, on the same scale; None where the information matrix is singular.
    design : Design
        The columns trained on, and the scale of the response.
    spec : FitSpec
    response : str or None
        Name of the response; None where it was an array.
    response_summary : ResponseSummary
        Summary of the training documents' responses, in the user's units.
    training : TrainingSummary
    trace : mapping of str to ndarray of float64, shape (n_iterations,)
        Measurements of each EM iteration.
    vocabulary : Vocabulary or None
        None where the documents were a matrix without terms.
    text_settings : TextSettings or None
        How texts become counts; None where the documents were counts.
    too_frequent : tuple of str
        Terms that ingestion left out as too frequent, sorted: they are no new words in documents scored later. Empty in
        models of releases that did not keep them.
    fields : mapping of str to str
        Fields of the training records by their use: "text", "words", "counts", "id". Predictions look there first.
    corpus_hash : str or None
        Content hash of the corpus trained on.
    versions : mapping of str to str
        Versions of dslda and of the libraries that it computes with.
    classes : tuple of str or None
        Names of the classes of the response, by code.
    levels : mapping of str to tuple of str
        Names of the levels of categorical covariates.
    prevalence : ndarray of float64, shape (K,), or None
        Share of the training tokens in each topic by the last E-step; None in models of releases that did not keep it.
    base : ndarray of float64, shape (1,), or (C,) for a response of classes, or None
        Linear predictor, on the scale of the fit, of a document without known words and with average covariates: see
        :mod:`dslda.training.base_rate`. None where it is not known; the linear predictor of the prior's mean replaces it.
    pearson : ndarray of float64, shape (2,), or None
        Pearson's X2 of the responses in the last E-step, and its degrees of freedom: the sum of the documents' weights minus
        the number of coefficients. None where the family does not need it, and in models of releases that did not keep it.
    reference : Reference or None
        Profile that documents scored later are compared with; None in models of releases that did not keep it.
    checksum : str or None
        Checksum of the manifest that the model was read from; None where it was not read.
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
        """The map from the user's response to the standardised one."""
        return self.design.scaling
