"""Fingerprints of the documents of a fit."""

from __future__ import annotations

import hashlib

import numpy as np

from dslda.corpus.block import DocumentBlock
from dslda.engine.data.fit_source import FitSource, FutureSource
from dslda.storage.typed_json import json_sha256
from dslda.storage.zarr_arrays import checksum

__all__ = ["data_hash", "selection_hash"]


def data_hash(source: FitSource) -> str:
    """SHA-256 of the documents of a source without a stored corpus, and of the columns in its design.

    Workers hash the blocks of a bag that they hold.
    """
    if isinstance(source, FutureSource):
        client = source.futures[0].client
        parts = client.gather(client.map(_block_hash, source.futures, pure=False))
    else:
        parts = [_block_hash(source.reader(i)()) for i in range(source.n_partitions)]
    return json_sha256({"n_terms": source.n_terms, "partitions": parts})


def selection_hash(source: FitSource) -> str:
    """SHA-256 of the mask of the documents that are trained on."""
    digest = hashlib.sha256()
    for i, n_documents in enumerate(source.n_documents):
        kept = source.view(i).kept
        bits = np.packbits(np.ones(n_documents, dtype=np.uint8)) if kept is None else kept
        digest.update(bits.tobytes())
    return digest.hexdigest()


def _block_hash(block: DocumentBlock) -> list[list[str]]:
    columns = {f"response/{name}": values for name, values in block.responses.items()}
    columns |= {f"covariates/{name}": values for name, values in block.covariates.items()}
    if block.weight is not None:
        columns["weight"] = block.weight
    return [
        ["counts", checksum(block.indptr, block.terms, block.counts)],
        *([name, checksum(columns[name])] for name in sorted(columns)),
    ]
