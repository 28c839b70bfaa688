"""Small random documents and parameters, a response that is not Gaussian, and EM without an engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dslda.engine.em import Decision, EMState
from dslda.families.base import STANDARDISED, Family, Interval, ResponseMoments
from dslda.families.categorical import Categorical
from dslda.families.scalars import SCALAR_SIGNATURE
from dslda.variational.estep import e_step
from dslda.variational.mstep import m_step, objective
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import ScalarResponse
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from dslda.variational.statistics import SufficientStatistics

__all__ = [
    "Documents",
    "PoissonLike",
    "as_distributions",
    "documents_of",
    "fit_in_a_loop",
    "moments_of",
    "random_document",
    "random_documents",
    "random_parameters",
    "reference_statistics",
    "wild_responses",
]


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Documents as compressed sparse rows with their standardised responses, NaN where missing."""

    indptr: NDArray[np.int64]
    terms: NDArray[np.int32]
    counts: NDArray[np.int32]
    y: NDArray[np.float64]

    @property
    def csr(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        return self.indptr, self.terms, self.counts

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.indptr, self.terms, self.counts, self.y

    @property
    def n_tokens(self) -> int:
        return int(self.counts.sum())

    def __len__(self) -> int:
        return len(self.y)

    def document(self, d: int) -> tuple[NDArray[np.int32], NDArray[np.int32], float]:
        own = slice(self.indptr[d], self.indptr[d + 1])
        return self.terms[own], self.counts[own], float(self.y[d])

    def take(self, which: Sequence[int]) -> Documents:
        return documents_of([self.document(d) for d in which])

    def with_response(self, y: ArrayLike) -> Documents:
        return Documents(*self.csr, np.array(y, dtype=np.float64))


def documents_of(rows: Sequence[tuple[ArrayLike, ArrayLike, float]]) -> Documents:
    """Documents from (terms, counts, y) each."""
    terms = [np.asarray(row[0], dtype=np.int32) for row in rows]
    counts = [np.asarray(row[1], dtype=np.int32) for row in rows]
    empty = [np.zeros(0, dtype=np.int32)]
    return Documents(
        np.cumsum([0, *map(len, terms)], dtype=np.int64),
        np.concatenate(terms + empty),
        np.concatenate(counts + empty),
        np.array([row[2] for row in rows], dtype=np.float64),
    )


def random_document(
    rng: np.random.Generator, n_terms: int, *, distinct: int, most: int = 5, labelled: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.int64], float]:
    """`distinct` terms of `n_terms`, each 1 to `most` times."""
    terms = np.sort(rng.choice(n_terms, distinct, replace=False))
    return terms, rng.integers(1, most + 1, distinct), float(rng.normal()) if labelled else math.nan


def random_documents(
    rng: np.random.Generator, n_terms: int, n_documents: int, *, longest: int = 8, unlabelled: float = 0.2
) -> Documents:
    return documents_of(
        [
            random_document(
                rng, n_terms, distinct=int(rng.integers(1, longest + 1)), labelled=rng.random() >= unlabelled
            )
            for _ in range(n_documents)
        ]
    )


def random_parameters(
    rng: np.random.Generator,
    n_terms: int,
    n_topics: int,
    *,
    delta: float = 0.5,
    eta_scale: float = 1.0,
    alpha: float | None = None,
) -> Parameters:
    """Peaked topics, random coefficients."""
    topics = rng.gamma(0.3, 1.0, (n_terms, n_topics)) + 1e-4
    eta = eta_scale * rng.normal(size=n_topics)
    return Parameters(
        topics / topics.sum(axis=0), np.full(n_topics, alpha or 1.0 / n_topics), eta, np.array([delta])
    )


def as_distributions(rng: np.random.Generator, parameters: Parameters, *, prior: float) -> Parameters:
    """The same with topics that are Dirichlet distributions, of few counts and many terms at the prior alone."""
    shape = parameters.topics.shape
    counts = prior + rng.gamma(0.3, 20.0, shape) * (rng.random(shape) < 0.3)
    totals = counts.sum(axis=0)
    return replace(parameters, topics=counts / totals, concentration=totals)


def reference_statistics(
    states: Sequence[one_predictor.DocumentState],
    y: NDArray[np.float64],
    parameters: Parameters,
    *,
    family: Family,
    spec: FitSpec,
) -> SufficientStatistics:
    """Sufficient statistics of explicit variational distributions."""
    deltas = family.delta_probes(parameters.delta)
    sums = SufficientStatistics.zeros(parameters.n_terms, parameters.n_topics, n_probes=len(deltas))
    for state, y_d in zip(states, y, strict=True):
        np.add.at(sums.topic_counts, state.terms, state.copies[:, np.newaxis] * state.phi)
        response = ScalarResponse(family, y_d, rho=spec.response_weight)
        sums.elbo += one_predictor.document_elbo(state, parameters, response)
        sums.n_documents += 1
        if len(state.terms):
            sums.log_theta += special.digamma(state.gamma) - special.digamma(state.gamma.sum())
            sums.log_theta_weight += 1.0
        if not np.isnan(y_d):
            score, information = one_predictor.document_statistics(state, parameters, response)
            sums.score += score
            sums.information += information
            if not family.is_exact_product:
                curvature, bound = one_predictor.curvatures(state, parameters, ScalarResponse(family, y_d))
                sums.curvature += curvature
                sums.curvature_bound += bound
            sums.profile += [
                one_predictor.expected_log_likelihood(state, parameters.eta, delta, response)
                for delta in deltas
            ]
            sums.labelled_weight += 1.0
            sums.n_labelled += 1
    return sums


def fit_in_a_loop(
    documents: Documents, n_terms: int, *, family: Family, spec: FitSpec
) -> tuple[Parameters, list[float]]:
    """EM as the engine runs it, without the engine: the parameters of the last E-step, and the trace."""
    parameters = initial_parameters(n_terms, spec=spec, family=family, moments=STANDARDISED)
    state, trace = EMState(), []
    while True:
        statistics = e_step(*documents.arrays, parameters, family=family, spec=spec)
        trace.append(objective(statistics, parameters, family=family, spec=spec))
        state = state.advance(trace[-1], spec)
        if state.decide(spec) is not Decision.CONTINUE:
            return parameters, trace
        parameters = m_step(
            parameters, statistics, family=family, spec=spec, topics_have_parted=state.has_parted
        )


def moments_of(y: NDArray[np.float64]) -> ResponseMoments:
    """Moments of responses, NaN where missing."""
    y = y[~np.isnan(y)]
    return ResponseMoments(len(y), float(y.mean()), float(y.var()), float(y.min()), float(y.max()))


def wild_responses(
    family: Family, rng: np.random.Generator, n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Responses and their trials or events: of any size, with ties, outliers, and none of some class."""
    aux = np.ones(n)
    size = 10.0 ** rng.uniform(-3, 3)
    if isinstance(family, Categorical):
        y = rng.integers(0, family.n_classes, n).astype(float)
    elif family.auxiliary == "trials":
        aux = rng.integers(1, 1 + int(rng.choice([1, 5, 200])), n).astype(float)
        y = rng.binomial(aux.astype(int), rng.beta(0.3, 0.3, n)).astype(float)
    elif family.name == "ordinal":
        y = rng.integers(0, rng.integers(2, 8), n).astype(float)
    elif family.domain.integer:
        y = np.minimum(np.floor(size * rng.pareto(1.0, n)), 1e6)
    elif family.domain.high == 1.0:
        y = np.clip(rng.beta(*rng.uniform(0.05, 5.0, 2), n), 1e-12, 1.0 - 1e-12)
    elif family.domain.low == 0.0:
        y = size * np.exp(rng.normal(0.0, rng.uniform(0.1, 3.0), n))
        aux = (rng.random(n) < 0.7).astype(float) if family.auxiliary == "event" else aux
    else:
        y = rng.normal() * size + size * rng.standard_t(1.5, n)
    y[0], y[1] = y.min(), y.max() + (y.max() == y.min())
    if family.auxiliary == "trials":
        aux = np.maximum(aux, y)
    if isinstance(family, Categorical):
        y = np.minimum(y, family.n_classes - 1)
    y[2:][rng.random(n - 2) < 0.1] = np.nan
    return y, aux


@njit(SCALAR_SIGNATURE, nogil=True)
def _log_likelihood(y, omega, delta, aux):
    return y * omega - math.exp(omega)


@njit(SCALAR_SIGNATURE, nogil=True)
def _first_derivative(y, omega, delta, aux):
    return y - math.exp(omega)


@njit(SCALAR_SIGNATURE, nogil=True)
def _minus_exp(y, omega, delta, aux):
    return -math.exp(omega)


@njit(SCALAR_SIGNATURE, nogil=True)
def _exp(y, omega, delta, aux):
    return math.exp(omega)


class PoissonLike(Family):
    """l = y omega - exp(omega): a response with a third derivative, to hold the delta-method form to."""

    name = "poisson-like"
    link = "log"
    domain = Interval(0.0, low_closed=True)
    n_searched = 0

    log_likelihood = staticmethod(_log_likelihood)
    first_derivative = staticmethod(_first_derivative)
    second_derivative = staticmethod(_minus_exp)
    third_derivative = staticmethod(_minus_exp)
    information_weight = staticmethod(_exp)

    def start(self, moments: ResponseMoments) -> tuple[float, float, NDArray[np.float64]]:
        return math.log(moments.mean), 1.0, np.ones(1)

    def mean(
        self, m: NDArray[np.float64], v: NDArray[np.float64], delta: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return np.exp(m) * (1.0 + 0.5 * v)
