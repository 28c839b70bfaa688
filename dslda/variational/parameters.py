"""What EM estimates and what it is told: frozen records, checked when made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import InputError

__all__ = ["FitSpec", "Granularity", "Parameters", "Scaling", "TopicEstimation"]

Granularity = Literal["token", "term"]
TopicEstimation = Literal["map", "variational"]

LEAST_VARIATIONAL_PRIOR = 0.005
"""exp(digamma(0.005)) is 1e-87, and the E-step takes weights below 1e-100 for 0: every term stays known to every topic."""

_NUMBERS = (int, float, np.integer, np.floating)
_RANGES = {
    "alpha": (
        1e-10,
        1e6,
        "beyond that every document is of one topic, or all have the same topics",
    ),
    "topic_prior": (0, 1e6, "a larger one drowns the words, and all topics are the same"),
    "rho": (1e-6, 1e6, "beyond that the words, or the response, play no part any more"),
    "tol": (0, 1, "it is a fraction of the ELBO"),
    "sweep_tol": (0, 1, "it is a fraction of the ELBO of a document"),
    "delta_floor": (1e-12, 1, "it is a fraction of the variance of the response, above rounding"),
    "ridge": (0, 1e6, "beyond that the coefficients are all the same"),
}
"""Lowest and highest value, and why. Inside, every number of a fit stays finite; far outside an ELBO is no number."""

_ESTIMATED = {"alpha": ("auto", "asymmetric")}
_OTHERWISE = {
    "alpha": ", None for 1/K, 'auto' or 'asymmetric'",
    "ridge": ", or None for the default of the family",
}

_PUBLIC_NAMES = {"alpha": "doc_topic_prior", "rho": "response_weight", "delta_floor": "dispersion_floor"}
"""What users call the settings that have the paper's names here."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The affine map between the user's response and the one the model is fitted to: ``(y - center) / scale``."""

    center: float = 0.0
    scale: float = 1.0

    def to_model(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        return (y - self.center) / self.scale

    def to_user(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.center + self.scale * y


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """The parameters of sLDA, on the scale of the standardised response.

    Attributes
    ----------
    topics : ndarray of float64, shape (V, K)
        The paper's beta, transposed so that one term's K weights lie together: columns sum to 1. A row of zeros is a
        term the model does not know. With `concentration`, the means of the topics' distributions.
    alpha : ndarray of float64, shape (K,)
        Dirichlet parameter of the topic proportions.
    eta : ndarray of float64, shape (K,), or (K, C) for a response of C classes
        Coefficients of the mean topic assignment.
    delta : ndarray of float64, shape (n_delta,)
        The family's own parameters, the dispersion first.
    zeta : ndarray of float64, shape (P,) or (P, C)
        Coefficients of the standardised covariates.
    concentration : ndarray of float64, shape (K,), or None
        Where topics are distributions, q(beta_k) = Dirichlet(concentration[k] * topics[:, k]); None where they are points.
    """

    topics: NDArray[np.float64]
    alpha: NDArray[np.float64]
    eta: NDArray[np.float64]
    delta: NDArray[np.float64]
    zeta: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    concentration: NDArray[np.float64] | None = None

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
        arrays = self.topics, self.alpha, self.eta, self.zeta, self.concentration
        return sum(array.nbytes for array in arrays if array is not None) + 128


@dataclass(frozen=True, slots=True)
class FitSpec:
    """Settings of one fit. The result is a pure function of (corpus, these settings).

    Attributes
    ----------
    n_topics : int
        K.
    family : str
        Name of the response family.
    family_options : mapping
        Its options, as plain values.
    alpha : float, None, "auto" or "asymmetric"
        Symmetric Dirichlet parameter of the topic proportions, 1e-10 to 1e6; None means 1/K, as in the paper's study.
        "auto" estimates one number for all topics, "asymmetric" one for each; both start at 1/K.
    topic_prior : float
        Pseudo-count added to every expected topic-word count in the M-step, at most 1e6. With `topic_estimation` "map" it
        makes beta the posterior mode under a symmetric Dirichlet(1 + topic_prior), and 0 is the paper's maximum likelihood;
        with "variational" it is the parameter of the Dirichlet itself, at least 0.005. The default keeps terms that were
        not seen in a topic from being impossible in it.
    topic_estimation : {"map", "variational"}
        Whether the topics are points, the posterior mode, or distributions q(beta_k) = Dirichlet(topic_prior + expected
        counts), as in the smoothed model of Blei, Ng and Jordan (2003, section 5.4).
    rho : float
        Weight of the response in the E-step, 1e-6 to 1e6. 1 is the model of the paper; words outnumber the single response by
        hundreds, and a weight of 2 or 3 trades their likelihood for prediction, where words say much of the response;
        where they say little it predicts worse.
    granularity : {"term", "token"}
        Whether the occurrences of a term in a document share one variational distribution.
    max_iter : int
        Cap on EM iterations.
    tol : float
        EM stops when the corpus ELBO has changed by less than this fraction, 0 to 1, twice in a row, and its changes have
        come down (:meth:`~dslda.engine.em.EMState.has_settled`): they begin small, on a plateau.
    max_sweeps : int
        Cap on the coordinate-ascent sweeps over one document; documents that reach it are counted.
    sweep_tol : float
        A document stops when its ELBO changes by less than this fraction, 0 to 1 (1e-4: the paper's).
    delta_floor : float
        Lower bound of the dispersion as a fraction of the variance of the response, 1e-12 to 1, without which it falls
        towards 0 with rho > 1. (Movie reviews, K = 10, rho = 3, one split: it settles at the bound; predictive R2 0.51 with
        0.1, 0.41 with rho = 4 and 0.3. With rho = 1 it ends far above.)
    ridge : float or None
        Precision of the Gaussian prior on the coefficients (topics' around their mean, covariates' around 0), 0 to 1e6, on
        the scale of the standardised response; None means the family's default, 0 where coefficients cannot run away.
    seed : int
        Seed of the random perturbation that the topics start from.
    """

    n_topics: int = 20
    family: str = "gaussian"
    family_options: Mapping[str, Any] = field(default_factory=dict)
    alpha: float | Literal["auto", "asymmetric"] | None = None
    topic_prior: float = 0.01
    topic_estimation: TopicEstimation = "map"
    rho: float = 1.0
    granularity: Granularity = "term"
    max_iter: int = 100
    tol: float = 1e-4
    max_sweeps: int = 100
    sweep_tol: float = 1e-4
    delta_floor: float = 0.1
    ridge: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("n_topics", 1, 100_000),
            ("max_iter", 1, 2**31 - 1),
            ("max_sweeps", 1, 2**31 - 1),
            ("seed", 0, 2**63 - 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < lowest:
                raise InputError(f"{name} must be a whole number of at least {lowest}, got {value!r}")
            if value > highest:
                raise InputError(f"{name} must be at most {highest}, got {value!r}")
        for name, (least, most, beyond) in _RANGES.items():
            value = getattr(self, name)
            if name in ("alpha", "ridge") and (value is None or value in _ESTIMATED.get(name, ())):
                continue
            if not (isinstance(value, _NUMBERS) and not isinstance(value, bool) and least <= value <= most):
                called = _PUBLIC_NAMES.get(name, name)
                default = _OTHERWISE.get(name, "")
                raise InputError(
                    f"{called} must be a number from {least:g} to {most:g}{default}, got {value!r}; {beyond}"
                )
        if self.granularity not in get_args(Granularity):
            raise InputError(f"granularity must be 'term' or 'token', got {self.granularity!r}")
        if self.topic_estimation not in get_args(TopicEstimation):
            raise InputError(
                f"topic_estimation must be 'map' or 'variational', got {self.topic_estimation!r}"
            )
        if self.topic_estimation == "variational" and self.topic_prior < LEAST_VARIATIONAL_PRIOR:
            raise InputError(
                f"topic_prior must be at least {LEAST_VARIATIONAL_PRIOR} where topic_estimation is 'variational', got "
                f"{self.topic_prior!r}; below that a term is all but impossible in topics that lack it"
            )
