"""A family of one's own: by its log-likelihood and derivatives, or as an exponential family.

Either subclass :class:`~dslda.families.base.Family` and compile the scalar functions with :func:`compile_response`::

    class Exponential(Family):
        '''y ~ exponential with mean exp(omega).'''

        name = "exponential"
        link = "log"
        domain = Interval(0.0)
        n_searched = 0

        @staticmethod
        @compile_response
        def log_likelihood(y, omega, delta, aux):
            return -omega - y * math.exp(-omega)

        ...  # first_derivative, second_derivative, third_derivative, information_weight

        def start(self, moments):
            return math.log(moments.mean), 1.0, np.ones(1)

        def mean(self, m, v, delta):
            return np.exp(m + v / 2)

or, where omega is the natural parameter, give what Blei and McAuliffe (2010, section 3) call A and h to :func:`canonical`.
Subclass ``dslda.testing.FamilyTests`` to find out whether it keeps what EM relies on, and
:func:`~dslda.families.registry.register`
the class before loading a model that was fitted with it.

The functions are compiled where they are defined, and again in every process they are sent to. What is defined in the main
script or a notebook travels whole; a family of a module is imported, so the module must be there on the workers too. Plain
Python is enough, of numbers, :mod:`math`, ``numpy`` scalars and other compiled functions. They must stay finite for
omegas of several hundred, of either sign (:mod:`dslda.families.scalars` helps).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba import float64, njit, types
from numba.core.errors import NumbaError
from numpy.typing import NDArray
from scipy import optimize

from dslda.exceptions import InputError
from dslda.families.base import SCALAR_SIGNATURE, Family, Interval, ResponseMoments, normal_expectation

__all__ = ["canonical", "compile_response"]

_OF_OMEGA = float64(float64)
_OF_Y = float64(float64, types.Array(float64, 1, "C", readonly=True))


def compile_response(function: Callable[..., float]) -> Callable[..., float]:
    """Compile a function of a response for E-step and M-step.

    Parameters
    ----------
    function : callable
        ``function(y, omega, delta, aux)`` of three numbers and the array `delta`, returning a number. See
        :class:`~dslda.families.base.Family`.

    Returns
    -------
    callable
        Compiled; make it a ``staticmethod`` of the family.

    Raises
    ------
    InputError
        It does not compile; the message ends with numba's.
    """
    return _compiled(function, SCALAR_SIGNATURE, "(y, omega, delta, aux)")


def canonical(
    name: str,
    A: Callable[[float], float],
    A1: Callable[[float], float],
    A2: Callable[[float], float],
    A3: Callable[[float], float],
    log_h: Callable[[float, NDArray[np.float64]], float],
    *,
    domain: Interval,
    link: str = "canonical",
    has_dispersion: bool = False,
    default_ridge: float = 0.0,
) -> type[Family]:
    """An exponential family with canonical link, as the paper writes it (its equation 3).

    p(y | omega) = h(y, delta) exp((omega y - A(omega)) / delta), so that E[y] = A1(omega) and Var[y] = delta A2(omega).

    Parameters
    ----------
    name : str
        The name users write.
    A, A1, A2, A3 : callable
        The log-normaliser as a function of omega and its first three derivatives. A2 is positive.
    log_h : callable
        ``log_h(y, delta)``, with `delta` an array of one entry; constants may be left out where the dispersion is fixed.
    domain : Interval
        Of y.
    link : str, default "canonical"
        What to call the link in tables. "log" and "identity" have a meaning:
        see :meth:`~dslda.families.base.Family.coefficients_to_user`.
    has_dispersion : bool, default False
        Whether delta is estimated; else it is 1.
    default_ridge : float, default 0
        See :class:`~dslda.families.base.Family`; above 0 where coefficients may grow without bound.

    Returns
    -------
    type
        A subclass of :class:`~dslda.families.base.Family`: pass an instance of it as the family.

    Raises
    ------
    InputError
        A function does not compile.
    """
    a, a1, a2, a3 = (_compiled(f, _OF_OMEGA, "(omega)") for f in (A, A1, A2, A3))
    h = _compiled(log_h, _OF_Y, "(y, delta)")

    @compile_response
    def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return (y * omega - a(omega)) / delta[0] + h(y, delta)

    @compile_response
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return (y - a1(omega)) / delta[0]

    @compile_response
    def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -a2(omega) / delta[0]

    @compile_response
    def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return -a3(omega) / delta[0]

    @compile_response
    def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        return a2(omega) / delta[0]

    def start(self: Family, moments: ResponseMoments) -> tuple[float, float, NDArray[np.float64]]:
        middle = _omega_of_mean(a1, moments.mean)
        curvature = max(a2(middle), 1e-12)
        delta = min(max(moments.variance / curvature, 1e-3), 1e3) if has_dispersion else 1.0
        # one standard deviation of y to each side, as the Gaussian's
        spread = min(math.sqrt(moments.variance) / curvature, 1.0)
        return middle, spread if spread > 0.0 else 1.0, np.array([delta])

    def mean(
        self: Family, m: NDArray[np.float64], v: NDArray[np.float64], delta: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return normal_expectation(np.vectorize(a1, otypes=[np.float64]), m, v)

    members: dict[str, Any] = {
        "__doc__": f"Exponential family {name!r} with canonical link, made by :func:`canonical`.",
        "__module__": __name__,
        "name": name,
        "link": link,
        "domain": domain,
        "n_searched": 1 if has_dispersion else 0,
        "default_ridge": default_ridge,
        "log_likelihood": staticmethod(log_likelihood),
        "first_derivative": staticmethod(first_derivative),
        "second_derivative": staticmethod(second_derivative),
        "third_derivative": staticmethod(third_derivative),
        "information_weight": staticmethod(information_weight),
        "start": start,
        "mean": mean,
    }
    return type(f"canonical[{name}]", (Family,), members)


def _compiled(function: Callable[..., float], signature: Any, arguments: str) -> Callable[..., float]:
    """`function` compiled for one signature; one that is compiled already is compiled anew from its source."""
    source = getattr(function, "py_func", function)
    if not callable(source):
        raise InputError(f"a function {arguments} must be given, got {function!r}")
    try:
        return cast("Callable[..., float]", njit(signature, nogil=True)(source))
    except (NumbaError, TypeError) as error:
        raise InputError(
            f"{getattr(source, '__name__', source)!r} must be a function {arguments} of numbers that numba can compile, "
            f"returning a number; write it with math functions and plain arithmetic. numba says: {error}"
        ) from error


def _omega_of_mean(a1: Callable[..., float], mean: float) -> float:
    """omega with A1(omega) = mean, or the end of the range searched: A1 rises."""
    ends = (-50.0, 50.0)
    with np.errstate(all="ignore"):
        low, high = (a1(end) - mean for end in ends)
    if not low < 0.0 < high:
        return 0.0
    return float(optimize.brentq(lambda omega: a1(omega) - mean, *ends))
