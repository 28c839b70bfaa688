"""Documents on standard input: lines of text, or records as in a file."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, cast

from dslda.exceptions import InputError
from dslda.inputs.files import InputFiles
from dslda.inputs.reading import ReadingRules
from dslda.inputs.streams import InputFile, Lines, compression_ending

if TYPE_CHECKING:
    from dslda.cli.process import Session

__all__ = ["STDIN", "check_open", "lines_of_text", "records_on_stdin"]

STDIN = "/dev/stdin"
"""What ``-`` stands for where it is copied before it is read."""


def check_open(session: Session) -> None:
    """Refuse ``-`` where the caller has closed standard input."""
    if "stdin" in session.closed:
        raise InputError("- reads stdin, which is closed", remedy="give the path of a file")


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
    for number, content in enumerate(Lines(_standard_input(rules=rules, once=True)), start=1):
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
    return InputFiles(format, (_standard_input(),), ("stdin",))


def _standard_input(**how: Any) -> _StandardInput:
    """Standard input, whose first block tells its compression."""
    first = _read()
    return _StandardInput(f"stdin{compression_ending(first)}", 0, head=[first], **how)


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


def _read(n: int = io.DEFAULT_BUFFER_SIZE) -> bytes:
    """What has come, up to `n` bytes; b"" at the end."""
    try:
        return cast(io.BufferedReader, sys.stdin.buffer).read1(n)
    except OSError as error:
        raise _unreadable(error) from error


@dataclass(frozen=True, slots=True)
class _StandardInput(InputFile):
    head: list[bytes] = field(default_factory=list)
    """Blocks that were read, for the second reader too."""
    readers: list[IO[bytes]] = field(default_factory=list)
    once: bool = False
    """It is opened only once, so that no block must be kept."""

    @property
    def name(self) -> str:
        """Standard input, as messages name it."""
        return "stdin"

    def open(self, *, anywhere: bool = False) -> IO[bytes]:
        keep = not self.once and not self.readers
        self.readers.append(cast(IO[bytes], _Replayed(self.head, keep=keep)))
        return self.readers[-1]


class _Replayed(io.RawIOBase):
    """The blocks that were read before, and then the rest as it comes, so that output need not wait for the end."""

    def __init__(self, blocks: list[bytes], *, keep: bool) -> None:
        self._before = list(blocks)
        self._kept = blocks if keep else []
        self._keep = keep

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._before:
            block = self._before.pop(0)
            if len(block) > len(buffer):
                self._before.insert(0, block[len(buffer) :])
                block = block[: len(buffer)]
        else:
            block = _read(len(buffer))
            if self._keep:
                self._kept.append(block)
        buffer[: len(block)] = block
        return len(block)
