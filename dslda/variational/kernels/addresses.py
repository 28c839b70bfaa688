"""Compiled functions of a family as arguments of kernels, each with its address at hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba.core.types import WrapperAddressProtocol
from numba.experimental.function_type import _get_wrapper_address

from dslda.families.base import Family
from dslda.families.scalars import SCALAR_SIGNATURE

__all__ = ["function_of"]


class _Addressed(WrapperAddressProtocol):
    """A compiled function whose address was looked up once.

    numba looks it up anew for every call that takes the function as an argument, which costs as much as hundreds of
    documents.
    """

    def __init__(self, function: Callable[..., float]) -> None:
        self._function = function  # keeps the code at the address
        self._address: int = _get_wrapper_address(function, SCALAR_SIGNATURE)

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> Any:
        return SCALAR_SIGNATURE


_addressed = lru_cache(maxsize=256)(_Addressed)


def function_of(family: Family, name: str) -> _Addressed:
    """A compiled function of a family by its name, for a kernel."""
    return _addressed(getattr(family, name))
