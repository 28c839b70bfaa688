"""Zarr arrays of stores: written with checksums, and compared with them when they are read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from dslda.exceptions import FormatError
from dslda.storage.location import Location
from dslda.storage.typed_json import Count

if TYPE_CHECKING:
    import zarr

__all__ = [
    "DAMAGE",
    "StoredArray",
    "checksum",
    "create_array",
    "damaged",
    "entries",
    "read_arrays",
    "write_array",
]

CHUNK_BYTES = 32 * 2**20

DAMAGE = (ValueError, RuntimeError, KeyError, TypeError)
"""Errors of zarr and its codecs for bytes that are not what was written.

OSError is not one of them, since an interrupted connection can be tried again.
"""


class StoredArray(msgspec.Struct, frozen=True):
    """Entry of an array in a manifest."""

    shape: tuple[Count, ...]
    dtype: str
    checksum: str


def checksum(*arrays: NDArray[Any]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the arrays' little-endian bytes, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()[:16]


def entries(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, Any]]:
    """Entries of arrays for a manifest, as plain values."""
    return {
        name: {"shape": list(array.shape), "dtype": array.dtype.name, "checksum": checksum(array)}
        for name, array in arrays.items()
    }


def create_array(
    group: zarr.Group,
    name: str,
    *,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    chunks: tuple[int, ...],
    fill: float,
    attributes: Mapping[str, str] | None = None,
) -> Any:
    """Create an empty array in a zarr group."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        # crc32c: without it a flipped bit inside a chunk comes back as data
        compressors=[BloscCodec(cname="zstd", clevel=3, shuffle="shuffle"), Crc32cCodec()],
        fill_value=fill,
        attributes=dict(attributes or {}),
    )


def write_array(group: zarr.Group, name: str, array: NDArray[Any]) -> None:
    """Write an array that has entries, in chunks of whole rows, so that one topic can be read by itself."""
    rows = max(1, min(len(array), CHUNK_BYTES // max(array[:1].nbytes, 1)))
    target = create_array(
        group,
        name,
        shape=array.shape,
        dtype=array.dtype,
        chunks=(rows, *(max(side, 1) for side in array.shape[1:])),  # zarr refuses chunks with a side of 0
        fill=np.nan if array.dtype.kind == "f" else 0,
    )
    target[...] = array


def read_arrays(
    location: Location, described: Mapping[str, StoredArray], *, remedy: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """Read the arrays of a group that a manifest describes.

    Raises
    ------
    FormatError
        One is missing, damaged, or not as described.
    """
    from dslda.storage.bounded_chunks import MAX_CHUNKS, MAX_UNSTORED_BYTES, missing_chunk, open_array

    store = location.store(read_only=True)
    arrays: dict[str, NDArray[Any]] = {}
    n_bytes = sum(8 * math.prod(entry.shape) for entry in described.values())
    unstored = 0
    for name, entry in described.items():
        try:
            stored = open_array(store, name)
            # checked before reading, which would allocate whatever size somebody wrote there
            intact = stored.shape == entry.shape and stored.dtype.name == entry.dtype
            # a chunk is unpacked as a whole, however little of it the array needs
            intact = intact and all(map(int.__le__, stored.chunks, (max(side, 1) for side in entry.shape)))
            intact = intact and stored.nchunks <= MAX_CHUNKS
            if intact and n_bytes > MAX_UNSTORED_BYTES:
                missing = missing_chunk(location, name, stored)
                unstored += 0 if missing is None else stored.nbytes
                if unstored > MAX_UNSTORED_BYTES:
                    raise damaged(location.url, name, f"lacks its chunk {missing}", remedy)
            array = np.asarray(stored[...]) if intact else np.zeros(0)
            intact = intact and checksum(array) == entry.checksum
        except (*DAMAGE, FileNotFoundError) as error:
            raise damaged(location.url, name, "cannot be read", remedy) from error
        except MemoryError as error:
            problem = f"has the shape {list(entry.shape)}, which does not fit into memory"
            raise damaged(location.url, name, problem, remedy) from error
        if not intact:
            raise damaged(location.url, name, "does not agree with its checksum", remedy)
        arrays[name] = array
    return arrays


def damaged(url: str, name: str, problem: str, remedy: Sequence[str]) -> FormatError:
    """The error for an array that is not what was written."""
    return FormatError(f"array {name!r} {problem}, so it is damaged or incomplete", place=url, remedy=remedy)
