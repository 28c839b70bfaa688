"""Families of the user's own, held to the contract: what they say of themselves, and every answer that is used.

What is wrong is one error that names family and method, before the work where it can be told by asking, and never a NaN
in a result. The families of dslda are tested instead, and not asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from numba import float64
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray

from dslda.exceptions import DsldaError, InputError
from dslda.families.base import SCALAR_SIGNATURE, Family, Interval, ResponseMoments
from dslda.families.registry import is_built_in

__all__ = [
    "ADVICE",
    "asked",
    "check_answers",
    "check_definition",
    "checked_delta",
    "checked_mean",
    "checked_probabilities",
    "checked_scaling",
    "checked_variance",
    "is_in_domain",
    "missing_members",
]

ADVICE = "the family is your own: mend it there, and try it with dslda.testing.FamilyTests"

FUNCTIONS = (
    "log_likelihood",
    "first_derivative",
    "second_derivative",
    "third_derivative",
    "information_weight",
)

ATTRIBUTES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a string of one line", lambda x: isinstance(x, str) and bool(x.strip()) and x.isprintable()),
    "link": ("a string", lambda x: isinstance(x, str) and bool(x)),
    "domain": ("an Interval", lambda x: isinstance(x, Interval)),
    "auxiliary": ("'', 'trials' or 'event'", lambda x: x in ("", "trials", "event")),
    "delta_transform": ("'log' or 'identity'", lambda x: x in ("log", "identity")),
    "n_searched": ("a whole number of at least 0, or None", lambda x: x is None or (_is_whole(x) and x >= 0)),
    "default_ridge": ("a number of at least 0", lambda x: _is_number(x) and x >= 0.0),
    "delta_bounds": (
        "two numbers, the lower one first",
        lambda x: len(x) == 2 and all(map(_is_number, x)) and x[0] < x[1],
    ),
}
"""What a family says of itself: what that must be, and whether it is."""


@contextmanager
def asked(family: Family, method: str, failures: type[Exception] = Exception) -> Iterator[None]:
    """Turn what a family of the user's own raises into an error that names it.

    Parameters
    ----------
    family : Family
    method : str
        What is asked, for the message.
    failures : type
        The errors that can only be the family's.

    Raises
    ------
    InputError
        In the place of an error that is none of dslda.
    """
    try:
        yield
    except (DsldaError, MemoryError):
        raise
    except failures as error:
        if is_built_in(type(family)):
            raise
        raise InputError(
            f"family {_called(family)}: {method} failed with {type(error).__name__}: {error}; {ADVICE}"
        ) from error


def missing_members(family: type[Family] | Family) -> list[str]:
    """What a subclass of Family must define and this one does not; none of a class of which instances can be made."""
    abstract: frozenset[str] = getattr(family, "__abstractmethods__", frozenset())
    if isinstance(family, type) and not abstract:
        return []
    needed = ("name", "link", "domain", *FUNCTIONS)
    return [*(name for name in needed if getattr(family, name, None) is None), *sorted(abstract)]


def check_definition(family: Family) -> None:
    """Refuse a family that does not define what it must, before anything is read.

    Raises
    ------
    InputError
        Naming what is missing or not what it must be.
    """
    kind = type(family)
    if is_built_in(kind):
        return
    if missing := missing_members(family):
        raise InputError(
            f"family {_called(family)}: the class {kind.__name__} must define {', '.join(missing)}; docs/families.md has an "
            "example"
        )
    for name, (rule, holds) in ATTRIBUTES.items():
        with asked(family, name):
            value = getattr(family, name)
            held = holds(value)
        if not held:
            raise InputError(f"family {_called(family)}: {name} must be {rule}, got {value!r:.60}; {ADVICE}")
    for name in FUNCTIONS:
        if not _is_compiled(getattr(family, name)):
            raise InputError(
                f"family {_called(family)}: {name} must be compiled for (y, omega, delta, aux), got "
                f"{getattr(family, name)!r:.60}; write @staticmethod and below it @compile_response of dslda.families.own"
            )
    with asked(family, "options"):
        options = family.options
        plain = isinstance(options, dict) and all(map(_is_plain, options.values()))
    try:
        with asked(family, "from_options"):
            comes_back = plain and kind.from_options(options).options == options
    except InputError as error:
        raise InputError(
            f"family {_called(family)}: must be made again from its options when a model is loaded, got {options!r:.60} "
            f"({error}); make {kind.__name__} a frozen dataclass whose fields are its options"
        ) from error
    if not comes_back:
        raise InputError(
            f"family {_called(family)}: options must be plain values that a model can store (numbers, strings, None), got "
            f"{options!r:.60}; {ADVICE}"
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
    """Ask a family of the user's own all that a fit will, at its start and a few responses.

    Parameters
    ----------
    family : Family
    moments : ResponseMoments
        Of the scaled response.
    center, scale : float
        Of the scaling.
    responses : sequence of float
        Some of those of the data, in the user's units.
    n_topics : int

    Raises
    ------
    InputError
        An answer is an error, not finite, or not of the shape and type it must be.
    """
    if is_built_in(type(family)):
        return
    with asked(family, "start"):
        start = family.start(moments)
    if not isinstance(start, tuple) or len(start) != 3:
        _refuse(family, "start", "a tuple (middle, spread, delta)", start)
    if not (_is_number(start[0]) and _is_number(start[1]) and start[1] > 0.0):
        _refuse(family, "start", "finite numbers middle and spread, spread above 0", start[:2])
    with asked(family, "initial_coefficients"):
        initial = family.initial_coefficients(n_topics, moments)
    if not isinstance(initial, tuple) or len(initial) != 2:
        _refuse(family, "initial_coefficients", "a tuple (eta, delta)", initial)
    eta = _array(family, "initial_coefficients", "as eta ", initial[0], (n_topics,))
    delta = initial[1]
    delta = _array(family, "start", "as delta ", delta, _length(delta))
    needed = max(family.n_searched or 0, int(family.has_dispersion_floor or family.is_exact_product))
    if len(delta) < needed:
        _refuse(family, "start", f"as delta at least {needed} numbers (see n_searched)", delta)
    probes = _probes(family, delta)

    y = (np.asarray(responses, dtype=np.float64) - center) / scale
    auxiliaries = {"trials": (max(1.0, *responses),), "event": (0.0, 1.0)}.get(family.auxiliary, (1.0,))
    omegas = sorted({float(eta.min()), float(eta.mean()), float(eta.max())})
    cases = [(value, omega, aux) for value in y.tolist() for omega in omegas for aux in auxiliaries]
    _check_functions(family, cases, delta)

    profile = np.zeros(len(probes))
    for row, probe in enumerate(probes):
        values = [_value(family, "log_likelihood", value, omega, probe, aux) for value, omega, aux in cases]
        profile[row] = sum(values)
    with asked(family, "update_delta"):
        moved = family.update_delta(delta, profile, weight=float(len(cases)), gain=0.0)
    checked_delta(family, delta, moved)

    for n in (n_topics, 1, 0):
        m = eta[:n]
        for v in (np.zeros(n), np.full(n, 0.1)):
            checked_variance(family, checked_mean(family, m, v, delta), delta, np.ones(n))
            shares = checked_probabilities(family, m, v, delta)
            if shares is not None and np.any(np.abs(shares.sum(axis=1) - 1.0) > 1e-6):
                _refuse(family, "probabilities", "rows that sum to 1", shares[0].tolist())
    with asked(family, "coefficients_to_user"):
        reported = family.coefficients_to_user(eta, center, scale)
    _array(family, "coefficients_to_user", "", reported, eta.shape)


def checked_scaling(family: Family, moments: ResponseMoments) -> tuple[float, float]:
    """Center and scale of the response, finite and the scale above 0."""
    with asked(family, "scaling"):
        given = family.scaling(moments)
    if not (isinstance(given, tuple) and len(given) == 2 and all(map(_is_number, given)) and given[1] > 0.0):
        _refuse(
            family, "scaling", "a tuple of two finite numbers, center and scale, the scale above 0", given
        )
    return float(given[0]), float(given[1])


def checked_delta(family: Family, old: NDArray[np.float64], new: Any) -> NDArray[np.float64]:
    """What :meth:`Family.update_delta` has made of delta."""
    return new if is_built_in(type(family)) else _array(family, "update_delta", "", new, old.shape)


def checked_mean(
    family: Family, m: NDArray[np.float64], v: NDArray[np.float64], delta: NDArray[np.float64]
) -> NDArray[np.float64]:
    """:meth:`Family.mean`, finite wherever the predictor is."""
    with asked(family, "mean"):
        mean = family.mean(m, v, delta)
    return mean if is_built_in(type(family)) else _array(family, "mean", "", mean, m.shape, where=m)


def checked_variance(
    family: Family, mean: NDArray[np.float64], delta: NDArray[np.float64], aux: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """:meth:`Family.variance`."""
    with asked(family, "variance"):
        given = family.variance(mean, delta, aux)
    return (
        given
        if given is None or is_built_in(type(family))
        else _array(family, "variance", "", given, mean.shape)
    )


def checked_probabilities(
    family: Family, m: NDArray[np.float64], v: NDArray[np.float64], delta: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """:meth:`Family.probabilities`, finite wherever the predictor is."""
    with asked(family, "probabilities"):
        given = family.probabilities(m, v, delta)
    if given is None or is_built_in(type(family)):
        return given
    n_classes = given.shape[1] if isinstance(given, np.ndarray) and given.ndim == 2 else 2
    return _array(family, "probabilities", "", given, (len(m), n_classes), where=m[:, np.newaxis])


def is_in_domain(
    family: Family, y: NDArray[np.float64], aux: NDArray[np.float64] | None
) -> NDArray[np.bool_]:
    """:meth:`Family.check`, shape of `y`."""
    with asked(family, "check"):
        inside = family.check(y, aux)
    if is_built_in(type(family)):
        return inside
    if not (isinstance(inside, np.ndarray) and inside.dtype == np.bool_ and inside.shape == y.shape):
        _refuse(family, "check", f"an array of bool of shape {y.shape}", inside)
    return inside


def _probes(family: Family, delta: NDArray[np.float64]) -> NDArray[np.float64]:
    with asked(family, "delta_probes"):
        probes = family.delta_probes(delta)
    rows = _length(probes)[0]
    if type(family).update_delta is Family.update_delta:
        n = len(delta) if family.n_searched is None else family.n_searched
        rows = 1 + 2 * n + n * (n - 1) // 2
    return _array(family, "delta_probes", "", probes, (rows, len(delta)))


def _check_functions(
    family: Family, cases: Sequence[tuple[float, float, float]], delta: NDArray[np.float64]
) -> None:
    for name in FUNCTIONS:
        for y, omega, aux in cases:
            # compiled code reads beyond the end of delta in silence: what its Python source does tells
            with np.errstate(all="ignore"):
                try:
                    getattr(family, name).py_func(y, omega, delta, aux)
                except IndexError as error:
                    raise InputError(
                        f"family {_called(family)}: {name} must use no more of delta than the {len(delta)} that start gives, "
                        f"got {error}; {ADVICE}"
                    ) from error
                except (
                    Exception
                ):  # what else differs between Python and compiled code, such as the logarithm of 0
                    pass
            _value(family, name, y, omega, delta, aux)
    weights = [_value(family, "information_weight", y, omega, delta, aux) for y, omega, aux in cases]
    if min(weights) < 0.0 or not max(weights) > 0.0:
        _refuse(family, "information_weight", "numbers of at least 0, some of them above 0", min(weights))
    for y, omega, aux in cases:
        third = _value(family, "third_derivative", y, omega, delta, aux)
        bend = _value(family, "second_derivative", y, omega, delta, aux)
        if family.is_quadratic and abs(third) > 1e-9 * (1.0 + abs(bend)):
            _refuse(family, "third_derivative", "0, as is_quadratic says", third)
        if family.is_exact_product:
            # l less the part in omega is a function of y and delta
            rest = [
                _value(family, "log_likelihood", y, x, delta, aux) - (y * x - math.exp(x)) / delta[0]
                for x in (-0.5, 0.5)
            ]
            if abs(rest[1] - rest[0]) > 1e-6 * (1.0 + abs(rest[0])):
                raise InputError(
                    f"family {_called(family)}: log_likelihood must be (y omega - exp(omega)) / delta[0] and a function of y "
                    f"and delta, as is_exact_product says, got another; {ADVICE}"
                )


def _value(
    family: Family, name: str, y: float, omega: float, delta: NDArray[np.float64], aux: float
) -> float:
    """A compiled function of the family, finite."""
    with asked(family, name):
        value = float(getattr(family, name)(y, omega, delta, aux))
    if not math.isfinite(value):
        at = f"{value} at y={y:g}, omega={omega:g}, delta={delta.tolist()}"
        raise InputError(f"family {_called(family)}: {name} must give a finite number, got {at}; {ADVICE}")
    return value


def _array(
    family: Family,
    method: str,
    what: str,
    given: Any,
    shape: tuple[int, ...],
    where: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """An array of this shape, with finite numbers, but where `where` (broadcast) has none itself."""
    if not isinstance(given, np.ndarray) or given.dtype != np.float64 or given.shape != shape:
        _refuse(family, method, f"{what}an array of float64 of shape {shape}", given)
    bad = ~np.isfinite(given)
    if where is not None:
        bad &= np.isfinite(where)
    if bad.any():
        _refuse(family, method, f"{what}finite numbers", float(given[bad][0]))
    return given


def _length(given: Any) -> tuple[int]:
    """The shape that an array of any length has."""
    return (len(given) if isinstance(given, np.ndarray) and given.ndim else 1,)


def _refuse(family: Family, method: str, must: str, given: Any) -> NoReturn:
    shown = (
        f"an array of {given.dtype} of shape {given.shape}"
        if isinstance(given, np.ndarray)
        else f"{given!r:.60}"
    )
    raise InputError(f"family {_called(family)}: {method} must give {must}, got {shown}; {ADVICE}")


def _called(family: Family) -> str:
    name = getattr(family, "name", None)
    return repr(name) if isinstance(name, str) else type(family).__name__


def _is_compiled(function: Any) -> bool:
    if not isinstance(function, Dispatcher):
        return False
    compiled = function.overloads.get(SCALAR_SIGNATURE.args)
    return compiled is not None and compiled.signature.return_type == float64


def _is_whole(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.number)) and not isinstance(x, bool) and math.isfinite(x)


def _is_plain(x: Any) -> bool:
    return x is None or isinstance(x, (str, bool)) or _is_number(x)
