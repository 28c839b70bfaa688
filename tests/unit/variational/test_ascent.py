"""Numbers that only rise: the ELBO over sweeps, and the objective over EM iterations."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslda.families.base import STANDARDISED, Family
from dslda.families.gaussian import Gaussian
from dslda.variational.estep import e_step, infer
from dslda.variational.mstep import m_step, objective
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import ScalarResponse
from dslda.variational.parameters import FitSpec, initial_parameters
from dslda.variational.topics import in_e_step
from tests.helpers.problems import (
    fit_in_a_loop,
    random_document,
    random_documents,
    random_parameters,
    reference_statistics,
)

GRANULARITIES = pytest.mark.parametrize("granularity", ["term", "token"])


def assert_never_falls(values: list[float] | np.ndarray) -> None:
    values = np.asarray(values)
    assert np.all(np.diff(values) >= -1e-9 * np.abs(values[1:])), values


@given(
    seed=st.integers(0, 2**32),
    n_topics=st.integers(1, 8),
    delta=st.floats(-6, 1),
    rho=st.sampled_from([1.0, 4.0]),
    granularity=st.sampled_from(["term", "token"]),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_reference_sweeps_never_lower_the_elbo(
    seed: int, n_topics: int, delta: float, rho: float, granularity: str
) -> None:
    rng = np.random.default_rng(seed)
    parameters = random_parameters(rng, 20, n_topics, delta=10.0**delta, eta_scale=2.0)
    terms, counts, y = random_document(rng, 20, distinct=int(rng.integers(1, 6)), most=6)
    state = one_predictor.cold_start(terms, counts, parameters, granularity=granularity)
    start = one_predictor.document_elbo(state, parameters, ScalarResponse(Gaussian(), y, rho=rho))
    _, trace = one_predictor.update_until_converged(
        state, parameters, ScalarResponse(Gaussian(), y, rho=rho), tol=0.0, max_sweeps=6
    )
    assert_never_falls([start, *trace])


@GRANULARITIES
@pytest.mark.parametrize("labelled", [True, False])
def test_kernel_sweeps_never_lower_the_elbo(granularity: str, labelled: bool, gaussian: Family) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        parameters = random_parameters(rng, 40, 7, delta=10.0**-seed, eta_scale=3.0)
        documents = random_documents(rng, 40, 20, longest=20, unlabelled=float(not labelled))
        elbo = [
            infer(
                *documents.csr,
                parameters,
                spec=FitSpec(n_topics=7, granularity=granularity, max_sweeps=sweeps, sweep_tol=0.0),
                y=documents.y,
                family=gaussian,
            ).elbo
            for sweeps in range(1, 12)
        ]
        for one_document in np.array(elbo).T:
            assert_never_falls(one_document)


@GRANULARITIES
@pytest.mark.parametrize(
    ("topic_prior", "rho", "alpha", "ridge", "topic_estimation"),
    [
        (0.0, 1.0, None, None, "map"),
        (0.01, 1.0, None, None, "map"),
        (0.5, 3.0, None, 2.0, "map"),
        (0.0, 1.0, "auto", 0.1, "map"),
        (0.01, 1.0, "asymmetric", None, "map"),
        (0.01, 1.0, None, None, "variational"),
        (0.5, 3.0, "auto", 2.0, "variational"),
    ],
)
def test_em_from_the_last_phi_never_lowers_the_objective(
    granularity: str,
    topic_prior: float,
    rho: float,
    alpha: str | None,
    ridge: float | None,
    topic_estimation: str,
    gaussian: Family,
) -> None:
    """Neither half of an iteration lowers the objective: not the sweeps, nor the M-step at the same phi."""
    rng = np.random.default_rng(6)
    documents = random_documents(rng, 12, 15, longest=6)
    spec = FitSpec(
        n_topics=3,
        granularity=granularity,
        topic_prior=topic_prior,
        topic_estimation=topic_estimation,
        response_weight=rho,
        doc_topic_prior=alpha,
        ridge=ridge,
    )
    parameters = initial_parameters(14, spec=spec, family=gaussian, moments=STANDARDISED)
    states = [
        one_predictor.cold_start(*documents.document(d)[:2], parameters, granularity=granularity)
        for d in range(len(documents))
    ]
    trace = []
    for _ in range(8):
        seen = in_e_step(parameters)
        states = [
            one_predictor.sweep(state, seen, ScalarResponse(gaussian, y, rho=rho))
            for state, y in zip(states, documents.y, strict=True)
        ]
        statistics = reference_statistics(states, documents.y, seen, family=gaussian, spec=spec)
        trace.append(objective(statistics, parameters, family=gaussian, spec=spec))
        parameters = m_step(parameters, statistics, family=gaussian, spec=spec)
        seen = in_e_step(parameters)
        statistics = reference_statistics(states, documents.y, seen, family=gaussian, spec=spec)
        trace.append(objective(statistics, parameters, family=gaussian, spec=spec))
    assert_never_falls(trace)
    assert trace[-1] > trace[0]


@GRANULARITIES
@pytest.mark.parametrize("topic_estimation", ["map", "variational"])
def test_last_elbo_of_a_fit_is_that_of_the_returned_parameters(
    topic_estimation: str, granularity: str, gaussian: Family
) -> None:
    rng = np.random.default_rng(9)
    documents = random_documents(rng, 50, 60, longest=15)
    spec = FitSpec(n_topics=4, granularity=granularity, topic_estimation=topic_estimation, max_iter=30)
    parameters, trace = fit_in_a_loop(documents, 50, family=gaussian, spec=spec)
    again = e_step(*documents.arrays, parameters, family=gaussian, spec=spec)
    assert objective(again, parameters, family=gaussian, spec=spec) == trace[-1]
    posterior = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=gaussian)
    assert again.elbo == pytest.approx(posterior.elbo.sum(), rel=1e-12)
    more = dataclasses.replace(spec, max_sweeps=1)
    assert e_step(*documents.arrays, parameters, family=gaussian, spec=more).elbo < again.elbo
