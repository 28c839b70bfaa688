"""Files that tests write, and what a folder holds."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

__all__ = ["COMPRESS", "TOPIC_WORDS", "contents", "json_lines", "topic_records", "write_records"]

TOPIC_WORDS = [[f"{topic}{i}" for i in range(12)] for topic in "abc"]

COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
"""What makes a file of each ending that is read compressed."""


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of all files beneath a folder, by their paths in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def json_lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    """One JSON object a line."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    """Write records as CSV or JSON lines, compressed or not, by the ending; return the path."""
    if path.suffix == ".csv":
        rows = list(records)
        with path.open("w", newline="", encoding="utf-8") as stream:
            table = csv.DictWriter(stream, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    else:
        lines = json_lines(records)
        path.write_bytes(gzip.compress(lines, 1, mtime=0) if path.suffix == ".gz" else lines)
    return path


def topic_records(
    n: int, *, seed: int, weights: tuple[float, ...] = (1.0, 1.0, 1.0)
) -> Iterator[dict[str, Any]]:
    """Texts of three topics, with a number `y` and a class `c` that follow from them."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        theta = rng.dirichlet(weights)
        words = [TOPIC_WORDS[k][rng.integers(12)] for k in rng.choice(3, 40, p=theta)]
        y = float(theta @ [0.0, 5.0, 10.0] + rng.normal())
        yield {"text": " ".join(words), "y": y, "c": "xyz"[int(theta.argmax())]}
