"""The terms a corpus is counted over."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.exceptions import InputError

__all__ = ["Vocabulary"]


class Vocabulary:
    """An immutable list of distinct terms; the position of a term is its id.

    Two vocabularies are equal when they hold the same terms in the same order. Document frequencies tell of
    the corpus a vocabulary was taken from and play no part in that.

    Parameters
    ----------
    terms : iterable of str, length V
        Distinct terms.
    document_frequency : array_like of int, shape (V,), optional
        Number of documents that hold each term, where known.

    Raises
    ------
    InputError
        A term is not a string, cannot be written as UTF-8, or comes twice; or the lengths differ.
    """

    __slots__ = ("_document_frequency", "_index", "_sha256", "_terms")

    _terms: tuple[str, ...]
    _document_frequency: NDArray[np.int64] | None
    _index: dict[str, int] | None
    _sha256: str | None

    def __init__(self, terms: Iterable[str], document_frequency: ArrayLike | None = None) -> None:
        self._terms = tuple(terms)
        self._index = None
        self._sha256 = None
        for position, term in enumerate(self._terms):
            if not isinstance(term, str):
                raise InputError(
                    f"terms must be strings, got {term!r} at position {position}", place="vocabulary"
                )
        if len(set(self._terms)) != len(self._terms):
            self._refuse_repeated_term()
        self._document_frequency = None
        if document_frequency is not None:
            frequency = np.array(document_frequency, dtype=np.int64)
            if frequency.shape != (len(self._terms),):
                raise InputError(
                    f"must have one number for each of the {len(self._terms)} terms, got an array of shape "
                    f"{frequency.shape}",
                    parameter="document_frequency",
                    place="vocabulary",
                )
            frequency.setflags(write=False)
            self._document_frequency = frequency

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms, by id."""
        return self._terms

    @property
    def document_frequency(self) -> NDArray[np.int64] | None:
        """Number of documents that hold each term, shape (V,), read-only; None where not known."""
        return self._document_frequency

    @property
    def index(self) -> Mapping[str, int]:
        """Id of each term."""
        if self._index is None:
            self._index = {term: position for position, term in enumerate(self._terms)}
        return self._index

    @property
    def sha256(self) -> str:
        """SHA-256 (hexadecimal) of the number of terms, their offsets and their UTF-8 bytes.

        The offsets frame the terms, so that ("ab", "c") and ("a", "bc") differ. It is the hash of what
        :meth:`to_bytes` returns, with the number of terms as a little-endian int64 in front.
        """
        if self._sha256 is None:
            data, offsets = self.to_bytes()
            digest = hashlib.sha256(len(self._terms).to_bytes(8, "little"))
            digest.update(offsets.astype("<i8").tobytes())
            digest.update(data.tobytes())
            self._sha256 = digest.hexdigest()
        return self._sha256

    def to_bytes(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The terms as UTF-8.

        Returns
        -------
        data : ndarray of uint8
            All terms, one after the other.
        offsets : ndarray of int64, shape (V + 1,)
            Term ``t`` is ``data[offsets[t]:offsets[t + 1]]``.
        """
        return encode_strings(self._terms, what="vocabulary: term")

    @classmethod
    def from_bytes(
        cls, data: NDArray[np.uint8], offsets: NDArray[np.int64], document_frequency: ArrayLike | None = None
    ) -> Vocabulary:
        """The reverse of :meth:`to_bytes`."""
        return cls(decode_strings(data, offsets), document_frequency)

    def alignment(self, other: Vocabulary) -> NDArray[np.int32]:
        """Ids in this vocabulary of the terms of another one.

        Parameters
        ----------
        other : Vocabulary
            Of V' terms.

        Returns
        -------
        ndarray of int32, shape (V',)
            ``alignment[t]`` is our id of the other's term ``t``, -1 where we do not have it.
        """
        if other == self:
            return np.arange(len(self), dtype=np.int32)
        index = self.index
        return np.fromiter((index.get(term, -1) for term in other._terms), dtype=np.int32, count=len(other))

    def __len__(self) -> int:
        return len(self._terms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self is other or (len(self) == len(other) and self.sha256 == other.sha256)

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        shown = ", ".join(repr(term) for term in self._terms[:3])
        return f"Vocabulary({len(self)} terms: {shown}{', ...' if len(self) > 3 else ''})"

    def __sizeof__(self) -> int:
        # for Dask, which would otherwise see a few pointers
        return (
            64 + sum(len(term) + 57 for term in self._terms) + (0 if self._index is None else 100 * len(self))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # the index is quicker to build than to send
        return _restore, (self._terms, self._document_frequency, self._sha256)

    def _refuse_repeated_term(self) -> None:
        seen: set[str] = set()
        for position, term in enumerate(self._terms):
            if term in seen:
                raise InputError(
                    f"terms must be distinct, {term!r} comes again at position {position}",
                    place="vocabulary",
                    remedy="remove one",
                )
            seen.add(term)


def encode_strings(strings: Iterable[str], *, what: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Strings as one run of UTF-8 bytes and their offsets; `what` names one of them in the error."""
    parts: list[bytes] = []
    for position, string in enumerate(strings):
        try:
            parts.append(string.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InputError(
                f"{what} {position} must be text that UTF-8 can hold, got {string!r}: {error.reason}"
            ) from error
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)), out=offsets[1:])
    return np.frombuffer(b"".join(parts), dtype=np.uint8), offsets


def decode_strings(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> tuple[str, ...]:
    """The reverse of :func:`encode_strings`; ValueError when offsets or bytes make no sense."""
    bounds = offsets.tolist()
    if not bounds or bounds[0] != 0 or bounds[-1] != len(data) or np.any(np.diff(offsets) < 0):
        raise ValueError("offsets must rise from 0 to the number of bytes")
    raw = data.tobytes()
    return tuple(raw[a:b].decode("utf-8") for a, b in pairwise(bounds))


def _restore(
    terms: tuple[str, ...], document_frequency: NDArray[np.int64] | None, sha256: str | None
) -> Vocabulary:
    """Unpickle without checking again what was checked when the vocabulary was made."""
    vocabulary = object.__new__(Vocabulary)
    vocabulary._terms = terms
    vocabulary._document_frequency = document_frequency
    vocabulary._index = None
    vocabulary._sha256 = sha256
    return vocabulary
