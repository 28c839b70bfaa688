"""JSON of manifests: canonical form, checksums, and values of declared types.

:func:`parse_json` turns bytes into plain values, :func:`is_whole` compares the checksum, and :func:`decode` makes a typed
value by the annotations of a dataclass or of a `msgspec.Struct`. A wrong value raises "Expected `int`, got `str` - at
`$.units[0].rows`"; a `ValueError` of ``__post_init__`` gets its path the same way. Fields that the class lacks are ignored,
and fields without a default are required. Annotations are looked up when they are first needed, so import their names outside
of ``if TYPE_CHECKING``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from dslda.exceptions import FormatError

__all__ = [
    "MANIFEST_CHECKSUM",
    "Count",
    "Positive",
    "PositiveCount",
    "Share",
    "canonical_json",
    "check_distinct",
    "check_sorted",
    "decode",
    "is_whole",
    "json_sha256",
    "leaves",
    "parse_json",
    "with_checksum",
]

T = TypeVar("T")

# beyond 2**53 counts lose their last digit in many JSON libraries, and overflow sums of 64 bits here
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
PositiveCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]

MANIFEST_CHECKSUM = "manifest_sha256"
"""Field of a manifest that holds the checksum of all others."""
DEEPEST = 50
"""Most levels of nesting: far more than any manifest has, far fewer than Python's stack allows."""


def parse_json(raw: bytes) -> Any:
    """Parse a manifest.

    Raises
    ------
    ValueError
        It is not JSON, holds NaN, infinity or a number beyond a double, or is nested too deeply.
    """
    # not msgspec's parser, which refuses the lone surrogates that names of columns may hold
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


def decode(data: object, kind: type[T], *, place: str, remedy: str | Sequence[str] = ()) -> T:
    """Convert what :func:`parse_json` returned to type `kind`; messages name the file as `place`.

    Raises
    ------
    FormatError
        A field is missing or not valid; the reason names its path in the file.
    """
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise FormatError(str(error), place=place, remedy=remedy) from error


def check_distinct(name: str, values: Sequence[str]) -> None:
    """Raise a ValueError if a name occurs twice."""
    if len(set(values)) != len(values):
        raise ValueError(f"{name} must be distinct names, got {values!r:.60}")


def check_sorted(name: str, values: Sequence[str]) -> None:
    """Raise a ValueError unless names are distinct and in the order of their code points."""
    if list(values) != sorted(set(values)):
        raise ValueError(
            f"{name} must be distinct strings in the order of their code points, got {values!r:.60}"
        )


def canonical_json(data: Any) -> bytes:
    """JSON with sorted keys, no blanks, UTF-8: the form that is hashed."""
    written = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return written.encode("utf-8", "surrogatepass")


def json_sha256(data: Any) -> str:
    """SHA-256 (hexadecimal) of :func:`canonical_json`."""
    return hashlib.sha256(canonical_json(data)).hexdigest()


def with_checksum(data: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest that ends with its checksum, which replaces an earlier one."""
    fields = {name: value for name, value in data.items() if name != MANIFEST_CHECKSUM}
    return fields | {MANIFEST_CHECKSUM: json_sha256(fields)}


def is_whole(data: Mapping[str, Any]) -> bool:
    """Return whether a manifest has the checksum of its fields."""
    return MANIFEST_CHECKSUM in data and with_checksum(data)[MANIFEST_CHECKSUM] == data[MANIFEST_CHECKSUM]


def leaves(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of an object, by their path; an empty object is a leaf."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from leaves(value, f"{name}.{key}" if name else key)
    else:
        yield name, data
