"""Columns of documents beside words and response: offsets, trials, weights, emphasis, covariates."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dslda.families.base import Family
from dslda.families.categorical import Categorical
from dslda.families.registry import get_family
from dslda.variational.estep import e_step, infer, neutral_extras
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import ScalarResponse
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics
from tests.helpers.class_problems import class_parameters, documents_of_classes
from tests.helpers.problems import Documents, documents_of, random_documents, random_parameters

N_TERMS, N_TOPICS, N_DOCUMENTS = 20, 3, 12
SUMS = (
    "topic_counts",
    "score",
    "information",
    "log_theta",
    "profile",
    "elbo",
    "labelled_weight",
    "log_theta_weight",
    "pearson",
    "pearson_weight",
)
SCALAR = ("gaussian", "poisson", "binomial", "weibull")
EVERY = pytest.mark.parametrize("name", [*SCALAR, "bound", "delta"])


def problem(name: str) -> tuple[Documents, Parameters, Family, NDArray[np.float64]]:
    """Documents with two covariates and everything else, some without response."""
    rng = np.random.default_rng(7)
    extras = neutral_extras(N_DOCUMENTS, 2)
    extras[:, 2:4] = rng.uniform(0.3, 3.0, (N_DOCUMENTS, 2))
    extras[:, 4:] = rng.normal(size=(N_DOCUMENTS, 2))
    if name in ("bound", "delta"):
        parameters = class_parameters(rng, N_TERMS, N_TOPICS, 4, n_covariates=2)
        return documents_of_classes(rng, N_TERMS, N_DOCUMENTS, 4), parameters, Categorical(4, name), extras
    extras[:, 0] = rng.normal(scale=0.3, size=N_DOCUMENTS)
    documents = random_documents(rng, N_TERMS, N_DOCUMENTS)
    missing = np.isnan(documents.y)
    family = get_family(name)
    delta = {"gaussian": 0.6, "weibull": 1.4}.get(name, 1.0)
    if name == "binomial":
        extras[:, 1] = rng.integers(1, 8, N_DOCUMENTS)
        documents = documents.with_response(np.floor(rng.random(N_DOCUMENTS) * (extras[:, 1] + 1)))
    elif name == "poisson":
        documents = documents.with_response(rng.poisson(1.5, N_DOCUMENTS))
    elif name == "weibull":
        extras[:, 1] = rng.integers(0, 2, N_DOCUMENTS)
        documents = documents.with_response(rng.exponential(size=N_DOCUMENTS) + 0.05)
    documents.y[missing] = np.nan
    parameters = replace(
        random_parameters(rng, N_TERMS, N_TOPICS, delta=delta, eta_scale=0.6), zeta=np.array([0.3, -0.5])
    )
    return documents, parameters, family, extras


@pytest.mark.parametrize("granularity", ["term", "token"])
@pytest.mark.parametrize("name", SCALAR)
def test_the_kernel_equals_the_readable_e_step(name: str, granularity: str) -> None:
    documents, parameters, family, extras = problem(name)
    spec = FitSpec(
        n_topics=N_TOPICS, response_weight=1.3, granularity=granularity, max_sweeps=2, sweep_tol=0.0
    )
    posterior = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family, extras=extras)
    statistics = e_step(*documents.arrays, parameters, family=family, spec=spec, extras=extras)
    n = N_TOPICS + 2
    expected = SufficientStatistics.zeros(N_TERMS, N_TOPICS, n_covariates=2, n_probes=len(statistics.profile))
    for d, (offset, aux, weight, emphasis, *x) in enumerate(extras):
        terms, counts, y = documents.document(d)
        offset += parameters.zeta @ x
        state = one_predictor.cold_start(terms, counts, parameters, granularity=granularity)
        rho = spec.response_weight * emphasis
        for _ in range(2):
            state = one_predictor.sweep(
                state, parameters, ScalarResponse(family, y, rho=rho, offset=offset, aux=aux)
            )
        elbo = one_predictor.document_elbo(
            state, parameters, ScalarResponse(family, y, rho=rho, offset=offset, aux=aux)
        )
        m, v = one_predictor.moments(state, parameters.eta, family)
        assert_allclose(posterior.gamma[d], state.gamma, rtol=1e-6, atol=1e-6)
        assert_allclose(posterior.elbo[d], elbo, rtol=1e-6)
        assert_allclose(posterior.mean[d], offset + m, rtol=1e-6, atol=1e-7)
        assert_allclose(posterior.variance[d], v, rtol=1e-5, atol=1e-9)
        expected.elbo += weight * elbo
        np.add.at(expected.topic_counts, state.terms, weight * state.copies[:, np.newaxis] * state.phi)
        expected.log_theta_weight += weight
        if np.isnan(y):
            continue
        share = weight * emphasis
        expected.labelled_weight += share
        score, information = one_predictor.document_statistics(
            state, parameters, ScalarResponse(family, y, offset=offset, aux=aux)
        )
        expected.score[:N_TOPICS] += share * score
        expected.information[:N_TOPICS, :N_TOPICS] += share * information
        # rows of covariates: a covariate moves the offset, and has no variance
        h = 1e-5
        up, down = (
            one_predictor.document_elbo(
                state, parameters, ScalarResponse(family, y, offset=offset + s, aux=aux)
            )
            for s in (h, -h)
        )
        expected.score[N_TOPICS:] += share * (up - down) / (2 * h) * np.array(x)
        # zbar sums to 1
        along = share * information.sum(axis=1)
        expected.information[N_TOPICS:, :N_TOPICS] += np.outer(x, along)
        expected.information[:N_TOPICS, N_TOPICS:] += np.outer(along, x)
        expected.information[N_TOPICS:, N_TOPICS:] += along.sum() * np.outer(x, x)
    assert expected.score.shape == (n,)
    for field in ("topic_counts", "score", "information", "elbo", "labelled_weight", "log_theta_weight"):
        assert_allclose(
            getattr(statistics, field), getattr(expected, field), rtol=1e-5, atol=1e-5, err_msg=field
        )
    assert_array_equal(statistics.information, statistics.information.T)


def sums_of(statistics: SufficientStatistics) -> dict[str, NDArray[np.float64]]:
    return {name: np.asarray(getattr(statistics, name)) for name in SUMS}


@EVERY
def test_a_weight_of_two_is_the_document_twice(name: str) -> None:
    documents, parameters, family, extras = problem(name)
    spec = FitSpec(n_topics=N_TOPICS)
    weights = np.arange(N_DOCUMENTS) % 3
    extras[:, 2] = weights
    twice = np.repeat(np.arange(N_DOCUMENTS), weights)
    once = extras[twice]
    once[:, 2] = 1.0
    weighted = e_step(*documents.arrays, parameters, family=family, spec=spec, extras=extras)
    repeated = e_step(*documents.take(twice).arrays, parameters, family=family, spec=spec, extras=once)
    for field, wanted in sums_of(repeated).items():
        atol = 1e-13 * np.abs(wanted).max()
        assert_allclose(getattr(weighted, field), wanted, rtol=1e-12, atol=atol, err_msg=field)
    # a weight is no document
    assert weighted.n_documents == N_DOCUMENTS
    assert weighted.n_tokens == documents.n_tokens


@EVERY
def test_weights_leave_each_posterior_alone(name: str) -> None:
    documents, parameters, family, extras = problem(name)
    spec = FitSpec(n_topics=N_TOPICS)
    other = extras.copy()
    other[:, 2] = 5.0
    one, two = (
        infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family, extras=e)
        for e in (extras, other)
    )
    for field in fields(one):
        assert_array_equal(getattr(one, field.name), getattr(two, field.name))


@EVERY
def test_words_alone_have_their_posterior_and_the_sums_of_the_responses_at_it(name: str) -> None:
    """The sums of words are those of documents without responses; the score is the derivative of the profile."""
    documents, parameters, family, extras = problem(name)
    spec = FitSpec(n_topics=N_TOPICS, response_weight=7.0)

    def sums(p: Parameters) -> SufficientStatistics:
        return e_step(*documents.arrays, p, family=family, spec=spec, extras=extras, words_alone=True)

    found = sums(parameters)
    unlabelled = documents.with_response(np.full(N_DOCUMENTS, np.nan))
    of_words = e_step(*unlabelled.arrays, parameters, family=family, spec=spec, extras=extras)
    for field in ("topic_counts", "log_theta", "elbo", "n_sweeps"):
        assert_array_equal(getattr(found, field), getattr(of_words, field))
    assert found.n_labelled == np.count_nonzero(~np.isnan(documents.y)) > of_words.n_labelled == 0
    for part, row in (("eta", 0), ("zeta", N_TOPICS)):
        values = getattr(parameters, part)
        for index in np.ndindex(values.shape):
            step = np.zeros_like(values)
            step[index] = 1e-5
            above, below = (sums(replace(parameters, **{part: values + s})) for s in (step, -step))
            slope = (above.profile[0] - below.profile[0]) / 2e-5
            assert_allclose(found.score[row + index[0], *index[1:]], slope, rtol=1e-5, atol=1e-6)


@EVERY
def test_emphasis_is_the_rho_of_one_document(name: str) -> None:
    documents, parameters, family, extras = problem(name)
    extras[:, 3] = 1.0
    strong = extras.copy()
    strong[:, 3] = 2.5
    outcome = {}
    for rho, e in ((2.5, extras), (1.0, strong)):
        spec = FitSpec(n_topics=N_TOPICS, response_weight=rho)
        outcome[rho] = (
            infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family, extras=e),
            e_step(*documents.arrays, parameters, family=family, spec=spec, extras=e),
        )
    (by_rho, sums_by_rho), (by_emphasis, sums_by_emphasis) = outcome[2.5], outcome[1.0]
    for field in fields(by_rho):
        assert_array_equal(getattr(by_rho, field.name), getattr(by_emphasis, field.name))
    assert sums_by_rho.elbo == sums_by_emphasis.elbo
    assert_array_equal(sums_by_rho.topic_counts, sums_by_emphasis.topic_counts)
    # rho is not in the M-step's sums, since it is the same for all; emphasis is
    for field in ("score", "information", "profile", "labelled_weight"):
        wanted = 2.5 * np.asarray(getattr(sums_by_rho, field))
        atol = 1e-13 * np.abs(wanted).max()
        assert_allclose(getattr(sums_by_emphasis, field), wanted, rtol=1e-12, atol=atol)


@EVERY
def test_nothing_told_is_nothing_special(name: str) -> None:
    """Without covariates in the model `extras` may be left out; with them, documents are average ones."""
    documents, parameters, family, _ = problem(name)
    spec = FitSpec(n_topics=N_TOPICS)
    if name == "binomial":
        documents = documents.with_response(np.minimum(documents.y, 1.0))
    for n_covariates in (0, 2):
        fewer = replace(parameters, zeta=parameters.zeta[:n_covariates])
        explicit = neutral_extras(N_DOCUMENTS, n_covariates)
        one, two = (
            e_step(*documents.arrays, fewer, family=family, spec=spec, extras=e) for e in (None, explicit)
        )
        for field, wanted in sums_of(two).items():
            assert_array_equal(getattr(one, field), wanted)


@EVERY
def test_documents_without_words_have_the_predictor_of_the_prior_and_their_covariates(name: str) -> None:
    _, parameters, family, _ = problem(name)
    documents = documents_of([([], [], 1.0), ([], [], np.nan)])
    extras = neutral_extras(2, 2)
    extras[:, 4:] = [[1.0, 2.0], [0.0, -1.0]]
    extras[:, 2] = 3.0
    spec = FitSpec(n_topics=N_TOPICS)
    posterior = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family, extras=extras)
    prior = parameters.alpha / parameters.alpha.sum()
    topics = np.log(prior @ np.exp(parameters.eta)) if name == "bound" else prior @ parameters.eta
    assert_allclose(posterior.mean, topics + extras[:, 4:] @ parameters.zeta, rtol=1e-12)
    statistics = e_step(*documents.arrays, parameters, family=family, spec=spec, extras=extras)
    for wanted in sums_of(statistics).values():
        assert_array_equal(wanted, 0.0)
    assert statistics.n_empty == 2
