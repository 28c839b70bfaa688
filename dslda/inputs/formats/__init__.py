"""The input formats. A new one is a subclass of ``FilePiece`` in a module, with an import and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from dslda.inputs.formats.base import FilePiece, Piece
from dslda.inputs.formats.csv import CsvLines, TsvLines
from dslda.inputs.formats.jsonl import JsonLines
from dslda.inputs.formats.ldac import LdacLines
from dslda.inputs.formats.matrix_market import MatrixMarket, UciBags
from dslda.inputs.formats.parquet import ParquetRows
from dslda.inputs.formats.text_files import TextFile

__all__ = ["FORMATS", "FilePiece", "Piece"]

_PIECES: tuple[type[FilePiece], ...] = (
    JsonLines,
    CsvLines,
    TsvLines,
    ParquetRows,
    TextFile,
    LdacLines,
    MatrixMarket,
    UciBags,
)

FORMATS: Mapping[str, type[FilePiece]] = {piece.format: piece for piece in _PIECES}
"""The formats by their names."""
