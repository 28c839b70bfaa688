"""Strides: extrapolation between sweeps saves sweeps and ends where sweeps end."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dslda.families.base import Family
from dslda.families.gaussian import Gaussian
from dslda.variational.estep import infer
from dslda.variational.kernels import ascent
from dslda.variational.kernels.ascent import Trail
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import ScalarResponse
from dslda.variational.parameters import FitSpec, Parameters
from tests.helpers.problems import Documents, documents_of, random_document

N_TERMS, N_TOPICS = 60, 6


def overlapping_topics(rng: np.random.Generator) -> tuple[Documents, Parameters]:
    """Topics that share most of their words, so that sweeps creep."""
    common = rng.dirichlet(np.ones(N_TERMS))
    topics = np.array([0.7 * common + 0.3 * rng.dirichlet(np.full(N_TERMS, 0.1)) for _ in range(N_TOPICS)]).T
    eta = rng.normal(size=N_TOPICS)
    parameters = Parameters(np.ascontiguousarray(topics), np.full(N_TOPICS, 0.2), eta, np.array([0.5]))
    return documents_of([random_document(rng, N_TERMS, distinct=30, most=3) for _ in range(30)]), parameters


def plain_sweeps(
    documents: Documents, parameters: Parameters, y: np.ndarray, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Number of sweeps and ELBO of every document without a stride."""
    n_sweeps, elbo = [], []
    for d in range(len(documents)):
        terms, counts, _ = documents.document(d)
        state = one_predictor.cold_start(terms, counts, parameters, granularity="term")
        trace = [-np.inf]
        while True:
            state = one_predictor.sweep(state, parameters, ScalarResponse(Gaussian(), y[d]))
            trace.append(one_predictor.document_elbo(state, parameters, ScalarResponse(Gaussian(), y[d])))
            if abs(trace[-1] - trace[-2]) <= tol * abs(trace[-1]):
                break
        n_sweeps.append(len(trace) - 1)
        elbo.append(trace[-1])
    return np.array(n_sweeps), np.array(elbo)


@pytest.mark.parametrize("labelled", [True, False])
def test_fewer_sweeps_climb_higher(labelled: bool, gaussian: Family) -> None:
    documents, parameters = overlapping_topics(np.random.default_rng(0))
    y = documents.y if labelled else np.full(len(documents), np.nan)
    n_plain, elbo = plain_sweeps(documents, parameters, y, 1e-6)
    spec = FitSpec(n_topics=N_TOPICS, sweep_tol=1e-6, max_sweeps=1000)
    ours = infer(*documents.csr, parameters, spec=spec, y=y, family=gaussian)
    assert ours.n_sweeps.sum() < 0.7 * n_plain.sum()
    assert ours.elbo.mean() > elbo.mean()
    assert ours.converged.all()


def test_where_it_stops_a_sweep_changes_nothing(gaussian: Family) -> None:
    documents, parameters = overlapping_topics(np.random.default_rng(1))
    spec = FitSpec(n_topics=N_TOPICS, sweep_tol=1e-13, max_sweeps=10_000)
    nothing = np.full(len(documents), np.nan)
    gamma = infer(*documents.csr, parameters, spec=spec, y=nothing, family=gaussian).gamma
    for d in range(len(documents)):
        terms, counts, _ = documents.document(d)
        state = one_predictor.cold_start(terms, counts, parameters, granularity="term")
        state.gamma = gamma[d]
        again = one_predictor.sweep(state, parameters, ScalarResponse(gaussian, np.nan)).gamma
        assert_allclose(again, gamma[d], rtol=1e-4, atol=1e-5)


def compiled_stride(older: np.ndarray, old: np.ndarray, gamma: np.ndarray, alpha: np.ndarray) -> bool:
    """The kernel's stride as Python, since the compiled one has no wrapper."""
    nothing = np.zeros(len(gamma))
    trail = Trail(nothing.copy(), nothing.copy(), *(nothing,) * 5)
    for before in (older, old):
        ascent.mark.py_func(trail, before)
    return bool(ascent.stride.py_func(trail, gamma, alpha))


def test_a_stride_goes_to_the_end_of_a_geometric_series() -> None:
    """Steps that shrink by one factor, the same for all topics, end at a point known in closed form."""
    rng = np.random.default_rng(2)
    end, start = rng.uniform(1.0, 5.0, size=(2, N_TOPICS))
    alpha = np.full(N_TOPICS, 0.1)
    older, old, gamma = (end + factor * (start - end) for factor in (1.0, 0.6, 0.36))
    assert_allclose(one_predictor.stride(older, old, gamma, alpha), end, rtol=1e-12)
    moved = gamma.copy()
    assert compiled_stride(older, old, moved, alpha)
    assert_allclose(moved, end, rtol=1e-12)


@pytest.mark.parametrize(
    ("older", "old", "gamma", "expected"),
    [
        ([1.0, 1.0], [2.0, 1.0], [4.0, 1.0], None),  # steps that grow
        ([1.0, 3.0], [2.0, 2.0], [1.0, 3.0], None),  # to and fro
        ([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], None),  # nowhere
        ([1.0, 3.0], [1.5, 2.0], [1.8, 1.4], [2.25, 0.5]),  # not below alpha
        (
            [1.0, 1.0],
            [2.0, 1.0],
            [3.0, 1.0],
            [1.0 + 2.0 * ascent.LONGEST_STRIDE, 1.0],
        ),  # steps that do not shrink
    ],
)
def test_strides_are_bounded(
    older: list[float], old: list[float], gamma: list[float], expected: list[float] | None
) -> None:
    alpha = np.full(2, 0.5)
    strode = one_predictor.stride(np.array(older), np.array(old), np.array(gamma), alpha)
    moved = np.array(gamma)
    assert compiled_stride(np.array(older), np.array(old), moved, alpha) == (expected is not None)
    if expected is None:
        assert strode is None
        assert moved.tolist() == gamma
    else:
        assert strode is not None
        assert_allclose(strode, expected)
        assert_allclose(moved, expected)
