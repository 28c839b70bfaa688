"""The contract of a response family: the response as a generalised linear model of the mean topic assignment.

Conventions, stated once.

- omega is the linear predictor eta'zbar + zeta'x + offset of a document with covariates x.
- delta is the vector of the family's own parameters, shape (n_delta,): the dispersion first where there is one.
- aux is one number more that some families need of a document: the trials of a binomial response, 1 for a duration that
  ended and 0 for one that was cut off. It is 1 elsewhere.
- l(y, omega, delta, aux) = log p(y | omega). A family gives l and its first three derivatives in omega as compiled scalar
  functions; E-step and M-step need nothing else of it (Blei and McAuliffe 2010, section 3; delta-method form in
  docs/model.md). A family never sees a document: only y, moments of omega, delta and aux.
- The response it sees is the scaled one (see :meth:`Family.scaling`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numba import float64, types
from numpy.typing import NDArray

from dslda.exceptions import InputError

__all__ = ["SCALAR_SIGNATURE", "STANDARDISED", "Family", "Interval", "ResponseMoments", "ScalarFunction"]

# a compiled function of (y, omega, delta, aux), held by a class without becoming a method
ScalarFunction: TypeAlias = "staticmethod[[float, float, NDArray[np.float64], float], float]"

# Families reach the kernel as numba first-class functions, so that one compiled kernel serves them all.
SCALAR_SIGNATURE = float64(float64, float64, types.Array(float64, 1, "C", readonly=True), float64)


@dataclass(frozen=True, slots=True)
class Interval:
    """The values a response may take: validation, messages and test generators read this one object."""

    low: float = -math.inf
    high: float = math.inf
    low_closed: bool = False
    high_closed: bool = False
    integer: bool = False

    def contains(self, y: NDArray[np.float64]) -> NDArray[np.bool_]:
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
    """What a family may know of the training responses before the fit, on the user's scale.

    Attributes
    ----------
    n : int
        Responses.
    mean, variance, minimum, maximum : float
        Of y; where documents have trials or exposures, of y per trial or unit of exposure.
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


#: of a response scaled to mean 0 and variance 1
STANDARDISED = ResponseMoments(2, 0.0, 1.0, -1.0, 1.0)


class Family(ABC):
    """One response distribution with its link.

    A new family is a new module with one subclass, registered in :mod:`dslda.families.registry`; users pass an instance of
    their own. A family with options is a frozen dataclass of plain values, which models store by name.

    Attributes
    ----------
    name : str
        The name users write.
    link : str
        The link function between E[y] and omega.
    domain : Interval
        Accepted responses, in the user's units.
    auxiliary : {"", "trials", "event"}
        What `aux` means; "" where it is not used.
    takes_exposure : bool
        Whether the expected response is proportional to an exposure of the document.
    is_quadratic : bool
        l is quadratic in omega: one full scoring step is exact. Others take damped steps.
    has_dispersion_floor : bool
        delta[0] is the dispersion of a response scaled to variance 1, and kept above the floor of the settings.
    n_searched : int or None
        How many of the first entries of delta are estimated, the others being fixed; None for all.
    delta_transform : {"log", "identity"}
        The scale on which delta is searched: "log" for positive parameters.
    default_ridge : float
        Precision of the Gaussian prior on the coefficients that is used unless the user names another. Above 0 where
        coefficients may grow without bound (separable classes).
    """

    name: ClassVar[str]
    link: ClassVar[str]
    domain: ClassVar[Interval]
    auxiliary: ClassVar[Literal["", "trials", "event"]] = ""
    takes_exposure: ClassVar[bool] = False
    is_quadratic: ClassVar[bool] = False
    has_dispersion_floor: ClassVar[bool] = False
    n_searched: ClassVar[int | None] = None
    delta_transform: ClassVar[Literal["log", "identity"]] = "log"
    default_ridge: ClassVar[float] = 0.0

    #: compiled l, dl/domega, d2l/domega2, d3l/domega3
    log_likelihood: ClassVar[ScalarFunction]
    first_derivative: ClassVar[ScalarFunction]
    second_derivative: ClassVar[ScalarFunction]
    third_derivative: ClassVar[ScalarFunction]
    #: compiled weight of a document in the information of the coefficients, never negative: minus the second derivative where
    #: l is concave in omega, else its expectation or another upper bound
    information_weight: ClassVar[ScalarFunction]

    @property
    def options(self) -> dict[str, Any]:
        """The options of this instance, as plain values: what a model stores beside the name."""
        return {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}

    def scaling(self, moments: ResponseMoments) -> tuple[float, float]:
        """Center and scale of the response that the model is fitted to: ``(y - center) / scale``; by default unscaled."""
        return 0.0, 1.0

    @abstractmethod
    def start(self, moments: ResponseMoments) -> tuple[float, float, NDArray[np.float64]]:
        """Where EM starts, from the moments of the scaled response.

        Returns
        -------
        middle : float
            Linear predictor of a mean document.
        spread : float
            The coefficients start as a grid on ``middle + [-spread, spread]`` (paper, section 3.2).
        delta : ndarray of float64, shape (n_delta,)
        """

    def initial_coefficients(
        self, n_topics: int, moments: ResponseMoments
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """eta, shape (K,), or (K, C) for a response of C classes, and delta at the start."""
        middle, spread, delta = self.start(moments)
        grid = np.linspace(-1.0, 1.0, n_topics) if n_topics > 1 else np.zeros(1)
        return middle + spread * grid, delta

    def probabilities(
        self, m: NDArray[np.float64], v: NDArray[np.float64], delta: NDArray[np.float64]
    ) -> NDArray[np.float64] | None:
        """Probabilities of the classes or levels, shape (D, C); None where the response has none."""
        return None

    def coefficients_to_user(
        self, omega: NDArray[np.float64], center: float, scale: float
    ) -> NDArray[np.float64]:
        """Linear predictors on the scale of the user's response."""
        return center + scale * omega if self.link == "identity" else omega

    @abstractmethod
    def mean(
        self,
        m: NDArray[np.float64],
        v: NDArray[np.float64],
        delta: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """E_q[E(y | omega)] for documents whose omega has mean `m` and variance `v`, shapes (D,), for one trial."""

    def update_delta(
        self,
        delta: NDArray[np.float64],
        profile: NDArray[np.float64],
        *,
        weight: float,
        gain: float,
    ) -> NDArray[np.float64]:
        """New delta: one Newton step on its own scale, at most by 1 in each parameter, uphill.

        Parameters
        ----------
        delta : ndarray of float64, shape (n_delta,)
            Of the E-step.
        profile : ndarray of float64, shape (1 + 2 n_searched,)
            Expected log-likelihood of the responses at the rows of :meth:`delta_probes`, summed over documents.
        weight : float
            Sum of the weights of the documents with a response, above 0.
        gain : float
            By how much the step of the coefficients raises the expected log-likelihood, to second order; exact for a
            quadratic l. Other families leave it out.
        """
        here, up, down = profile[0], profile[1::2], profile[2::2]
        searched = len(up)
        slope = (up - down) / (2.0 * PROBE)
        bend = (up - 2.0 * here + down) / PROBE**2
        # where the curve bends upwards Newton would go downhill: go uphill by the longest step
        step = np.where(bend < 0.0, -slope / np.where(bend < 0.0, bend, -1.0), np.sign(slope))
        step = np.concatenate([np.clip(step, -1.0, 1.0), np.zeros(len(delta) - searched)])
        new: NDArray[np.float64] = delta * np.exp(step) if self.delta_transform == "log" else delta + step
        return new

    def delta_probes(self, delta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where the E-step evaluates the log-likelihood for :meth:`update_delta`.

        Returns
        -------
        ndarray of float64, shape (1 + 2 n_searched, n_delta)
            delta itself, then each searched parameter a little above and a little below.
        """
        searched = len(delta) if self.n_searched is None else self.n_searched
        probes = np.repeat(delta[np.newaxis], 1 + 2 * searched, axis=0)
        for j in range(searched):
            for row, sign in ((1 + 2 * j, 1.0), (2 + 2 * j, -1.0)):
                probes[row, j] = (
                    delta[j] * math.exp(sign * PROBE)
                    if self.delta_transform == "log"
                    else delta[j] + sign * PROBE
                )
        return probes

    def check(self, y: NDArray[np.float64], aux: NDArray[np.float64] | None) -> NDArray[np.bool_]:
        """Whether each response is in the domain; NaN (missing) is."""
        return self.domain.contains(y) | np.isnan(y)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Family:
        """An instance with the options that a model has stored.

        Raises
        ------
        InputError
            The family has no such option.
        """
        try:
            return cls(**options)
        except TypeError:
            raise InputError(f"family {cls.name} has no options {sorted(options)}") from None


#: relative distance of the probes of delta: errors of its slope are of the order of the square
PROBE = 1e-4
