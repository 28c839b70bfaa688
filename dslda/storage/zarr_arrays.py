"""The arrays of a model or checkpoint: how they are written, and read with their checksums compared."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dslda.exceptions import FormatError
from dslda.storage.location import Location
from dslda.storage.typed_json import Count

if TYPE_CHECKING:
    from zarr.abc.store import Store

__all__ = ["StoredArray", "checksum", "damaged", "entries", "read_arrays", "write_array"]

CHUNK_BYTES = 32 * 2**20

# What zarr and its codecs raise for bytes that are not what was written. OSError is left alone, so that an
# interrupted connection stays what it is and can be tried again.
DAMAGE = (ValueError, RuntimeError, KeyError, TypeError)

REMEDY = {"model": "copy it again or train again", "checkpoint": "copy it again, or train from the beginning"}


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


def write_array(store: Store, name: str, array: NDArray[Any]) -> None:
    """Write an array without a side of 0."""
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec

    # whole rows a chunk, so that one topic can be read alone; a chunk may not have a side of 0
    width = max(array[:1].nbytes, 1)
    rows = max(1, min(len(array), CHUNK_BYTES // width))
    target = zarr.create_array(
        store,
        name=name,
        shape=array.shape,
        dtype=array.dtype,
        chunks=(rows, *(max(side, 1) for side in array.shape[1:])),
        compressors=[BloscCodec(cname="zstd", clevel=3, shuffle="shuffle"), Crc32cCodec()],
        fill_value=np.nan if array.dtype.kind == "f" else 0,
        zarr_format=3,
    )
    target[...] = array


def read_arrays(
    location: Location, described: Mapping[str, StoredArray], *, what: str
) -> dict[str, NDArray[Any]]:
    """Read the arrays that a manifest describes.

    Parameters
    ----------
    location : Location
        Of the group that holds them.
    described : mapping of str to StoredArray
    what : {"model", "checkpoint"}

    Raises
    ------
    FormatError
        One is missing, damaged, or not as described.
    """
    import zarr

    store = location.store(read_only=True)
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in described.items():
        try:
            stored = zarr.open_array(store, path=name, mode="r", zarr_format=3)
            # before it is read: a size that somebody wrote there would be allocated
            intact = stored.shape == entry.shape and stored.dtype.name == entry.dtype
            array = np.asarray(stored[...]) if intact else np.zeros(0)
            intact = intact and checksum(array) == entry.checksum
        except (*DAMAGE, FileNotFoundError) as error:
            raise damaged(location.url, name, "cannot be read", what=what) from error
        except MemoryError as error:
            raise FormatError(
                f"{location.url}: array {name!r} says that its shape is {list(entry.shape)}, which does not fit into "
                f"memory; if the {what} is not that large, it was damaged or edited: copy it again"
            ) from error
        if not intact:
            raise damaged(location.url, name, "does not agree with its checksum", what=what)
        arrays[name] = array
    return arrays


def damaged(path: str, name: str, how: str, *, what: str = "model") -> FormatError:
    """The error of an array that is not what was written."""
    return FormatError(f"{path}: array {name!r} {how}, the {what} is damaged or incomplete; {REMEDY[what]}")
