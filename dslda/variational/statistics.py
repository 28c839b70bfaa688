"""Sufficient statistics of the E-step: sums that a partition sends to the M-step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from dslda.families.base import Array, Family
from dslda.variational.design import AUX, EMPHASIS, FIRST_COVARIATE, WEIGHT
from dslda.variational.sums import ARRAY, NUMBER, PER_TERM, REPORT, Sums

__all__ = ["SufficientStatistics", "has_pearson", "joint_information", "pearson_sums"]

# the largest term of Pearson's statistic, so that the sum stays finite
_LARGEST_TERM = 1e200


@dataclass(slots=True, eq=False)
class SufficientStatistics(Sums):
    """Sums of the E-step over documents.

    Attributes
    ----------
    topic_counts : ndarray of float64, shape (V, K), or (len(terms), K)
        Expected number of tokens of each term assigned to each topic.
    score : ndarray of float64, shape (K + P,), or (K + P, C) for a response of classes
        First derivative by eta, then zeta, of the expected log-likelihood of the response, without rho (model.md,
        section 3).
    information : ndarray of float64, shape (K + P, K + P), or (C, K + P, K + P) for a response of classes
        Weighted second moments of (zbar, x): minus the second derivative, or an upper bound of it.
    log_theta : ndarray of float64, shape (K,)
        Sum of E[log theta] over the documents with a known term.
    profile : ndarray of float64, shape (n_probes,)
        Expected log-likelihood of the responses at the family's probes of delta; the first is delta itself.
    joint_information : ndarray of float64, shape (C (K + P), C (K + P)), or (0, 0) unless it was asked for
        Expected minus second derivative by the coefficients of all classes together, class by class: the sum of
        (diag(p) - pp') x E[(zbar, x)(zbar, x)'], of which `information` leaves out pp'.
    elbo : float
        Sum of the documents' evidence lower bounds, the response term multiplied by rho.
    labelled_weight : float
        Sum of the weights of the documents with a response.
    log_theta_weight : float
        Sum of the weights of the documents in `log_theta`.
    curvature, curvature_bound : float
        Sum of the weights in `information`, and sum of the largest curvatures of l over the scatter of omega under q. Both
        are 0 if `information` bounds the curvature: for a quadratic l, and for classes.
    pearson, pearson_weight : float
        Pearson's X2 of the responses, and the sum of the weights of its documents; 0 for families without a variance.
    n_labelled, n_empty, n_unconverged, n_sweeps, n_tokens : int
        Documents with a response; those with no known term; those stopped by the sweep cap; sweeps over all documents;
        tokens of known terms.
    """

    topic_counts: Array = field(metadata=PER_TERM)
    score: Array = field(metadata=ARRAY)
    information: Array = field(metadata=ARRAY)
    log_theta: Array = field(metadata=ARRAY)
    profile: Array = field(metadata=ARRAY)
    joint_information: Array = field(default_factory=lambda: np.zeros((0, 0)), metadata=ARRAY)
    elbo: float = field(default=0.0, metadata=NUMBER)
    labelled_weight: float = field(default=0.0, metadata=NUMBER)
    log_theta_weight: float = field(default=0.0, metadata=NUMBER)
    curvature: float = field(default=0.0, metadata=NUMBER)
    curvature_bound: float = field(default=0.0, metadata=NUMBER)
    pearson: float = field(default=0.0, metadata=NUMBER)
    pearson_weight: float = field(default=0.0, metadata=NUMBER)
    n_labelled: int = field(default=0, metadata=REPORT)
    n_empty: int = field(default=0, metadata=REPORT)
    n_unconverged: int = field(default=0, metadata=REPORT)
    n_sweeps: int = field(default=0, metadata=REPORT)
    n_tokens: int = field(default=0, metadata=REPORT)

    @classmethod
    def zeros(
        cls,
        n_terms: int,
        n_topics: int,
        *,
        n_covariates: int = 0,
        n_probes: int = 1,
        n_classes: int | None = None,
    ) -> Self:
        """Statistics of no document; `n_classes` for a response of classes."""
        n = n_topics + n_covariates
        per_term: dict[str, Any] = {
            f.name: np.zeros((n_terms, n_topics)) for f in fields(cls) if f.metadata == PER_TERM
        }
        return cls(
            **per_term,
            score=np.zeros(n if n_classes is None else (n, n_classes)),
            information=np.zeros((n, n) if n_classes is None else (n_classes, n, n)),
            log_theta=np.zeros(n_topics),
            profile=np.zeros(n_probes),
        )


def has_pearson(family: Family, *, trials: bool) -> bool:
    """True if the family has a variance that data can contradict; `trials` is True if documents have trials."""
    return type(family).variance is not Family.variance and (trials or family.auxiliary != "trials")


def pearson_sums(
    family: Family,
    y: Array,
    delta: Array,
    extras: Array | None,
    *,
    mean: Array,
    variance: Array,
    counted: NDArray[np.bool_],
) -> tuple[float, float]:
    """Pearson's X2 = sum of w (y - mu)^2 / Var(y | mu) over documents with a response, and the sum of w.

    Both are 0 if the family has no variance. A single binomial trial says nothing about scatter (McCullagh and Nelder 1989,
    chapter 4) and is left out. Sums are exact, so that the order of documents does not matter.

    Parameters
    ----------
    y, delta, extras
        As in the E-step.
    mean, variance : ndarray of float64, shape (D,)
        Moments of the linear predictor after the E-step.
    counted : ndarray of bool, shape (D,)
        Documents with a known term; they take part if they have a response.
    """
    counted = counted & ~np.isnan(y)
    aux, weight = np.ones(len(y)), np.ones(len(y))
    if extras is not None:
        aux, weight = extras[:, AUX], extras[:, WEIGHT] * extras[:, EMPHASIS]
    if family.auxiliary == "trials":
        counted &= aux > 1.0
    y, aux, weight = y[counted], aux[counted], weight[counted]
    expected = family.mean(mean[counted], variance[counted], delta)
    if family.auxiliary == "trials":
        expected = aux * expected
    # extreme means may give 0 / 0, and numbers too large to square
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        scatter = family.variance(expected, delta, aux)
        if scatter is None:
            return 0.0, 0.0
        terms = weight * (y - expected) ** 2 / scatter
    terms = np.minimum(np.nan_to_num(terms, nan=0.0, posinf=_LARGEST_TERM), _LARGEST_TERM)
    return math.fsum(terms.tolist()), math.fsum(weight.tolist())


def joint_information(
    y: Array,
    extras: Array | None,
    *,
    zbar: Array,
    length: Array,
    predictors: Array,
    independent: bool = True,
) -> Array:
    """Sum of `SufficientStatistics.joint_information` over documents with a response and a known term.

    Parameters
    ----------
    y, extras
        As in the E-step.
    zbar : ndarray of float64, shape (D, K)
        Expected mean topic assignment.
    length : ndarray of float64, shape (D,)
        Tokens of known terms, or their weight.
    predictors : ndarray of float64, shape (D, C)
        Numbers whose softmax is the probabilities of the classes.
    independent : bool, default True
        zbar is the mean of independent tokens, which scatter; otherwise it is a number.
    """
    counted = ~np.isnan(y) & (length > 0.0)
    length, phibar = length[counted], zbar[counted]
    weight, means = np.ones(len(length)), phibar
    if extras is not None:
        weight = extras[counted, WEIGHT] * extras[counted, EMPHASIS]
        means = np.column_stack([phibar, extras[counted, FIRST_COVARIATE:]])
    p = softmax(predictors[counted], axis=1)
    n, (n_topics, n_classes) = means.shape[1], (phibar.shape[1], p.shape[1])
    topics = np.arange(n_topics)
    information = np.zeros((n_classes, n, n_classes, n))
    for c in range(n_classes):
        for d in range(c + 1):
            curvature = weight * p[:, c] * ((c == d) - p[:, d])
            moments = means.T @ (curvature[:, np.newaxis] * means)
            if independent:
                # E[zbar zbar'] is phibar phibar' and the scatter of the tokens
                scatter = curvature / length
                moments[:n_topics, :n_topics] -= phibar.T @ (scatter[:, np.newaxis] * phibar)
                moments[topics, topics] += scatter @ phibar
            information[c, :, d] = information[d, :, c] = moments
    return information.reshape(n_classes * n, n_classes * n)
