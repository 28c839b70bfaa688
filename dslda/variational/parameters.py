"""The parameters that EM estimates, their starting values, and the settings of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dslda.exceptions import InputError
from dslda.families.base import Array, Family, ResponseMoments
from dslda.settings import (
    SETTINGS,
    DocTopicPrior,
    Emphasis,
    Granularity,
    Objective,
    SeedWords,
    TermWeights,
    TopicEstimation,
)
from dslda.variational.remainder import Remainder
from dslda.variational.term_weights import RAW, TermWeighting
from dslda.variational.topic_seeds import TopicSeeds, checked_seed_words
from dslda.wording import short_repr

__all__ = ["FEWEST_REPLICATES", "FitSpec", "Parameters", "Scaling", "alpha_has_moved", "initial_parameters"]

FEWEST_REPLICATES = 10
"""Fewest fits to documents drawn again whose scatter gives an interval."""

LEAST_VARIATIONAL_PRIOR = 0.005
"""exp(digamma(0.005)) is 1e-87. The E-step treats weights below 1e-100 as 0, so every term stays known to every topic."""
# relative size of the random perturbation of the uniform topics
_PERTURBATION = 0.01
# Dirichlet parameter of a term in every topic, for topics that are distributions: so far above 1 that exp(E[log beta]) has
# the perturbation of the means. (With counts of 0.1, digamma would turn 1% into 10%.)
_CERTAINTY = 100.0
# start of an estimated alpha: all topic proportions are equally likely
_FLAT = 1.0


@dataclass(frozen=True, slots=True)
class Scaling:
    """The affine map from the user's response to the one of the fit: ``(y - center) / scale``."""

    center: float = 0.0
    scale: float = 1.0

    def to_model(self, y: Array) -> Array:
        return (y - self.center) / self.scale

    def to_user(self, y: Array) -> Array:
        return self.center + self.scale * y


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """The parameters of sLDA, on the scale of the standardised response.

    Attributes
    ----------
    topics : ndarray of float64, shape (V, K)
        The paper's beta, transposed so that one term's K weights lie together: columns sum to 1. A row of zeros is a
        term unknown to the model. With `concentration`, the means of the topics' distributions.
    alpha : ndarray of float64, shape (K,)
        Dirichlet parameter of the topic proportions.
    eta : ndarray of float64, shape (K,), or (K, C) for a response of C classes
        Coefficients of the mean topic assignment.
    delta : ndarray of float64, shape (n_delta,)
        The family's own parameters, the dispersion first.
    zeta : ndarray of float64, shape (P,) or (P, C)
        Coefficients of the standardised covariates.
    concentration : ndarray of float64, shape (K,), or None
        For topics that are distributions, q(beta_k) = Dirichlet(concentration[k] * topics[:, k]); None for points.
    weighting : TermWeighting
        Weights of terms in documents: of conditional training; the joint model counts.
    remainder : Remainder or None
        What single words add to the topics: of conditional training, where it helps.
    level_corrections : ndarray of float64, shape (levels - 1, 3), or None
        What corrects the family's probabilities of two classes, or of ordered levels (see
        :mod:`dslda.variational.level_corrections`): of conditional training, where it helps.
    """

    topics: Array
    alpha: Array
    eta: Array
    delta: Array
    zeta: Array = field(default_factory=lambda: np.zeros(0))
    concentration: Array | None = None
    weighting: TermWeighting = RAW
    remainder: Remainder | None = None
    level_corrections: Array | None = None

    __repr__ = short_repr

    @property
    def n_topics(self) -> int:
        return int(self.topics.shape[1])

    @property
    def n_terms(self) -> int:
        return int(self.topics.shape[0])

    @property
    def n_classes(self) -> int | None:
        return int(self.eta.shape[1]) if self.eta.ndim == 2 else None

    def __sizeof__(self) -> int:
        # Dask sees a dataclass as 0 bytes without this (kartothek#175, xarray#9088).
        arrays = [self.topics, self.alpha, self.eta, self.zeta, self.concentration]
        if self.remainder is not None:
            arrays += [self.remainder.words, self.remainder.expected]
        arrays.append(self.level_corrections)
        return sum(array.nbytes for array in arrays if array is not None) + 128


@dataclass(frozen=True, slots=True)
class FitSpec:
    """Settings of one fit. The result is a pure function of (corpus, these settings).

    :data:`dslda.settings.SETTINGS` has the domain of each setting, and :func:`dslda.train` its meaning.

    Attributes
    ----------
    family : str
        Name of the response family.
    family_options : mapping
        Options of the family, as plain values.
    objective : {"auto", "conditional", "joint"}
        Fits have one of the last two; the E-step takes "auto" for "joint".
    emphasis : {"themes", "balance", "prediction"}
    term_weights : {"auto", "sqrt", "raw", "log", "binary"}
    remainder : bool
    doc_topic_prior : float, "auto", "asymmetric", "1/K" or None
        "1/K" is the fixed one of the paper's study, and None means the same. "auto" and "asymmetric" start at 1.
    topic_prior : float
        Pseudo-count added to every expected topic-word count in the M-step. With `topic_estimation` "map", beta is the
        posterior mode under a symmetric Dirichlet(1 + topic_prior), and 0 is the paper's maximum likelihood. With
        "variational", topics are distributions q(beta_k) = Dirichlet(topic_prior + expected counts), as in the smoothed
        model of Blei, Ng and Jordan (2003, section 5.4). With the default, no term is impossible in a topic that lacks it.
    dispersion_floor : float
        Without it, the dispersion falls towards 0 where response_weight is above 1. (Movie reviews, K = 10, rho = 3, one
        split: it settles at the bound; predictive R2 0.51 with 0.1, 0.41 with rho = 4 and 0.3. With rho = 1 it ends far
        above.)
    ridge : float or None
        Precision of the Gaussian prior on the coefficients (topics' around their mean, covariates' around 0), on the scale
        of the standardised response. None means the family's default, 0 where coefficients cannot run away.
    seed_words : tuple of (name, tuple of words), or None
        Words that the first topics are held at, see :class:`~dslda.variational.topic_seeds.TopicSeeds`; a mapping becomes
        such pairs.
    """

    n_topics: int = SETTINGS["n_topics"].default
    family: str = "gaussian"
    family_options: Mapping[str, Any] = field(default_factory=dict)
    objective: Objective = SETTINGS["objective"].default
    emphasis: Emphasis = SETTINGS["emphasis"].default
    term_weights: TermWeights = SETTINGS["term_weights"].default
    remainder: bool = SETTINGS["remainder"].default
    doc_topic_prior: DocTopicPrior = SETTINGS["doc_topic_prior"].default
    topic_prior: float = SETTINGS["topic_prior"].default
    topic_estimation: TopicEstimation = SETTINGS["topic_estimation"].default
    response_weight: float = SETTINGS["response_weight"].default
    granularity: Granularity = SETTINGS["granularity"].default
    max_iter: int = SETTINGS["max_iter"].default
    tol: float = SETTINGS["tol"].default
    max_sweeps: int = SETTINGS["max_sweeps"].default
    sweep_tol: float = SETTINGS["sweep_tol"].default
    dispersion_floor: float = SETTINGS["dispersion_floor"].default
    ridge: float | None = SETTINGS["ridge"].default
    seed_words: SeedWords = SETTINGS["seed_words"].default
    n_starts: int = SETTINGS["n_starts"].default
    bootstrap: int = SETTINGS["bootstrap"].default
    seed: int = SETTINGS["seed"].default

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            setting.check(getattr(self, name))
        object.__setattr__(self, "seed_words", checked_seed_words(self.seed_words, self.n_topics))
        if self.doc_topic_prior == "1/K":
            object.__setattr__(self, "doc_topic_prior", None)
        if 0 < self.bootstrap < FEWEST_REPLICATES:
            raise InputError(
                f"must be 0 or at least {FEWEST_REPLICATES}, which intervals take, got {self.bootstrap}",
                parameter="bootstrap",
                remedy="100 is usual",
            )
        if self.topic_estimation == "variational" and self.topic_prior < LEAST_VARIATIONAL_PRIOR:
            raise InputError(
                f"must be at least {LEAST_VARIATIONAL_PRIOR} for variational topics, "
                f"got {self.topic_prior!r}",
                parameter="topic_prior",
                remedy="below that a term is all but impossible in topics that lack it",
            )

    @property
    def seeded_topics(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Names and words of the topics with seed words, which are the first."""
        pairs = self.seed_words or ()
        assert not isinstance(pairs, Mapping)  # no longer
        return pairs

    @property
    def suits_words(self) -> bool:
        """True if the coefficients of the joint model are solved once more after EM, for what words alone infer."""
        return self.objective != "conditional" and self.response_weight != 1.0

    @property
    def estimates_alpha(self) -> bool:
        # a single topic has all of every document, whatever alpha is; conditional training goes by the documents' length
        return (
            self.doc_topic_prior in ("auto", "asymmetric")
            and self.n_topics > 1
            and self.objective != "conditional"
        )


def alpha_has_moved(parameters: Parameters) -> bool:
    """False if an estimate of alpha is still at its start, because the topics have not parted."""
    return bool((parameters.alpha != _FLAT).any())


def initial_parameters(
    n_terms: int,
    *,
    spec: FitSpec,
    family: Family,
    moments: ResponseMoments,
    n_covariates: int = 0,
    seeds: TopicSeeds | None = None,
) -> Parameters:
    """Starting values of Blei and McAuliffe (2010, section 3.2), a pure function of the arguments.

    Topics are uniform with a perturbation of 1%. While they are nearly equal, the response decides how documents first
    split (movie reviews, K = 10, five folds: predictive R2 0.40, against 0.32 with a perturbation of 100%). eta is a grid
    around the family's starting point, [-1, 1] for a standardised response; delta is the family's. Topics that are
    distributions have these means and hardly any variance. `moments` are those of the responses on the scale of the fit.

    Conditional training starts from a perturbation of 100%: topics must differ in their words before they predict, or they
    end as copies of one, graded by the response (docs/model.md).

    Topics with `seeds` start with more of these words, and with the mean coefficient of the others, so that their words and
    not the responses say which documents they get.
    """
    rng = np.random.default_rng([spec.seed, n_terms, spec.n_topics])
    # in place: such a matrix may take a gigabyte
    topics = rng.random((n_terms, spec.n_topics))
    topics *= 1.0 if spec.objective == "conditional" else _PERTURBATION
    topics += 1.0
    if seeds is not None:
        seeds.favour_in(topics)
    topics /= topics.sum(axis=0)
    entry = spec.doc_topic_prior
    if entry is None:
        entry = 1.0 / spec.n_topics
    elif isinstance(entry, str):
        entry = _FLAT
    alpha = np.full(spec.n_topics, float(entry))
    concentration = None
    if spec.topic_estimation == "variational":
        concentration = np.full(spec.n_topics, _CERTAINTY * n_terms)
    n_seeded = len(spec.seeded_topics)
    eta, delta = family.initial_coefficients(max(spec.n_topics - n_seeded, 1), moments)
    if n_seeded:
        middle = np.repeat(eta.mean(axis=0, keepdims=True), n_seeded, axis=0)
        eta = np.concatenate([middle, eta])[: spec.n_topics]
    return Parameters(topics, alpha, eta, delta, np.zeros((n_covariates, *eta.shape[1:])), concentration)
