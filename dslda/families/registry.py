"""The families users can name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError

if TYPE_CHECKING:
    from dslda.families.base import Family

__all__ = ["FAMILIES", "get_family", "is_built_in", "register"]

# The module of each is its name. They are imported when they are asked for: a process loads, or compiles, the functions of
# the family it uses and of no other.
_BUILT_IN = {
    "gaussian": "Gaussian",
    "student_t": "StudentT",
    "poisson": "Poisson",
    "negative_binomial": "NegativeBinomial",
    "binomial": "Binomial",
    "categorical": "Categorical",
    "ordinal": "Ordinal",
    "gamma": "Gamma",
    "inverse_gaussian": "InverseGaussian",
    "weibull": "Weibull",
}


class _Families(Mapping[str, "type[Family]"]):
    """Every family by its name."""

    def __init__(self) -> None:
        self._registered: dict[str, type[Family]] = {}

    def __getitem__(self, name: str) -> type[Family]:
        if name in _BUILT_IN:
            kind: type[Family] = getattr(import_module(f"dslda.families.{name}"), _BUILT_IN[name])
            return kind
        return self._registered[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*_BUILT_IN, *self._registered])

    def __len__(self) -> int:
        return len(_BUILT_IN) + len(self._registered)

    def add(self, family: type[Family]) -> None:
        self._registered[family.name] = family


FAMILIES = _Families()


def get_family(name: str, options: Mapping[str, Any] | None = None) -> Family:
    """The family called `name`, with its options.

    Raises
    ------
    InputError
        For an unknown name, with the one that is most like it and all that are known, or an option the family does not have.
    """
    try:
        kind = FAMILIES[name]
    except (KeyError, TypeError):
        close = get_close_matches(str(name).lower().replace("-", "_"), FAMILIES, n=1)
        meant = f"did you mean {close[0]!r}? If" if close else "if"
        raise InputError(
            f"family must be one of {', '.join(sorted(FAMILIES))}, got {name!r}; {meant} it is your own, register its class "
            "before (dslda.families.registry.register)"
        ) from None
    return kind.from_options({} if options is None else options)


def register(family: type[Family]) -> type[Family]:
    """Make a family known by its name, so that models that use it can be loaded. Usable as a decorator.

    A class of the same module and name takes the place of the one before: notebooks run their cells again.

    Raises
    ------
    InputError
        It has no name, or the name is taken by another family.
    """
    name = getattr(family, "name", None)
    if not isinstance(name, str) or not name:
        raise InputError(
            f"a family must have a name, a string, got {name!r:.60} in the class {family.__qualname__}; write name = "
            '"..." in it'
        )
    known = FAMILIES.get(family.name)
    if known is not None and _origin(known) != _origin(family):
        raise InputError(
            f"family name {family.name!r} is taken by {known.__module__}.{known.__qualname__}; choose another"
        )
    if family.name not in _BUILT_IN:
        FAMILIES.add(family)
    return family


def is_built_in(family: type[Family]) -> bool:
    """Whether a class is one of the families of dslda itself, and not the user's own."""
    room, _, module = family.__module__.rpartition(".")
    return room == "dslda.families" and _BUILT_IN.get(module) == family.__qualname__


def _origin(family: type[Family]) -> tuple[str, str]:
    return family.__module__, family.__qualname__
