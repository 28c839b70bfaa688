"""Pass one of ingestion: a chunk of records becomes counts over the terms that occur in it."""

from __future__ import annotations

import hashlib
import math
import numbers
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dslda.corpus.block import MAX_COUNT
from dslda.corpus.levels import check_number, encodable, level_name, named_value
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import Analyzer
from dslda.exceptions import InputError
from dslda.inputs.fields import Fields, Record, field_value, is_missing, plain_value
from dslda.inputs.formats import Piece

__all__ = [
    "ChunkSummary",
    "CountedChunk",
    "count_chunk",
    "hashes_of",
    "id_hashes",
    "identifier_value",
    "merge_id_hashes",
    "number_value",
]

UNKNOWN_NUMBER = "leave it empty where it is not known"

DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+")
MARKS = re.compile(r"(?<=\d)[\s'\u2019](?=\d{3}(?!\d))|[_%$\u00a2-\u00a5\u20a0-\u20bf]")
"""Blanks and apostrophes that part thousands, and signs that people write beside numbers."""
PLAIN_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
COMMAS_OF_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?")


class ChunkSummary(NamedTuple):
    """Facts about a chunk that the driver needs at once. Categorical responses have codes of the chunk, so only their
    `n` and `missing` are of use."""

    n_documents: int
    n_missing_text: int
    responses: Mapping[str, ResponseSummary]


@dataclass(frozen=True, slots=True, eq=False)
class CountedChunk:
    """Documents of a chunk counted over the chunk's own terms.

    Attributes
    ----------
    words : pyarrow array of large_string, length W
        The distinct terms of the chunk, in order of appearance.
    indptr : ndarray of int64, shape (n_documents + 1,)
    terms : ndarray of int32, shape (nnz,)
        Positions in `words`.
    counts : ndarray of int32, shape (nnz,)
    responses, covariates : mapping of str to ndarray of float64, shape (n_documents,)
        Numbers, or positions in `levels`; NaN where missing.
    levels : mapping of str to pyarrow array of large_string
        The distinct names of each categorical column in the chunk, in order of appearance.
    weight : ndarray of float64, shape (n_documents,), or None
    doc_id : tuple of (str or None), or None
        None without a field of identifiers; an item is None if its document has none.
    n_missing_text : int
        Documents whose text is null; they count as empty.
    """

    words: Any
    indptr: NDArray[np.int64]
    terms: NDArray[np.int32]
    counts: NDArray[np.int32]
    responses: Mapping[str, NDArray[np.float64]]
    covariates: Mapping[str, NDArray[np.float64]]
    levels: Mapping[str, Any]
    weight: NDArray[np.float64] | None
    doc_id: tuple[str | None, ...] | None
    n_missing_text: int

    @property
    def n_documents(self) -> int:
        return len(self.indptr) - 1

    def __sizeof__(self) -> int:
        # Dask decides by it what to spill
        arrays = [self.words, self.indptr, self.terms, self.counts, *self.levels.values()]
        arrays += [*self.responses.values(), *self.covariates.values()]
        weight = 0 if self.weight is None else self.weight.nbytes
        ids = sum(56 + len(name or "") for name in self.doc_id or ())
        return sum(int(array.nbytes) for array in arrays) + weight + ids + 512

    def summary(self) -> ChunkSummary:
        responses = {name: ResponseSummary.of(values) for name, values in self.responses.items()}
        return ChunkSummary(self.n_documents, self.n_missing_text, responses)


def count_chunk(sources: Sequence[Piece], fields: Fields, analyzer: Analyzer) -> CountedChunk:
    """Read and count a chunk: its sources one after the other, a record at a time. Memory holds the counts only.

    Raises
    ------
    InputError
        The input cannot be read, or a record breaks a rule; the error names file, line and field.
    """
    if fields.text is not None:
        analyzer.ready()
    counts = _Counts(fields, analyzer)
    for source in sources:
        for number, record in source.records(fields):
            try:
                counts.add(record)
            except InputError as error:
                raise error.at(source.place(number)) from None
    indptr = np.zeros(len(counts.lengths) + 1, dtype=np.int64)
    np.cumsum(np.frombuffer(counts.lengths, dtype=np.int64), out=indptr[1:])
    return CountedChunk(
        words=pa.array(list(counts.words), type=pa.large_string()),
        indptr=indptr,
        terms=np.frombuffer(counts.terms, dtype=np.int32),
        counts=np.frombuffer(counts.counts, dtype=np.int32),
        responses={name: np.frombuffer(values) for name, values in counts.responses.items()},
        covariates={name: np.frombuffer(values) for name, values in counts.covariates.items()},
        levels={name: pa.array(list(codes), pa.large_string()) for name, codes in counts.codes.items()},
        weight=None if fields.weight is None else np.frombuffer(counts.weight),
        doc_id=None if fields.id is None else tuple(counts.ids),
        n_missing_text=counts.n_missing_text,
    )


def hashes_of(values: Iterable[bytes]) -> NDArray[np.uint64]:
    """A hash of 8 bytes for each value, in order."""
    digests = b"".join(hashlib.blake2b(value, digest_size=8).digest() for value in values)
    return np.frombuffer(digests, dtype=np.uint64)


def id_hashes(chunk: CountedChunk) -> tuple[NDArray[np.uint64], int]:
    """Sorted distinct hashes of the identifiers, and how many documents repeat one."""
    ids = [name.encode() for name in chunk.doc_id or () if name is not None]
    distinct = np.unique(hashes_of(ids))
    return distinct, len(ids) - len(distinct)


def merge_id_hashes(*parts: tuple[NDArray[np.uint64], int]) -> tuple[NDArray[np.uint64], int]:
    """The same for the documents of all `parts`."""
    together = np.concatenate([hashes for hashes, _ in parts])
    distinct = np.unique(together)
    return distinct, sum(repeated for _, repeated in parts) + len(together) - len(distinct)


class _Counts:
    """Grows the compressed rows of a chunk, numbering its terms as they come, and the columns of its documents."""

    def __init__(self, fields: Fields, analyzer: Analyzer) -> None:
        self.fields = fields
        self._analyze = analyzer
        self.words: dict[str, int] = {}
        self.terms = array("i")
        self.counts = array("i")
        self.lengths = array("q")
        self.responses = {name: array("d") for name in fields.responses}
        self.covariates = {name: array("d") for name in fields.covariates}
        self.codes: dict[str, dict[str, int]] = {name: {} for name in fields.categorical}
        self.weight = array("d")
        self.ids: list[str | None] = []
        self.n_missing_text = 0

    def add(self, record: Record) -> None:
        self._count(record)
        fields = self.fields
        for name, values in self.responses.items():
            values.append(self._value(record.get(name), name, f"response {name!r}"))
        for name, values in self.covariates.items():
            values.append(self._value(record.get(name), name, f"covariate {name!r}"))
        if fields.weight is not None:
            label = f"weight {fields.weight!r}"
            weight = number_value(field_value(record, fields.weight, "weight"), label)
            if math.isnan(weight):
                raise InputError(
                    f"{label} must be a number for every document, got none",
                    remedy="fill it in (0 leaves the document out)",
                )
            if weight < 0:
                raise InputError(f"{label} must not be negative, got {weight:g}")
            self.weight.append(weight)
        if fields.id is not None:
            self.ids.append(identifier_value(record.get(fields.id), fields.id))

    def _count(self, record: Record) -> None:
        document = self.fields.document(record)
        if document is None:  # counts as empty
            self.n_missing_text += 1
            document = "" if self.fields.text is not None else ((), ())
        elif isinstance(document, str):
            document = encodable(document)
        else:
            terms, counts = document
            document = [encodable(term) if isinstance(term, str) else term for term in terms], counts
        counted = self._analyze(document)
        words = self.words
        for word in counted:
            if word not in words:
                words[word] = len(words)
        self.terms.extend(map(words.__getitem__, counted))
        try:
            self.counts.extend(counted.values())
        except OverflowError:
            raise InputError(f"a count must be at most {MAX_COUNT}, got {max(counted.values())}") from None
        self.lengths.append(len(counted))

    def _value(self, value: Any, name: str, label: str) -> float:
        """The number of a response or covariate, or the code of its name; NaN where it is missing."""
        codes = self.codes.get(name)
        if codes is None:
            return number_value(value, label, categorical=name)
        level = level_name(value, label)
        if level is None:
            return math.nan
        code = codes.setdefault(level, len(codes))
        check_number(len(codes), name)
        return code


def identifier_value(value: Any, name: str) -> str | None:
    """The identifier in the field `name`, None where it is missing.

    A string or UTF-8 is its own identifier; a number has the name that JSON writes. ``{"$oid": "..."}`` is that of MongoDB.
    """
    if isinstance(value, Mapping) and list(value) == ["$oid"]:
        value = value["$oid"]
    value = named_value(value)
    if isinstance(value, str):
        return encodable(value) or None
    if is_missing(value):
        return None
    label = f"identifier {name.strip(chr(0))!r}"
    if isinstance(value, (numbers.Real, Decimal, np.bool_)) and not isinstance(value, np.timedelta64):
        return level_name(value, label)
    if hasattr(value, "__len__") or hasattr(value, "__iter__"):
        raise InputError(
            f"{label} must be a string or a number, got {value!r:.60}", remedy="write it as a string"
        )
    return encodable(str(value))


def number_value(value: Any, label: str, *, categorical: str | None = None) -> float:
    """The value as a float, NaN where it is missing; `categorical` is the field if it may hold names."""
    value = plain_value(value)
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        return math.nan
    # float() takes "1_000", which no file means as a number, and drops the imaginary part of numpy's complex numbers
    is_number = isinstance(value, (numbers.Real, Decimal, np.bool_))
    if not is_number and not (isinstance(value, str) and "_" not in value):
        raise _not_a_number(value, label, categorical)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (ValueError, TypeError):
        raise _not_a_number(value, label, categorical) from None
    if not math.isfinite(number * number) and not math.isnan(number):
        raise InputError(
            f"{label} must be finite, with a finite square, got {value!r:.60}",
            remedy=UNKNOWN_NUMBER,
        )
    return number


def _not_a_number(value: object, label: str, categorical: str | None) -> InputError:
    cell = value.strip() if isinstance(value, str) else ""
    decimal, thousands = DECIMAL_COMMA.fullmatch(cell), COMMAS_OF_THOUSANDS.fullmatch(cell)
    if decimal or thousands:
        ways = []
        if decimal:
            ways.append((f"write {cell.replace(',', '.')}", "decimal=','"))
        if thousands:
            ways.append((f"write {cell.replace(',', '')} if commas part thousands", "thousands=','"))
        options = " or ".join(option for _, option in ways)
        return InputError(
            f"{label} must be a number, with a decimal point and not a comma, got {value!r:.60}",
            remedy=(
                *(way for way, _ in ways),
                f"convert the file with pandas.read_csv(OLD, {options}).to_csv(NEW, index=False)",
            ),
        )
    if (bare := _bare_number(cell)) is not None:
        return InputError(f"{label} must be a number, got {value!r:.60}", remedy=f"write {bare}")
    # a weight may not be missing
    remedy = [] if categorical is None else [UNKNOWN_NUMBER]
    if categorical is not None and isinstance(value, str):
        remedy.append(f"if {categorical!r} holds names of classes, name it with {{categorical=}}")
    return InputError(f"{label} must be a number, got {value!r:.60}", remedy=remedy)


def _bare_number(cell: str) -> str | None:
    """The number in a cell without blanks, apostrophes, signs of currencies and per cent; None if there is no such number."""
    bare = MARKS.sub("", cell.replace("\N{MINUS SIGN}", "-")).strip()
    if "." in bare and bare.rfind(",") > bare.rfind("."):
        bare = bare.replace(".", "").replace(",", ".")  # as in 1.234,5
    bare = bare.replace(",", "")
    return bare if bare != cell and PLAIN_NUMBER.fullmatch(bare) else None
