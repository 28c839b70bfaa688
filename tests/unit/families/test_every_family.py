"""The conformance suite for every registered family: a new one joins by a class here, which the last test demands."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from dslda.exceptions import InputError
from dslda.families.base import ResponseMoments
from dslda.families.registry import FAMILIES, get_family
from dslda.testing import FamilyTests
from tests.helpers.errors import refused

# a response of classes has as many predictors as classes: test_categorical.py
OF_ONE_PREDICTOR = [name for name in FAMILIES if name != "categorical"]


class TestGaussian(FamilyTests):
    family = get_family("gaussian")
    responses = (-3.0, -0.5, 0.0, 0.25, 7.0)
    refused = (math.inf,)
    deltas = ((0.4,), (0.05,), (6.0,))

    def sample(self, omega, delta, aux, generator):
        return generator.normal(omega, math.sqrt(delta[0]))


class TestStudentT(FamilyTests):
    family = get_family("student_t", {"df": 5.0})
    responses = (-30.0, -0.5, 0.0, 0.25, 7.0)
    refused = (math.inf,)
    deltas = ((0.3, 5.0), (0.05, 5.0), (6.0, 5.0))

    def sample(self, omega, delta, aux, generator):
        return omega + math.sqrt(delta[0]) * generator.standard_t(delta[1], len(omega))


class TestPoisson(FamilyTests):
    family = get_family("poisson")
    responses = (0.0, 1.0, 4.0, 30.0, 1e6)
    refused = (-1.0, 0.5, math.inf)

    def sample(self, omega, delta, aux, generator):
        return generator.poisson(np.exp(omega))


class TestNegativeBinomial(FamilyTests):
    family = get_family("negative_binomial")
    responses = (0.0, 1.0, 4.0, 30.0, 1e6)
    refused = (-1.0, 0.5, math.inf)
    deltas = ((0.5,), (1e-7,), (0.012,), (20.0,), (1.5,))
    coefficients = (-1.0, 0.5, 2.0)

    def sample(self, omega, delta, aux, generator):
        return generator.poisson(generator.gamma(1.0 / delta[0], delta[0] * np.exp(omega)))


class TestBernoulli(FamilyTests):
    family = get_family("binomial")
    responses = (0.0, 1.0)
    refused = (-1.0, 0.5, 2.0)
    coefficients = (-2.5, 0.0, 2.5)
    tolerance = 0.6

    def sample(self, omega, delta, aux, generator):
        return generator.binomial(int(aux), special.expit(omega), len(omega))


class TestBinomial(TestBernoulli):
    responses = (0.0, 3.0, 7.0)
    refused = (-1.0, 0.5, 31.0)
    auxiliary = (7.0, 30.0)
    tolerance = 0.3


class TestOrdinal(FamilyTests):
    family = get_family("ordinal")
    responses = (1.0, 2.0, 3.0, 4.0, 5.0)
    refused = (1.5, math.inf)
    deltas = ((-0.2, 0.3, 0.1), (-4.0, 0.0, 2.0))
    coefficients = (-3.0, 1.0, 5.0)
    tolerance = 0.8

    def sample(self, omega, delta, aux, generator):
        cutpoints = np.concatenate([[0.0], np.cumsum(np.exp(delta))])
        latent = omega + generator.logistic(size=len(omega))
        return np.searchsorted(cutpoints, latent).astype(float)


class TestOrdinalOfThree(TestOrdinal):
    responses = (0.0, 1.0, 2.0)
    deltas = ((0.5,),)
    coefficients = (-3.0, 0.7, 4.0)


class TestOrdinalOfTwo(TestOrdinal):
    responses = (0.0, 1.0)
    deltas = ((),)
    coefficients = (-2.5, 0.0, 2.5)


class TestGamma(FamilyTests):
    family = get_family("gamma")
    responses = (1e-6, 0.5, 4.0, 1e6)
    refused = (0.0, -1.0, math.inf)
    deltas = ((0.4,), (0.01,), (5.0,))

    def sample(self, omega, delta, aux, generator):
        return generator.gamma(1.0 / delta[0], delta[0] * np.exp(omega))


class TestInverseGaussian(FamilyTests):
    family = get_family("inverse_gaussian")
    responses = (1e-4, 0.5, 4.0, 1e6)
    refused = (0.0, -1.0, math.inf)
    deltas = ((0.3,), (0.02,), (2.0,))

    def sample(self, omega, delta, aux, generator):
        return generator.wald(np.exp(omega), 1.0 / delta[0])


class TestWeibull(FamilyTests):
    family = get_family("weibull")
    responses = (1e-3, 0.5, 4.0, 1e3)
    refused = (0.0, -1.0, math.inf)
    auxiliary = (0.0, 1.0)
    deltas = ((1.7,), (0.6,), (4.0,))

    def sample(self, omega, delta, aux, generator):
        return np.exp(omega) * generator.weibull(delta[0], len(omega))


class TestBeta(FamilyTests):
    family = get_family("beta")
    responses = (1e-6, 0.2, 0.7, 1.0 - 1e-9)
    refused = (0.0, 1.0, -1.0, math.inf)
    deltas = ((8.0,), (0.9,), (60.0,), (5e4,))

    def sample(self, omega, delta, aux, generator):
        mu = special.expit(omega)
        return np.clip(generator.beta(mu * delta[0], (1 - mu) * delta[0]), 1e-300, 1 - 1e-16)


def conforming() -> set[type]:
    kinds, waiting = set(), [FamilyTests]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        kinds |= {type(kind.family)} if hasattr(kind, "family") else set()
    return kinds


def _is_case(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, FamilyTests) and kind is not FamilyTests


@pytest.mark.parametrize("name", OF_ONE_PREDICTOR)
def test_every_registered_family_conforms(name: str) -> None:
    assert FAMILIES[name] in conforming()


# (family, delta, aux) beside the same distribution from elsewhere, as a function of y and omega
DENSITIES = {
    "gaussian": ([0.7], 1.0, lambda y, o: stats.norm.logpdf(y, o, math.sqrt(0.7))),
    "student_t": ([0.7, 4.0], 1.0, lambda y, o: stats.t.logpdf(y, 4.0, o, math.sqrt(0.7))),
    "poisson": ([1.0], 1.0, lambda y, o: stats.poisson.logpmf(y, math.exp(o))),
    "negative_binomial": (
        [0.7],
        1.0,
        lambda y, o: stats.nbinom.logpmf(y, 1 / 0.7, 1 / (1 + 0.7 * math.exp(o))),
    ),
    "binomial": ([1.0], 9.0, lambda y, o: stats.binom.logpmf(y, 9, special.expit(o))),
    "ordinal": ([0.3, -1.0], 1.0, lambda y, o: math.log(ordinal_probability(y, o))),
    "gamma": ([0.7], 1.0, lambda y, o: stats.gamma.logpdf(y, 1 / 0.7, scale=0.7 * math.exp(o))),
    "inverse_gaussian": (
        [0.7],
        1.0,
        lambda y, o: stats.invgauss.logpdf(y, 0.7 * math.exp(o), scale=1 / 0.7),
    ),
    "weibull": ([1.7], 1.0, lambda y, o: stats.weibull_min.logpdf(y, 1.7, scale=math.exp(o))),
    "beta": ([7.0], 1.0, lambda y, o: stats.beta.logpdf(y, 7.0 * special.expit(o), 7.0 * special.expit(-o))),
}


def ordinal_probability(y: float, omega: float) -> float:
    cutpoints = [-math.inf, 0.0, math.exp(0.3), math.exp(0.3) + math.exp(-1.0), math.inf]
    return special.expit(cutpoints[int(y) + 1] - omega) - special.expit(cutpoints[int(y)] - omega)


@pytest.mark.parametrize("kind", [kind for kind in list(globals().values()) if _is_case(kind)])
def test_standard_errors_have_the_expected_curvature(kind: type[FamilyTests]) -> None:
    case = kind()
    for y, (omega, delta, aux) in case._draws(20_000):
        ratio = case.family.information_ratio(delta)
        surplus = np.array(
            [
                ratio * case.family.information_weight(value, omega, delta, aux)
                + case.family.second_derivative(value, omega, delta, aux)
                for value in y
            ]
        )
        assert abs(surplus.mean()) <= 6.0 * surplus.std() / math.sqrt(len(y)) + 1e-9


@pytest.mark.parametrize("name", OF_ONE_PREDICTOR)
@pytest.mark.parametrize("omega", [-1.4, 0.0, 0.9])
def test_density_is_scipys_and_sums_to_one(name: str, omega: float) -> None:
    delta, aux, expected = DENSITIES[name]
    family, delta = get_family(name), np.array(delta)
    top = {"ordinal": 3, "binomial": 9}.get(name, 400)
    values = np.arange(top + 1.0) if family.domain.integer else [-3.0, 0.2, 0.99, 1.0, 6.0]
    inside = [y for y in values if family.domain.contains(np.array([y]))[0]]
    for y in inside[:12]:
        np.testing.assert_allclose(
            family.log_likelihood(y, omega, delta, aux), expected(y, omega), rtol=1e-11, atol=1e-12
        )

    def density(y: float) -> float:
        return math.exp(family.log_likelihood(y, omega, delta, aux))

    if family.domain.integer:
        assert sum(map(density, values)) == pytest.approx(1.0, rel=1e-10)
    else:
        low = max(family.domain.low, -math.inf)
        high = family.domain.high
        total = sum(integrate.quad(density, a, b)[0] for a, b in [(low, 0.5), (0.5, high)])
        assert total == pytest.approx(1.0, rel=1e-6)


def test_a_cut_off_duration_says_that_it_was_survived() -> None:
    family = get_family("weibull")
    for y in (0.2, 1.0, 5.0):
        survived = family.log_likelihood(y, 0.4, np.array([1.7]), 0.0)
        assert survived == pytest.approx(stats.weibull_min.logsf(y, 1.7, scale=math.exp(0.4)))


def test_negative_binomial_is_a_poisson_where_it_does_not_scatter() -> None:
    negative_binomial, poisson = get_family("negative_binomial"), get_family("poisson")
    for y in (0.0, 3.0, 50.0, 1e5):
        values = [
            (
                getattr(negative_binomial, name)(y, 3.0, np.array([1e-8]), 1.0),
                getattr(poisson, name)(y, 3.0, np.ones(1), 1.0),
            )
            for name in ("log_likelihood", "first_derivative", "second_derivative", "third_derivative")
        ]
        np.testing.assert_allclose(*zip(*values, strict=True), rtol=1e-3 if y > 100 else 1e-5)


@pytest.mark.parametrize("alpha", [0.0099999, 0.01, 0.0100001])
def test_negative_binomial_is_smooth_where_its_series_takes_over(alpha: float) -> None:
    for y in (0.0, 1.0, 40.0, 3e4):
        expected = stats.nbinom.logpmf(y, 1 / alpha, 1 / (1 + alpha * math.exp(2.0)))
        value = get_family("negative_binomial").log_likelihood(y, 2.0, np.array([alpha]), 1.0)
        assert value == pytest.approx(expected, rel=1e-10)


def test_mean_of_a_log_link_is_closer_to_the_exact_product_than_the_delta_method() -> None:
    generator = np.random.default_rng(0)
    n, eta = 8, np.array([-2.0, 0.5, 3.0])
    phi = generator.dirichlet(np.ones(3), n)
    exact = np.prod(phi @ np.exp(eta / n))
    m_n = phi @ eta
    m, v = m_n.mean(), (phi @ eta**2 - m_n**2).sum() / n**2
    mean = get_family("poisson").mean(np.array([m]), np.array([v]), np.ones(1))[0]
    assert abs(mean - exact) < 0.5 * abs(math.exp(m) * (1 + v / 2) - exact)


@pytest.mark.parametrize("y", [1e-4, 0.5, 1.5])
def test_an_inverse_gaussian_far_below_a_response_never_becomes_likely(y: float) -> None:
    family, delta = FAMILIES["inverse_gaussian"], np.array([1.0])
    values = [family.log_likelihood(y, omega, delta, 0.0) for omega in np.linspace(-20.0, -700.0, 100)]
    slopes = [family.first_derivative(y, omega, delta, 0.0) for omega in np.linspace(-20.0, -700.0, 100)]
    assert np.isfinite([values, slopes]).all()
    assert np.diff(values).max() <= 0.0
    assert min(slopes) > 0.0


def test_the_expected_level_of_a_document_has_the_same_bits_alone() -> None:
    omega = np.random.default_rng(2).normal(0.0, 3.0, 50)
    family, delta = get_family("ordinal"), np.linspace(-1.0, 0.5, 8)
    together = family.mean(omega, np.zeros(50), delta)
    alone = [family.mean(omega[[d]], np.zeros(1), delta)[0] for d in range(50)]
    np.testing.assert_array_equal(alone, together)


def test_level_probabilities_sum_to_one_and_give_the_mean() -> None:
    family, delta = get_family("ordinal"), np.array([0.3, -1.0])
    m, v = np.array([-40.0, -1.0, 0.5, 40.0]), np.array([0.0, 0.5, 9.0, 2.0])
    probabilities = family.probabilities(m, v, delta)
    assert probabilities.shape == (4, 4)
    assert np.all(probabilities >= 0.0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(family.mean(m, v, delta), probabilities @ np.arange(4.0))
    certain = family.probabilities(m, np.zeros(4), delta)
    np.testing.assert_allclose(certain[2], [ordinal_probability(y, 0.5) for y in range(4)], rtol=1e-12)


def test_levels_have_the_shares_that_they_are_to_have() -> None:
    family, shares = get_family("ordinal"), np.array([0.2, 1e-12, 0.3, 0.5 - 1e-9, 1e-9])
    omega, delta = family.at_shares(shares)
    found = family.probabilities(np.array([omega]), np.zeros(1), delta)[0]
    # cutpoints are numbers of order 1, of 16 digits
    np.testing.assert_allclose(found, shares, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(np.diff(family.cutpoints(delta)), np.exp(delta))
    odds = family.at_shares(np.array([0.25, 0.75]))
    assert odds[0] == pytest.approx(math.log(3.0))
    assert len(odds[1]) == 0


def test_too_many_levels_are_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"at most 21 levels, got the whole numbers from 1 to 50.*gaussian"):
        get_family("ordinal").scaling(ResponseMoments(99, 20.0, 30.0, 1.0, 50.0))


@pytest.mark.parametrize("df", [1.0, 0.0, -3, math.inf, math.nan, "4", True])
def test_degrees_of_freedom_are_checked(df: object) -> None:
    with refused("df"):
        get_family("student_t", {"df": df})


def test_student_t_with_many_degrees_of_freedom_is_gaussian() -> None:
    t, gaussian = get_family("student_t"), get_family("gaussian")
    for y in (-2.0, 0.3, 4.0):
        assert t.log_likelihood(y, 0.5, np.array([0.7, 1e7]), 1.0) == pytest.approx(
            gaussian.log_likelihood(y, 0.5, np.array([0.7]), 1.0), rel=1e-5
        )


@pytest.mark.parametrize("event", [0.5, 2.0, -1.0])
def test_an_event_is_zero_or_one(event: float) -> None:
    assert not get_family("weibull").check(np.array([1.0]), np.array([event])).any()
