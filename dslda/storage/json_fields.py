"""Fields of a JSON object, taken out with their type checked and errors that name them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dslda.exceptions import FormatError

__all__ = [
    "MANIFEST_CHECKSUM",
    "boolean",
    "canonical_json",
    "count",
    "is_whole",
    "items",
    "json_sha256",
    "number",
    "object_",
    "optional",
    "parse_json",
    "positive",
    "sorted_names",
    "text",
    "with_checksum",
]

T = TypeVar("T")

MANIFEST_CHECKSUM = "manifest_sha256"
"""The field of a manifest that has the checksum of all its others."""
MOST = 2**53
"""Counts beyond this lose their last digit in many JSON libraries, and overflow sums of 64 bits here."""
DEEPEST = 50
"""Levels of a manifest: far more than any has, far fewer than Python's stack takes."""


def parse_json(raw: bytes) -> Any:
    """Parse a manifest.

    Raises
    ------
    ValueError
        It is not JSON, holds NaN, infinity or a number beyond a double, or is nested too deeply.
    """
    try:
        data = json.loads(raw, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [data] if isinstance(data, (dict, list)) else []
    for _ in range(DEEPEST):
        values = [value.values() if isinstance(value, dict) else value for value in level]
        level = [inner for value in values for inner in value if isinstance(inner, (dict, list))]
        if not level:
            return data
    raise ValueError("nested too deeply")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits:.20} is no finite number")
    return value


def canonical_json(data: Any) -> bytes:
    """JSON with sorted keys, no blanks, UTF-8: the form that hashes are taken of."""
    written = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return written.encode("utf-8", "surrogatepass")


def json_sha256(data: Any) -> str:
    """SHA-256 (hexadecimal) of :func:`canonical_json`."""
    return hashlib.sha256(canonical_json(data)).hexdigest()


def with_checksum(data: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with its checksum at the end, in the place of one that is there."""
    fields = {name: value for name, value in data.items() if name != MANIFEST_CHECKSUM}
    return fields | {MANIFEST_CHECKSUM: json_sha256(fields)}


def is_whole(data: Mapping[str, Any]) -> bool:
    """Whether a manifest has the checksum of its fields."""
    return MANIFEST_CHECKSUM in data and with_checksum(data)[MANIFEST_CHECKSUM] == data[MANIFEST_CHECKSUM]


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


def number(data: object, name: str, where: str) -> float:
    """A finite number."""
    value = _get(data, name, where)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _refuse(name, "a finite number", value, where)
    return float(value)


def optional(
    check: Callable[[object, str, str], T], data: Mapping[str, Any], name: str, where: str
) -> T | None:
    """A field that one of these functions checks, or None where it is null or not there."""
    return None if data.get(name) is None else check(data, name, where)


def positive(data: object, name: str, where: str) -> float:
    """A finite number above 0."""
    value = number(data, name, where)
    if value <= 0:
        raise _refuse(name, "above 0", value, where)
    return value


def boolean(data: object, name: str, where: str) -> bool:
    value = _get(data, name, where)
    if not isinstance(value, bool):
        raise _refuse(name, "true or false", value, where)
    return value


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


def sorted_names(data: object, name: str, where: str) -> tuple[str, ...]:
    """A list of distinct strings in the order of their code points."""
    values = items(data, name, where)
    if not all(isinstance(value, str) for value in values) or values != sorted(set(values)):
        raise _refuse(name, "distinct strings in the order of their code points", values, where)
    return tuple(values)


def object_(data: object, name: str, where: str) -> dict[str, Any]:
    """A JSON object of anything."""
    value = _get(data, name, where)
    if not isinstance(value, dict):
        raise _refuse(name, "a JSON object", value, where)
    return value
