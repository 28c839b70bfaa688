"""Groups of arrays that appends have added to a corpus, and where a partition is among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dslda.exceptions import FormatError
from dslda.storage.json_fields import count, items, text

__all__ = ["APPENDED", "FIRST_ROW", "AppendedGroup", "Place", "appended_from_json"]

APPENDED = "appended"
"""Folder of the groups, and their field in the manifest."""
_PATH = re.compile(rf"{APPENDED}/[0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class AppendedGroup:
    """The arrays that one append has added.

    Attributes
    ----------
    path : str
        Of their group in the store, ``appended/<name>``.
    n_partitions : int
        Rows of its arrays, at least 1.
    """

    path: str
    n_partitions: int

    @classmethod
    def from_json(cls, data: object, where: str) -> AppendedGroup:
        """The reverse of :func:`dataclasses.asdict`; `where` begins the message of a FormatError."""
        group = cls(text(data, "path", where), count(data, "n_partitions", where))
        # a path that leads out of the store would have other files read
        if not _PATH.fullmatch(group.path) or group.n_partitions < 1:
            raise FormatError(
                f"{where}: path must be {APPENDED}/ and a name of letters, digits and hyphens, and n_partitions "
                f"at least 1, got {data!r:.200}"
            )
        return group


class Place(NamedTuple):
    """Where the arrays hold a partition: path of the group ("" the store itself), row, and rows in all."""

    group: str
    row: int
    n_rows: int


FIRST_ROW = Place("", 0, 1)


def appended_from_json(data: Mapping[str, Any], n_partitions: int, where: str) -> tuple[AppendedGroup, ...]:
    """The groups that a manifest names.

    Parameters
    ----------
    data : mapping
        The manifest.
    n_partitions : int
        Of the corpus.
    where : str
        Begins the message of an error.

    Raises
    ------
    FormatError
    """
    groups = tuple(
        AppendedGroup.from_json(entry, f"{where}, {APPENDED}[{i}]")
        for i, entry in enumerate(items(data, APPENDED, where))
    )
    n_appended = sum(group.n_partitions for group in groups)
    if len({group.path for group in groups}) != len(groups) or n_appended >= max(n_partitions, 1):
        raise FormatError(
            f"{where}: field {APPENDED!r} must name distinct groups of fewer than the {n_partitions} "
            f"partitions together, got {n_appended}"
        )
    return groups
