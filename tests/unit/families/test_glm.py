"""Where topics are known and fixed, the M-step's response part is a generalised linear model: the estimates must agree."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose
from scipy import optimize, special, stats
from statsmodels.discrete.discrete_model import NegativeBinomial
from statsmodels.miscmodels.ordinal_model import OrderedModel
from statsmodels.othermod.betareg import BetaModel

from dslda.families.base import Family
from dslda.families.registry import FAMILIES, get_family
from dslda.testing import moments_of
from dslda.variational.mstep import m_step
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from dslda.variational.statistics import SufficientStatistics

# without a floor: maximum likelihood
SPEC = FitSpec(n_topics=3, ridge=0.0, dispersion_floor=1e-9)

# a response of classes has as many predictors as classes: test_categorical.py
OF_ONE_PREDICTOR = [name for name in FAMILIES if name != "categorical"]


@dataclass
class Known:
    """Topic shares and covariates that are known, and responses."""

    zbar: np.ndarray
    x: np.ndarray
    y: np.ndarray
    aux: np.ndarray
    offset: np.ndarray

    @property
    def design(self) -> np.ndarray:
        return np.column_stack([self.zbar, self.x])


def drawn(family: str, *, n: int = 400) -> Known:
    generator = np.random.default_rng(1)
    zbar = np.array([generator.multinomial(20, p) for p in generator.dirichlet(np.ones(3), n)]) / 20
    x = generator.normal(size=(n, 1))
    offset = np.log(generator.uniform(0.5, 3.0, n)) if get_family(family).takes_exposure else np.zeros(n)
    omega = zbar @ [-0.5, 0.4, 1.1] + 0.3 * x[:, 0] + offset
    mu = np.exp(omega)
    aux = np.ones(n)
    match family:
        case "gaussian":
            y = generator.normal(omega, 0.7)
        case "student_t":
            y = omega + 0.4 * generator.standard_t(4.0, n)
        case "poisson":
            y = generator.poisson(mu)
        case "negative_binomial":
            y = generator.poisson(generator.gamma(1.4, mu / 1.4))
        case "binomial":
            aux = generator.integers(1, 9, n).astype(float)
            y = generator.binomial(aux.astype(int), special.expit(omega))
        case "ordinal":
            y = np.searchsorted([0.0, 0.8, 2.0], omega + generator.logistic(size=n)) + 1
        case "gamma":
            y = generator.gamma(2.0, mu / 2.0)
        case "inverse_gaussian":
            y = generator.wald(mu, 3.0)
        case "weibull":
            y = mu * generator.weibull(1.6, n)
            end = generator.exponential(4.0, n)
            aux = (y <= end).astype(float)
            y = np.minimum(y, end)
        case "beta":
            y = generator.beta(8.0 * special.expit(omega), 8.0 * special.expit(-omega))
    return Known(zbar, x, np.asarray(y, dtype=np.float64), aux, offset)


def statistics_of(
    known: Known, y: np.ndarray, parameters: Parameters, family: Family
) -> SufficientStatistics:
    """What the E-step sends where q is sure of every token's topic: v = 0."""
    deltas = family.delta_probes(parameters.delta)
    sums = SufficientStatistics.zeros(2, 3, n_covariates=1, n_probes=len(deltas))
    coefficients = np.concatenate([parameters.eta, parameters.zeta])
    for row, offset, y_d, aux in zip(known.design, known.offset, y, known.aux, strict=True):
        omega = row @ coefficients + offset
        sums.score += family.first_derivative(y_d, omega, parameters.delta, aux) * row
        sums.information += family.information_weight(y_d, omega, parameters.delta, aux) * np.outer(row, row)
        sums.profile += [family.log_likelihood(y_d, omega, delta, aux) for delta in deltas]
    sums.labelled_weight = float(len(y))
    sums.topic_counts += 1.0
    return sums


def fitted(known: Known, family: Family) -> tuple[np.ndarray, np.ndarray, float]:
    """Coefficients in the user's units, covariate's last; delta; scale."""
    trials = known.aux if family.auxiliary == "trials" else 1.0
    moments = moments_of(known.y / trials / np.exp(known.offset))
    center, scale = family.scaling(moments)
    y = (known.y - center) / scale
    parameters = initial_parameters(
        2, spec=SPEC, family=family, moments=moments.scaled(center, scale), n_covariates=1
    )
    for _ in range(60):
        parameters = m_step(parameters, statistics_of(known, y, parameters, family), family=family, spec=SPEC)
    eta = family.coefficients_to_user(parameters.eta, center, scale)
    slope = parameters.zeta * (scale if family.link == "identity" else 1.0)
    return np.concatenate([eta, slope]), parameters.delta, scale


def maximum_likelihood(known: Known, log_density, start: np.ndarray) -> np.ndarray:
    """By a general optimiser: coefficients, then parameters of the density that are not bounded."""

    def loss(p: np.ndarray) -> float:
        return -float(np.sum(log_density(known.y, known.design @ p[:4], p[4:], known.aux)))

    found = optimize.minimize(loss, start, method="BFGS", options={"gtol": 1e-9, "maxiter": 500})
    # from there Newton with differences of the gradient's: BFGS stops where its differences are noise
    found = optimize.minimize(
        loss, found.x, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}
    )
    return found.x


def reference_fit(name: str, known: Known) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients, and delta where it is estimated by maximum likelihood there too."""
    design, y = known.design, known.y
    families = sm.families
    match name:
        case "gaussian":
            result = sm.OLS(y, design).fit()
            return result.params, np.array([np.mean(result.resid**2)])
        case "poisson":
            result = sm.GLM(y, design, family=families.Poisson(), offset=known.offset).fit(tol=1e-14)
            return result.params, np.ones(1)
        case "binomial":
            counts = np.column_stack([y, known.aux - y])
            return sm.GLM(counts, design, family=families.Binomial()).fit(tol=1e-14).params, np.ones(1)
        case "gamma":
            result = sm.GLM(y, design, family=families.Gamma(families.links.Log())).fit(tol=1e-14)
            mu = result.fittedvalues

            def slope(a: float) -> float:
                return float(np.sum(math.log(a) - special.digamma(a) + 1 + np.log(y / mu) - y / mu))

            return result.params, np.array([1.0 / optimize.brentq(slope, 0.01, 100.0, xtol=1e-13)])
        case "inverse_gaussian":
            result = sm.GLM(y, design, family=families.InverseGaussian(families.links.Log())).fit(tol=1e-14)
            mu = result.fittedvalues
            return result.params, np.array([np.mean((y - mu) ** 2 / (mu**2 * y))])
        case "negative_binomial":
            result = NegativeBinomial(y, design, offset=known.offset).fit(
                disp=False, maxiter=500, method="newton", tol=1e-14
            )
            return result.params[:4], result.params[4:]
        case "ordinal":
            # cutpoints without intercept there, intercept with the first cutpoint at 0 here
            model = OrderedModel(y, design[:, 1:], distr="logit").fit(method="newton", disp=False, tol=1e-9)
            first, increments = model.params[3], model.params[4:]
            slopes = np.concatenate([[0.0], model.params[:2]])
            return np.concatenate([slopes - first, model.params[2:3]]), increments
        case "weibull":

            def censored(y, omega, free, aux):
                k = math.exp(free[0])
                z = (y / np.exp(omega)) ** k
                return aux * (free[0] + k * np.log(y / np.exp(omega)) - np.log(y)) - z

            p = maximum_likelihood(known, censored, np.zeros(5))
            return p[:4], np.exp(p[4:])
        case "beta":
            result = BetaModel(y, design).fit(disp=False, method="newton", tol=1e-12)
            return result.params[:4], np.exp(result.params[4:])
        case "student_t":

            def density(y, omega, free, aux):
                return stats.t.logpdf(y, 4.0, omega, math.exp(0.5 * free[0]))

            p = maximum_likelihood(known, density, np.zeros(5))
            return p[:4], np.exp(p[4:])
    raise KeyError(name)


@pytest.mark.parametrize("name", OF_ONE_PREDICTOR)
def test_known_topics_give_the_maximum_likelihood_fit(name: str) -> None:
    known = drawn(name)
    family = get_family(name)
    coefficients, delta, scale = fitted(known, family)
    expected, expected_delta = reference_fit(name, known)
    assert_allclose(coefficients, expected, rtol=1e-6, atol=1e-6)
    # dispersions in the user's units
    units = {"gaussian": scale**2, "student_t": scale**2, "inverse_gaussian": 1 / scale}.get(name, 1.0)
    assert_allclose(delta[: len(expected_delta)] * units, expected_delta, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["binomial", "ordinal", "poisson"])
def test_topics_that_separate_the_responses_have_finite_coefficients(name: str) -> None:
    known = drawn(name)
    known.zbar[:] = np.eye(3)[np.arange(len(known.y)) % 3]
    known.y[:] = np.where(known.zbar[:, 0] > 0, 0.0, known.aux)
    family = get_family(name)
    parameters = initial_parameters(
        2, spec=SPEC, family=family, moments=moments_of(known.y / known.aux), n_covariates=1
    )
    spec = FitSpec(n_topics=3)
    trace = []
    for _ in range(80):
        parameters = m_step(
            parameters, statistics_of(known, known.y, parameters, family), family=family, spec=spec
        )
        trace.append(parameters.eta)
    assert np.abs(parameters.eta).max() < 30
    assert_allclose(trace[-1], trace[-2], atol=1e-6)
