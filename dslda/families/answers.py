"""Checks of the answers that a user's own family gives.

:class:`~dslda.families.base.Family` wraps the methods of a user's class with :func:`checked`. Every caller then gets an
answer of the right shape, or an error that names family and method, and no NaN reaches a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dslda.exceptions import DsldaError
from dslda.families.registry import is_built_in

if TYPE_CHECKING:
    from dslda.families.base import Array, Family, ResponseMoments

__all__ = ["CHECKS", "asked", "checked", "is_number", "refuse"]


@contextmanager
def asked(family: Family, member: str, failures: type[Exception] = Exception) -> Iterator[None]:
    """Turn an error of the user's code into one that names family and member; `failures` are the errors it can raise."""
    try:
        yield
    except (DsldaError, MemoryError):
        raise
    except failures as error:
        if is_built_in(type(family)):
            raise
        raise family.fault(f"{member} failed with {type(error).__name__}: {error}") from error


def checked(name: str, method: Any) -> Callable[..., Any]:
    """Wrap the method `name` of a family so that it checks what it returns."""

    @wraps(method)
    def ask(family: Family, *args: Any, **kwargs: Any) -> Any:
        with asked(family, name):
            answer = method.__get__(family, type(family))(*args, **kwargs)
        CHECKS[name](family, answer, *args, **kwargs)
        return answer

    return ask


def refuse(family: Family, method: str, must: str, answer: Any) -> NoReturn:
    """Raise the error for an answer that breaks the rule `must`."""
    got = f"{answer!r:.60}"
    if isinstance(answer, np.ndarray):
        got = f"an array of {answer.dtype} of shape {answer.shape}"
    raise family.fault(f"{method} must give {must}, got {got}")


def is_number(x: Any) -> bool:
    """True if `x` is one finite number."""
    return isinstance(x, (int, float, np.number)) and not isinstance(x, bool) and math.isfinite(x)


def _scaling(family: Family, answer: Any, moments: ResponseMoments) -> None:
    if not (isinstance(answer, tuple) and len(answer) == 2 and all(map(is_number, answer)) and answer[1] > 0):
        must = "a tuple of two finite numbers, center and scale, the scale above 0"
        refuse(family, "scaling", must, answer)


def _start(family: Family, answer: Any, moments: ResponseMoments) -> None:
    if not isinstance(answer, tuple) or len(answer) != 3:
        refuse(family, "start", "a tuple (middle, spread, delta)", answer)
    middle, spread, delta = answer
    if not (is_number(middle) and is_number(spread) and spread > 0.0):
        refuse(family, "start", "finite numbers middle and spread, spread above 0", (middle, spread))
    _array(family, "start", delta, (_length(delta),), role="as delta ")
    needed = max(family.n_searched or 0, int(family.has_dispersion_floor or family.is_exact_product))
    if len(delta) < needed:
        refuse(family, "start", f"as delta at least {needed} numbers (see n_searched)", delta)


def _initial_coefficients(family: Family, answer: Any, n_topics: int, moments: ResponseMoments) -> None:
    if not isinstance(answer, tuple) or len(answer) != 2:
        refuse(family, "initial_coefficients", "a tuple (eta, delta)", answer)
    eta, delta = answer
    _array(family, "initial_coefficients", eta, (n_topics,), role="as eta ")
    _array(family, "initial_coefficients", delta, (_length(delta),), role="as delta ")


def _probabilities(family: Family, answer: Any, m: Array, v: Array, delta: Array) -> None:
    if answer is None:
        return
    n_classes = answer.shape[1] if isinstance(answer, np.ndarray) and answer.ndim == 2 else 2
    _array(family, "probabilities", answer, (len(m), n_classes), where=m[:, np.newaxis])
    if np.any(np.abs(answer.sum(axis=1) - 1.0) > 1e-6):
        refuse(family, "probabilities", "rows that sum to 1", answer[0].tolist())


def _delta_probes(family: Family, answer: Any, delta: Array) -> None:
    _array(family, "delta_probes", answer, (_length(answer), len(delta)))


def _check(family: Family, answer: Any, y: Array, aux: Array | None) -> None:
    if not (isinstance(answer, np.ndarray) and answer.dtype == np.bool_ and answer.shape == y.shape):
        refuse(family, "check", f"an array of bool of shape {y.shape}", answer)


def _elementwise(method: str, family: Family, answer: Any, first: Array, *_: Any, **__: Any) -> None:
    if method != "variance" or answer is not None:
        _array(family, method, answer, first.shape, where=first)


CHECKS: dict[str, Callable[..., None]] = {
    "scaling": _scaling,
    "start": _start,
    "initial_coefficients": _initial_coefficients,
    "probabilities": _probabilities,
    "delta_probes": _delta_probes,
    "check": _check,
    **{
        method: partial(_elementwise, method)
        for method in ("mean", "variance", "update_delta", "coefficients_to_user")
    },
}
"""The check of each method's answer: called with the family, the answer and the arguments of the method."""


def _array(
    family: Family,
    method: str,
    answer: Any,
    shape: tuple[int, ...],
    *,
    role: str = "",
    where: Array | None = None,
) -> None:
    """Refuse anything but an array of this shape that is finite wherever `where` is (by default, everywhere)."""
    if not isinstance(answer, np.ndarray) or answer.dtype != np.float64 or answer.shape != shape:
        refuse(family, method, f"{role}an array of float64 of shape {shape}", answer)
    bad = ~np.isfinite(answer)
    if where is not None:
        bad &= np.isfinite(where)
    if bad.any():
        refuse(family, method, f"{role}finite numbers", float(answer[bad][0]))


def _length(answer: Any) -> int:
    """The length of a vector; 1 for anything else, which is refused later."""
    return len(answer) if isinstance(answer, np.ndarray) and answer.ndim else 1
