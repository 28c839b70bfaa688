"""The terms of a corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, KeysView, Mapping
from functools import cached_property
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.exceptions import InputError

__all__ = ["Vocabulary", "vocabulary_of"]


class Vocabulary:
    """An immutable list of distinct terms; the position of a term is its id.

    Two vocabularies are equal when they hold the same terms in the same order. Document frequencies describe the corpus that
    a vocabulary was taken from, and play no part in equality.

    Parameters
    ----------
    terms : iterable of str, length V; or mapping of str to int
        Distinct terms in their order, or their positions, as in the ``vocabulary_`` of a CountVectorizer.
    document_frequency : array_like of int, shape (V,), optional
        Number of documents that hold each term, where known.

    Attributes
    ----------
    terms : tuple of str
        Terms by id.
    document_frequency : ndarray of int64, shape (V,), or None
        Read-only.

    Raises
    ------
    InputError
        A term is not a string or comes twice; the terms are a set, which has no order; the positions of a mapping are not 0
        to V - 1, each once; or the lengths differ.
    """

    def __init__(self, terms: Iterable[str], document_frequency: ArrayLike | None = None) -> None:
        self.terms = tuple(str(term) if isinstance(term, np.str_) else term for term in _in_order(terms))
        positions: dict[str, int] = {}
        for position, term in enumerate(self.terms):
            if not isinstance(term, str):
                raise InputError(
                    f"terms must be strings, got {term!r} at position {position}", place="vocabulary"
                )
            if positions.setdefault(term, position) != position:
                raise InputError(
                    f"terms must be distinct, {term!r} comes again at position {position}",
                    place="vocabulary",
                    remedy="remove one",
                )
        self.document_frequency: NDArray[np.int64] | None = None
        if document_frequency is not None:
            self.document_frequency = np.array(document_frequency, dtype=np.int64)
            if self.document_frequency.shape != (len(self.terms),):
                raise InputError(
                    f"must have one number for each of the {len(self.terms)} terms, got an array of shape "
                    f"{self.document_frequency.shape}",
                    parameter="document_frequency",
                    place="vocabulary",
                )
            self.document_frequency.setflags(write=False)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Id of each term."""
        return {term: position for position, term in enumerate(self.terms)}

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hexadecimal) of the number of terms as a little-endian int64, and of what :meth:`to_bytes` returns.

        The offsets, which come first, frame the terms, so that ("ab", "c") and ("a", "bc") differ.
        """
        data, offsets = self.to_bytes()
        digest = hashlib.sha256(len(self.terms).to_bytes(8, "little"))
        digest.update(offsets.astype("<i8").tobytes())
        digest.update(data.tobytes())
        return digest.hexdigest()

    def to_bytes(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The terms as UTF-8.

        Returns
        -------
        data : ndarray of uint8
            All terms, one after the other.
        offsets : ndarray of int64, shape (V + 1,)
            Term ``t`` is ``data[offsets[t]:offsets[t + 1]]``.
        """
        return encode_strings(self.terms, what="vocabulary: term")

    @classmethod
    def from_bytes(
        cls, data: NDArray[np.uint8], offsets: NDArray[np.int64], document_frequency: ArrayLike | None = None
    ) -> Vocabulary:
        """The reverse of :meth:`to_bytes`."""
        return cls(decode_strings(data, offsets), document_frequency)

    def alignment(self, other: Vocabulary) -> NDArray[np.int32]:
        """The id here of each term of another vocabulary, -1 if it is missing here; int32, shape (len(other),)."""
        if other == self:
            return np.arange(len(self), dtype=np.int32)
        index = self.index
        return np.fromiter((index.get(term, -1) for term in other.terms), dtype=np.int32, count=len(other))

    def __len__(self) -> int:
        return len(self.terms)

    def __iter__(self) -> Iterator[str]:
        return iter(self.terms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self is other or (len(self) == len(other) and self.sha256 == other.sha256)

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        shown = ", ".join(repr(term) for term in self.terms[:3])
        return f"Vocabulary({len(self)} terms: {shown}{', ...' if len(self) > 3 else ''})"

    def __sizeof__(self) -> int:
        # for Dask, which would otherwise see a few pointers
        index = 100 * len(self) if "index" in self.__dict__ else 0
        return 64 + sum(len(term) + 57 for term in self.terms) + index

    def __getstate__(self) -> dict[str, Any]:
        # the index is quicker to build than to send
        return {name: value for name, value in self.__dict__.items() if name != "index"}


def vocabulary_of(terms: Any, parameter: str = "terms") -> Vocabulary:
    """The vocabulary that a caller gives as any kind of :class:`Vocabulary`'s terms, or as a vocabulary."""
    if isinstance(terms, Vocabulary):
        return terms
    if getattr(terms, "ndim", 1) == 0:
        terms = str(terms)
    if isinstance(terms, (str, bytes)) or not isinstance(terms, Iterable):
        raise InputError(
            f"must be a list of terms, or a mapping from terms to their positions, got {terms!r:.60}",
            parameter=parameter,
        )
    return Vocabulary(terms)


def _in_order(terms: Iterable[str]) -> Iterable[str]:
    """The terms by id."""
    if isinstance(terms, (set, frozenset)):
        raise InputError(
            f"terms must have an order, got a {type(terms).__name__}",
            place="vocabulary",
            remedy="give a list, or a mapping from each term to its position",
        )
    if isinstance(terms, KeysView) and not _keep_positions(terms):
        raise InputError(
            "the keys of a mapping must come in the order of the positions it has for them",
            place="vocabulary",
            remedy=("give the mapping itself", "a list of its keys"),
        )
    if not isinstance(terms, Mapping):
        return terms.to_pylist() if hasattr(terms, "to_pylist") else terms
    placed: dict[int, str] = {}
    for term, position in terms.items():
        whole = isinstance(position, Integral) and not isinstance(position, bool)
        if not whole or not 0 <= position < len(terms) or position in placed:
            raise InputError(
                f"positions of terms must be 0 to {len(terms) - 1}, each once, got {position!r} for {term!r}",
                place="vocabulary",
            )
        placed[int(position)] = term
    return [placed[position] for position in range(len(terms))]


def _keep_positions(keys: KeysView[str]) -> bool:
    """False for the keys of a mapping to positions, as a CountVectorizer has one, in another order than theirs."""
    mapping = getattr(keys, "mapping", None)
    if mapping is None:
        return True
    positions = list(mapping.values())
    whole = all(isinstance(p, Integral) and not isinstance(p, bool) for p in positions)
    return not whole or sorted(positions) != list(range(len(positions))) or positions == sorted(positions)


def encode_strings(strings: Iterable[str], *, what: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Strings as one run of UTF-8 bytes and their offsets; errors call a string `what`."""
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
    """The reverse of :func:`encode_strings`; raise a ValueError if offsets or bytes make no sense."""
    bounds = offsets.tolist()
    if not bounds or bounds[0] != 0 or bounds[-1] != len(data) or np.any(np.diff(offsets) < 0):
        raise ValueError("offsets must rise from 0 to the number of bytes")
    raw = data.tobytes()
    return tuple(raw[a:b].decode("utf-8") for a, b in pairwise(bounds))
