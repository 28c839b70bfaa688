"""Fields of a JSON object, for callers that do not yet use :func:`dslda.storage.typed_json.decode`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dslda.exceptions import FormatError

T = TypeVar("T")
MOST = 2**53


def _get(data: object, name: str, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise FormatError(f"{where} must be a JSON object, got {data!r:.60}")
    if name not in data:
        raise FormatError(f"{where}: field {name!r} is missing")
    return data[name]


def _refuse(name: str, rule: str, value: object, where: str) -> FormatError:
    return FormatError(f"{where}: field {name!r} must be {rule}, got {value!r:.60}")


def count(data: object, name: str, where: str) -> int:
    """A whole number from 0 to 2**53."""
    value = _get(data, name, where)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _refuse(name, "a whole number >= 0", value, where)
    if value > MOST:
        raise _refuse(name, "at most 2**53", value, where)
    return value


def optional(
    check: Callable[[object, str, str], T], data: Mapping[str, Any], name: str, where: str
) -> T | None:
    """A field that one of these functions checks, or None where it is null or not there."""
    return None if data.get(name) is None else check(data, name, where)


def text(data: object, name: str, where: str) -> str:
    value = _get(data, name, where)
    if not isinstance(value, str):
        raise _refuse(name, "a string", value, where)
    return value


def items(data: object, name: str, where: str) -> list[Any]:
    """A list of anything."""
    value = _get(data, name, where)
    if not isinstance(value, list):
        raise _refuse(name, "a list", value, where)
    return value


def object_(data: object, name: str, where: str) -> dict[str, Any]:
    """A JSON object of anything."""
    value = _get(data, name, where)
    if not isinstance(value, dict):
        raise _refuse(name, "a JSON object", value, where)
    return value
