"""Content of a fitted model as plain data, as a model directory holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.levels import numbers_of
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.evaluation.intervals import Intervals
from dslda.evaluation.topic_quality import TopicQuality
from dslda.evaluation.topic_stability import TopicStability
from dslda.storage.typed_json import Count, Share
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, Parameters, Scaling
from dslda.wording import number_name, number_of, short_repr

if TYPE_CHECKING:
    from dslda.families.base import Family

__all__ = ["N_BINS", "BinCounts", "HeldOut", "ModelRecord", "OtherStart", "Reference", "TrainingSummary"]

N_BINS = 10


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Quality of the predictions for documents that training had not seen.

    Attributes
    ----------
    n_documents : int
        Documents with a response and a prediction.
    measure : {"predictive_r2", "accuracy"}
        R2 of numbers, or share of the classes that are right.
    value : float
    standard_error : float or None
        None where it is not known.
    most_frequent : float or None
        Share of the most frequent class among these documents. None for numbers, and in models of early releases.
    share : float or None
        The share `hold_out` that chose the documents among all of the corpus, by
        :func:`~dslda.evaluation.metrics.held_out`. None where `documents` left some out, and for models saved by a release
        that did not keep it.
    set_aside : bool
        The documents are those that conditional training set aside to choose when to stop and how far to follow the topics,
        and has learned from since: their figure is a little too good. False for documents kept from training.
    """

    n_documents: Count
    measure: Literal["predictive_r2", "accuracy"]
    value: float
    standard_error: float | None = None
    most_frequent: Share | None = None
    share: Share | None = None
    set_aside: bool = False

    @property
    def is_worse_than_mean(self) -> bool:
        """True if the mean of the documents would have been closer to them; False for classes."""
        return self.measure == "predictive_r2" and self.value < 0.0

    @property
    def in_words(self) -> str:
        """The measure and its documents."""
        classes = self.measure == "accuracy"
        words = f"{self.value:.1%} of the classes are right" if classes else f"predictive R2 {self.value:.3f}"
        if self.standard_error is not None:
            words += f" (s.e. {self.standard_error:{'.1%' if classes else '.3f'}})"
        if self.most_frequent is not None:
            words += f", against {self.most_frequent:.1%} by the most frequent class alone"
        documents = number_of(self.n_documents, "document")
        if self.set_aside:
            return f"{words}, on {documents} that training set aside to choose by (a little too good)"
        return f"{words}, on {documents} kept from training"


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """Documents of a fit, and how it ended. Models of earlier releases lack some fields, which are then None.

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
        EM was stopped by Ctrl-C or on request. If it neither converged nor was interrupted, it stopped at its cap.
    oov_share : float or None
        Share of the tokens that the vocabulary lacks, over all documents of the corpus, including those kept from training.
        It is compared with the share of documents scored later. None for a matrix, and for documents of positions in a
        vocabulary.
    new_share : float or None
        The same without terms that were left out as too frequent.
    held_out : HeldOut or None
        Of the documents kept from training; without any, of those that conditional training set aside. None where nothing
        can be measured on either.
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
class Reference:
    """Profile of known documents by their own model, without their responses. Later documents are compared with it.

    Attributes
    ----------
    prediction_borders : ndarray of float64, shape (9,), or (0,) for a response of classes
        Deciles of the predictions.
    prediction_counts : ndarray of int64, shape (10,), or (C,) for a response of classes
        Documents in each bin, which includes its lower border; or documents predicted to be of each class.
    topic_borders : ndarray of float64, shape (K, 9)
    topic_counts : ndarray of int64, shape (K, 10)
    topic_means : ndarray of float64, shape (K,)
        Mean topic proportions.
    intervals : Intervals or None
        Of responses around their predictions, from documents that were predicted unseen. None where there were too few, and
        for classes and levels.
    classes : tuple of str
    of_training : bool
        The documents are those trained on. False where enough were kept from training: these are better, since a model fits
        its training documents more closely than new ones.
    """

    prediction_borders: NDArray[np.float64]
    prediction_counts: NDArray[np.int64]
    topic_borders: NDArray[np.float64]
    topic_counts: NDArray[np.int64]
    topic_means: NDArray[np.float64]
    intervals: Intervals | None = None
    classes: tuple[str, ...] = ()
    of_training: bool = True

    __repr__ = short_repr

    @property
    def in_words(self) -> str:
        """The documents, in words."""
        return "trained on" if self.of_training else "kept from training"

    def no_counts(self) -> BinCounts:
        """Counts of zero documents in these bins."""
        return BinCounts(np.zeros_like(self.prediction_counts), np.zeros_like(self.topic_counts))


@dataclass(slots=True, eq=False)
class BinCounts:
    """Numbers of documents in the bins of a reference.

    Attributes
    ----------
    predictions : ndarray of int64, shape (10,) or (C,)
    topics : ndarray of int64, shape (K, 10)
    """

    predictions: NDArray[np.int64]
    topics: NDArray[np.int64]

    def add(self, reference: Reference, predictions: NDArray[Any], proportions: NDArray[np.float64]) -> None:
        """Count documents; those without a prediction only among the topics."""
        if reference.classes:
            for c, name in enumerate(reference.classes):
                self.predictions[c] += np.count_nonzero(predictions == name)
        else:
            finite = predictions[~np.isnan(predictions)]
            self.predictions += _counted(reference.prediction_borders, finite)
        for k, borders in enumerate(reference.topic_borders):
            self.topics[k] += _counted(borders, proportions[:, k])

    def add_json(self, data: Mapping[str, Any]) -> None:
        """Add counts from :meth:`to_json`."""
        self.predictions += np.array(data["predictions"], dtype=np.int64)
        self.topics += np.array(data["topics"], dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """The counts as lists."""
        return {"predictions": self.predictions.tolist(), "topics": self.topics.tolist()}


def _counted(borders: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.bincount(np.searchsorted(borders, values, side="right"), minlength=len(borders) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class OtherStart:
    """A start of the fit whose topics are not shown, but whose predictions count as much as those of the one shown.

    Attributes
    ----------
    parameters : Parameters
    base : ndarray of float64 or None
        As in :class:`ModelRecord`.
    """

    parameters: Parameters
    base: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ModelRecord:
    """A fitted model without behaviour. Models of earlier releases lack some fields, which are then None or empty.

    Attributes
    ----------
    parameters : Parameters
        On the scale of the standardised response.
    covariance : ndarray of float64, shape (K + P, K + P), or (C, K + P, K + P) for a response of classes, or None
        Covariance of eta and zeta, on the same scale, of classes where they sum to 0 over the classes; None where the
        information matrix is singular, or too large.
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
        Terms that ingestion left out as too frequent, sorted: they are not new words in documents scored later.
    fields : mapping of str to str
        Fields of the training records by their use: "text", "words", "counts", "id". Predictions look there first.
    corpus_hash : str or None
        Content hash of the corpus trained on.
    versions : mapping of str to str
        Versions of dslda and of the libraries that it computes with.
    classes : tuple of str or None
        Names of the classes of the response, by code, or of its levels if they were named.
    levels : mapping of str to tuple of str
        Names of the levels of categorical covariates.
    prevalence : ndarray of float64, shape (K,), or None
        Share of the training tokens in each topic by the last E-step.
    base : ndarray of float64, shape (1,), (C,) for a response of classes, (1 + n_delta,) for levels, or None
        Linear predictor, on the scale of the fit, of a document without known words and with average covariates, and the
        delta that goes with it if it is not that of the fit: see
        :func:`dslda.training.diagnostics.base_predictor`. None where it is unknown; that of the prior's mean replaces it.
    pearson : ndarray of float64, shape (2,), or None
        Pearson's X2 of the responses in the last E-step, and its degrees of freedom: the sum of the documents' weights minus
        the number of coefficients. None where the family does not need it.
    quality : TopicQuality or None
        Coherence and exclusivity of the topics. None where the documents could not be read once more after the fit.
    replicates : ndarray of float64, shape (B, K + P) or (B, K + P, C), or None
        eta and zeta of B fits to documents drawn again, on the scale of the fit, each topic beside the one that it resembles.
        None without a bootstrap.
    reference : Reference or None
        Profile to compare documents scored later with.
    other_starts : tuple of OtherStart
        Starts beside that of `parameters`; predictions are the mean over all.
    stability : TopicStability or None
        How much of each topic the other starts find too. None for one start or one topic, and where the documents could not
        be read once more after the fit.
    labels : tuple of (str or None)
        The user's name of each topic; empty where none has one.
    checksum : str or None
        :func:`~dslda.persistence.model_manifest.identity` of the manifest that the model was read from; None where it was
        not read.
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
    quality: TopicQuality | None = None
    reference: Reference | None = None
    other_starts: tuple[OtherStart, ...] = ()
    stability: TopicStability | None = None
    replicates: NDArray[np.float64] | None = None
    labels: tuple[str | None, ...] = ()
    checksum: str | None = None

    __repr__ = short_repr

    def label(self, topic: int) -> str | None:
        """The user's name of a topic, where it has one."""
        return self.labels[topic] if self.labels else None

    @property
    def starts(self) -> tuple[ModelRecord, ...]:
        """A record of each start alone, the one shown first."""
        if not self.other_starts:
            return (self,)
        alone = replace(self, other_starts=(), stability=None)
        unnamed = replace(alone, labels=())
        return (alone, *(replace(unnamed, parameters=s.parameters, base=s.base) for s in self.other_starts))

    @property
    def family(self) -> Family:
        """The response family, with its options."""
        # families load a compiler, which reading a model does not need
        from dslda.families.registry import get_family

        return get_family(self.spec.family, self.spec.family_options)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes or levels of the response, where it has any."""
        if self.classes is not None or self.design.trials:
            return self.classes
        nothing = np.zeros(1)
        probabilities = self.family.probabilities(nothing, nothing, self.parameters.delta)
        if probabilities is None:
            return None
        levels = self.scaling.to_user(np.arange(probabilities.shape[1], dtype=np.float64))
        return tuple(map(number_name, levels.tolist()))

    @property
    def level_numbers(self) -> NDArray[np.float64] | None:
        """The numbers that named levels spell, from the lowest; None where they spell none, and for other responses."""
        if self.classes is None or self.parameters.n_classes is not None or not self.family.has_levels:
            return None
        numbers = numbers_of(self.classes)
        return None if numbers is None else np.array(numbers)

    @property
    def predicts_names(self) -> bool:
        """True if a prediction is the name of a class or level, False if it is a number."""
        if self.parameters.n_classes is not None:
            return True
        return self.classes is not None and self.family.has_levels and numbers_of(self.classes) is None

    @property
    def scaling(self) -> Scaling:
        """The map from the user's response to the standardised one."""
        return self.design.scaling
