"""Small random documents with classes, corpora drawn from the model of classes, and EM on them without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dslda.datasets.simulate import SimulatedCorpus, simulate_corpus
from dslda.families.categorical import Categorical
from dslda.variational.estep import neutral_extras
from dslda.variational.oracle import class_predictors
from dslda.variational.oracle.class_predictors import ClassResponse
from dslda.variational.oracle.one_predictor import DocumentState
from dslda.variational.parameters import Parameters
from dslda.variational.statistics import SufficientStatistics
from tests.helpers.problems import Documents, random_documents, random_parameters

__all__ = [
    "assert_rises",
    "centred",
    "class_parameters",
    "class_statistics",
    "documents_of_classes",
    "random_extras",
    "responses_of",
    "simulated_classes",
]


def class_parameters(
    rng: np.random.Generator,
    n_terms: int,
    n_topics: int,
    n_classes: int,
    *,
    n_covariates: int = 0,
    scale: float = 1.0,
    alpha: float | None = None,
) -> Parameters:
    """Peaked topics, and random coefficients that sum to 0 over the classes, as at the start of EM."""
    plain = random_parameters(rng, n_terms, n_topics, alpha=alpha)
    eta = centred(scale * rng.normal(size=(n_topics, n_classes)))
    zeta = centred(scale * rng.normal(size=(n_covariates, n_classes)))
    return replace(plain, eta=eta, delta=np.zeros(0), zeta=zeta)


def documents_of_classes(
    rng: np.random.Generator, n_terms: int, n_documents: int, n_classes: int, **options: float
) -> Documents:
    """Documents with classes independent of their words; some without a class."""
    documents = random_documents(rng, n_terms, n_documents, **options)
    codes = rng.integers(0, n_classes, n_documents).astype(np.float64)
    return documents.with_response(np.where(np.isnan(documents.y), np.nan, codes))


def random_extras(rng: np.random.Generator, n_documents: int, n_covariates: int) -> NDArray[np.float64]:
    """Weights and emphasis around 1, and covariates."""
    extras = neutral_extras(n_documents, n_covariates)
    extras[:, 2:4] = rng.uniform(0.2, 3.0, (n_documents, 2))
    extras[:, 4:] = rng.normal(size=(n_documents, n_covariates))
    return extras


def responses_of(
    documents: Documents, family: Categorical, *, rho: float, extras: NDArray[np.float64]
) -> list[ClassResponse]:
    """The oracle's response of each document."""
    return [
        ClassResponse(float(y), family.form, rho * row[3], row[4:])
        for y, row in zip(documents.y, extras, strict=True)
    ]


def class_statistics(
    states: Sequence[DocumentState],
    responses: Sequence[ClassResponse],
    parameters: Parameters,
    *,
    weights: Sequence[float],
    rho: float,
) -> SufficientStatistics:
    """Sufficient statistics of explicit variational distributions."""
    sums = SufficientStatistics.zeros(
        parameters.n_terms,
        parameters.n_topics,
        n_covariates=len(parameters.zeta),
        n_classes=parameters.n_classes,
    )
    for state, response, weight in zip(states, responses, weights, strict=True):
        sums.n_documents += 1
        if not len(state.terms):
            sums.n_empty += 1
            continue
        np.add.at(sums.topic_counts, state.terms, weight * state.copies[:, np.newaxis] * state.phi)
        sums.elbo += weight * class_predictors.document_elbo(state, parameters, response)
        sums.log_theta += weight * (special.digamma(state.gamma) - special.digamma(state.gamma.sum()))
        sums.log_theta_weight += weight
        sums.n_tokens += int(state.length)
        if response.labelled:
            share = weight * response.rho / rho
            score, information = class_predictors.document_statistics(state, parameters, response)
            sums.score += share * score
            sums.information += share * information
            phibar = class_predictors.mean_assignment(state)
            sums.profile += share * class_predictors.expected_log_likelihood(
                phibar, state.length, parameters, response
            )
            sums.labelled_weight += share
            sums.n_labelled += 1
    return sums


def simulated_classes(
    eta: NDArray[np.float64], n_documents: int, n_terms: int, *, seed: int, **options: float
) -> tuple[SimulatedCorpus, Documents]:
    """A corpus drawn from the model with these coefficients, shape (K, C)."""
    drawn = simulate_corpus(n_documents, len(eta), n_terms, seed=seed, **{"mean_tokens": 60.0, **options})
    noise = np.random.default_rng([seed, 1]).gumbel(size=(n_documents, eta.shape[1]))
    y = np.argmax(drawn.topic_shares @ eta + noise, axis=1).astype(np.float64)
    block = drawn.block
    return drawn, Documents(block.indptr, block.terms, block.counts, y)


def assert_rises(trace: Sequence[float], *, slack: float, what: str = "objective") -> None:
    """No value is below the one before by more than a fraction `slack`."""
    values = np.asarray(trace)
    assert np.all(np.diff(values) >= -slack * np.abs(values[1:])), (
        what,
        np.diff(values) / np.abs(values[1:]),
    )


def centred(eta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients without the part common to all classes, which data cannot determine."""
    return eta - eta.mean(axis=-1, keepdims=True)
