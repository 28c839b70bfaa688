"""Pipes among the inputs. They can be read only once, so each is copied to a temporary file first."""

from __future__ import annotations

import logging
import os
import posixpath
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from dslda.exceptions import InputError, OutputError
from dslda.inputs.formats import FORMATS
from dslda.inputs.streams import BYTE_ORDER_MARK, InputFile, compression_ending, read_blocks

__all__ = ["SpooledFile", "check_pipes", "is_pipe", "spool"]

logger = logging.getLogger("dslda.ingest")

DESCRIPTOR = re.compile(r"/dev/stdin|(?:/dev|/proc/self)/fd/(\d+)")
BLOCK_BYTES = 1 << 20


class _Copy:
    """The folder of a copy, which is removed with the last reference to it in the process that made it."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="dslda-")
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        # workers read the copy, and leave it to this process
        return type(None), ()


@dataclass(frozen=True, slots=True)
class SpooledFile(InputFile):
    """The copy of a pipe, which messages call by the name of the pipe."""

    pipe: str = ""
    copy: _Copy | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The pipe, as messages name it."""
        return self.pipe


def is_pipe(path: Any) -> bool:
    """True for a named pipe and for an open descriptor, which ``<(...)`` of a shell is."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    place = os.fspath(path)
    try:
        return bool(DESCRIPTOR.fullmatch(place)) or stat.S_ISFIFO(os.stat(place).st_mode)
    except (OSError, ValueError):
        return False


def check_pipes(paths: Iterable[Any]) -> None:
    """Refuse a pipe that is named twice, before anything is read."""
    known = set()
    for place in map(os.fspath, filter(is_pipe, paths)):
        try:
            status = os.stat(place)
        except OSError:  # a descriptor that is closed, which is told when it is read
            continue
        pipe = status.st_dev, status.st_ino
        if pipe in known:
            raise InputError(
                f"must name each pipe once, got {_name(place)} again, which can be read only once",
                parameter="inputs",
            )
        known.add(pipe)


def spool(path: str | os.PathLike[str], format: str) -> SpooledFile:
    """Copy a pipe to its end, into a file with the endings that its content asks for.

    Raises
    ------
    InputError
        The pipe cannot be read or is empty; or the format is "auto", and clear neither from the ending nor the content.
    OutputError
        There is no room for the copy.
    """
    place = os.fspath(path)
    name, parent = _name(place), tempfile.gettempdir()
    logger.info(
        "%s can be read only once: it is copied to %s first; TMPDIR names another place", name, parent
    )
    with _writing_copy(name, parent):
        copy = _Copy()
    path = _copied(place, name, copy.folder)
    if format == "auto":
        path = _with_ending(path, name)
    return SpooledFile(f"file://{path}", os.path.getsize(path), pipe=name, copy=copy)


def _name(place: str) -> str:
    return "stdin" if place == "/dev/stdin" else place


def _copied(place: str, name: str, folder: str) -> str:
    """Path of the copy, with the ending of its compression."""
    copy = f"{folder}/{posixpath.basename(place)}"
    blocks = _blocks(place, name)
    first = next(blocks, b"")
    if not first:
        raise InputError(
            "no documents: the pipe is empty",
            place=name,
            remedy="see whether the command that writes it works",
        )
    if InputFile(copy, 0).compression is None:
        copy += compression_ending(first)
    with _writing_copy(name, tempfile.gettempdir()), open(copy, "wb") as target:
        target.write(first)
        for block in blocks:
            target.write(block)
    return copy


def _blocks(place: str, name: str) -> Iterator[bytes]:
    descriptor = DESCRIPTOR.fullmatch(place)
    try:
        # opened by its path, a file behind a descriptor would be read from its beginning
        with open(place if descriptor is None else os.dup(int(descriptor[1] or 0)), "rb") as source:
            while block := source.read(BLOCK_BYTES):
                yield block
    except OSError as error:
        raise InputError(
            f"the pipe cannot be read: {error.strerror or error}",
            place=name,
            remedy="give the path of a file",
        ) from error


@contextmanager
def _writing_copy(name: str, parent: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{name} could not be copied to {parent}: {error.strerror or error}",
            remedy=("make room there", "set the environment variable TMPDIR to another folder"),
        ) from error


def _with_ending(copy: str, name: str) -> str:
    """Path of the copy, renamed by the format of its content where its ending names none."""
    base = InputFile(copy, 0).base_name
    if any(
        base.lower().endswith(piece.endings) or base.startswith(piece.beginnings)
        for piece in FORMATS.values()
    ):
        return copy
    with closing(read_blocks(SpooledFile(f"file://{copy}", 0, pipe=name))) as blocks:  # type: ignore[type-var]
        content = next(blocks, b"").removeprefix(BYTE_ORDER_MARK).lstrip()
    for piece in FORMATS.values():
        if piece.magic and content.startswith(piece.magic):
            renamed = f"{os.path.dirname(copy)}/{base}{piece.endings[0]}{posixpath.basename(copy).removeprefix(base)}"
            os.rename(copy, renamed)
            return renamed
    raise InputError(
        "the format is not clear from the content of the pipe",
        place=name,
        remedy=f"name it with {{format=}}, one of {', '.join(FORMATS)}",
    )
