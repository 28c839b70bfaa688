"""The compiled E-step against the readable one, sweep for sweep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import special

from dslda.families.base import Family
from dslda.families.gaussian import Gaussian
from dslda.families.registry import get_family
from dslda.variational.estep import e_step, infer
from dslda.variational.kernels import scratch as kernels
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import ScalarResponse
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.topics import in_e_step
from tests.helpers.problems import (
    Documents,
    PoissonLike,
    as_distributions,
    documents_of,
    random_document,
    random_parameters,
    reference_statistics,
)

GRANULARITIES = pytest.mark.parametrize("granularity", ["term", "token"])


def assert_kernel_equals_reference(
    documents: Documents, parameters: Parameters, spec: FitSpec, family: Family, *, elbo_rtol: float = 1e-10
) -> None:
    states = []
    elbo = []
    for d in range(len(documents)):
        terms, counts, y = documents.document(d)
        state, trace = one_predictor.update_until_converged(
            one_predictor.cold_start(terms, counts, parameters, granularity=spec.granularity),
            parameters,
            ScalarResponse(family, y, rho=spec.response_weight),
            tol=spec.sweep_tol,
            max_sweeps=spec.max_sweeps,
        )
        states.append(state)
        elbo.append(trace[-1])
    posterior = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family)
    lengths = np.array([s.length for s in states])
    # The kernel's series leaves up to 2e-8 a sweep in a token's share of sum phi, more where a stride magnifies it, and so
    # in gamma, m and, to first order, the ELBO; and the ELBO is a difference of numbers as large as the squared reach of
    # omega over delta.
    series = spec.max_sweeps * max(kernels.TAYLOR_SHARE * spec.sweep_tol, kernels.TAYLOR_LEAST) / 6
    reach = max(np.abs(parameters.eta).max(), np.nanmax(np.abs(documents.y), initial=0.0))
    rounding = np.finfo(float).eps * reach**2 / parameters.delta[0] * spec.response_weight
    assert_allclose(posterior.elbo, elbo, rtol=elbo_rtol, atol=series * lengths.max() + rounding)
    for d, state in enumerate(states):
        assert_allclose(posterior.gamma[d], state.gamma, rtol=1e-6, atol=3e-6)
        m, v = one_predictor.moments(state, parameters.eta, family)
        spread = np.ptp(parameters.eta)
        assert_allclose(posterior.mean[d], m, rtol=1e-9, atol=1e-6 * spread)
        assert_allclose(posterior.variance[d], v, rtol=1e-6, atol=1e-6 * spread**2 + 1e-14)
    assert_allclose(posterior.n_known_tokens, lengths)

    statistics = e_step(*documents.arrays, parameters, family=family, spec=spec)
    expected = reference_statistics(states, documents.y, parameters, family=family, spec=spec)
    assert_allclose(statistics.topic_counts, expected.topic_counts, rtol=1e-6, atol=3e-6)
    for name in ("score", "information"):
        wanted = getattr(expected, name)
        assert_allclose(getattr(statistics, name), wanted, atol=1e-6 * np.abs(wanted).max(initial=1e-300))
    squares = np.ptp(parameters.eta) ** 2 / parameters.delta[0]
    assert_allclose(statistics.profile, expected.profile, rtol=1e-6, atol=1e-6 * squares)
    assert_allclose(statistics.log_theta, expected.log_theta, rtol=1e-6, atol=1e-6)
    assert statistics.labelled_weight == expected.labelled_weight
    assert_allclose(statistics.curvature, expected.curvature, rtol=1e-5)
    assert_allclose(statistics.curvature_bound, expected.curvature_bound, rtol=1e-5)
    rounding *= len(documents)
    assert_allclose(statistics.elbo, expected.elbo, rtol=elbo_rtol, atol=series * lengths.sum() + rounding)
    assert (statistics.n_documents, statistics.n_labelled) == (expected.n_documents, expected.n_labelled)
    assert statistics.n_tokens == documents.n_tokens


@st.composite
def problems(draw: st.DrawFn) -> tuple[Documents, Parameters, FitSpec]:
    n_topics = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    parameters = random_parameters(
        rng,
        30,
        n_topics,
        delta=10.0 ** draw(st.floats(-3, 1)),
        eta_scale=draw(st.sampled_from([0.0, 0.3, 1.0, 4.0])),
        alpha=draw(st.sampled_from([0.01, 0.1, 1.0, 5.0])),
    )
    document = st.tuples(st.integers(1, 10), st.sampled_from([1, 2, 9]), st.booleans())
    documents = documents_of(
        [
            random_document(rng, 30, distinct=distinct, most=most, labelled=labelled)
            for distinct, most, labelled in draw(st.lists(document, min_size=1, max_size=3))
        ]
    )
    spec = FitSpec(
        n_topics=n_topics,
        response_weight=draw(st.sampled_from([0.5, 1.0, 4.0])),
        granularity=draw(st.sampled_from(["term", "token"])),
        max_sweeps=draw(st.integers(1, 4)),
        sweep_tol=0.0,
    )
    return documents, parameters, spec


@given(problem=problems())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_documents(problem: tuple[Documents, Parameters, FitSpec]) -> None:
    assert_kernel_equals_reference(*problem, Gaussian())


@given(problem=problems())
@settings(max_examples=20, deadline=None, derandomize=True)
def test_a_response_that_is_not_quadratic(problem: tuple[Documents, Parameters, FitSpec]) -> None:
    documents, parameters, spec = problem
    # A mild spread of omega, or exp(omega) makes single sweeps overshoot in both. Sweeps linearise l1, so that phi is
    # not at the ELBO's maximum and the series' error in it (3e-8) counts once, not squared.
    milder = Parameters(parameters.topics, parameters.alpha, np.clip(parameters.eta, -1, 1), np.ones(1))
    documents = documents.with_response(np.abs(documents.y))
    assert_kernel_equals_reference(documents, milder, spec, PoissonLike(), elbo_rtol=1e-7)


@given(problem=problems(), size=st.sampled_from([0.1, 2.0, 40.0, 1e4]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_response_whose_expected_exponential_is_a_product(
    problem: tuple[Documents, Parameters, FitSpec], size: float
) -> None:
    documents, parameters, spec = problem
    parameters = replace(parameters, delta=np.ones(1))
    counts = np.floor(size * np.abs(documents.y))
    # the larger the counts, the more a share of phi that the series has wrong costs
    assert_kernel_equals_reference(
        documents.with_response(counts), parameters, spec, get_family("poisson"), elbo_rtol=1e-7
    )


@GRANULARITIES
def test_documents_that_would_swing_between_two_states_settle(granularity: str) -> None:
    """A heavy response on few words: without steps back, sweeps overshoot to and fro until the cap."""
    rng = np.random.default_rng(5)
    parameters = random_parameters(rng, 30, 5, delta=1.0, eta_scale=2.5)
    rows = [random_document(rng, 30, distinct=int(rng.integers(1, 5)), most=3) for _ in range(60)]
    documents = documents_of(rows).with_response(rng.integers(0, 2, 60))
    family = PoissonLike()
    spec = FitSpec(n_topics=5, granularity=granularity, response_weight=2.0, sweep_tol=1e-6, max_sweeps=300)
    posterior = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=family)
    assert posterior.converged.all()
    taken_back = 0
    for d in range(len(documents)):
        terms, counts, y = documents.document(d)
        state, trace = one_predictor.update_until_converged(
            one_predictor.cold_start(terms, counts, parameters, granularity=granularity),
            parameters,
            ScalarResponse(family, y, rho=2.0),
            tol=1e-6,
            max_sweeps=300,
        )
        taken_back += np.count_nonzero(np.diff(trace) == 0.0)
        assert posterior.n_sweeps[d] == len(trace)
        assert_allclose(posterior.elbo[d], trace[-1], rtol=1e-6)
        assert_allclose(posterior.gamma[d], state.gamma, rtol=1e-4, atol=1e-4)
    assert taken_back > 0


@GRANULARITIES
@pytest.mark.parametrize("name", ["weibull", "gamma", "inverse_gaussian", "negative_binomial"])
def test_what_a_document_leaves_is_of_the_state_it_went_back_to(name: str, granularity: str) -> None:
    """Cut off after every sweep; some were taken back."""
    rng = np.random.default_rng(3)
    rows = [random_document(rng, 10, distinct=int(rng.integers(1, 4)), most=2) for _ in range(12)]
    documents = documents_of(rows).with_response(np.round(1.0 + 3.0 * rng.exponential(size=12)))
    plain = random_parameters(rng, 10, 4)
    parameters = Parameters(plain.topics, plain.alpha, np.array([-1.5, -0.5, 1.0, 1.8]), np.array([0.7]))
    family = get_family(name)
    taken_back = 0
    for n in range(1, 8):
        spec = FitSpec(n_topics=4, response_weight=6.0, granularity=granularity, max_sweeps=n, sweep_tol=0.0)
        assert_kernel_equals_reference(documents, parameters, spec, family, elbo_rtol=1e-7)
        for d in range(len(documents)):
            terms, counts, y = documents.document(d)
            start = one_predictor.cold_start(terms, counts, parameters, granularity=granularity)
            _, trace = one_predictor.update_until_converged(
                start, parameters, ScalarResponse(family, y, rho=6.0), tol=0.0, max_sweeps=n
            )
            taken_back += n > 1 and trace[-1] == trace[-2]
    assert taken_back > 0


@GRANULARITIES
@pytest.mark.parametrize("name", ["weibull", "gamma", "inverse_gaussian", "negative_binomial"])
def test_a_response_that_pulls_beyond_all_measure_leaves_the_elbo_its_digits(
    name: str, granularity: str
) -> None:
    """The mean of omega is so far off at the start that l1 is above 1e20; one sweep later it is not."""
    rng = np.random.default_rng(5)
    parameters = Parameters(
        random_parameters(rng, 10, 3).topics,
        np.full(3, 1 / 3),
        np.array([-11.0, -5.0, 1.3]),
        np.array([10.0 if name == "weibull" else 0.05]),
    )
    rows = [random_document(rng, 10, distinct=4, most=4) for _ in range(6)]
    documents = documents_of(rows).with_response(np.array([4.0, 3.0, 50.0, 4.0, 1e3, 1e4]))
    for n in (1, 2, 6):
        spec = FitSpec(n_topics=3, granularity=granularity, max_sweeps=n, sweep_tol=0.0)
        assert_kernel_equals_reference(documents, parameters, spec, get_family(name), elbo_rtol=1e-5)


@GRANULARITIES
@pytest.mark.parametrize("delta", [1e-8, 1e-4])
@pytest.mark.parametrize("n_topics", [2, 5, 17])
def test_short_documents_with_tiny_dispersion(granularity: str, delta: float, n_topics: int) -> None:
    """Every token needs exponentials of its own."""
    rng = np.random.default_rng(n_topics)
    parameters = random_parameters(rng, 30, n_topics, delta=delta, eta_scale=3.0)
    documents = documents_of(
        [random_document(rng, 30, distinct=distinct, most=3) for distinct in (1, 1, 2, 4)]
        + [([3], [1], 0.5), ([7], [6], -2.0)]
    )
    spec = FitSpec(n_topics=n_topics, granularity=granularity, max_sweeps=3, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, Gaussian())


@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_tied_occurrences_with_small_dispersion(delta: float) -> None:
    """m = eta'phi(m) is steep in the middle and flat at the ends: Newton's steps alone creep or swing."""
    rng = np.random.default_rng(4)
    parameters = random_parameters(rng, 40, 7, delta=delta, eta_scale=3.0)
    documents = documents_of([random_document(rng, 40, distinct=int(rng.integers(2, 16))) for _ in range(25)])
    spec = FitSpec(n_topics=7, max_sweeps=8, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, Gaussian())


@GRANULARITIES
@pytest.mark.parametrize("n_topics", [3, 16, 21])
def test_documents_longer_than_a_tile(granularity: str, n_topics: int) -> None:
    rng = np.random.default_rng(n_topics)
    parameters = random_parameters(rng, 400, n_topics, delta=0.1, eta_scale=2.0)
    documents = documents_of(
        [random_document(rng, 400, distinct=distinct, most=2) for distinct in (128, 129, 300)]
        + [random_document(rng, 400, distinct=200, most=2, labelled=False)]
    )
    spec = FitSpec(n_topics=n_topics, granularity=granularity, max_sweeps=2, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, Gaussian())


@pytest.mark.parametrize("labelled", [True, False])
def test_documents_too_long_to_keep_their_topic_weights_gathered(labelled: bool) -> None:
    rng = np.random.default_rng(0)
    n_topics, distinct = 1100, 480
    assert n_topics * distinct > kernels.RESIDENT_DOUBLES
    parameters = random_parameters(rng, 500, n_topics, delta=0.1, eta_scale=2.0)
    documents = documents_of([random_document(rng, 500, distinct=distinct, most=2, labelled=labelled)])
    spec = FitSpec(n_topics=n_topics, max_sweeps=2, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, Gaussian())


@GRANULARITIES
@pytest.mark.parametrize("delta", [1e-8, 1e-3, 0.1])
@pytest.mark.parametrize("possible", [1, 2])
def test_a_term_possible_only_in_topics_the_response_rejects(
    granularity: str, delta: float, possible: int
) -> None:
    """Topics of the term have exponents hundreds below the best topic, which the term cannot take."""
    eta = np.array([-50.0, -49.0, 50.0])
    topics = np.full((4, 3), 0.25)
    topics[0, possible:] = 0.0
    topics /= topics.sum(axis=0)
    parameters = Parameters(topics, np.full(3, 0.5), eta, np.array([delta]))
    documents = documents_of([([0], [1], 50.0), ([0], [3], 50.0), ([0, 1], [1, 1], 50.0)])
    spec = FitSpec(n_topics=3, granularity=granularity, max_sweeps=3, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, Gaussian())


@GRANULARITIES
@pytest.mark.parametrize("labelled", [True, False])
def test_most_topics_end_without_a_part_in_the_document(granularity: str, labelled: bool) -> None:
    rng = np.random.default_rng(8)
    n_topics = 45
    parameters = random_parameters(rng, 200, n_topics, delta=0.3, eta_scale=2.0, alpha=0.015)
    own = rng.integers(n_topics, size=200)
    parameters.topics[np.arange(200), own] *= 50.0
    parameters.topics[:] /= parameters.topics.sum(axis=0)
    documents = documents_of(
        [random_document(rng, 200, distinct=distinct, most=2, labelled=labelled) for distinct in (3, 20, 150)]
    )
    spec = FitSpec(n_topics=n_topics, granularity=granularity, max_sweeps=14, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, Gaussian())
    gamma = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=Gaussian()).gamma
    weights = np.exp(special.digamma(gamma) - special.digamma(gamma.max(axis=1, keepdims=True)))
    n_dead = (weights < kernels.DEAD_LIMIT).sum(axis=1)
    assert np.all((n_dead > 0) & (n_dead < n_topics - 1))


@GRANULARITIES
@pytest.mark.parametrize("delta", [0.02, 0.03, 0.04, 0.06])
def test_a_term_all_but_impossible_in_the_topics_that_the_response_leaves(
    granularity: str, delta: float
) -> None:
    """An entry may have as much of the topic left out as of the others."""
    topics = np.array([[0.5, 1e-30, 1e-28], [0.25, 0.5, 0.5], [0.25, 0.5, 0.5]])
    parameters = Parameters(topics, np.full(3, 0.5), np.array([-2.0, 2.0, 1.9]), np.array([delta]))
    documents = documents_of([([0, 1], [1, 1], 3.0), ([0, 1], [1, 4], 4.0), ([0, 1, 2], [2, 1, 1], 5.0)])
    spec = FitSpec(n_topics=3, granularity=granularity, max_sweeps=5, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, Gaussian())


@GRANULARITIES
def test_a_rare_term_of_an_unlabelled_document_does_not_see_the_response_of_the_one_before(
    granularity: str,
) -> None:
    """A term so rare in every topic that its phi is written by itself, at the a_n of its document: none in this one."""
    topics = np.array([[1e-90, 1e-90, 1e-90], [0.5, 0.4, 0.1], [0.5, 0.6, 0.9]])
    parameters = Parameters(topics, np.full(3, 0.5), np.array([2.0, -2.0, 0.1]), np.array([0.02]))
    documents = documents_of([([0, 1], [1, 30], 3.0), ([0, 1], [1, 30], np.nan)])
    spec = FitSpec(n_topics=3, granularity=granularity, max_sweeps=8, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, Gaussian())
    one, alone = (
        infer(*d.csr, parameters, spec=spec, y=d.y, family=Gaussian())
        for d in (documents, documents.take([1]))
    )
    assert one.gamma[1].tobytes() == alone.gamma[0].tobytes()


@GRANULARITIES
@pytest.mark.parametrize("prior", [0.005, 0.1])
def test_weights_of_topics_that_are_distributions(prior: float, granularity: str) -> None:
    """Columns sum to less than 1, and a term may weigh 1e-90 in all topics but one."""
    rng = np.random.default_rng(13)
    plain = random_parameters(rng, 60, 12, delta=0.2, eta_scale=2.0, alpha=0.05)
    parameters = in_e_step(as_distributions(rng, plain, prior=prior))
    assert parameters.topics.min() < (1e-80 if prior < 0.01 else 1e-6)
    assert parameters.topics.min() > 1e-100
    documents = documents_of(
        [
            random_document(rng, 60, distinct=distinct, most=4, labelled=labelled)
            for distinct in (1, 5, 30)
            for labelled in (True, False)
        ]
    )
    spec = FitSpec(n_topics=12, granularity=granularity, max_sweeps=12, sweep_tol=0.0)
    assert_kernel_equals_reference(documents, parameters, spec, Gaussian())


@GRANULARITIES
def test_convergence_is_judged_like_the_reference(granularity: str) -> None:
    rng = np.random.default_rng(11)
    parameters = random_parameters(rng, 30, 5, delta=0.2, eta_scale=2.0)
    documents = documents_of([random_document(rng, 30, distinct=8) for _ in range(10)])
    spec = FitSpec(n_topics=5, granularity=granularity, sweep_tol=1e-5, max_sweeps=8)
    posterior = infer(*documents.csr, parameters, spec=spec, y=documents.y, family=Gaussian())
    sweeps = []
    for d in range(len(documents)):
        terms, counts, y = documents.document(d)
        state = one_predictor.cold_start(terms, counts, parameters, granularity=granularity)
        _, trace = one_predictor.update_until_converged(
            state, parameters, ScalarResponse(Gaussian(), y), tol=1e-5, max_sweeps=8
        )
        sweeps.append(len(trace))
    assert posterior.n_sweeps.tolist() == sweeps
    assert np.all(posterior.converged[np.array(sweeps) < 8])
    statistics = e_step(*documents.arrays, parameters, family=Gaussian(), spec=spec)
    assert statistics.n_sweeps == sum(sweeps)
    assert statistics.n_unconverged == int((~posterior.converged).sum()) > 0


def test_a_term_without_mass_in_any_topic_is_left_out() -> None:
    rng = np.random.default_rng(12)
    parameters = random_parameters(rng, 10, 3)
    parameters.topics[4] = 0.0
    with_it = documents_of([([1, 4, 7], [2, 5, 1], 0.3), ([4], [2], 0.3)])
    without = documents_of([([1, 7], [2, 1], 0.3), ([], [], 0.3)])
    spec = FitSpec(n_topics=3)
    one, other = (infer(*d.csr, parameters, spec=spec, y=d.y, family=Gaussian()) for d in (with_it, without))
    assert one.gamma.tobytes() == other.gamma.tobytes()
    assert one.elbo.tobytes() == other.elbo.tobytes()
    assert one.n_known_tokens.tolist() == [3, 0]
    statistics = e_step(*with_it.arrays, parameters, family=Gaussian(), spec=spec)
    assert (statistics.n_empty, statistics.n_labelled, statistics.n_tokens) == (1, 1, 3)


def test_a_document_without_response_has_nothing_of_the_one_before() -> None:
    """A term with next to no mass in any topic is written by itself, from its own a_n: that is 0."""
    topics = np.full((6, 3), 0.2)
    topics[0] = 1e-90
    parameters = Parameters(topics, np.full(3, 0.5), np.array([-3.0, 3.0, 0.0]), np.array([1e-3]))
    last = ([0, 1], [5, 1], np.nan)
    documents = documents_of([([0, 1], [1, 1], 40.0), last])
    posterior = infer(*documents.csr, parameters, spec=FitSpec(n_topics=3), y=documents.y, family=Gaussian())
    assert_allclose(posterior.gamma[1], [2.5, 2.5, 2.5], rtol=1e-12)
