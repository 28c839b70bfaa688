"""The families users can name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dslda.exceptions import InputError
from dslda.families.base import Family
from dslda.families.categorical import Categorical
from dslda.families.gaussian import Gaussian

__all__ = ["FAMILIES", "get_family", "register"]

FAMILIES: dict[str, type[Family]] = {family.name: family for family in (Gaussian, Categorical)}


def get_family(name: str, options: Mapping[str, Any] | None = None) -> Family:
    """The family called `name`, with its options.

    Raises
    ------
    InputError
        For an unknown name, listing the known ones, or an option the family does not have.
    """
    try:
        kind = FAMILIES[name]
    except (KeyError, TypeError):
        raise InputError(f"family must be one of {', '.join(sorted(FAMILIES))}, got {name!r}") from None
    return kind.from_options({} if options is None else options)


def register(family: type[Family]) -> type[Family]:
    """Make a family known by its name, so that models that use it can be loaded. Usable as a decorator.

    Raises
    ------
    InputError
        The name is taken by another family.
    """
    if FAMILIES.setdefault(family.name, family) is not family:
        raise InputError(f"family name {family.name!r} is taken by {FAMILIES[family.name].__qualname__}")
    return family
