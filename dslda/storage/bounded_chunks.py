"""Zarr arrays that others may have written: no chunk is unpacked to more bytes than its array says."""

from __future__ import annotations

import gzip
import io
import math
import struct
from itertools import product
from typing import TYPE_CHECKING, Any

import zstandard
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.storage import WrapperStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr.abc.store import ByteRequest, Store
    from zarr.core.buffer import Buffer, BufferPrototype

    from dslda.storage.location import Location

__all__ = ["MAX_CHUNKS", "MAX_UNSTORED_BYTES", "missing_chunk", "open_array"]

SAME_SIZE = (BytesCodec, TransposeCodec, Crc32cCodec)
"""Codecs that unpack nothing."""
CRC_BYTES = 4
BLOSC_HEADER = struct.Struct("<4xIII")
"""Sizes of the data, of a block and of the chunk, after versions and flags."""
READ_BYTES = 1 << 20
ZSTD_WINDOW = 1 << 27

MAX_CHUNKS = 1 << 16
"""Chunks to read at once: zarr lists them all first."""
MAX_UNSTORED_BYTES = 256 << 20
"""Arrays of more bytes must have all their chunks: a missing one costs no disk, but its fill values cost memory."""


def open_array(store: Store, path: str) -> Any:
    """Open an array for reading; reading raises a ValueError where a chunk is not of the size that its array has.

    Raises
    ------
    FileNotFoundError
        There is no array.
    ValueError, KeyError, TypeError
        Its metadata is damaged, or it has codecs whose chunks cannot be bounded.
    """
    import zarr

    chunks = _BoundedChunks(store)
    array = zarr.open_array(chunks, path=path, mode="r", zarr_format=3)
    chunks.expect(array)
    return array


def missing_chunk(location: Location, path: str, array: Any, row: int | None = None) -> str | None:
    """The first chunk of an array, or of a row of chunks, that is not stored."""
    grid = [math.ceil(side / chunk) for side, chunk in zip(array.shape, array.chunks, strict=True)]
    ranges = [range(n) for n in grid] if row is None else [range(row, row + 1), *map(range, grid[1:])]
    keys = (f"{path}/{array.metadata.encode_chunk_key(place)}" for place in product(*ranges))
    return next((key for key in keys if not location.holds(key)), None)


class _BoundedChunks(WrapperStore[Any]):
    """Gives out a chunk after it has looked how many bytes it unpacks to."""

    _chunk_bytes = 0
    _has_crc = False
    _check: Callable[[Any, int], None] | None = None

    def expect(self, array: Any) -> None:
        """Check the array's kind of values and codecs, and take the size of its chunks."""
        if array.dtype.kind not in "iuf":
            raise ValueError(f"it must hold numbers, got {array.dtype}")
        codecs = array.metadata.codecs
        packers = [codec for codec in codecs if not isinstance(codec, SAME_SIZE)]
        unknown = [codec for codec in packers if type(codec) not in CHECKS]
        # each layer could multiply what the one below it holds
        if unknown or len(packers) > 1:
            names = ", ".join(type(codec).__name__ for codec in unknown or packers)
            raise ValueError(f"it must be compressed by one of blosc, gzip and zstd, got {names}")
        self._chunk_bytes = math.prod(array.chunks) * array.dtype.itemsize
        self._has_crc = isinstance(codecs[-1], Crc32cCodec)
        self._check = CHECKS[type(packers[0])] if packers else None

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        buffer: Buffer | None = await self._store.get(key, prototype, byte_range)
        # there is no check yet for metadata
        if buffer is not None and self._check is not None:
            data = buffer.as_numpy_array().data
            self._check(data[:-CRC_BYTES] if self._has_crc else data, self._chunk_bytes)
        return buffer


def _check_blosc(data: memoryview, expected: int) -> None:
    """Compare the sizes in the header, which Blosc believes, with those of the chunk."""
    if len(data) < BLOSC_HEADER.size:
        raise ValueError("a chunk is cut short")
    unpacked, _, packed = BLOSC_HEADER.unpack_from(data)
    if packed != len(data):
        raise ValueError(f"a chunk must say that it takes {len(data):,} bytes, got {packed:,}")
    if unpacked != expected:
        raise _wrong_size(expected, f"{unpacked:,}")


def _check_gzip(data: memoryview, expected: int) -> None:
    _check_stream(gzip.GzipFile(fileobj=io.BytesIO(data)), expected)


def _check_zstd(data: memoryview, expected: int) -> None:
    # the reader of zarr allocates what the first frame claims; -1 claims nothing
    claimed = zstandard.frame_content_size(data)
    if claimed not in (-1, expected):
        raise _wrong_size(expected, f"{claimed:,}")
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    _check_stream(decompressor.stream_reader(data, read_across_frames=True), expected)


def _check_stream(stream: Any, expected: int) -> None:
    """Unpack piece by piece, and keep nothing."""
    n_bytes = 0
    try:
        while n_bytes <= expected and (piece := stream.read(READ_BYTES)):
            n_bytes += len(piece)
    except (OSError, EOFError, zstandard.ZstdError) as error:
        raise ValueError(f"a chunk cannot be unpacked: {error}") from error
    if n_bytes != expected:
        raise _wrong_size(expected, "more" if n_bytes > expected else f"{n_bytes:,}")


def _wrong_size(expected: int, got: str) -> ValueError:
    return ValueError(f"a chunk must unpack to {expected:,} bytes, got {got}")


CHECKS: dict[type, Callable[[memoryview, int], None]] = {
    BloscCodec: _check_blosc,
    GzipCodec: _check_gzip,
    ZstdCodec: _check_zstd,
}
