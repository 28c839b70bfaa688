"""The families users can name."""

from __future__ import annotations

from dslda.exceptions import InputError
from dslda.families.base import Family
from dslda.families.gaussian import Gaussian

__all__ = ["FAMILIES", "get_family"]

FAMILIES: dict[str, type[Family]] = {Gaussian.name: Gaussian}


def get_family(name: str) -> Family:
    """The family called `name`.

    Raises
    ------
    InputError
        For an unknown name, listing the known ones.
    """
    try:
        return FAMILIES[name]()
    except (KeyError, TypeError):
        raise InputError(f"family must be one of {', '.join(sorted(FAMILIES))}, got {name!r}") from None
