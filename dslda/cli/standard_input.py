"""Documents on standard input: lines of text, or records as in a file."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, cast

from dslda.exceptions import InputError
from dslda.inputs.files import InputFiles
from dslda.inputs.reading import ReadingRules
from dslda.inputs.streams import InputFile, Lines

__all__ = ["lines_of_text", "records_on_stdin"]


def lines_of_text(rules: ReadingRules, *, check: bool) -> Iterator[str]:
    """The lines of standard input, each a document.

    Parameters
    ----------
    rules : ReadingRules
        May give the encoding.
    check : bool
        Refuse JSON lines: the first line that is not blank must be no JSON object.

    Raises
    ------
    InputError
        The lines are JSON or not in the encoding, or cannot be read.
    """
    for number, content in enumerate(Lines(_StandardInput("stdin", 0, rules=rules, head=None)), start=1):
        line = content.rstrip("\r\n")
        if check and line.strip():
            check = False
            if _is_record(line):
                raise InputError(
                    f"- reads lines of text unless --format says otherwise, got a JSON object in line {number}",
                    remedy="give --format jsonl to read fields, or --format text to take lines as they are",
                )
        yield line


def records_on_stdin(format: str) -> InputFiles:
    """Standard input as the only file of an input, which can be opened twice: first to look at its fields."""
    return InputFiles(format, (_StandardInput("stdin", 0),), ("stdin",))


def _is_record(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _unreadable(error: OSError) -> InputError:
    return InputError(
        f"must be lines of text, it cannot be read: {error.strerror or error}",
        place="stdin",
        remedy="give the path of a file",
    )


@dataclass(frozen=True, slots=True)
class _StandardInput(InputFile):
    head: list[bytes] | None = field(default_factory=list)
    """Blocks that were read when it was opened first; None if it is opened only once."""

    def open(self, *, anywhere: bool = False) -> IO[bytes]:
        keep = self.head is not None and not self.head
        return cast(IO[bytes], _Replayed([] if self.head is None else self.head, keep=keep))


class _Replayed(io.RawIOBase):
    """The blocks that an earlier reader kept, and then the rest as it comes, so that output need not wait for the end."""

    def __init__(self, blocks: list[bytes], *, keep: bool) -> None:
        self._blocks = blocks
        self._keep = keep

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._keep and self._blocks:
            block = self._blocks.pop(0)
            if len(block) > len(buffer):
                self._blocks.insert(0, block[len(buffer) :])
                block = block[: len(buffer)]
        else:
            try:
                block = cast(io.BufferedReader, sys.stdin.buffer).read1(len(buffer))
            except OSError as error:
                raise _unreadable(error) from error
            if self._keep:
                self._blocks.append(block)
        buffer[: len(block)] = block
        return len(block)
