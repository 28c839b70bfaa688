"""The contract of a response family: the response as a generalised linear model of the mean topic assignment.

Conventions:

- omega is the linear predictor eta'zbar + zeta'x + offset of a document with covariates x.
- delta is the vector of the family's own parameters, shape (n_delta,); the dispersion, if any, comes first.
- aux is an additional number that some families need for each document: the trials of a binomial response, or 1 for a
  duration that ended and 0 for one that was cut off. It is 1 for all other families.
- l(y, omega, delta, aux) = log p(y | omega). A family has l and its first three derivatives in omega as compiled scalar
  functions; E-step and M-step need nothing else (Blei and McAuliffe 2010, section 3; delta-method form in docs/model.md).
  A family never sees a document: only y, moments of omega, delta and aux.
- y is the scaled response (see :meth:`Family.scaling`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import DsldaError, EngineError, InputError
from dslda.families.answers import CHECKS, checked
from dslda.families.registry import is_built_in

__all__ = [
    "FUNCTIONS",
    "STANDARDISED",
    "Array",
    "Family",
    "Interval",
    "ResponseMoments",
    "ScalarFunction",
    "expected_level",
    "mean_of_exp",
    "normal_expectation",
]

Array: TypeAlias = NDArray[np.float64]

# a compiled function of (y, omega, delta, aux), held by a class without becoming a method
ScalarFunction: TypeAlias = "staticmethod[[float, float, Array, float], float]"

#: the compiled functions of a family, in the order that kernels expect
FUNCTIONS = (
    "log_likelihood",
    "first_derivative",
    "second_derivative",
    "third_derivative",
    "information_weight",
)


@dataclass(frozen=True, slots=True)
class Interval:
    """The values a response may take."""

    low: float = -math.inf
    high: float = math.inf
    low_closed: bool = False
    high_closed: bool = False
    integer: bool = False

    def contains(self, y: Array) -> NDArray[np.bool_]:
        """Elementwise membership; NaN (missing) is never a member."""
        above = (y >= self.low) if self.low_closed else (y > self.low)
        below = (y <= self.high) if self.high_closed else (y < self.high)
        inside = above & below
        return inside & (np.floor(y) == y) if self.integer else inside

    def __str__(self) -> str:
        kind = "whole numbers" if self.integer else "numbers"
        if self.low == -math.inf and self.high == math.inf:
            return f"finite {kind}"
        left = "[" if self.low_closed else "("
        right = "]" if self.high_closed else ")"
        return f"{kind} in {left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True, slots=True)
class ResponseMoments:
    """Moments of the training responses, on the user's scale.

    Attributes
    ----------
    n : int
        Number of responses.
    mean, variance, minimum, maximum : float
        Of y, or of y per trial or unit of exposure.
    """

    n: int
    mean: float
    variance: float
    minimum: float
    maximum: float

    def scaled(self, center: float, scale: float) -> ResponseMoments:
        """The moments of ``(y - center) / scale``."""
        mean, minimum, maximum = (
            (value - center) / scale for value in (self.mean, self.minimum, self.maximum)
        )
        return ResponseMoments(self.n, mean, self.variance / scale**2, minimum, maximum)


#: moments of a response scaled to mean 0 and variance 1
STANDARDISED = ResponseMoments(2, 0.0, 1.0, -1.0, 1.0)

#: distance of the probes of delta: the error of the slope is of the order of its square
PROBE = 1e-4

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_WEIGHTS /= _WEIGHTS.sum()


class Family(ABC):
    """One response distribution with its link.

    A new family is a new module with one subclass and one line in :mod:`dslda.families.registry`; users pass an instance of
    their own. A family with options is a frozen dataclass of plain values, which models store by name.

    Attributes
    ----------
    name : str
        Name that users write.
    link : str
        The link function between E[y] and omega.
    domain : Interval
        Accepted responses, in the user's units.
    domain_remedy : tuple of str
        Advice for responses outside the domain.
    auxiliary : {"", "trials", "event"}
        Meaning of `aux`; "" if unused.
    takes_exposure : bool
        The expected response is proportional to an exposure of the document.
    uses_bound : bool
        For classes only: the expected log-likelihood is a lower bound instead of the delta method's value (see
        :mod:`dslda.variational.kernels.class_e_step`).
    is_exact_product : bool
        l is (y omega - exp(omega)) / delta[0] plus a function of y and delta. E[exp(omega)], a product over tokens, is then
        exact instead of the delta method's value (see :mod:`dslda.variational.kernels.exponential`).
    is_quadratic : bool
        l is quadratic in omega, so one full scoring step is exact. Other families take damped steps.
    has_dispersion_floor : bool
        delta[0] is the dispersion of a response scaled to variance 1 and stays above the floor of the settings.
    n_searched : int or None
        Number of leading entries of delta to estimate; the others are fixed. None estimates all.
    delta_transform : {"log", "identity"}
        The scale on which delta is searched: "log" for positive parameters.
    delta_bounds : tuple of float
        Lowest and highest value of a searched parameter. They are needed if the density grows without bound as a
        parameter runs away (one document fitted exactly).
    max_classes : int or None
        Largest number of unordered classes that the response may have; 0 for numeric responses, None for no limit.
    max_levels : int
        Largest number of ordered levels that the response may have; 0 for responses without. On the scale of the fit the
        levels are 0, 1, ...; they may have names. Needs :meth:`probabilities`, :meth:`cutpoints` and :meth:`at_shares`.
    constant_scatter : bool
        The scatter of y around its mean is the same at every mean, so that intervals may reach below the lowest response.
    scatter_remedy : tuple of str
        Advice for responses that scatter more than the variance, a function of the mean, allows; empty for families that
        estimate the scatter.
    is_quasi : bool
        The variance is that of the family times the Pearson dispersion of the fit. Estimates do not change; standard errors
        grow by its square root. Needs :meth:`variance`.
    default_ridge : float
        Default precision of the Gaussian prior on the coefficients. Above 0 where coefficients may grow without bound
        (separable classes).
    """

    name: ClassVar[str]
    link: ClassVar[str]
    domain: ClassVar[Interval]
    domain_remedy: ClassVar[tuple[str, ...]] = ("use {family='gaussian'}, which takes any number",)
    auxiliary: ClassVar[Literal["", "trials", "event"]] = ""
    takes_exposure: ClassVar[bool] = False
    uses_bound: ClassVar[bool] = True
    max_classes: ClassVar[int | None] = 0
    max_levels: ClassVar[int] = 0
    constant_scatter: ClassVar[bool] = False
    scatter_remedy: ClassVar[tuple[str, ...]] = ()
    is_exact_product: ClassVar[bool] = False
    is_quadratic: ClassVar[bool] = False
    has_dispersion_floor: ClassVar[bool] = False
    is_quasi: ClassVar[bool] = False
    n_searched: ClassVar[int | None] = None
    delta_transform: ClassVar[Literal["log", "identity"]] = "log"
    delta_bounds: ClassVar[tuple[float, float]] = (1e-6, 1e6)
    default_ridge: ClassVar[float] = 0.0

    #: compiled l, dl/domega, d2l/domega2, d3l/domega3
    log_likelihood: ClassVar[ScalarFunction]
    first_derivative: ClassVar[ScalarFunction]
    second_derivative: ClassVar[ScalarFunction]
    third_derivative: ClassVar[ScalarFunction]
    #: compiled weight of a document in the information of the coefficients, never negative: minus the second derivative if l
    #: is concave in omega, else its expectation or another upper bound
    information_weight: ClassVar[ScalarFunction]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the methods of a user's class check what they return; the families of dslda have tests instead."""
        super().__init_subclass__(**kwargs)
        if not is_built_in(cls):
            for name in CHECKS.keys() & vars(cls).keys():
                setattr(cls, name, checked(name, vars(cls)[name]))

    def fault(
        self,
        reason: str,
        remedy: str = "the family is your own: mend it there, and try it with dslda.testing.FamilyTests",
    ) -> DsldaError:
        """The error for unusable functions or answers: the user's own to mend, or a bug of dslda."""
        name = getattr(self, "name", None)
        place = f"family {name!r}" if isinstance(name, str) else f"family {type(self).__name__}"
        if is_built_in(type(self)):
            return EngineError(reason, place=place, remedy="please report this with the settings of the fit")
        return InputError(reason, place=place, remedy=remedy)

    @property
    def has_classes(self) -> bool:
        """True if the response may be classes."""
        return self.max_classes != 0

    @property
    def has_levels(self) -> bool:
        """True if the response is one of ordered levels."""
        return self.max_levels != 0

    @property
    def options(self) -> dict[str, Any]:
        """The options of this instance, as plain values; a model stores them beside the name."""
        return {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}

    def scaling(self, moments: ResponseMoments) -> tuple[float, float]:
        """Center and scale: the model is fitted to ``(y - center) / scale``; by default unscaled."""
        return 0.0, 1.0

    @abstractmethod
    def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
        """Starting values of EM, from the moments of the scaled response.

        Returns
        -------
        middle : float
            Linear predictor of the average document.
        spread : float
            The coefficients start as a grid on ``middle + [-spread, spread]`` (paper, section 3.2).
        delta : ndarray of float64, shape (n_delta,)
        """

    def initial_coefficients(self, n_topics: int, moments: ResponseMoments) -> tuple[Array, Array]:
        """Starting values of eta, shape (K,), or (K, C) for a response of C classes, and of delta."""
        middle, spread, delta = self.start(moments)
        grid = np.linspace(-1.0, 1.0, n_topics) if n_topics > 1 else np.zeros(1)
        return middle + spread * grid, delta

    def probabilities(self, m: Array, v: Array, delta: Array) -> Array | None:
        """Probabilities of the classes or levels, shape (D, C); None where the response has none."""
        return None

    def cutpoints(self, delta: Array) -> Array:
        """The cutpoints between neighbouring levels, on the scale of omega, shape (C - 1,); for :attr:`max_levels`."""
        raise NotImplementedError

    def at_shares(self, shares: Array) -> tuple[float, Array]:
        """The omega and delta at which levels have these probabilities, shape (C,), all above 0; for :attr:`max_levels`."""
        raise NotImplementedError

    @abstractmethod
    def mean(self, m: Array, v: Array, delta: Array) -> Array:
        """E_q[E(y | omega)] for documents whose omega has mean `m` and variance `v`, shapes (D,), for one trial.

        With a log link `v` is the number for which E[exp(omega)] = exp(m + v / 2).
        """

    def variance(self, mean: Array, delta: Array, aux: Array) -> Array | None:
        """Var(y) of responses with these means, shapes (D,), on the scale of the fit; None if it is not needed.

        Families of counts define it: their variance follows from the mean, so data can contradict it. The Pearson
        dispersion of a model compares the two (see :func:`dslda.variational.statistics.pearson_sums`).
        """
        return None

    def information_ratio(self, delta: Array) -> float:
        """Expected curvature -l2 of l in omega, divided by the expectation of :attr:`information_weight`.

        Below 1 where that is an upper bound. Standard errors need the curvature itself, and estimates do not.
        """
        return 1.0

    def update_delta(self, delta: Array, profile: Array, *, weight: float, gain: float) -> Array:
        """New delta: one uphill Newton step on the scale of :attr:`delta_transform`, at most 1 in each parameter.

        Coefficients and delta move together, each by its own Newton step. On a quadratic objective two such blocks never
        lower it, however they depend on each other. More than two could, so all parameters of delta move in one step that
        uses all their second derivatives.

        Parameters
        ----------
        delta : ndarray of float64, shape (n_delta,)
            Value in the E-step.
        profile : ndarray of float64, shape (n_probes,)
            Expected log-likelihood of the responses at the rows of :meth:`delta_probes`, summed over documents.
        weight : float
            Sum of the weights of the documents with a response, above 0.
        gain : float
            Rise of the expected log-likelihood by the step of the coefficients, to second order: exact for a quadratic l.
            Other families ignore it.

        Returns
        -------
        ndarray of float64, shape (n_delta,)
            Inside :attr:`delta_bounds`.
        """
        searched = self._n_searched(delta)
        if searched == 0:
            return delta
        if len(profile) != 1 + 2 * searched + math.comb(searched, 2):
            raise self.fault(
                f"delta_probes must give the rows that update_delta asks for, got {len(profile)}"
            )
        here, up, down = profile[0], profile[1 : 2 * searched : 2], profile[2 : 2 * searched + 1 : 2]
        slope = (up - down) / (2.0 * PROBE)
        bend = np.diag((up - 2.0 * here + down) / PROBE**2)
        for row, (i, j) in enumerate(combinations(range(searched), 2), start=1 + 2 * searched):
            bend[i, j] = bend[j, i] = (profile[row] - up[i] - up[j] + here) / PROBE**2
        # Where the curve bends upwards, Newton's step points downhill: take the absolute value of the bend. A bend as small
        # as rounding error counts as none.
        values, vectors = np.linalg.eigh(bend)
        least = 1e-15 * abs(here) / PROBE**2 + 1e-300
        along = (vectors.T @ slope) / np.maximum(np.abs(values), least)
        step = vectors @ along
        step /= max(1.0, float(np.abs(step).max()))
        new = delta.copy()
        if self.delta_transform == "log":
            new[:searched] *= np.exp(step)
        else:
            new[:searched] += step
        new[:searched] = np.clip(new[:searched], *self.delta_bounds)
        return new

    def delta_probes(self, delta: Array) -> Array:
        """Values of delta at which the E-step evaluates the log-likelihood for :meth:`update_delta`.

        Returns
        -------
        ndarray of float64, shape (1 + 2 n + n (n - 1) / 2, n_delta) with n searched parameters
            delta itself, then each searched parameter a little above and a little below, then each pair of them above.
        """
        searched = self._n_searched(delta)
        moves = [sign * row for row in np.eye(len(delta))[:searched] for sign in (PROBE, -PROBE)]
        moves += [moves[2 * i] + moves[2 * j] for i, j in combinations(range(searched), 2)]
        rows = np.array([np.zeros(len(delta)), *moves])
        probes: Array = delta * np.exp(rows) if self.delta_transform == "log" else delta + rows
        return probes

    def _n_searched(self, delta: Array) -> int:
        return len(delta) if self.n_searched is None else self.n_searched

    def coefficients_to_user(self, omega: Array, center: float, scale: float) -> Array:
        """Convert linear predictors, or coefficients of topics, to the user's units of the response.

        With an identity link, omega is ``center + scale * omega`` in units of y. With a log link,
        ``log E[y] = log(scale) + omega`` (center is 0). Other links do not depend on the units of y. Differences of
        coefficients, and coefficients of covariates, change by the factor `scale` with an identity link, else not at all.

        Parameters
        ----------
        omega : ndarray of float64
            On the scale of the fit.
        center, scale : float
            From :meth:`scaling`.

        Returns
        -------
        ndarray of float64, shape of `omega`
        """
        if self.link == "identity":
            return center + scale * omega
        return omega + math.log(scale) if self.link == "log" else omega

    def check(self, y: Array, aux: Array | None) -> NDArray[np.bool_]:
        """True for each response in the domain or missing (NaN)."""
        return self.domain.contains(y) | np.isnan(y)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Family:
        """An instance with stored options.

        Raises
        ------
        InputError
            The family has no such option, or refuses its value.
        """
        try:
            return cls(**options)
        except InputError:
            raise
        except TypeError:
            raise InputError(f"has no options {sorted(options)}", place=f"family {cls.name}") from None
        # a user's own class may raise anything
        except Exception as error:
            raise InputError(
                f"cannot be made with the options {dict(options)}: {type(error).__name__}: {error}",
                place=f"family {cls.name}",
            ) from error


def mean_of_exp(m: Array, v: Array) -> Array:
    """E[exp(omega)] = exp(m + v / 2), shapes (D,): the mean of families with a log link.

    Predictions pass the v that makes it exact (prod_n kappa_n, docs/model.md). The variance of omega would give the mean for
    a normal omega, which has no upper bound: short documents, and coefficients of -40 for a topic of zeros, led to
    predictions of 10^9. The exponent is clipped to +-700.
    """
    mean: Array = np.exp(np.clip(m + 0.5 * v, -700.0, 700.0))
    return mean


def expected_level(probabilities: Array, numbers: Array) -> Array:
    """The expected number of each document, by the probabilities of the numbers, shape (D, C)."""
    # a matrix product would have other bits for a document alone than among others
    expected: Array = np.einsum("dc,c->d", probabilities, numbers)
    return expected


def normal_expectation(function: Callable[[Array], Array], m: Array, v: Array) -> Array:
    """E[function(omega)] for a normal omega of mean `m` and variance `v`, by Gauss-Hermite quadrature.

    Used for means without a closed form. Unlike the delta method, it keeps the function's range and monotonicity in m.
    `function` works elementwise on arrays of any shape; `m` and `v` are broadcast together.
    """
    m, deviation = np.asarray(m, dtype=np.float64), np.sqrt(v)
    total = np.zeros(np.broadcast_shapes(m.shape, deviation.shape))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight * function(m + node * deviation)
    return total
