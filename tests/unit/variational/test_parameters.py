"""Settings, starting values and the records that travel."""

from __future__ import annotations

import math
import pickle
import re
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dslda.exceptions import InputError
from dslda.families.base import STANDARDISED
from dslda.families.gaussian import Gaussian
from dslda.variational.parameters import FitSpec, Parameters, Scaling, initial_parameters


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *(
            (name, bad)
            for name in ("n_topics", "max_iter", "max_sweeps")
            for bad in (0, -1, 2.0, "3", True, None)
        ),
        *(("seed", bad) for bad in (-1, 0.5, None)),
        *(
            (name, bad)
            for name in ("response_weight", "dispersion_floor")
            for bad in (0, -1.0, math.nan, math.inf, "1", None, True, 1e-320, 1e300)
        ),
        *(
            (name, bad)
            for name in ("topic_prior", "tol", "sweep_tol")
            for bad in (-1e-9, math.nan, math.inf, None, 1e300)
        ),
        *(("doc_topic_prior", bad) for bad in (0.0, -1.0, math.nan, math.inf, "some", 1e-320, 1e300)),
        *(("ridge", bad) for bad in (-1e-9, math.nan, math.inf, "auto", True, 1e300)),
        *(("granularity", bad) for bad in ("word", "", None)),
        *(("topic_estimation", bad) for bad in ("bayes", "", None, True)),
    ],
)
def test_settings_refuse_a_bad_value_and_name_it(field: str, bad: object) -> None:
    with pytest.raises(InputError, match=rf"^{field} must be .*got {re.escape(repr(bad))}(; |$)"):
        FitSpec(**{field: bad})


@pytest.mark.parametrize(
    "good",
    [
        {"n_topics": np.int64(1), "max_iter": 1, "max_sweeps": 1, "seed": 0},
        {"topic_prior": 0, "tol": 0.0, "sweep_tol": 0},
        {"doc_topic_prior": 1, "response_weight": np.float64(0.5), "dispersion_floor": 1e-12},
        {
            "doc_topic_prior": 1e-10,
            "response_weight": 1e-6,
            "dispersion_floor": 1,
            "topic_prior": 1e-320,
            "sweep_tol": 1e-320,
            "tol": 1,
        },
        {"doc_topic_prior": 1e6, "response_weight": 1e6, "topic_prior": 1e6, "sweep_tol": 1},
        {"granularity": "token"},
        {"topic_estimation": "variational", "topic_prior": 0.005},
        {"topic_estimation": "variational", "topic_prior": 1e6},
        {"doc_topic_prior": "auto", "ridge": 0},
        {"doc_topic_prior": "asymmetric", "ridge": None},
        {"doc_topic_prior": None, "ridge": 1e15},
    ],
)
def test_settings_accept_the_ends_of_their_ranges(good: dict[str, object]) -> None:
    spec = FitSpec(**good)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_range_is_told_with_its_reason_and_the_name_that_users_know() -> None:
    with pytest.raises(InputError) as refused:
        FitSpec(response_weight=1e300)
    assert str(refused.value) == (
        "response_weight must be a number from 1e-06 to 1e+06, got 1e+300; beyond that the words or the "
        "response no longer count"
    )
    with pytest.raises(InputError) as refused:
        FitSpec(topic_estimation="variational", topic_prior=0)
    assert str(refused.value) == (
        "topic_prior must be at least 0.005 for variational topics, got 0; below that a term is all but "
        "impossible in topics that lack it"
    )
    with pytest.raises(
        InputError,
        match=r"doc_topic_prior must be .*, or 'auto' or 'asymmetric' or '1/K', got 0; beyond that",
    ):
        FitSpec(doc_topic_prior=0)


def test_starting_values_are_a_function_of_vocabulary_size_and_settings() -> None:
    spec = FitSpec(n_topics=5)
    start = initial_parameters(200, spec=spec, family=Gaussian(), moments=STANDARDISED)
    np.random.default_rng(0).random(10)
    again = initial_parameters(200, spec=FitSpec(n_topics=5), family=Gaussian(), moments=STANDARDISED)
    assert start.topics.tobytes() == again.topics.tobytes()
    assert not np.array_equal(
        start.topics,
        initial_parameters(
            200, spec=FitSpec(n_topics=5, seed=1), family=Gaussian(), moments=STANDARDISED
        ).topics,
    )
    assert_allclose(start.topics.sum(axis=0), 1.0)
    # the paper's start: nearly uniform topics, a grid of coefficients, the variance of a standardised response
    assert_allclose(start.topics, 1 / 200, rtol=0.011)
    assert len(np.unique(start.topics)) > 900
    assert_allclose(start.eta, [-1, -0.5, 0, 0.5, 1])
    assert_allclose(start.alpha, 1.0)
    assert start.delta == 1.0
    assert (start.n_terms, start.n_topics) == (200, 5)


def test_the_fixed_alpha_of_the_paper_has_a_name() -> None:
    for name in ("1/K", None):
        spec = FitSpec(n_topics=5, doc_topic_prior=name)
        assert spec == FitSpec(n_topics=5, doc_topic_prior=None)
        start = initial_parameters(200, spec=spec, family=Gaussian(), moments=STANDARDISED)
        assert_allclose(start.alpha, 0.2)


def test_starting_values_of_one_topic_and_a_given_alpha() -> None:
    start = initial_parameters(
        1, spec=FitSpec(n_topics=1, doc_topic_prior=0.3), family=Gaussian(), moments=STANDARDISED
    )
    assert (start.topics.tolist(), start.eta.tolist(), start.alpha.tolist()) == ([[1.0]], [0.0], [0.3])


def test_scaling_is_undone_by_its_inverse() -> None:
    y = np.array([-3.0, 0.0, 1e6, np.nan])
    scaling = Scaling(center=50.0, scale=1000.0)
    assert_allclose(scaling.to_user(scaling.to_model(y)), y, rtol=1e-12, atol=1e-12)
    assert scaling.to_model(np.array([1050.0])).tolist() == [1.0]
    assert Scaling().to_model(y) is not None
    assert_allclose(Scaling().to_user(y), y)


def test_parameters_tell_dask_their_size() -> None:
    """A dataclass without __sizeof__ looks like 0 bytes to the scheduler."""
    parameters = Parameters(np.zeros((1000, 50)), np.ones(50), np.zeros(50), np.ones(1))
    assert 8 * (1000 * 50 + 100) < sys.getsizeof(parameters) < 405_000
