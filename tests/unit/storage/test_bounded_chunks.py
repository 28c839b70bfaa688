"""Chunks and metadata that somebody forged: one error, in little memory, whatever they claim."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import struct
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from numcodecs import Blosc

from dslda.corpus.store import open_corpus
from dslda.model import load_model
from tests.helpers.measured import measured

# a dependency of zarr, though not of its first releases
google_crc32c = pytest.importorskip("google_crc32c")

CLAIM = 2**31 - 1
BOMB_BYTES = 3 << 28
MAX_PEAK = 500
"""MiB; half of it Python and its libraries."""
SIDES = [
    ((1 << 26, 2), (1 << 20, 2)),
    ((1 << 34, 2), (1 << 20, 2)),
    ((1 << 50, 2), (1 << 20, 2)),
    ((1 << 24, 1), (1, 1)),
]
"""Shapes, and those of chunks."""

READ_CORPUS = """
import sys
from dslda import open_corpus
from dslda.exceptions import FormatError
try:
    corpus = open_corpus(sys.argv[1])
    corpus.vocabulary
    corpus.read(0, doc_id=True)
except FormatError as error:
    sys.exit(f"refused: {error}")
"""

ARCHIVES = Path(__file__).parents[2] / "formats" / "archives" / "0.1.0"


@pytest.fixture
def corpus(tmp_path) -> Path:
    """A corpus to forge."""
    return unpacked("plain.corpus", tmp_path)


@pytest.fixture
def model(tmp_path) -> Path:
    """A model to forge."""
    return unpacked("gaussian.model", tmp_path)


def unpacked(name: str, folder: Path) -> Path:
    shutil.unpack_archive(ARCHIVES / f"{name}.zip", folder)
    return folder / name


def chunk_of(array: Path) -> Path:
    return min(path for path in (array / "c").rglob("*") if path.is_file())


def with_crc(data: bytes) -> bytes:
    return data + struct.pack("<I", google_crc32c.value(data))


@cache
def blosc_bomb() -> bytes:
    """Zeros as a chunk of a few hundred KB."""
    data: bytes = Blosc(cname="zstd", clevel=3, shuffle=1, typesize=8).encode(np.zeros(BOMB_BYTES, np.uint8))
    return data


@cache
def gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 24)
    return b"".join(packer.compress(zeros) for _ in range(BOMB_BYTES >> 24)) + packer.flush()


@cache
def zstd_bomb(*, told: bool) -> bytes:
    zeros = bytes(1 << 24)
    packer = zstandard.ZstdCompressor().compressobj(size=BOMB_BYTES if told else -1)
    return b"".join(packer.compress(zeros) for _ in range(BOMB_BYTES >> 24)) + packer.flush()


def unpack_to_more(array: Path) -> None:
    chunk_of(array).write_bytes(with_crc(blosc_bomb()))


def claim_more(array: Path) -> None:
    chunk = chunk_of(array)
    data = bytearray(chunk.read_bytes()[:-4])
    data[4:8] = struct.pack("<I", CLAIM)
    chunk.write_bytes(with_crc(bytes(data)))


def claim_a_longer_chunk(array: Path) -> None:
    chunk = chunk_of(array)
    data = bytearray(chunk.read_bytes()[:-4])
    data[12:16] = struct.pack("<I", CLAIM)
    chunk.write_bytes(with_crc(bytes(data)))


def cut_the_header(array: Path) -> None:
    chunk = chunk_of(array)
    chunk.write_bytes(with_crc(chunk.read_bytes()[:7]))


def edit(array: Path, **changes: Any) -> None:
    metadata = json.loads((array / "zarr.json").read_text())
    (array / "zarr.json").write_text(json.dumps(metadata | changes))


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 5}}
ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}


def packed_by(codec: dict[str, Any], data: Callable[[], bytes]) -> Callable[[Path], None]:
    def forge(array: Path) -> None:
        edit(array, codecs=[BYTES, codec])
        chunk_of(array).write_bytes(data())

    return forge


def pack_twice(array: Path) -> None:
    edit(array, codecs=[BYTES, GZIP, GZIP])
    chunk_of(array).write_bytes(gzip.compress(gzip_bomb()))


def shard(array: Path) -> None:
    metadata = json.loads((array / "zarr.json").read_text())
    chunks = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    inner = {"chunk_shape": chunks, "codecs": [BYTES], "index_codecs": [BYTES]}
    edit(array, codecs=[{"name": "sharding_indexed", "configuration": inner}])


def hold_strings(array: Path) -> None:
    edit(array, data_type="string", fill_value="", codecs=[{"name": "vlen-utf8"}])


def have_large_chunks(array: Path) -> None:
    metadata = json.loads((array / "zarr.json").read_text())
    width = np.dtype(metadata["data_type"]).itemsize
    shape = [*metadata["shape"][:-1], BOMB_BYTES // width]
    grid = {"name": "regular", "configuration": {"chunk_shape": shape}}
    edit(array, shape=shape, chunk_grid=grid)
    unpack_to_more(array)


def have_an_absurd_shape(array: Path) -> None:
    metadata = json.loads((array / "zarr.json").read_text())
    edit(array, shape=[*metadata["shape"][:-1], 2**50])


of_linux = pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux counts it")


@pytest.mark.slow
@of_linux
@pytest.mark.parametrize(
    ("array", "forge"),
    [
        *(("terms", forge) for forge in (unpack_to_more, claim_more, packed_by(GZIP, gzip_bomb))),
        *(("doc_id", forge) for forge in (have_large_chunks, packed_by(ZSTD, lambda: zstd_bomb(told=True)))),
        *(("vocabulary", forge) for forge in (have_large_chunks, shard, hold_strings)),
    ],
)
def test_a_forged_array_of_a_corpus_is_one_error_in_little_memory(corpus, array, forge):
    forge(corpus / array)
    run = measured("-c", READ_CORPUS, str(corpus))
    assert (run.code, run.stderr.count("\n")) == (1, 1), run.stderr
    assert run.stderr.startswith("refused: ")
    assert f"array {array} " in run.stderr
    assert run.peak < MAX_PEAK


@pytest.mark.slow
@of_linux
@pytest.mark.parametrize(
    ("array", "forge"),
    [
        *(("topics", forge) for forge in (unpack_to_more, claim_a_longer_chunk, cut_the_header, pack_twice)),
        *(("topics", forge) for forge in (have_large_chunks, have_an_absurd_shape)),
        ("vocabulary", packed_by(ZSTD, lambda: zstd_bomb(told=False))),
    ],
)
def test_a_forged_array_of_a_model_is_one_line_of_the_command_in_little_memory(model, array, forge):
    forge(model / array)
    run = measured("-m", "dslda", "topics", str(model))
    assert (run.code, run.stderr.count("\n")) == (2, 1), run.stderr
    assert f"array '{array}'" in run.stderr
    assert run.peak < MAX_PEAK


@pytest.mark.slow
@of_linux
@pytest.mark.parametrize(("shape", "chunks"), SIDES, ids=["1 GiB", "256 GiB", "absurd", "many chunks"])
def test_an_array_whose_chunks_are_not_stored_takes_no_memory(model, shape, chunks):
    """Manifest and metadata agree on a matrix, of which nothing is stored."""
    array = model / "topics"
    edit(array, shape=shape, chunk_grid={"name": "regular", "configuration": {"chunk_shape": chunks}})
    shutil.rmtree(array / "c")
    metadata = json.loads((model / "zarr.json").read_text())
    attributes = metadata["attributes"]
    attributes["arrays"]["topics"]["shape"] = shape
    agree(attributes)
    (model / "zarr.json").write_text(json.dumps(metadata))
    run = measured("-m", "dslda", "info", str(model))
    assert (run.code, run.stderr.count("\n")) == (2, 1), run.stderr
    assert "array 'topics'" in run.stderr
    assert run.peak < MAX_PEAK


def agree(attributes: dict[str, Any]) -> None:
    """Make the checksum of a manifest right, as somebody would who forges one."""
    attributes.pop("manifest_sha256")
    canonical = json.dumps(attributes, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    attributes["manifest_sha256"] = hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.slow
@of_linux
def test_a_row_whose_chunks_are_not_stored_takes_no_memory(corpus):
    """Manifest and metadata agree on a partition of 2 GiB, of which nothing is stored."""
    length = 1 << 28
    metadata = json.loads((corpus / "zarr.json").read_text())
    attributes = metadata["attributes"]
    first = attributes["partitions"][0]
    for name in ("nnz", "n_tokens"):
        attributes[name] += length - first[name]
        first[name] = length
    agree(attributes)
    (corpus / "zarr.json").write_text(json.dumps(metadata))
    array = corpus / "terms"
    grid = {"name": "regular", "configuration": {"chunk_shape": [1, length]}}
    edit(array, shape=[2, length], chunk_grid=grid)
    shutil.rmtree(array / "c")
    run = measured("-c", READ_CORPUS, str(corpus))
    assert (run.code, run.stderr.count("\n")) == (1, 1), run.stderr
    assert "terms/c/0/0 is missing" in run.stderr
    assert run.peak < MAX_PEAK


@pytest.mark.parametrize(
    ("codec", "pack"),
    [(GZIP, gzip.compress), (ZSTD, zstandard.ZstdCompressor().compress), (None, bytes)],
    ids=["gzip", "zstd", "none"],
)
def test_other_compressions_of_the_true_values_are_read(corpus, model, codec, pack):
    for array, values in (
        (corpus / "document_frequency", open_corpus(corpus).vocabulary.document_frequency),
        (model / "topics", load_model(model).topic_word.astype("<f8")),
    ):
        edit(array, codecs=[BYTES] if codec is None else [BYTES, codec])
        chunk_of(array).write_bytes(pack(np.ascontiguousarray(values).tobytes()))
    assert open_corpus(corpus).vocabulary == load_model(model).vocabulary
