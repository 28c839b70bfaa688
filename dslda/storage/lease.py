"""A lock on an output in an object store, where no system releases it with the process that holds it.

A folder holds the locks ``1``, ``2``, ..., objects that are created exclusively and never written again; the owner of the
highest holds the lock. Beside its lock a holder renews a beat, ``<number>.<token>``. A run that meets a lock watches its beat
for a while. Where the beat stands still the holder is gone, and one of those that try may create the next number. Nothing
compares the clocks of two machines, or asks a machine for the time.

A holder that stood still for that long may have lost its lock without knowing; :meth:`Lease.check` tells.

Why not a conditional write of the manifest alone, which would refuse the second run at its end? File systems of fsspec can
create an object only where none is (``pipe_file(mode="create")`` of s3fs, gcsfs, adlfs and memory), but have no common way to
replace one only if it is unchanged, and an append, an overwrite, a checkpoint and a run of scores all replace theirs. And two
runs mix before their manifests: chunks of a corpus or model and parts of scores have fixed names, which zarr and readers of a
folder expect, so that each run would overwrite what the other has written. The same exclusive creation, used once more at the
beginning, keeps the second run away from all of it.
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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dslda.exceptions import DsldaError, OutputError
from dslda.storage.errors import reason_of
from dslda.storage.output import writing, written_by_another

__all__ = ["Lease", "NoExclusiveCreationError", "leased"]

logger = logging.getLogger("dslda.output")

RENEWAL_SECONDS = 10.0
"""From one beat to the next."""

LOOK_SECONDS = 3.0
LOOKS = 15
"""A beat that is the same in so many looks stands still. Not in so many seconds: the watcher may stand still too."""

ATTEMPTS = 100
ATTEMPT_SECONDS = 0.1

ENDED = b'{"beat": null}'
"""The beat of a lock whose holder has ended, and had no right to remove it."""

LOCK = re.compile(r"\d+")
BEAT = re.compile(r"\d+\.[0-9a-f]{32}")

_held: set[str] = set()
"""Tokens of this process, whose threads need no watching."""


class NoExclusiveCreationError(DsldaError):
    """The file system cannot create an object only where none is."""


@dataclass(frozen=True, slots=True)
class _Holder:
    """Owner of a lock."""

    number: int
    token: str
    process: object
    host: object


class Lease:
    """A lock that is held, and renewed by a thread until it is released.

    Parameters
    ----------
    fs : fsspec file system
    folder : str
        Of the locks, in it.
    output : str
        Name of the locked output in messages.
    """

    def __init__(self, fs: Any, folder: str, output: str) -> None:
        self._fs = fs
        self._folder = folder
        self._output = output
        self._token = uuid.uuid4().hex
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
            holder = self._read(max(numbers)) if numbers else None
            if numbers and (holder is None or not self._is_gone(holder)):
                continue
            self._number = max(numbers, default=0) + 1
            if self._create() and self._is_alone(numbers, holder):
                break
            # another run has begun in the same moment
            self._remove_own()
            time.sleep(random.uniform(0, ATTEMPT_SECONDS))
        else:
            raise OutputError(
                f"{self._output} could not be written: its lock {self._folder} comes and goes",
                remedy="try again",
            )
        _held.add(self._token)
        self._write_beat(0)
        self._thread.start()
        self._remove_others()

    def check(self) -> None:
        """Refuse to go on where the lock was lost; call this before anything that makes an output complete.

        Raises
        ------
        OutputError
            This process stood still for so long that another run took it for gone; or the lock cannot be read.
        """
        try:
            numbers = self._numbers()
            own = self._read(self._number)
        except Exception as error:
            raise OutputError(
                f"{self._output} could not be written: its lock cannot be read: {reason_of(error)}",
                remedy="try again",
            ) from error
        if own is None or own.token != self._token or max(numbers, default=0) != self._number:
            raise OutputError(
                f"{self._output} was given to another run: this one stood still for so long that it was taken for one that "
                "was killed, so it writes nothing more",
                remedy="look at what is there, and run it again",
            )

    def release(self) -> None:
        """Give the lock up, whether or not it is still this one's."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(RENEWAL_SECONDS)  # not for ever: it may wait for an answer
        self._remove_own()
        _held.discard(self._token)

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._names() if LOCK.fullmatch(name)]

    def _names(self) -> list[str]:
        self._fs.invalidate_cache()  # it does not know what others did
        try:
            return [os.path.basename(entry.rstrip("/")) for entry in self._fs.ls(self._folder, detail=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    @property
    def _beat_name(self) -> str:
        return f"{self._number}.{self._token}"

    def _content(self, name: str) -> bytes | None:
        try:
            return bytes(self._fs.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def _read(self, number: int) -> _Holder | None:
        raw = self._content(str(number))
        if raw is None:
            return None
        try:
            signature = json.loads(raw)
            return _Holder(number, signature["token"], signature["process"], signature["host"])
        except (ValueError, KeyError, TypeError):  # not ours: nobody renews it
            return _Holder(number, "", None, None)

    def _beat_of(self, holder: _Holder) -> bytes | None:
        return self._content(f"{holder.number}.{holder.token}")

    def _create(self) -> bool:
        """Create the lock of this number, unless it is there."""
        signature = {"process": os.getpid(), "host": socket.gethostname(), "token": self._token}
        raw, path = json.dumps(signature).encode(), self._path(str(self._number))
        try:
            try:
                self._fs.pipe_file(path, raw, mode="create")
            except FileNotFoundError:  # not an object store: folders must be made there
                self._fs.makedirs(self._folder, exist_ok=True)
                self._made_folder = True
                self._fs.pipe_file(path, raw, mode="create")
        except FileExistsError:
            pass  # it may be ours all the same: a request whose answer was lost is sent again
        except Exception as error:
            # the answer of S3 to some of those that come in the same moment
            if "ConditionalRequestConflict" not in str(error):
                raise NoExclusiveCreationError(reason_of(error)) from error
        # a server that knows no conditions lets the last one overwrite the others
        own = self._read(self._number)
        return own is not None and own.token == self._token

    def _is_alone(self, before: list[int], holder: _Holder | None) -> bool:
        """Whether nobody began between the look at the locks before and the creation of this one."""
        others = set(self._numbers()) - {self._number}
        return others <= set(before) and (holder is None or self._read(holder.number) in (None, holder))

    def _is_gone(self, holder: _Holder) -> bool:
        """Whether the holder of a lock is gone; False where the lock has changed meanwhile.

        Raises
        ------
        OutputError
            It is at work.
        """
        refused = written_by_another(self._output, holder.process, holder.host)
        if holder.token in _held:
            raise refused
        beat = self._beat_of(holder)
        if beat == ENDED:
            return True
        logger.info(
            "%s is locked by the run of process %s on %s: looking for %.0f seconds at most whether that is at work",
            self._output,
            holder.process,
            holder.host,
            LOOKS * LOOK_SECONDS,
        )
        for _ in range(LOOKS):
            time.sleep(LOOK_SECONDS)
            if self._read(holder.number) != holder or max(self._numbers(), default=0) > holder.number:
                return False
            latest = self._beat_of(holder)
            if latest == ENDED:
                return True
            if latest != beat:
                raise refused
        logger.info("process %s on %s is gone: going on with %s", holder.process, holder.host, self._output)
        return True

    def _renew(self) -> None:
        beat = 0
        while not self._ended.wait(RENEWAL_SECONDS):
            beat += 1
            self._write_beat(beat)

    def _write_beat(self, beat: int) -> None:
        # where it cannot be written for long, another run takes the lock, which check() sees
        with contextlib.suppress(Exception):
            self._fs.pipe_file(self._path(self._beat_name), json.dumps({"beat": beat}).encode())

    def _remove_others(self) -> None:
        """Remove what earlier runs have left: lower locks, and beats of any."""
        with contextlib.suppress(Exception):
            for name in self._names():
                is_lower = LOCK.fullmatch(name) and int(name) < self._number
                if is_lower or (BEAT.fullmatch(name) and name != self._beat_name):
                    # rights to write need not be rights to remove
                    with contextlib.suppress(Exception):
                        self._fs.rm_file(self._path(name))

    def _remove_own(self) -> None:
        beat = self._path(self._beat_name)
        with contextlib.suppress(Exception):
            own = self._read(self._number)
            if own is not None and own.token == self._token:
                try:
                    self._fs.rm_file(self._path(str(self._number)))
                except Exception:
                    self._fs.pipe_file(beat, ENDED)
                    return
        with contextlib.suppress(Exception):
            self._fs.rm_file(beat)
        if self._made_folder:
            with contextlib.suppress(Exception):
                self._fs.rmdir(self._folder)


@contextlib.contextmanager
def leased(fs: Any, folder: str, output: str) -> Iterator[Lease]:
    """Hold a lease; parameters and errors are those of :class:`Lease` and :meth:`Lease.acquire`."""
    lease = Lease(fs, folder, output)
    try:
        with writing(output):
            lease.acquire()
        yield lease
    finally:
        lease.release()
