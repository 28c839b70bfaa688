"""Text files, each one document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dslda.inputs.fields import Attempt, Fields
from dslda.inputs.formats.base import FilePiece
from dslda.inputs.streams import read_text

__all__ = ["TextFile"]


@dataclass(frozen=True, slots=True)
class TextFile(FilePiece):
    """A file that is one document."""

    format = "text"
    title = "text files"
    about = "every file is a document"
    endings = (".txt",)
    own_fields = Fields(text="text", id="id")
    one_document = True
    rules = frozenset({"encoding"})

    def attempts(self, fields: Fields) -> Iterator[tuple[int, Attempt]]:
        yield 0, {"text": read_text(self.file), "id": self.id}

    def raw_records(self) -> Iterator[object]:
        yield self.file

    def place(self, number: int) -> str:
        return self.file.name

    def cut(self, fields: Fields, target: int) -> Iterator[tuple[FilePiece, int]]:
        yield self, self.file.size
