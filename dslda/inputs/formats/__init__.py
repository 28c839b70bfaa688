"""The input formats. A new one is a module with a subclass of ``FilePiece``, an import and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from dslda.inputs.formats.base import FilePiece, Piece
from dslda.inputs.formats.csv import CsvLines
from dslda.inputs.formats.jsonl import JsonLines
from dslda.inputs.formats.ldac import LdacLines
from dslda.inputs.formats.matrix_market import MatrixMarket
from dslda.inputs.formats.parquet import ParquetRows
from dslda.inputs.formats.text_files import TextFile
from dslda.inputs.formats.uci import UciBags

__all__ = ["FORMATS", "FilePiece", "Piece"]

_FORMATS: tuple[type[FilePiece], ...] = (
    JsonLines,
    CsvLines,
    ParquetRows,
    TextFile,
    LdacLines,
    MatrixMarket,
    UciBags,
)

FORMATS: Mapping[str, type[FilePiece]] = {piece.format: piece for piece in _FORMATS}
"""By their names."""
