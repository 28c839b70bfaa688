"""The M-step: new parameters from the sums of the E-step, and the objective that EM raises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dslda.families.base import Array, Family
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.topic_seeds import TopicSeeds
from dslda.variational.topics import are_near_equal, topic_divergence

__all__ = [
    "coefficient_step",
    "m_step",
    "objective",
    "prior_precision",
    "response_step",
    "topic_log_prior",
    "update_alpha",
]

# data do not determine directions in which the information has less than this fraction of its largest eigenvalue
_RANK_TOLERANCE = 1e-12
_BLOCK_NUMBERS = 1 << 22
# range of alpha in which every number of the E-step stays finite (see FitSpec)
_LOWEST_ALPHA, _HIGHEST_ALPHA = 1e-10, 1e6
_MOST_ALPHA_STEPS = 100
_ALPHA_TOLERANCE = 1e-10


# numbers below the smallest double are 0, even if the caller makes numpy raise
@np.errstate(under="ignore")
def m_step(
    parameters: Parameters,
    statistics: SufficientStatistics,
    *,
    family: Family,
    spec: FitSpec,
    topics_have_parted: bool = True,
    known: NDArray[np.bool_] | None = None,
    seeds: TopicSeeds | None = None,
) -> Parameters:
    """Raise the expected complete log-likelihood.

    beta: posterior mode under Dirichlet(1 + topic_prior), the row-normalised expected counts (paper, eq. 13, with the
    prior's pseudo-counts, and those of `seeds`); or q(beta_k), the Dirichlet whose parameters are these sums before they are
    normalised. eta and
    zeta: one scoring step H^-1 g, which for the Gaussian is the paper's closed form (E[X'X])^-1 E[X]'y (eq. 17); for others
    the step is damped so that it ascends wherever l is log-concave and of exponential type (docs/model.md, section 3).
    delta: the family's update (eq. 18 for the Gaussian). alpha: where it is estimated, once the topics have parted.

    `parameters` are those of the E-step, `statistics` its sums over all documents. Of a sample they lack terms that others
    may have: `known` terms then have their pseudo-counts all the same.
    """
    topics, totals = _topics(statistics.topic_counts, spec.topic_prior, known, seeds)
    new = response_step(parameters, statistics, family=family, spec=spec)
    alpha = parameters.alpha
    # of near-equal topics documents have equal shares, which asks for a large alpha, which keeps the topics equal
    if spec.estimates_alpha and topics_have_parted and not are_near_equal(topics):
        alpha = update_alpha(
            alpha,
            statistics.log_theta,
            statistics.log_theta_weight,
            symmetric=spec.doc_topic_prior == "auto",
            n_words=float(statistics.topic_counts.sum()),
        )
    concentration = totals if spec.topic_estimation == "variational" else None
    return Parameters(topics, alpha, new.eta, new.delta, new.zeta, concentration)


def response_step(
    parameters: Parameters, statistics: SufficientStatistics, *, family: Family, spec: FitSpec
) -> Parameters:
    """The M-step of the coefficients and the family's own parameters; topics and alpha stay."""
    if not statistics.labelled_weight > 0.0:
        return parameters
    step, gain = coefficient_step(parameters, statistics, family=family, spec=spec)
    n_topics = parameters.n_topics
    delta = family.update_delta(
        parameters.delta, statistics.profile, weight=statistics.labelled_weight, gain=gain
    )
    if family.has_dispersion_floor:
        # scaled responses have variance 1
        delta = np.concatenate([[max(delta[0], spec.dispersion_floor)], delta[1:]])
    return replace(
        parameters,
        eta=parameters.eta + step[:n_topics],
        zeta=parameters.zeta + step[n_topics:],
        delta=delta,
    )


def coefficient_step(
    parameters: Parameters, statistics: SufficientStatistics, *, family: Family, spec: FitSpec
) -> tuple[Array, float]:
    """The step of (eta, zeta), shape (K + P,) or (K + P, C), and its gain in F to second order."""
    coefficients = np.concatenate([parameters.eta, parameters.zeta])
    penalty = prior_precision(parameters, family, spec)
    score = statistics.score - penalty @ coefficients
    information = statistics.information + penalty
    if coefficients.ndim == 1:
        step = _solve(information, score)
        if statistics.curvature > 0.0:
            # near the optimum, a step of twice the right length oscillates, and a longer one diverges
            step *= min(statistics.curvature / statistics.curvature_bound, 1.0)
        if not family.is_quadratic:
            step *= _damping(step)
        gain = float(statistics.score @ step - 0.5 * step @ (statistics.information @ step))
        return step, gain
    step = np.column_stack([_solve(h, g) for h, g in zip(information, score.T, strict=True)])
    # a part common to all classes does not change F, nor its bound if it is one number (see `kernels.class_e_step`)
    common = step.mean(axis=1, keepdims=True)
    if family.uses_bound:
        common[: parameters.n_topics] = common[: parameters.n_topics].mean()
    step -= common
    step *= _damping(2.0 * step)
    return step, 0.0


def prior_precision(parameters: Parameters, family: Family, spec: FitSpec) -> Array:
    """Precision of the prior of (eta, zeta), shape (K + P, K + P).

    It pulls the coefficients of covariates towards 0, and those of topics towards their mean, which acts as the intercept.
    """
    n_topics = parameters.n_topics
    ridge = _ridge(family, spec)
    precision = ridge * np.eye(n_topics + len(parameters.zeta))
    precision[:n_topics, :n_topics] -= ridge / n_topics
    return precision


def _damping(step: Array) -> float:
    """log(1 + b) / b with b the longest step; it ascends for log-concave l of exponential type, without a line search."""
    longest = float(np.abs(step).max())
    return float(np.log1p(longest)) / longest if longest > 0.0 else 1.0


def _ridge(family: Family, spec: FitSpec) -> float:
    return family.default_ridge if spec.ridge is None else spec.ridge


def objective(
    statistics: SufficientStatistics,
    parameters: Parameters,
    *,
    family: Family,
    spec: FitSpec,
    seeds: TopicSeeds | None = None,
) -> float:
    """The documents' ELBO plus the log densities of topics and coefficients under their priors, up to a constant.

    Topics that are distributions contribute minus their divergence from the prior, with all constants. Then, without a prior
    of the coefficients, the objective is a lower bound of the log evidence. `statistics` are those of the E-step at
    `parameters`.
    """
    ridge = _ridge(family, spec)
    spread = parameters.eta - parameters.eta.mean(axis=0)
    prior = -0.5 * ridge * (float(np.square(spread).sum()) + float(np.square(parameters.zeta).sum()))
    pseudo_counts = None if seeds is None else seeds.pseudo_counts(statistics.topic_counts)
    if parameters.concentration is None:
        of_topics = topic_log_prior(parameters.topics, spec.topic_prior)
        if seeds is not None and pseudo_counts is not None:
            of_topics += seeds.log_prior(parameters.topics, pseudo_counts)
    else:
        of_topics = -topic_divergence(parameters, spec.topic_prior, seeds, pseudo_counts)
    return statistics.elbo + of_topics + spec.response_weight * prior


def topic_log_prior(topics: Array, topic_prior: float) -> float:
    """topic_prior * sum log beta over known terms; 0 without a prior."""
    if topic_prior == 0.0:
        return 0.0
    total = 0.0
    # in blocks: three copies of the topics may take gigabytes
    step = max(_BLOCK_NUMBERS // topics.shape[1], 1)
    for start in range(0, len(topics), step):
        block = topics[start : start + step]
        known = block.max(axis=1) > 0.0
        total += float(np.log(block[known]).sum())
    return topic_prior * total


def _topics(
    topic_counts: Array, topic_prior: float, known: NDArray[np.bool_] | None, seeds: TopicSeeds | None
) -> tuple[Array, Array]:
    """Normalised topics, shape (V, K), and their sums before. A term in no document has no mass and so stays unknown."""
    seen = topic_counts.sum(axis=1) > 0.0 if known is None else known
    topics = topic_counts + np.where(seen, topic_prior, 0.0)[:, np.newaxis]
    if seeds is not None:
        seeds.add_to(topics, seeds.pseudo_counts(topic_counts))
    totals = topics.sum(axis=0)
    # without a prior a topic may lose all mass: a uniform one over the observed terms is finite and harmless
    dead = ~(totals > 0.0)
    if dead.any():
        topics[:, dead] = np.where(seen, 1.0, 0.0)[:, np.newaxis]
        totals = topics.sum(axis=0)
    topics /= np.where(totals > 0.0, totals, 1.0)
    return topics, totals


def _solve(information: Array, score: Array) -> Array:
    """The shortest solution of information * step = score."""
    values, vectors = np.linalg.eigh(information)
    keep = values > _RANK_TOLERANCE * max(float(values[-1]), 0.0)
    vectors = vectors[:, keep]
    step: Array = vectors @ ((vectors.T @ score) / values[keep])
    return step


def update_alpha(
    alpha: Array, log_theta: Array, weight: float, *, symmetric: bool, n_words: float = np.inf
) -> Array:
    """Maximise weight (log Gamma(sum alpha) - sum log Gamma(alpha_k)) + sum (alpha_k - 1) log_theta_k.

    Newton's method with the linear-time inverse of Blei, Ng and Jordan (2003, appendix A.4.2), on log alpha, so that alpha
    stays above 0; a step that does not ascend is halved.

    The search starts at `alpha`. `log_theta` is the sum of E[log theta] over documents, `weight` the sum of their weights; 0
    leaves alpha unchanged. With `symmetric`, all entries stay equal. The sum of alpha counts for a document as
    that many words do. It stays at or below their mean number, `n_words` / `weight`, so that documents can still differ.
    """
    # a single topic has all of every document, whatever alpha is
    if not weight > 0.0 or len(alpha) == 1:
        return alpha
    mean_log = log_theta / weight
    if symmetric:
        mean_log = np.full_like(mean_log, mean_log.mean())
        alpha = np.full_like(alpha, alpha.mean())
    logs = np.log(alpha)
    value = _alpha_objective(logs, mean_log)
    for _ in range(_MOST_ALPHA_STEPS):
        step = _alpha_step(np.exp(logs), mean_log)
        size = 1.0
        while size > 1e-8:
            trial = np.clip(
                logs + size * np.clip(step, -2.0, 2.0), np.log(_LOWEST_ALPHA), np.log(_HIGHEST_ALPHA)
            )
            new = _alpha_objective(trial, mean_log)
            if new >= value:
                break
            size *= 0.5
        else:
            break
        moved = float(np.abs(trial - logs).max())
        logs, value = trial, new
        if moved < _ALPHA_TOLERANCE:
            break
    new_alpha: Array = np.exp(logs)
    most = n_words / weight
    if new_alpha.sum() > most:
        # the objective is concave in alpha, so it also rises up to the border, on the way from a start within
        start = alpha * min(most / alpha.sum(), 1.0)
        new_alpha = start + (new_alpha - start) * (most - start.sum()) / (new_alpha.sum() - start.sum())
    return new_alpha


def _alpha_objective(logs: Array, mean_log: Array) -> float:
    alpha = np.exp(logs)
    return float(
        special.gammaln(alpha.sum()) - special.gammaln(alpha).sum() + ((alpha - 1.0) * mean_log).sum()
    )


def _alpha_step(alpha: Array, mean_log: Array) -> Array:
    """Uphill step in log alpha. The Hessian is a diagonal plus a constant times alpha alpha'."""
    slope = special.digamma(alpha.sum()) - special.digamma(alpha) + mean_log
    common = special.polygamma(1, alpha.sum())
    gradient = alpha * slope
    # leave out the slope's share of the curvature where it would bend upwards
    diagonal = -(alpha**2) * special.polygamma(1, alpha) + np.minimum(gradient, 0.0)
    inverse = 1.0 / diagonal
    denominator = 1.0 / common + (alpha**2 * inverse).sum()
    along = (alpha * inverse * gradient).sum() / denominator
    step: Array = -(inverse * gradient - inverse * alpha * along)
    # an indefinite curvature may point downhill
    return step if step @ gradient > 0.0 else gradient
