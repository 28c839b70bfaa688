"""Diagnostics of a finished fit: warnings, the uncertainty of its coefficients, and its base rate."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert

from dslda.engine.driver import FitResult
from dslda.engine.executor import single_threaded_blas
from dslda.evaluation.topic_quality import alike_topics
from dslda.exceptions import ConvergenceWarning, DataWarning, InputError, warn
from dslda.families.base import Family
from dslda.persistence.model_record import ModelRecord
from dslda.variational.design import Design
from dslda.variational.parameters import FitSpec, Parameters, alpha_has_moved
from dslda.variational.statistics import SufficientStatistics, has_pearson
from dslda.wording import alpha_in_words, first_few, number_of

__all__ = [
    "base_predictor",
    "check_learned",
    "covariance_of",
    "covariance_of_classes",
    "pearson_of",
    "report_alpha",
    "report_convergence",
    "report_entangled",
    "report_limit",
    "report_near_equal",
    "report_scatter",
    "report_separation",
]

logger = logging.getLogger("dslda.training")

MANY_UNCONVERGED = 0.01
MOST_LISTED = 10
"""Most topics that a warning lists."""
FARTHEST = 2.0**40
"""Largest linear predictor of the search for one with a given mean."""
ENTANGLED = 1e-10
"""Fraction of the largest eigenvalue below which the data say nothing about a direction."""
TAKES_PART = 0.01
"""Smallest share of a covariate in such a direction that is more than rounding."""
SEPARATED = 0.98
"""For two even classes: geometric mean of the probabilities of the observed classes above which only the ridge sets the size
of coefficients. The base rate already predicts uneven ones well, so their bound is higher."""

SCATTERED = 1.5
"""Pearson dispersion above which standard errors are too small by a fifth and more."""
SURE = 4.0
"""A warning needs a Pearson dispersion this many of its standard errors above 1."""


def check_learned(statistics: SufficientStatistics, response: str) -> None:
    """Refuse a fit in which no response counted."""
    if statistics.n_labelled > 0 and not statistics.labelled_weight > 0.0:
        raise InputError(f"weights must be above 0 for some document with {response}, got 0 for all")
    if statistics.n_labelled == 0:
        raise InputError(
            f"{response} must be known for a document that has a word of the vocabulary, got "
            f"{number_of(statistics.n_documents, 'document')}, {statistics.n_empty:,} of them without "
            "such a word; there is nothing to learn"
        )


def report_convergence(result: FitResult, spec: FitSpec) -> None:
    """Warn where EM, or the sweeps over many documents, stopped at their caps."""
    statistics = result.statistics
    if not result.converged and not result.interrupted:
        what, moved, remedy = "EM", "", "raise {max_iter} or {tol}"
        if spec.objective == "conditional":
            what, moved, remedy = "training", ", before later epochs ceased to help", "raise {max_iter}"
        elif len(result.trace) > 1:
            change = result.trace[-1].relative_change
            moved = f", the ELBO still changed by {change:.1e} (tol {spec.tol:g})"
        warn(
            ConvergenceWarning(
                f"{what} stopped at its cap of {number_of(spec.max_iter, 'iteration')}{moved}", remedy=remedy
            )
        )
    if statistics.n_unconverged:
        message = (
            f"{statistics.n_unconverged:,} of {number_of(statistics.n_documents, 'document')} reached the cap of "
            f"{number_of(spec.max_sweeps, 'sweep')} in the last E-step"
        )
        if statistics.n_unconverged > MANY_UNCONVERGED * statistics.n_documents:
            warn(
                ConvergenceWarning(
                    message,
                    remedy="raise {max_sweeps}"
                    if spec.objective == "conditional"
                    else "raise {max_sweeps} or {sweep_tol}",
                )
            )
        else:
            logger.info("%s", message)


def report_alpha(parameters: Parameters, spec: FitSpec) -> None:
    """Say what an estimated alpha has become."""
    if spec.estimates_alpha:
        said = (
            "alpha was estimated"
            if alpha_has_moved(parameters)
            else "the topics have not parted, and alpha stays"
        )
        logger.info("%s: %s", said, alpha_in_words(parameters.alpha.tolist()))


def report_near_equal(record: ModelRecord) -> None:
    """Say where topics are nearly the same, so that their coefficients mean little.

    A fit that was cut short may still be on the plateau where all are, and is told to go on.
    """
    n_topics, conditional = record.spec.n_topics, record.spec.objective == "conditional"
    topics = alike_topics(record.parameters, record.prevalence, record.spec)
    if not topics:
        return
    which = "all" if len(topics) == n_topics else f"{len(topics)} of {n_topics}"
    message = (
        f"{which} topics have nearly the words of another one ({first_few([*map(str, topics)], MOST_LISTED)}): their "
        "coefficients cannot be told apart"
    )
    if conditional and record.training.converged:
        remedy = "fewer topics" if record.spec.emphasis == "themes" else "emphasis='themes'"
        logger.info("%s; %s makes them more distinct", message, remedy)
    elif record.training.converged:
        warn(DataWarning(message, remedy="choose fewer topics, or a fixed {doc_topic_prior}"))
    else:
        logger.info("%s", message)


def report_separation(
    statistics: SufficientStatistics,
    family: Family,
    response: str,
    *,
    rate: NDArray[np.float64],
    class_weight: Sequence[float] | None,
) -> None:
    """Warn where topics separate the classes of the training documents almost perfectly.

    The likelihood then grows with the coefficients without end (Albert and Anderson 1984), and only the ridge stops them.
    `rate` holds the shares of the classes by `class_weight`: all (C,), the second of two (1,), or the mean of a trial (1,).
    """
    if not family.has_classes:
        return
    shares = np.array([1.0 - rate[0], rate[0]]) if len(rate) == 1 else rate
    if class_weight is not None:
        shares = shares / np.where(np.asarray(class_weight) > 0.0, class_weight, np.inf)
    shares = shares[shares > 0.0] / shares.sum()
    uneven = min(-float(shares @ np.log(shares)) / math.log(2.0), 1.0)
    probability = math.exp(statistics.profile[0] / statistics.labelled_weight)
    if probability > SEPARATED**uneven:
        warn(
            DataWarning(
                "topics (and covariates) tell its classes apart all but perfectly in training (the class "
                f"seen has a probability of {probability:.3f}, on geometric average): only the ridge keeps "
                "the coefficients from growing without end, so read their signs and not their sizes",
                place=response,
                remedy="a larger ridge makes them smaller",
            )
        )


def pearson_of(
    statistics: SufficientStatistics, family: Family, design: Design, n_topics: int
) -> NDArray[np.float64] | None:
    """X2 and its degrees of freedom: :attr:`~dslda.persistence.model_record.ModelRecord.pearson`."""
    if not has_pearson(family, trials=design.trials):
        return None
    n_coefficients = n_topics + len(design.covariates)
    return np.array([statistics.pearson, statistics.pearson_weight - n_coefficients])


def report_scatter(
    pearson: NDArray[np.float64] | None, family: Family, response: str, *, mean: float
) -> None:
    """Warn where responses with this `mean` scatter far more than the family allows."""
    if pearson is None or not family.scatter_remedy or family.is_quasi or not pearson[1] > 0.0:
        return
    dispersion = float(pearson[0] / pearson[1])
    # X2 of a Poisson count has the variance 2 + 1 / mu
    chance = math.sqrt((2.0 + 1.0 / mean) / float(pearson[1]))
    if dispersion > max(SCATTERED, 1.0 + SURE * chance):
        warn(
            DataWarning(
                f"{response} scatters {dispersion:.3g} times as much as family {family.name} allows around what topics and "
                "covariates explain (Pearson dispersion): standard errors are too small by the factor "
                f"{math.sqrt(dispersion):.2g}",
                remedy=family.scatter_remedy,
            )
        )


def report_limit(parameters: Parameters, family: Family, response: str) -> None:
    """Warn where the scatter of amounts, durations or shares is beyond what their family can have.

    Counts are left out: those that scatter as little as Poisson's take a negative binomial to its limit.
    """
    n = len(parameters.delta) if family.n_searched is None else family.n_searched
    if family.domain.integer or family.has_levels or family.has_classes or family.has_dispersion_floor:
        return
    for value in parameters.delta[:n].tolist():
        if value in family.delta_bounds:
            warn(
                DataWarning(
                    f"scatters as family {family.name} cannot have it: its parameter has reached the limit of {value:g}, and "
                    "standard errors mean nothing",
                    place=response,
                    remedy=(
                        "mend responses that are far smaller or larger than the others, or leave them out with {documents=}",
                        "choose another {family}",
                    ),
                )
            )


def covariance_of(information: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Inverse of the information matrix, shape (M, M); None where it is singular."""
    # scaled to a unit diagonal, so that a rare topic does not look like a singular direction
    diagonal = np.diagonal(information)
    if not (np.isfinite(information).all() and (diagonal > 0).all()):
        return None
    scale = 1.0 / np.sqrt(diagonal)
    with single_threaded_blas():
        values, vectors = np.linalg.eigh(information * np.outer(scale, scale))
        if values[0] <= len(values) * np.finfo(np.float64).eps * values[-1]:
            return None
        inverse: NDArray[np.float64] = (vectors / values) @ vectors.T
    return inverse * np.outer(scale, scale)


def covariance_of_classes(
    joint: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Covariance of each class's coefficients where those of all classes sum to 0, shape (C, M, M); None where singular.

    `joint` is the information of all classes together, shape (C M, C M), and `prior` the precision of each class's prior.
    """
    n = len(prior)
    n_classes = len(joint) // n
    contrasts = helmert(n_classes)
    with single_threaded_blas():
        information = np.einsum(
            "ac,cidj,bd->aibj", contrasts, joint.reshape(n_classes, n, n_classes, n), contrasts, optimize=True
        )
        free = (n_classes - 1) * n
        covariance = covariance_of(information.reshape(free, free) + np.kron(np.eye(n_classes - 1), prior))
        if covariance is None:
            return None
        blocks: NDArray[np.float64] = np.einsum(
            "ac,aibj,bc->cij", contrasts, covariance.reshape(information.shape), contrasts, optimize=True
        )
    return blocks


def report_entangled(information: NDArray[np.float64], design: Design) -> None:
    """Warn of covariates in a direction of the coefficients that the data leave open.

    The information matrix, (M, M) or (C, M, M), is that of the data without the ridge, which makes every matrix regular.
    """
    names = [column.name for column in design.covariates]
    if not names:
        return
    entangled: set[str] = set()
    for block in information if information.ndim == 3 else information[np.newaxis]:
        diagonal = np.diagonal(block)
        # a topic without words, or a level without documents, is a direction of its own
        scale = np.where(diagonal > 0.0, 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0)), 0.0)
        with single_threaded_blas():
            values, vectors = np.linalg.eigh(block * np.outer(scale, scale))
        parts = np.abs(vectors[-len(names) :, values <= ENTANGLED * values[-1]]).max(axis=1, initial=0.0)
        entangled.update(name for name, part in zip(names, parts, strict=True) if part > TAKES_PART)
    if entangled:
        shown = ", ".join(repr(name) for name in dict.fromkeys(names) if name in entangled)
        warn(
            DataWarning(
                f"covariates {shown} cannot be told apart from each other or from "
                "the topics (one is a combination of the others): their coefficients are one choice of many",
                remedy="leave one out",
            )
        )


def base_predictor(
    family: Family, rate: NDArray[np.float64], delta: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Linear predictor of a document without known words: the one whose mean is the mean response of training.

    The prediction at the prior's mean of the topics is another number: links bend, and topics are not equally frequent.

    Parameters
    ----------
    family : Family
    rate : ndarray of float64, shape (1,), or (C,) for the shares of classes or levels
        The mean response, on the scale of the fit.
    delta : ndarray of float64, shape (n_delta,)

    Returns
    -------
    ndarray of float64, shape (1,), (C,) for classes, (1 + n_delta,) for levels, or None
        For levels the predictor and the delta at which they have their shares: with the delta of the fit, whose predictors
        differ between documents, one predictor for all has the mean of training but not its shares. None where no predictor
        has this mean.
    """
    if family.has_levels and len(rate) > 1:
        omega, cuts = family.at_shares(rate)
        return np.array([omega, *cuts])
    if len(rate) > 1:
        logarithms = np.log(rate)
        centred: NDArray[np.float64] = logarithms - logarithms.mean()
        return centred
    from scipy.optimize import brentq  # takes a tenth of a second to import

    nothing = np.zeros(1)

    def excess(omega: float) -> float:
        try:
            return float(family.mean(np.array([omega]), nothing, delta)[0] - rate[0])
        except InputError:  # a user's own family need not be finite this far out
            return math.nan

    end = 1.0
    with np.errstate(all="ignore"):
        while end <= FARTHEST:
            if excess(-end) * excess(end) <= 0.0:
                return np.array([brentq(excess, -end, end, xtol=1e-14)])
            end *= 2.0
    return None
