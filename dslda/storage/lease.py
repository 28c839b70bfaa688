"""A lock on an output in an object store, where no operating system releases it when its process ends.

A folder holds the locks ``1``, ``2``, ..., objects that are created exclusively and never written again; the owner of the
highest number holds the lock, and renews a beat beside it, ``<number>.<token>``. A run that meets a lock watches its beat. If
the beat stands still, the holder is gone, and one of the runs that watch creates the next number. Nothing compares clocks.
``docs/formats.md`` specifies the objects, and says why a conditional write of the manifest would not do.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import re
import socket
import threading
import time
import uuid
from typing import Any

from dslda.exceptions import DsldaError, OutputError
from dslda.storage.location import reason_of
from dslda.storage.output import writing

__all__ = ["Lease", "NoExclusiveCreationError", "signature", "written_by_another"]

logger = logging.getLogger("dslda.output")

RENEWAL_SECONDS = 10.0
"""Time from one beat to the next."""

LOOK_SECONDS = 3.0
LOOKS = 15
"""Looks after which an unchanged beat stands still. Looks count, not seconds, since the watcher may stand still too."""

ATTEMPTS = 100
ATTEMPT_SECONDS = 0.1

ENDED = b'{"beat": null}'
"""The beat of a lock whose holder has ended without the right to remove it."""

LOCK = re.compile(r"\d+")
BEAT = re.compile(r"\d+\.[0-9a-f]{32}")

_held_tokens: set[str] = set()
"""Tokens of this process, whose threads need no watching."""


class NoExclusiveCreationError(DsldaError):
    """The file system cannot create an object exclusively."""


def signature(**more: str) -> bytes:
    """Content of a lock: the process that holds it."""
    return json.dumps({"process": os.getpid(), "host": socket.gethostname(), **more}).encode()


def _holder(lock: bytes) -> dict[str, Any]:
    """The holder that a lock names; empty if it is being written, or another program wrote it."""
    try:
        holder = json.loads(lock)
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) and {"process", "host"} <= holder.keys() else {}


def written_by_another(output: str, lock: bytes) -> OutputError:
    """The error of an output that another run is writing; it names the run if its lock does."""
    holder = _holder(lock)
    name = " (process {process} on {host})".format_map(holder) if holder else ""
    return OutputError(
        f"{output} is being written by another run{name}",
        remedy=("wait for it to end", "choose another path"),
    )


class Lease:
    """A lock on an `output`, in a `folder` of an fsspec file system, that a thread renews until it is released."""

    def __init__(self, fs: Any, folder: str, output: str) -> None:
        self._fs = fs
        self._folder = folder
        self._output = output
        self._token = uuid.uuid4().hex
        self._signature = signature(token=self._token)
        self._number = 0
        self._made_folder = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="dslda-lease", daemon=True)

    def acquire(self) -> None:
        """Take the lock; wait only as long as it takes to see whether its holder is gone.

        Raises
        ------
        OutputError
            Another run holds it.
        NoExclusiveCreationError
            There can be no lock in this file system.
        """
        for _ in range(ATTEMPTS):
            try:
                numbers = self._numbers()
            except Exception as error:
                raise NoExclusiveCreationError(reason_of(error)) from error
            top = max(numbers, default=0)
            lock = self._read(str(top)) if numbers else None
            if numbers and (lock is None or not self._is_gone(top, lock)):
                continue
            self._number = top + 1
            self._create()
            if self._is_own():  # a server that knows no conditions lets the last one overwrite the others
                # between the look above and the creation another run may have begun
                others = set(self._numbers()) - {self._number}
                if others <= set(numbers) and (lock is None or self._read(str(top)) in (None, lock)):
                    break
            self._remove_own()
            time.sleep(random.uniform(0, ATTEMPT_SECONDS))
        else:
            raise OutputError(
                f"{self._output} could not be written: its lock {self._folder} comes and goes",
                remedy="try again",
            )
        _held_tokens.add(self._token)
        self._write_beat(0)
        self._thread.start()
        self._remove_others()

    def check(self) -> None:
        """Refuse to go on if the lock was lost; call this before anything that makes an output complete.

        Raises
        ------
        OutputError
            This process stood still for so long that another run took it for gone; or the lock cannot be read.
        """
        try:
            is_held = self._is_own() and max(self._numbers(), default=0) == self._number
        except Exception as error:
            raise OutputError(
                f"{self._output} could not be written: its lock cannot be read: {reason_of(error)}",
                remedy="try again",
            ) from error
        if not is_held:
            raise OutputError(
                f"{self._output} was given to another run: this one stood still for so long that it was taken for one that "
                "was killed, so it writes nothing more",
                remedy="look at what is there, and run it again",
            )

    def release(self) -> None:
        """Give up the lock, whether or not this lease still holds it."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(RENEWAL_SECONDS)  # not for ever: it may wait for an answer
        self._remove_own()
        _held_tokens.discard(self._token)

    def __enter__(self) -> Lease:
        try:
            with writing(self._output):
                self.acquire()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _names(self) -> list[str]:
        self._fs.invalidate_cache()  # the cache does not know what others did
        try:
            return [os.path.basename(entry.rstrip("/")) for entry in self._fs.ls(self._folder, detail=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._names() if LOCK.fullmatch(name)]

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    @property
    def _beat(self) -> str:
        return f"{self._number}.{self._token}"

    def _read(self, name: str) -> bytes | None:
        try:
            return bytes(self._fs.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def _is_own(self) -> bool:
        return self._read(str(self._number)) == self._signature

    def _create(self) -> None:
        """Create the lock of this number, unless it exists."""
        path = self._path(str(self._number))
        try:
            try:
                self._fs.pipe_file(path, self._signature, mode="create")
            except FileNotFoundError:  # not an object store: folders must be made there
                self._fs.makedirs(self._folder, exist_ok=True)
                self._made_folder = True
                self._fs.pipe_file(path, self._signature, mode="create")
        except FileExistsError:
            pass  # it may be ours all the same: a request whose answer was lost is sent again
        except Exception as error:
            # the answer of S3 to some of the requests that come in the same moment
            if "ConditionalRequestConflict" not in str(error):
                raise NoExclusiveCreationError(reason_of(error)) from error

    def _is_gone(self, number: int, lock: bytes) -> bool:
        """Return whether the holder of a lock is gone; False if the lock has changed meanwhile.

        Raises
        ------
        OutputError
            The holder is at work.
        """
        holder = _holder(lock)
        process, host = holder.get("process"), holder.get("host")
        token = str(holder.get("token"))
        refusal = written_by_another(self._output, lock)
        if token in _held_tokens:
            raise refusal
        first = beat = self._read(f"{number}.{token}")
        if beat != ENDED:
            logger.info(
                "%s is locked by the run of process %s on %s: looking for %.0f seconds at most whether that is at work",
                self._output,
                process,
                host,
                LOOKS * LOOK_SECONDS,
            )
        for _ in range(LOOKS):
            if beat == ENDED:
                return True
            time.sleep(LOOK_SECONDS)
            if self._read(str(number)) != lock or max(self._numbers(), default=0) > number:
                return False
            beat = self._read(f"{number}.{token}")
            if beat not in (first, ENDED):
                raise refusal
        logger.info("process %s on %s is gone: going on with %s", process, host, self._output)
        return True

    def _renew(self) -> None:
        beat = 0
        while not self._ended.wait(RENEWAL_SECONDS):
            beat += 1
            self._write_beat(beat)

    def _write_beat(self, beat: int) -> None:
        # if it cannot be written for long, another run takes the lock, and check() notices
        with contextlib.suppress(Exception):
            self._fs.pipe_file(self._path(self._beat), json.dumps({"beat": beat}).encode())

    def _remove_others(self) -> None:
        """Remove the leftovers of earlier runs: lower locks, and all other beats."""
        with contextlib.suppress(Exception):
            for name in self._names():
                is_lower = LOCK.fullmatch(name) and int(name) < self._number
                if is_lower or (BEAT.fullmatch(name) and name != self._beat):
                    # a right to write need not include the right to remove
                    with contextlib.suppress(Exception):
                        self._fs.rm_file(self._path(name))

    def _remove_own(self) -> None:
        with contextlib.suppress(Exception):
            if self._is_own():
                try:
                    self._fs.rm_file(self._path(str(self._number)))
                except Exception:
                    self._fs.pipe_file(self._path(self._beat), ENDED)
                    return
        with contextlib.suppress(Exception):
            self._fs.rm_file(self._path(self._beat))
        if self._made_folder:
            with contextlib.suppress(Exception):
                self._fs.rmdir(self._folder)
