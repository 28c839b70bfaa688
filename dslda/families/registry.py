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

# Class by module; the module has the family's name. Modules are imported on demand, so that a process loads, or compiles,
# only the functions of the family it uses.
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
    "beta": "Beta",
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
        The name is unknown, or the family has no such option.
    """
    try:
        kind = FAMILIES[name]
    except (KeyError, TypeError):
        close = get_close_matches(str(name).lower().replace("-", "_"), FAMILIES, n=1)
        own = "if it is your own, make it known with {dslda.families.registry.register()}"
        raise InputError(
            f"must be one of {', '.join(sorted(FAMILIES))}, got {name!r}",
            parameter="family",
            remedy=(*(f"did you mean {like!r}" for like in close), own),
        ) from None
    return kind.from_options({} if options is None else options)


def register(family: type[Family]) -> type[Family]:
    """Make a family known by its name, so that models that use it can be loaded. Usable as a decorator.

    A class of the same module and name replaces the previous one, since notebooks run their cells again.

    Raises
    ------
    InputError
        The class has no name, or another family has it.
    """
    name = getattr(family, "name", None)
    if not isinstance(name, str) or not name:
        raise InputError(
            f"a family must have a name, a string, got {name!r:.60} in the class {family.__qualname__}",
            remedy='write name = "..." in it',
        )
    taken = FAMILIES.get(family.name)
    if taken is not None and _origin(taken) != _origin(family):
        raise InputError(
            f"family name {family.name!r} is taken by {taken.__module__}.{taken.__qualname__}",
            remedy="choose another",
        )
    if family.name not in _BUILT_IN:
        FAMILIES.add(family)
    return family


def is_built_in(family: type[Family]) -> bool:
    """True for a family of dslda itself, False for a user's own."""
    room, _, module = family.__module__.rpartition(".")
    return room == "dslda.families" and _BUILT_IN.get(module) == family.__qualname__


def _origin(family: type[Family]) -> tuple[str, str]:
    return family.__module__, family.__qualname__
