"""Identifiers that several rows have, found in bounded memory by their hashes of 64 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.ingestion.counting import hashes_of
from dslda.scoring.tables import rows_of_ids
from dslda.storage.location import Location

__all__ = ["Duplicates", "find_duplicates"]

HASHES_AT_ONCE = 4_000_000
"""Held at a time, 32 MB; of more rows the hashes are gone through once for each such number."""

N_NAMED = 10


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows whose identifier another row before them has.

    Attributes
    ----------
    count : int
        Two different identifiers have the same hash by chance in one of 10^19 pairs: among a million rows one is counted
        too many with a probability of 3 in 10^8, among a thousand million with 3 in 100.
    first : tuple of str
        The first of the identifiers that are there more than once, by the alphabet of their hashes.
    """

    count: int
    first: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        return {"count": self.count, "first": list(self.first)}


def find_duplicates(
    files: Sequence[tuple[Location, Location]], output_format: str, n_rows: int
) -> Duplicates:
    """Look for them in the files of all parts, of each its rows and the hashes of their identifiers."""
    n_ranges = max(-(-n_rows // HASHES_AT_ONCE), 1)
    borders = [(i << 64) // n_ranges for i in range(n_ranges + 1)]
    n = 0
    first: list[int] = []
    for low, high in pairwise(borders):
        together = np.sort(
            np.concatenate([np.zeros(0, np.uint64), *(_between(ids, low, high) for _, ids in files)])
        )
        repeated = together[1:][together[1:] == together[:-1]]
        n += len(repeated)
        if len(first) < N_NAMED:
            first += np.unique(repeated)[: N_NAMED - len(first)].tolist()
    return Duplicates(n, _named(files, output_format, first) if first else ())


def _between(place: Location, low: int, high: int) -> NDArray[np.uint64]:
    """Of the hashes of a part, those from `low` to below `high`."""
    if place.local:
        hashes = (
            np.memmap(place.url, dtype="<u8", mode="r") if _has_content(place) else np.zeros(0, np.uint64)
        )
    else:
        fs, path = place.file_system()
        hashes = np.frombuffer(fs.cat_file(path), dtype="<u8")
    a = int(np.searchsorted(hashes, np.uint64(low)))
    b = len(hashes) if high >= 1 << 64 else int(np.searchsorted(hashes, np.uint64(high)))
    return np.array(hashes[a:b], dtype=np.uint64)


def _has_content(place: Location) -> bool:
    fs, path = place.file_system()
    return int(fs.size(path)) > 0


def _named(
    files: Sequence[tuple[Location, Location]], output_format: str, wanted: Sequence[int]
) -> tuple[str, ...]:
    """The identifiers of hashes, looked up in the parts that have them."""
    left = dict.fromkeys(wanted, "")
    for file, ids in files:
        if all(left.values()):
            break
        fs, path = ids.file_system()
        known = np.frombuffer(fs.cat_file(path), dtype="<u8")
        if not np.isin(np.array(wanted, dtype=np.uint64), known).any():
            continue
        names = rows_of_ids(file, output_format)
        for name, hashed in zip(names, hashes_of(name.encode() for name in names).tolist(), strict=True):
            if hashed in left:
                left[hashed] = name
    return tuple(left.values())
