"""LDA-C, the format of Blei's lda-c: a line ``M term:count term:count ...`` for each document."""

from __future__ import annotations

from dataclasses import dataclass

from dslda.exceptions import InputError
from dslda.inputs.fields import Fields, Record
from dslda.inputs.formats.base import MOST_DIGITS, LinePiece, is_whole

__all__ = ["LdacLines"]


@dataclass(frozen=True, slots=True)
class LdacLines(LinePiece):
    """Documents of counted terms; terms are positions in a vocabulary, from 0."""

    format = "ldac"
    title = "LDA-C files"
    endings = (".ldac", ".dat")
    own_fields = Fields(words="words", counts="counts")
    by_position = True

    def record(self, line: str, number: int) -> Record:
        cells = line.split()
        if not is_whole(cells[0]) or int(cells[0]) != len(cells) - 1:
            raise InputError(
                f"must be 'M term:count ...' with M the number of pairs, got M {cells[0]!r:.20} "
                f"before {len(cells) - 1} pairs"
            )
        words, counts = [], []
        for cell in cells[1:]:
            term, colon, count = cell.partition(":")
            if not (colon and is_whole(term) and is_whole(count)):
                raise InputError(
                    f"must be pairs term:count of whole numbers, got {cell!r:.40}"
                    + (f"; they have at most {MOST_DIGITS} digits" if len(cell) > MOST_DIGITS else "")
                )
            position = int(term)
            if position >= self.n_terms:
                raise InputError(
                    f"term {position} is not in the vocabulary of {self.n_terms} terms (0 is the first)"
                )
            words.append(str(position))
            counts.append(int(count))
        return {"words": words, "counts": counts}
