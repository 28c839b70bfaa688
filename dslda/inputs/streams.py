"""Bytes and lines of input files: any URL of fsspec, plain or compressed, cut anywhere."""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any

from dslda.exceptions import InputError
from dslda.inputs.reading import NO_CHARACTER, UTF_8, ReadingRules
from dslda.storage.location import chain_parts, is_of_file_system, reason_of

__all__ = [
    "BYTE_ORDER_MARK",
    "LINE_ENDS",
    "MAX_LINE_BYTES",
    "UNPACK",
    "InputFile",
    "Lines",
    "compression_ending",
    "in_utf8",
    "is_archive",
    "not_read",
    "read_blocks",
    "read_text",
    "why_not_opened",
]

MAX_LINE_BYTES = 64 << 20
"""Limit of a line, and of a text file that is one document: larger ones would fill the memory before they failed."""

RAW_BLOCK_BYTES = 1 << 20
COMPRESSED_BLOCK_BYTES = 1 << 16  # small, because a damaged or hostile block may inflate a thousandfold
INFLATED_BLOCK_BYTES = 1 << 22
ZSTD_BLOCK_BYTES = 1 << 10
"""Bytes given to zstd at once, which cannot stop in the middle: four of them inflate to at most 128 KB."""
XZ_MEMORY = 1 << 28
"""Memory for a dictionary; 'xz -9' needs a quarter."""
STALLED_SECONDS = 300.0

COMPRESSIONS: Mapping[str, str] = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".bz2": "bzip2",
    ".xz": "xz",
}
"""Compressions by the endings of files, in lower case."""
ARCHIVES = frozenset(
    {".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar", ".z", ".lz4", ".lzma", ".br", ".sz"}
)
"""Endings of archives and compressions that are not read, in lower case."""
COMPRESSED_MAGIC: Mapping[bytes, str] = {
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"BZh": ".bz2",
    b"\xfd7zXZ": ".xz",
}
"""Endings of compressed files by their first bytes."""
MAGIC = (*COMPRESSED_MAGIC, b"PK\x03\x04", b"7z\xbc\xaf")
"""First bytes of compressed files and of archives."""
UNPACK = (
    "unpack it first: files compressed with gzip, zstd, bzip2 or xz are read as they are, archives are not"
)
LINE_ENDS = "lines must end with a line feed, not with a carriage return alone: convert the file"
"""What to do about line ends that are none."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARK = b"\xff\xfe"
"""Its two bytes in either order."""
WRONG_BYTE = b"\xff"
"""A byte that UTF-8 never has, so that its line is refused."""


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
    rules : ReadingRules or None
        Rules to read it by; None where a caller can give none.
    """

    url: str
    size: int
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    rules: ReadingRules | None = None

    @property
    def name(self) -> str:
        """The file as messages name it: a local path without its protocol, else the URL."""
        return self.url.removeprefix("file://")

    @property
    def base_name(self) -> str:
        """The name without folders, the query of a URL, and the ending of a compression."""
        return self._names()[0]

    @property
    def compression(self) -> str | None:
        """The compression, by the file's ending in capitals or not."""
        return COMPRESSIONS.get(self._names()[1])

    @property
    def encoding(self) -> str:
        """The encoding of the text."""
        return (self.rules and self.rules.encoding) or UTF_8

    @property
    def is_sequential(self) -> bool:
        """True where the text can only be entered at its start, since it is not in UTF-8, or compressed."""
        return self.compression is not None or self.encoding != UTF_8

    def _names(self) -> tuple[str, str]:
        path = chain_parts(self.url)[1] if "::" in self.url else self.url
        if path.startswith(("http://", "https://")):
            path = path.partition("?")[0]
        name = path.rpartition("/")[2]
        stem, ending = os.path.splitext(name)
        ending = ending.lower()
        return (stem, ending) if ending in COMPRESSIONS else (name, ending)

    def open(self, *, anywhere: bool = False) -> AbstractContextManager[IO[bytes]]:
        """Open for reading bytes as stored, `anywhere` or one after the other."""
        return self._opened(anywhere)

    @contextmanager
    def _opened(self, anywhere: bool) -> Iterator[IO[bytes]]:
        import fsspec

        try:
            filesystem, path = fsspec.core.url_to_fs(self.url, **self.options)
            of_web = "http" in filesystem.protocol
            # a server that does not announce ranges may ignore them, and would send the whole file for each block
            streamed = of_web and not anywhere and not filesystem.info(path).get("partial")
            options = _streaming() if streamed else {}
            opened: IO[bytes] = filesystem.open(path, "rb", **options)
        except Exception as error:
            # ValueError: a NUL, or an unknown protocol
            if not (isinstance(error, (ImportError, ValueError)) or is_of_file_system(error)):
                raise
            reason = f"cannot be opened: {why_not_opened(self.name, error)}"
            raise InputError(reason, place=self.name) from error
        with opened:
            try:
                yield opened
            except Exception as error:
                if not (of_web and (is_of_file_system(error) or type(error) is ValueError)):
                    raise
                raise not_read(error, self.name) from error

    def is_empty(self) -> bool:
        """True for a file without a byte; a server may not tell the size."""
        if self.size:
            return False
        with self.open() as raw:
            return not raw.read(1)


def _streaming() -> dict[str, Any]:
    """Options of fsspec to open a file of a server as one stream, for however long its documents take."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_read=STALLED_SECONDS)
    return {"block_size": 0, "timeout": timeout, "size": 1}  # with any size fsspec does not ask for it again


def not_read(error: Exception, name: str) -> InputError:
    """The error for a file that fsspec cannot read, or `error` itself if it is no fault of the file or its server."""
    # fsspec's own, where a server ignores ranges or does not tell the size
    if (type(error) is ValueError and name.startswith("http")) or "block_size=0" in str(error):
        return InputError(
            "the server does not send parts of the file",
            place=name,
            remedy=("put 'simplecache::' before its URL, which copies the file first", "download it"),
        )
    if isinstance(error, (ImportError, ValueError)) or is_of_file_system(error):
        return InputError(f"cannot be read: {error}", place=name)
    raise error


def compression_ending(content: bytes) -> str:
    """The ending of a compression, by the first bytes of its content; "" for content that is not compressed."""
    return next((ending for magic, ending in COMPRESSED_MAGIC.items() if content.startswith(magic)), "")


def is_archive(name: str) -> bool:
    """True for the name of an archive, or of a file in a compression that is not read."""
    return os.path.splitext(name)[1].lower() in ARCHIVES


def why_not_opened(name: str, error: Exception) -> str:
    """The reason why a file cannot be opened, and what to do."""
    if isinstance(error, FileNotFoundError) and os.path.islink(name):
        return f"it is a link to {os.readlink(name)}, which is not there; mend or remove it"
    if isinstance(error, PermissionError):
        return f"{reason_of(error)}; give the user that runs this the right to read it"
    return reason_of(error)


def read_blocks(file: InputFile, start: int = 0) -> Iterator[bytes]:
    """Blocks of the uncompressed content from byte `start` on, in UTF-8 whatever the encoding of the file.

    A file that is compressed or in another encoding cannot be entered in the middle: what comes before `start` is read and
    dropped. Bytes that are no character of the encoding become one that UTF-8 never has.

    Raises
    ------
    InputError
        The file cannot be opened, is not what its ending says, is damaged, or is cut short.
    """
    with file.open(anywhere=not file.is_sequential and start > 0) as raw:
        if not file.is_sequential:
            if start:
                raw.seek(start)
            yield from _stored(raw)
            return
        compression = file.compression
        blocks = _stored(raw) if compression is None else _decompressed(raw, file, compression)
        position = 0
        try:
            for block in in_utf8(blocks, file.encoding):
                end = position + len(block)
                if end > start:
                    yield block[max(start - position, 0) :]
                position = end
        except InputError as error:
            raise error.at(file.name) from None


def in_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Blocks of a text, from its beginning, in UTF-8; none of them is empty."""
    if encoding == UTF_8:
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)(NO_CHARACTER)
    for block, final in chain(((block, False) for block in blocks), [(b"", True)]):
        try:
            text = decoder.decode(block, final)
        except UnicodeError:  # what the handler of errors cannot mend
            raise InputError(
                f"does not begin with the byte order mark of {encoding}",
                remedy=f"name the order ({encoding}-le or {encoding}-be) or another encoding with {{encoding=}}",
            ) from None
        if encoded := text.encode(UTF_8, NO_CHARACTER):
            yield encoded


def _no_character(error: UnicodeError) -> tuple[str | bytes, int]:
    """Put a surrogate in place of bytes that cannot be decoded, and the wrong byte in place of a surrogate."""
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    if isinstance(error, UnicodeEncodeError):
        return WRONG_BYTE * (error.end - error.start), error.end
    raise error


codecs.register_error(NO_CHARACTER, _no_character)


def read_text(file: InputFile) -> str:
    """The whole content of a file that is one document.

    Raises
    ------
    InputError
        As :func:`read_blocks`; or the file is larger than 64 MB, or not in its encoding.
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
        raise _not_decoded(file, data, error.start).at(file.name) from None


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
        As :func:`read_blocks`; or a line is longer than 64 MB or not in the encoding of the file, and the error names it.
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
        self._line = ""

    def __iter__(self) -> Iterator[str]:
        for line, error in self.attempts():
            if error is not None:
                raise error
            yield line

    def attempts(self) -> Iterator[tuple[str, InputError | None]]:
        """The lines, each with None, or with its error if it cannot be decoded: question marks then replace wrong bytes."""
        for begin, content in self._contents():
            try:
                line, refusal = content.decode("utf-8"), None
            except UnicodeDecodeError as error:
                line = content.decode("utf-8", errors="replace")
                refusal = _not_decoded(self.file, content, error.start, begin).at(self.place(self.count))
            self._line = line
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

    @property
    def end_remedy(self) -> str:
        """What to do if the last line that was read holds line ends that are none here, else ""."""
        if "\r" not in self._line.rstrip("\r\n"):
            return ""
        return LINE_ENDS

    def located(self, error: InputError) -> InputError:
        """The error at the last line that was read; its remedy is :attr:`end_remedy` if there is one."""
        if self.end_remedy:
            error = InputError(error.reason, remedy=self.end_remedy)
        return error.at(self.place(max(self.count, 1)))

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


def _not_decoded(file: InputFile, content: bytes | bytearray, position: int, begin: int = 0) -> InputError:
    """The error for the byte at a position of `content`, which begins at byte `begin` of the file in UTF-8."""
    if file.encoding != UTF_8:
        return InputError(
            f"not {file.encoding}: it has bytes that are no character of this encoding",
            remedy="name the encoding of the file with {encoding=}",
        )
    byte, offset = content[position], begin + position
    encoding = "utf-16" if offset == 0 and byte in UTF_16_MARK else "cp1252"
    remedy: tuple[str, ...]
    if begin == 0 and content.startswith(MAGIC):
        remedy = ("name it with the ending of its compression, such as .gz", UNPACK)
    elif file.rules is not None:
        remedy = (f"name the encoding of the file, with {{encoding='{encoding}'}} if it is {encoding}",)
    else:
        remedy = (
            f"convert the file to UTF-8, with 'iconv -f {encoding} -t utf-8 OLD > NEW' if it is {encoding}",
        )
    return InputError(f"not UTF-8: byte 0x{byte:02x} at byte {offset} of the file", remedy=remedy)


def _stored(raw: IO[bytes]) -> Iterator[bytes]:
    """Blocks of a file as it is stored."""
    while block := raw.read(RAW_BLOCK_BYTES):
        yield block


def _decompressed(raw: IO[bytes], file: InputFile, compression: str) -> Iterator[bytes]:
    """Blocks of all members or frames of a compressed stream; a stream that ends too early is an error."""
    decoder = _decoder(compression)
    inside = False
    # zstd has no limit of what a call gives
    limit = () if compression == "zstd" else (INFLATED_BLOCK_BYTES,)
    taken = ZSTD_BLOCK_BYTES if compression == "zstd" else COMPRESSED_BLOCK_BYTES
    while block := raw.read(COMPRESSED_BLOCK_BYTES):
        more = False
        while block or more:
            inside = True
            try:
                data = decoder.decompress(block[:taken], *limit)
            except Exception as error:  # zlib.error, zstandard.ZstdError, OSError of bz2, lzma.LZMAError
                raise InputError(f"not a {compression} file, or damaged: {error}", place=file.name) from error
            if data:
                yield data
            # what zlib did not take is its tail; bz2 and lzma keep it, and say that they need none
            rest = getattr(decoder, "unconsumed_tail", b"") + block[taken:]
            more = not getattr(decoder, "needs_input", True)
            if decoder.eof:
                # zeros after the last member are padding, which gzip skips too
                rest = (decoder.unused_data + block[taken:]).lstrip(b"\0")
                decoder, inside, more = _decoder(compression), False, False
            block = rest
    if inside:
        raise InputError(
            f"the {compression} file is cut short", place=file.name, remedy="copy or download it again"
        )


def _decoder(compression: str) -> Any:
    if compression == "gzip":
        return zlib.decompressobj(wbits=31)
    if compression == "bzip2":
        return bz2.BZ2Decompressor()
    if compression == "xz":
        return lzma.LZMADecompressor(memlimit=XZ_MEMORY)
    import zstandard

    # files made with --long need a large window
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
