"""A user's own family: by its log-likelihood and derivatives, or as an exponential family.

Either subclass :class:`~dslda.families.base.Family` and compile its functions with :func:`compile_response`; or, if omega is
the natural parameter, pass what Blei and McAuliffe (2010, section 3) call A and h to :func:`canonical`. docs/families.md has
examples. ``dslda.testing.FamilyTests`` tests the properties that EM relies on. A process must
:func:`~dslda.families.registry.register` the class before it loads a model of that family.

Functions are compiled in the process that defines them and again in every process that receives them. A family of the main
script or a notebook is sent whole; one of a module is imported, so workers need that module. Write plain Python with
numbers, :mod:`math`, ``numpy`` scalars and other compiled functions. Results must stay finite for omegas of several hundred,
of either sign (:mod:`dslda.families.scalars` helps).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numba import float64, njit, types
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from dslda.exceptions import InputError
from dslda.families.answers import asked, is_number, refuse
from dslda.families.base import FUNCTIONS, Array, Family, Interval, ResponseMoments, normal_expectation
from dslda.families.registry import is_built_in
from dslda.families.scalars import SCALAR_SIGNATURE

__all__ = ["canonical", "check_answers", "check_definition", "compile_response", "missing_members"]

ATTRIBUTES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a string of one line", lambda x: isinstance(x, str) and bool(x.strip()) and x.isprintable()),
    "link": ("a string", lambda x: isinstance(x, str) and bool(x)),
    "domain": ("an Interval", lambda x: isinstance(x, Interval)),
    "auxiliary": ("'', 'trials' or 'event'", lambda x: x in ("", "trials", "event")),
    "delta_transform": ("'log' or 'identity'", lambda x: x in ("log", "identity")),
    "n_searched": ("a whole number of at least 0, or None", lambda x: x is None or _is_count(x)),
    "max_classes": ("0 or 2", lambda x: _is_count(x) and x in (0, 2)),
    "default_ridge": ("a number of at least 0", lambda x: is_number(x) and x >= 0.0),
    "delta_bounds": (
        "two numbers, the lower one first",
        lambda x: len(x) == 2 and all(map(is_number, x)) and x[0] < x[1],
    ),
    "options": (
        "plain values that a model can store (numbers, strings, None)",
        lambda x: isinstance(x, dict) and all(map(_is_plain, x.values())),
    ),
}
"""The rule for each attribute of a family, in words and as a test."""

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
        The function does not compile; the message ends with numba's.
    """
    return _compiled(function, SCALAR_SIGNATURE, "(y, omega, delta, aux)")


def canonical(
    name: str,
    A: Callable[[float], float],
    A1: Callable[[float], float],
    A2: Callable[[float], float],
    A3: Callable[[float], float],
    log_h: Callable[[float, Array], float],
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
        Name that users write.
    A, A1, A2, A3 : callable
        The log-normaliser as a function of omega and its first three derivatives. A2 is positive.
    log_h : callable
        ``log_h(y, delta)``, with `delta` an array of one entry; constants may be left out where the dispersion is fixed.
    domain : Interval
        Domain of y.
    link : str, default "canonical"
        Name of the link in tables. "log" and "identity" change the units of coefficients: see
        :meth:`~dslda.families.base.Family.coefficients_to_user`.
    has_dispersion : bool, default False
        Estimate delta; otherwise it is 1.
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

    class Canonical(Family):
        __doc__ = f"Exponential family {name!r} with canonical link, made by :func:`canonical`."
        n_searched = 1 if has_dispersion else 0

        @staticmethod
        @compile_response
        def log_likelihood(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
            return (y * omega - a(omega)) / delta[0] + h(y, delta)

        @staticmethod
        @compile_response
        def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
            return (y - a1(omega)) / delta[0]

        @staticmethod
        @compile_response
        def second_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
            return -a2(omega) / delta[0]

        @staticmethod
        @compile_response
        def third_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
            return -a3(omega) / delta[0]

        @staticmethod
        @compile_response
        def information_weight(y, omega, delta, aux):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
            return a2(omega) / delta[0]

        def start(self, moments: ResponseMoments) -> tuple[float, float, Array]:
            middle = _omega_of_mean(a1, moments.mean)
            curvature = max(a2(middle), 1e-12)
            delta = min(max(moments.variance / curvature, 1e-3), 1e3) if has_dispersion else 1.0
            # one standard deviation of y to each side, as the Gaussian's
            spread = min(math.sqrt(moments.variance) / curvature, 1.0)
            return middle, spread if spread > 0.0 else 1.0, np.array([delta])

        def mean(self, m: Array, v: Array, delta: Array) -> Array:
            return normal_expectation(np.vectorize(a1, otypes=[np.float64]), m, v)

    Canonical.__name__ = Canonical.__qualname__ = f"canonical[{name}]"
    Canonical.name, Canonical.link, Canonical.domain = name, link, domain
    Canonical.default_ridge = default_ridge
    return Canonical


def _compiled(function: Callable[..., float], signature: Any, arguments: str) -> Callable[..., float]:
    """`function` compiled for one signature, from its source if it is compiled already."""
    source = getattr(function, "py_func", function)
    if not callable(source):
        raise InputError(f"a function {arguments} must be given, got {function!r}")
    try:
        return cast("Callable[..., float]", njit(signature, nogil=True)(source))
    except (NumbaError, TypeError) as error:
        raise InputError(
            f"{getattr(source, '__name__', source)!r} must be a function {arguments} of numbers that numba can compile, "
            f"returning a number; numba says: {error}",
            remedy="write it with math functions and plain arithmetic",
        ) from error


def _omega_of_mean(a1: Callable[..., float], mean: float) -> float:
    """omega with A1(omega) = mean, or 0 if none lies between -50 and 50; A1 increases."""
    ends = (-50.0, 50.0)
    with np.errstate(all="ignore"):
        low, high = (a1(end) - mean for end in ends)
    if not low < 0.0 < high:
        return 0.0
    from scipy.optimize import brentq  # takes a tenth of a second to import

    return float(brentq(lambda omega: a1(omega) - mean, *ends))


def missing_members(family: type[Family] | Family) -> list[str]:
    """Required members that a family lacks; none for a class that Python can instantiate."""
    abstract: frozenset[str] = getattr(family, "__abstractmethods__", frozenset())
    if isinstance(family, type) and not abstract:
        return []
    needed = ("name", "link", "domain", *FUNCTIONS)
    return [*(name for name in needed if getattr(family, name, None) is None), *sorted(abstract)]


def check_definition(family: Family) -> None:
    """Refuse a user's family with a missing or invalid member, before anything is read."""
    kind = type(family)
    if is_built_in(kind):
        return
    if missing := missing_members(family):
        raise family.fault(
            f"the class {kind.__name__} must define {', '.join(missing)}",
            "docs/families.md has an example",
        )
    for name, (rule, holds) in ATTRIBUTES.items():
        with asked(family, name):
            value = getattr(family, name)
            held = holds(value)
        if not held:
            raise family.fault(f"{name} must be {rule}, got {value!r:.60}")
    for name in FUNCTIONS:
        if not _is_compiled(getattr(family, name)):
            raise family.fault(
                f"{name} must be compiled for (y, omega, delta, aux), got {getattr(family, name)!r:.60}",
                "write @staticmethod and below it @compile_response of dslda.families.own",
            )
    options, failure = family.options, ""
    try:
        with asked(family, "from_options"):
            comes_back = kind.from_options(options).options == options
    except InputError as error:
        comes_back, failure = False, f" ({error.reason})"
    if not comes_back:
        raise family.fault(
            f"must be made again from its options when a model is loaded, got {options!r:.60}{failure}",
            f"make {kind.__name__} a frozen dataclass whose fields are its options",
        )


def check_answers(
    family: Family,
    moments: ResponseMoments,
    *,
    center: float,
    scale: float,
    responses: Sequence[float],
    n_topics: int,
) -> None:
    """Call a user's family as a fit will, at its start and for a few responses; raise an InputError for a wrong answer.

    `moments` are those of the scaled response; `responses` are a few from the data, in the user's units.
    """
    if is_built_in(type(family)):
        return
    delta = family.start(moments)[2]
    eta, _ = family.initial_coefficients(n_topics, moments)
    y = (np.asarray(responses, dtype=np.float64) - center) / scale
    auxiliaries = {"trials": (max(1.0, *responses),), "event": (0.0, 1.0)}.get(family.auxiliary, (1.0,))
    omegas = sorted({float(eta.min()), float(eta.mean()), float(eta.max())})
    cases = [(value, omega, aux) for value in y.tolist() for omega in omegas for aux in auxiliaries]
    _check_functions(family, cases, delta)
    profile = [
        sum(_value(family, "log_likelihood", value, omega, probe, aux) for value, omega, aux in cases)
        for probe in family.delta_probes(delta)
    ]
    family.update_delta(delta, np.array(profile), weight=float(len(cases)), gain=0.0)
    for n in (n_topics, 1, 0):
        m = eta[:n]
        for v in (np.zeros(n), np.full(n, 0.1)):
            family.variance(family.mean(m, v, delta), delta, np.ones(n))
            family.probabilities(m, v, delta)
    family.coefficients_to_user(eta, center, scale)


def _check_functions(family: Family, cases: Sequence[tuple[float, float, float]], delta: Array) -> None:
    values: dict[str, list[float]] = {}
    for name in FUNCTIONS:
        for y, omega, aux in cases:
            # compiled code silently reads beyond the end of delta; its Python source raises an error
            with np.errstate(all="ignore"):
                try:
                    getattr(family, name).py_func(y, omega, delta, aux)
                except IndexError as error:
                    raise family.fault(
                        f"{name} must use no more of delta than the {len(delta)} that start gives, got {error}"
                    ) from error
                except Exception:  # Python fails where compiled code does not, as for the logarithm of 0
                    pass
        values[name] = [_value(family, name, y, omega, delta, aux) for y, omega, aux in cases]
    weights = values["information_weight"]
    if min(weights) < 0.0 or not max(weights) > 0.0:
        refuse(family, "information_weight", "numbers of at least 0, some of them above 0", min(weights))
    for third, bend in zip(values["third_derivative"], values["second_derivative"], strict=True):
        if family.is_quadratic and abs(third) > 1e-9 * (1.0 + abs(bend)):
            refuse(family, "third_derivative", "0, as is_quadratic says", third)
    for y, _, aux in cases if family.is_exact_product else ():
        # l without its terms in omega must not depend on omega
        low, high = (
            _value(family, "log_likelihood", y, x, delta, aux) - (y * x - math.exp(x)) / delta[0]
            for x in (-0.5, 0.5)
        )
        if abs(high - low) > 1e-6 * (1.0 + abs(low)):
            raise family.fault(
                "log_likelihood must be (y omega - exp(omega)) / delta[0] and a function of y and delta, as "
                "is_exact_product says, got another"
            )


def _value(family: Family, name: str, y: float, omega: float, delta: Array, aux: float) -> float:
    """The value of a compiled function of the family, which must be finite."""
    with asked(family, name):
        value = float(getattr(family, name)(y, omega, delta, aux))
    if not math.isfinite(value):
        place = f"y={y:g}, omega={omega:g}, delta={delta.tolist()}"
        raise family.fault(f"{name} must give a finite number, got {value} at {place}")
    return value


def _is_compiled(function: Any) -> bool:
    if not isinstance(function, Dispatcher):
        return False
    compiled = function.overloads.get(SCALAR_SIGNATURE.args)
    return compiled is not None and compiled.signature.return_type == float64


def _is_count(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


def _is_plain(x: Any) -> bool:
    return x is None or isinstance(x, (str, bool)) or is_number(x)
