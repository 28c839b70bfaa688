"""Bytes and lines of input files: any URL of fsspec, plain or compressed, cut anywhere."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO, Any, Literal

from dslda.exceptions import InputError
from dslda.storage.location import is_of_file_system, reason_of

__all__ = ["InputFile", "Lines", "read_blocks", "read_text", "why_not_opened"]

MAX_LINE_BYTES = 64 << 20
"""Limit of a line, and of a text file that is one document: larger ones would fill the memory before they failed."""

RAW_BLOCK_BYTES = 1 << 20
COMPRESSED_BLOCK_BYTES = 1 << 16  # small, because a damaged or hostile block may inflate a thousandfold
INFLATED_BLOCK_BYTES = 1 << 22
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARK = b"\xff\xfe"
"""Its two bytes in either order."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to read.

    Attributes
    ----------
    url : str
        Any URL fsspec opens.
    size : int
        Bytes as stored.
    options : mapping
        The storage options of fsspec.
    """

    url: str
    size: int
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The file as messages name it: a local path without its protocol, else the URL."""
        return self.url.removeprefix("file://")

    @property
    def compression(self) -> Literal["gzip", "zstd"] | None:
        """The compression, by the file's ending."""
        if self.url.endswith(".gz"):
            return "gzip"
        return "zstd" if self.url.endswith(".zst") else None

    def open(self) -> IO[bytes]:
        """Open for reading bytes as stored."""
        import fsspec

        try:
            filesystem, path = fsspec.core.url_to_fs(self.url, **self.options)
            opened: IO[bytes] = filesystem.open(path, "rb")
        except Exception as error:
            # ValueError: a NUL, or an unknown protocol
            if not (isinstance(error, (ImportError, ValueError)) or is_of_file_system(error)):
                raise
            reason = f"cannot be opened: {why_not_opened(self.name, error)}"
            raise InputError(reason, place=self.name) from error
        return opened


def why_not_opened(name: str, error: Exception) -> str:
    """The reason why a file cannot be opened, and what to do."""
    if isinstance(error, FileNotFoundError) and os.path.islink(name):
        return f"it is a link to {os.readlink(name)}, which is not there; mend or remove it"
    if isinstance(error, PermissionError):
        return f"{reason_of(error)}; give the user that runs this the right to read it"
    return reason_of(error)


def read_blocks(file: InputFile, start: int = 0) -> Iterator[bytes]:
    """Blocks of the uncompressed content from byte `start` on.

    A compressed file cannot be entered in the middle: the bytes before `start` are decompressed and dropped.

    Raises
    ------
    InputError
        The file cannot be opened, is not what its ending says, is damaged, or is cut short.
    """
    with file.open() as raw:
        if file.compression is None:
            if start:
                raw.seek(start)
            while block := raw.read(RAW_BLOCK_BYTES):
                yield block
            return
        position = 0
        for block in _decompressed(raw, file):
            end = position + len(block)
            if end > start:
                yield block[max(start - position, 0) :]
            position = end


def read_text(file: InputFile) -> str:
    """The whole content of a file that is one document.

    Raises
    ------
    InputError
        As :func:`read_blocks`; or the file is larger than 64 MB, or not UTF-8.
    """
    data = bytearray()
    with closing(read_blocks(file)) as blocks:  # type: ignore[type-var]
        for block in blocks:
            data += block
            if len(data) > MAX_LINE_BYTES:
                raise InputError(f"one document must be at most {MAX_LINE_BYTES >> 20} MB", place=file.name)
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _not_utf8(data[error.start], error.start).at(file.name) from None


class Lines:
    """The lines of a file that start in a range of its uncompressed bytes, decoded, each with its line end.

    Ranges that follow each other give every line once, wherever they cut.

    Parameters
    ----------
    file : InputFile
    start, stop : int, int or None
        Range of bytes; None goes to the end.
    first_line : int, optional
        Number of the first line of the range, counted from 1, if known. Otherwise the lines before it are counted when an
        error has to name a line.

    Attributes
    ----------
    count : int
        Lines read so far.
    end : int
        Byte after the last line that was read.

    Raises
    ------
    InputError
        As :func:`read_blocks`; or a line is longer than 64 MB or not UTF-8, and the error names it.
    """

    def __init__(
        self, file: InputFile, start: int = 0, stop: int | None = None, *, first_line: int | None = None
    ) -> None:
        self.file = file
        self.start = start
        self.stop = stop
        self.first_line = 1 if start == 0 else first_line
        self.count = 0
        self.end = start

    def __iter__(self) -> Iterator[str]:
        for line, error in self.attempts():
            if error is not None:
                raise error
            yield line

    def attempts(self) -> Iterator[tuple[str, InputError | None]]:
        """The lines, each with None, or with its error if it is not UTF-8: question marks then replace the wrong bytes."""
        for begin, content in self._contents():
            try:
                line, refusal = content.decode("utf-8"), None
            except UnicodeDecodeError as error:
                line = content.decode("utf-8", errors="replace")
                refusal = _not_utf8(content[error.start], begin + error.start).at(self.place(self.count))
            yield line, refusal

    def raw_records(self) -> Iterator[bytes]:
        """The lines that are not blank, as bytes."""
        for _, content in self._contents():
            # nearly all begin with a visible character, so few are decoded
            if b"!" <= content[:1] <= b"~" or content.decode("utf-8", errors="replace").strip():
                yield content

    def _contents(self) -> Iterator[tuple[int, bytes]]:
        """Count the lines, and yield each with the byte where it begins, without the byte order mark of the file."""
        # one byte early, to see whether a line starts at `start` itself
        self.end = max(self.start - 1, 0)
        with closing(read_blocks(self.file, self.end)) as blocks:  # type: ignore[type-var]
            stream = io.BufferedReader(_BlockStream(blocks), RAW_BLOCK_BYTES)
            skipping = self.start > 0
            while skipping:
                part = stream.readline(RAW_BLOCK_BYTES)
                self.end += len(part)
                skipping = bool(part) and not part.endswith(b"\n")
            while self.stop is None or self.end < self.stop:
                line = stream.readline(MAX_LINE_BYTES + 1)
                if not line:
                    return
                if len(line) > MAX_LINE_BYTES:
                    raise InputError(
                        f"a line must be at most {MAX_LINE_BYTES >> 20} MB",
                        place=self.place(self.count + 1),
                        remedy="is this a file of one document a line?",
                    )
                content = line.removeprefix(BYTE_ORDER_MARK) if self.end == 0 else line
                self.count += 1
                self.end += len(line)
                yield self.end - len(content), content

    def place(self, count: int) -> str:
        """Name the `count`-th line of the range, counted from 1, by file and line of the file."""
        if self.first_line is None:
            self.first_line = self._count_lines_before()
        return f"{self.file.name}, line {self.first_line + count - 1}"

    def _count_lines_before(self) -> int:
        """Number of the first line that starts at or after `start`."""
        lines, position, last = 1, 0, b"\n"
        for block in read_blocks(self.file):
            block = block[: self.start - position]
            if not block:
                break
            lines += block.count(b"\n")
            position += len(block)
            last = block[-1:]
        # a line that began before `start` and goes on belongs to the range before
        return lines if last == b"\n" else lines + 1


class _BlockStream(io.RawIOBase):
    """A stream of the bytes in blocks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._rest or next(self._blocks, b"")
        n = min(len(block), len(buffer))
        buffer[:n] = block[:n]
        self._rest = block[n:]
        return n


def _not_utf8(byte: int, offset: int) -> InputError:
    encoding = "UTF-16" if offset == 0 and byte in UTF_16_MARK else "WINDOWS-1252"
    return InputError(
        f"not UTF-8: byte 0x{byte:02x} at byte {offset} of the file",
        remedy="convert the file to UTF-8: Excel saves it as 'CSV UTF-8', and "
        f"'iconv -f {encoding} -t UTF-8 OLD > NEW' converts it, if {encoding} is its encoding",
    )


def _decompressed(raw: IO[bytes], file: InputFile) -> Iterator[bytes]:
    """Blocks of all members (gzip) or frames (zstd) of a compressed stream; a stream that ends too early is an error."""
    decoder = _decoder(file)
    inside = False
    while block := raw.read(COMPRESSED_BLOCK_BYTES):
        while block:
            inside = True
            try:
                if file.compression == "gzip":
                    data = decoder.decompress(block, INFLATED_BLOCK_BYTES)
                    rest = decoder.unconsumed_tail
                else:
                    data, rest = decoder.decompress(block), b""
            except Exception as error:  # zlib.error, zstandard.ZstdError
                raise InputError(
                    f"not a {file.compression} file, or damaged: {error}", place=file.name
                ) from error
            if data:
                yield data
            if decoder.eof:
                # zeros after the last member are padding, which gzip skips too
                rest = decoder.unused_data.lstrip(b"\0")
                decoder, inside = _decoder(file), False
            block = rest
    if inside:
        raise InputError(
            f"the {file.compression} file is cut short", place=file.name, remedy="copy or download it again"
        )


def _decoder(file: InputFile) -> Any:
    if file.compression == "gzip":
        return zlib.decompressobj(wbits=31)
    import zstandard

    # files made with --long need a large window
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
