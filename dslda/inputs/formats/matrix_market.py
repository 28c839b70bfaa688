"""Sparse matrices, documents by terms, an entry per line: Matrix Market, as ``scipy.io.mmwrite`` writes it, and UCI bags.

Entries must be sorted by document, so that one pass gives the documents in order, and a file can be cut between
two of them. Rows without entries are empty documents.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from dslda.exceptions import InputError
from dslda.inputs.fields import Attempt, Fields
from dslda.inputs.formats.base import FilePiece, compressed_target, is_whole, sparse_borders
from dslda.inputs.streams import Lines

__all__ = ["EntryLines", "MatrixMarket", "UciBags"]


@dataclass(frozen=True, slots=True)
class EntryLines(FilePiece):
    """A sparse matrix with a line ``document term count`` for each entry, counted from 1.

    Attributes
    ----------
    start, stop : int, int or None
        Range of bytes that holds all entries of its documents.
    first_line : int
        Number of the line at `start`.
    first_row, end_row : int, int or None
        Range of documents, from 0; None for a whole file, whose header gives their number.
    """

    own_fields = Fields(words="words", counts="counts")
    by_position = True

    start: int = 0
    stop: int | None = None
    first_line: int = 1
    first_row: int = 0
    end_row: int | None = None

    @abstractmethod
    def shape(self, lines: Iterator[str]) -> tuple[int, int, int]:
        """Take the header off `lines`: the numbers of documents, terms and entries. Errors name no place."""

    def attempts(self, fields: Fields) -> Iterator[tuple[int, Attempt]]:
        lines = self._lines()
        content = iter(lines)
        n_expected = None
        row, end = self.first_row, self.end_row
        if end is None:
            end, n_expected = self._header(lines, content)
        n = 0
        words: list[str] = []
        counts: list[int] = []
        for line in content:
            if not line.strip():
                continue
            document, term, count = self._entry(line, lines)
            n += 1
            if document - 1 != row:
                if not row < document <= end:
                    raise self._misplaced(document, lines)
                while row < document - 1:
                    yield row, {"words": words, "counts": counts}
                    words, counts = [], []
                    row += 1
            words.append(str(term - 1))
            counts.append(count)
        if n_expected is not None:
            self._check_complete(n, n_expected)
        for number in range(row, end):
            yield number, {"words": words, "counts": counts}
            words, counts = [], []

    def raw_records(self) -> Iterator[object]:
        lines = self._lines()
        end = self._header(lines, iter(lines))[0] if self.end_row is None else self.end_row
        yield from range(self.first_row, end)

    def place(self, number: int) -> str:
        return f"{self.file.name}, row {number + 1} (the first is 1)"

    def cut(self, fields: Fields, target: int) -> Iterator[tuple[FilePiece, int]]:
        lines = self._lines()
        content = iter(lines)
        end, n_expected = self._header(lines, content)
        borders = [(lines.end, lines.count + 1, 0)]
        begin, n, previous = lines.end, 0, ""
        for line in content:
            if line.strip():
                n += 1
                if begin - borders[-1][0] >= target and previous:
                    document, _, _ = self._entry(line, lines)
                    if document != self._entry(previous, lines)[0]:
                        if not borders[-1][2] < document <= end:
                            raise self._misplaced(document, lines)
                        borders.append((begin, lines.count, document - 1))
                previous = line
            begin = lines.end
        self._check_complete(n, n_expected)
        if self.file.is_sequential:
            borders = sparse_borders(borders, compressed_target(lines.end, target))
        for (start, first_line, first), (stop, _, last) in pairwise([*borders, (lines.end, 0, end)]):
            piece = dataclasses.replace(
                self, start=start, stop=stop, first_line=first_line, first_row=first, end_row=last
            )
            yield piece, stop - start

    def _lines(self) -> Lines:
        return Lines(self.file, self.start, self.stop, first_line=self.first_line)

    def _header(self, lines: Lines, content: Iterator[str]) -> tuple[int, int]:
        """Numbers of documents and entries, by the header."""
        try:
            n_documents, n_terms, n_entries = self.shape(content)
        except InputError as error:
            raise lines.located(error) from None
        if n_terms != self.n_terms:
            raise InputError(
                f"must have a term for each of the {n_terms:,} columns of {self.file.name}, got {self.n_terms:,}",
                parameter="vocabulary",
            )
        return n_documents, n_entries

    def _entry(self, line: str, lines: Lines) -> tuple[int, int, int]:
        try:
            row, column, value = line.split()
            document, term, count = int(row), int(column), _count(value)
        except ValueError:
            document, term, count = 0, 0, -1
        if document < 1 or term < 1 or count < 0:
            raise lines.located(
                InputError(
                    f"must be an entry 'document term count' of whole numbers, counted from 1, got {line.strip()!r:.60}"
                )
            )
        if term > self.n_terms:
            raise InputError(
                f"term {term} is not in the vocabulary of {self.n_terms} terms (1 is the first)",
                place=lines.place(lines.count),
            )
        return document, term, count

    def _misplaced(self, document: int, lines: Lines) -> InputError:
        return InputError(
            f"entries must be sorted by row, and rows be among those of the header, got row {document}",
            place=lines.place(lines.count),
            remedy="sort the lines by their first column, or write the matrix in compressed rows: "
            "scipy.io.mmwrite(NEW, scipy.sparse.csr_array(scipy.io.mmread(OLD)))",
        )

    def _check_complete(self, n: int, n_expected: int) -> None:
        if n != n_expected:
            raise InputError(
                f"must have {n_expected:,} entries as the header says, got {n:,}",
                place=self.file.name,
                remedy="is the file cut short? copy or download it again",
            )


def _count(cell: str) -> int:
    """A whole number, also one written as a real, such as ``3.0``; -1 for any other number."""
    try:
        return int(cell)
    except ValueError:
        value = float(cell)
        return int(value) if value.is_integer() else -1


def _sizes(cells: Sequence[str], meaning: str) -> tuple[int, int, int]:
    """The three whole numbers of a header."""
    if len(cells) != 3 or not all(map(is_whole, cells)):
        raise InputError(f"must be '{meaning}', got {' '.join(cells)!r:.60}")
    n_documents, n_terms, n_entries = map(int, cells)
    return n_documents, n_terms, n_entries


@dataclass(frozen=True, slots=True)
class MatrixMarket(EntryLines):
    """A matrix in coordinate form, of whole numbers."""

    format = "mtx"
    title = "Matrix Market files"
    about = "Matrix Market, documents by terms"
    endings = (".mtx",)
    magic = (b"%%MatrixMarket",)

    def shape(self, lines: Iterator[str]) -> tuple[int, int, int]:
        banner = next(lines, "").lower().split()
        kind, values, symmetry = (banner[2:] + [""] * 3)[:3]
        if banner[:2] != ["%%matrixmarket", "matrix"]:
            raise InputError("not a Matrix Market file: it must begin with '%%MatrixMarket matrix'")
        if (
            kind != "coordinate"
            or values not in ("integer", "unsigned-integer", "real")
            or symmetry != "general"
        ):
            raise InputError(
                f"the matrix must be 'coordinate integer general', got {' '.join(banner[2:])!r:.60}",
                remedy="write a sparse matrix of counts with scipy.io.mmwrite(FILE, matrix, symmetry='general')",
            )
        for line in lines:
            if line.strip() and not line.startswith("%"):
                return _sizes(line.split(), "rows columns entries")
        raise InputError("must have a line 'rows columns entries' after the comments, got none")


@dataclass(frozen=True, slots=True)
class UciBags(EntryLines):
    """A bag of words of the UCI repository: numbers of documents, terms and entries on three lines, then the entries.

    The terms are in another file, ``vocab.*.txt``. Both have the ending of texts; the beginnings of their names differ.
    """

    format = "uci"
    title = "UCI bags of words"
    about = "bags of words of the UCI repository, docword.*.txt"
    beginnings = ("docword.",)

    def shape(self, lines: Iterator[str]) -> tuple[int, int, int]:
        return _sizes([line.strip() for line in islice(lines, 3)], "documents, terms, entries")
