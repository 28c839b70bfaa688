"""From a block of documents to the rows of a partition, checked, and what the manifest says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.corpus.levels import are_codes
from dslda.corpus.manifest import PartitionInfo
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.vocabulary import encode_strings
from dslda.exceptions import InputError
from dslda.storage.zarr_arrays import checksum

__all__ = ["BlockColumns", "PartitionRows"]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionRows:
    """The rows of a partition.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        Values by the name of the array, without padding.
    info : PartitionInfo
    responses, covariates : tuple of ResponseSummary
    """

    arrays: Mapping[str, NDArray[Any]]
    info: PartitionInfo
    responses: tuple[ResponseSummary, ...]
    covariates: tuple[ResponseSummary, ...]


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """What every block of a corpus must have.

    Attributes
    ----------
    n_terms : int
    responses, covariates : tuple of str
        In the order of their arrays.
    n_levels : mapping of str to int
        How many codes each categorical column has.
    has_weight, has_doc_id : bool
    """

    n_terms: int
    responses: tuple[str, ...]
    covariates: tuple[str, ...]
    n_levels: Mapping[str, int]
    has_weight: bool
    has_doc_id: bool

    def rows(self, block: DocumentBlock) -> PartitionRows:
        """Check a block and take it apart.

        Raises
        ------
        InputError
            The block breaks a rule, or lacks a response, covariate, weight or identifiers.
        """
        block.validate(self.n_terms)
        columns: dict[str, NDArray[Any]] = {}
        for group, what, names, given in (
            ("response", "response", self.responses, block.responses),
            ("covariates", "covariate", self.covariates, block.covariates),
        ):
            for i, name in enumerate(names):
                values = self._column(block, given, what, name)
                _refuse(block, f"{what} {name!r} must be finite or missing", np.isinf(values))
                # NaN has many bit patterns: an all-missing chunk comes back as the fill's, and must hash the same
                columns[f"{group}/{i}"] = np.where(np.isnan(values), np.nan, values)
        responses = tuple(ResponseSummary.of(columns[f"response/{i}"]) for i in range(len(self.responses)))
        covariates = tuple(
            ResponseSummary.of(columns[f"covariates/{i}"]) for i in range(len(self.covariates))
        )
        if self.has_weight:
            if block.weight is None:
                raise InputError("the block must have weights, got none")
            weight = np.asarray(block.weight, dtype=np.float64)
            _refuse(block, "weight must be finite and not negative", ~(np.isfinite(weight) & (weight >= 0)))
            columns["weight"] = weight
        sums = {name: checksum(values) for name, values in columns.items()}
        if self.has_doc_id:
            if block.doc_id is None or len(block.doc_id) != block.n_documents:
                raise InputError(
                    f"the block must have an identifier for each of its {block.n_documents} documents"
                )
            data, offsets = encode_strings(block.doc_id, what="identifier of document")
            columns |= {"doc_id": data, "doc_id_offsets": offsets}
            sums["doc_id"] = checksum(offsets, data)
        counts: dict[str, NDArray[Any]] = {
            "indptr": np.asarray(block.indptr, dtype=np.int64),
            "terms": np.asarray(block.terms, dtype=np.int32),
            "counts": np.asarray(block.counts, dtype=np.int32),
        }
        info = PartitionInfo(
            n_documents=block.n_documents,
            nnz=len(block.terms),
            n_tokens=block.n_tokens,
            n_empty=int(np.count_nonzero(np.diff(block.indptr) == 0)),
            checksum=checksum(*counts.values()),
            column_checksums=sums,
        )
        return PartitionRows(counts | columns, info, responses, covariates)

    def _column(
        self, block: DocumentBlock, columns: Mapping[str, NDArray[np.float64]], what: str, name: str
    ) -> NDArray[np.float64]:
        if name not in columns:
            raise InputError(f"the block must have the {what} {name!r}, got {sorted(columns)}")
        values = np.asarray(columns[name], dtype=np.float64)
        n_levels = self.n_levels.get(name)
        if n_levels is not None:
            rule = f"{what} {name!r} must be a code 0..{n_levels - 1} of its levels"
            _refuse(block, rule, ~are_codes(values, n_levels))
        return values


def _refuse(block: DocumentBlock, rule: str, bad: NDArray[np.bool_]) -> None:
    if bad.any():
        first = int(np.argmax(bad))
        which = repr(block.doc_id[first]) if block.doc_id is not None else f"{first} of the partition"
        raise InputError(f"{rule}, and is not in {int(bad.sum())} documents, first in document {which}")
